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
  /// As bytes_of, of a mapping that `guard` watches, which outlives it: once a page of it is lost
  /// no replica is told anything more.
  static MirrorMemory guarded(const std::string& file, std::span<std::byte> memory,
                              PersistenceDomain domain, const pmem::MappingGuard& guard);

  std::unique_ptr<pmem::Region> region;
  mirror::LocalStateFile state;
};

}  // namespace perdure
