// The bytes of a durable RPC pool: see rpc_format.h.
#include "rpc/rpc_format.h"

#include <fmt/format.h>
#include <perdure/rpc.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/unordered_reads.h"
#include "pmem/pool_format.h"

namespace perdure::rpc {
namespace {

using RpcMagic = std::array<char, 8>;
constexpr RpcMagic kRpcMagic = {'P', 'E', 'R', 'D', 'R', 'P', 'C', '\x01'};
constexpr std::size_t kHeaderCrcAt = 60;

bool has_rpc_magic(std::span<const std::byte> bytes) {
  return std::memcmp(bytes.data(), kRpcMagic.data(), kRpcMagic.size()) == 0;
}

Error shape_error(const char* what, std::uint64_t is, std::uint64_t least, std::uint64_t most) {
  return {ErrorCode::InvalidArgument,
          fmt::format("{} is {}; it takes {} to {}", what, is, least, most)};
}

/// Nothing: no header, or a torn one.
Result<std::optional<PoolShape>> decode_one_header(std::span<const std::byte> bytes) {
  using Shape = std::optional<PoolShape>;
  if (!has_rpc_magic(bytes)) return Shape{};
  if (crc32c(bytes.first(kHeaderCrcAt)) != load<std::uint32_t>(bytes.data() + kHeaderCrcAt)) {
    return Shape{};
  }
  const auto version = load<std::uint32_t>(bytes.data() + 8);
  if (version != kRpcVersion) {
    return Error{ErrorCode::VersionMismatch,
                 fmt::format("the pool has format {} of durable RPC, this build reads {}", version,
                             kRpcVersion)};
  }
  PoolShape shape;
  shape.clients = load<std::uint32_t>(bytes.data() + 12);
  shape.window_bytes = load<std::uint64_t>(bytes.data() + 16);
  shape.replies = load<std::uint32_t>(bytes.data() + 24);
  shape.reply_bytes_max = load<std::uint32_t>(bytes.data() + 28);
  shape.transaction_bytes = load<std::uint64_t>(bytes.data() + 32);
  shape.data_bytes = load<std::uint64_t>(bytes.data() + 40);
  shape.ring_bytes = load<std::uint64_t>(bytes.data() + 48);
  shape.application = load<std::uint32_t>(bytes.data() + 56);
  if (const auto valid = validate(shape); !valid)
    return Error{ErrorCode::Corrupt, valid.error().message};
  return Shape{shape};
}

/// An RNIC, or a session's thread, may store there at this moment; the word is never torn.
std::uint64_t load_word(const std::byte* at) {
  const auto* const word = reinterpret_cast<const std::uint64_t*>(at);
  const UnorderedReads by_the_word_itself;
  return std::atomic_ref<std::uint64_t>(*const_cast<std::uint64_t*>(word))
      .load(std::memory_order_acquire);
}

/// The entry at the start of `left`, as it stands there at this moment, torn perhaps. Returns its
/// commit word, which was read before the rest. Nothing: it is another one, or ends behind `left`.
std::optional<std::uint64_t> copy_entry(std::span<const std::byte> left, std::uint64_t sequence,
                                        std::vector<std::byte>& copy) {
  const std::uint64_t word = load_word(left.data());
  if (word >> 32 != (sequence & UINT32_MAX)) return std::nullopt;
  const UnorderedReads by_the_checksum;
  const auto payload_bytes = load<std::uint32_t>(left.data() + 44);
  if (payload_bytes > left.size() - kEntryHeadBytes) return std::nullopt;
  const std::span<const std::byte> entry = left.first(kEntryHeadBytes + payload_bytes);
  copy.assign(entry.begin(), entry.end());
  return word;
}

std::optional<FoundEntry> entry_at(std::span<const std::byte> ring, const NextEntry& expected,
                                   std::vector<std::byte>& copy) {
  const auto word =
      copy_entry(ring.subspan(expected.position % ring.size()), expected.sequence, copy);
  if (!word) return std::nullopt;
  const std::byte* const bytes = copy.data();
  if (crc32c(std::span(copy).subspan(kCommitWordBytes)) != (*word & UINT32_MAX)) {
    return std::nullopt;
  }
  const std::uint64_t payload_bytes = copy.size() - kEntryHeadBytes;
  FoundEntry found;
  found.entry.client = load<std::uint64_t>(bytes + 8);
  found.entry.sequence = load<std::uint64_t>(bytes + 16);
  found.entry.position = load<std::uint64_t>(bytes + 24);
  found.entry.order_key = load<std::uint64_t>(bytes + 32);
  found.entry.operation = load<std::uint32_t>(bytes + 40);
  found.entry.payload_bytes = load<std::uint32_t>(bytes + 44);
  found.entry.generation = load<std::uint32_t>(bytes + 48);
  const bool is_it =
      found.entry.client == expected.client && found.entry.sequence == expected.sequence &&
      found.entry.position == expected.position && found.entry.payload_bytes == payload_bytes &&
      found.entry.generation >= expected.generation;
  if (!is_it || payload_bytes > payload_bytes_max(ring.size())) return std::nullopt;
  found.next = {expected.client, expected.sequence + 1,
                expected.position + entry_bytes(payload_bytes), found.entry.generation};
  return found;
}

}  // namespace

std::uint64_t PoolShape::reply_stride() const {
  return round_up(kReplyHeadBytes + reply_bytes_max, kCacheLineBytes);
}

std::uint64_t PoolShape::reply_at(std::size_t place, std::uint64_t sequence) const {
  return place_at(clients) + (place * replies + sequence % replies) * reply_stride();
}

std::uint64_t PoolShape::redo_at(std::size_t which) const {
  const std::uint64_t behind = place_at(clients) + clients * replies * reply_stride();
  return round_up(behind, kRpcPageBytes) + which * transaction_bytes;
}

std::uint64_t PoolShape::window_at(std::size_t place) const {
  return redo_at(2) + place * window_bytes;
}

std::uint64_t PoolShape::ring_at(std::size_t place) const {
  return window_at(place) + pmem::kPoolDataOffset + kRingAt;
}

Result<void> validate(const PoolShape& shape) {
  constexpr std::uint64_t kRingMin = 4096;
  constexpr std::uint64_t kTransactionMin = 4 * kRpcPageBytes;
  if (shape.clients < 1 || shape.clients > kClientsMax) {
    return shape_error("the number of clients", shape.clients, 1, kClientsMax);
  }
  if (shape.ring_bytes < kRingMin || shape.ring_bytes > kAreaBytesMax / 2 ||
      shape.ring_bytes % kEntryAlignment != 0) {
    return shape_error("a client's ring, a multiple of 64,", shape.ring_bytes, kRingMin,
                       kAreaBytesMax / 2);
  }
  const std::uint64_t window_min = pmem::kPoolDataOffset + kRingAt + shape.ring_bytes;
  if (shape.window_bytes < window_min || shape.window_bytes > kAreaBytesMax ||
      shape.window_bytes % kRpcPageBytes != 0) {
    return shape_error("a client's window", shape.window_bytes, window_min, kAreaBytesMax);
  }
  if (shape.replies < 1 || shape.replies > kRepliesMax) {
    return shape_error("the number of replies", shape.replies, 1, kRepliesMax);
  }
  if (shape.reply_bytes_max > kReplyBytesMax) {
    return shape_error("the size of a reply", shape.reply_bytes_max, 0, kReplyBytesMax);
  }
  // Lengths in a record have 32 bits.
  constexpr std::uint64_t kTransactionMax = (std::uint64_t{1} << 32) - kRpcPageBytes;
  // A call's reply and mark, beside those of one that the client is told was too large.
  const std::uint64_t transaction_min = std::max(
      kTransactionMin,
      round_up(2 * (shape.reply_stride() + kRpcPageBytes / 4), kRpcPageBytes) + kRpcPageBytes);
  if (shape.transaction_bytes < transaction_min || shape.transaction_bytes > kTransactionMax ||
      shape.transaction_bytes % kRpcPageBytes != 0) {
    return shape_error("a transaction's size", shape.transaction_bytes, transaction_min,
                       kTransactionMax);
  }
  if (shape.data_bytes > kAreaBytesMax) {
    return shape_error("the handlers' data", shape.data_bytes, 0, kAreaBytesMax);
  }
  return {};
}

HeaderBytes encode_header(const PoolShape& shape) {
  HeaderBytes bytes{};
  std::memcpy(bytes.data(), kRpcMagic.data(), kRpcMagic.size());
  store(bytes.data() + 8, kRpcVersion);
  store(bytes.data() + 12, shape.clients);
  store(bytes.data() + 16, shape.window_bytes);
  store(bytes.data() + 24, shape.replies);
  store(bytes.data() + 28, shape.reply_bytes_max);
  store(bytes.data() + 32, shape.transaction_bytes);
  store(bytes.data() + 40, shape.data_bytes);
  store(bytes.data() + 48, shape.ring_bytes);
  store(bytes.data() + 56, shape.application);
  store(bytes.data() + kHeaderCrcAt, crc32c(std::span(bytes).first(kHeaderCrcAt)));
  return bytes;
}

Result<std::optional<PoolShape>> decode_header(std::span<const std::byte> data) {
  if (data.size() < kTableAt) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} bytes are too few for a pool of durable RPC", data.size())};
  }
  for (const std::uint64_t at : kHeadersAt) {
    auto shape = decode_one_header(data.subspan(at, kHeaderBytes));
    if (!shape.ok()) return shape;
    if (*shape && (*shape)->bytes() > data.size()) {
      return Error{ErrorCode::Corrupt, fmt::format("the pool has {} bytes, and {} by its header",
                                                   data.size(), (*shape)->bytes())};
    }
    if (*shape) return shape;
  }
  const auto first = data.first(kHeaderBytes);
  if (std::all_of(first.begin(), first.end(), [](std::byte each) { return each == std::byte{}; })) {
    return std::optional<PoolShape>{};
  }
  return Error{has_rpc_magic(first) ? ErrorCode::Corrupt : ErrorCode::InvalidArgument,
               has_rpc_magic(first) ? "the header of durable RPC and its copy are damaged"
                                    : "the pool holds something else than durable RPC"};
}

