// What every way to map a file comes to, libpmem's, libpmem2's and libpmemobj's too: mmap() and its
// kin; and msync(), for files that are mapped without any library.
#include "interpose/mappings.h"
#include "interpose/raw.h"
#include "interpose/real.h"

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace perdure::interpose {

void say(const char* text, const char* detail) {
  const int error = errno;
  char line[512];
  const int length = std::snprintf(line, sizeof line, "perdure: %s%s\n", text, detail);
  const auto whole = static_cast<std::size_t>(length);
  const std::size_t size = whole < sizeof line ? whole : sizeof line - 1;
  if (::write(STDERR_FILENO, line, size) < 0) errno = error;  // nobody left to tell
  errno = error;
}

namespace {

void* map(void* at, std::size_t length, int protection, int flags, int descriptor, off_t offset) {
  char* const mapping = raw_mmap(at, length, protection, flags, descriptor, offset);
  if (failed(mapping)) return mapping;
  const int error = errno;
  if (!mapped(mapping, length, flags, descriptor, offset)) {
    const int why = errno;
    raw_munmap(mapping, length);
    errno = why;
    return MAP_FAILED;
  }
  errno = error;
  return mapping;
}

}  // namespace
}  // namespace perdure::interpose

using namespace perdure::interpose;  // the functions below have C names

extern "C" {

void* mmap(void* at, std::size_t length, int protection, int flags, int descriptor,
           off_t offset) noexcept {
  return map(at, length, protection, flags, descriptor, offset);
}

void* mmap64(void* at, std::size_t length, int protection, int flags, int descriptor,
             off_t offset) noexcept {
  return map(at, length, protection, flags, descriptor, offset);
}

int munmap(void* at, std::size_t length) noexcept { return unmap(static_cast<char*>(at), length); }

void* mremap(void* at, std::size_t old_length, std::size_t length, int flags, ...) noexcept {
  va_list rest;
  va_start(rest, flags);
  void* const to = (flags & MREMAP_FIXED) != 0 ? va_arg(rest, void*) : nullptr;
  va_end(rest);
  return remap({static_cast<char*>(at), old_length, length, flags, to});
}

int msync(void* at, std::size_t length, int flags) {
  const Call call(__builtin_return_address(0));
  const int outcome = raw_msync(at, length, flags);
  if (call.outermost() && outcome == 0 && (flags & MS_SYNC) != 0) {
    flushed(at, whole_pages(length));  // as the kernel: it writes whole pages
    drained(Drain::Durable);
  }
  return outcome;
}

}  // extern "C"
