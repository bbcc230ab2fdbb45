// ReadAhead: the pages of a mapped file come into memory in the background, in the order of the
// file and one by one, before somebody reads them through the mapping.
//
// The mapping of a pool is advised against reading ahead of faults (keep_pages_small), and opening
// a pool empties the page cache of it. Whoever reads it from end to end, as opening and repairing a
// log does, would wait for the drive at each page: 1 GiB took 12 s instead of 1 (decision 0015).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

namespace perdure::pmem {

/// Has the kernel read this part of a mapped file, in single pages. Waits for the drive to take the
/// requests, not for the bytes. Returns false where such advice is not taken.
bool ask_for_pages(std::span<std::byte> part);

/// How much of a file may be read ahead without memory becoming short: half of what this machine,
/// and the control group of this process, can give; 0: not known.
std::uint64_t read_ahead_bytes_max();

/// A thread, until it has asked for everything or is destroyed. Advice: without it all is as slow
/// as it was.
class ReadAhead {
 public:
  /// Requires that the mapping outlives it.
  explicit ReadAhead(std::span<std::byte> mapping);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace perdure::pmem
