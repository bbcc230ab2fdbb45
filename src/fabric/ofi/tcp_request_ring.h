// TcpRequestRing: which of a connection's requests the provider must be asked to confirm. No
// libfabric in here.
//
// A request whose bytes were copied when it was issued is complete at once (Transport::Tcp
// completes early), without the price of a provider completion; so that the provider's queue stays
// bounded, every few requests one is confirmed all the same, and too many unconfirmed ones count as
// a full queue.
#pragma once

#include "fabric/request_ring.h"

namespace perdure::fabric::ofi {

class TcpRequestRing final : public RequestRing<RequestSlot> {
 public:
  explicit TcpRequestRing(std::size_t depth)
      : RequestRing(depth, depth * 2, /*reads_in_order=*/false),
        unasked_max_(std::clamp(depth / 4, std::size_t{1}, std::size_t{64})) {}

  bool reads_in_flight() const { return reads_ > 0; }

  /// Whether the provider must be asked for a completion of the next request to issue.
  bool wants_confirmation(bool copied) const {
    const RequestSlot& next = slot(issue_index());
    return asks(next.opcode, next.signalled, copied);
  }

  /// The next request went to the provider. `asked`: it will be confirmed.
  void mark_issued(bool copied, bool asked) {
    RequestSlot& issued = issue_next();
    issued.early = copied;
    count(issued.opcode, copied, asked);
  }

  /// Whether a request can go to the provider at once, and be confirmed only if it must. False also
  /// now and then, so that one is confirmed that need not be.
  bool takes_at_once() { return has_room() || find_room_unasked(); }
  /// Whether it must: its completion says that all memory before it is free.
  bool must_confirm(Opcode opcode, bool signalled, bool copied) const {
    return opcode == Opcode::Read || (signalled && (!copied || uncopied_ > 0));
  }
  /// Takes in a request that has gone so. Requires takes_at_once, before it went.
  void push_issued(const WorkRequest& request, bool copied, bool asked) {
    RequestRing::push_issued(request, copied);
    count(request.opcode, copied, asked);
  }

  /// The provider confirmed a request that was issued.
  void confirm(std::uint64_t index) {
    PERDURE_ASSERT(was_issued(index));
    const auto on_confirm = [this](const RequestSlot& confirmed) {
      if (confirmed.opcode == Opcode::Read)
        --reads_;
      else if (!confirmed.early)
        --uncopied_;
    };
    confirm_before(index, on_confirm);
    RequestRing::confirm(slot(index), on_confirm);
    (void)advance();
  }

 private:
  /// Apart: seldom called.
  [[gnu::noinline]] bool find_room_unasked() { return find_room(unasked_max_ - 1 - unasked_); }
  bool asks(Opcode opcode, bool signalled, bool copied) const {
    return must_confirm(opcode, signalled, copied) || unasked_ + 1 >= unasked_max_;
  }
  void count(Opcode opcode, bool copied, bool asked) {
    if (opcode == Opcode::Read) {
      ++reads_;
    } else if (!copied) {
      ++uncopied_;
    }
    unasked_ = asked ? 0 : unasked_ + 1;
  }

  // Requests issued one after the other without asking for a completion. A fraction of the depth,
  // so that a full ring always has some whose confirmation is on its way.
  std::size_t unasked_max_;
  std::size_t reads_ = 0;     // Reads issued and unconfirmed
  std::size_t uncopied_ = 0;  // posted operations issued, unconfirmed, with bytes in our memory
  std::size_t unasked_ = 0;   // issued since the last one that will be confirmed
};

}  // namespace perdure::fabric::ofi
