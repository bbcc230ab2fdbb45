// System calls past the interposer's own names for them.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>

namespace perdure::interpose {

/// MAP_FAILED and errno, as mmap().
inline char* raw_mmap(void* at, std::size_t length, int protection, int flags, int descriptor,
                      off_t offset) {
  // NOLINTNEXTLINE: the kernel returns an address in a long
  return reinterpret_cast<char*>(
      ::syscall(SYS_mmap, at, length, protection, flags, descriptor, offset));
}
inline int raw_munmap(const void* at, std::size_t length) {
  return static_cast<int>(::syscall(SYS_munmap, at, length));
}
inline char* raw_mremap(void* at, std::size_t old_length, std::size_t length, int flags, void* to) {
  return reinterpret_cast<char*>(::syscall(SYS_mremap, at, old_length, length, flags, to));
}
inline int raw_msync(void* at, std::size_t length, int flags) {
  return static_cast<int>(::syscall(SYS_msync, at, length, flags));
}
inline int raw_madvise(void* at, std::size_t length, int advice) {
  return static_cast<int>(::syscall(SYS_madvise, at, length, advice));
}
inline int raw_ftruncate(int descriptor, off_t length) {
  return static_cast<int>(::syscall(SYS_ftruncate, descriptor, length));
}
inline int raw_truncate(const char* path, off_t length) {
  return static_cast<int>(::syscall(SYS_truncate, path, length));
}
inline int raw_fallocate(int descriptor, int mode, off_t offset, off_t length) {
  return static_cast<int>(::syscall(SYS_fallocate, descriptor, mode, offset, length));
}
inline bool failed(const char* mapping) { return mapping == static_cast<const char*>(MAP_FAILED); }

}  // namespace perdure::interpose
