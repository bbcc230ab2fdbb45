// Any order, each as likely as another.
#pragma once

#include "core/random.h"

#include <cstdint>
#include <utility>

namespace perdure::workload {

/// Of a container with an index (Fisher and Yates).
template <typename Items>
void shuffle(Items& items, Random& random) {
  for (std::uint64_t left = items.size(); left > 1; --left) {
    std::swap(items[left - 1], items[random.below(left)]);
  }
}

}  // namespace perdure::workload
