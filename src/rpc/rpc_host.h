// RpcHost: a durable RPC server without its control plane: the executor, the service through which
// clients reach their rings, and the thread that executes. What include/perdure/rpc.h promises,
// with pool, devices and clock given, so that it runs in one process with emulated ones.
#pragma once

#include "rpc/client_store.h"
#include "rpc/executor.h"
#include "rpc/rpc_requests.h"
#include "server/service.h"

#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace perdure::rpc {

struct RpcHostOptions {
  ExecutorOptions executor;
  /// Store, handlers, handled, ended, reply_bytes_max and sessions are the host's.
  server::ServiceOptions service;
  Nanoseconds lease{0};                              // 0: clients do not expire
  Nanoseconds spin = std::chrono::microseconds(50);  // then it sleeps until it hears of something
  /// A client that asks for a reply waits for up to this long in the thread of its session.
  Nanoseconds reply_wait = std::chrono::microseconds(500);
  std::uint32_t slow_from_percent = 0;  // RpcServerOptions; 0: never
  bool quick_handlers = false;          // RpcServerOptions
};

/// Threads: any, except that without threads (ServiceOptions) all calls come from one.
class RpcHost {
 public:
  /// Recovers the pool, or makes it one of `shape`; then every call that it finds is executed, and
  /// clients are served. Errors: those of RpcPool::open, of PeerService::open and of execution.
  static Result<std::unique_ptr<RpcHost>> open(std::unique_ptr<pmem::Pool> pool,
                                               const PoolShape& shape, RpcHostOptions options,
                                               std::vector<server::DataPlane> planes);
  ~RpcHost();
  RpcHost(const RpcHost&) = delete;
  RpcHost& operator=(const RpcHost&) = delete;

  server::PeerService& service() { return *service_; }
  Executor& executor() { return *executor_; }

  /// See Executor. What may be executed then is.
  Result<void> retry(const std::string& name, std::uint64_t sequence);
  Result<void> drop(const std::string& name, std::uint64_t sequence);
  /// Serves and executes once, without waiting; returns whether there was anything. Requires a
  /// service without threads.
  bool pump();
  /// Ends clients of which nothing was heard for the lease.
  void expire_clients();
  /// As PeerService::abandon: afterwards only destruction.
  void abandon();

 private:
  explicit RpcHost(RpcHostOptions options);
  Result<void> serve(std::vector<server::DataPlane> planes);
  persist::RequestHandlers handlers_of(const server::SessionTerms& terms);
  void wake();
  void note_handled(const server::SessionTerms& terms);
  void note_ended(const server::SessionTerms& terms);
  void look_for_calls(std::size_t place);
  Nanoseconds scan_interval() const;
  void run();
  void rest();

  const RpcHostOptions options_;
  const std::function<void(std::size_t)> look_ = [this](std::size_t at) { look_for_calls(at); };
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ClientStore> store_;
  std::vector<std::unique_ptr<ClientRequests>> requests_;  // by place
  std::unique_ptr<server::PeerService> service_;

  Mutex mutex_;
  bool woken_ PERDURE_GUARDED_BY(mutex_) = false;
  bool stopping_ PERDURE_GUARDED_BY(mutex_) = false;
  std::condition_variable changed_;
  bool abandoned_ = false;
  std::thread thread_;  // or none
};

}  // namespace perdure::rpc
