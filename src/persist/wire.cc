#include "persist/wire.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"

namespace perdure::persist {
namespace {

constexpr std::uint8_t kKindAck = 2;

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
  for (std::size_t index = 0; index < header.entries; ++index) {
    const Entry entry = entry_at(message, index);
    if ((entry.actions & ~kEntryActionsAll) != 0) return nonsense("unknown action");
    if ((entry.actions & kCopy) != 0) copied += entry.length;
  }
  if (copied != header.payload_bytes) return nonsense("payload and entries disagree");
  return header;
}

Entry entry_at(std::span<const std::byte> message, std::size_t index) {
  return load<Entry>(message.data() + kMessageHeaderBytes + index * kMessageEntryBytes);
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
