// The bytes of a replica's state: see log_state.h.
#include "log/log_state.h"

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/try.h"

namespace perdure::log {
namespace {

constexpr std::array<char, 8> kStateMagic = {'P', 'E', 'R', 'D', 'L', 'G', 'S', 'T'};
constexpr std::size_t kConfigurationAt = 80;
constexpr std::size_t kConfigurationHead = 16;
constexpr std::size_t kMemberBytes = sizeof(pmem::Uuid) + kMemberNameMax;
constexpr std::size_t kSeedAt = 2028;
constexpr std::size_t kPromisedAt = 2032;
constexpr std::size_t kCheckedBytes = kStateBytes - sizeof(std::uint32_t);
static_assert(kConfigurationAt + kConfigurationHead + kMembersMax * kMemberBytes <= kSeedAt);
static_assert(kStateBytes <= kStateEvery && kStateAt + kStateCopies * kStateEvery <= kRingAt);

Error corrupt(const char* what) { return Error{ErrorCode::Corrupt, what}; }

struct Copy {
  LogState state;
  std::uint64_t generation = 0;
};

Result<Copy> decode_state(std::span<const std::byte, kStateBytes> bytes) {
  const std::byte* at = bytes.data();
  if (std::memcmp(at, kStateMagic.data(), kStateMagic.size()) != 0 ||
      crc32c(bytes.first(kCheckedBytes)) != load<std::uint32_t>(at + kCheckedBytes)) {
    return corrupt("the state of the log fails its checksum; repair this replica");
  }
  PERDURE_TRY_VOID(check_version(load<std::uint32_t>(at + 8)));
  Copy copy;
  const auto marks = load<std::uint32_t>(at + 12);
  copy.state.marks = {(marks & 1) != 0, (marks & 2) != 0, (marks & 4) != 0};
  copy.generation = load<std::uint64_t>(at + 16);
  copy.state.anchor.log_id = load<std::uint64_t>(at + 24);
  copy.state.anchor.ring_bytes = load<std::uint64_t>(at + 32);
  copy.state.anchor.seed = load<std::uint32_t>(at + kSeedAt);
  copy.state.anchor.shape = static_cast<LogShape>(load<std::uint32_t>(at + 40));
  copy.state.epoch = Epoch{load<std::uint32_t>(at + 44)};
  copy.state.begin = Lsn{load<std::uint64_t>(at + 48)};
  Boundary& head = copy.state.head;
  head.lsn = Lsn{load<std::uint64_t>(at + 56)};
  head.index = load<std::uint64_t>(at + 64);
  head.epoch = Epoch{load<std::uint32_t>(at + 72)};
  head.crc = load<std::uint32_t>(at + 76);
  PERDURE_TRY(configuration, decode_configuration(bytes.subspan(kConfigurationAt)));
  copy.state.configuration = std::move(configuration);
  copy.state.promised = {Epoch{load<std::uint32_t>(at + kPromisedAt + 8)},
                         Lsn{load<std::uint64_t>(at + kPromisedAt)}};
  PERDURE_TRY_VOID(validate(copy.state));
  return copy;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

std::vector<std::byte> encode_configuration(const Configuration& configuration) {
  const std::size_t count = configuration.members.size();
  std::vector<std::byte> bytes(kConfigurationHead + count * kMemberBytes);
  store(bytes.data(), configuration.generation);
  store(bytes.data() + 4, configuration.quorum);
  store(bytes.data() + 8, static_cast<std::uint32_t>(count));
  store(bytes.data() + 12, configuration.loss.value);
  std::byte* at = bytes.data() + kConfigurationHead;
  for (const Member& member : configuration.members) {
    std::memcpy(at, member.pool.bytes.data(), member.pool.bytes.size());
    std::memcpy(at + member.pool.bytes.size(), member.name.data(),
                std::min(member.name.size(), kMemberNameMax));
    at += kMemberBytes;
  }
  return bytes;
}

Result<Configuration> decode_configuration(std::span<const std::byte> bytes) {
  if (bytes.size() < kConfigurationHead) return corrupt("a configuration that is cut off");
  Configuration configuration;
  configuration.generation = load<std::uint32_t>(bytes.data());
  configuration.quorum = load<std::uint32_t>(bytes.data() + 4);
  const auto count = load<std::uint32_t>(bytes.data() + 8);
  configuration.loss = Epoch{load<std::uint32_t>(bytes.data() + 12)};
  if (count > kMembersMax || bytes.size() < kConfigurationHead + count * kMemberBytes) {
    return corrupt("a configuration with too many members");
  }
  for (std::size_t index = 0; index < count; ++index) {
    const auto at = bytes.subspan(kConfigurationHead + index * kMemberBytes, kMemberBytes);
    Member& member = configuration.members.emplace_back();
    std::memcpy(member.pool.bytes.data(), at.data(), member.pool.bytes.size());
    const auto* name = reinterpret_cast<const char*>(at.data() + member.pool.bytes.size());
    member.name.assign(name, ::strnlen(name, kMemberNameMax));
  }
  if (auto valid = validate(configuration); !valid)
    return corrupt("a configuration that can not be");
  return configuration;
}

Result<void> validate(const LogState& state) {
  const std::uint64_t ring = state.anchor.ring_bytes;
  const Boundary& head = state.head;
  const bool places = ring >= kRingBytesMin && ring % kCacheLineBytes == 0 &&
                      head.lsn >= kFirstLsn && head.lsn.value % kRecordAlignment == 0 &&
                      head.lsn.value <= kLsnMax && head.lsn == next_place(head.lsn, ring) &&
                      state.begin.value <= kLsnMax;
  if (places) return {};
  return corrupt("the state of the log names a place where no record can be");
}

StateBytes encode_state(const LogState& state, std::uint64_t generation) {
  StateBytes bytes{};
  std::byte* at = bytes.data();
  const Marks& marks = state.marks;
  std::memcpy(at, kStateMagic.data(), kStateMagic.size());
  store(at + 8, kLogVersion);
  store(at + 12,
        (marks.creating ? 1u : 0u) | (marks.incomplete ? 2u : 0u) | (marks.removed ? 4u : 0u));
  store(at + 16, generation);
  store(at + 24, state.anchor.log_id);
  store(at + 32, state.anchor.ring_bytes);
  store(at + 40, static_cast<std::uint32_t>(state.anchor.shape));
  store(at + 44, state.epoch.value);
  store(at + 48, state.begin.value);
  store(at + 56, state.head.lsn.value);
  store(at + 64, state.head.index);
  store(at + 72, state.head.epoch.value);
  store(at + 76, state.head.crc);
  const auto configuration = encode_configuration(state.configuration);
  std::copy(configuration.begin(), configuration.end(), at + kConfigurationAt);
  store(at + kSeedAt, state.anchor.seed);
  store(at + kPromisedAt, state.promised.end.value);
  store(at + kPromisedAt + 8, state.promised.epoch.value);
  store(at + kCheckedBytes, crc32c(std::span(bytes).first(kCheckedBytes)));
  return bytes;
}

Result<std::optional<StoredState>> decode_states(std::span<const std::byte, kStateBytes> first,
                                                 std::span<const std::byte, kStateBytes> second) {
  if (all_zero(first) && all_zero(second)) return std::optional<StoredState>{};
  const auto one = decode_state(first);
  const auto two = decode_state(second);
  if (!one.ok() && !two.ok()) {
    // Whole, and of another version: no damage, and no pool in which a log may begin.
    for (const auto* copy : {&one, &two}) {
      if (copy->code() == ErrorCode::VersionMismatch) return copy->error();
    }
    // The first state ever tore while it was written: nothing was acknowledged on the strength of
    // it.
    if (all_zero(second)) return std::optional<StoredState>{};
    return one.error();
  }
  StoredState stored;
  stored.copy = !one.ok() || (two.ok() && two->generation > one->generation) ? 1 : 0;
  const Copy& newest = stored.copy == 0 ? *one : *two;
  stored.state = newest.state;
  stored.generation = newest.generation;
  stored.copies_agree = one.ok() && two.ok() && one->generation == two->generation;
  return std::optional<StoredState>{stored};
}

}  // namespace perdure::log
