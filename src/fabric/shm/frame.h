// What travels in the streams of a connection.
//
// Request, at a multiple of 64 bytes, followed by `length` payload bytes (Send, Write, WriteImm):
//
//   offset  size  field      meaning
//   0       1     opcode     of fabric.h
//   1       1     rewind     1: no request, and all else is zero; the next one is at the start of
//                            the stream, and what lies between is left out
//   2       2     zero
//   4       4     immediate  WriteImm
//   8       8     length     bytes of payload, or bytes to read
//   16      8     key        all but Send
//   24      8     offset     bytes from the start of the registered range; all but Send
//   32      8     operand    AtomicWrite: value; CompareSwap: expected; FetchAdd: addend
//   40      8     swap       CompareSwap: new value
//   48      16    zero
//
// Answers have no header: they are the bytes of Read, CompareSwap and FetchAdd (8 bytes: the old
// value) in the order of the requests, each beginning at a multiple of 64 bytes.
#pragma once

#include "core/bytes.h"
#include "fabric/fabric.h"

namespace perdure::fabric::shm {

inline constexpr std::uint64_t kFrameAlignment = kCacheLineBytes;
/// Long transfers become visible to the other side in pieces of this size, so that both copy at
/// the same time.
inline constexpr std::uint64_t kPieceBytes = 16 * 1024;
inline constexpr std::uint64_t kTransferBytesMax = std::uint64_t{1} << 31;

struct alignas(kFrameAlignment) RequestFrame {
  Opcode opcode = Opcode::Send;
  std::uint8_t rewind = 0;
  std::uint8_t reserved[2] = {};
  std::uint32_t immediate = 0;
  std::uint64_t length = 0;
  std::uint64_t key = 0;
  std::uint64_t offset = 0;
  std::uint64_t operand = 0;
  std::uint64_t swap = 0;
  std::uint64_t reserved_end[2] = {};
};
static_assert(sizeof(RequestFrame) == kFrameAlignment);

/// Whether payload follows the frame.
constexpr bool carries_payload(Opcode opcode) {
  return opcode == Opcode::Send || opcode == Opcode::Write || opcode == Opcode::WriteImm;
}
/// Bytes of the answer.
constexpr std::uint64_t answer_bytes(Opcode opcode, std::uint64_t length) {
  if (opcode == Opcode::Read) return length;
  return opcode == Opcode::CompareSwap || opcode == Opcode::FetchAdd ? 8 : 0;
}

}  // namespace perdure::fabric::shm
