// What every way to map a file comes to, libpmem's, libpmem2's and libpmemobj's too: mmap() and its
// kin; msync(), for files that are mapped without any library; and what makes zeros of parts of a
// file, ftruncate() and its kin.
#include "interpose/mappings.h"
#include "interpose/raw.h"
#include "interpose/real.h"

#include <fcntl.h>
#include <sys/stat.h>

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

int truncate_open(int descriptor, off_t length) {
  struct ::stat before = {};
  const bool known = ::fstat(descriptor, &before) == 0;
  const int outcome = raw_ftruncate(descriptor, length);
  if (known && outcome == 0 && length < before.st_size) cut(before);
  return outcome;
}

int truncate_named(const char* path, off_t length) {
  struct ::stat before = {};
  const bool known = ::stat(path, &before) == 0;
  const int outcome = raw_truncate(path, length);
  if (known && outcome == 0 && length < before.st_size) cut(before);
  return outcome;
}

/// What only allocates changes no byte. What failed may have done a part.
int allocate(int descriptor, int mode, off_t offset, off_t length) {
  const int outcome = raw_fallocate(descriptor, mode, offset, length);
  struct ::stat status = {};
  const int error = errno;
  if ((mode & ~FALLOC_FL_KEEP_SIZE) != 0 && ::fstat(descriptor, &status) == 0) cut(status);
  errno = error;
  return outcome;
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

int madvise(void* at, std::size_t length, int advice) noexcept {
  const int outcome = raw_madvise(at, length, advice);
  const int error = errno;
  // Of several mappings some may have been cut before it failed at another one.
  if (advice == MADV_REMOVE) cut(static_cast<char*>(at), whole_pages(length));
  errno = error;
  return outcome;
}

int ftruncate(int descriptor, off_t length) noexcept { return truncate_open(descriptor, length); }

int ftruncate64(int descriptor, off_t length) noexcept { return truncate_open(descriptor, length); }

int truncate(const char* path, off_t length) noexcept { return truncate_named(path, length); }

int truncate64(const char* path, off_t length) noexcept { return truncate_named(path, length); }

int fallocate(int descriptor, int mode, off_t offset, off_t length) {
  return allocate(descriptor, mode, offset, length);
}

int fallocate64(int descriptor, int mode, off_t offset, off_t length) {
  return allocate(descriptor, mode, offset, length);
}

}  // extern "C"
