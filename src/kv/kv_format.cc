// Where everything is in a store: see kv_format.h.
#include "kv/kv_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/try.h"

namespace perdure::kv {
namespace {

constexpr std::uint64_t kSlotBytes = sizeof(KvSlot);
constexpr std::uint64_t kAreaAlignment = 128;
constexpr std::uint64_t kGrantsMax = 4096;

std::uint64_t buckets_begin(const KvGeometry& at) {
  return round_up(kGrantsAt + at.grants * sizeof(KvGrant), kAreaAlignment);
}

std::uint64_t slots_begin(const KvGeometry& at) {
  return round_up(buckets_begin(at) + std::uint64_t{at.buckets} * 4, kAreaAlignment);
}

std::uint64_t blocks_begin(const KvGeometry& at) {
  return round_up(slots_begin(at) + at.slots * kSlotBytes, kAreaAlignment);
}

std::uint32_t geometry_crc(KvGeometry geometry) {
  geometry.crc = 0;
  return crc32c(bytes_of(geometry));
}

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

std::uint64_t KvGeometry::grant_at(std::uint64_t index) const {
  return kGrantsAt + index * sizeof(KvGrant);
}
std::uint64_t KvGeometry::bucket_at(std::uint64_t index) const {
  return buckets_begin(*this) + index * 4;
}
std::uint64_t KvGeometry::slot_at(std::uint64_t number) const {
  return slots_begin(*this) + (number - 1) * kSlotBytes;
}
std::uint64_t KvGeometry::block_at(std::uint64_t number) const {
  return blocks_begin(*this) + (number - 1) * block_bytes;
}
std::uint64_t KvGeometry::blocks_for(std::uint64_t record_bytes) const {
  if (record_bytes <= kInlineBytes) return 0;
  return (record_bytes - kInlineBytes + payload() - 1) / payload();
}

Result<KvGeometry> lay_out(std::uint64_t data_bytes, const KvShape& shape, std::uint64_t seed) {
  const auto wrong = [](const std::string& what) {
    return Error{ErrorCode::InvalidArgument, what};
  };
  if (shape.keys_max == 0 || shape.keys_max > kNumberMax / 2) {
    return wrong(fmt::format("a store has room for 1 to {} keys", kNumberMax / 2));
  }
  if (shape.block_bytes < kBlockBytesMin || shape.block_bytes > kBlockBytesMax ||
      shape.block_bytes % kCacheLineBytes != 0) {
    return wrong(fmt::format("a block has {} to {} bytes, a multiple of {}", kBlockBytesMin,
                             kBlockBytesMax, kCacheLineBytes));
  }
  if (shape.grants > kGrantsMax)
    return wrong(fmt::format("there are at most {} grants", kGrantsMax));
  KvGeometry geometry;
  geometry.magic = kKvMagic;
  geometry.format = kKvFormat;
  geometry.data_bytes = data_bytes;
  geometry.seed = seed;
  geometry.slots = static_cast<std::uint32_t>(shape.keys_max);
  geometry.buckets = std::bit_ceil(geometry.slots);
  geometry.block_bytes = shape.block_bytes;
  geometry.grants = shape.grants;
  geometry.value_bytes_max = shape.value_bytes_max;
  const std::uint64_t begin = blocks_begin(geometry);
  if (begin > data_bytes) {
    return wrong(fmt::format("{} keys take {} bytes without their values; there are {}",
                             shape.keys_max, begin, data_bytes));
  }
  geometry.blocks =
      static_cast<std::uint32_t>(std::min((data_bytes - begin) / geometry.block_bytes, kNumberMax));
  geometry.crc = geometry_crc(geometry);
  return geometry;
}

Result<KvGeometry> read_geometry(const RpcData& data) {
  PERDURE_TRY(geometry, data.load<KvGeometry>(0));
  if (geometry.magic == 0) return KvGeometry{};
  if (geometry.magic != kKvMagic) return corrupt_store("its first bytes are something else's");
  if (geometry.format != kKvFormat) {
    return Error{ErrorCode::VersionMismatch,
                 fmt::format("the store is of format {}; this program knows {}", geometry.format,
                             kKvFormat)};
  }
  if (geometry.crc != geometry_crc(geometry)) return corrupt_store("its geometry is damaged");
  if (geometry.data_bytes > data.bytes()) return corrupt_store("it is larger than its pool");
  return geometry;
}

std::uint64_t hash_key(std::uint64_t seed, std::string_view key) {
  constexpr std::uint64_t kFirst = 0x9e3779b97f4a7c15;
  constexpr std::uint64_t kSecond = 0xd6e8feb86659fd93;
  std::uint64_t hash = mixed(seed ^ kFirst, key.size() + kSecond);
  for (; key.size() >= 8; key.remove_prefix(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, key.data(), 8);
    hash = mixed(hash ^ word, kFirst ^ seed);
  }
  std::uint64_t word = 0;
  std::memcpy(&word, key.data(), key.size());
  hash = mixed(hash ^ word, kSecond);
  return mixed(hash ^ kSecond, kFirst);
}

std::uint16_t height_of(std::uint64_t hash) {
  const int zeros = std::countr_zero((hash >> 32) | (1ULL << 31));
  return static_cast<std::uint16_t>(1 + std::min<int>(zeros / 2, kHeightMax - 1));
}

Error corrupt_store(const char* what) {
  return {ErrorCode::Corrupt, fmt::format("the key-value store is damaged: {}", what)};
}

}  // namespace perdure::kv
