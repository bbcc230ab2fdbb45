// What MirrorMemory holds: see include/perdure/mirror.h.
#pragma once

#include <perdure/mirror.h>

#include <memory>
#include <span>
#include <string>

#include "mirror/local_state.h"
#include "pmem/mapping_guard.h"
#include "pmem/region.h"

namespace perdure {

class MirrorMemory::State {
 public:
  /// As bytes_of, of the mapping of a file that is kept with its length and may be shorter than the
  /// memory: behind its end are zeros. The caller makes it durable. `guard` watches the mapping,
  /// and outlives it: once a page of it is lost no replica is told anything more.
  static MirrorMemory guarded(const mirror::LocalStateFile& file, std::span<std::byte> memory,
                              const pmem::MappingGuard& guard);

  std::unique_ptr<pmem::Region> region;
  mirror::LocalStateFile state;
};

}  // namespace perdure
