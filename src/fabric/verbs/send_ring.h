// SendRing: the requests of one queue pair between posting and completion. No verbs in here.
//
// Requests are numbered in the order of posting. Three marks divide them:
//
//   done_                issued_                 next_
//   |  with the RNIC      |  held back here       |
//
// A reliable connection completes in order: the completion of one request says that all before it
// succeeded, so unsignalled ones cost no completion. So that the queue never fills with requests
// that nobody will hear of, one is signalled now and then all the same.
//
// The send queue counts in work queue entries: a request that is split takes several.
#pragma once

#include "core/assert.h"
#include "fabric/fabric.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace perdure::fabric::verbs {

class SendRing {
 public:
  /// Room for `depth` requests, and for `entries` work queue entries at the RNIC.
  SendRing(std::size_t depth, std::size_t entries)
      : depth_(depth),
        entries_(entries),
        slots_(std::bit_ceil(depth)),
        mask_(slots_.size() - 1),
        silent_max_(std::max<std::size_t>(depth / 4, 1)),
        silent_entries_max_(std::max<std::size_t>(entries / 4, 1)) {
    PERDURE_ASSERT(depth > 0 && entries > 0);
  }

  bool full() const { return next_ - done_ >= depth_; }
  bool empty() const { return done_ == next_; }
  bool anything_held() const { return issued_ != next_; }
  std::size_t slot_count() const { return slots_.size(); }
  /// Number of the next request to issue; for keeping held ones beside the ring.
  std::uint64_t issue_index() const { return issued_; }
  std::uint64_t push_index() const { return next_; }

  /// Takes a request in. Requires !full().
  void push(const WorkRequest& request) {
    PERDURE_ASSERT(!full());
    slots_[next_++ & mask_] = {request.context, 0, request.opcode, request.signalled};
  }

  /// Whether the send queue has room for the next request, in so many entries.
  bool fits(std::size_t entries) const { return posted_ - freed_ + entries <= entries_; }

  /// The next request goes to the RNIC. Whether it must ask for a completion.
  bool issue(std::size_t entries) {
    PERDURE_ASSERT(issued_ != next_);
    Slot& slot = slots_[issued_++ & mask_];
    posted_ += entries;
    slot.end = posted_;
    ++silent_;
    silent_entries_ += entries;
    const bool ask =
        slot.signalled || silent_ >= silent_max_ || silent_entries_ >= silent_entries_max_;
    if (ask) silent_ = silent_entries_ = 0;
    return ask;
  }

  /// The RNIC completed request `index`, and so all before it. Whether the caller wants to know.
  bool complete(std::uint64_t index, Completion& completion) {
    PERDURE_ASSERT(index >= done_ && index < issued_);
    const Slot& slot = slots_[index & mask_];
    done_ = index + 1;
    freed_ = slot.end;
    if (!slot.signalled) return false;
    completion = Completion{};
    completion.context = slot.context;
    completion.opcode = slot.opcode;
    return true;
  }

  /// After the connection was lost: the oldest request that did not complete, with its error.
  /// Requires !empty().
  Completion fail(ErrorCode code) {
    PERDURE_ASSERT(!empty());
    const Slot& slot = slots_[done_++ & mask_];
    issued_ = std::max(issued_, done_);
    Completion completion;
    completion.context = slot.context;
    completion.opcode = slot.opcode;
    completion.error = code;
    return completion;
  }

  /// All before this one are complete.
  std::uint64_t done_index() const { return done_; }

 private:
  struct Slot {
    std::uint64_t context = 0;
    std::uint64_t end = 0;  // posted_ behind it
    Opcode opcode = Opcode::Send;
    bool signalled = false;
  };

  std::size_t depth_;
  std::size_t entries_;
  std::vector<Slot> slots_;
  std::uint64_t mask_;
  std::size_t silent_max_;          // unsignalled requests in a row
  std::size_t silent_entries_max_;  // their entries
  std::uint64_t done_ = 0;
  std::uint64_t issued_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t posted_ = 0;  // work queue entries so far
  std::uint64_t freed_ = 0;   // of them, known to be free again
  std::size_t silent_ = 0;
  std::size_t silent_entries_ = 0;
};

}  // namespace perdure::fabric::verbs
