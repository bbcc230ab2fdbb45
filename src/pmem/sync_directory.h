// Making durable which names a directory has.
#pragma once

#include <perdure/result.h>

#include "core/errno_error.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

namespace perdure::pmem {

/// Of the directory in which `path` is, or was. Errors: NotFound (no such directory), SystemError.
inline Result<void> sync_directory_of(const std::string& path) {
  std::filesystem::path directory = std::filesystem::path(path).parent_path();
  if (directory.empty()) directory = ".";
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno_error(directory.string(), errno);
  const int failed = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // EINVAL: a file system without directories to sync (hugetlbfs); its names are volatile anyway.
  if (failed != 0 && failed != EINVAL) return errno_error(directory.string() + ": fsync", failed);
  return {};
}

}  // namespace perdure::pmem
