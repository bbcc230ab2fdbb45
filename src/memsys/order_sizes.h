// What the orders beside BROI are made of, for traces (buffered_admission.h) and for servers
// (server/). The artifact of ASAP and HOPS (HPCA 2022) has buffers of 32 entries and sends at 16;
// here buffers have 8, and half of that is 4. That artifact also frees ASAP's entries earlier, and
// its fences take none: docs/simulator.md says in which direction each of these errs.
#pragma once

#include <cstdint>

namespace perdure::memsys {

inline constexpr std::uint64_t kHopsPollNs = 500;      // between looks at the others' progress
inline constexpr std::uint64_t kHopsFlushEntries = 4;  // so many entries in a buffer are sent
inline constexpr std::uint64_t kAsapUndoEntries = 64;  // writes sent before they may count

}  // namespace perdure::memsys
