// The header of a PMDK part file: see part_header.h.
#include "rpmem/part_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "core/bytes.h"

namespace perdure::rpmem {
namespace {

constexpr std::size_t kPoolFieldsBytes = 24 + 32;  // up to and with uuid
constexpr std::size_t kPartsAt = 56;
constexpr std::size_t kReplicasAt = 88;
constexpr std::size_t kCreatedAt = 120;
constexpr std::size_t kArchitectureAt = 128;
constexpr std::size_t kChecksumAt = kHeaderBytes - 8;
constexpr std::size_t kChecksum2KBytes = 2048;
constexpr std::size_t kIncompatAt = 16;

void put(std::span<std::byte> to, std::size_t at, const Uuid16& uuid) {
  std::copy(uuid.begin(), uuid.end(), to.subspan(at).begin());
}

Uuid16 uuid_at(std::span<const std::byte> from, std::size_t at) {
  Uuid16 uuid;
  std::copy_n(from.subspan(at).begin(), uuid.size(), uuid.begin());
  return uuid;
}

}  // namespace

std::uint64_t header_checksum(std::span<const std::byte> bytes) {
  PERDURE_ASSERT(bytes.size() >= kHeaderBytes);
  const bool short_one = (load<std::uint32_t>(bytes.data() + kIncompatAt) & kChecksumOver2K) != 0;
  const std::size_t counted = short_one ? kChecksum2KBytes : kChecksumAt;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  for (std::size_t at = 0; at < kHeaderBytes; at += sizeof low) {
    if (at < counted) low += load<std::uint32_t>(bytes.data() + at);
    high += low;
  }
  return std::uint64_t{high} << 32 | low;
}

void encode_header(const PartHeader& header, std::span<std::byte> bytes) {
  PERDURE_ASSERT(bytes.size() >= kHeaderBytes);
  const PoolAttributes& pool = header.pool;
  std::memcpy(bytes.data(), pool.signature.data(), pool.signature.size());
  store(bytes.data() + 8, pool.major);
  store(bytes.data() + 12, pool.compat);
  store(bytes.data() + kIncompatAt, pool.incompat);
  store(bytes.data() + 20, pool.ro_compat);
  put(bytes, 24, pool.poolset_uuid);
  put(bytes, 40, pool.uuid);
  static_assert(kPoolFieldsBytes == kPartsAt);
  put(bytes, kPartsAt, header.previous_part);
  put(bytes, kPartsAt + 16, header.next_part);
  put(bytes, kReplicasAt, pool.prev_uuid);
  put(bytes, kReplicasAt + 16, pool.next_uuid);
  store(bytes.data() + kCreatedAt, header.created);
  put(bytes, kArchitectureAt, pool.user_flags);
  store(bytes.data() + kChecksumAt, header_checksum(bytes));
}

Result<PartHeader> decode_header(std::span<const std::byte> bytes) {
  PERDURE_ASSERT(bytes.size() >= kHeaderBytes);
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (std::all_of(bytes.begin(), bytes.begin() + kHeaderBytes, is_zero)) {
    return Error{ErrorCode::Corrupt,
                 "its header is all zeros: no pool was made in it, or its set file needs "
                 "OPTION NOHDRS"};
  }
  const auto found = load<std::uint64_t>(bytes.data() + kChecksumAt);
  if (found != header_checksum(bytes)) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("the checksum of its header is {:#x} and should be {:#x}: it is "
                             "damaged, or no PMDK part",
                             found, header_checksum(bytes))};
  }
  PartHeader header;
  PoolAttributes& pool = header.pool;
  std::memcpy(pool.signature.data(), bytes.data(), pool.signature.size());
  pool.major = load<std::uint32_t>(bytes.data() + 8);
  pool.compat = load<std::uint32_t>(bytes.data() + 12);
  pool.incompat = load<std::uint32_t>(bytes.data() + kIncompatAt);
  pool.ro_compat = load<std::uint32_t>(bytes.data() + 20);
  pool.poolset_uuid = uuid_at(bytes, 24);
  pool.uuid = uuid_at(bytes, 40);
  header.previous_part = uuid_at(bytes, kPartsAt);
  header.next_part = uuid_at(bytes, kPartsAt + 16);
  pool.prev_uuid = uuid_at(bytes, kReplicasAt);
  pool.next_uuid = uuid_at(bytes, kReplicasAt + 16);
  header.created = load<std::uint64_t>(bytes.data() + kCreatedAt);
  pool.user_flags = uuid_at(bytes, kArchitectureAt);
  if (pool.major == 0) return Error{ErrorCode::Corrupt, "its header has the version 0"};
  return header;
}

Uuid16 architecture_of_this_machine() {
  Uuid16 flags{};
  // Alignments less one of char, short, int, long, long long, size_t, off_t, float, double, long
  // double and void*, 4 bits each; then ELF's class, byte order and machine.
  constexpr std::uint64_t kAlignments = 0x7'f737'7773'10;
  constexpr auto kElfClass64 = std::byte{2};
  constexpr auto kElfLittleEndian = std::byte{1};
#if defined(__x86_64__)
  constexpr std::uint16_t kMachine = 62;
#elif defined(__aarch64__)
  constexpr std::uint16_t kMachine = 183;
#else
  constexpr std::uint16_t kMachine = 0;
#endif
  store(flags.data(), kAlignments);
  flags[8] = kElfClass64;
  flags[9] = kElfLittleEndian;
  store(flags.data() + 14, kMachine);
  return flags;
}

}  // namespace perdure::rpmem
