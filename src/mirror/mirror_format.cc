#include "mirror/mirror_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"

namespace perdure::mirror {
namespace {

using Magic = std::array<char, kMagicBytes>;
constexpr Magic kMirrorMagic = {'P', 'E', 'R', 'D', 'M', 'I', 'R', '\x01'};
constexpr std::uint64_t kCrcAt = 60;
constexpr std::uint32_t kComplete = 1;
constexpr std::uint32_t kClosed = 2;
constexpr std::uint32_t kWritten = 4;

bool begins_with(std::span<const std::byte> bytes, const Magic& magic) {
  return std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte each) { return each == std::byte{}; });
}

bool checksum_holds(std::span<const std::byte> bytes) {
  return crc32c(bytes.first(kCrcAt)) == load<std::uint32_t>(bytes.data() + kCrcAt);
}

/// Nothing: no header, or a damaged one.
Result<std::optional<MirrorHeader>> decode_header(std::span<const std::byte> bytes) {
  using Header = std::optional<MirrorHeader>;
  if (!begins_with(bytes, kMirrorMagic) || !checksum_holds(bytes)) return Header{};
  const auto version = load<std::uint32_t>(bytes.data() + 8);
  if (version != kMirrorVersion) {
    return Error{ErrorCode::VersionMismatch,
                 fmt::format("the mirror has format {}, this build reads {}: use the build that "
                             "wrote it",
                             version, kMirrorVersion)};
  }
  const MirrorHeader header{
      load<std::uint32_t>(bytes.data() + 12), load<std::uint32_t>(bytes.data() + 24),
      load<std::uint64_t>(bytes.data() + 16), load<std::uint64_t>(bytes.data() + 32)};
  if (header.bytes == 0 || header.quorum == 0 || header.quorum > header.replicas) return Header{};
  return Header{header};
}

std::uint64_t as_number(const Generation& generation) {
  return generation.epoch | std::uint64_t{generation.count} << 32;
}

Generation generation_of(std::uint64_t number) {
  return {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)};
}

/// Nothing: damaged, or, with `blank`, never written.
std::optional<ReplicaState> decode_state(std::span<const std::byte> bytes) {
  const auto flags = load<std::uint32_t>(bytes.data() + 16);
  if (!checksum_holds(bytes) || (flags & kWritten) == 0) return std::nullopt;
  return ReplicaState{generation_of(load<std::uint64_t>(bytes.data())),
                      generation_of(load<std::uint64_t>(bytes.data() + 8)),
                      (flags & kComplete) != 0,
                      (flags & kClosed) != 0,
                      load<std::uint32_t>(bytes.data() + 20),
                      load<std::uint64_t>(bytes.data() + 24)};
}

/// Whether it may be the first state that was being written, an incomplete one: before that it was
/// zero.
bool may_be_state(std::span<const std::byte> bytes) {
  return all_zero(bytes.subspan(24, kCrcAt - 24));
}

std::optional<ReplicaState> decode_states(std::span<const std::byte> first,
                                          std::span<const std::byte> copy) {
  if (const auto state = decode_state(first)) return state;
  if (const auto state = decode_state(copy)) return state;
  if (all_zero(copy)) return ReplicaState{};  // the first was being written for the first time
  return std::nullopt;
}

}  // namespace

HeaderBytes encode_header(const MirrorHeader& header) {
  HeaderBytes bytes{};
  std::memcpy(bytes.data(), kMirrorMagic.data(), kMirrorMagic.size());
  store(bytes.data() + 8, kMirrorVersion);
  store(bytes.data() + 12, header.replicas);
  store(bytes.data() + 16, header.id);
  store(bytes.data() + 24, header.quorum);
  store(bytes.data() + 32, header.bytes);
  store(bytes.data() + kCrcAt, crc32c(std::span(bytes).first(kCrcAt)));
  return bytes;
}

StateBytes encode_state(const ReplicaState& state) {
  StateBytes bytes{};
  store(bytes.data(), as_number(state.generation));
  store(bytes.data() + 8, as_number(state.known));
  store(bytes.data() + 16,
        kWritten | (state.complete ? kComplete : 0u) | (state.closed ? kClosed : 0u));
  store(bytes.data() + 20, state.written_in);
  store(bytes.data() + 24, state.file_bytes);
  store(bytes.data() + kCrcAt, crc32c(std::span(bytes).first(kCrcAt)));
  return bytes;
}

Result<ReplicaStart> decode_start(std::span<const std::byte> bytes) {
  PERDURE_ASSERT(bytes.size() >= kDataAt);
  ReplicaStart start;
  const auto first = bytes.subspan(kStatesAt[0], kStateBytes);
  const auto copy = bytes.subspan(kStatesAt[1], kStateBytes);
  bool claimed = false;
  bool blank = may_be_state(first) && may_be_state(copy);
  for (const std::uint64_t at : kHeadersAt) {
    const auto header = decode_header(bytes.subspan(at, kHeaderBytes));
    if (!header.ok()) return header.error();
    if (!start.header) start.header = *header;
    claimed = claimed || begins_with(bytes.subspan(at), kMirrorMagic);
    blank = blank && load<std::uint64_t>(bytes.data() + at) == 0;
  }
  if (start.header) {
    start.state = decode_states(first, copy);
    return start;
  }
  if (blank) return start;
  if (claimed) {
    return Error{ErrorCode::Corrupt, "what the pool says of its mirror fails its checksum"};
  }
  return Error{ErrorCode::InvalidArgument,
               "the pool holds a log, a region or something that is not known, and no mirror; use "
               "another pool"};
}

Sources find_sources(std::span<const std::optional<ReplicaState>> heard) {
  Sources sources;
  for (const auto& state : heard) {
    if (state) sources.newest = std::max(sources.newest, state->newest());
  }
  if (sources.newest == Generation{}) return sources;
  for (std::size_t index = 0; index < heard.size(); ++index) {
    const auto& state = heard[index];
    if (state && state->complete && state->generation == sources.newest) {
      sources.replicas.push_back(index);
    }
  }
  return sources;
}

}  // namespace perdure::mirror
