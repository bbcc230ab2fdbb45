// Which addresses of this process are bytes of files that the back-end wants to hear of.
#pragma once

#include "interpose/backend.h"

#include <sys/types.h>

#include <cstddef>

namespace perdure::interpose {

/// Children made by fork() have a table of their own. Called early, for it may allocate.
void watch_forks();
/// The program has mapped `length` bytes at `at`. False: it must not keep them; errno says why.
bool mapped(char* at, std::size_t length, int flags, int descriptor, off_t offset);
/// munmap(). Does not return where the kernel refuses to unmap what is watched.
int unmap(char* at, std::size_t length);
/// What mremap() is asked for.
struct Remapping {
  char* at = nullptr;
  std::size_t old_length = 0;
  std::size_t length = 0;
  int flags = 0;
  void* to = nullptr;  // with MREMAP_FIXED
};
/// mremap(). Where it fails, MAP_FAILED and errno, the mapping is as it was.
char* remap(const Remapping& wanted);
/// Tells the back-end of every part of the range that belongs to a file. Does not return in a
/// signal handler that has interrupted its thread in one of these.
void flushed(const void* at, std::size_t length);
/// The same of a drain, once anything was mapped.
void drained(Drain drain);
/// Bytes of the file, or of the files that are mapped there, became zeros or moved by no store.
void cut(const struct ::stat& file);
void cut(const char* at, std::size_t length);

constexpr std::size_t kPage = 4096;
/// What a mapping of so many bytes takes.
constexpr std::size_t whole_pages(std::size_t length) {
  return (length + kPage - 1) / kPage * kPage;
}

}  // namespace perdure::interpose
