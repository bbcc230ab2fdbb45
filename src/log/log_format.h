// The log's format in the exported part of a pool.
//
//   offset  size  field
//   0       64    anchor: what this log is (below)
//   64      8     committed word: every record before it was committed, and durable here
//   128     8     tail word: compound logs only; every record before it was durable here
//   192     64    probe line: zeros, written over with zeros to time the connection
//   4096    2048  state, copy 0 (log_state.h)
//   8192    2048  state, copy 1
//   12288   ring  records; the record with LSN n begins at 12288 + n mod ring
//
// Anchor, written once, when the log is created:
//
//   0       8     magic     "PERDLOG\x01"
//   8       4     version   kLogVersion
//   12      4     shape     1 singleton, 2 compound
//   16      8     ring      bytes, a multiple of 64
//   24      8     log id    random; the same on every replica of one log
//   32      4     seed      random, and told to nobody: from which records' checksums go on
//   36      24    zero
//   60      4     crc32c    of bytes 0..60
//
// Record, at an LSN that is a multiple of 8:
//
//   0       4     crc32c    of bytes 4..32, and of the payload (not of a pad's); goes on from the
//                           anchor's seed, so that nobody who chooses payloads can make one
//   4       4     length    bits 0..27: bytes of payload; bits 28..31: RecordType
//   8       8     lsn       its own; bits 48..63: bits 0..15 of the lag
//   16      8     index     how many data records the log had before this one; bits 48..63: bits
//                           16..31 of the lag
//   24      4     epoch     of the writer
//   28      4     previous  crc32c field of the record before it; 0 for the first of a log
//   32      n     payload, then zero to three words of nothing up to a multiple of 8
//
// Everything before lsn - 8 * lag was committed when the record was sent; kLagMax says nothing.
//
// A record never wraps. Where it does not fit before the end of the ring, a pad fills the rest;
// where not even a header fits, the rest is skipped.
//
// A word is an LSN of 48 bits and a checksum of 16 bits in one aligned 8-byte store, so that it is
// old or new and never torn, and a flipped bit is seen. 0 is "never written".
//
// What a crash can leave behind: any part of the records after the last durable one. They are
// recognised by checksum, LSN, a chain of checksums (`previous`) and epochs (see log_state.h);
// the first record that fails any of these ends the log.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace perdure::log {

inline constexpr std::uint32_t kLogVersion = 3;
inline constexpr std::uint64_t kAnchorBytes = 64;
inline constexpr std::uint64_t kCommittedWordAt = 64;
inline constexpr std::uint64_t kTailWordAt = 128;
inline constexpr std::uint64_t kProbeLineAt = 192;
inline constexpr std::uint64_t kStateAt = 4096;  // two copies, each on a page of its own
inline constexpr std::uint64_t kStateEvery = 4096;
inline constexpr std::uint64_t kRingAt = 12288;
inline constexpr std::uint64_t kRingBytesMin = 64 * 1024;
inline constexpr std::uint64_t kLogBytesMin = kRingAt + kRingBytesMin;  // that a log fits into
inline constexpr std::uint64_t kRecordHeaderBytes = 32;
inline constexpr std::uint64_t kRecordAlignment = 8;
inline constexpr std::uint64_t kPayloadBytesMax = 16 * 1024 * 1024;
/// What data leaves free of a ring: for configuration records. Opening and trimming need none.
inline constexpr std::uint64_t kKeptFreeBytes = 4096;
inline constexpr Lsn kFirstLsn{64};  // not 0, so that zeroed memory is never a record
inline constexpr std::uint32_t kLengthMask = (1u << 28) - 1;
static_assert(kPayloadBytesMax <= kLengthMask);
inline constexpr std::uint64_t kLsnMax = (std::uint64_t{1} << 48) - 1;
/// How far what is committed lags behind a record, in units of kRecordAlignment: this much or more
/// is not said.
inline constexpr std::uint64_t kLagMax = UINT32_MAX;

enum class RecordType : std::uint8_t {
  Data = 1,
  Configuration = 2,  // other members or another quorum from here on: see replica_set.h
  Pad = 3,            // nothing up to the end of the ring
};

struct Anchor {
  LogShape shape = LogShape::Singleton;
  std::uint64_t ring_bytes = 0;
  std::uint64_t log_id = 0;
  std::uint32_t seed = 0;
  bool operator==(const Anchor&) const = default;
};

struct RecordHeader {
  std::uint32_t crc = 0;
  RecordType type = RecordType::Data;
  std::uint32_t payload_bytes = 0;
  Lsn lsn;
  std::uint64_t index = 0;
  Epoch epoch;
  std::uint32_t previous_crc = 0;
  Lsn committed;  // everything before it was committed when the record was sent; 0: not said
};

/// A place between two records, so that what follows can be told apart from what does not: where
/// the next record begins, the index of the next data record, and of the record before the place
/// its checksum, and an epoch that no later record is below.
struct Boundary {
  Lsn lsn = kFirstLsn;
  std::uint64_t index = 0;
  Epoch epoch;
  std::uint32_t crc = 0;
  bool operator==(const Boundary&) const = default;
};

