// Ordered updates in one message, done by the responder's processor: epochs of ranges, each durable
// before anything of the next one is stored. One round trip, however many epochs.
//
// Payload of the request (wire.h), little-endian:
//
//   0       4     ranges   1..kOrderedRangesMax
//   4       4     zero
//   8       16n   range    offset u64, length u32, epoch u32: from 0, each that of the range before
//                          or one more
//   ..            bytes    of the ranges, one behind another
//
// The reply has no payload. After a crash in the middle whole epochs are there, and any part of the
// next one.
#pragma once

#include <perdure/result.h>

#include "persist/request_handler.h"
#include "persist/requester.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace perdure::persist {

inline constexpr std::size_t kOrderedRangesMax = 256;
/// Of a payload, for those who gather ranges for one: with its header a receive buffer as daemons
/// have them by default.
inline constexpr std::size_t kOrderedBytesMax = 16 * 1024 - kRequestHeaderBytes;
inline constexpr std::size_t kOrderedHeadBytes = 8;
inline constexpr std::size_t kOrderedRangeBytes = 16;

/// What one payload takes, for those who gather ranges for it.
struct OrderedSize {
  std::size_t ranges = 0;
  std::uint64_t data_bytes = 0;

  OrderedSize& operator+=(const OrderedSize& other) {
    ranges += other.ranges;
    data_bytes += other.data_bytes;
    return *this;
  }
  /// With another range of so many bytes.
  OrderedSize with(std::uint64_t length) const { return {ranges + 1, data_bytes + length}; }
  std::uint64_t bytes() const {
    return kOrderedHeadBytes + kOrderedRangeBytes * ranges + data_bytes;
  }
  bool fits(std::uint64_t bytes_max) const {
    return ranges <= kOrderedRangesMax && bytes() <= bytes_max;
  }
};

/// The payload, at the begin of `payload`, which grows if it is too short. Requires no more than
/// kOrderedRangesMax ranges, and that no epoch is empty.
std::span<const std::byte> encode_ordered(std::span<const std::span<const UpdateItem>> epochs,
                                          std::vector<std::byte>& payload);

/// Carries an update out. Nothing is stored unless all of it makes sense.
RequestHandler& ordered_handler();

}  // namespace perdure::persist
