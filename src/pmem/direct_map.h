// The mapping itself, through libpmem2 where the tree was built with it.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "pmem/file.h"
#include "pmem/medium.h"
#include "pmem/region.h"

namespace perdure::pmem {

/// A file or device mapped shared and writable.
struct Mapping {
  std::span<std::byte> bytes;
  void* pmem2_map = nullptr;  // what libpmem2 needs to unmap; null when mapped directly
  /// Whether the mapping reaches the medium without a page cache between.
  bool synchronous = false;
};

/// Maps [0, bytes) of the file. Errors: Unsupported (device DAX without libpmem2), SystemError.
Result<Mapping> map_file(const File& file, const Medium& medium, std::uint64_t bytes);

void unmap(const Mapping& mapping);

/// Has the kernel flush the queues of the memory controllers below a DAX device: libpmem2 writes
/// `deep_flush` of its NVDIMM region, where that says 1; where it says 0 the platform names no such
/// queues. Errors: Unsupported: this is no region of NVDIMMs, or the process may not write there.
Result<void> flush_device(const File& file, const Mapping& mapping, const Range& range);

}  // namespace perdure::pmem
