// The first 48 KiB of a pool, as bytes. See docs/format.md; the offsets below are its tables.
#include "pmem/pool_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/random.h"
#include "core/try.h"

namespace perdure::pmem {
namespace {

constexpr std::uint64_t kHeaderMagic = 0x4C4F4F5044524550;  // "PERDPOOL" in memory
constexpr std::uint64_t kStateMagic = 0x5453544144524550;   // "PERDATST" in memory

// Both kinds of page end with the checksum of all bytes before it. Every future version keeps
// magic, version and checksum in these places, so that it can be told from a damaged page.
constexpr std::size_t kMagicAt = 0;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kChecksumAt = kPoolPageBytes - 4;

constexpr std::size_t kHeaderDeclaredAt = 12;
constexpr std::size_t kHeaderUuidAt = 16;
constexpr std::size_t kHeaderRegionBytesAt = 32;
constexpr std::size_t kHeaderDataOffsetAt = 40;
constexpr std::size_t kHeaderDataBytesAt = 48;
constexpr std::size_t kHeaderKindAt = 64;
constexpr std::size_t kHeaderNameAt = 128;
static_assert(kHeaderKindAt + kPoolKindBytesMax <= kHeaderNameAt);
static_assert(kHeaderNameAt + kPoolNameBytesMax <= kChecksumAt);

constexpr std::size_t kStateEpochAt = 12;
constexpr std::size_t kStateUuidAt = 16;
constexpr std::size_t kStateGenerationAt = 32;
constexpr std::size_t kStateFlagsAt = 40;
constexpr std::size_t kStateHolderBytesAt = 44;
constexpr std::size_t kStateOpaqueBytesAt = 48;
constexpr std::size_t kStateSettledAt = 52;
constexpr std::size_t kStateSettledPlaceAt = 56;
constexpr std::size_t kStateHolderAt = 64;
constexpr std::size_t kStateReliedOnAt = 320;
constexpr std::size_t kStateOpenedByAt = 324;
constexpr std::size_t kStateOpenedPlaceAt = 328;
constexpr std::size_t kStateOpaqueAt = 1024;
static_assert(kStateHolderAt + kHolderBytesMax <= kStateReliedOnAt);
static_assert(kStateOpenedPlaceAt + sizeof(std::uint64_t) <= kStateOpaqueAt);
static_assert(kStateOpaqueAt + kOpaqueBytesMax <= kChecksumAt);

constexpr std::uint32_t kFlagCleanShutdown = 1;

std::uint32_t checksum_of(std::span<const std::byte> page) {
  return crc32c(page.first(kChecksumAt));
}

void seal(PoolPage& page) { store(page.data() + kChecksumAt, checksum_of(page)); }

void store_text(std::byte* at, const std::string& text) {
  std::memcpy(at, text.data(), text.size());
}

// Text in a field of fixed size ends at the first zero byte or at the end of the field.
std::string load_text(const std::byte* at, std::size_t bytes_max) {
  const auto* text = reinterpret_cast<const char*>(at);
  return std::string(text, ::strnlen(text, bytes_max));
}

bool printable(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7F;
  });
}

Result<void> check_text(std::string_view field, const std::string& text, std::size_t bytes_max) {
  if (text.size() > bytes_max)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("pool {}: {} bytes, at most {} fit", field, text.size(), bytes_max)};
  if (!printable(text))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("pool {}: must have no control characters", field)};
  return {};
}

// 0 is "not declared"; a domain is its place in the enumeration plus one.
std::uint32_t encode_declared(std::optional<PersistenceDomain> declared) {
  return declared ? static_cast<std::uint32_t>(*declared) + 1 : 0;
}

Result<std::optional<PersistenceDomain>> decode_declared(std::uint32_t value) {
  if (value == 0) return std::optional<PersistenceDomain>();
  if (value > encode_declared(PersistenceDomain::Wsp))
    return Error{ErrorCode::Corrupt, fmt::format("unknown persistence domain {}", value)};
  return std::optional(static_cast<PersistenceDomain>(value - 1));
}

