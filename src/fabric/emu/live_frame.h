// The frames that two live devices exchange over a stream socket, and their buffered reading and
// writing. Nothing that is read is trusted.
//
// A connection has two streams: on one the connector's operations travel and the acceptor's
// answers, on the other the reverse. So operations that are held back (no receive buffer) hold
// back no answers. A frame, little-endian:
//
//   offset  size  field
//   0       4     magic      kFrameMagic
//   4       1     kind       FrameKind
//   5       1     opcode     Operation: Opcode
//   6       1     error      Welcome, Answer: 0, or 1 + ErrorCode
//   7       1     zero
//   8       4     immediate  Operation; Hello: version kFrameVersion
//   12      4     zero
//   16      8     sequence   Operation, Answer: of the operation; Accepted: every posted operation
//                            up to this one; Hello: the connection's number
//   24      8     key        Operation; Hello, Welcome: capabilities, one bit each
//   32      8     address    Operation; Hello: stream 0 or 1; Welcome: transport
//   40      8     length     Operation: bytes written, read or flushed
//   48      8     operand    Operation
//   56      8     swap       Operation
//   64      8     data       bytes that follow: posted operations, answers to READ and atomics;
//                            Hello: private data
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "fabric/emu/operation.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace perdure::fabric::emu {

inline constexpr std::uint32_t kFrameMagic = 0x554d4550;  // "PEMU"
inline constexpr std::uint32_t kFrameVersion = 1;

enum class FrameKind : std::uint8_t {
  Hello = 1,
  Welcome = 2,
  Operation = 3,
  Accepted = 4,
  Answer = 5
};

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  FrameKind kind = FrameKind::Hello;
  std::uint8_t opcode = 0;
  std::uint8_t error = 0;
  std::uint8_t zero = 0;
  std::uint32_t immediate = 0;
  std::uint32_t zeros = 0;
  std::uint64_t sequence = 0;
  std::uint64_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t operand = 0;
  std::uint64_t swap = 0;
  std::uint64_t data = 0;
};
static_assert(sizeof(FrameHeader) == 72);

struct Frame {
  FrameHeader header;
  std::vector<std::byte> data;
};

Frame frame_of(Operation operation);
Frame frame_of(Response response);
Operation operation_of(Frame frame);
Response response_of(Frame frame);

std::uint64_t encode_capabilities(Capabilities capabilities);
Capabilities decode_capabilities(std::uint64_t bits);
/// The error in a Welcome or an Answer.
std::uint8_t encode_error(const std::optional<ErrorCode>& error);
std::optional<ErrorCode> decode_error(std::uint8_t byte);

/// Reads frames from a non-blocking socket.
class FrameReader {
 public:
  explicit FrameReader(int fd);

  /// The next frame if it is here whole; false when it is not. It stays until taken.
  /// Errors: Disconnected (end of the stream), ProtocolError (not a frame).
  Result<bool> ready();
  /// Requires ready.
  const FrameHeader& header() const { return frame_.header; }
  Frame take();
  /// What is here of a frame that never became whole: its header and the first bytes of its data.
  std::optional<Frame> take_part();

 private:
  Result<std::size_t> receive_more();
  std::size_t copy_buffered(std::byte* to, std::size_t bytes);

  const int fd_;
  std::vector<std::byte> buffer_;  // received and not yet part of frame_
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  Frame frame_;
  bool has_header_ = false;
  std::size_t data_here_ = 0;
};

/// Writes frames to a non-blocking socket.
class FrameWriter {
 public:
  explicit FrameWriter(int fd) : fd_(fd) {}

  void push(Frame frame);
  /// Sends what the socket takes. Errors: Disconnected.
  Result<void> flush();
  /// Bytes that the socket has not taken yet.
  std::size_t waiting_bytes() const { return waiting_bytes_; }

 private:
  const int fd_;
  std::deque<Frame> frames_;
  std::size_t sent_of_first_ = 0;
  std::size_t waiting_bytes_ = 0;
};

}  // namespace perdure::fabric::emu
