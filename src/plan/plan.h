// plan: which method makes an update durable on a responder, and at what cost. Decides, and leaves
// the proof to check: the two never include each other.
#pragma once

#include "core/method.h"
#include "plan/catalog.h"
#include "plan/cost.h"

#include <perdure/types.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace perdure::plan {

/// One update that is to be planned for.
struct Update {
  UpdateShape shape;
  std::optional<Primary> primary;  // set: only methods whose data travels by it
  std::uint64_t bytes = 64;        // of each item of the first epoch
  std::uint64_t later_bytes = 8;   // of each item of the later epochs
  Level level = Level::Durable;    // Committed is Durable on each replica
  /// Whether 32 bits of immediate data tell the responder which bytes a WRITE_WITH_IMM wrote (fixed
  /// slots, say). If not, methods whose responder acts on one are offered only if `primary` asks
  /// for them (taxonomy section 3.2: the target must be identifiable by the immediate).
  bool immediate_names_place = false;
  /// Whether the responder polls a mailbox: methods that write messages there are offered, too.
  bool polled = false;
  /// Whether the responder posts READs and WRITEs of the requester's memory: methods that make it
  /// fetch what is to be durable, or write its acknowledgements, are offered, too.
  bool responder_posts = false;
  /// What a receive buffer of the responder holds; a method with a larger message is left out. Over
  /// ud a message has at most kDatagramBytesMax.
  std::uint64_t message_bytes_max = std::numeric_limits<std::uint64_t>::max();
};

/// A method that is right for the responder and the update.
struct Candidate {
  Method method;
  double cost_ns = 0;
  Usage usage;
  std::string reason;  // one sentence: why it is right
};

/// Every method known to be right, cheapest first (ties: fewer receive buffers, then by name). By
/// measured costs, those that cost at most 5 % more than the least are as cheap, and the one that
/// posts least comes first: else noise would choose.
///
/// Errors  Unsupported: nothing can make this update durable there; the message says the remedy.
///         InvalidArgument: the update has no items or too many, or an item of no bytes.
Result<std::vector<Candidate>> candidates(const ServerProfile& server, const Update& update,
                                          const CostModel& costs);
Result<std::vector<Candidate>> candidates(const ServerProfile& server, const Update& update);

/// For who plans the same update in many sizes: what may be right on `server` is found once.
class Planner {
 public:
  Planner(const ServerProfile& server, const Update& update);

  /// Of what may be right, one that is, with its price.
  struct Ranked {
    const Known* known = nullptr;  // of this planner
    double cost_ns = 0;
    Usage usage;
  };
  /// As candidates(), for an update with so many bytes in each item of its first epoch, and by
  /// `primary` only if that is set. Errors: as for candidates.
  Result<std::vector<Ranked>> rank(std::uint64_t bytes, const std::optional<Primary>& primary,
                                   const CostModel& costs) const;

 private:
  const ServerProfile server_;
  const Update update_;
  const std::vector<Known> known_;
};

/// The cheapest method that is right on `server` for `update`. Errors: as for candidates.
Result<Method> plan(const ServerProfile& server, const Update& update, const CostModel& costs);
Result<Method> plan(const ServerProfile& server, const Update& update);

/// From `bytes` on (of the first epoch's items), `method` is the cheapest.
struct Crossover {
  std::uint64_t bytes = 0;
  Method method;
  double cost_ns = 0;  // at `bytes`
};

/// How the choice changes with the size, from 1 byte to `bytes_max`, or as far as there is a
/// method; the first entry is at 1 byte. Errors: as for candidates, of an item of 1 byte.
Result<std::vector<Crossover>> crossovers(const ServerProfile& server, const Update& update,
                                          const CostModel& costs, std::uint64_t bytes_max);

}  // namespace perdure::plan
