// What a durable RPC server keeps in its pool, as bytes. Pure functions; what keeps the bytes and
// in which order they are written is rpc_pool.h's and redo_log.h's.
//
// Offsets are counted from the start of the pool's data; all numbers are little-endian.
//
//   offset        size                       what
//   0             64                         header, written once (below)
//   4096          64                         copy of the header
//   8192          16 x 64                    the calls that are being executed, by thread: place of
//                                            its client plus 1 (0: none), sequence. Stored, never
//                                            flushed: they survive the death of the process, which
//                                            is their use
//   12288         128 x clients              table of clients (below)
//   ..            clients x replies x stride replies (below); all of this up to a multiple of 4096
//   ..            2 x transaction bytes      redo records (redo_log.h)
//   ..            clients x window bytes     a pool (pmem/pool_format.h) for each client, of which
//                                            it is the only writer; in its exported part the ring
//   ..            data bytes                 of the handlers
//
// Header:
//
//   0     8   magic              "PERDRPC\x01"
//   8     4   version            kRpcVersion
//   12    4   clients            places in the table
//   16    8   window bytes       of each client's pool, its head included
//   24    4   replies            kept of each client: those of the last calls that were applied
//   28    4   reply bytes max    of one reply
//   32    8   transaction bytes  of one redo record
//   40    8   data bytes
//   48    8   ring bytes         of each client's ring
//   56    4   application        whose calls these are: RpcServerOptions::application
//   60    4   crc32c             of bytes 0..60
//
// The copy is durable before the header is written, so a header that a crash has torn has a whole
// copy; a pool with neither was never served.
//
// Place in the table of clients. It changes by redo transactions alone, so it is never torn:
//
//   0     8   client             random; 0: the place is free
//   8     8   applied            sequence of the last call of which everything is done
//   16    8   position           behind its entry, where the next one is expected
//   24    4   attempts           at the next call: its handler threw, or the server died
//   28    4   set aside          how often a call was, for that
//   32    1   length of the name
//   33    64  name               that of its pool
//   100   4   generation         of the last call that was applied
//   104   4   held               1: the next call is set aside until an operator decides about it
//   108   4   dropped            calls that an operator refused
//
// Reply, at (sequence modulo replies) of its client. It changes by redo transactions alone:
//
//   0     8   sequence           of the call
//   8     4   status             0: applied; else 1 + ErrorCode: refused, nothing of it was done;
//   and
//                                2^31 more: not by its handler, which failed each time; 2^30
//                                more: its client had cancelled it
//   12    4   bytes
//   16    ..  the reply, then what means nothing, up to a multiple of 64
//
// Exported part of a client's pool: 64 bytes of zeros (a probe line, by which connections are
// timed), at 4096 the ring. Behind it there may be persistent receive buffers
// (server/served_pool.h). Entry of the ring, at a multiple of 64:
//
//   0     8   commit word        CRC32C of bytes 8.. to the end of the payload, and above it the
//                                low half of the sequence
//   8     8   client
//   16    8   sequence           from 1, without a gap
//   24    8   position           bytes of entries before it since the ring was new: where it is,
//                                modulo the ring's size
//   32    8   order key
//   40    4   operator           kRpcCancelled: its client has cancelled it before it was sent
//   44    4   payload bytes
//   48    4   generation         epoch of the client's process that wrote it
//   52    4   zero
//   56    ..  payload, then what means nothing, up to a multiple of 64
//
// An entry never wraps: one that does not fit before the ring's end begins at its start. The bytes
// from 8 on are durable before the commit word is visible. Calls that wait are written together,
// the commit word of the first of them last; so behind the last whole entry there may stand whole
// ones of a process that died. They are of an older generation than what comes before them then,
// and none: along a ring generations only grow. What a crash can leave where an entry is expected:
// nothing, a torn entry without its commit word, an entry of an earlier lap (another sequence and
// position), one of whoever had the place before (another client), or the entry.
#pragma once

#include <perdure/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::rpc {

inline constexpr std::uint32_t kRpcVersion = 1;
inline constexpr std::uint64_t kRpcPageBytes = 4096;
inline constexpr std::uint64_t kHeaderBytes = 64;
inline constexpr std::array<std::uint64_t, 2> kHeadersAt = {0, 4096};
inline constexpr std::uint64_t kExecutingAt = 8192;
inline constexpr std::size_t kExecutingMax = 64;
inline constexpr std::uint64_t kTableAt = 12288;
inline constexpr std::uint64_t kPlaceBytes = 128;
inline constexpr std::size_t kClientNameMax = 64;
inline constexpr std::uint64_t kReplyHeadBytes = 16;
inline constexpr std::uint64_t kEntryAlignment = 64;
inline constexpr std::uint64_t kEntryHeadBytes = 56;
inline constexpr std::uint64_t kCommitWordBytes = 8;
inline constexpr std::uint64_t kRingProbeLineAt = 0;  // in the exported part
inline constexpr std::uint64_t kRingAt = 4096;
inline constexpr std::size_t kClientsMax = 4096;
inline constexpr std::size_t kRepliesMax = 4096;
inline constexpr std::size_t kReplyBytesMax = 16 * 1024 * 1024;
inline constexpr std::uint64_t kAreaBytesMax = std::uint64_t{1} << 44;

