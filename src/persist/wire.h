// The messages of the data plane: what a requester SENDs and what the responder answers.
// A message says what to do with each part of an update, so the responder needs no other state.
//
// Update message, little-endian:
//
//   offset  size  field
//   0       4     crc32c    of bytes 4.. to the end of the entries; with kPayloadCrc also of the
//                           payload
//   4       1     version   kWireVersion
//   5       1     kind      1 update
//   6       1     entries   0..kEntriesMax
//   7       1     flags     MessageFlags
//   8       8     sequence  of messages on this connection, from 1; a WRITE_WITH_IMM counts as one
//   16      4     payload   bytes after the entries
//   20      4     session   low bits of the session's id
//   24      16n   entry     offset u64, length u32, actions u32 (EntryActions)
//   ..            payload   in the order of the entries: the bytes of those that say Copy; of those
//                           that say Read, 16 bytes: the key (u64) of the requester's memory and
//                           the address (u64) in it, as RemoteMemory counts
//   ..            padding   whatever follows means nothing; probes fill messages up with it, and a
//                           message that can be replayed has at least kReplayableBytesMin
//
// It is sent, or written to its place in the responder's mailbox (mailbox_slot), always with
// kPayloadCrc then: its number says whose turn it is, its checksum that it is whole.
//
// Acknowledgement, 24 bytes:
//
//   0       4     crc32c    of bytes 4..24
//   4       1     version   kWireVersion
//   5       1     kind      2 acknowledgement
//   6       1     status    0: handled; else 1 + ErrorCode of the first message not handled
//   7       1     zero
//   8       8     sequence  every message up to this one has been handled
//   16      4     written   bytes that the completions of the WRITE_WITH_IMMs up to `sequence` say
//                           were written, all together, modulo 2^32; 0: not told
//   20      4     session
//
// Request, which a handler of the responder answers (request_handler.h). It is handled in its place
// among the messages of its connection, once, and never from a buffer by recovery:
//
//   0       4     crc32c    of bytes 4.. to the end of the payload
//   4       1     version   kWireVersion
//   5       1     kind      3 request
//   6       1     message   MessageKind: which handler
//   7       1     flags     kPayloadCrc | kAckWanted, no other
//   8       8     sequence  as in an update message
//   16      4     payload   bytes after the header
//   20      4     session
//   24      4     reply     bytes of payload that the reply may have
//   28      4     zero
//   32      ..    payload, then padding that means nothing
//
// Reply, 32 bytes and a payload. It is the acknowledgement of its request and of all before it:
//
//   0       4     crc32c    of bytes 4.. to the end of the payload
//   4       1     version   kWireVersion
//   5       1     kind      4 reply
//   6       1     status    0: handled; else 1 + ErrorCode: nothing of the request was executed
//   7       1     message   that of the request
//   8       8     sequence  of the request: every message up to it has been handled
//   16      4     written   as in an acknowledgement
//   20      4     session
//   24      4     payload   bytes after the header; none unless the status is 0
//   28      4     zero
//   32      ..    payload
//
// A request of a kind without a handler is answered with Unsupported, and the session goes on. A
// responder that knows no requests at all refuses one as it refuses nonsense, and ends the session.
//
// The immediate of a WRITE_WITH_IMM: bit 0 set: flush what was written and acknowledge;
// bits 1..31: the offset of the write in units of 64 bytes, rounded down. So it reaches 128 GiB.
// How much is to be flushed only the completion says; an RNIC that says too little there would have
// the responder acknowledge what it has not flushed. So the acknowledgement repeats it.
//
// On the wire a crash leaves whole messages or none. In a persistent receive buffer it can leave
// any mixture of the new message and what was there; the checksum tells, hence kPayloadCrc there.
#pragma once

#include <perdure/result.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/message_bytes.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace perdure::persist {

