// A point of `perdure bench rpc` over shm or tcp: the client in one process, the server in another,
// both spinning.
#include "bench/child.h"
#include "bench/rpc_ends.h"
#include "bench/shared_memory.h"
#include "core/json.h"
#include "core/try.h"
#include "fabric/open_device.h"
#include "testing/process.h"

#include <fmt/format.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace perdure::bench {
namespace {

namespace models = rpc::models;

constexpr std::size_t kRpcClientsMax = 1024;
constexpr Nanoseconds kRpcConnectsWithin = std::chrono::seconds(20);
/// A run in which no call is over for this long has come to a stop.
constexpr Nanoseconds kRpcStallsAfter = std::chrono::seconds(10);

/// What both processes see. Each field has one writer.
struct RpcShared {
  struct Connection {
    fabric::RemoteMemory client;
    fabric::RemoteMemory server;
    std::atomic<bool> client_there{false};
    std::atomic<bool> server_there{false};
    std::atomic<bool> started{false};
  };
  std::array<char, 128> address{};
  std::array<char, 256> error{};
  std::atomic<bool> listening{false};
  std::atomic<bool> failed{false};
  std::atomic<bool> stop{false};
  std::atomic<bool> stopped{false};
  std::uint64_t lost = 0;
  std::uint64_t executed = 0;
  std::uint64_t busy_ns = 0;  // in the server's pumps that executed something
  std::array<Connection, kRpcClientsMax> connections;
};

/// To processor `number` of those that this process may use, modulo how many there are.
void pin_to_processor(std::size_t number) {
  cpu_set_t may;
  CPU_ZERO(&may);
  if (::sched_getaffinity(0, sizeof may, &may) != 0 || CPU_COUNT(&may) == 0) return;
  std::size_t skip = number % static_cast<std::size_t>(CPU_COUNT(&may));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &may) || skip-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

/// Whether what runs on a processor matters, so that each process gets one of its own.
bool is_pinned(const RpcLoad& load) {
  return load.pinned || load.client_spinners + load.server_spinners > 0;
}

Transport transport_of(RpcFabric fabric) {
  return fabric == RpcFabric::Tcp ? Transport::Tcp : Transport::Shm;
}

Result<void> await(const std::atomic<bool>& flag, const RpcShared& shared) {
  const Deadline deadline = Deadline::after(kRpcConnectsWithin);
  while (!flag.load(std::memory_order_acquire)) {
    if (shared.failed.load(std::memory_order_acquire)) {
      return Error{ErrorCode::SystemError, shared.error.data()};
    }
    if (deadline.passed()) return Error{ErrorCode::TimedOut, "the other process does not answer"};
    test::pause_for(std::chrono::microseconds(200));
  }
  return {};
}

/// The process of the server.
class RpcServing {
 public:
  RpcServing(const RpcPoint& point, RpcShared& shared)
      : point_(point), shared_(shared), state_(point, Clock::monotonic()) {}

  Result<void> run() {
    PERDURE_TRY(flush, pmem::CacheFlush::best());
    state_.flush = flush;
    PERDURE_TRY(device, fabric::open_device(transport_of(point_.fabric)));
    PERDURE_TRY(listener, device->listen("", models::kEndpointOptions));
    const std::string address = listener->address();
    std::strncpy(shared_.address.data(), address.c_str(), shared_.address.size() - 1);
    shared_.listening.store(true, std::memory_order_release);
    std::vector<End> ends;
    ends.reserve(point_.load.clients);
    for (std::size_t i = 0; i < point_.load.clients; ++i) {
      PERDURE_TRY(end, accept(*device, *listener, shared_.connections[i]));
      ends.push_back(std::move(end));
    }
    PERDURE_TRY_VOID(serve(ends));
    for (const End& end : ends) shared_.lost += end.server->lost();
    shared_.executed = state_.executed;
    shared_.stopped.store(true, std::memory_order_release);
    return {};
  }

 private:
  struct End {
    std::unique_ptr<fabric::Endpoint> endpoint;
    std::unique_ptr<RpcObjectHandler> handler;
    std::unique_ptr<models::Server> server;
  };

