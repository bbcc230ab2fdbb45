// The mapping itself, through libpmem2 where the tree was built with it.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "pmem/file.h"
#include "pmem/medium.h"

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

}  // namespace perdure::pmem
