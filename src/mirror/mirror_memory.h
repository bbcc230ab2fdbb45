// What MirrorMemory holds: see include/perdure/mirror.h.
#pragma once

#include <perdure/mirror.h>

#include <memory>

#include "mirror/local_state.h"
#include "pmem/region.h"

namespace perdure {

class MirrorMemory::State {
 public:
  std::unique_ptr<pmem::Region> region;
  mirror::LocalStateFile state;
};

}  // namespace perdure