  Result<End> accept(fabric::Device& device, fabric::Listener& listener,
                     RpcShared::Connection& connection) {
    PERDURE_TRY(incoming, listener.next(Deadline::after(kRpcConnectsWithin)));
    End end;
    PERDURE_TRY(endpoint, incoming->accept(Deadline::after(kRpcConnectsWithin)));
    end.endpoint = std::move(endpoint);
    end.handler = std::make_unique<RpcObjectHandler>(state_);
    models::EndOptions options = rpc_end_options(point_);
    options.device = &device;
    options.endpoint = end.endpoint.get();
    PERDURE_TRY(server, models::open_server(*point_.design, options, *end.handler));
    end.server = std::move(server);
    PERDURE_TRY_VOID(await(connection.client_there, shared_));
    PERDURE_TRY_VOID(end.server->start(connection.client));
    connection.server = end.server->memory();
    connection.server_there.store(true, std::memory_order_release);
    return end;
  }

  Result<void> serve(std::vector<End>& ends) {
    while (!shared_.stop.load(std::memory_order_relaxed)) {
      for (End& end : ends) {
        const Nanoseconds began = Clock::monotonic().now();
        PERDURE_TRY(executed, end.server->pump());
        if (executed == 0) continue;
        const Nanoseconds took = Clock::monotonic().now() - began;
        shared_.busy_ns += static_cast<std::uint64_t>(took.count());
      }
    }
    return {};
  }

  const RpcPoint& point_;
  RpcShared& shared_;
  RpcServerState state_;
};

int live_as_server(const RpcPoint& point, RpcShared& shared) {
  if (is_pinned(point.load)) pin_to_processor(1);
  RpcServing serving(point, shared);
  const auto ran = serving.run();
  if (!ran.ok() && !shared.stop) {
    std::strncpy(shared.error.data(), ran.error().message.c_str(), shared.error.size() - 1);
    shared.failed.store(true, std::memory_order_release);
  }
  return ran.ok() ? 0 : 1;
}

/// Processes that compute and nothing else.
Result<std::vector<test::ChildProcess>> start_spinners(std::size_t count, std::size_t processor) {
  std::vector<test::ChildProcess> spinners;
  for (std::size_t i = 0; i < count; ++i) {
    PERDURE_TRY(spinner, test::ChildProcess::fork([processor]() -> int {
                  pin_to_processor(processor);
                  volatile std::uint64_t sum = 0;
                  for (;;) sum = sum + 1;
                }));
    spinners.push_back(std::move(spinner));
  }
  return spinners;
}

/// The process of the client.
class RpcCalling {
 public:
  /// `calling`, if any, becomes one more when the first call has begun.
  RpcCalling(const RpcPoint& point, RpcShared& shared, std::atomic<std::uint32_t>* calling)
      : point_(point), shared_(shared), calling_(calling) {}

  Result<RpcSample> run() {
    PERDURE_TRY_VOID(await(shared_.listening, shared_));
    PERDURE_TRY(device, fabric::open_device(transport_of(point_.fabric)));
    ends_.reserve(point_.load.clients);
    for (std::size_t i = 0; i < point_.load.clients; ++i) {
      PERDURE_TRY_VOID(connect(*device, i));
    }
    PERDURE_TRY_VOID(call());
    shared_.stop.store(true, std::memory_order_release);
    PERDURE_TRY_VOID(await(shared_.stopped, shared_));
    const RpcSample found = sample();
    ends_.clear();
    return found;
  }

 private:
  struct End {
    std::unique_ptr<fabric::Endpoint> endpoint;
    std::unique_ptr<models::Client> client;
    std::unique_ptr<RpcCaller> caller;
  };

  Result<void> connect(fabric::Device& device, std::size_t number) {
    RpcShared::Connection& connection = shared_.connections[number];
    End end;
    PERDURE_TRY(endpoint, device.connect(shared_.address.data(), {}, models::kEndpointOptions,
                                         Deadline::after(kRpcConnectsWithin)));
    end.endpoint = std::move(endpoint);
    models::EndOptions options = rpc_end_options(point_);
    options.device = &device;
    options.endpoint = end.endpoint.get();
    PERDURE_TRY(client, models::open_client(*point_.design, options));
    end.client = std::move(client);
    connection.client = end.client->memory();
    connection.client_there.store(true, std::memory_order_release);
    PERDURE_TRY_VOID(await(connection.server_there, shared_));
    PERDURE_TRY_VOID(end.client->start(connection.server));
    end.caller = std::make_unique<RpcCaller>(point_, number, *end.client, Clock::monotonic());
    ends_.push_back(std::move(end));
    return {};
  }

