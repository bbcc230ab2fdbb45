#include "sim_files.h"

namespace perdure::app {

Result<Hardware> network_of(const std::string& path) {
  if (path.empty()) return parse_hardware(kBuiltInNetwork, "edr-back-to-back.toml");
  return read_hardware(path);
}

Result<memsys::Device> device_of(const std::string& path) {
  if (path.empty()) return memsys::parse_device(kBuiltInDevice, "nvm-a.toml");
  return memsys::read_device(path);
}

Result<memsys::Processor> processor_of(const std::string& path) {
  if (path.empty()) return memsys::parse_processor(kBuiltInProcessor, "four-cores.toml");
  return memsys::read_processor(path);
}

Result<std::vector<sim::ClientApplication>> applications_of(const std::string& path) {
  if (path.empty()) return sim::parse_client_applications(kBuiltInApplications, "whisper.toml");
  return sim::read_client_applications(path);
}

}  // namespace perdure::app
