// What travels between two emulated RNICs: operations one way, responses the other.
#pragma once

#include "core/clock.h"
#include "fabric/fabric.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace perdure::fabric::emu {

/// Posted operations carry data; the others (Read, flushes, atomics) are answered.
constexpr bool is_posted(Opcode opcode) {
  return opcode == Opcode::Send || opcode == Opcode::Write || opcode == Opcode::WriteImm ||
         opcode == Opcode::WritePersist;
}

/// Whether it needs no answer: but for PWRITEs, which have the persist ACK, what is posted.
constexpr bool completes_on_arrival(Opcode opcode) {
  return is_posted(opcode) && opcode != Opcode::WritePersist;
}

/// Whether it changes nothing that a load returns.
constexpr bool only_looks(Opcode opcode) {
  return opcode == Opcode::Read || opcode == Opcode::Flush || opcode == Opcode::SendFlush;
}

/// Whether it takes a receive buffer at the responder.
constexpr bool takes_receive(Opcode opcode) {
  return opcode == Opcode::Send || opcode == Opcode::WriteImm;
}

/// Whether queue pairs of a type have it (InfiniBand specification volume 1, 9.8.1 and 9.8.3).
constexpr bool carries(QpType type, Opcode opcode) {
  const bool moves =
      opcode == Opcode::Send || opcode == Opcode::Write || opcode == Opcode::WriteImm;
  return type == QpType::Rc || (type == QpType::Uc && moves) || opcode == Opcode::Send;
}

/// Largest transfer of the emulated fabric.
inline constexpr std::uint64_t kTransferBytesMax = 64ULL << 20;

/// Bytes that an atomic operation works on.
inline constexpr std::uint64_t kAtomicOperandBytes = 8;

/// One operation as it is on the wire.
struct Operation {
  std::uint64_t sequence = 0;  // of the requester's operations on this connection
  Opcode opcode = Opcode::Send;
  bool truncated = false;  // only the first bytes arrived before the sender or the power went
  std::uint32_t immediate = 0;
  std::uint64_t key = 0;
  std::uint64_t address = 0;  // as the peer counts: base + offset
  std::uint64_t length = 0;   // bytes written, read or flushed
  std::uint64_t operand = 0;  // Flush: 1 when to persistence
  std::uint64_t swap = 0;
  std::vector<std::byte> data;
  Nanoseconds ready_at{0};  // no sooner does it leave the stage it is at
};

/// The answer to a non-posted operation, or the refusal of any.
struct Response {
  std::uint64_t sequence = 0;
  std::optional<ErrorCode> error;
  std::vector<std::byte> data;  // Read: the bytes; CompareSwap, FetchAdd: the old value
};

}  // namespace perdure::fabric::emu