Error corrupt(std::string_view what) {
  return Error{ErrorCode::Corrupt, fmt::format("damaged pool: {}", what)};
}

// The order tells apart what a person must do: not a pool, damaged, or another version.
Result<void> check_page(std::span<const std::byte> bytes) {
  if (bytes.size() < kPoolPageBytes)
    return corrupt(fmt::format("{} bytes are left of a page of {}", bytes.size(), kPoolPageBytes));
  if (load<std::uint32_t>(bytes.data() + kChecksumAt) != checksum_of(bytes.first(kPoolPageBytes)))
    return corrupt("the checksum of the page does not match its bytes");
  return {};
}

// Zeros, or what a crash leaves while zeros are made whole again from the copy: any of its words.
bool lost_or_half_repaired(std::span<const std::byte> page, std::span<const std::byte> copy) {
  for (std::size_t at = 0; at < page.size(); at += sizeof(std::uint64_t)) {
    const auto word = load<std::uint64_t>(page.data() + at);
    if (word != 0 && word != load<std::uint64_t>(copy.data() + at)) return false;
  }
  return true;
}

}  // namespace

Uuid Uuid::random() {
  Uuid uuid;
  store(uuid.bytes.data(), random_secret());
  store(uuid.bytes.data() + 8, random_secret());
  uuid.bytes[6] = (uuid.bytes[6] & std::byte{0x0F}) | std::byte{0x40};  // RFC 4122, section 4.4
  uuid.bytes[8] = (uuid.bytes[8] & std::byte{0x3F}) | std::byte{0x80};
  return uuid;
}

std::string to_string(const Uuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr std::size_t kTextBytes = 36;
  std::string text;
  text.reserve(kTextBytes);
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto value = std::to_integer<std::size_t>(uuid.bytes[i]);
    text += kDigits[value / 16];
    text += kDigits[value % 16];
  }
  return text;
}

std::optional<PersistenceDomain> relied_on(const PoolHeader& header, const PoolState& state) {
  return state.relied_on ? state.relied_on : header.declared;
}

Result<void> validate(const PoolHeader& header) {
  PERDURE_TRY_VOID(check_text("kind", header.kind, kPoolKindBytesMax));
  PERDURE_TRY_VOID(check_text("name", header.name, kPoolNameBytesMax));
  if (header.data_bytes == 0 || header.data_bytes > kPoolDataBytesMax)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("pool data: {} bytes; 1 to {} are possible", header.data_bytes,
                             kPoolDataBytesMax)};
  if (header.region_bytes < kPoolDataOffset ||
      header.data_bytes > header.region_bytes - kPoolDataOffset)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("pool data: {} bytes and {} of header do not fit into {}",
                             header.data_bytes, kPoolDataOffset, header.region_bytes)};
  return {};
}

Result<void> validate(const PoolState& state) {
  PERDURE_TRY_VOID(check_text("epoch holder", state.holder, kHolderBytesMax));
  if (state.opaque.size() > kOpaqueBytesMax)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("pool state: {} opaque bytes, at most {} fit", state.opaque.size(),
                             kOpaqueBytesMax)};
  return {};
}

PoolPage encode_header(const PoolHeader& header) {
  PERDURE_ASSERT(validate(header).ok());
  PoolPage page{};
  store(page.data() + kMagicAt, kHeaderMagic);
  store(page.data() + kVersionAt, kPoolFormatVersion);
  store(page.data() + kHeaderDeclaredAt, encode_declared(header.declared));
  store(page.data() + kHeaderUuidAt, header.uuid.bytes);
  store(page.data() + kHeaderRegionBytesAt, header.region_bytes);
  store(page.data() + kHeaderDataOffsetAt, kPoolDataOffset);
  store(page.data() + kHeaderDataBytesAt, header.data_bytes);
  store_text(page.data() + kHeaderKindAt, header.kind);
  store_text(page.data() + kHeaderNameAt, header.name);
  seal(page);
  return page;
}

