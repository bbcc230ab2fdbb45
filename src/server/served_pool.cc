// An open pool in the hands of a responder: see served_pool.h.
#include "server/served_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/try.h"

namespace perdure::server {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::size_t kServiceStateBytes = 24;
// Between two pieces others get their turn at the medium. A piece is some 10 ms of cache lines; of
// a page cache, where each piece costs a sync of its own, a fraction of a second on a slow disk.
constexpr std::uint64_t kFlushedPieceBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kDirtiedPieceBytes = std::uint64_t{256} << 20;
/// A sync costs its flush of the drive, however little is dirty: so many for a pool of any size.
constexpr std::uint64_t kSyncsMax = 8;

std::vector<std::byte> encode_state(const persist::ReceiveQueue& queue, std::uint64_t writer) {
  std::vector<std::byte> bytes(kServiceStateBytes);
  store(bytes.data(), kServiceStateVersion);
  store(bytes.data() + 4, static_cast<std::uint32_t>(queue.depth));
  store(bytes.data() + 8, static_cast<std::uint32_t>(queue.message_bytes_max));
  store(bytes.data() + 16, writer);
  return bytes;
}

}  // namespace

Result<persist::ReceiveQueue> persistent_queue_of(const pmem::PoolState& state) {
  persist::ReceiveQueue queue{0, 0};
  if (state.opaque.empty()) return queue;
  const std::byte* bytes = state.opaque.data();
  const bool whole = state.opaque.size() >= kServiceStateBytes;
  if (!whole || load<std::uint32_t>(bytes) != kServiceStateVersion) {
    return Error{ErrorCode::VersionMismatch,
                 "the pool's service state was written by another version of perdured; serve it "
                 "with that version"};
  }
  queue.depth = load<std::uint32_t>(bytes + 4);
  queue.message_bytes_max = load<std::uint32_t>(bytes + 8);
  return queue;
}

std::vector<std::byte> first_state(const PoolSettings& settings,
                                   const persist::ReceiveQueue& queue) {
  const bool persistent = settings.receive_buffers == ReceiveBuffers::Pm;
  return encode_state(persistent ? queue : persist::ReceiveQueue{0, 0}, 0);
}

std::uint64_t persistent_buffer_bytes(const persist::ReceiveQueue& queue) {
  return round_up(queue.persistent_bytes(), kPageBytes);
}

Result<std::unique_ptr<ServedPool>> ServedPool::adopt(std::unique_ptr<pmem::Pool> pool,
                                                      const PoolSettings& settings,
                                                      const persist::ReceiveQueue& queue) {
  std::unique_ptr<ServedPool> served(new ServedPool(std::move(pool), settings));
  served->settled_.store(served->pool_->was_settled());  // what is replayed now is flushed at once
  PERDURE_TRY_VOID(served->read_state(queue));
  PERDURE_TRY_VOID(served->lay_out());
  if (served->persistent_buffers_.length == 0) return served;
  PERDURE_TRY_VOID(served->pool_->require_declared());
  PERDURE_TRY(replayed,
              persist::replay_messages(served->region(), served->exported_,
                                       served->persistent_buffers_, served->persistent_queue_));
  served->replayed_ = replayed;
  return served;
}

Result<void> ServedPool::read_state(const persist::ReceiveQueue& queue) {
  const pmem::PoolState& state = pool_->state();
  if (state.opaque.empty()) return choose_layout(queue);
  PERDURE_TRY(found, persistent_queue_of(state));
  persistent_queue_ = found;
  writer_.epoch = state.epoch;
  writer_.writer = load<std::uint64_t>(state.opaque.data() + 16);
  writer_.name = state.holder;
  return {};
}

Result<void> ServedPool::choose_layout(const persist::ReceiveQueue& queue) {
  if (settings_.receive_buffers == ReceiveBuffers::Pm) persistent_queue_ = queue;
  writer_.epoch = pool_->epoch();
  return record_writer(writer_);
}

/// The receive buffers, if any, are at the end of the data, the exported part before them.
Result<void> ServedPool::lay_out() {
  exported_ = {pool_->data_offset(), pool_->data_bytes()};
  if (persistent_queue_.depth == 0) return {};
  const std::uint64_t reserved = persistent_buffer_bytes(persistent_queue_);
  if (exported_.length < reserved + kPageBytes) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} bytes have no room for persistent receive buffers of {} bytes; "
                             "make a larger pool, or use receive_buffers = \"dram\"",
                             exported_.length, reserved)};
  }
  exported_.length = round_down(exported_.length - reserved, kPageBytes);
  persistent_buffers_ = {exported_.at + exported_.length, reserved};
  return {};
}

