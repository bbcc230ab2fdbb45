// What a recorded program changed in a file without a flush that was seen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace perdure::app {

/// A file of the program, and the recorder's copy of what was flushed of it.
struct FlushedFile {
  std::string path;  // that it had when it was mapped
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;  // that were mapped
  std::string copy;
};

/// Lines of 64 bytes that differ from the copy. None: the file is not there any more, has another
/// name, or is none that can be read.
std::optional<std::uint64_t> count_unflushed(const FlushedFile& file);

}  // namespace perdure::app
