// See work_batch.h.
#ifdef PERDURE_WITH_VERBS
#include "fabric/verbs/work_batch.h"

#include <arpa/inet.h>

#include "core/assert.h"
#include "fabric/verbs/extended.h"

#include <algorithm>
#include <utility>

namespace perdure::fabric::verbs {
namespace {

bool is_transfer(Opcode opcode) {
  return opcode == Opcode::Send || opcode == Opcode::Write || opcode == Opcode::WriteImm ||
         opcode == Opcode::Read;
}

/// Walks over the segments of a transfer, one entry's share at a time.
class Pieces {
 public:
  Pieces(const WorkRequest& request, std::uint64_t bytes_max, std::size_t segments_max)
      : request_(request), bytes_max_(bytes_max), segments_max_(segments_max) {}

  /// Fills the next share: how many segments and bytes. The first share may be empty.
  std::size_t take(std::array<ibv_sge, kSegmentsMax>& out, std::uint64_t& bytes) {
    std::size_t count = 0;
    bytes = 0;
    while (index_ < request_.segment_count && count < segments_max_ && bytes < bytes_max_) {
      const Segment& segment = request_.segments[index_];
      const std::uint64_t length = std::min(segment.length - within_, bytes_max_ - bytes);
      if (length > 0) {
        out[count++] = {reinterpret_cast<std::uintptr_t>(segment.data + within_),
                        static_cast<std::uint32_t>(length), lkey_of(segment)};
      }
      bytes += length;
      within_ += length;
      if (within_ == segment.length) {
        ++index_;
        within_ = 0;
      }
    }
    while (index_ < request_.segment_count && request_.segments[index_].length == 0) ++index_;
    return count;
  }
  bool done() const { return index_ >= request_.segment_count; }

