// What a medium costs the processor that keeps it: timed in bytes of a region that hold nothing.
#pragma once

#include <perdure/result.h>

#include "core/clock.h"
#include "pmem/region.h"

#include <cstdint>

namespace perdure::pmem {

/// Whole numbers, so that they survive a text. 0: too little to be timed, or not of this medium.
struct MediumCosts {
  std::uint64_t copy_byte_ps = 0;   // storing one byte of a message, in picoseconds
  std::uint64_t flush_line_ps = 0;  // flushing one line of 64 bytes, in picoseconds; not of Page
  std::uint64_t sync_ns = 0;        // domain Page: one flush, in nanoseconds
  bool operator==(const MediumCosts&) const = default;
};

/// Stores zeros over `scratch` and flushes them, several times; the best time counts.
///
/// Requires    scratch lies in the region and holds zeros, which nothing else changes.
/// Durability  whatever a crash leaves in scratch is zeros.
/// Errors      those of Region::flush: the medium refused.
/// Cost        some ten microseconds; domain Page: three syncs, or fewer when they are slow.
Result<MediumCosts> measure_medium(Region& region, Range scratch, const Clock& clock);

}  // namespace perdure::pmem
