// RequestRing: which requests are in flight on one connection, which may be reported as complete,
// and which of them the provider must be asked to confirm. No libfabric in here.
//
// Requests are numbered in the order of posting. Three marks divide them:
//
//   confirmed_      reported_      issued_        next_
//   |  reported, the  |  in flight   |  held back   |
//   |  bytes of it    |              |  (fenced)    |
//   |  maybe unsent   |              |              |
//
// Completions are reported in the order of posting, as an RNIC does. A request whose bytes were
// copied when it was issued is complete at once (Transport::Tcp completes early), without the
// price of a provider completion; so that the provider's queue stays bounded, every few requests
// one is confirmed all the same, and too many unconfirmed ones count as a full queue.
#pragma once

#include "core/assert.h"
#include "fabric/fabric.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace perdure::fabric::ofi {

class RequestRing {
 public:
  explicit RequestRing(std::size_t depth)
      : depth_(depth),
        slots_(std::bit_ceil(depth * 2)),
        mask_(slots_.size() - 1),
        unasked_max_(std::clamp(depth / 4, std::size_t{1}, std::size_t{64})) {
    PERDURE_ASSERT(depth > 0);
  }

  bool full() const { return next_ - reported_ >= depth_ || next_ - confirmed_ >= slots_.size(); }
  bool empty() const { return reported_ == next_; }

  /// Takes a request in. Requires !full(). Held ones are issued later, in order.
  void push(const WorkRequest& request) {
    PERDURE_ASSERT(!full());
    slots_[next_ & mask_] = Slot{request.context, request.opcode, request.signalled, false, false};
    ++next_;
  }

  bool anything_held() const { return issued_ != next_; }
  /// Number of the request that is issued next; for keeping held requests beside the ring.
  std::uint64_t issue_index() const { return issued_; }
  std::uint64_t push_index() const { return next_; }
  std::size_t slot_count() const { return slots_.size(); }
  bool reads_in_flight() const { return reads_ > 0; }

  /// Whether the provider must be asked for a completion of the next request to issue.
  bool wants_confirmation(bool copied) const {
    const Slot& slot = slots_[issued_ & mask_];
    if (slot.opcode == Opcode::Read) return true;
    if (slot.signalled && (!copied || uncopied_ > 0)) return true;
    return unasked_ + 1 >= unasked_max_;
  }

  /// The next request went to the provider. `asked`: it will be confirmed.
  void mark_issued(bool copied, bool asked) {
    Slot& slot = slots_[issued_ & mask_];
    slot.copied = copied;
    if (slot.opcode == Opcode::Read)
      ++reads_;
    else if (!copied)
      ++uncopied_;
    unasked_ = asked ? 0 : unasked_ + 1;
    ++issued_;
  }

  /// The provider confirmed a request. Requests leave in order, so with it all posted operations
  /// before it are confirmed; a Read is confirmed only by its own answer.
  void confirm(std::uint64_t index) {
    PERDURE_ASSERT(index < issued_);
    for (; sent_ <= index; ++sent_) {
      if (slots_[sent_ & mask_].opcode != Opcode::Read) confirm_slot(sent_);
    }
    confirm_slot(index);
    while (confirmed_ < issued_ && slots_[confirmed_ & mask_].confirmed) ++confirmed_;
    if (sent_ < confirmed_) sent_ = confirmed_;
  }

  /// The next completion to report, if there is one. After `lost`, everything unreported fails.
  bool report(Completion& completion, bool lost) {
    while (reported_ < (lost ? next_ : issued_)) {
      const Slot& slot = slots_[reported_ & mask_];
      const bool complete = slot.confirmed || (slot.copied && !lost);
      if (!complete && !lost) return false;
      ++reported_;
      if (complete && !slot.signalled) continue;
      completion = Completion{};
      completion.context = slot.context;
      completion.opcode = slot.opcode;
      if (!complete) completion.error = ErrorCode::OutcomeUnknown;
      return true;
    }
    return false;
  }

  /// Whether report would give one.
  bool reportable(bool lost) const {
    if (lost) return reported_ < next_;
    if (reported_ >= issued_) return false;
    const Slot& slot = slots_[reported_ & mask_];
    return slot.confirmed || slot.copied;
  }

 private:
  struct Slot {
    std::uint64_t context = 0;
    Opcode opcode = Opcode::Send;
    bool signalled = false;
    bool copied = false;     // the provider has the bytes: the caller's memory is free
    bool confirmed = false;  // the provider said so
  };

  void confirm_slot(std::uint64_t index) {
    Slot& slot = slots_[index & mask_];
    if (slot.confirmed) return;
    slot.confirmed = true;
    if (slot.opcode == Opcode::Read)
      --reads_;
    else if (!slot.copied)
      --uncopied_;
  }

  std::size_t depth_;
  std::vector<Slot> slots_;
  std::uint64_t mask_;
  // Requests issued one after the other without asking for a completion. A fraction of the depth,
  // so that a full ring always has some whose confirmation is on its way.
  std::size_t unasked_max_;
  std::uint64_t confirmed_ = 0;  // all before are confirmed
  std::uint64_t sent_ = 0;       // all posted operations before are confirmed
  std::uint64_t reported_ = 0;   // all before are reported, or wanted no report
  std::uint64_t issued_ = 0;     // all before were given to the provider
  std::uint64_t next_ = 0;       // all before were taken in
  std::size_t reads_ = 0;        // Reads issued and unconfirmed
  std::size_t uncopied_ = 0;     // posted operations issued, unconfirmed, with bytes in our memory
  std::size_t unasked_ = 0;      // issued since the last one that will be confirmed
};

}  // namespace perdure::fabric::ofi
