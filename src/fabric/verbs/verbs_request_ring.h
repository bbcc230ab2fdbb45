// VerbsRequestRing: which of a queue pair's requests must be signalled, and the room in its send
// queue. No verbs in here.
//
// Unsignalled requests cost no completion. So that the queue never fills with requests that nobody
// will hear of, one is signalled now and then all the same. On iWARP the answer of a READ may come
// after the completions of what was posted behind it (siw): there each READ is signalled.
//
// The send queue counts in work queue entries: a request that is split takes several.
#pragma once

#include "fabric/request_ring.h"

namespace perdure::fabric::verbs {

struct SendQueueSlot : RequestSlot {
  std::uint64_t entries_end = 0;  // work queue entries posted up to its last one
};

class VerbsRequestRing final : public RequestRing<SendQueueSlot> {
 public:
  /// Room for `depth` requests, and for `entries` work queue entries at the RNIC.
  VerbsRequestRing(std::size_t depth, std::size_t entries, bool reads_in_order)
      : RequestRing(depth, depth, reads_in_order),
        entries_(entries),
        silent_max_(std::max<std::size_t>(depth / 4, 1)),
        silent_entries_max_(std::max<std::size_t>(entries / 4, 1)) {
    PERDURE_ASSERT(entries > 0);
  }

  /// Whether the send queue has room for the next request, in so many entries.
  bool fits(std::size_t entries) const { return posted_ - freed_ + entries <= entries_; }

  /// The next request goes to the RNIC. Whether it must ask for a completion.
  bool issue(std::size_t entries) {
    SendQueueSlot& issued = issue_next();
    posted_ += entries;
    issued.entries_end = posted_;
    ++silent_;
    silent_entries_ += entries;
    const bool ask = issued.signalled || answers_late(issued) || silent_ >= silent_max_ ||
                     silent_entries_ >= silent_entries_max_;
    if (ask) silent_ = silent_entries_ = 0;
    return ask;
  }

  /// Of how many requests of one entry it is known that they can go to the RNIC at once, and be
  /// asked for only if their caller wants them reported.
  std::uint64_t known_at_once() const { return room(); }
  /// Looks for how many, up to `most`. False: none, also now and then, so that one is asked for
  /// that need not be. Apart: seldom called.
  [[gnu::noinline]] bool find_at_once(std::uint64_t most) {
    return find_room(
        std::min({most, silent_max_ - 1 - silent_, silent_entries_max_ - 1 - silent_entries_,
                  entries_ - std::min<std::uint64_t>(entries_, posted_ - freed_)}));
  }
  /// Takes in a request that has gone so. Requires known_at_once(), before it went, and no READ
  /// that answers late.
  void push_issued(const WorkRequest& request) {
    RequestRing::push_issued(request, /*early=*/false);
    slot(issue_index() - 1).entries_end = ++posted_;
    ++silent_;
    ++silent_entries_;
    if (request.signalled) silent_ = silent_entries_ = 0;
  }

  /// The RNIC completed request `index`. Ignored if it is not with the RNIC: a queue pair that
  /// breaks may name one again that it has completed before (siw does).
  void complete(std::uint64_t index) {
    if (!in_flight(index)) return;
    confirm_before(index, kNothingElse);
    confirm(slot(index), kNothingElse);
    free_entries();
  }

  /// Request `index` failed: those before it succeeded, as far as a completion of it would say so.
  void fail_at(std::uint64_t index) {
    if (!in_flight(index)) return;
    confirm_before(index, kNothingElse);
    free_entries();
  }

 private:
  static constexpr auto kNothingElse = [](const SendQueueSlot&) {};

  void free_entries() {
    if (const SendQueueSlot* last = advance(); last != nullptr) freed_ = last->entries_end;
  }

  std::size_t entries_;
  std::size_t silent_max_;          // unsignalled requests in a row
  std::size_t silent_entries_max_;  // their entries
  std::uint64_t posted_ = 0;        // work queue entries so far
  std::uint64_t freed_ = 0;         // of them, known to be free again
  std::size_t silent_ = 0;
  std::size_t silent_entries_ = 0;
};

}  // namespace perdure::fabric::verbs
