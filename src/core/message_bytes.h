// How many bytes of a message are not payload: one home for what persist/wire.h lays out and what
// those count with who may not see it (plan) or do not care how it is laid out (client, log).
#pragma once

#include <cstddef>

namespace perdure {

/// The fixed fields in front of an update message, exactly.
inline constexpr std::size_t kMessageHeaderBytes = 24;
/// Behind them, one entry for each item that the message carries or names, exactly.
inline constexpr std::size_t kMessageEntryBytes = 16;

/// What is set aside of each message when a method is chosen: header and entries of two items,
/// rounded up to whole cache lines of 64 bytes.
inline constexpr std::size_t kMessageOverheadBytes =
    (kMessageHeaderBytes + 2 * kMessageEntryBytes + 63) / 64 * 64;

}  // namespace perdure
