// RequestRing: the requests of one connection between posting and completion: which are with the
// provider, which succeeded, which may be reported. No provider's header in here.
//
// Requests are numbered in the order of posting. Four marks divide them:
//
//   confirmed_       reported_      issued_        next_
//   |  reported early  |  in flight   |  held back   |
//
// A connection completes in order: what confirms one request confirms all before it, so most are
// posted without asking for a completion of their own. Where the answer of a READ may come after
// the completions of what was posted behind it, only its own answer confirms it. Completions are
// reported in the order of posting in any case.
//
// When to ask a provider for a completion is the provider's business: tcp_request_ring.h and
// verbs_request_ring.h.
#pragma once

#include "core/assert.h"
#include "fabric/fabric.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace perdure::fabric {

/// What the ring notes of each request; a provider may derive from it to note more.
struct RequestSlot {
  std::uint64_t context = 0;
  Opcode opcode = Opcode::Send;
  bool signalled = false;
  bool early = false;      // reported before it is confirmed: the caller's memory is free already
  bool confirmed = false;  // known to have succeeded
};

/// Threads: one caller at a time.
template <typename Slot>
class RequestRing {
 public:
  bool full() const { return next_ - reported_ >= depth_ || next_ - confirmed_ >= slots_.size(); }
  bool empty() const { return reported_ == next_; }
  bool anything_held() const { return issued_ != next_; }
  /// Number of the request that is issued next, and of the one that is pushed next.
  std::uint64_t issue_index() const { return issued_; }
  std::uint64_t push_index() const { return next_; }
  std::size_t slot_count() const { return slots_.size(); }
  /// Whether a READ's answer never comes after the completions of what was posted behind it.
  bool reads_in_order() const { return reads_in_order_; }

  /// Takes a request in. Requires !full(). It is issued next, or else held.
  void push(const WorkRequest& request) {
    PERDURE_ASSERT(!full());
    note(slot(next_++), request);
    room_ = 0;
  }

  /// Keeps the request that was pushed last, until it is issued.
  void hold(const WorkRequest& request) {
    if (held_.empty()) held_.resize(slots_.size());
    held_[(next_ - 1) & mask_] = request;
  }
  /// The held request that is issued next. Requires anything_held(), and that each such was held.
  const WorkRequest& held() const { return held_[issued_ & mask_]; }

  /// Whether report may have something.
  bool reportable() const {
    if (reported_ >= issued_) return false;
    const Slot& oldest = slot(reported_);
    return oldest.confirmed || oldest.early;
  }

  /// The next completion that the caller wants, in the order of posting.
  bool report(Completion& completion) {
    while (reportable()) {
      const Slot& oldest = slot(reported_++);
      if (!oldest.signalled) continue;
      completion = completion_of(oldest);
      return true;
    }
    return false;
  }

  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  /// After the connection was lost: the next completion. All that is not known to have succeeded
  /// fails, held requests too: request `failed` with `code`, the others with OutcomeUnknown. False
  /// when there is none left. From then on there is no room.
  bool report_lost(Completion& completion, std::uint64_t failed = kNone,
                   ErrorCode code = ErrorCode::OutcomeUnknown) {
    room_ = 0;
    while (reported_ < next_) {
      const std::uint64_t number = reported_++;
      const Slot& oldest = slot(number);
      if (oldest.confirmed && !oldest.signalled) continue;
      completion = completion_of(oldest);
      if (!oldest.confirmed) completion.error = number == failed ? code : ErrorCode::OutcomeUnknown;
      issued_ = std::max(issued_, reported_);
      return true;
    }
    issued_ = next_;
    return false;
  }

 protected:
  /// Room for `depth` requests that are not reported, and for at least `slots` not confirmed.
  RequestRing(std::size_t depth, std::size_t slots, bool reads_in_order)
      : depth_(depth),
        reads_in_order_(reads_in_order),
        slots_(std::bit_ceil(slots)),
        mask_(slots_.size() - 1) {
    PERDURE_ASSERT(depth > 0 && slots >= depth);
  }

  Slot& slot(std::uint64_t number) { return slots_[number & mask_]; }
  const Slot& slot(std::uint64_t number) const { return slots_[number & mask_]; }

  /// The next request goes to the provider. Requires anything_held().
  Slot& issue_next() {
    PERDURE_ASSERT(anything_held());
    return slot(issued_++);
  }
  bool in_flight(std::uint64_t number) const { return number >= reported_ && number < issued_; }
  bool was_issued(std::uint64_t number) const { return number < issued_; }

  bool answers_late(const Slot& one) const {
    return !reads_in_order_ && one.opcode == Opcode::Read;
  }

  /// Those before `number` succeeded, but for the ones that answer late. `on_confirm(slot)` is
  /// called for each that was not confirmed.
  template <typename OnConfirm>
  void confirm_before(std::uint64_t number, const OnConfirm& on_confirm) {
    for (; swept_ < number; ++swept_) {
      Slot& one = slot(swept_);
      if (!answers_late(one)) confirm(one, on_confirm);
    }
  }
  template <typename OnConfirm>
  void confirm(Slot& one, const OnConfirm& on_confirm) {
    if (one.confirmed) return;
    one.confirmed = true;
    on_confirm(one);
  }
  /// To be called once after confirming. The last slot that all are confirmed up to; null: nothing
  /// new.
  const Slot* advance() {
    const Slot* last = nullptr;
    while (confirmed_ < issued_ && slot(confirmed_).confirmed) last = &slot(confirmed_++);
    swept_ = std::max(swept_, confirmed_);
    return last;
  }

  /// Whether nothing is held and there is room, as far as is known without a look at all of that.
  bool has_room() const { return room_ != 0; }
  /// For how many requests.
  std::uint64_t room() const { return room_; }
  /// Looks at it, for the next `most` requests.
  bool find_room(std::uint64_t most) {
    if (full() || anything_held()) return false;
    const std::uint64_t unreported = next_ - reported_;
    const std::uint64_t unconfirmed = next_ - confirmed_;
    room_ = std::min({depth_ - unreported, slots_.size() - unconfirmed, most});
    return room_ != 0;
  }

  /// Takes a request in that has gone to the provider at once. Requires has_room. `early`: see
  /// RequestSlot.
  void push_issued(const WorkRequest& request, bool early) {
    Slot& pushed = slot(next_++);
    pushed.context = request.context;
    pushed.opcode = request.opcode;
    pushed.signalled = request.signalled;
    pushed.early = early;
    pushed.confirmed = false;
    issued_ = next_;
    --room_;
  }

 private:
  static void note(Slot& to, const WorkRequest& request) {
    Slot slot;
    slot.context = request.context;
    slot.opcode = request.opcode;
    slot.signalled = request.signalled;
    to = slot;
  }

  static Completion completion_of(const Slot& one) {
    Completion completion;
    completion.context = one.context;
    completion.opcode = one.opcode;
    return completion;
  }

  std::size_t depth_;
  bool reads_in_order_;
  std::vector<Slot> slots_;
  std::uint64_t mask_;
  std::vector<WorkRequest> held_;  // by number; empty until something is held
  std::uint64_t confirmed_ = 0;    // all before are confirmed
  std::uint64_t swept_ = 0;        // all before that do not answer late are confirmed
  std::uint64_t reported_ = 0;     // all before are reported, or wanted no report
  std::uint64_t issued_ = 0;       // all before were given to the provider
  std::uint64_t next_ = 0;         // all before were taken in
  std::uint64_t room_ = 0;         // so many can be taken in and issued at once at least
};

}  // namespace perdure::fabric