inline constexpr std::uint8_t kWireVersion = 1;
inline constexpr std::uint8_t kKindUpdate = 1;
inline constexpr std::uint8_t kKindAck = 2;
inline constexpr std::uint8_t kKindRequest = 3;
inline constexpr std::uint8_t kKindReply = 4;
inline constexpr std::size_t kEntriesMax = 128;
inline constexpr std::size_t kAckBytes = 24;
/// mlx5 leaves a message of up to 64 bytes (32 where MLX5_CQE_SIZE is 64) in its completion queue
/// entry, in DRAM, until the responder polls it (rdma-core, providers/mlx5, MLX5_SCATTER_TO_CQE).
/// Replay looks into the receive buffer, so what can be replayed is longer.
inline constexpr std::size_t kReplayableBytesMin = 72;

enum MessageFlags : std::uint8_t {
  kPayloadCrc = 1,  // the checksum covers the payload
  kReplayable = 2,  // recovery may apply this message from its buffer
  kAckWanted = 4,   // the requester waits for the acknowledgement
  kReads = 8,       // some entry says Read: always with kPayloadCrc, never with kReplayable
};
inline constexpr std::uint8_t kMessageFlagsAll = kPayloadCrc | kReplayable | kAckWanted | kReads;

enum EntryActions : std::uint32_t {
  kCopy = 1,   // store the next `length` bytes of the payload at `offset`
  kFlush = 2,  // make [offset, offset + length) durable; before any later entry is copied or READ
  kRead = 4,   // READ `length` bytes into `offset`; over before a flush or copy that follows
  kAfterReads = 8,  // with kRead: READs of entries before it are over before this one is posted
};
inline constexpr std::uint32_t kEntryActionsAll = kCopy | kFlush | kRead | kAfterReads;
/// What an entry that says Read has in the payload.
inline constexpr std::size_t kReadSourceBytes = 16;

/// Where the number of a message is in its header.
inline constexpr std::size_t kMessageSequenceAt = 8;

struct Entry {
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t actions = 0;
};
static_assert(sizeof(Entry) == kMessageEntryBytes);

/// The fixed part of an update message, decoded.
struct MessageHeader {
  std::uint8_t entries = 0;
  std::uint8_t flags = 0;
  std::uint64_t sequence = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t session = 0;

  std::size_t bytes() const { return kMessageHeaderBytes + entries * kMessageEntryBytes; }
};

struct Ack {
  std::uint8_t status = 0;
  std::uint64_t sequence = 0;
  std::uint32_t session = 0;
  std::uint32_t written = 0;
};

/// What a request asks for: one handler of the responder each.
enum class MessageKind : std::uint8_t {
  Atomic = 1,      // atomics.h
  Ordered = 2,     // ordered.h
  Digests = 3,     // page_digests.h
  DeepFlush = 4,   // deep_flush.h
  OfPrograms = 8,  // from here on: of the program that runs the responder
};
inline constexpr std::size_t kMessageKinds = 16;  // a handler's number is below

/// The largest payload of a reply.
inline constexpr std::size_t kReplyPayloadMax = 64 * 1024;
inline constexpr std::size_t kRequestHeaderBytes = 32;
inline constexpr std::size_t kReplyHeaderBytes = 32;

struct RequestHeader {
  std::uint8_t message = 0;  // MessageKind, perhaps one that nobody here handles
  std::uint64_t sequence = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t session = 0;
  std::uint32_t reply_bytes = 0;  // that the requester has room for
};

struct ReplyHeader {
  Ack ack;                   // its status is that of the request alone
  std::uint8_t message = 0;  // MessageKind
  std::uint32_t payload_bytes = 0;
};

/// Bytes 8..16 of an entry as one number, for an item of no bytes: its length is added.
constexpr std::uint64_t actions_field(std::uint32_t actions) {
  return std::uint64_t{actions} << 32;
}

/// Writes entry `index` of a message. Requires room for it. `rest`: actions_field and the length.
inline void put_entry(std::byte* message, std::size_t index, std::uint64_t offset,
                      std::uint64_t rest) {
  std::byte* const at = message + kMessageHeaderBytes + index * kMessageEntryBytes;
  store(at, offset);
  store(at + 8, rest);
}
inline void put_entry(std::byte* message, std::size_t index, const Entry& entry) {
  put_entry(message, index, entry.offset, actions_field(entry.actions) + entry.length);
}

