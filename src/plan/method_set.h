// Which methods one connection uses: for small and for large updates, and for single places
// (anchors, words, repair). All four run on one connection, so they are chosen together.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/types.h>

#include "core/method_set.h"
#include "plan/cost.h"

#include <cstdint>
#include <optional>
#include <string>

namespace perdure::plan {

inline constexpr std::uint64_t kBatchBytesMax = 1024 * 1024;

struct SetOptions {
  /// Each update ends in a word that must not become durable before the rest of it.
  bool tail_word = false;
  std::optional<Primary> primary;       // forced by the user; nothing: the cheapest
  Level level = Level::Durable;         // the least that an update is to reach
  std::uint64_t message_bytes_max = 0;  // of the responder's receive buffers
  bool replay = true;                   // methods that replay messages may be chosen
  bool immediates = true;               // and those whose immediates name a place
};

/// The cheapest by `costs`, as far as the law of core/method_set.h lets them share a connection:
/// where it does not, the method for large updates takes the small ones too, and then those that
/// replay messages are left out; unless SEND is forced: then those carry everything, in pieces.
/// Errors: those of plan::plan.
Result<MethodSet> choose_methods(const ServerProfile& profile, const SetOptions& options,
                                 const CostModel& costs);

/// "updates up to 4096 B: send-copy-ack, larger ones: write-flush", a line for batches and one for
/// places.
std::string to_text(const MethodSet& set);

}  // namespace perdure::plan
