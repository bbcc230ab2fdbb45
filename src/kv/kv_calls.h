// What a key-value store's clients call and ask (rpc.h), as bytes: little-endian, no padding.
//
// Calls, which change it:
//
//   Set     flags u32 (bit 0: from the client's grant; bits 8..: KvIf), key bytes u16, zero u16,
//           crc u32 (CRC32C of key and value), value bytes u32, key, value
//           reply: stored u32, was there u32, version u64
//   Erase   keys, each: key bytes u16, key.  reply: u64, how many were there
//   Grant   slots u64, blocks u64.           reply: what the grant is then, slots u64, blocks u64
//
// Queries, which look:
//
//   Read    keys, each: key bytes u16, key.  answer: of as many of them as fit, in order: state u32
//           (KvPresence), value bytes u32, crc u32, zero u32, version u64, and the value. Only the
//           first may have its value's beginning alone (Part), and is the last then
//   Piece   version u64, offset u32, key bytes u16, key. answer: state u32 (Whole, or Absent: the
//           value of that version is not there any more), then bytes of the value
//   Walk    cursor u64, slots u32.           answer: the next cursor u64 (0: the end), then keys
//   Range   limit u32, flags u32 (bit 0: behind the key; bit 1: with values), key bytes u16, key.
//           answer: more u32 (1: there are more keys), then entries: key bytes u16, state u16,
//           value bytes u32, crc u32, key, and, if Whole, the value. With values, one
//           that is not Whole is the last: its value is read before what is behind it
//   Info    nothing.                         answer: KvNumbers
#pragma once

#include <perdure/result.h>
#include <perdure/rpc.h>

#include "kv/kv_format.h"
#include "kv/kv_writer.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::kv {

enum class KvCall : std::uint32_t { Set = 1, Erase = 2, Grant = 3 };
enum class KvQuery : std::uint32_t { Read = 1, Piece = 2, Walk = 3, Range = 4, Info = 5 };

enum class KvPresence : std::uint32_t { Absent = 0, Whole = 1, Part = 2 };

inline constexpr std::uint32_t kFromGrant = 1;
inline constexpr std::uint32_t kBehindKey = 1;
inline constexpr std::uint32_t kWithValues = 2;
/// Slots that one Walk looks at, and keys that one Range returns, at most.
inline constexpr std::uint32_t kWalkSlotsMax = 1024;
inline constexpr std::uint32_t kRangeKeysMax = 1024;
/// The largest payload of a query (rpc.h: about 1,000 bytes) and its answer (8,000).
inline constexpr std::size_t kQueryBytesMax = 1000;

struct KvNumbers {
  std::uint64_t keys = 0;
  std::uint64_t record_bytes = 0;
  std::uint64_t version = 0;
  std::uint64_t slots = 0;
  std::uint64_t slots_available = 0;
  std::uint64_t blocks = 0;
  std::uint64_t blocks_available = 0;
  std::uint64_t granted_slots = 0;
  std::uint64_t granted_blocks = 0;
  std::uint32_t block_bytes = 0;
  std::uint32_t value_bytes_max = 0;
};

/// Reads what came in pieces; nothing of it is trusted.
class KvBytes {
 public:
  explicit KvBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  std::optional<T> take() {
    const auto part = take(sizeof(T));
    if (!part) return std::nullopt;
    T value;
    std::memcpy(&value, part->data(), sizeof value);
    return value;
  }
  std::optional<std::span<const std::byte>> take(std::size_t count) {
    if (count > bytes_.size()) return std::nullopt;
    const auto part = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return part;
  }
  /// Length u16 and the key. Nothing: it is cut short, or no key.
  std::optional<std::string_view> take_key();
  bool empty() const { return bytes_.empty(); }
  std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

template <typename T>
void append(std::vector<std::byte>& to, const T& value) {
  // Byte by byte: of an insert g++ 12 says with -O3 that it writes behind an empty vector.
  for (const std::byte byte : std::as_bytes(std::span<const T, 1>(&value, 1))) to.push_back(byte);
}
void append_text(std::vector<std::byte>& to, std::string_view text);
void append_key(std::vector<std::byte>& to, std::string_view key);

std::vector<std::byte> encode_set(const KvPut& put, bool from_grant);

/// What a server of a store does. `shape` is what an empty one becomes.
std::map<std::uint32_t, RpcHandler> call_handlers(const KvShape& shape);
std::map<std::uint32_t, RpcQueryHandler> query_handlers(const KvShape& shape);

}  // namespace perdure::kv
