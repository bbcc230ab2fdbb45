// PageSync: making bytes behind the page cache durable, and never believing it again once the
// kernel has said that it failed.
#pragma once

#include "core/mutex.h"
#include "pmem/region.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::pmem {

/// The system calls, so that a test can let the medium fail. Each returns 0 or an errno.
class SyncCalls {
 public:
  virtual ~SyncCalls() = default;
  virtual int sync_range(std::byte* at, std::size_t length);  // msync(MS_SYNC), page-aligned
  virtual int sync_file(int descriptor);                      // fdatasync
  /// EROFS, EIO: the file system takes no writes any more (fstatfs, a read of nothing).
  virtual int check_writable(int descriptor);

  static SyncCalls& system();
};

/// What one flush has to sync: a single run of pages, or several.
struct PageRun {
  std::uint64_t at = 0;
  std::uint64_t length = 0;
  bool operator==(const PageRun&) const = default;
};

/// The page-aligned runs that cover `ranges`: overlapping and adjacent ones joined, in ascending
/// order, empty ranges left out. Writes at most runs.size() of them.
/// Returns their number, or runs.size() + 1 when there are more than fit.
std::size_t join_pages(std::span<const Range> ranges, std::uint64_t page_bytes,
                       std::span<PageRun> runs);

/// Makes the resident pages of a mapped file dirty, without changing a byte. Returns how many.
/// After a failed write-back the kernel counts pages as clean that the medium does not have; those
/// that it could not be made to forget are written again by the next sync.
std::size_t dirty_resident_pages(std::span<std::byte> mapping);

/// Has the pages of a mapped file come into memory one by one, whoever touches them: what the
/// kernel reads ahead of a fault lies in large folios since 6.x, and a store makes all of one
/// dirty. A flush of 64 bytes then wrote 757 KB instead of 4 KB, and took 101 us instead of 64
/// (measured, decision 0015). What is read by name comes in single pages: the first 256 MiB, in the
/// background, so that requests after a start need not wait for the disk (the rest once somebody
/// connects: read_ahead.h). Advice: where it is not
/// taken, it is as slow as it was.
void keep_pages_small(std::span<std::byte> mapping);

/// msync of the pages of a mapping that cover a range of it. Errors: SystemError.
Result<void> sync_pages(std::span<std::byte> mapping, const Range& range, const std::string& name);

/// The same for memory that keeps what is stored by itself: on to the medium below it. Errors:
/// Unsupported: it has no msync, as device DAX (EINVAL: its driver has no fsync); SystemError.
Result<void> sync_pages_deep(std::span<std::byte> mapping, const Range& range,
                             const std::string& name, SyncCalls& calls = SyncCalls::system());

/// Threads: any.
class PageSync {
 public:
  /// `mapping` is the whole mapped file; its length is a multiple of the page size.
  PageSync(std::span<std::byte> mapping, int descriptor, std::string path, SyncCalls& calls);

  /// One run of pages: msync. Several: one fdatasync, since each msync would cost a cache flush
  /// of the drive of its own. Both write back pages dirtied through any mapping.
  ///
  /// Where the file system has been made read-only meanwhile (ext4's errors=remount-ro), the calls
  /// write nothing and return 0: so after each of them that is asked.
  ///
  /// Errors  NoSpace, SystemError: the medium refused. From then on every call returns the same
  ///         error, and nothing of the region may be trusted.
  Result<void> sync(std::span<const Range> ranges);

  /// Whether the file system still takes writes. Waits for no sync. Errors: SystemError.
  Result<void> check();

 private:
  int call(std::span<const PageRun> runs);

  std::span<std::byte> mapping_;
  int descriptor_;
  std::string path_;
  SyncCalls& calls_;
  std::uint64_t page_bytes_;
  Mutex mutex_;
  std::optional<Error> failure_ PERDURE_GUARDED_BY(mutex_);
};

}  // namespace perdure::pmem
