// Durable RPC under test: see limits_rpc.h.
#include "bench/limits_rpc.h"

#include "bench/allocations.h"
#include "control/service_types.h"
#include "core/assert.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/text_file.h"
#include "core/try.h"
#include "rpc/client_store.h"
#include "rpc/executor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace perdure::bench {
namespace {

constexpr Nanoseconds kServesWithin = std::chrono::seconds(20);
constexpr std::chrono::milliseconds kCalledWithin{30'000};

constexpr std::uint64_t kCounted = 4096;  // clients
constexpr std::uint64_t kOutOfTurn = std::uint64_t{1} << 40;
constexpr std::uint64_t kCrowdRing = 64 * 1024;

/// What is executed again, or out of its turn, makes the count wrong for good: so no call makes up
/// for another one.
Result<std::size_t> count_call(const RpcCall& call, RpcTransaction& data, std::span<std::byte>) {
  if (call.payload.size() != sizeof(std::uint64_t)) {
    return Error{ErrorCode::InvalidArgument, "the payload is no number"};
  }
  const std::uint64_t at = 8 * load<std::uint64_t>(call.payload.data());
  PERDURE_TRY(before, data.load<std::uint64_t>(at));
  const std::uint64_t in_turn = before + 1 == call.sequence ? 1 : kOutOfTurn;
  PERDURE_TRY_VOID(data.store(at, before + in_turn));
  return std::size_t{0};
}

Result<std::size_t> all_counts(std::span<const std::byte>, const RpcData& data,
                               std::span<std::byte> reply) {
  const std::size_t bytes = std::min<std::size_t>(8 * kCounted, reply.size());
  PERDURE_TRY_VOID(data.read(0, reply.first(bytes)));
  return bytes;
}

RpcServerOptions server_options(const std::string& directory) {
  RpcServerOptions options;
  options.pool = directory + "/calls.pool";
  options.data_bytes = 1 << 20;
  options.clients_max = 64;
  options.answer_bytes_max = 8 * kCounted;
  options.handlers[kCrowdCall] = count_call;
  options.queries[kCrowdCounts] = all_counts;
  options.replies = 128;
  options.declared = PersistenceDomain::Dmp;
  options.listen = "127.0.0.1:0";
  options.data_listen = "127.0.0.1:0";
  options.quick_handlers = true;
  options.slow_from_percent = 100;
  options.handlers[kEmptyCall] = [](const RpcCall&, RpcTransaction&,
                                    std::span<std::byte>) -> Result<std::size_t> {
    return std::size_t{0};
  };
  options.handlers[kCountingCall] = [](const RpcCall&, RpcTransaction&,
                                       std::span<std::byte> reply) -> Result<std::size_t> {
    store(reply.data(), allocations());
    return sizeof(std::uint64_t);
  };
  return options;
}

/// The server's process, until it is killed.
int serve(const RpcServerPlan& plan) {
  const std::string& directory = plan.directory;
  RpcServerOptions options = server_options(directory);
  if (plan.clients > options.clients_max) {
    options.clients_max = static_cast<std::uint32_t>(plan.clients);
    options.ring_bytes = kCrowdRing;
  }
  options.listen = plan.listen;
  const auto server = RpcServer::open(std::move(options));
  const std::string said = server.ok() ? server->address() : "error: " + server.error().message;
  if (!write_file(directory + "/said.part", said).ok()) return 1;
  std::error_code failed;
  std::filesystem::rename(directory + "/said.part", directory + "/said", failed);
  if (failed || !server.ok()) return 1;
  for (;;) ::pause();
}

/// The pool of such a directory, as a server would open it.
Result<std::unique_ptr<rpc::RpcPool>> open_calls(const std::string& directory) {
  PERDURE_TRY(pool, pmem::Pool::open(server_options(directory).pool, {}));
  return rpc::RpcPool::open(std::move(pool), {});
}

}  // namespace

Result<RpcServerUnderTest> RpcServerUnderTest::start(const RpcServerPlan& plan) {
  const std::string& directory = plan.directory;
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (!failed) std::filesystem::remove(directory + "/said", failed);
  if (failed) return Error{ErrorCode::SystemError, directory + ": " + failed.message()};
  PERDURE_TRY(process, test::ChildProcess::fork([&] { return serve(plan); }));
  const Deadline until = Deadline::after(kServesWithin);
  std::string said;
  while ((said = read_text(directory + "/said")).empty()) {
    PERDURE_TRY_VOID(test::InterruptGuard::check());
    if (until.passed()) {
      return Error{ErrorCode::TimedOut, "the server of calls does not start"};
    }
    test::pause_for(std::chrono::milliseconds(5));
  }
  if (said.starts_with("error: ")) return Error{ErrorCode::SystemError, said};
  return RpcServerUnderTest(std::move(process), std::move(said));
}

Result<RpcUnderTest> RpcUnderTest::open(const RpcUnderTestOptions& options) {
  PERDURE_TRY(transport, control::parse_transport_choice(options.transport));
  RpcClientOptions client = options.client;
  client.server = options.server;
  client.name = options.name;
  client.transport = transport;
  PERDURE_TRY(opened, RpcClient::open(std::move(client)));
  return RpcUnderTest(std::move(opened), options.payload_bytes);
}

Result<report::Histogram> RpcUnderTest::one_by_one(std::uint64_t count, RpcLevel level) {
  report::Histogram latencies;
  const Clock& clock = Clock::monotonic();
  for (std::uint64_t i = 0; i < count; ++i) {
    const Nanoseconds begun = clock.now();
    PERDURE_TRY(handle, client_.call(kEmptyCall, payload_));
    PERDURE_TRY_VOID(client_.wait(handle, level, kCalledWithin));
    latencies.add(clock.now() - begun);
  }
  return latencies;
}

Result<void> RpcUnderTest::only_call(std::uint64_t count, RpcLevel level) {
  for (std::uint64_t i = 0; i < count; ++i) {
    PERDURE_TRY(handle, client_.call(kEmptyCall, payload_));
    PERDURE_TRY_VOID(client_.wait(handle, level, kCalledWithin));
  }
  return {};
}

Result<double> RpcUnderTest::windowed(std::uint64_t count, std::size_t window, RpcLevel level) {
  PERDURE_ASSERT(window > 0);
  std::vector<RpcHandle> handles(window);
  const Nanoseconds begun = Clock::monotonic().now();
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i >= window) {
      PERDURE_TRY_VOID(client_.wait(handles[i % window], level, kCalledWithin));
    }
    PERDURE_TRY(handle, client_.call(kEmptyCall, payload_));
    handles[i % window] = handle;
  }
  PERDURE_TRY_VOID(client_.wait(handles[(count - 1) % window], level, kCalledWithin));
  const Nanoseconds took = Clock::monotonic().now() - begun;
  return static_cast<double>(count) * 1e9 /
         static_cast<double>(std::max<std::int64_t>(took.count(), 1));
}

