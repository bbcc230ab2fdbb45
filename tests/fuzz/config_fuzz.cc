// Fuzz target: the configuration of perdured. The input is the text of a file; what is read must
// hold what the daemon relies on, and every refusal names the file and a line.
#include <cstdint>
#include <string_view>

#include "control/host_port.h"
#include "core/assert.h"
#include "server/config.h"

namespace perdure::daemon {
namespace {

void check(std::string_view text) {
  const auto config = server::parse_config(text, "x.toml");
  if (!config.ok()) {
    PERDURE_ASSERT(config.code() == ErrorCode::InvalidArgument);
    PERDURE_ASSERT(config.error().message.compare(0, 7, "x.toml:") == 0);
    return;
  }
  PERDURE_ASSERT(control::parse_host_port(config->control_listen).ok());
  PERDURE_ASSERT(control::parse_host_port(config->data_listen).ok());
  PERDURE_ASSERT(!config->transports.empty());
  PERDURE_ASSERT(config->service.sessions_max > 0);
  PERDURE_ASSERT(config->service.queue.depth >= 2 * persist::kResponderBurst);
  for (const auto& [name, settings] : config->service.settings_by_pool) {
    PERDURE_ASSERT(control::validate_pool_name(name).ok());
  }
  server::Config nameless = *config;  // nobody waits for a name service
  nameless.control_listen = nameless.data_listen = "127.0.0.1:0";
  (void)validate(nameless);
}

}  // namespace
}  // namespace perdure::daemon

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perdure::daemon::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
