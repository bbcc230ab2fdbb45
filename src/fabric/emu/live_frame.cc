#include "fabric/emu/live_frame.h"

#include "core/assert.h"
#include "core/try.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace perdure::fabric::emu {

namespace {

constexpr std::size_t kBufferBytes = 64 * 1024;
constexpr std::size_t kFramesPerCall = 16;

Error not_a_frame() { return {ErrorCode::ProtocolError, "the peer sent something strange"}; }

Error stream_ended() { return {ErrorCode::Disconnected, "the peer has closed the connection"}; }

bool plausible(const FrameHeader& header) {
  if (header.magic != kFrameMagic || header.zero != 0 || header.zeros != 0) return false;
  if (header.error > 1 + static_cast<std::uint8_t>(ErrorCode::SystemError)) return false;
  switch (header.kind) {
    case FrameKind::Hello: return header.data <= kPrivateBytesMax;
    case FrameKind::Welcome:
    case FrameKind::Accepted: return header.data == 0;
    case FrameKind::Answer: return header.data <= kTransferBytesMax;
    case FrameKind::Operation: break;
  }
  if (header.kind != FrameKind::Operation) return false;
  if (header.opcode >= static_cast<std::uint8_t>(Opcode::Receive)) return false;
  if (is_posted(static_cast<Opcode>(header.opcode))) {
    return header.data == header.length && header.length <= kTransferBytesMax;
  }
  const bool reads = static_cast<Opcode>(header.opcode) == Opcode::Read;
  return header.data == 0 && (!reads || header.length <= kTransferBytesMax);
}

}  // namespace

Frame frame_of(Operation operation) {
  Frame frame;
  frame.header.kind = FrameKind::Operation;
  frame.header.opcode = static_cast<std::uint8_t>(operation.opcode);
  frame.header.immediate = operation.immediate;
  frame.header.sequence = operation.sequence;
  frame.header.key = operation.key;
  frame.header.address = operation.address;
  frame.header.length = operation.length;
  frame.header.operand = operation.operand;
  frame.header.swap = operation.swap;
  frame.header.data = operation.data.size();
  frame.data = std::move(operation.data);
  return frame;
}

Operation operation_of(Frame frame) {
  Operation operation;
  operation.opcode = static_cast<Opcode>(frame.header.opcode);
  operation.immediate = frame.header.immediate;
  operation.sequence = frame.header.sequence;
  operation.key = frame.header.key;
  operation.address = frame.header.address;
  operation.length = frame.header.length;
  operation.operand = frame.header.operand;
  operation.swap = frame.header.swap;
  operation.truncated = frame.data.size() < frame.header.data;
  operation.data = std::move(frame.data);
  return operation;
}

Frame frame_of(Response response) {
  Frame frame;
  frame.header.kind = FrameKind::Answer;
  frame.header.error = encode_error(response.error);
  frame.header.sequence = response.sequence;
  frame.header.data = response.data.size();
  frame.data = std::move(response.data);
  return frame;
}

Response response_of(Frame frame) {
  return {frame.header.sequence, decode_error(frame.header.error), std::move(frame.data)};
}

std::uint64_t encode_capabilities(Capabilities capabilities) {
  return (capabilities.native_flush ? 1u : 0u) | (capabilities.atomic_write ? 2u : 0u) |
         (capabilities.ordered_persist ? 4u : 0u) | (capabilities.send_flush ? 8u : 0u) |
         (capabilities.persistent_flush ? 16u : 0u);
}

Capabilities decode_capabilities(std::uint64_t bits) {
  return {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0};
}

std::uint8_t encode_error(const std::optional<ErrorCode>& error) {
  return error ? static_cast<std::uint8_t>(1 + static_cast<std::uint8_t>(*error)) : 0;
}

std::optional<ErrorCode> decode_error(std::uint8_t byte) {
  if (byte == 0) return std::nullopt;
  return static_cast<ErrorCode>(byte - 1);
}

FrameReader::FrameReader(int fd) : fd_(fd), buffer_(kBufferBytes) {}

Result<bool> FrameReader::ready() {
  // Bounded: every turn either completes the frame or takes bytes from the socket.
  while (true) {
    if (!has_header_ && end_ - begin_ >= sizeof(FrameHeader)) {
      copy_buffered(reinterpret_cast<std::byte*>(&frame_.header), sizeof(FrameHeader));
      if (!plausible(frame_.header)) return not_a_frame();
      has_header_ = true;
      data_here_ = 0;
      frame_.data.resize(frame_.header.data);
    }
    if (has_header_) {
      data_here_ += copy_buffered(frame_.data.data() + data_here_, frame_.data.size() - data_here_);
      if (data_here_ == frame_.data.size()) return true;
    }
    PERDURE_TRY(received, receive_more());
    if (received == 0) return false;
  }
}

std::size_t FrameReader::copy_buffered(std::byte* to, std::size_t bytes) {
  const std::size_t count = std::min(bytes, end_ - begin_);
  if (count > 0) std::memcpy(to, buffer_.data() + begin_, count);
  begin_ += count;
  if (begin_ == end_) begin_ = end_ = 0;
  return count;
}

/// Into the frame where much of it is missing, else into the buffer.
Result<std::size_t> FrameReader::receive_more() {
  std::byte* to = buffer_.data() + end_;
  std::size_t room = buffer_.size() - end_;
  const bool direct = has_header_ && frame_.data.size() - data_here_ >= kBufferBytes;
  if (direct) {
    to = frame_.data.data() + data_here_;
    room = frame_.data.size() - data_here_;
  } else if (room < sizeof(FrameHeader)) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    to = buffer_.data() + end_;
    room = buffer_.size() - end_;
  }
  const ssize_t got = ::recv(fd_, to, room, MSG_DONTWAIT);
  if (got == 0) return stream_ended();
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::size_t{0};
    return stream_ended();
  }
  (direct ? data_here_ : end_) += static_cast<std::size_t>(got);
  return static_cast<std::size_t>(got);
}

Frame FrameReader::take() {
  PERDURE_ASSERT(has_header_ && data_here_ == frame_.data.size());
  has_header_ = false;
  return std::move(frame_);
}

std::optional<Frame> FrameReader::take_part() {
  if (!has_header_) return std::nullopt;
  has_header_ = false;
  frame_.data.resize(data_here_);
  return std::move(frame_);
}

void FrameWriter::push(Frame frame) {
  waiting_bytes_ += sizeof(FrameHeader) + frame.data.size();
  frames_.push_back(std::move(frame));
}

Result<void> FrameWriter::flush() {
  while (!frames_.empty()) {
    std::array<iovec, 2 * kFramesPerCall> parts;
    std::size_t count = 0;
    std::size_t skip = sent_of_first_;
    const auto add = [&](void* data, std::size_t bytes) {
      const std::size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes > skipped)
        parts[count++] = {static_cast<std::byte*>(data) + skipped, bytes - skipped};
    };
    for (std::size_t i = 0; i < std::min(frames_.size(), kFramesPerCall); ++i) {
      add(&frames_[i].header, sizeof(FrameHeader));
      add(frames_[i].data.data(), frames_[i].data.size());
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      return stream_ended();
    }
    waiting_bytes_ -= static_cast<std::size_t>(sent);
    sent_of_first_ += static_cast<std::size_t>(sent);
    while (!frames_.empty()) {
      const std::size_t bytes = sizeof(FrameHeader) + frames_.front().data.size();
      if (sent_of_first_ < bytes) break;
      sent_of_first_ -= bytes;
      frames_.pop_front();
    }
  }
  return {};
}

}  // namespace perdure::fabric::emu
