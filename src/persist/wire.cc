#include "persist/wire.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"

namespace perdure::persist {
namespace {

Error nonsense(std::string_view what) {
  return Error{ErrorCode::ProtocolError, fmt::format("data-plane message refused: {}", what)};
}

/// Version and kind, which both sorts of message have at the same place.
Result<void> check_kind(std::span<const std::byte> message, std::uint8_t kind) {
  const auto version = load<std::uint8_t>(message.data() + 4);
  if (version != kWireVersion) {
    return Error{ErrorCode::VersionMismatch,
                 fmt::format("data-plane message of version {}, this build speaks {}; update the "
                             "older side",
                             version, kWireVersion)};
  }
  if (load<std::uint8_t>(message.data() + 5) != kind) return nonsense("unexpected kind");
  return {};
}

}  // namespace

Result<MessageHeader> decode_message(std::span<const std::byte> message) {
  if (message.size() < kMessageHeaderBytes) return nonsense("shorter than its header");
  if (auto kind = check_kind(message, kKindUpdate); !kind) return kind.error();
  const std::byte* at = message.data();
  MessageHeader header;
  header.entries = load<std::uint8_t>(at + 6);
  header.flags = load<std::uint8_t>(at + 7);
  header.sequence = load<std::uint64_t>(at + 8);
  header.payload_bytes = load<std::uint32_t>(at + 16);
  header.session = load<std::uint32_t>(at + 20);
  if (header.entries > kEntriesMax) return nonsense("too many entries");
  if ((header.flags & ~kMessageFlagsAll) != 0) return nonsense("unknown flag");
  if (message.size() < header.bytes() + header.payload_bytes) {
    return nonsense("shorter than it says");
  }
  const bool covers_payload = (header.flags & kPayloadCrc) != 0;
  const std::size_t covered = header.bytes() + (covers_payload ? header.payload_bytes : 0);
  if (crc32c(message.subspan(4, covered - 4)) != load<std::uint32_t>(at)) {
    return nonsense("checksum does not match");
  }
  std::uint64_t copied = 0;
  bool reads = false;
  for (std::size_t index = 0; index < header.entries; ++index) {
    const Entry entry = entry_at(message, index);
    if ((entry.actions & ~kEntryActionsAll) != 0) return nonsense("unknown action");
    if ((entry.actions & kCopy) != 0) copied += entry.length;
    if ((entry.actions & (kRead | kAfterReads)) == 0) continue;
    if ((entry.actions & kRead) == 0) return nonsense("an entry behind READs that READs nothing");
    const bool told = (header.flags & kReads) != 0 && (entry.actions & kCopy) == 0;
    if (!told) return nonsense("a READ that is not told of, or also a copy");
    copied += kReadSourceBytes;
    reads = true;
  }
  if (!reads && (header.flags & kReads) != 0) return nonsense("READs that no entry asks for");
  constexpr std::uint8_t kOfReads = kPayloadCrc | kReplayable;
  if ((header.flags & kReads) != 0 && (header.flags & kOfReads) != kPayloadCrc) {
    return nonsense("READs are asked for under a checksum, and never again");
  }
  if (copied != header.payload_bytes) return nonsense("payload and entries disagree");
  return header;
}

Entry entry_at(std::span<const std::byte> message, std::size_t index) {
  return load<Entry>(message.data() + kMessageHeaderBytes + index * kMessageEntryBytes);
}

namespace {

/// Whether the payload behind a header of `header_bytes` is there and the checksum covers it.
Result<void> check_payload(std::span<const std::byte> message, std::size_t header_bytes,
                           std::uint32_t payload_bytes) {
  if (message.size() - header_bytes < payload_bytes) return nonsense("shorter than it says");
  const std::size_t covered = header_bytes + payload_bytes;
  if (crc32c(message.subspan(4, covered - 4)) != load<std::uint32_t>(message.data())) {
    return nonsense("checksum does not match");
  }
  if (load<std::uint32_t>(message.data() + 28) != 0) return nonsense("unknown field");
  return {};
}

constexpr std::uint8_t kRequestFlags = kPayloadCrc | kAckWanted;

}  // namespace

std::size_t encode_request(const RequestHeader& header, std::byte* to) {
  store<std::uint8_t>(to + 4, kWireVersion);
  store<std::uint8_t>(to + 5, kKindRequest);
  store(to + 6, header.message);
  store(to + 7, kRequestFlags);
  store(to + 8, header.sequence);
  store(to + 16, header.payload_bytes);
  store(to + 20, header.session);
  store(to + 24, header.reply_bytes);
  store<std::uint32_t>(to + 28, 0);
  const std::size_t bytes = kRequestHeaderBytes + header.payload_bytes;
  store(to, crc32c({to + 4, bytes - 4}));
  return bytes;
}

Result<RequestHeader> decode_request(std::span<const std::byte> message) {
  if (message.size() < kRequestHeaderBytes) return nonsense("shorter than its header");
  if (auto kind = check_kind(message, kKindRequest); !kind) return kind.error();
  RequestHeader header;
  header.message = load<std::uint8_t>(message.data() + 6);
  header.sequence = load<std::uint64_t>(message.data() + 8);
  header.payload_bytes = load<std::uint32_t>(message.data() + 16);
  header.session = load<std::uint32_t>(message.data() + 20);
  header.reply_bytes = load<std::uint32_t>(message.data() + 24);
  auto whole = check_payload(message, kRequestHeaderBytes, header.payload_bytes);
  if (!whole.ok()) return whole.error();
  if (load<std::uint8_t>(message.data() + 7) != kRequestFlags) return nonsense("unknown flag");
  return header;
}

std::size_t encode_reply(const ReplyHeader& header, std::byte* to) {
  store<std::uint8_t>(to + 4, kWireVersion);
  store<std::uint8_t>(to + 5, kKindReply);
  store(to + 6, header.ack.status);
  store(to + 7, header.message);
  store(to + 8, header.ack.sequence);
  store(to + 16, header.ack.written);
  store(to + 20, header.ack.session);
  store(to + 24, header.payload_bytes);
  store<std::uint32_t>(to + 28, 0);
  const std::size_t bytes = kReplyHeaderBytes + header.payload_bytes;
  store(to, crc32c({to + 4, bytes - 4}));
  return bytes;
}

Result<ReplyHeader> decode_reply(std::span<const std::byte> message) {
  if (message.size() < kReplyHeaderBytes) return nonsense("reply shorter than its header");
  if (auto kind = check_kind(message, kKindReply); !kind) return kind.error();
  ReplyHeader header;
  header.ack.status = load<std::uint8_t>(message.data() + 6);
  header.message = load<std::uint8_t>(message.data() + 7);
  header.ack.sequence = load<std::uint64_t>(message.data() + 8);
  header.ack.written = load<std::uint32_t>(message.data() + 16);
  header.ack.session = load<std::uint32_t>(message.data() + 20);
  header.payload_bytes = load<std::uint32_t>(message.data() + 24);
  auto whole = check_payload(message, kReplyHeaderBytes, header.payload_bytes);
  if (!whole.ok()) return whole.error();
  if (header.ack.status != 0 && header.payload_bytes != 0) {
    return nonsense("a refusal with a payload");
  }
  return header;
}

void encode_ack(const Ack& ack, std::byte* to) {
  store<std::uint8_t>(to + 4, kWireVersion);
  store<std::uint8_t>(to + 5, kKindAck);
  store(to + 6, ack.status);
  store<std::uint8_t>(to + 7, 0);
  store(to + 8, ack.sequence);
  store(to + 16, ack.written);
  store(to + 20, ack.session);
  store(to, crc32c({to + 4, kAckBytes - 4}));
}

Result<Ack> decode_ack(std::span<const std::byte> message) {
  if (message.size() < kAckBytes) return nonsense("acknowledgement too short");
  if (auto kind = check_kind(message, kKindAck); !kind) return kind.error();
  if (crc32c(message.subspan(4, kAckBytes - 4)) != load<std::uint32_t>(message.data())) {
    return nonsense("checksum of an acknowledgement does not match");
  }
  Ack ack;
  ack.status = load<std::uint8_t>(message.data() + 6);
  ack.sequence = load<std::uint64_t>(message.data() + 8);
  ack.written = load<std::uint32_t>(message.data() + 16);
  ack.session = load<std::uint32_t>(message.data() + 20);
  return ack;
}

}  // namespace perdure::persist
