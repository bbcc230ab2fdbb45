#include "sim_files.h"

#include "core/try.h"
#include "output.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace perdure::app {

Result<Hardware> network_of(const std::string& path) {
  if (path.empty()) return parse_hardware(kBuiltInNetwork, "edr-back-to-back.toml");
  return read_hardware(path);
}

Result<memsys::Device> device_of(const std::string& path) {
  if (path.empty()) return memsys::parse_device(kBuiltInDevice, "nvm-server.toml");
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

Result<void> check_input_name(const std::string& name) {
  if (!name.empty()) return {};
  return Error{ErrorCode::InvalidArgument, "the name of the file is empty"};
}

Result<void> check_file_name(const std::string& name) {
  PERDURE_TRY_VOID(refuse_hyphen(name));
  return check_input_name(name);
}

Result<void> refuse_given(const Command& command, const std::vector<std::string>& options,
                          std::string_view why) {
  for (const std::string& option : options) {
    if (command.count(option) == 0) continue;
    return Error{ErrorCode::InvalidArgument, fmt::format("{} {}", option, why)};
  }
  return {};
}

Result<void> check_no_input(const std::string& output, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code none;  // one of the two is not there: they are not the same
    if (!std::filesystem::equivalent(output, input, none)) continue;
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' is an input, and would be written over", output)};
  }
  return {};
}

}  // namespace perdure::app
