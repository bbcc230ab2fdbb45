// The public face of a durable RPC server: a pool file, devices, and a control plane.
#include <fmt/format.h>
#include <perdure/rpc.h>

#include <filesystem>

#include "core/bounded_time.h"
#include "core/bytes.h"
#include "core/forks.h"
#include "core/try.h"
#include "fabric/open_device.h"
#include "pmem/pool.h"
#include "rpc/rpc_host.h"
#include "rpc/rpc_metrics.h"
#include "rpc/status_json.h"
#include "server/http_server.h"
#include "server/plane_addresses.h"

namespace perdure {
namespace {

// A server that was killed a moment ago has its pool until its process has ended.
constexpr Nanoseconds kPoolBusyWithin = std::chrono::seconds(3);
constexpr Nanoseconds kPoolBusyPause = std::chrono::milliseconds(20);
constexpr std::uint64_t kZeroedAtOnce = 256ULL << 20;

persist::ReceiveQueue receive_queue() {
  persist::ReceiveQueue queue;
  queue.depth = 32;
  return queue;
}

rpc::PoolShape shape_of(const RpcServerOptions& options) {
  rpc::PoolShape shape;
  shape.clients = options.clients_max;
  shape.ring_bytes = round_up(options.ring_bytes, rpc::kEntryAlignment);
  shape.window_bytes = round_up(pmem::kPoolDataOffset + rpc::kRingAt + shape.ring_bytes +
                                    (options.receive_buffers == ReceiveBuffers::Pm
                                         ? server::persistent_buffer_bytes(receive_queue())
                                         : 0),
                                rpc::kRpcPageBytes);
  shape.replies = options.replies;
  shape.reply_bytes_max = options.reply_bytes_max;
  shape.transaction_bytes = round_up(options.transaction_bytes, rpc::kRpcPageBytes);
  shape.data_bytes = options.data_bytes;
  shape.application = options.application;
  return shape;
}

/// Before anything is executed: by handlers that are not its own a call would be refused for good.
Result<void> check_application(pmem::Pool& pool, const RpcServerOptions& options) {
  PERDURE_TRY(found, rpc::decode_header(pool.data()));
  if (!found || found->application == options.application) return {};
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("{} holds calls of application {:#010x}, and this server is of {:#010x}; "
                  "serve it by the program that made it",
                  options.pool, found->application, options.application)};
}

/// The pool in the file; a new one if there is no file.
Result<std::unique_ptr<pmem::Pool>> open_pool(const RpcServerOptions& options,
                                              const rpc::PoolShape& shape) {
  PERDURE_TRY_VOID(validate(shape));
  std::error_code ignored;
  if (!std::filesystem::exists(options.pool, ignored)) {
    pmem::PoolOptions pool;
    pool.data_bytes = round_up(shape.bytes(), rpc::kRpcPageBytes);
    pool.kind = "rpc";
    pool.declared = options.declared;
    pool.zeroed_bytes_max = kZeroedAtOnce;
    return pmem::Pool::create(options.pool, pool);
  }
  pmem::OpenOptions open;
  open.declared = options.declared;
  open.must_be_declared = true;
  const Deadline until = Deadline::after(kPoolBusyWithin);
  for (;;) {
    auto pool = pmem::Pool::open(options.pool, open);
    if (pool.ok() || pool.code() != ErrorCode::Busy || until.passed()) return pool;
    fabric::wait_any({}, kPoolBusyPause);
  }
}

Result<std::vector<server::DataPlane>> open_planes(
    const RpcServerOptions& options, std::vector<std::unique_ptr<fabric::Device>>& devices) {
  std::vector<server::DataPlane> planes;
  for (const Transport transport : options.transports) {
    const auto open = [transport, rnic = options.rnic.name] {
      return fabric::open_device(transport, rnic);
    };
    PERDURE_TRY(device, open());
    planes.push_back(
        {device.get(), transport == Transport::Tcp ? options.data_listen : std::string(), open});
    devices.push_back(std::move(device));
  }
  return planes;
}

/// More tries of one call would keep everybody else waiting for nothing.
constexpr std::uint32_t kAttemptsMax = 1000;

rpc::RpcHostOptions host_options(const RpcServerOptions& options) {
  rpc::RpcHostOptions host;
  host.executor.handlers = options.handlers;
  host.executor.queries = options.queries;
  host.executor.attempts_max = std::clamp<std::uint32_t>(options.attempts_max, 1, kAttemptsMax);
  host.executor.refuse_failed = options.refuse_failed;
  host.executor.threads = std::clamp<std::size_t>(options.handler_threads, 1, rpc::kExecutingMax);
  host.executor.answer_bytes_max =
      std::min<std::uint64_t>(options.answer_bytes_max, rpc::kAnswerBytesMax);
  host.lease = bounded(options.lease);
  host.spin = bounded(options.spin);
  host.slow_from_percent = std::clamp<std::uint32_t>(options.slow_from_percent, 1, 100);
  host.quick_handlers = options.quick_handlers;
  host.service.queue = receive_queue();
  host.service.settings.declared = options.declared;
  host.service.settings.receive_buffers = options.receive_buffers;
  return host;
}

/// Errors: InvalidArgument.
Result<void> require_operators(const RpcServerOptions& options) {
  if (options.handlers.count(kRpcCancelled) == 0) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("operator {} is that of calls that were cancelled: it takes no handler",
                           kRpcCancelled)};
}

