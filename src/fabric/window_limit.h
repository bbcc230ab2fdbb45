// How large a memory window an RNIC binds, as far as it is known. Knows nothing of any provider.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string_view>

namespace perdure::fabric {

/// The largest window that a driver binds (its name as in /sys; empty: a software RNIC). libmlx5
/// describes a window in the work request, by an entry for at most 2 GiB (set_bind_wr).
constexpr std::uint64_t window_bytes_max_of(std::string_view driver) {
  return driver.starts_with("mlx5_core") ? std::uint64_t{1} << 31
                                         : std::numeric_limits<std::uint64_t>::max();
}

/// What is known at first is the driver's; what a device refuses lowers it. A window that was
/// refused says nothing about smaller ones. Threads: any.
class WindowLimit {
 public:
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  bool allows(std::uint64_t bytes) const {
    return bytes <= bytes_max_.load(std::memory_order_relaxed);
  }
  std::uint64_t bytes_max() const { return bytes_max_.load(std::memory_order_relaxed); }
  void lower(std::uint64_t bytes_max) {
    std::uint64_t known = bytes_max_.load(std::memory_order_relaxed);
    while (bytes_max < known && !bytes_max_.compare_exchange_weak(known, bytes_max)) continue;
  }
  void note_refused(std::uint64_t bytes) { lower(bytes == 0 ? 0 : bytes - 1); }

 private:
  std::atomic<std::uint64_t> bytes_max_{kNone};
};

}  // namespace perdure::fabric