  Result<void> call() {
    Deadline stalled = Deadline::after(kRpcStallsAfter);
    for (std::uint64_t rounds = 1;; ++rounds) {
      bool answered = true;
      bool did = false;
      for (End& end : ends_) {
        if (end.caller->all_answered()) continue;
        answered = false;
        PERDURE_TRY(pumped, end.caller->pump());
        did = did || pumped;
      }
      if (answered) return {};
      if (did && calling_ != nullptr) {
        ++*calling_;
        calling_ = nullptr;
      }
      if (did) stalled = Deadline::after(kRpcStallsAfter);
      if (rounds % 1024 != 0) continue;
      if (shared_.failed.load(std::memory_order_acquire)) {
        return Error{ErrorCode::SystemError, shared_.error.data()};
      }
      if (stalled.passed()) {
        return Error{ErrorCode::TimedOut,
                     fmt::format("{}: a call is never over", point_.design->title)};
      }
    }
  }

  RpcSample sample() const {
    std::vector<const RpcCaller*> callers;
    for (const End& end : ends_) callers.push_back(end.caller.get());
    RpcSample found = sample_of(point_.load, callers);
    found.lost = shared_.lost;
    if (shared_.executed > 0) {
      const double busy_us = static_cast<double>(shared_.busy_ns) / 1e3;
      const double work_us = static_cast<double>(point_.load.processing.count()) / 1e3;
      found.server_us = busy_us / static_cast<double>(shared_.executed) + work_us;
    }
    return found;
  }

  const RpcPoint& point_;
  RpcShared& shared_;
  std::atomic<std::uint32_t>* calling_;
  std::vector<End> ends_;
};

Result<nlohmann::json> live_as_client(const RpcPoint& point,
                                      std::atomic<std::uint32_t>* calling = nullptr);

/// Pairs of processes that send small calls to each other without a pause, but for connecting anew
/// now and then, until they are killed.
class NetworkLoad {
 public:
  /// Returns when each pair calls.
  Result<void> start(const RpcPoint& point);
  /// Errors: SystemError: one has ended.
  Result<void> check() {
    for (test::ChildProcess& pair : pairs_) {
      if (pair.running()) continue;
      return Error{ErrorCode::SystemError,
                   "the processes that keep the network busy have ended, so it was not"};
    }
    return {};
  }

 private:
  struct Calling {
    std::atomic<std::uint32_t> pairs{0};
  };

  std::optional<SharedMemory<Calling>> calling_;
  std::vector<test::ChildProcess> pairs_;
};

Result<void> NetworkLoad::start(const RpcPoint& point) {
  if (point.load.network_clients == 0) return {};
  RpcPoint small;
  small.design = &models::kDarpc;
  small.fabric = point.fabric;
  small.load.object_bytes = 64;
  small.load.objects = 64;
  small.load.calls = 200'000;
  PERDURE_TRY(memory, SharedMemory<Calling>::make());
  calling_.emplace(std::move(memory));
  std::atomic<std::uint32_t>& calling = (**calling_).pairs;
  for (std::size_t i = 0; i < point.load.network_clients; ++i) {
    PERDURE_TRY(pair, test::ChildProcess::fork([small, &calling]() -> int {
                  bool goes_on = live_as_client(small, &calling).ok();
                  while (goes_on) goes_on = live_as_client(small).ok();
                  return 1;
                }));
    pairs_.push_back(std::move(pair));
  }
  const Deadline deadline = Deadline::after(kRpcConnectsWithin);
  while (calling.load() < point.load.network_clients) {
    PERDURE_TRY_VOID(check());
    if (deadline.passed()) {
      return Error{ErrorCode::TimedOut, "the processes that are to keep the network busy call not"};
    }
    test::pause_for(std::chrono::milliseconds(1));
  }
  return {};
}

Result<nlohmann::json> live_as_client(const RpcPoint& point, std::atomic<std::uint32_t>* calling) {
  PERDURE_TRY(memory, SharedMemory<RpcShared>::make());
  RpcShared& shared = *memory;
  PERDURE_TRY(server, test::ChildProcess::fork([&] { return live_as_server(point, shared); }));
  PERDURE_TRY(near, start_spinners(point.load.client_spinners, 0));
  PERDURE_TRY(far, start_spinners(point.load.server_spinners, 1));
  NetworkLoad network;
  PERDURE_TRY_VOID(network.start(point));
  if (is_pinned(point.load)) pin_to_processor(0);
  PERDURE_TRY(found, RpcCalling(point, shared, calling).run());
  PERDURE_TRY_VOID(network.check());
  return to_json(found);
}

}  // namespace

Result<RpcSample> run_rpc_measured(const RpcPoint& point) {
  if (point.load.clients > kRpcClientsMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} clients; at most {}", point.load.clients, kRpcClientsMax)};
  }
  PERDURE_TRY(found, run_in_child([&](const ChildPipes&) { return live_as_client(point); }));
  return rpc_sample_from_json(found);
}

}  // namespace perdure::bench
