// 8-byte atomics on a pool, done by the responder's processor: docs/decisions/0020.
//
// Payload of the request (wire.h), 32 bytes, little-endian:
//
//   0       1     operation  AtomicOperation
//   1       7     zero
//   8       8     offset     of the word, from the start of the exported part; a multiple of 8
//   16      8     operand    FetchAdd: addend; CompareSwap: new value; Store: value
//   24      8     expected   CompareSwap; else zero
//
// Payload of the reply, 8 bytes: what the word was before. It, and what the word is now, survive a
// power failure.
#pragma once

#include <perdure/result.h>

#include "persist/request_handler.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace perdure::persist {

enum class AtomicOperation : std::uint8_t {
  FetchAdd = 1,     // modulo 2^64
  CompareSwap = 2,  // changes the word only if it is `expected`
  Store = 3,
};

struct Atomic {
  AtomicOperation operation = AtomicOperation::FetchAdd;
  std::uint64_t at = 0;
  std::uint64_t operand = 0;
  std::uint64_t expected = 0;
};

inline constexpr std::size_t kAtomicBytes = 8;
inline constexpr std::size_t kAtomicPayloadBytes = 32;

/// Whether an atomic may be done on a pool of so many bytes. Errors: InvalidArgument (not at a
/// multiple of 8), OutOfRange.
Result<void> check_atomic(const Atomic& atomic, std::uint64_t pool_bytes);

using AtomicPayload = std::array<std::byte, kAtomicPayloadBytes>;
AtomicPayload encode_atomic(const Atomic& atomic);
/// Errors: InvalidArgument. Trusts nothing of `payload`.
Result<Atomic> decode_atomic(std::span<const std::byte> payload);

}  // namespace perdure::persist