/// Bytes that a record takes in the ring.
constexpr std::uint64_t record_bytes(std::uint64_t payload_bytes) {
  return round_up(kRecordHeaderBytes + payload_bytes, kRecordAlignment);
}

/// Where the next record begins when one ended at `end`: there, or at the start of the next lap
/// when not even a header fits before the end of the ring.
constexpr Lsn next_place(Lsn end, std::uint64_t ring_bytes) {
  const std::uint64_t room = ring_bytes - end.value % ring_bytes;
  return room < kRecordHeaderBytes ? Lsn{end.value + room} : end;
}

/// The ring that a pool of `pool_bytes` holds; 0 when it is too small for a log.
constexpr std::uint64_t ring_bytes_for(std::uint64_t pool_bytes) {
  if (pool_bytes < kLogBytesMin) return 0;
  return round_down(pool_bytes - kRingAt, kCacheLineBytes);
}

/// The largest payload for a ring: a record and the pad before it always leave room for another.
constexpr std::uint64_t payload_bytes_max(std::uint64_t ring_bytes) {
  const std::uint64_t fits = ring_bytes / 4 - kRecordHeaderBytes;
  return fits < kPayloadBytesMax ? fits : kPayloadBytesMax;
}

/// Of an anchor or a state whose checksum is right. Errors: VersionMismatch.
Result<void> check_version(std::uint32_t version);

void encode_anchor(const Anchor& anchor, std::span<std::byte, kAnchorBytes> to);
/// Nothing when all bytes are zero: no log was ever created here.
/// Errors: Corrupt, VersionMismatch; InvalidArgument (a region is there).
Result<std::optional<Anchor>> decode_anchor(std::span<const std::byte> bytes,
                                            std::uint64_t pool_bytes);

std::uint64_t encode_word(Lsn lsn);
/// Nothing when the word was never written. Errors: Corrupt.
Result<std::optional<Lsn>> decode_word(std::uint64_t word);

/// Writes the header at `to`, but for the checksum. `behind`: how far header.committed lies behind
/// header.lsn, no more than kLagMax of kRecordAlignment bytes; payload_bytes no more than
/// kLengthMask.
inline void store_record_header(const RecordHeader& header, std::uint64_t behind, std::byte* to) {
  static_assert(kRecordAlignment == 8);  // 3 of the bits of `behind` are 0
  store(to + 4, header.payload_bytes | static_cast<std::uint32_t>(header.type) << 28);
  store(to + 8, header.lsn.value | behind << 45);
  store(to + 16, header.index | (behind >> 19) << 48);
  store(to + 24, header.epoch.value | std::uint64_t{header.previous_crc} << 32);
}

/// The same for any header; returns what the checksum is of it, from `seed` on.
inline std::uint32_t encode_record_header(const RecordHeader& header, std::uint32_t seed,
                                          std::byte* to) {
  PERDURE_ASSERT(header.payload_bytes <= kLengthMask);
  constexpr std::uint64_t kNotSaid = kLagMax * kRecordAlignment;
  const std::uint64_t behind = header.committed.value == 0
                                   ? kNotSaid
                                   : std::min(kNotSaid, header.lsn.value - header.committed.value);
  store_record_header(header, behind, to);
  return crc32c_of<kRecordHeaderBytes - 4>(to + 4, seed);
}

/// Writes the record at `to`, header and payload, and returns its checksum. Requires a payload of
/// header.payload_bytes, or none for a pad: that has a header only, and skips so many bytes.
inline std::uint32_t encode_record(const RecordHeader& header, std::uint32_t seed,
                                   std::span<const std::byte> payload, std::byte* to) {
  PERDURE_ASSERT(payload.size() == (header.type == RecordType::Pad ? 0 : header.payload_bytes));
  const std::uint32_t crc =
      crc32c_copy(encode_record_header(header, seed, to), to + kRecordHeaderBytes, payload);
  store(to, crc);
  return crc;
}

/// The same for a payload of at most short_crc_bytes_max(), and a lag of at most kLagMax, in the
/// caller.
inline std::uint32_t encode_short_record(const RecordHeader& header, std::uint32_t seed,
                                         std::span<const std::byte> payload, std::byte* to) {
  store_record_header(header, header.lsn.value - header.committed.value, to);
  const std::uint32_t crc = short_crc32c_copy(short_crc32c_of<kRecordHeaderBytes - 4>(to + 4, seed),
                                              to + kRecordHeaderBytes, payload);
  store(to, crc);
  return crc;
}

/// Whether the bytes name this LSN as a record's header does: a cheap look before decoding.
inline bool may_begin_at(std::span<const std::byte, kRecordHeaderBytes> bytes, Lsn lsn) {
  return (load<std::uint64_t>(bytes.data() + 8) & kLsnMax) == lsn.value;
}

/// The header at `bytes`, not verified: see whole_record.
RecordHeader decode_record_header(std::span<const std::byte, kRecordHeaderBytes> bytes);

/// Whether header and payload agree with the checksum, in a log with this seed.
bool checksum_matches(std::span<const std::byte> record, const RecordHeader& header,
                      std::uint32_t seed);

}  // namespace perdure::log
