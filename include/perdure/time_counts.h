// TimeCounts: how often something took how long, in the classes in which perdured counts too.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace perdure {

/// A histogram in classes of 1, 2 and 5 times a power of ten, from 1 us to 10 s. Two of them, of
/// several logs or machines, add up.
struct TimeCounts {
  /// Upper ends, included, in nanoseconds; what takes longer is in the last class.
  static constexpr std::array<std::uint64_t, 22> kBoundsNs{
      1'000,         2'000,         5'000,         10'000,        20'000,      50'000,
      100'000,       200'000,       500'000,       1'000'000,     2'000'000,   5'000'000,
      10'000'000,    20'000'000,    50'000'000,    100'000'000,   200'000'000, 500'000'000,
      1'000'000'000, 2'000'000'000, 5'000'000'000, 10'000'000'000};
  static constexpr std::size_t kClasses = kBoundsNs.size() + 1;
  static std::size_t class_of(std::uint64_t ns) {
    return static_cast<std::size_t>(std::lower_bound(kBoundsNs.begin(), kBoundsNs.end(), ns) -
                                    kBoundsNs.begin());
  }

  std::array<std::uint64_t, kClasses> classes{};
  std::uint64_t sum_ns = 0;
  bool operator==(const TimeCounts&) const = default;

  void add(std::chrono::nanoseconds time) {
    const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0));
    ++classes[class_of(ns)];
    sum_ns += ns;
  }
  std::uint64_t count() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t each : classes) sum += each;
    return sum;
  }
  /// The upper end of the class of the value that `fraction` of all do not exceed (0.5: the
  /// median): at most 2.5 times too long. Zero when there is none; of the last class, max().
  std::chrono::nanoseconds quantile(double fraction) const {
    const std::uint64_t all = count();
    if (all == 0) return std::chrono::nanoseconds{0};
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBoundsNs.size(); ++i) {
      seen += classes[i];
      if (static_cast<double>(seen) < fraction * static_cast<double>(all) || seen == 0) continue;
      return std::chrono::nanoseconds{static_cast<std::int64_t>(kBoundsNs[i])};
    }
    return std::chrono::nanoseconds::max();
  }
};

inline TimeCounts& operator+=(TimeCounts& sum, const TimeCounts& more) {
  for (std::size_t i = 0; i < sum.classes.size(); ++i) sum.classes[i] += more.classes[i];
  sum.sum_ns += more.sum_ns;
  return sum;
}

}  // namespace perdure
