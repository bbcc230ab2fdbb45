// The daemon: devices, the peer service and its control plane, and who starts rpmemd for librpmem,
// put together from a Config.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rpmem_listener.h"
#include "server/config.h"
#include "server/emulated_machine.h"
#include "server/http_server.h"
#include "server/service.h"

namespace perdure::daemon {

class Daemon {
 public:
  /// Everything runs when this returns. Errors: those of validate, of the devices, of
  /// PeerService::open, of RpmemListener::open and of HttpServer::open.
  static Result<std::unique_ptr<Daemon>> start(const server::Config& config);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// "host:port" of the control plane, with the port that was chosen.
  const std::string& control_address() const { return http_->address(); }
  /// The same of the data plane; empty if it is not offered.
  std::string data_address(Transport transport) const { return service_->data_address(transport); }
  const std::vector<Transport>& transports() const { return transports_; }
  /// Where clients of librpmem come; empty: they are not served.
  std::string rpmem_address() const { return rpmem_ == nullptr ? "" : rpmem_->address(); }

  /// The emulated machine loses its power, gets it back, and the daemon starts again at the same
  /// address. Requires an emulated fabric. Errors: those of start.
  Result<void> power_cycle();

 private:
  explicit Daemon(server::Config config) : config_(std::move(config)) {}

  Result<std::vector<server::DataPlane>> open_planes();
  Result<void> serve();
  Result<void> serve_rpmem(server::HttpServerOptions& http);

  server::Config config_;
  // Destroyed in reverse: first no more requests, then the rpmemd that were started, sessions and
  // pools, then the devices.
  std::vector<Transport> transports_;
  std::unique_ptr<server::EmulatedMachine> machine_;  // or none
  std::vector<std::unique_ptr<fabric::Device>> devices_;
  std::unique_ptr<server::PeerService> service_;
  std::unique_ptr<RpmemListener> rpmem_;  // or none
  std::unique_ptr<server::HttpServer> http_;
};

}  // namespace perdure::daemon