/// What is fixed when the pool is made.
struct PoolShape {
  std::uint32_t clients = 0;
  std::uint64_t window_bytes = 0;
  std::uint32_t replies = 0;
  std::uint32_t reply_bytes_max = 0;
  std::uint64_t transaction_bytes = 0;
  std::uint64_t data_bytes = 0;
  std::uint64_t ring_bytes = 0;
  std::uint32_t application = 0;
  bool operator==(const PoolShape&) const = default;

  std::uint64_t reply_stride() const;
  std::uint64_t place_at(std::size_t place) const { return kTableAt + place * kPlaceBytes; }
  std::uint64_t reply_at(std::size_t place, std::uint64_t sequence) const;
  std::uint64_t redo_at(std::size_t which) const;
  std::uint64_t window_at(std::size_t place) const;
  std::uint64_t ring_at(std::size_t place) const;
  std::uint64_t data_at() const { return window_at(clients); }
  std::uint64_t bytes() const { return data_at() + data_bytes; }
};

/// Whether such a pool can be. Errors: InvalidArgument, naming the field and its limit.
Result<void> validate(const PoolShape& shape);

using HeaderBytes = std::array<std::byte, kHeaderBytes>;
HeaderBytes encode_header(const PoolShape& shape);
/// Reads the header from the first pages of the pool's data, of which nothing is trusted. Nothing:
/// the pool was never served.
/// Errors: Corrupt, VersionMismatch, InvalidArgument (it holds something else).
Result<std::optional<PoolShape>> decode_header(std::span<const std::byte> data);

/// A place of the table.
struct ClientPlace {
  std::uint64_t client = 0;  // 0: free
  std::uint64_t applied = 0;
  std::uint64_t position = 0;
  std::uint32_t attempts = 0;
  std::uint32_t set_aside = 0;
  std::uint32_t generation = 0;
  std::uint32_t dropped = 0;
  bool held = false;
  std::string name;
  bool operator==(const ClientPlace&) const = default;
};

using PlaceBytes = std::array<std::byte, kPlaceBytes>;
PlaceBytes encode_place(const ClientPlace& place);
/// Errors: Corrupt.
Result<ClientPlace> decode_place(std::span<const std::byte> bytes);

/// The head of a reply.
struct ReplyHead {
  std::uint64_t sequence = 0;
  std::uint32_t status = 0;
  std::uint32_t bytes = 0;
};
inline constexpr std::uint32_t kStatusDropped = std::uint32_t{1} << 31;
inline constexpr std::uint32_t kStatusCancelled = std::uint32_t{1} << 30;
/// Nothing: it was applied. Codes that nobody knows are SystemError.
std::optional<ErrorCode> refusal_of(std::uint32_t status);
void encode_reply_head(const ReplyHead& head, std::byte* to);
ReplyHead decode_reply_head(const std::byte* from);

/// An entry of a ring, but for its payload.
struct Entry {
  std::uint64_t client = 0;
  std::uint64_t sequence = 0;
  std::uint64_t position = 0;
  std::uint64_t order_key = 0;
  std::uint32_t operation = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t generation = 0;
};

/// Where the next entry of a ring is expected, and which one.
struct NextEntry {
  std::uint64_t client = 0;
  std::uint64_t sequence = 0;
  std::uint64_t position = 0;    // behind the one before it
  std::uint32_t generation = 0;  // of the one before it: at least
};
/// Behind what was applied.
inline NextEntry next_entry(const ClientPlace& place) {
  return {place.client, place.applied + 1, place.position, place.generation};
}

/// What an entry with such a payload takes of its ring.
constexpr std::uint64_t entry_bytes(std::uint64_t payload_bytes) {
  return (kEntryHeadBytes + payload_bytes + kEntryAlignment - 1) / kEntryAlignment *
         kEntryAlignment;
}
/// Where the next entry of this size goes, behind `position`. Requires at most ring_bytes / 2.
constexpr std::uint64_t place_entry(std::uint64_t position, std::uint64_t bytes,
                                    std::uint64_t ring_bytes) {
  const std::uint64_t left = ring_bytes - position % ring_bytes;
  return bytes <= left ? position : position + left;
}
/// The largest payload of a call whose ring has so many bytes.
constexpr std::uint64_t payload_bytes_max(std::uint64_t ring_bytes) {
  return ring_bytes / 2 - kEntryHeadBytes;
}

/// Writes entry and payload to `to`, its commit word included. Requires room for entry_bytes.
void encode_entry(const Entry& entry, std::span<const std::byte> payload, std::byte* to);
/// Makes of the entry at `at` one of a call that was cancelled, as large. Requires that
/// encode_entry wrote it, and that nobody else has it.
void cancel_entry(std::byte* at);

/// An entry that is whole.
struct FoundEntry {
  Entry entry;
  NextEntry next;  // the one behind it
};

/// Whether it may be there. Cost: loads one word or two.
bool may_hold_entry(std::span<const std::byte> ring, const NextEntry& expected);

/// The entry that is expected, if it is whole. Somebody may be writing to the ring: nothing of it
/// is trusted, and `copy` gets the entry's bytes as they were looked at. Its payload is at
/// copy[kEntryHeadBytes]. Requires a ring of a multiple of 64 bytes.
std::optional<FoundEntry> find_entry(std::span<const std::byte> ring, const NextEntry& expected,
                                     std::vector<std::byte>& copy);

}  // namespace perdure::rpc
