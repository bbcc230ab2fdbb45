// WorkBatch: requests of the fabric as work queue entries, given to a queue pair in one go, so that
// a batch costs one doorbell; where native FLUSH or ATOMIC WRITE are in it, one for each change
// between these and others.
//
// What is posted most often looks the same each time but for where it goes and how long it is. So
// an entry stays as it was filled in last, with a note of which requests it is ready for, and such
// a request stores only what varies: fill_message and fill_access.
#pragma once

#include "fabric/verbs/domain.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>
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
  bool reads_in_order = true;     // see RequestRing
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
  /// No request of more than `transfer_bytes_max` is plain.
  void prepare(const QueueLimits& limits, std::uint64_t transfer_bytes_max, const ibv_mr* region,
               void* scratch) {
    for (std::size_t i = 0; i < kEntriesMax; ++i) {
      entries_[i].work.sg_list = entries_[i].segments.data();
      entries_[i].work.next = work_behind(i);
    }
    limits_ = limits;
    plain_bytes_max_ = std::min(limits.message_bytes_max, transfer_bytes_max);
    scratch_ = {reinterpret_cast<std::uintptr_t>(scratch), 8, region->lkey};
  }

  void send_immediates_to(const ImmediateRing& ring) { ring_ = ring; }

  bool empty() const { return count_ == 0; }
  bool fits(std::size_t entries) const { return count_ + entries <= kEntriesMax; }

  /// Appends a request. Completions carry `id`. `message`: its number, if it takes a receive.
  /// Requires fits(entry_count()).
  void add(const WorkRequest& request, std::uint64_t id, bool signalled, std::uint64_t message);

  // The straight way, of a batch that is empty, and stays so: first each request is filled in and
  // numbered, then post_plain. `at` counts them from 0 on, and is below kEntriesMax.

  /// Fills in a SEND. False: the entry is not ready for it.
  bool fill_message(std::size_t at, const WorkRequest& message) {
    std::uint64_t length = 0;
    return fill_plain(entries_[at], message, length);
  }
  /// The same for any other request. None beyond what it names is filled in.
  bool fill_access(std::size_t at, const WorkRequest& request) {
    Entry& entry = entries_[at];
    std::uint64_t length = 0;
    if (!fill_plain(entry, request, length) || !is_inside(request, length)) return false;
    entry.work.wr.rdma.remote_addr = request.remote.base + request.remote_offset;
    entry.work.wr.rdma.rkey = static_cast<std::uint32_t>(request.remote.key);
    return true;
  }
  /// Makes an entry ready for requests like this one. False: it is no SEND, WRITE or READ that goes
  /// out as it is, within the limits and in one entry.
  bool make_ready(std::size_t at, const WorkRequest& request);
  /// What the completion carries.
  void number(std::size_t at, std::uint64_t id) { entries_[at].work.wr_id = id; }

  /// Gives the first `count` to the queue pair, at least one. Returns as post does.
  int post_plain(ibv_qp* qp, std::size_t count) { return post_plain(qp, 0, count); }
  /// The same for a FLUSH, which no entry is filled in for.
  static int post_flush(ibv_qp_ex* extended, const WorkRequest& flush, std::uint64_t id);

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
    return post_plain(qp, std::exchange(count_, 0));
  }

 private:
  // FLUSH and ATOMIC WRITE have no place in ibv_send_wr: theirs is filled as far as it goes.
  enum class Kind : std::uint8_t { Plain, Flush, AtomicWrite };
  /// A work queue entry. In front of what seldom matters stands what fill_plain looks at.
  struct alignas(64) Entry {
    ibv_send_wr work{};
    std::array<ibv_sge, kSegmentsMax> segments{};
    std::uint32_t ready_for = kNothing;  // what look_of says of the requests it is ready for,
    std::uint64_t ready_bytes_min = 0;   // if they have so many bytes at least, not 0,
    std::uint64_t ready_bytes_more = 0;  // and at most so many more

    Kind kind = Kind::Plain;
    bool persistent = false;
    bool whole_region = false;
    std::uint64_t flush_length = 0;
    std::uint64_t value = 0;
    Immediate immediate;
  };

  static constexpr std::uint32_t kNothing = ~std::uint32_t{0};

  /// Opcode, completion, fence and number of segments as one number, which is not kNothing. All
  /// plain requests of which it is the same need an entry that looks the same.
  static std::uint32_t look_of(const WorkRequest& request) {
    static_assert(std::is_trivially_copyable_v<WorkRequest>);
    static_assert(offsetof(WorkRequest, opcode) == 0 && offsetof(WorkRequest, signalled) == 1 &&
                  offsetof(WorkRequest, fenced) == 2 && offsetof(WorkRequest, segment_count) == 3);
    std::uint32_t look = 0;
    std::memcpy(&look, &request, sizeof look);
    return look;
  }
  bool fill_plain(Entry& entry, const WorkRequest& request, std::uint64_t& length) {
    if (look_of(request) != entry.ready_for) return false;
    // One segment after the other: by a loop it takes twice as many instructions.
    static_assert(kSegmentsMax == 3);
    length = request.segments[0].length;
    if (!point_at(request.segments[0], entry.segments[0])) return false;
    if (request.segment_count > 1) {
      const std::uint64_t second = request.segments[1].length;
      if (length == 0 || second == 0 || !point_at(request.segments[1], entry.segments[1]))
        return false;
      length += second;
      if (request.segment_count > 2) {
        const std::uint64_t third = request.segments[2].length;
        if (third == 0 || !point_at(request.segments[2], entry.segments[2])) return false;
        length += third;
      }
    }
    return length - entry.ready_bytes_min <= entry.ready_bytes_more;
  }

  /// False: it is outside of registered memory.
  static bool point_at(const Segment& segment, ibv_sge& element) {
    element.length = static_cast<std::uint32_t>(segment.length);
    if (segment.memory == nullptr) return false;
    element.addr = reinterpret_cast<std::uintptr_t>(segment.data);
    element.lkey = lkey_of(segment);
    return true;
  }

  ibv_send_wr* work_behind(std::size_t at) {
    return at + 1 < kEntriesMax ? &entries_[at + 1].work : nullptr;
  }
  ibv_send_wr& next(const WorkRequest& request, std::uint64_t id, ibv_wr_opcode opcode);
  void add_transfer(const WorkRequest& request, std::uint64_t id, ibv_wr_opcode opcode,
                    std::size_t segments_max);
  void add_word(const WorkRequest& request, std::uint64_t id);
  void add_immediate(const WorkRequest& request, std::uint64_t id, std::uint64_t message);
  int post_plain(ibv_qp* qp, std::size_t begin, std::size_t end) {
    entries_[end - 1].work.next = nullptr;
    const int returned = ::ibv_post_send(qp, &entries_[begin].work, &refused_);
    entries_[end - 1].work.next = work_behind(end - 1);
    return returned;
  }
  int post_each(ibv_qp* qp, ibv_qp_ex* extended);
  int post_extended(ibv_qp_ex* qp, std::size_t begin, std::size_t end);

  QueueLimits limits_;
  ibv_sge scratch_{};
  ImmediateRing ring_;
  bool needs_extended_ = false;
  std::size_t count_ = 0;
  std::uint64_t plain_bytes_max_ = 0;
  ibv_send_wr* refused_ = nullptr;            // what ibv_post_send says of that: nobody asks
  std::array<Entry, kEntriesMax> entries_{};  // linked, until the last is posted
};

}  // namespace perdure::fabric::verbs
