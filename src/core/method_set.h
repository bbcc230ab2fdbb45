// MethodSet: the methods that one connection mixes, and the law of which may be mixed. plan chooses
// a set, check proves it, persist runs it; none of them has a law of its own.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "core/method.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace perdure {

/// A method for small updates, another (or the same) for large ones.
struct SizedMethods {
  Method small;
  Method large;
  std::uint64_t small_bytes_max = 0;  // the largest update that uses `small`
  /// The largest update for which there is a method; what is larger goes in pieces, one after the
  /// other. Files under an RNIC are written by messages, which end somewhere.
  std::uint64_t bytes_max = std::numeric_limits<std::uint64_t>::max();
};

/// What one connection uses: for small and for large updates of what it is there for (`batches`,
/// pipelined), and for single places beside them (anchors, words, repair).
struct MethodSet {
  SizedMethods batches;
  SizedMethods places;
};

/// When the first epoch of an update may be written over by a later update.
enum class Reuse {
  Never,         // every update has places of its own
  AfterAnother,  // when a later update by a member with AfterItsEnd has resolved: a ring's space
  AfterItsEnd,   // when the update has resolved
};

std::string_view to_string(Reuse reuse);

/// A method of a set, and what its updates have to do with those of the others.
///
/// The last epoch of an update of several is its *word*: all such updates write one word, with
/// earlier ones in flight, and the newest word must be the one that stays. It must not survive
/// without all that was posted before it by members that it vouches for.
struct SetMember {
  Method method;
  Reuse reuse = Reuse::AfterItsEnd;
  bool vouched = true;  // later words speak for its updates, too
};

/// The different members of a set, batches before places. Places are vouched for if batches go in
/// pieces, which are written as places.
std::vector<SetMember> members(const MethodSet& set);

/// The law: whether updates by any of these, in any order and pipelined, leave each other unharmed.
/// tests/agreement compares it with the checker, pair by pair.
///
/// Where WRITEs keep no order, an answer of a non-posted operation and a receive completion that
/// the responder acts on say that all WRITEs before are visible. A message that it finds by polling
/// says only that it has handled the messages before.
///
/// Errors  InvalidArgument: which two may not, and what would happen.
Result<void> may_share(const std::vector<SetMember>& members, const ServerProfile& profile);
Result<void> may_share(const MethodSet& set, const ServerProfile& profile);

/// The same law for methods that take the place of others when all updates by those have resolved.
/// Whatever the two kinds write, they write to the same places, each in its turn.
Result<void> may_replace(const std::vector<Method>& older, const std::vector<Method>& newer,
                         const ServerProfile& profile);

}  // namespace perdure
