// check: whether a method makes an update durable on a responder, in every state that the machine
// of model.h can reach. The second witness beside plan; the two never include each other.
#pragma once

#include "check/report.h"

#include "core/method.h"

namespace perdure::check {

struct CheckOptions {
  Level level = Level::Durable;           // Committed is Durable, per replica
  std::size_t units_per_item = 2;         // more: tearing in more ways, and more states
  std::size_t updates_in_flight = 1;      // more: successive updates pipelined
  Between between = Between::Ordered;     // what the order of updates means after power fails
  std::size_t connections = 1;            // 2: to one responder, with no order between them
  Spread spread = Spread::Epochs;         // what goes over which of them
  Recovery recovery = Recovery::Careful;  // the others are wrong: to see that it is noticed
  /// Only what happens where the responder flushes for several messages at once. Without it check()
  /// explores that as well where it can make a difference: between ordered updates, where what is
  /// visible has to drain.
  bool gathered = false;
  std::uint64_t states_max = 50'000'000;  // above: LimitReached; about 1 GiB for a usual method
};

InFlight in_flight(const CheckOptions& options);

/// Explores every reachable state of `method` on `profile`.
///
/// Errors   none: a method that can not be run is reported as NotModelled, with the reason.
/// Threads  any; calls are independent.
/// Cost     microseconds to milliseconds for the methods of the taxonomy; see states_max.
Report check(const Method& method, const ServerProfile& profile, const CheckOptions& options = {});

}  // namespace perdure::check
