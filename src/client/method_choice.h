// Which methods one connection uses: for small and for large updates, and for single places
// (anchors, words, repair). All four run on one connection, so they are chosen together.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/types.h>

#include "core/method.h"
#include "plan/cost.h"

#include <cstdint>
#include <limits>
#include <optional>

namespace perdure::client {

inline constexpr std::uint64_t kBatchBytesMax = 1024 * 1024;

struct ChoiceOptions {
  /// Each update ends in a word that must not become durable before the rest of it.
  bool tail_word = false;
  std::optional<Primary> primary;       // forced by the user; nothing: the cheapest
  Level level = Level::Durable;         // the least that an update is to reach
  std::uint64_t message_bytes_max = 0;  // of the responder's receive buffers
  bool replay = true;                   // methods that replay messages may be chosen
};

/// A method for small updates, another (or the same) for large ones.
struct SizedMethods {
  Method small;
  Method large;
  std::uint64_t small_bytes_max = 0;  // the largest update that uses `small`
  /// The largest update for which there is a method; what is larger goes in pieces, one after the
  /// other. Files under an RNIC are written by messages, which end somewhere.
  std::uint64_t bytes_max = std::numeric_limits<std::uint64_t>::max();
};

struct MethodChoice {
  SizedMethods batches;
  SizedMethods places;
};

/// The cheapest by `costs`, as far as they may run on one connection: either all methods that send
/// messages replay them or none does; and in a compound log the tail word is always stored by the
/// responder's processor or always written by the requester, and never written where it can be
/// stored late, because a message was replayed, or placed late, because WRITEs keep no order.
/// Errors: those of plan::plan.
Result<MethodChoice> choose_methods(const ServerProfile& profile, const ChoiceOptions& options,
                                    const plan::CostModel& costs);

}  // namespace perdure::client
