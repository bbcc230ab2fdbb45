// Where the epochs of writers end.
#pragma once

#include <perdure/types.h>

namespace perdure {

/// A pool takes no epoch above this one, so that a writer can always come after another.
inline constexpr Epoch kEpochMax{std::uint32_t{1} << 31};

/// Nor, once it has had a writer, one so far above its own: a pool without epochs left can never be
/// written again, and nobody gets there by mistake. Who has to come from further fences in steps.
inline constexpr std::uint32_t kEpochStepMax = 65536;

/// How far above all epochs that it meets a loss is accepted: replicas that know a change which is
/// given up with it, and were not there, have not come as far by openings of their own.
inline constexpr std::uint32_t kAcceptedLossStep = 1000;

}  // namespace perdure
