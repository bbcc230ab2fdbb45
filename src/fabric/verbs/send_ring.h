// SendRing: the requests of one queue pair between posting and completion. No verbs in here.
//
// Requests are numbered in the order of posting. Three marks divide them:
//
//   reported_      issued_        next_
//   |  with the RNIC  |  held back  |
//
// A reliable connection completes in order: the completion of one request says that all before it
// succeeded, so unsignalled ones cost no completion. So that the queue never fills with requests
// that nobody will hear of, one is signalled now and then all the same. On iWARP the answer of a
// READ may come after the completions of what was posted behind it (siw): there each READ is
// signalled, and only its own completion counts for it. Completions are reported in order in any
// case.
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
  SendRing(std::size_t depth, std::size_t entries, bool reads_in_order)
      : depth_(depth),
        entries_(entries),
        reads_in_order_(reads_in_order),
        slots_(std::bit_ceil(depth)),
        mask_(slots_.size() - 1),
        silent_max_(std::max<std::size_t>(depth / 4, 1)),
        silent_entries_max_(std::max<std::size_t>(entries / 4, 1)) {
    PERDURE_ASSERT(depth > 0 && entries > 0);
  }

  bool full() const { return next_ - reported_ >= depth_; }
  bool empty() const { return reported_ == next_; }
  bool anything_held() const { return issued_ != next_; }
  std::size_t slot_count() const { return slots_.size(); }
  /// Number of the next request to issue; for keeping held ones beside the ring.
  std::uint64_t issue_index() const { return issued_; }
  std::uint64_t push_index() const { return next_; }

  /// Takes a request in. Requires !full().
  void push(const WorkRequest& request) {
    PERDURE_ASSERT(!full());
    slots_[next_++ & mask_] = {request.context, 0, request.opcode, request.signalled, false};
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
    const bool ask = slot.signalled || answers_late(slot) || silent_ >= silent_max_ ||
                     silent_entries_ >= silent_entries_max_;
    if (ask) silent_ = silent_entries_ = 0;
    return ask;
  }

  /// The RNIC completed request `index`. Ignored if it is not with the RNIC: a queue pair that
  /// breaks may name one again that it has completed before (siw does).
  void complete(std::uint64_t index) {
    if (index < reported_ || index >= issued_) return;
    confirm_before(index);
    slots_[index & mask_].confirmed = true;
    advance();
  }

  /// Request `index` failed: those before it succeeded, as far as a completion of it would say so.
  void fail_at(std::uint64_t index) {
    if (index < reported_ || index >= issued_) return;
    confirm_before(index);
    advance();
  }

  /// Whether report may have something.
  bool reportable() const { return reported_ < confirmed_; }

  /// The next completion that the caller wants, in the order of posting.
  bool report(Completion& completion) {
    while (reported_ < confirmed_) {
      const Slot& slot = slots_[reported_++ & mask_];
      if (!slot.signalled) continue;
      completion = Completion{};
      completion.context = slot.context;
      completion.opcode = slot.opcode;
      return true;
    }
    return false;
  }

  /// After the connection was lost: the next completion; all that did not succeed fails, request
  /// `index` with `code`, the others with OutcomeUnknown. False when there is none left.
  bool report_lost(Completion& completion, std::uint64_t index, ErrorCode code) {
    while (reported_ < next_) {
      const std::uint64_t number = reported_++;
      const Slot& slot = slots_[number & mask_];
      const bool succeeded = number < issued_ && slot.confirmed;
      if (succeeded && !slot.signalled) continue;
      completion = Completion{};
      completion.context = slot.context;
      completion.opcode = slot.opcode;
      if (!succeeded) completion.error = number == index ? code : ErrorCode::OutcomeUnknown;
      issued_ = std::max(issued_, reported_);
      return true;
    }
    issued_ = next_;
    return false;
  }

 private:
  struct Slot {
    std::uint64_t context = 0;
    std::uint64_t end = 0;  // posted_ behind it
    Opcode opcode = Opcode::Send;
    bool signalled = false;
    bool confirmed = false;  // known to have succeeded
  };

  bool answers_late(const Slot& slot) const {
    return !reads_in_order_ && slot.opcode == Opcode::Read;
  }

  void confirm_before(std::uint64_t index) {
    for (; swept_ < index; ++swept_) {
      Slot& slot = slots_[swept_ & mask_];
      if (!answers_late(slot)) slot.confirmed = true;
    }
  }

  void advance() {
    for (; confirmed_ < issued_ && slots_[confirmed_ & mask_].confirmed; ++confirmed_) {
      freed_ = slots_[confirmed_ & mask_].end;
    }
    swept_ = std::max(swept_, confirmed_);
  }

  std::size_t depth_;
  std::size_t entries_;
  bool reads_in_order_;
  std::vector<Slot> slots_;
  std::uint64_t mask_;
  std::size_t silent_max_;          // unsignalled requests in a row
  std::size_t silent_entries_max_;  // their entries
  std::uint64_t reported_ = 0;      // all before are reported, or wanted no report
  std::uint64_t confirmed_ = 0;     // all before succeeded
  std::uint64_t swept_ = 0;         // all before that do not answer late are confirmed
  std::uint64_t issued_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t posted_ = 0;  // work queue entries so far
  std::uint64_t freed_ = 0;   // of them, known to be free again
  std::size_t silent_ = 0;
  std::size_t silent_entries_ = 0;
};

}  // namespace perdure::fabric::verbs
