#include "region/region_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"

namespace perdure::region {
namespace {

using Magic = std::array<char, kMagicBytes>;
constexpr Magic kRegionMagic = {'P', 'E', 'R', 'D', 'R', 'E', 'G', '\x01'};
// What a log writes at these places (log/log_format.h, log/log_state.h).
constexpr Magic kLogMagic = {'P', 'E', 'R', 'D', 'L', 'O', 'G', '\x01'};
constexpr Magic kLogStateMagic = {'P', 'E', 'R', 'D', 'L', 'G', 'S', 'T'};

bool begins_with(std::span<const std::byte> bytes, const Magic& magic) {
  return std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

constexpr unsigned kClosedBit = 30;
constexpr unsigned kWholeBit = 31;
constexpr unsigned kEpochBit = 32;
constexpr std::uint64_t kCheckMask = (std::uint64_t{1} << kClosedBit) - 1;

std::uint64_t state_check(std::uint64_t bits) { return crc32c(bytes_of(bits)) & kCheckMask; }

/// Nothing: no header, or a damaged one.
Result<std::optional<RegionHeader>> decode_header(std::span<const std::byte> bytes) {
  using Header = std::optional<RegionHeader>;
  if (!begins_with(bytes, kRegionMagic)) return Header{};
  if (crc32c(bytes.first(60)) != load<std::uint32_t>(bytes.data() + 60)) return Header{};
  const auto version = load<std::uint32_t>(bytes.data() + 8);
  if (version != kRegionVersion) {
    return Error{
        ErrorCode::VersionMismatch,
        fmt::format("the region has format {}, this build reads {}: read it with the build that "
                    "wrote it, and write it to a region of this one in other pools",
                    version, kRegionVersion)};
  }
  const RegionHeader header{
      load<std::uint32_t>(bytes.data() + 12), load<std::uint32_t>(bytes.data() + 24),
      load<std::uint64_t>(bytes.data() + 16), load<std::uint64_t>(bytes.data() + 32)};
  if (header.bytes == 0 || header.quorum == 0 || header.quorum > header.replicas) return Header{};
  return Header{header};
}

}  // namespace

HeaderBytes encode_header(const RegionHeader& header) {
  HeaderBytes bytes{};
  std::memcpy(bytes.data(), kRegionMagic.data(), kRegionMagic.size());
  store(bytes.data() + 8, kRegionVersion);
  store(bytes.data() + 12, header.replicas);
  store(bytes.data() + 16, header.id);
  store(bytes.data() + 24, header.quorum);
  store(bytes.data() + 32, header.bytes);
  store(bytes.data() + 60, crc32c(std::span(bytes).first(60)));
  return bytes;
}

std::uint64_t encode_state(const ReplicaState& state) {
  PERDURE_ASSERT(state.epoch != Epoch{});
  const std::uint64_t bits = std::uint64_t{state.epoch.value} << kEpochBit |
                             std::uint64_t{state.whole ? 1u : 0u} << kWholeBit |
                             std::uint64_t{state.closed ? 1u : 0u} << kClosedBit;
  return bits | state_check(bits);
}

std::optional<ReplicaState> decode_state(std::uint64_t word) {
  if (word == 0) return ReplicaState{};
  const std::uint64_t bits = word & ~kCheckMask;
  if (state_check(bits) != (word & kCheckMask) || bits >> kEpochBit == 0) return std::nullopt;
  return ReplicaState{Epoch{static_cast<std::uint32_t>(bits >> kEpochBit)},
                      (bits >> kClosedBit & 1) != 0, (bits >> kWholeBit & 1) != 0};
}

std::optional<ReplicaState> decode_states(std::uint64_t word, std::uint64_t copy) {
  const auto one = decode_state(word);
  const auto other = decode_state(copy);
  if (!one || !other) return std::nullopt;
  if (*one == *other) return one;
  return ReplicaState{std::max(one->epoch, other->epoch), false, false};
}

Result<RegionStart> decode_start(std::span<const std::byte> bytes) {
  PERDURE_ASSERT(bytes.size() >= kDataAt);
  RegionStart start;
  bool claimed = false;
  const auto word = load<std::uint64_t>(bytes.data() + kStateWordsAt[0]);
  const auto copy = load<std::uint64_t>(bytes.data() + kStateWordsAt[1]);
  bool blank = word == 0 && copy == 0;
  for (const std::uint64_t at : kHeadersAt) {
    const auto header = decode_header(bytes.subspan(at, kHeaderBytes));
    if (!header.ok()) return header.error();
    if (!start.header) start.header = *header;
    claimed = claimed || begins_with(bytes.subspan(at), kRegionMagic);
    blank = blank && load<std::uint64_t>(bytes.data() + at) == 0;
  }
  if (start.header) {
    start.state = decode_states(word, copy);
    const auto returns = load<std::uint64_t>(bytes.data() + kReturnWordAt);
    start.mixed = returns != 0;
    const auto session = decode_state(returns);
    // Taken by a session that did not come to say so in the state words.
    const bool later = session && start.state && session->epoch > start.state->epoch;
    if (later) start.state = ReplicaState{session->epoch};
    return start;
  }
  if (blank) return start;
  if (claimed) {
    return Error{ErrorCode::Corrupt, "what the pool says of its region fails its checksum"};
  }
  const bool log = begins_with(bytes, kLogMagic) ||
                   begins_with(bytes.subspan(kHeadersAt[1]), kLogStateMagic) ||
                   begins_with(bytes.subspan(kStateWordsAt[0]), kLogStateMagic);
  return Error{ErrorCode::InvalidArgument,
               fmt::format("the pool holds {}, and no region; use another pool",
                           log ? "a log" : "something that is not known")};
}

}  // namespace perdure::region