persist::ReceiveQueue ServedPool::queue(const persist::ReceiveQueue& preferred) const {
  return persistent_buffers_.length != 0 ? persistent_queue_ : preferred;
}

Result<void> ServedPool::record_writer(const WriterRecord& record) {
  pmem::PoolState state;
  state.epoch = record.epoch;
  state.holder = record.name;
  state.opaque = encode_state(persistent_queue_, record.writer);
  PERDURE_TRY_VOID(pool_->set_state(state));
  writer_ = record;
  return {};
}

Result<void> ServedPool::settle(const std::function<bool()>& stop,
                                std::atomic<std::uint64_t>& done_bytes) {
  const PersistenceDomain domain = region().domain();
  std::uint64_t piece = exported_.length;  // one fence, or nothing at all
  if (domain == PersistenceDomain::Dmp) piece = kFlushedPieceBytes;
  if (domain == PersistenceDomain::Page) {
    piece = kDirtiedPieceBytes;
    const std::uint64_t share = (exported_.length + kSyncsMax - 1) / kSyncsMax;
    if (!unnoticed_) piece = std::max(piece, round_up(share, kPageBytes));
  }
  done_bytes.store(0);
  for (std::uint64_t done = 0; done < exported_.length; done_bytes.store(done)) {
    if (done != 0 && stop()) {
      return Error{
          ErrorCode::TimedOut,
          fmt::format("stopped after {} of {} bytes were made durable", done, exported_.length)};
    }
    const std::uint64_t length = std::min(exported_.length - done, piece);
    if (unnoticed_) region().dirty_pages({exported_.at + done, length});
    PERDURE_TRY_VOID(region().flush(exported_.at + done, length));
    done += length;
  }
  note_settled();
  return {};
}

Result<void> ServedPool::close(const std::function<bool()>& stop) {
  // Elsewhere the next opening flushes in any case (Pool::was_settled).
  if (!settled() && region().domain() == PersistenceDomain::Dmp) {
    std::atomic<std::uint64_t> done_bytes{0};
    auto made = settle(stop, done_bytes);
    if (!made.ok() && made.code() != ErrorCode::TimedOut) return made;
  }
  return pool_->close(settled() ? pmem::Pool::Contents::Settled : pmem::Pool::Contents::NotKnown);
}

Result<pmem::MediumCosts> ServedPool::medium_costs(const Clock& clock) {
  if (!medium_costs_) {
    const pmem::Range scratch{pmem::kPoolScratchOffset, pmem::kPoolScratchBytes};
    PERDURE_TRY(measured, pmem::measure_medium(region(), scratch, clock));
    medium_costs_ = measured;
  }
  return *medium_costs_;
}

ServerProfile ServedPool::session_profile(bool write, const fabric::Device& device,
                                          const fabric::Memory& memory) const {
  ServerProfile profile = describe().profile;
  profile.transport = device.transport();
  profile.capabilities = device.capabilities();
  Capabilities& can = profile.capabilities;
  const fabric::FlushPlacement placement = memory.flush_placement();
  can.native_flush = can.native_flush && placement != fabric::FlushPlacement::None;
  can.persistent_flush = can.persistent_flush && placement == fabric::FlushPlacement::Persistence;
  if (!write) profile.receive_buffers = ReceiveBuffers::Dram;
  profile.dma_dirties =
      settings_.dma_dirties == DmaDirties::Yes ? memory.dma_dirties() : DmaDirties::No;
  if (device.places_by_cpu()) profile.ddio = Ddio::On;  // whatever its DMA does
  // These transports store in order, too.
  if (placed_by_cpu(profile.transport)) {
    profile.write_order = WriteOrder::Ordered;
    profile.dma_dirties = DmaDirties::Yes;
  }
  return profile;
}

control::PoolDescription ServedPool::describe() const {
  control::PoolDescription description;
  description.uuid = pmem::to_string(pool_->uuid());
  description.bytes = exported_.length;
  description.profile.domain = pool_->region().domain();
  description.profile.ddio = settings_.ddio;
  description.profile.write_order = settings_.write_order;
  description.profile.receive_buffers =
      persistent_buffers_.length != 0 ? ReceiveBuffers::Pm : ReceiveBuffers::Dram;
  description.epoch = writer_.epoch;
  description.writer = writer_.writer;
  description.writer_name = writer_.name;
  description.evidence = pool_->evidence();
  description.was_closed = pool_->was_shut_down();
  return description;
}

}  // namespace perdure::server
