// What the orders beside BROI are made of, for traces (buffered_admission.h) and for servers
// (server/), as the artifact of ASAP and HOPS (HPCA 2022) has them. Its buffers have 32 entries of
// a thread; here they have 8 unless a file or an option says otherwise, as BROI's have.
#pragma once

#include <algorithm>
#include <cstdint>

namespace perdure::memsys {

inline constexpr std::uint64_t kHopsPollNs = 500;          // between looks at the others' progress
inline constexpr std::uint64_t kAsapRecoveryEntries = 64;  // of a controller's recovery table
inline constexpr std::uint64_t kAsapEpochEntries = 32;     // of a thread's epoch table

/// HOPS: so many entries in a buffer are sent: half of it.
constexpr std::uint64_t hops_flush_entries(std::uint64_t buffer_entries) {
  return std::max<std::uint64_t>(1, buffer_entries / 2);
}

}  // namespace perdure::memsys
