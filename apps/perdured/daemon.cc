// The daemon, put together: see daemon.h.
#include "daemon.h"

#include <fmt/format.h>

#include "core/try.h"
#include "fabric/ofi/ofi.h"

namespace perdure::daemon {
namespace {

peer::ServiceOptions service_options(const Config& config) {
  peer::ServiceOptions options;
  options.directory = config.directory;
  options.settings = config.settings;
  options.settings_by_pool = config.settings_by_pool;
  options.queue = config.queue;
  options.sessions_max = config.sessions_max;
  if (config.spin) options.spin_budget = *config.spin;
  return options;
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::start(const Config& config) {
  PERDURE_TRY_VOID(validate(config));
  std::unique_ptr<Daemon> daemon(new Daemon());
  std::vector<peer::DataPlane> planes;
  for (const Transport transport : config.transports) {
    PERDURE_TRY(device, fabric::ofi::open_device());
    planes.push_back({device.get(), config.data_listen, fabric::ofi::open_device});
    daemon->transports_.push_back(transport);
    daemon->devices_.push_back(std::move(device));
  }
  PERDURE_TRY(service, peer::PeerService::open(service_options(config), std::move(planes)));
  daemon->service_ = std::move(service);
  peer::HttpServerOptions http;
  http.listen = config.control_listen;
  http.allow_remote = config.allow_remote;
  PERDURE_TRY(server, peer::HttpServer::open(*daemon->service_, http));
  daemon->http_ = std::move(server);
  return daemon;
}

}  // namespace perdure::daemon
