// Frame: how every design here writes a request or a reply into memory that another end polls.
//
//   offset  size  field
//        0     8  sequence of the call, from 1
//        8     4  length of the payload in bytes
//       12     4  tag: 0, or what a design puts there
//       16     4  CRC32C of the 16 bytes before and of the payload
//       20     4  zero
//       24        payload
//
// The published systems poll a length word in front and a valid byte behind the payload of one
// WRITE, and count on its being placed from front to back. The verbs promise no order inside of one
// operation (fabric.h), and the emulated fabric keeps none. So a frame is there when its sequence
// is the awaited one and its checksum is right: whatever part of it is missing, it is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace perdure::rpc::models {

inline constexpr std::size_t kFrameHeaderBytes = 24;

struct Frame {
  std::uint64_t sequence = 0;
  std::uint32_t tag = 0;
  std::span<const std::byte> payload;
};

/// Writes the header for `length` bytes of payload that stand behind it already. Returns the bytes
/// of the whole frame. Requires `at` at a multiple of 8.
std::size_t encode_frame(std::byte* at, std::uint64_t sequence, std::uint32_t tag,
                         std::size_t length);

/// The frame of call `sequence` at the start of `slot`, if it is there whole. What it returns
/// points into `slot`. Others may write there meanwhile. Requires slot.data() at a multiple of 8.
/// Cost: one load until the sequence is there, then the checksum.
std::optional<Frame> find_frame(std::span<const std::byte> slot, std::uint64_t sequence);

/// From here on no frame is in the slot.
void clear_frame(std::span<std::byte> slot);

}  // namespace perdure::rpc::models
