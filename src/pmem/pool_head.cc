// The first pages of a pool: see pool_head.h.
#include "pmem/pool_head.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <span>

#include "core/errno_error.h"
#include "core/try.h"
#include "pmem/bad_blocks.h"
#include "pmem/mapping_guard.h"
#include "pmem/pool_format.h"

namespace perdure::pmem {
namespace {

// A short file gives an answer here, and a SIGBUS in a mapping.
Result<std::vector<std::byte>> read_file_head(const File& file) {
  std::vector<std::byte> front(kPoolHeadBytes);
  std::size_t filled = 0;
  while (filled < front.size()) {
    const ssize_t count = ::pread(file.descriptor(), front.data() + filled, front.size() - filled,
                                  static_cast<off_t>(filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error(file.path() + ": read", errno);
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  front.resize(filled);
  return front;
}

Error lost_head(const File& file) {
  return {ErrorCode::Corrupt,
          fmt::format("{}: its memory has lost some of the first {} bytes, which say what is there "
                      "(`ndctl list -M`): clear them (ndctl-clear-errors(1)), make the pool again, "
                      "and repair it from another replica",
                      file.path(), kPoolHeadBytes)};
}

/// The head, if `mapping` lets itself be read.
Result<std::vector<std::byte>> copy_guarded(const File& file, std::span<std::byte> mapping) {
  const MappingGuard guard(mapping);
  if (!guard.guards()) {
    return Error{ErrorCode::QueueFull,
                 file.path() + ": this process has too many pools open to read it safely"};
  }
  std::vector<std::byte> front(mapping.begin(), mapping.begin() + kPoolHeadBytes);
  // What was loaded was so before the question.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (guard.failed()) return lost_head(file);
  return front;
}

}  // namespace

Result<std::vector<std::byte>> read_mapped_head(const File& file) {
  constexpr std::size_t kAlignments[] = {std::size_t{2} << 20, std::size_t{1} << 30};
  for (const std::size_t length : kAlignments) {
    void* at = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file.descriptor(), 0);
    if (at == MAP_FAILED) continue;
    auto front = copy_guarded(file, {static_cast<std::byte*>(at), length});
    ::munmap(at, length);
    return front;
  }
  return errno_error(file.path() + ": mmap", errno);
}

Result<std::vector<std::byte>> read_head(const File& file, const std::string& root) {
  if (!file.is_device()) return read_file_head(file);
  // What is known to be lost is not touched: not every machine survives the machine check.
  PERDURE_TRY(bad, bad_blocks_of(file, root));
  if (std::any_of(bad.begin(), bad.end(), [](const Range& b) { return b.at < kPoolHeadBytes; }))
    return lost_head(file);
  return read_mapped_head(file);
}

}  // namespace perdure::pmem