PoolPage encode_state(const StateSlot& slot, const Uuid& uuid) {
  PERDURE_ASSERT(validate(slot.state).ok());
  PERDURE_ASSERT(slot.generation > 0);
  const PoolState& state = slot.state;
  PoolPage page{};
  store(page.data() + kMagicAt, kStateMagic);
  store(page.data() + kVersionAt, kPoolFormatVersion);
  store(page.data() + kStateEpochAt, state.epoch.value);
  store(page.data() + kStateUuidAt, uuid.bytes);
  store(page.data() + kStateGenerationAt, slot.generation);
  store(page.data() + kStateFlagsAt, state.clean_shutdown ? kFlagCleanShutdown : 0U);
  store(page.data() + kStateHolderBytesAt, static_cast<std::uint32_t>(state.holder.size()));
  store(page.data() + kStateOpaqueBytesAt, static_cast<std::uint32_t>(state.opaque.size()));
  store(page.data() + kStateSettledAt, encode_declared(state.settled));
  store(page.data() + kStateSettledPlaceAt, state.settled_place);
  store_text(page.data() + kStateHolderAt, state.holder);
  store(page.data() + kStateReliedOnAt, encode_declared(state.relied_on));
  store(page.data() + kStateOpenedByAt, encode_declared(state.opened_by));
  store(page.data() + kStateOpenedPlaceAt, state.opened_place);
  std::copy(state.opaque.begin(), state.opaque.end(), page.begin() + kStateOpaqueAt);
  seal(page);
  return page;
}

Result<PoolHeader> decode_header(std::span<const std::byte> bytes) {
  if (bytes.size() >= sizeof kHeaderMagic &&
      load<std::uint64_t>(bytes.data() + kMagicAt) != kHeaderMagic)
    return Error{ErrorCode::InvalidArgument,
                 "not a perdure pool (other magic number); check the path"};
  PERDURE_TRY_VOID(check_page(bytes));
  const auto version = load<std::uint32_t>(bytes.data() + kVersionAt);
  if (version != kPoolFormatVersion)
    return Error{ErrorCode::VersionMismatch,
                 fmt::format("a pool of format version {}, and this perdure reads version {}; use "
                             "the perdure that made it",
                             version, kPoolFormatVersion)};
  PoolHeader header;
  header.uuid.bytes = load<decltype(header.uuid.bytes)>(bytes.data() + kHeaderUuidAt);
  header.region_bytes = load<std::uint64_t>(bytes.data() + kHeaderRegionBytesAt);
  header.data_bytes = load<std::uint64_t>(bytes.data() + kHeaderDataBytesAt);
  PERDURE_TRY(declared, decode_declared(load<std::uint32_t>(bytes.data() + kHeaderDeclaredAt)));
  header.declared = declared;
  header.kind = load_text(bytes.data() + kHeaderKindAt, kPoolKindBytesMax);
  header.name = load_text(bytes.data() + kHeaderNameAt, kPoolNameBytesMax);

  const auto data_offset = load<std::uint64_t>(bytes.data() + kHeaderDataOffsetAt);
  if (data_offset != kPoolDataOffset)
    return corrupt(
        fmt::format("its data begins at {} instead of {}", data_offset, kPoolDataOffset));
  auto sound = validate(header);
  if (!sound.ok()) return corrupt(sound.error().message);
  return header;
}

