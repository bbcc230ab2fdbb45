// Files beside what was flushed of them: see unflushed_lines.h.
#include "unflushed_lines.h"

#include "core/descriptor.h"
#include "interpose/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace perdure::app {
namespace {

using interpose::kLineBytes;

constexpr std::uint64_t kComparedBytes = 1 << 20;  // whole lines

/// The line with the first byte from `at` on that is no hole; `end` if there is none before it.
std::uint64_t next_data(int file, std::uint64_t at, std::uint64_t end) {
  const off_t found = ::lseek(file, static_cast<off_t>(at), SEEK_DATA);
  if (found < 0) return errno == ENXIO ? end : at;
  const std::uint64_t line = static_cast<std::uint64_t>(found) / kLineBytes * kLineBytes;
  return std::clamp(line, at, end);
}

bool read_exactly(int file, char* to, std::uint64_t length, std::uint64_t at) {
  while (length > 0) {
    const ssize_t got = ::pread(file, to, length, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    at += static_cast<std::uint64_t>(got);
    length -= static_cast<std::uint64_t>(got);
  }
  return true;
}

std::uint64_t count_different(const char* one, const char* other, std::uint64_t length) {
  std::uint64_t count = 0;
  for (std::uint64_t at = 0; at < length; at += kLineBytes) {
    const std::uint64_t line = std::min(kLineBytes, length - at);
    count += std::memcmp(one + at, other + at, line) != 0 ? 1 : 0;
  }
  return count;
}

/// Of their first `end` bytes, which both have.
std::optional<std::uint64_t> count_in_both(int file, int copy, std::uint64_t end) {
  std::vector<char> now(kComparedBytes);
  std::vector<char> flushed(kComparedBytes);
  std::uint64_t count = 0;
  std::uint64_t at = 0;
  for (;;) {
    at = std::min(next_data(file, at, end), next_data(copy, at, end));
    if (at == end) return count;
    const std::uint64_t length = std::min(kComparedBytes, end - at);
    if (!read_exactly(file, now.data(), length, at) ||
        !read_exactly(copy, flushed.data(), length, at)) {
      return std::nullopt;
    }
    count += count_different(now.data(), flushed.data(), length);
    at += length;
  }
}

}  // namespace

std::optional<std::uint64_t> count_unflushed(const FlushedFile& file) {
  if (file.bytes == 0) return 0;
  const Descriptor now(::open(file.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const Descriptor copy(::open(file.copy.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct ::stat status = {};
  struct ::stat copied = {};
  if (now.number() < 0 || copy.number() < 0 || ::fstat(now.number(), &status) != 0 ||
      ::fstat(copy.number(), &copied) != 0) {
    return std::nullopt;
  }
  if (!S_ISREG(status.st_mode) || status.st_dev != file.device || status.st_ino != file.inode) {
    return std::nullopt;
  }
  const auto both = static_cast<std::uint64_t>(std::min(status.st_size, copied.st_size));
  return count_in_both(now.number(), copy.number(), std::min(both, file.bytes));
}

}  // namespace perdure::app