PlaceBytes encode_place(const ClientPlace& place) {
  PERDURE_ASSERT(place.name.size() <= kClientNameMax);
  PlaceBytes bytes{};
  store(bytes.data(), place.client);
  store(bytes.data() + 8, place.applied);
  store(bytes.data() + 16, place.position);
  store(bytes.data() + 24, place.attempts);
  store(bytes.data() + 28, place.set_aside);
  store(bytes.data() + 32, static_cast<std::uint8_t>(place.name.size()));
  std::memcpy(bytes.data() + 33, place.name.data(), place.name.size());
  store(bytes.data() + 100, place.generation);
  store(bytes.data() + 104, std::uint32_t{place.held});
  store(bytes.data() + 108, place.dropped);
  return bytes;
}

Result<ClientPlace> decode_place(std::span<const std::byte> bytes) {
  PERDURE_ASSERT(bytes.size() == kPlaceBytes);
  ClientPlace place;
  place.client = load<std::uint64_t>(bytes.data());
  if (place.client == 0) return place;
  place.applied = load<std::uint64_t>(bytes.data() + 8);
  place.position = load<std::uint64_t>(bytes.data() + 16);
  place.attempts = load<std::uint32_t>(bytes.data() + 24);
  place.set_aside = load<std::uint32_t>(bytes.data() + 28);
  place.generation = load<std::uint32_t>(bytes.data() + 100);
  const auto held = load<std::uint32_t>(bytes.data() + 104);
  place.held = held != 0;
  place.dropped = load<std::uint32_t>(bytes.data() + 108);
  const auto length = load<std::uint8_t>(bytes.data() + 32);
  if (length == 0 || length > kClientNameMax || place.position % kEntryAlignment != 0 || held > 1) {
    return Error{ErrorCode::Corrupt, "a place in the table of clients makes no sense"};
  }
  place.name.assign(reinterpret_cast<const char*>(bytes.data() + 33), length);
  return place;
}

