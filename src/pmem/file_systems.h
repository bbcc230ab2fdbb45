// The file systems that are known by name, and what their msync is worth.
#pragma once

#include <sys/vfs.h>

namespace perdure::pmem {

/// What a store into a mapping reaches. The order has no meaning.
enum class MediumKind {
  PageCache,  // memory of the kernel, written to the medium by msync and fdatasync
  Dram,       // tmpfs, ramfs, hugetlbfs: volatile memory, unless something keeps it powered
  Dax,        // the medium itself, mapped without a page cache between (file or device DAX)
};

struct FileSystem {
  unsigned long magic = 0;
  const char* name = nullptr;  // null: not known by name
  MediumKind kind = MediumKind::PageCache;
  /// Its msync reaches a medium that lasts, volatile caches of drives passed. Network, stacked and
  /// user-space file systems are not among them: what is behind those cannot be seen from here.
  bool lasts = false;
};

/// What is known of the file system that statfs(2) describes.
FileSystem file_system_of(const struct statfs& status);

}  // namespace perdure::pmem
