// Search: finds methods instead of typing them in. Every sequence of posts and waits up to a length
// is tried, cheapest first; a judge says which are right, and what others beat is dropped.
#pragma once

#include "core/method.h"
#include "plan/cost.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace perdure::plan {

/// Whether a method is right on a responder. check::check is one; plan does not know it.
using Judge = std::function<bool(const Method&, const ServerProfile&)>;

struct SearchOptions {
  UpdateShape shape;               // at most 3 items
  std::optional<Primary> primary;  // set: the first item travels by it
  bool later_small = false;        // items after the first epoch are at most 8 bytes, aligned
  std::size_t posts_max = 4;       // longest sequence tried
  std::uint64_t tried_max = 2'000'000;
};

struct SearchResult {
  /// Right methods of which none beats another, one for each usage, fewest posts first.
  std::vector<Method> methods;
  std::uint64_t generated = 0;  // sequences with a meaning
  std::uint64_t judged = 0;     // of those, the ones that nothing found so far made pointless
  bool limit_reached = false;   // tried_max: what is longer was not looked at
};

/// What is tried: WRITE, WRITE_WITH_IMM, SEND (with data, with addresses, replayable where receive
/// buffers survive), FLUSH, ATOMIC WRITE where the responder can, and after each post nothing, a
/// wait for its completion, or for an acknowledgement. The responder, if it reacts to a message,
/// handles all it knows and has not handled, in order. Not tried: fences, reactions in other
/// orders, data that travels twice.
SearchResult search_methods(const ServerProfile& server, const SearchOptions& options,
                            const Judge& judge);

/// One line: "WRITE a; SEND b (flush a); wait for the ack | 0: flush a, copy b, flush b, ack".
std::string one_line(const Method& method);

}  // namespace perdure::plan