std::optional<ErrorCode> refusal_of(std::uint32_t status) {
  const std::uint32_t code = status & ~(kStatusDropped | kStatusCancelled);
  if (code == 0) return std::nullopt;
  constexpr auto kLast = static_cast<std::uint32_t>(ErrorCode::SystemError);
  return static_cast<ErrorCode>(std::min(code - 1, kLast));
}

void encode_reply_head(const ReplyHead& head, std::byte* to) {
  store(to, head.sequence);
  store(to + 8, head.status);
  store(to + 12, head.bytes);
}

ReplyHead decode_reply_head(const std::byte* from) {
  return {load<std::uint64_t>(from), load<std::uint32_t>(from + 8), load<std::uint32_t>(from + 12)};
}

void encode_entry(const Entry& entry, std::span<const std::byte> payload, std::byte* to) {
  PERDURE_ASSERT(payload.size() == entry.payload_bytes);
  store(to + 8, entry.client);
  store(to + 16, entry.sequence);
  store(to + 24, entry.position);
  store(to + 32, entry.order_key);
  store(to + 40, entry.operation);
  store(to + 44, entry.payload_bytes);
  store(to + 48, std::uint64_t{entry.generation});
  std::uint32_t crc = crc32c({to + 8, kEntryHeadBytes - 8});
  if (!payload.empty()) crc = crc32c_copy(crc, to + kEntryHeadBytes, payload);
  store(to, crc | (entry.sequence & UINT32_MAX) << 32);
}

void cancel_entry(std::byte* at) {
  const std::size_t payload_bytes = load<std::uint32_t>(at + 44);
  store(at + 40, kRpcCancelled);
  std::fill_n(at + kEntryHeadBytes, payload_bytes, std::byte{});
  const std::uint64_t word = load<std::uint64_t>(at);
  const std::uint32_t crc = crc32c({at + 8, kEntryHeadBytes - 8 + payload_bytes});
  store(at, crc | (word & ~std::uint64_t{UINT32_MAX}));
}

bool may_hold_entry(std::span<const std::byte> ring, const NextEntry& expected) {
  const auto is_there = [&](std::uint64_t at) {
    return load_word(ring.data() + at) >> 32 == (expected.sequence & UINT32_MAX);
  };
  const std::uint64_t at = expected.position % ring.size();
  return is_there(at) || (at != 0 && is_there(0));
}

std::optional<FoundEntry> find_entry(std::span<const std::byte> ring, const NextEntry& expected,
                                     std::vector<std::byte>& copy) {
  PERDURE_ASSERT(ring.size() % kEntryAlignment == 0);
  if (auto found = entry_at(ring, expected, copy)) return found;
  NextEntry on_the_next_lap = expected;
  on_the_next_lap.position = round_up(expected.position, ring.size());
  if (on_the_next_lap.position == expected.position) return std::nullopt;
  return entry_at(ring, on_the_next_lap, copy);
}

}  // namespace perdure::rpc
