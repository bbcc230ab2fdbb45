// ServedPool: an open pool in the hands of a responder: which part of it is exported, where
// persistent receive buffers are, who wrote to it last, and what it is to a requester.
//
// The service's part of the pool's state (pmem/pool_format.h, opaque bytes), little-endian:
//
//   offset  size  field
//   0       4     version            kServiceStateVersion
//   4       4     receive depth      of the persistent receive buffers; 0: there are none
//   8       4     message bytes max  of each of them
//   12      4     zero
//   16      8     writer             id of the last writer; 0: none since the last fencing
//
// The epoch and the writer's name are fields of the state itself. The state is written whole or
// not at all (pmem/pool.h), so a crash leaves the old writer or the new one. A pool whose opaque
// bytes are empty was made by nobody of the service and never served: its layout is chosen when it
// is first adopted.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/documents.h"
#include "fabric/fabric.h"
#include "persist/responder.h"
#include "pmem/medium_costs.h"
#include "pmem/pool.h"

namespace perdure::server {

inline constexpr std::uint32_t kServiceStateVersion = 1;

/// What the operator knows of the machine below a pool.
struct PoolSettings {
  /// What survives a power failure; set it when memory has a battery. Not set: the evidence.
  std::optional<PersistenceDomain> declared;
  /// Off only where inbound DMA is known to bypass the caches.
  Ddio ddio = Ddio::On;
  WriteOrder write_order = WriteOrder::Unknown;  // over RDMA
  /// Yes only where power cuts have shown that what an RNIC writes into a page cache on demand is
  /// written back; counts for memory that it pages on demand.
  DmaDirties dma_dirties = DmaDirties::No;
  /// Pm: a writer's messages arrive in persistent memory and are replayed after a crash. Takes
  /// effect for pools that are made or first served with it; its place is reserved then. Who makes
  /// a pool may ask for Dram instead.
  ReceiveBuffers receive_buffers = ReceiveBuffers::Dram;
  /// Whether a requester may make the pool on the DAX device that its name links to. All that is on
  /// it is the pool's then.
  bool take_device = false;
  /// See pmem::OpenOptions.
  bool take_over_lease = false;
};

struct WriterRecord {
  Epoch epoch;
  std::uint64_t writer = 0;
  std::string name;
  bool operator==(const WriterRecord&) const = default;
};

/// Threads: one caller at a time, except where said otherwise and region().
class ServedPool {
 public:
  /// Takes the pool over and applies what a crash left in its persistent receive buffers.
  /// Errors: Corrupt or VersionMismatch (the service's state), InvalidArgument (no room for the
  /// receive buffers), SystemError (the medium).
  static Result<std::unique_ptr<ServedPool>> adopt(std::unique_ptr<pmem::Pool> pool,
                                                   const PoolSettings& settings,
                                                   const persist::ReceiveQueue& queue);

  pmem::Region& region() { return pool_->region(); }
  pmem::Range exported() const { return exported_; }
  /// Empty unless the pool has them.
  pmem::Range persistent_buffers() const { return persistent_buffers_; }
  /// The receive queue of a writer's session: what the persistent buffers are made for, or
  /// `preferred`.
  persist::ReceiveQueue queue(const persist::ReceiveQueue& preferred) const;
  const WriterRecord& writer() const { return writer_; }
  /// Messages applied when it was adopted.
  std::uint64_t replayed() const { return replayed_; }

  /// What its medium costs this machine's processor: timed when it is first asked for.
  /// Errors: those of pmem::measure_medium.
  Result<pmem::MediumCosts> medium_costs(const Clock& clock);

  /// Durability: on success a crash no longer forgets the writer. Errors: those of set_state.
  Result<void> record_writer(const WriterRecord& record);

  /// Whether all that is visible in the exported part is durable: settle() has succeeded, or did so
  /// before the pool was last closed (Pool::was_settled), and no writer has connected since, or
  /// each of them said at its end that it left all durable. Threads: any.
  bool settled() const { return settled_.load(std::memory_order_acquire); }
  /// A writer is about to be able to use its keys: from here on anything may be visible and not
  /// durable. `unnoticed`: also in pages that a flush would leave alone
  /// (persist::Responder::Options, flushes_writes).
  void unsettle(bool unnoticed) {
    unnoticed_ = unnoticed_ || unnoticed;
    settled_.store(false, std::memory_order_release);
  }
  /// The only writer since it was settled says that all it wrote is durable, and has no keys any
  /// more. It is believed, as it is with the contents: it could have written anything.
  void note_settled() {
    unnoticed_ = false;
    settled_.store(true, std::memory_order_release);
  }
  /// Makes what is visible in the exported part durable. An earlier writer may have died between a
  /// write and its flush, and whoever comes next reads what is visible and builds on it. Which
  /// bytes those are nobody knows: one-sided writes leave no trace at the responder. So it is all
  /// of it, in pieces, between which `stop` may end it and `done_bytes` grows. A large pool takes
  /// minutes (dmp) or as long as the disk takes for what is dirty (page; for all that is in memory,
  /// behind a writer whose RNIC wrote unnoticed); on mhp and wsp it is one fence.
  ///
  /// Requires    no writer has keys, and none gets any before this returns.
  /// Durability  on success what was visible when it began is durable.
  /// Errors      those of Region::flush; TimedOut (stopped).
  /// Threads     one caller at a time, beside those of all else.
  Result<void> settle(const std::function<bool()>& stop, std::atomic<std::uint64_t>& done_bytes);

  /// What a session over `device` must be treated as, whose key is that of `memory`.
  ServerProfile session_profile(bool write, const fabric::Device& device,
                                const fabric::Memory& memory) const;
  /// The transport in it is the default one.
  control::PoolDescription describe() const;

  /// Marks the pool as cleanly closed. On dmp what is visible is made durable before, as by
  /// settle(), so that the next opening need not; if `stop` ends that, the mark does not say so.
  ///
  /// Requires  no session is left, and no call of settle().
  Result<void> close(const std::function<bool()>& stop);

 private:
  ServedPool(std::unique_ptr<pmem::Pool> pool, const PoolSettings& settings)
      : pool_(std::move(pool)), settings_(settings) {}
  Result<void> read_state(const persist::ReceiveQueue& queue);
  Result<void> choose_layout(const persist::ReceiveQueue& queue);
  Result<void> lay_out();

  std::unique_ptr<pmem::Pool> pool_;
  const PoolSettings settings_;
  pmem::Range exported_;
  pmem::Range persistent_buffers_;
  persist::ReceiveQueue persistent_queue_{0, 0};  // depth 0: no persistent buffers
  WriterRecord writer_;
  std::uint64_t replayed_ = 0;
  std::optional<pmem::MediumCosts> medium_costs_;
  bool unnoticed_ = false;  // since it was settled
  std::atomic<bool> settled_{false};
};

/// The queue that a pool's persistent receive buffers are made for, as its state says; of depth 0
/// where it has none. Errors: VersionMismatch: the state is none of the service's.
Result<persist::ReceiveQueue> persistent_queue_of(const pmem::PoolState& state);

/// The service's part of the state of a pool that is being made: its receive buffers are those of
/// `settings` from the first moment on, also if it is only served after a crash.
std::vector<std::byte> first_state(const PoolSettings& settings,
                                   const persist::ReceiveQueue& queue);

/// Bytes at the end of a pool's data that persistent receive buffers of this queue take.
std::uint64_t persistent_buffer_bytes(const persist::ReceiveQueue& queue);

}  // namespace perdure::server
