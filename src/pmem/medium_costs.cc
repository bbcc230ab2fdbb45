#include "pmem/medium_costs.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"

namespace perdure::pmem {
namespace {

constexpr int kRounds = 5;
constexpr int kSyncRounds = 3;
constexpr Nanoseconds kSyncsWithin = std::chrono::milliseconds(10);

std::uint64_t nanoseconds(Nanoseconds time) {
  return static_cast<std::uint64_t>(std::max<Nanoseconds::rep>(time.count(), 0));
}

}  // namespace

Result<MediumCosts> measure_medium(Region& region, Range scratch, const Clock& clock) {
  PERDURE_ASSERT(scratch.length >= kCacheLineBytes);
  const std::span<std::byte> to = region.bytes().subspan(scratch.at, scratch.length);
  const std::vector<std::byte> zeros(scratch.length);
  const bool page = region.domain() == PersistenceDomain::Page;
  Nanoseconds copied = Nanoseconds::max();
  Nanoseconds flushed = Nanoseconds::max();
  const Nanoseconds start = clock.now();
  for (int round = 0; round < (page ? kSyncRounds : kRounds); ++round) {
    const Nanoseconds before = clock.now();
    std::memcpy(to.data(), zeros.data(), to.size());
    const Nanoseconds between = clock.now();
    // A sync costs the same for one line as for all: what is timed is the shortest update.
    PERDURE_TRY_VOID(region.flush(scratch.at, page ? kCacheLineBytes : scratch.length));
    const Nanoseconds after = clock.now();
    copied = std::min(copied, between - before);
    flushed = std::min(flushed, after - between);
    if (after - start > kSyncsWithin) break;
  }
  MediumCosts costs;
  costs.copy_byte_ps = nanoseconds(copied) * 1000 / scratch.length;
  if (page) {
    costs.sync_ns = nanoseconds(flushed);
  } else {
    costs.flush_line_ps = nanoseconds(flushed) * 1000 / (scratch.length / kCacheLineBytes);
  }
  return costs;
}

}  // namespace perdure::pmem
