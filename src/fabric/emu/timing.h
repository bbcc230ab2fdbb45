// How long things take in the emulated world. These are assumptions, chosen to be near published
// figures for one switch hop and a PCIe 3.0 RNIC; they are not measurements, and every latency made
// of them is to be labelled *emulated*. sim, not emu, is where timing is modelled with care.
#pragma once

#include "core/clock.h"

#include <cstdint>

namespace perdure::fabric::emu {

/// One way between two RNICs, doorbell and switch included. Assumption.
inline constexpr Nanoseconds kWireTime{700};
/// One crossing of PCIe between RNIC and memory. Assumption.
inline constexpr Nanoseconds kPcieTime{300};
/// From a PWRITE's being visible to the persist ACK leaving the RNIC. Assumption.
inline constexpr Nanoseconds kPersistTime{300};
/// What the RNIC takes to look up where an SFLUSH's message has gone (seed paper 002,
/// section 4.1.3: "about 7 us", conservatively); RnicSwitches has another where it is to be varied.
inline constexpr Nanoseconds kSendFlushLookupTime{7'000};
/// From a receive completion to the responder's CPU looking at it. Assumption: it is polling.
inline constexpr Nanoseconds kCpuWakeTime{0};
/// CPU flush of one cache line, its share of the fence included. Assumption.
inline constexpr Nanoseconds kFlushLineTime{50};
/// Sync of one 4 KiB page to a fast SSD. Assumption.
inline constexpr Nanoseconds kFlushPageTime{20'000};
/// What an endless loop of polls that find nothing costs, each: the first, and at most.
inline constexpr Nanoseconds kIdlePollTime{100};
inline constexpr Nanoseconds kIdlePollTimeMax{1'000'000};

/// Time on a wire of 100 Gbit/s. Assumption.
constexpr Nanoseconds wire_occupancy(std::uint64_t bytes) {
  return Nanoseconds{static_cast<std::int64_t>(bytes * 2 / 25)};
}

}  // namespace perdure::fabric::emu
