// REMOTELOG with servers in other processes.
#include "bench/remotelog_measured.h"

#include "core/text_file.h"

#include "core/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace perdure::bench {
namespace {

/// One server as the client sees it.
struct Connection {
  std::string path;
  std::unique_ptr<persist::Requester> requester;
  std::unique_ptr<fabric::Endpoint> endpoint;  // goes first
};

}  // namespace

Result<std::unique_ptr<MeasuredRuns>> MeasuredRuns::start(RemotelogFabric fabric,
                                                          std::size_t replicas) {
  auto directory = test::TemporaryDirectory::make(kMemoryDirectory);
  if (!directory.ok()) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("the log is kept in memory: {}", directory.error().message)};
  }
  std::unique_ptr<MeasuredRuns> runs(new MeasuredRuns(fabric, std::move(*directory)));
  for (std::size_t i = 0; i < replicas; ++i) {
    PERDURE_TRY(server, ServerProcess::start(fabric));
    runs->servers_.push_back(std::move(server));
  }
  return runs;
}

RemotelogRow MeasuredRuns::run(const plan::Scenario& scenario, plan::Source source,
                               const RemotelogOptions& options, const RemotelogProgress& progress) {
  RemotelogRow row;
  row.fabric = fabric_;
  row.source = source;
  row.scenario = scenario;
  row.options = options;
  const auto ran = run_into(row, progress);
  if (!ran.ok()) row.fail(ran.error());
  return row;
}

Result<void> MeasuredRuns::run_into(RemotelogRow& row, const RemotelogProgress& progress) {
  if (device_ == nullptr) {
    PERDURE_TRY(opened, open_measured_device(fabric_));
    device_ = std::move(opened);
  }
  const Method& method = row.scenario.method;
  ServerRole role;
  role.exported_bytes = row.options.layout().exported_bytes();
  role.domain = row.scenario.profile.domain;
  role.receive_buffers = row.scenario.profile.receive_buffers;
  role.queue.message_bytes_max =
      std::max<std::size_t>(1024, round_up(row.options.record_bytes + 256, kCacheLineBytes));
  std::vector<Connection> connections;
  std::vector<RemotelogClient::Replica> replicas;
  ++runs_;
  for (ServerProcess& server : servers_) {
    role.path = fmt::format("{}/log-{}-{}", directory_.path(), runs_, server.pid());
    PERDURE_TRY(place, server.serve(role));
    Connection connection{role.path, nullptr, nullptr};
    PERDURE_TRY(endpoint,
                device_->connect(place.address, {}, {}, Deadline::after(kConnectsWithin)));
    connection.endpoint = std::move(endpoint);
    persist::Requester::Options options;
    options.remote = place.memory;
    options.queue = role.queue;
    options.session = kServerSession;
    options.updates_max = row.options.window;
    PERDURE_TRY(requester, persist::Requester::open(*connection.endpoint, *device_,
                                                    row.scenario.profile, {method}, options));
    connection.requester = std::move(requester);
    replicas.push_back({connection.requester.get(), device_.get()});
    connections.push_back(std::move(connection));
  }
  PERDURE_TRY(log, RemotelogClient::open(replicas, method, row.options));
  PERDURE_TRY_VOID(log->run(Clock::monotonic(), row, progress));
  for (std::size_t i = 0; i < connections.size(); ++i) {
    connections[i].endpoint->disconnect();
    PERDURE_TRY_VOID(servers_[i].finish());
    const std::string bytes = read_text(connections[i].path);
    if (bytes.size() < role.exported_bytes) {
      return Error{ErrorCode::NotFound,
                   fmt::format("'{}' is shorter than it was made", connections[i].path)};
    }
    PERDURE_TRY(found, check_remotelog(std::as_bytes(std::span(bytes)), method, row.options));
    row.checked = found;
    std::error_code ignored;
    std::filesystem::remove(connections[i].path, ignored);
  }
  return {};
}

}  // namespace perdure::bench
