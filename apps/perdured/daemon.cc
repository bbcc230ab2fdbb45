// The daemon, put together: see daemon.h.
#include "daemon.h"

#include <signal.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/try.h"
#include "fabric/open_device.h"
#include "log/log_report.h"
#include "server/metrics.h"
#include "server/plane_addresses.h"

namespace perdure::daemon {
namespace {

server::EmulatedMachine::Options machine_options(const server::Config& config) {
  server::EmulatedMachine::Options options;
  options.profile.domain = config.service.settings.declared.value_or(PersistenceDomain::Dmp);
  options.profile.ddio = config.service.settings.ddio;
  options.profile.write_order = config.service.settings.write_order;
  options.profile.dma_dirties = config.service.settings.dma_dirties;
  options.profile.receive_buffers = config.service.settings.receive_buffers;
  options.profile.transport = config.emulated_transport;
  options.profile.capabilities = config.emulated_capabilities;
  options.seed = config.seed;
  return options;
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::start(const server::Config& config) {
  PERDURE_TRY_VOID(validate(config));
  std::unique_ptr<Daemon> daemon(new Daemon(config));
  if (config.fabric == server::Fabric::Emulated) {
    PERDURE_TRY(machine, server::EmulatedMachine::open(machine_options(config)));
    daemon->machine_ = std::move(machine);
    daemon->transports_ = {config.emulated_transport};
  } else {
    daemon->transports_ = config.transports;
  }
  PERDURE_TRY_VOID(daemon->serve());
  return daemon;
}

Result<std::vector<server::DataPlane>> Daemon::open_planes() {
  std::vector<server::DataPlane> planes;
  if (machine_ != nullptr) {
    planes.push_back({&machine_->device(), "", {}});
    return planes;
  }
  devices_.clear();
  for (const Transport transport : transports_) {
    const auto open = [transport, rnic = config_.rnic] {
      return fabric::open_device(transport, rnic);
    };
    PERDURE_TRY(device, open());
    // Elsewhere than over tcp the device knows where to listen; the grant says it to the requester.
    const std::string listen = transport == Transport::Tcp ? config_.data_listen : "";
    planes.push_back({device.get(), listen, open});
    devices_.push_back(std::move(device));
  }
  return planes;
}

Result<void> Daemon::serve() {
  server::ServiceOptions options = config_.service;
  options.examine = log::report_log;
  server::HttpServerOptions http;
  http.listen = config_.control_listen;
  http.allow_remote = config_.allow_remote;
  http.limits.connections_max = config_.connections_max;
  http.limits.connections_per_address_max = config_.connections_per_address_max;
  if (machine_ != nullptr) {
    options.directory.clear();
    options.store = machine_.get();
    options.emulated = true;
    http.power_cut = [] { ::kill(::getpid(), SIGUSR1); };  // main does it, see power_cycle
  }
  PERDURE_TRY(planes, open_planes());
  PERDURE_TRY(service, server::PeerService::open(std::move(options), std::move(planes)));
  service_ = std::move(service);
  PERDURE_TRY_VOID(serve_rpmem(http));
  PERDURE_TRY(server, server::HttpServer::open(*service_, http));
  http_ = std::move(server);
  config_.control_listen = http_->address();  // the port that was chosen is kept
  if (machine_ != nullptr) return {};
  // A name may have become another address since the configuration was looked at.
  return server::check_planes({http_->address(), service_->data_address(Transport::Tcp),
                               transports_, config_.allow_remote});
}

Result<void> Daemon::serve_rpmem(server::HttpServerOptions& http) {
  if (config_.rpmem.poolset_dir.empty()) return {};
  PERDURE_TRY(rpmem, RpmemListener::open(config_.rpmem));
  rpmem_ = std::move(rpmem);
  http.more_metrics = [from = rpmem_.get()] { return server::metrics_text(from->counters()); };
  http.more_documents.emplace("/v1/rpmem", [from = rpmem_.get()] { return from->document(); });
  return {};
}

Daemon::~Daemon() {
  if (rpmem_ != nullptr) rpmem_->begin_closing();
  if (service_ != nullptr) service_->begin_closing();
}

Result<void> Daemon::power_cycle() {
  PERDURE_ASSERT(machine_ != nullptr);
  http_->go_dark();
  machine_->power_cut();
  service_->begin_closing();
  http_.reset();
  service_->abandon();
  service_.reset();
  machine_->power_on();
  return serve();
}

}  // namespace perdure::daemon
