// A pool's bytes as a log: any bytes give a prefix of whole records or an error, in bounded time.
#include <cstdint>
#include <cstring>
#include <vector>

#include "log/log_scan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace perdure::log;
  static std::vector<std::byte> pool(kRingAt + kRingBytesMin);
  // The input is the start of the pool and then the start of the ring. A valid anchor would be
  // found by chance only, so an input without one gets one.
  constexpr std::size_t kStartBytes = 192;
  std::memset(pool.data(), 0, pool.size());
  const std::size_t start = size < kStartBytes ? size : kStartBytes;
  std::memcpy(pool.data(), data, start);
  const std::size_t rest = size - start < kRingBytesMin ? size - start : kRingBytesMin;
  std::memcpy(pool.data() + kRingAt, data + start, rest);
  perdure::LocalBytes bytes(pool);
  for (const bool repaired : {false, true}) {
    if (repaired) {
      encode_anchor({perdure::LogShape::Compound, kRingBytesMin, 1, 0},
                    std::span<std::byte, kAnchorBytes>(pool.data(), kAnchorBytes));
      LogState state;
      state.anchor = {perdure::LogShape::Compound, kRingBytesMin, 1, 0};
      state.epoch = perdure::Epoch{1};
      state.configuration = {1, 1, {Member{}}};
      const StateBytes page = encode_state(state, 1);
      std::memcpy(pool.data() + kStateAt, page.data(), page.size());
    }
    std::uint64_t seen = 0;
    const auto report = scan_log(bytes, [&](const RecordView& record) {
      if (record.payload.size() > pool.size()) __builtin_trap();
      ++seen;
    });
    if (report.ok() && report->records > seen) __builtin_trap();
  }
  return 0;
}
