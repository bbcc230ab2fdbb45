// ClientStore: the clients of a durable RPC server as the pools of a service, each in its window of
// the server's pool. So a client's ring has what every pool has: one writer at a time, keys of its
// own, fencing, persistent receive buffers; and no key opens anything else.
#pragma once

#include "rpc/executor.h"
#include "server/pool_store.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace perdure::rpc {

/// Threads: any. Requires that the executor outlives it and the pools that it gives.
class ClientStore final : public server::PoolStore {
 public:
  explicit ClientStore(Executor& executor) : executor_(executor) {}

  Result<std::vector<std::string>> names() override { return executor_.names(); }
  /// A new client. Errors: AlreadyExists, NoSpace (no place is free; more bytes were asked for than
  /// a ring has), SystemError.
  Result<std::unique_ptr<pmem::Pool>> create(const control::PoolRequest& request,
                                             const server::PoolSettings& settings,
                                             const persist::ReceiveQueue& queue) override;
  /// Errors: NotFound, and those of pmem::Pool::attach.
  Result<std::unique_ptr<pmem::Pool>> open(const std::string& name,
                                           const server::PoolSettings& settings) override;
  /// The client expires. Errors: NotFound; Busy (it has calls that are not applied).
  Result<void> remove(const std::string& name, const std::string&) override {
    return executor_.remove_client(name);
  }
  Stored look(const std::string&) override { return {executor_.shape().window_bytes, ""}; }

 private:
  Executor& executor_;
};

/// What the persistent receive buffers of the client at a place hold, if it has them, is put into
/// its ring, as the next server does before it executes anything. Returns how many messages.
/// Errors: those of pmem::Pool::attach and of server::ServedPool::adopt.
Result<std::uint64_t> replay_buffers(RpcPool& pool, std::size_t place);

}  // namespace perdure::rpc