Result<std::uint64_t> RpcUnderTest::allocated_by_server() {
  PERDURE_TRY(handle, client_.call(kCountingCall, payload_));
  PERDURE_TRY(reply, client_.reply(handle, kCalledWithin));
  if (reply.bytes.size() != sizeof(std::uint64_t)) {
    return Error{ErrorCode::ProtocolError, "the server of calls does not count"};
  }
  return load<std::uint64_t>(reply.bytes.data());
}

Result<void> make_unapplied(const std::string& directory, std::uint64_t calls,
                            std::uint64_t payload_bytes) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) return Error{ErrorCode::SystemError, directory + ": " + failed.message()};
  const std::uint64_t bytes = rpc::entry_bytes(payload_bytes);
  {
    RpcServerOptions options = server_options(directory);
    options.clients_max = 1;
    options.ring_bytes = calls * bytes;
    options.transports = {Transport::Tcp};
    PERDURE_TRY_VOID(RpcServer::open(std::move(options)));
  }
  PERDURE_TRY(pool, open_calls(directory));
  PERDURE_TRY(executor, rpc::Executor::open(std::move(pool), {}));
  rpc::ClientStore store(*executor);
  PERDURE_TRY_VOID(store.create({"caller", 4096}, {}, {}));
  const std::uint64_t client = executor->status().clients.front().client_id;
  const std::vector<std::byte> payload(payload_bytes, std::byte{0x5a});
  auto* const ring = const_cast<std::byte*>(executor->pool().ring(0).data());
  for (std::uint64_t call = 0; call < calls; ++call) {
    rpc::Entry entry;
    entry.client = client;
    entry.sequence = call + 1;
    entry.position = call * bytes;
    entry.operation = kEmptyCall;
    entry.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
    entry.generation = 1;
    rpc::encode_entry(entry, payload, ring + entry.position);
  }
  return executor->pool().close();
}

Result<double> scanned_per_second(const std::string& directory) {
  PERDURE_TRY(pool, open_calls(directory));
  PERDURE_TRY(executor, rpc::Executor::open(std::move(pool), {}));
  const Nanoseconds begun = Clock::monotonic().now();
  const RpcServerStatus status = executor->status();
  const Nanoseconds took = Clock::monotonic().now() - begun;
  const std::uint64_t bytes = executor->shape().ring_bytes;
  if (status.clients.size() != 1 || status.clients.front().waiting == 0) {
    return Error{ErrorCode::Corrupt, "the calls of the measurement are not whole"};
  }
  return static_cast<double>(bytes) * 1e9 /
         static_cast<double>(std::max<std::int64_t>(took.count(), 1));
}

Result<double> seconds_to_serve(const std::string& directory) {
  const Nanoseconds begun = Clock::monotonic().now();
  PERDURE_TRY(server, RpcServer::open(server_options(directory)));
  const Nanoseconds took = Clock::monotonic().now() - begun;
  const RpcServerStatus status = server.status();
  if (status.applied == 0 || status.clients.front().waiting != 0) {
    return Error{ErrorCode::Corrupt, "the calls of the measurement were not executed"};
  }
  return to_seconds(took);
}

}  // namespace perdure::bench