Result<StateSlot> decode_state(std::span<const std::byte> bytes, const Uuid& uuid) {
  PERDURE_TRY_VOID(check_page(bytes));
  if (load<std::uint64_t>(bytes.data() + kMagicAt) != kStateMagic ||
      load<std::uint32_t>(bytes.data() + kVersionAt) != kPoolFormatVersion)
    return corrupt("a state slot holds something else");
  if (load<decltype(uuid.bytes)>(bytes.data() + kStateUuidAt) != uuid.bytes)
    return corrupt("a state slot belongs to another pool");

  const auto flags = load<std::uint32_t>(bytes.data() + kStateFlagsAt);
  const auto holder_bytes = load<std::uint32_t>(bytes.data() + kStateHolderBytesAt);
  const auto opaque_bytes = load<std::uint32_t>(bytes.data() + kStateOpaqueBytesAt);
  StateSlot slot;
  slot.generation = load<std::uint64_t>(bytes.data() + kStateGenerationAt);
  if (slot.generation == 0 || (flags & ~kFlagCleanShutdown) != 0 ||
      holder_bytes > kHolderBytesMax || opaque_bytes > kOpaqueBytesMax)
    return corrupt("a state slot has impossible fields");

  slot.state.epoch.value = load<std::uint32_t>(bytes.data() + kStateEpochAt);
  slot.state.clean_shutdown = (flags & kFlagCleanShutdown) != 0;
  PERDURE_TRY(settled, decode_declared(load<std::uint32_t>(bytes.data() + kStateSettledAt)));
  slot.state.settled = settled;
  slot.state.settled_place = load<std::uint64_t>(bytes.data() + kStateSettledPlaceAt);
  PERDURE_TRY(relied_on, decode_declared(load<std::uint32_t>(bytes.data() + kStateReliedOnAt)));
  slot.state.relied_on = relied_on;
  PERDURE_TRY(opened_by, decode_declared(load<std::uint32_t>(bytes.data() + kStateOpenedByAt)));
  slot.state.opened_by = opened_by;
  slot.state.opened_place = load<std::uint64_t>(bytes.data() + kStateOpenedPlaceAt);
  slot.state.holder.assign(reinterpret_cast<const char*>(bytes.data() + kStateHolderAt),
                           holder_bytes);
  const auto opaque = bytes.subspan(kStateOpaqueAt, opaque_bytes);
  slot.state.opaque.assign(opaque.begin(), opaque.end());
  auto sound = validate(slot.state);
  if (!sound.ok()) return corrupt(sound.error().message);
  return slot;
}

Result<PoolHeader> decode_header_or_copy(std::span<const std::byte> head) {
  auto header = decode_header(head);
  if (header.ok() || head.size() < kHeaderCopyOffset + kPoolPageBytes) return header;
  const auto first = head.first(kPoolPageBytes);
  const auto second = head.subspan(kHeaderCopyOffset, kPoolPageBytes);
  auto copy = decode_header(second);
  const bool damaged = header.code() == ErrorCode::Corrupt || lost_or_half_repaired(first, second);
  return copy.ok() && damaged ? copy : header;
}

Result<StateSlots> decode_states(std::span<const std::byte> head, const Uuid& uuid) {
  if (head.size() < kPoolFrontBytes)
    return corrupt(fmt::format("{} bytes are left of the first {}", head.size(), kPoolFrontBytes));
  auto first = decode_state(head.subspan(kPoolPageBytes, kPoolPageBytes), uuid);
  auto second = decode_state(head.subspan(2 * kPoolPageBytes, kPoolPageBytes), uuid);
  Result<StateSlot> spare = corrupt("there is no spare copy");
  if (head.size() >= kPoolHeadBytes)
    spare = decode_state(head.subspan(kSpareStateOffset, kPoolPageBytes), uuid);
  if (!first.ok() && !second.ok() && !spare.ok())
    return corrupt(
        fmt::format("all copies of its state are invalid ({}; {}; {}); restore the pool "
                    "from a replica",
                    first.error().message, second.error().message, spare.error().message));
  StateSlots slots;
  slots.newest_index =
      !first.ok() || (second.ok() && second->generation > first->generation) ? 1 : 0;
  const auto& slot = slots.newest_index == 0 ? first : second;
  // It is written after the slots: newer than they are only if both are lost.
  const bool slots_lost = !slot.ok() || (spare.ok() && spare->generation > slot->generation);
  slots.newest = slots_lost ? *spare : *slot;
  slots.both_equal = first.ok() && second.ok() && *first == *second && !slots_lost;
  slots.spare_equal = spare.ok() && *spare == slots.newest;
  return slots;
}

}  // namespace perdure::pmem
