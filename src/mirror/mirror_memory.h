// What MirrorMemory holds: see include/perdure/mirror.h.
#pragma once

#include <perdure/mirror.h>

#include <memory>

#include "pmem/region.h"

namespace perdure {

class MirrorMemory::State {
 public:
  std::unique_ptr<pmem::Region> region;
};

}  // namespace perdure
