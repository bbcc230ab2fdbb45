// IoRing: writes through io_uring, by liburing.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct io_uring;

namespace perdure::bench {

/// Threads: one caller.
class IoRing {
 public:
  /// Errors: Unsupported: the kernel has none or lets nobody use it, or this build has no liburing.
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
  IoRing();

  std::unique_ptr<io_uring> ring_;
  bool open_ = false;
};

}  // namespace perdure::bench
