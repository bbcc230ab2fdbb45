// The first kPoolHeadBytes of a pool, read before it is mapped: whose it is, and whether it is one.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <string>
#include <vector>

#include "pmem/file.h"

namespace perdure::pmem {

/// Of a file that is shorter what there is.
/// Errors  Corrupt: the memory of a device has lost some of it. QueueFull: as many regions as can
///         be guarded are open. SystemError.
/// `root` goes before the paths of sysfs.
Result<std::vector<std::byte>> read_head(const File& file, const std::string& root = "");

/// The same through a mapping: device DAX has no read(2). What can not be loaded is an error, and
/// not the end of the process.
Result<std::vector<std::byte>> read_mapped_head(const File& file);

}  // namespace perdure::pmem