/// Of the addresses as they were given, or as they were bound.
Result<void> check_addresses(const RpcServerOptions& options, const std::string& control,
                             const std::string& data) {
  static const server::PlaneWords words{"listen", "data_listen (--data-listen)", "transports",
                                        "allow_remote (--allow-remote)"};
  return check_planes({control, data, options.transports, options.allow_remote}, words);
}

Error server_not_usable() {
  return {ErrorCode::InvalidArgument,
          "this server was moved from, or belongs to the parent process: open one"};
}

}  // namespace

class RpcServer::State {
 public:
  // Destroyed in reverse: first no more requests, then sessions and pool, then the devices.
  std::vector<std::unique_ptr<fabric::Device>> devices;
  std::unique_ptr<rpc::RpcHost> host;
  std::unique_ptr<server::HttpServer> http;
  const std::uint32_t process = forks_so_far();
};

void RpcServer::Delete::operator()(State* state) const {
  // In a child its threads are not there, and what it would end is the parent's.
  if (state->process == forks_so_far()) delete state;
}

RpcServer::RpcServer(std::unique_ptr<State, Delete> state) : state_(std::move(state)) {}
RpcServer::RpcServer(RpcServer&&) noexcept = default;
RpcServer& RpcServer::operator=(RpcServer&&) noexcept = default;
RpcServer::~RpcServer() = default;

Result<RpcServer> RpcServer::open(RpcServerOptions options) {
  PERDURE_TRY_VOID(require_operators(options));
  PERDURE_TRY_VOID(check_addresses(options, options.listen, options.data_listen));
  const rpc::PoolShape shape = shape_of(options);
  std::unique_ptr<State, Delete> state(new State);
  rpc::RpcHostOptions how = host_options(options);
  PERDURE_TRY(endpoints, fabric::endpoints_for(options.rnic, how.service.endpoints));
  how.service.endpoints = endpoints;
  PERDURE_TRY(pool, open_pool(options, shape));
  PERDURE_TRY_VOID(check_application(*pool, options));
  PERDURE_TRY(planes, open_planes(options, state->devices));
  PERDURE_TRY(host, rpc::RpcHost::open(std::move(pool), shape, std::move(how), std::move(planes)));
  state->host = std::move(host);
  server::HttpServerOptions http;
  http.listen = options.listen;
  http.allow_remote = options.allow_remote;
  http.more_metrics = [&executor = state->host->executor()] {
    return rpc::metrics_text(executor.status());
  };
  http.more_documents[rpc::kStatusPath] = [&executor = state->host->executor()] {
    return rpc::encode_status(executor.status());
  };
  PERDURE_TRY(served, server::HttpServer::open(state->host->service(), http));
  state->http = std::move(served);
  PERDURE_TRY_VOID(check_addresses(options, state->http->address(),
                                   state->host->service().data_address(Transport::Tcp)));
  return RpcServer(std::move(state));
}

Result<RpcServerStatus> RpcServer::replay(RpcServerOptions options) {
  PERDURE_TRY_VOID(require_operators(options));
  std::error_code ignored;
  if (!std::filesystem::exists(options.pool, ignored)) {
    return Error{ErrorCode::NotFound, fmt::format("there is no pool {}", options.pool)};
  }
  const rpc::PoolShape shape = shape_of(options);
  PERDURE_TRY(pool, open_pool(options, shape));
  PERDURE_TRY_VOID(check_application(*pool, options));
  rpc::RpcHostOptions how = host_options(options);
  how.service.threads = false;
  PERDURE_TRY(host, rpc::RpcHost::open(std::move(pool), shape, std::move(how), {}));
  const RpcServerStatus status = host->executor().status();
  PERDURE_TRY(windows, host->service().list());
  for (const PoolDescription& each : windows) {
    if (each.state == PoolStatus::Open) continue;
    return Error{ErrorCode::SystemError,
                 fmt::format("of client '{}' there may be more calls than were executed: {}",
                             each.name, each.reason)};
  }
  PERDURE_TRY_VOID(host->executor().pool().region().check());
  return status;
}

bool RpcServer::usable() const { return state_ != nullptr && state_->process == forks_so_far(); }

Result<void> RpcServer::retry(const std::string& client, std::uint64_t sequence) {
  return usable() ? state_->host->retry(client, sequence) : server_not_usable();
}

Result<void> RpcServer::drop(const std::string& client, std::uint64_t sequence) {
  return usable() ? state_->host->drop(client, sequence) : server_not_usable();
}

const std::string& RpcServer::address() const {
  static const std::string nowhere;
  return usable() ? state_->http->address() : nowhere;
}

RpcServerStatus RpcServer::status() const {
  return usable() ? state_->host->executor().status() : RpcServerStatus{};
}

}  // namespace perdure
