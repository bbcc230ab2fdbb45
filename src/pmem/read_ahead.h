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
#include <utility>

#include "core/mutex.h"

namespace perdure::pmem {

/// Has the kernel read this part of a mapped file, in single pages. Waits for the drive to take the
/// requests, not for the bytes. Returns false where such advice is not taken.
bool ask_for_pages(std::span<std::byte> part);

/// How much may be read ahead without memory becoming short: half of what this machine, and the
/// control group of this process, can give; pages that were read ahead count as given back, since
/// they can be. 0: not known.
std::uint64_t read_ahead_bytes_max();

/// Bytes that may be read ahead at a time, for all pools together: if each of several large ones
/// took half of memory, they would evict one another. First come, first served.
/// Threads: any.
class ReadAheadBudget {
 public:
  /// `most`: of all shares together. Asked whenever one is taken, since memory comes and goes.
  explicit ReadAheadBudget(std::uint64_t (*most)()) : most_(most) {}
  /// That of this process, of read_ahead_bytes_max().
  static ReadAheadBudget& of_process();

  /// What was taken of a budget; given back when destroyed. The budget must outlive it.
  class Share {
   public:
    Share(Share&& other) noexcept
        : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&&) = delete;
    ~Share() { budget_->give_back(bytes_); }
    std::uint64_t bytes() const { return bytes_; }

   private:
    friend class ReadAheadBudget;
    Share(ReadAheadBudget& budget, std::uint64_t bytes) : budget_(&budget), bytes_(bytes) {}
    ReadAheadBudget* budget_;
    std::uint64_t bytes_;
  };

  /// As much of `wanted` as is left.
  Share take(std::uint64_t wanted);
  std::uint64_t taken() const;

 private:
  void give_back(std::uint64_t bytes);

  std::uint64_t (*const most_)();
  mutable Mutex mutex_;
  std::uint64_t taken_ PERDURE_GUARDED_BY(mutex_) = 0;
};

/// A thread, until it has asked for everything or is destroyed. Advice: without it all is as slow
/// as it was. What it has read stays in memory and so counts until it is destroyed: with the pool.
class ReadAhead {
 public:
  /// Reads as much of the mapping, from its start, as the budget has left. Requires that the
  /// mapping outlives it.
  explicit ReadAhead(std::span<std::byte> mapping,
                     ReadAheadBudget& budget = ReadAheadBudget::of_process());
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

 private:
  ReadAheadBudget::Share share_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace perdure::pmem