 private:
  const WorkRequest& request_;
  std::uint64_t bytes_max_;
  std::size_t segments_max_;
  std::size_t index_ = 0;
  std::uint64_t within_ = 0;
};

}  // namespace

std::size_t entry_count(const WorkRequest& request, const QueueLimits& limits) {
  if (!is_transfer(request.opcode)) return 1;
  const bool reading = request.opcode == Opcode::Read;
  const std::size_t more = request.opcode == Opcode::WriteImm && !limits.writes_immediates ? 2 : 0;
  const std::size_t segments_max = reading ? limits.read_segments_max : kSegmentsMax;
  if (request.segment_count <= segments_max && total_length(request) <= limits.message_bytes_max) {
    return 1 + more;
  }
  Pieces pieces(request, limits.message_bytes_max, segments_max);
  std::array<ibv_sge, kSegmentsMax> ignored;
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  do {
    pieces.take(ignored, bytes);
    ++count;
  } while (!pieces.done());
  return count + more;
}

/// Stores all that does not vary. An empty segment says something else to an RNIC, and memory that
/// is not registered has no key: fill_plain lets neither through.
bool WorkBatch::make_ready(std::size_t at, const WorkRequest& request) {
  Entry& entry = entries_[at];
  const bool reads = request.opcode == Opcode::Read;
  const bool sends = request.opcode == Opcode::Send;
  if (!reads && !sends && request.opcode != Opcode::Write) return false;
  const std::size_t segments_max = reads ? limits_.read_segments_max : kSegmentsMax;
  if (request.segment_count == 0 || request.segment_count > segments_max) return false;
  if (reads && !limits_.reads_in_order) return false;
  const std::uint64_t length = total_length(request);
  if (length == 0 || length > plain_bytes_max_) return false;
  const std::uint64_t inline_max =
      reads ? 0 : std::min<std::uint64_t>(limits_.inline_bytes_max, plain_bytes_max_);
  const bool goes_inline = length <= inline_max;
  entry.ready_for = look_of(request);
  entry.ready_bytes_min = goes_inline ? 1 : inline_max + 1;
  entry.ready_bytes_more = (goes_inline ? inline_max : plain_bytes_max_) - entry.ready_bytes_min;
  entry.work.num_sge = request.segment_count;
  entry.work.opcode = reads ? IBV_WR_RDMA_READ : sends ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
  entry.work.send_flags = (request.fenced ? static_cast<unsigned>(IBV_SEND_FENCE) : 0) |
                          (request.signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0) |
                          (sends ? static_cast<unsigned>(IBV_SEND_SOLICITED) : 0) |
                          (goes_inline ? static_cast<unsigned>(IBV_SEND_INLINE) : 0);
  return true;
}

ibv_send_wr& WorkBatch::next(const WorkRequest& request, std::uint64_t id, ibv_wr_opcode opcode) {
  PERDURE_ASSERT(count_ < kEntriesMax);
  entries_[count_].ready_for = kNothing;
  entries_[count_].kind = Kind::Plain;
  ibv_send_wr& work = entries_[count_].work;
  work.wr_id = id;
  work.num_sge = 0;
  work.opcode = opcode;
  work.send_flags = request.fenced ? static_cast<unsigned>(IBV_SEND_FENCE) : 0;
  work.wr.rdma.remote_addr = request.remote.base + request.remote_offset;
  work.wr.rdma.rkey = static_cast<std::uint32_t>(request.remote.key);
  ++count_;
  return work;
}

void WorkBatch::add_transfer(const WorkRequest& request, std::uint64_t id, ibv_wr_opcode opcode,
                             std::size_t segments_max) {
  Pieces pieces(request, limits_.message_bytes_max, segments_max);
  std::uint64_t done = 0;
  do {
    ibv_send_wr& work = next(request, id, opcode);
    std::uint64_t bytes = 0;
    work.num_sge = static_cast<int>(pieces.take(entries_[count_ - 1].segments, bytes));
    work.wr.rdma.remote_addr += done;
    done += bytes;
    if (opcode != IBV_WR_RDMA_READ && bytes > 0 && bytes <= limits_.inline_bytes_max) {
      work.send_flags |= IBV_SEND_INLINE;
    }
  } while (!pieces.done());
}

/// ATOMIC WRITE and the two atomics that answer with the old value.
void WorkBatch::add_word(const WorkRequest& request, std::uint64_t id) {
  if (request.opcode == Opcode::AtomicWrite) {
    next(request, id, IBV_WR_RDMA_WRITE);
    entries_[count_ - 1].kind = Kind::AtomicWrite;
    entries_[count_ - 1].value = request.operand;
    needs_extended_ = true;
    return;
  }
  const bool swaps = request.opcode == Opcode::CompareSwap;
  ibv_send_wr& work =
      next(request, id, swaps ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD);
  ibv_sge& sink = entries_[count_ - 1].segments[0];
  if (request.segment_count > 0) {
    const Segment& segment = request.segments[0];
    sink = {reinterpret_cast<std::uintptr_t>(segment.data), 8, lkey_of(segment)};
  } else {
    sink = scratch_;
  }
  work.num_sge = 1;
  work.wr.atomic.remote_addr = request.remote.base + request.remote_offset;
  work.wr.atomic.compare_add = request.operand;
  work.wr.atomic.swap = request.swap;
  work.wr.atomic.rkey = static_cast<std::uint32_t>(request.remote.key);
}

/// A WRITE, its immediate by another, and an empty message.
void WorkBatch::add_immediate(const WorkRequest& request, std::uint64_t id, std::uint64_t message) {
  add_transfer(request, id, IBV_WR_RDMA_WRITE, kSegmentsMax);
  ibv_send_wr& told = next(request, id, IBV_WR_RDMA_WRITE);
  Entry& entry = entries_[count_ - 1];
  Immediate& immediate = entry.immediate;
  immediate = {message, request.immediate, static_cast<std::uint32_t>(total_length(request))};
  entry.segments[0] = {reinterpret_cast<std::uintptr_t>(&immediate), sizeof immediate, 0};
  told.num_sge = 1;
  told.send_flags |= IBV_SEND_INLINE;
  told.wr.rdma.remote_addr = ring_.address + (message - 1) % ring_.slots * sizeof immediate;
  told.wr.rdma.rkey = ring_.key;
  next(request, id, IBV_WR_SEND);
}

void WorkBatch::add(const WorkRequest& request, std::uint64_t id, bool signalled,
                    std::uint64_t message) {
  switch (request.opcode) {
    case Opcode::Send: add_transfer(request, id, IBV_WR_SEND, kSegmentsMax); break;
    case Opcode::Write: add_transfer(request, id, IBV_WR_RDMA_WRITE, kSegmentsMax); break;
    case Opcode::WriteImm:
      if (!limits_.writes_immediates) {
        add_immediate(request, id, message);
        break;
      }
      add_transfer(request, id, IBV_WR_RDMA_WRITE_WITH_IMM, kSegmentsMax);
      entries_[count_ - 1].work.imm_data = ::htonl(request.immediate);
      break;
    case Opcode::Read:
      add_transfer(request, id, IBV_WR_RDMA_READ, limits_.read_segments_max);
      break;
    case Opcode::Flush: {
      next(request, id, IBV_WR_RDMA_WRITE);
      Entry& entry = entries_[count_ - 1];
      entry.kind = Kind::Flush;
      entry.persistent = request.placement == FlushPlacement::Persistence;
      entry.whole_region = request.whole_region;
      entry.flush_length = request.flush_length;
      if (request.whole_region) entries_[count_ - 1].work.wr.rdma.remote_addr = request.remote.base;
      needs_extended_ = true;
      break;
    }
    case Opcode::AtomicWrite:
    case Opcode::CompareSwap:
    case Opcode::FetchAdd: add_word(request, id); break;
    case Opcode::WritePersist:  // refused by check_request: no device has them
    case Opcode::SendFlush:
    case Opcode::Receive: PERDURE_ASSERT(false);
  }
  if (signalled) entries_[count_ - 1].work.send_flags |= IBV_SEND_SIGNALED;
  if (takes_receive(request.opcode)) entries_[count_ - 1].work.send_flags |= IBV_SEND_SOLICITED;
}

int WorkBatch::post_each(ibv_qp* qp, ibv_qp_ex* extended) {
  int returned = 0;
  for (std::size_t begin = 0; begin < count_ && returned == 0;) {
    const bool plain = entries_[begin].kind == Kind::Plain;
    std::size_t end = begin + 1;
    while (end < count_ && (entries_[end].kind == Kind::Plain) == plain) ++end;
    returned = plain ? post_plain(qp, begin, end) : post_extended(extended, begin, end);
    begin = end;
  }
  clear();
  return returned;
}

/// FLUSH and ATOMIC WRITE, by the builder interface, which alone knows them. It carries nothing
/// else: rxe's sends other bytes than were set inline (Linux 6.12, rdma-core 56).
int WorkBatch::post_extended(ibv_qp_ex* qp, std::size_t begin, std::size_t end) {
  PERDURE_ASSERT(qp != nullptr);
  ::ibv_wr_start(qp);
  for (std::size_t i = begin; i < end; ++i) {
    const Entry& entry = entries_[i];
    const ibv_send_wr& work = entry.work;
    qp->wr_id = work.wr_id;
    qp->wr_flags = work.send_flags;
    if (entry.kind == Kind::Flush) {
      put_flush(qp, work.wr.rdma.rkey, work.wr.rdma.remote_addr, entry.flush_length,
                entry.persistent, entry.whole_region);
    } else {
      put_atomic_write(qp, work.wr.rdma.rkey, work.wr.rdma.remote_addr, &entry.value);
    }
  }
  return ::ibv_wr_complete(qp);
}

int WorkBatch::post_flush(ibv_qp_ex* qp, const WorkRequest& flush, std::uint64_t id) {
  ::ibv_wr_start(qp);
  qp->wr_id = id;
  qp->wr_flags = (flush.fenced ? static_cast<unsigned>(IBV_SEND_FENCE) : 0) |
                 (flush.signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0);
  const std::uint64_t offset = flush.whole_region ? 0 : flush.remote_offset;
  put_flush(qp, static_cast<std::uint32_t>(flush.remote.key), flush.remote.base + offset,
            flush.flush_length, flush.placement == FlushPlacement::Persistence, flush.whole_region);
  return ::ibv_wr_complete(qp);
}

}  // namespace perdure::fabric::verbs
#endif
