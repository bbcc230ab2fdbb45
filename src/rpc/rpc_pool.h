// RpcPool: the pool of a durable RPC server, recovered: its table of clients, its redo log, and
// where everything is. Who executes what, and when, is executor.h's.
#pragma once

#include <perdure/result.h>

#include "pmem/pool.h"
#include "rpc/redo_log.h"
#include "rpc/rpc_format.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::rpc {

/// The call that a server was executing.
struct Executing {
  std::size_t place = 0;
  std::uint64_t sequence = 0;
};

/// Threads: one caller at a time.
class RpcPool {
 public:
  /// Recovers it: what was committed is stored and durable. One that was never served gets `shape`.
  /// Errors: those of decode_header, validate and RedoLog::recover; NoSpace (it is smaller than the
  /// shape), SystemError.
  static Result<std::unique_ptr<RpcPool>> open(std::unique_ptr<pmem::Pool> pool,
                                               const PoolShape& shape);

  const PoolShape& shape() const { return shape_; }
  pmem::Region& region() { return pool_->region(); }
  RedoLog& redo() { return *redo_; }
  /// As the table had them when it was opened.
  const std::vector<ClientPlace>& places() const { return places_; }

  /// Of the region: a client's pool.
  pmem::Range window(std::size_t place) const {
    return {pool_->data_offset() + shape_.window_at(place), shape_.window_bytes};
  }
  std::span<const std::byte> ring(std::size_t place) const {
    return pool_->data().subspan(shape_.ring_at(place), shape_.ring_bytes);
  }
  /// Of an entry that is visible and may be no more. Errors: SystemError. Cost: one flush.
  Result<void> make_durable(std::size_t place, const Entry& entry);
  /// The handlers' bytes.
  std::span<const std::byte> handlers_data() const {
    return pool_->data().subspan(shape_.data_at(), shape_.data_bytes);
  }
  std::span<const std::byte> reply(std::size_t place, std::uint64_t sequence) const {
    return pool_->data().subspan(shape_.reply_at(place, sequence), shape_.reply_stride());
  }

  /// What the last process was executing when it died, if it did.
  std::vector<Executing> executing() const;
  /// By the `thread`th of those that execute calls, below kExecutingMax.
  void note_executing(const std::optional<Executing>& call, std::size_t thread = 0);

  /// Of the file or device: see pmem::Pool.
  std::uint64_t place() const { return pool_->place(); }

  /// Marks the pool as cleanly closed.
  Result<void> close() { return pool_->close(); }

 private:
  explicit RpcPool(std::unique_ptr<pmem::Pool> pool) : pool_(std::move(pool)) {}
  Result<void> format(const PoolShape& shape);
  Result<void> recover();

  const std::unique_ptr<pmem::Pool> pool_;
  PoolShape shape_;
  std::unique_ptr<RedoLog> redo_;
  std::vector<ClientPlace> places_;
};

/// The pool of a server that has ended, recovered as by the next one; who looks at it serves
/// nobody, and does not mark it as closed.
struct EndedPool {
  std::unique_ptr<RpcPool> pool;
  std::string uuid;
  PersistenceDomain domain = PersistenceDomain::None;  // that it is flushed for
};

/// `declared`: as its server has it. Errors: NotFound (no server has ever served it), those of
/// pmem::Pool::open, which must be declared, and of RpcPool::open.
Result<EndedPool> open_ended_pool(const std::string& file,
                                  std::optional<PersistenceDomain> declared);
/// What is printed where nothing that is flushed there is known to last; empty: it is.
std::string flushed_in_vain(const EndedPool& pool, const std::string& file);

}  // namespace perdure::rpc
