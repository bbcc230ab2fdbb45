// IoRing: writes through io_uring, by the system calls themselves: liburing is not needed for one
// kind of request.
#pragma once

#include <perdure/result.h>

#include <linux/io_uring.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace perdure::bench {

/// Threads: one caller.
class IoRing {
 public:
  /// Errors: Unsupported: the kernel has none, or lets nobody use it.
  static Result<std::unique_ptr<IoRing>> open(unsigned entries);
  ~IoRing();
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;

  /// Begins a write with RWF_DSYNC. Requires fewer in flight than entries. Errors: SystemError.
  Result<void> write(int descriptor, std::span<const std::byte> data, std::uint64_t at,
                     std::uint64_t context);
  /// Waits for one that is over; its context. Errors: SystemError, NoSpace.
  Result<std::uint64_t> wait();

 private:
  IoRing() = default;

  int ring_ = -1;
  io_uring_params parameters_{};
  std::byte* submissions_ = nullptr;
  std::size_t submissions_bytes_ = 0;
  std::byte* completions_ = nullptr;
  std::size_t completions_bytes_ = 0;
  io_uring_sqe* entries_ = nullptr;
  std::size_t entries_bytes_ = 0;
};

}  // namespace perdure::bench
