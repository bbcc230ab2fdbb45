// Backend: what the interposer tells of a program's persistence calls. mappings.h finds out which
// file an address belongs to; a back-end deals with files and ranges in them.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>

namespace perdure::interpose {

/// What a thread waits for.
enum class Drain {
  Ordered,  // pmem_drain and its kin: what was flushed before it is durable before what follows
  Durable,  // msync, pmem_deep_persist: the program was told that it is on the medium
};

/// A part of a file, and where the program has it.
struct FileRange {
  int file = 0;              // what attach() returned
  std::uint64_t offset = 0;  // in the file
  std::uint64_t length = 0;  // bytes
  const char* at = nullptr;
  std::uint64_t device = 0;  // which file it is, whatever name it has
  std::uint64_t inode = 0;
};

/// Threads: any; the calls come from the program's threads. Nothing of it may call what the
/// interposer catches.
class Backend {
 public:
  static constexpr int kNotWanted = -1;  // of attach(): calls about this file are of no interest
  static constexpr int kRefused = -2;  // the program must not have it; errno and a message say why
  // Not told of by map(). Flushes are, by device and inode: a file may get its name afterwards.
  static constexpr int kNotYet = -3;

  /// A file that the program is mapping, shared; `descriptor` is open for the time of the call.
  virtual int attach(int descriptor, const struct ::stat& status) = 0;
  /// A range of it that is mapped from now on; `descriptor` is open for the time of the call, -1:
  /// it grew by mremap(). False: it must not be; errno and a message say why.
  virtual bool map(const FileRange& range, int descriptor) = 0;
  /// It is no longer, and what was not flushed of it may or may not be in the file.
  virtual void unmap(const FileRange& range) = 0;
  /// The calling thread wants it durable at its next drain.
  virtual void flush(const FileRange& range) = 0;
  virtual void drain(Drain drain) = 0;
  /// Bytes of a file became zeros, or moved, by no store: ftruncate() and its kin.
  virtual void cut(std::uint64_t device, std::uint64_t inode) = 0;
  /// In a child made by fork(), before anything else.
  virtual void forked() = 0;

 protected:
  ~Backend() = default;
};

/// "perdure: <text>" on standard error, whatever the program did with its streams. Keeps errno.
void say(const char* text, const char* detail = "");

}  // namespace perdure::interpose
