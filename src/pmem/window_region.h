// A part of a region as a region of its own, for a pool that is one of many in a larger one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/assert.h"
#include "core/try.h"
#include "pmem/region.h"

namespace perdure::pmem {

/// Requires that `region` outlives it. Threads: as the region.
class WindowRegion final : public Region {
 public:
  /// Requires a window inside the region.
  WindowRegion(Region& region, Range window) : region_(region), window_(window) {
    PERDURE_ASSERT(inside(window, region.bytes().size()));
  }

  std::span<std::byte> bytes() override {
    return region_.bytes().subspan(window_.at, window_.length);
  }
  PersistenceDomain domain() const override { return region_.domain(); }
  using Region::flush;
  Result<void> flush(std::span<const Range> ranges) override {
    if (ranges.empty()) return region_.flush(ranges);  // that asks something, too
    std::array<Range, 16> moved;
    while (!ranges.empty()) {
      const std::size_t count = std::min(ranges.size(), moved.size());
      for (std::size_t index = 0; index < count; ++index) {
        PERDURE_ASSERT(inside(ranges[index], window_.length));
        moved[index] = {window_.at + ranges[index].at, ranges[index].length};
      }
      PERDURE_TRY_VOID(region_.flush(std::span<const Range>(moved).first(count)));
      ranges = ranges.subspan(count);
    }
    return {};
  }
  Result<void> deep_flush(const Range& range) override {
    PERDURE_ASSERT(inside(range, window_.length));
    return region_.deep_flush({window_.at + range.at, range.length});
  }
  void dirty_pages(const Range& range) override {
    region_.dirty_pages({window_.at + range.at, range.length});
  }
  Result<void> check() override { return region_.check(); }
  bool is_lost() const override { return region_.is_lost(); }
  std::unique_ptr<FailureTie> cut_on_failure(const CutSwitch& connection) override {
    return region_.cut_on_failure(connection);
  }
  std::string evidence() const override { return region_.evidence(); }

 private:
  Region& region_;
  const Range window_;
};

}  // namespace perdure::pmem