/// Bytes 4..8 of an update message as one number.
constexpr std::uint32_t message_head(std::uint8_t entries, std::uint8_t flags) {
  return kWireVersion | kKindUpdate << 8 | std::uint32_t{entries} << 16 |
         std::uint32_t{flags} << 24;
}

/// Bytes 16..24 of an update message as one number, for no payload: its bytes are added.
constexpr std::uint64_t session_field(std::uint32_t session) {
  return std::uint64_t{session} << 32;
}

/// Writes all of the header but the checksum. `rest`: session_field and the bytes of payload.
inline void put_header(std::byte* to, std::uint32_t head, std::uint64_t sequence,
                       std::uint64_t rest) {
  store(to + 4, head);
  store(to + 8, sequence);
  store(to + 16, rest);
}

/// Writes the header before the entries, which are there already, and the checksum; returns the
/// size of both. `payload` is only read for the checksum (kPayloadCrc).
inline std::size_t encode_message(const MessageHeader& header,
                                  std::span<const std::span<const std::byte>> payload,
                                  std::byte* to) {
  put_header(to, message_head(header.entries, header.flags), header.sequence,
             session_field(header.session) + header.payload_bytes);
  const std::size_t bytes = header.bytes();
  std::uint32_t crc = crc32c({to + 4, bytes - 4});
  if ((header.flags & kPayloadCrc) != 0) {
    for (const auto piece : payload) crc = crc32c(piece, crc);
  }
  store(to, crc);
  return bytes;
}

/// Reads and checks the fixed part, the sizes, the checksum and that every flag and action is
/// known; the addresses are the responder's to check. Trusts nothing of `message`.
/// Errors: ProtocolError; VersionMismatch.
Result<MessageHeader> decode_message(std::span<const std::byte> message);

/// The entry at `index` of a decoded message.
Entry entry_at(std::span<const std::byte> message, std::size_t index);

/// The kind of a message that has one. Trusts nothing of `message`.
inline std::uint8_t kind_of(std::span<const std::byte> message) {
  return message.size() < kMessageHeaderBytes ? 0 : load<std::uint8_t>(message.data() + 5);
}

/// Writes the header before the payload, which is there already; returns the size of both.
std::size_t encode_request(const RequestHeader& header, std::byte* to);
/// Checks all but what the payload means. Errors: ProtocolError; VersionMismatch.
Result<RequestHeader> decode_request(std::span<const std::byte> message);

/// As encode_request.
std::size_t encode_reply(const ReplyHeader& header, std::byte* to);
/// Errors: ProtocolError; VersionMismatch.
Result<ReplyHeader> decode_reply(std::span<const std::byte> message);

void encode_ack(const Ack& ack, std::byte* to);
/// Errors: ProtocolError; VersionMismatch.
Result<Ack> decode_ack(std::span<const std::byte> message);

inline constexpr std::uint64_t kImmediateUnitBytes = 64;
inline constexpr std::uint64_t kImmediateReach = kImmediateUnitBytes << 31;

constexpr std::uint32_t encode_immediate(std::uint64_t offset, bool react) {
  return static_cast<std::uint32_t>(offset / kImmediateUnitBytes) << 1 | (react ? 1u : 0u);
}
constexpr bool immediate_reacts(std::uint32_t immediate) { return (immediate & 1u) != 0; }
constexpr std::uint64_t immediate_offset(std::uint32_t immediate) {
  return std::uint64_t{immediate >> 1} * kImmediateUnitBytes;
}

/// The 8-byte word at the start of a persistent receive buffer area: which session filled it, and
/// up to which message everything is durable at its final place. One word, so that it never tears.
struct Watermark {
  std::uint32_t session = 0;  // 24 bits
  std::uint64_t applied = 0;  // 40 bits
};
/// A session with persistent receive buffers takes messages up to the one before.
inline constexpr std::uint64_t kAppliedMax = 0xffffffffff;
constexpr std::uint64_t encode(Watermark mark) {
  return std::uint64_t{mark.session & 0xffffffu} << 40 | (mark.applied & kAppliedMax);
}
constexpr Watermark decode_watermark(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 40), word & kAppliedMax};
}
inline constexpr std::uint64_t kWatermarkBytes = 64;  // a cache line of its own

}  // namespace perdure::persist
