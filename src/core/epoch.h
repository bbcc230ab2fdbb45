// Where the epochs of writers end.
#pragma once

#include <perdure/types.h>

namespace perdure {

/// A pool takes no epoch above this one, so that a writer can always come after another.
inline constexpr Epoch kEpochMax{std::uint32_t{1} << 31};

}  // namespace perdure
