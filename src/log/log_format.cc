#include "log/log_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/assert.h"
#include "core/crc32c.h"
#include "core/try.h"

namespace perdure::log {
namespace {

constexpr std::array<char, 8> kMagic = {'P', 'E', 'R', 'D', 'L', 'O', 'G', '\x01'};
// What a region writes at the same place (region/region_format.h).
constexpr std::array<char, 8> kRegionMagic = {'P', 'E', 'R', 'D', 'R', 'E', 'G', '\x01'};

/// 16 bits that depend on all 48 of the LSN; never 0 together with LSN 0.
std::uint64_t word_check(std::uint64_t lsn) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(&lsn, 1)));
  return ((crc >> 16) ^ crc) & 0xffffu;
}

}  // namespace

Result<void> check_version(std::uint32_t version) {
  if (version == kLogVersion) return {};
  return Error{ErrorCode::VersionMismatch,
               fmt::format("the log has format {}, this build reads {}: copy it into a new log, "
                           "with `perdure log read --framed` of the version that wrote it and "
                           "`perdure log append --framed` of this one",
                           version, kLogVersion)};
}

void encode_anchor(const Anchor& anchor, std::span<std::byte, kAnchorBytes> to) {
  std::fill(to.begin(), to.end(), std::byte{0});
  std::memcpy(to.data(), kMagic.data(), kMagic.size());
  store(to.data() + 8, kLogVersion);
  store(to.data() + 12, static_cast<std::uint32_t>(anchor.shape));
  store(to.data() + 16, anchor.ring_bytes);
  store(to.data() + 24, anchor.log_id);
  store(to.data() + 32, anchor.seed);
  store(to.data() + 60, crc32c(to.first(60)));
}

Result<std::optional<Anchor>> decode_anchor(std::span<const std::byte> bytes,
                                            std::uint64_t pool_bytes) {
  PERDURE_ASSERT(bytes.size() >= kAnchorBytes);
  const auto anchor_bytes = bytes.first(kAnchorBytes);
  const bool empty = std::all_of(anchor_bytes.begin(), anchor_bytes.end(),
                                 [](std::byte byte) { return byte == std::byte{0}; });
  if (empty) return std::optional<Anchor>{};
  if (std::memcmp(bytes.data(), kRegionMagic.data(), kRegionMagic.size()) == 0) {
    return Error{ErrorCode::InvalidArgument,
                 "the pool holds a region, and no log; use another pool"};
  }
  if (crc32c(bytes.first(60)) != load<std::uint32_t>(bytes.data() + 60) ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Error{ErrorCode::Corrupt, "the log's anchor fails its checksum; repair this replica"};
  }
  PERDURE_TRY_VOID(check_version(load<std::uint32_t>(bytes.data() + 8)));
  Anchor anchor;
  anchor.shape = static_cast<LogShape>(load<std::uint32_t>(bytes.data() + 12));
  anchor.ring_bytes = load<std::uint64_t>(bytes.data() + 16);
  anchor.log_id = load<std::uint64_t>(bytes.data() + 24);
  anchor.seed = load<std::uint32_t>(bytes.data() + 32);
  const bool known = anchor.shape == LogShape::Singleton || anchor.shape == LogShape::Compound;
  if (!known || anchor.ring_bytes < kRingBytesMin || anchor.ring_bytes % kCacheLineBytes != 0 ||
      anchor.ring_bytes > ring_bytes_for(pool_bytes)) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("the log says its ring has {} bytes, in a pool of {}",
                             anchor.ring_bytes, pool_bytes)};
  }
  return std::optional<Anchor>{anchor};
}

std::uint64_t encode_word(Lsn lsn) {
  PERDURE_ASSERT(lsn.value <= kLsnMax);
  return lsn.value << 16 | word_check(lsn.value);
}

Result<std::optional<Lsn>> decode_word(std::uint64_t word) {
  if (word == 0) return std::optional<Lsn>{};
  const Lsn lsn{word >> 16};
  if ((word & 0xffffu) != word_check(lsn.value)) {
    return Error{ErrorCode::Corrupt, "a word of the log fails its checksum; repair this replica"};
  }
  return std::optional<Lsn>{lsn};
}

RecordHeader decode_record_header(std::span<const std::byte, kRecordHeaderBytes> bytes) {
  RecordHeader header;
  const auto length = load<std::uint32_t>(bytes.data() + 4);
  header.crc = load<std::uint32_t>(bytes.data());
  header.type = static_cast<RecordType>(length >> 28);
  header.payload_bytes = length & kLengthMask;
  const auto place = load<std::uint64_t>(bytes.data() + 8);
  const auto index = load<std::uint64_t>(bytes.data() + 16);
  header.lsn = Lsn{place & kLsnMax};
  header.index = index & kLsnMax;
  const std::uint64_t lag = place >> 48 | (index >> 48) << 16;
  const std::uint64_t behind = lag * kRecordAlignment;
  if (lag < kLagMax && behind < header.lsn.value) {
    header.committed = Lsn{header.lsn.value - behind};
  }
  header.epoch = Epoch{load<std::uint32_t>(bytes.data() + 24)};
  header.previous_crc = load<std::uint32_t>(bytes.data() + 28);
  return header;
}

bool checksum_matches(std::span<const std::byte> record, const RecordHeader& header,
                      std::uint32_t seed) {
  const std::size_t covered =
      kRecordHeaderBytes + (header.type == RecordType::Pad ? 0 : header.payload_bytes);
  return record.size() >= covered && crc32c(record.subspan(4, covered - 4), seed) == header.crc;
}

}  // namespace perdure::log
