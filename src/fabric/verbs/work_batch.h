// WorkBatch: requests of the fabric as work queue entries, given to a queue pair in one go, so that
// a batch costs one doorbell; where native FLUSH or ATOMIC WRITE are in it, one for each change
// between these and others.
#pragma once

#include "fabric/verbs/domain.h"

#include <array>
#include <utility>

namespace perdure::fabric::verbs {

/// An immediate on its way. iWARP has no WRITE_WITH_IMM (RFC 5040): there it is a WRITE, a WRITE of
/// this into a ring of the peer's, and an empty SEND. The receiver of an empty message looks into
/// the ring whether it is the one with that number. The ring has a place for each receive that can
/// be posted, so nothing in it is overwritten before it was looked at.
struct Immediate {
  std::uint64_t message = 0;  // from 1: of all that take a receive on this connection
  std::uint32_t value = 0;
  std::uint32_t length = 0;  // bytes written
};

/// Where the peer wants them; no slots: it does not.
struct ImmediateRing {
  std::uint64_t address = 0;
  std::uint64_t slots = 0;
  std::uint32_t key = 0;
};

/// What one queue pair can take.
struct QueueLimits {
  std::uint64_t message_bytes_max = 0;
  std::size_t read_segments_max = 1;  // an RNIC scatters a READ into so many segments
  std::uint32_t inline_bytes_max = 0;
  bool writes_immediates = true;  // WRITE_WITH_IMM is one verb
  Capabilities capabilities;
};

/// Zero for what lies outside of registered memory: that goes inline.
inline std::uint32_t lkey_of(const Segment& segment) {
  return segment.memory == nullptr ? 0 : static_cast<const VerbsMemory*>(segment.memory)->lkey();
}

/// How many entries a request takes. Requires what check() in verbs_endpoint.cc lets through.
std::size_t entry_count(const WorkRequest& request, const QueueLimits& limits);

/// Whether it ends in a receive of the peer: it needs a credit there, and wakes who sleeps.
inline bool takes_receive(Opcode opcode) {
  return opcode == Opcode::Send || opcode == Opcode::WriteImm;
}

class WorkBatch {
 public:
  static constexpr std::size_t kEntriesMax = 64;

  /// `scratch`: 8 bytes in `region` for the old value of an atomic that the caller does not want.
  void prepare(const QueueLimits& limits, const ibv_mr* region, void* scratch) {
    for (std::size_t i = 0; i < kEntriesMax; ++i) {
      requests_[i].sg_list = segments_[i].data();
      requests_[i].next = i + 1 < kEntriesMax ? &requests_[i + 1] : nullptr;
    }
    limits_ = limits;
    scratch_ = {reinterpret_cast<std::uintptr_t>(scratch), 8, region->lkey};
  }

  void send_immediates_to(const ImmediateRing& ring) { ring_ = ring; }

  bool empty() const { return count_ == 0; }
  bool fits(std::size_t entries) const { return count_ + entries <= kEntriesMax; }

  /// Appends a request. Completions carry `id`. `message`: its number, if it takes a receive.
  /// Requires fits(entry_count()).
  void add(const WorkRequest& request, std::uint64_t id, bool signalled, std::uint64_t message);

  /// The same for a SEND, WRITE or READ that nothing keeps from going out as it is: within
  /// `limits`, out of registered memory, in one entry. False: it is none, or needs a closer look.
  bool add_plain(const WorkRequest& request, const Limits& limits, std::uint64_t id) {
    if (request.segment_count > kSegmentsMax) return false;
    ibv_sge* gathered = segments_[count_].data();
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < request.segment_count; ++i) {
      const Segment& segment = request.segments[i];
      if (segment.memory == nullptr) return false;
      if (segment.length == 0) continue;
      *gathered++ = {reinterpret_cast<std::uintptr_t>(segment.data),
                     static_cast<std::uint32_t>(segment.length), lkey_of(segment)};
      length += segment.length;
    }
    if (length > limits_.message_bytes_max || !perdure::fabric::fits(request, length, limits))
      return false;
    ibv_send_wr& work = requests_[count_];
    work.num_sge = static_cast<int>(gathered - segments_[count_].data());
    work.send_flags = (request.fenced ? static_cast<unsigned>(IBV_SEND_FENCE) : 0) |
                      (request.signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0);
    if (request.opcode == Opcode::Read) {
      if (request.segment_count > limits_.read_segments_max) return false;
      work.opcode = IBV_WR_RDMA_READ;
    } else {
      const bool sends = request.opcode == Opcode::Send;
      if (!sends && request.opcode != Opcode::Write) return false;
      work.opcode = sends ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
      if (sends) work.send_flags |= IBV_SEND_SOLICITED;
      if (length - 1 < limits_.inline_bytes_max) work.send_flags |= IBV_SEND_INLINE;
    }
    work.wr_id = id;
    work.wr.rdma.remote_addr = request.remote.base + request.remote_offset;
    work.wr.rdma.rkey = static_cast<std::uint32_t>(request.remote.key);
    entries_[count_].kind = Kind::Plain;
    ++count_;
    return true;
  }

  void clear() {
    count_ = 0;
    needs_extended_ = false;
  }

  /// Gives all to the queue pair and is empty again. `extended` may be null where neither FLUSH nor
  /// ATOMIC WRITE was added. Returns 0 or an errno; then some may have been posted. Requires that
  /// it is not empty.
  int post(ibv_qp* qp, ibv_qp_ex* extended) {
    if (needs_extended_) [[unlikely]]
      return post_each(qp, extended);
    return post_plain(qp, 0, std::exchange(count_, 0));
  }

 private:
  // FLUSH and ATOMIC WRITE have no place in ibv_send_wr: theirs is filled as far as it goes.
  enum class Kind : std::uint8_t { Plain, Flush, AtomicWrite };
  struct Entry {
    Kind kind = Kind::Plain;
    bool persistent = false;
    bool whole_region = false;
    std::uint64_t flush_length = 0;
    std::uint64_t value = 0;
  };

  ibv_send_wr& next(const WorkRequest& request, std::uint64_t id, ibv_wr_opcode opcode);
  void add_transfer(const WorkRequest& request, std::uint64_t id, ibv_wr_opcode opcode,
                    std::size_t segments_max);
  void add_word(const WorkRequest& request, std::uint64_t id);
  void add_immediate(const WorkRequest& request, std::uint64_t id, std::uint64_t message);
  int post_plain(ibv_qp* qp, std::size_t begin, std::size_t end) {
    ibv_send_wr* refused = nullptr;
    ibv_send_wr* const behind = std::exchange(requests_[end - 1].next, nullptr);
    const int returned = ::ibv_post_send(qp, &requests_[begin], &refused);
    requests_[end - 1].next = behind;
    return returned;
  }
  int post_each(ibv_qp* qp, ibv_qp_ex* extended);
  int post_extended(ibv_qp_ex* qp, std::size_t begin, std::size_t end);

  QueueLimits limits_;
  ibv_sge scratch_{};
  ImmediateRing ring_;
  bool needs_extended_ = false;
  std::size_t count_ = 0;
  std::array<ibv_send_wr, kEntriesMax> requests_{};  // linked, until the last is posted
  std::array<std::array<ibv_sge, kSegmentsMax>, kEntriesMax> segments_{};
  std::array<Entry, kEntriesMax> entries_{};
  std::array<Immediate, kEntriesMax> immediates_{};
};

}  // namespace perdure::fabric::verbs
