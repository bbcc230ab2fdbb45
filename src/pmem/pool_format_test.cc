// The first pages of a pool: what was encoded is decoded, and nothing else is.
#include "pmem/pool_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/random.h"

namespace perdure::pmem {
namespace {

PoolHeader some_header() {
  PoolHeader header;
  header.uuid = Uuid::random();
  header.region_bytes = 1 << 20;
  header.data_bytes = 900'000;
  header.declared = PersistenceDomain::Dmp;
  header.kind = "log";
  header.name = "orders of the day";
  return header;
}

StateSlot some_slot(std::uint64_t generation) {
  StateSlot slot;
  slot.generation = generation;
  slot.state.epoch = Epoch{41};
  slot.state.holder = "host-a:1234";
  slot.state.clean_shutdown = true;
  slot.state.settled = PersistenceDomain::Dmp;
  slot.state.relied_on = PersistenceDomain::Wsp;
  slot.state.opened_by = PersistenceDomain::None;
  slot.state.opened_place = 0xFEDC'BA98'7654'3210;
  slot.state.settled_place = 0x1234'5678'9ABC'DEF0;
  slot.state.opaque.assign(100, std::byte{0xAB});
  return slot;
}

void reseal(PoolPage& page) {
  store(page.data() + 4092, crc32c(std::span<const std::byte>(page).first(4092)));
}

TEST(PoolHeader, EveryFieldComesBack) {
  const PoolHeader header = some_header();
  auto decoded = decode_header(encode_header(header));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, header);
}

TEST(PoolHeader, TheLargestFieldsFitAndNothingIsDeclaredIsKept) {
  PoolHeader header = some_header();
  header.kind = std::string(kPoolKindBytesMax, 'k');
  header.name = std::string(kPoolNameBytesMax, 'n');
  header.data_bytes = kPoolDataBytesMax;
  header.region_bytes = ~std::uint64_t{0};
  header.declared.reset();
  auto decoded = decode_header(encode_header(header));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, header);
}

TEST(PoolHeader, EveryDomainComesBack) {
  using enum PersistenceDomain;
  for (const PersistenceDomain domain : {None, Page, Dmp, Mhp, Wsp}) {
    PoolHeader header = some_header();
    header.declared = domain;
    auto decoded = decode_header(encode_header(header));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->declared, domain);
  }
}

// The format is read by other programs of other years: its first bytes stand here literally.
TEST(PoolHeader, HasTheBytesOfTheDocument) {
  PoolHeader header = some_header();
  header.uuid.bytes.fill(std::byte{0x11});
  const PoolPage page = encode_header(header);
  const auto text = [&](std::size_t at, std::size_t length) {
    return std::string(reinterpret_cast<const char*>(page.data() + at), length);
  };
  EXPECT_EQ(text(0, 8), "PERDPOOL");
  EXPECT_EQ(load<std::uint32_t>(page.data() + 8), 1U);
  EXPECT_EQ(load<std::uint32_t>(page.data() + 12), 3U);  // dmp
  EXPECT_EQ(text(16, 16), std::string(16, '\x11'));
  EXPECT_EQ(load<std::uint64_t>(page.data() + 32), std::uint64_t{1} << 20);
  EXPECT_EQ(load<std::uint64_t>(page.data() + 40), 65536U);
  EXPECT_EQ(load<std::uint64_t>(page.data() + 48), 900'000U);
  EXPECT_EQ(text(64, 4), std::string("log\0", 4));
  EXPECT_EQ(text(128, 17), "orders of the day");
  EXPECT_EQ(load<std::uint32_t>(page.data() + 4092),
            crc32c(std::span<const std::byte>(page).first(4092)));
}

TEST(PoolHeader, EveryFlippedBitIsRefused) {
  PoolPage page = encode_header(some_header());
  for (std::size_t bit = 0; bit < page.size() * 8; ++bit) {
    page[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_header(page).ok()) << "byte " << bit / 8 << ", bit " << bit % 8;
    page[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_TRUE(decode_header(page).ok());
}

TEST(PoolHeader, EveryShorterLengthIsRefused) {
  const PoolPage page = encode_header(some_header());
  for (std::size_t length = 0; length < page.size(); ++length)
    EXPECT_EQ(decode_header(std::span<const std::byte>(page).first(length)).code(),
              ErrorCode::Corrupt)
        << length;
}

void check_refused(std::size_t at, std::uint64_t value, std::size_t bytes, ErrorCode expected,
                   const char* word) {
  PoolPage page = encode_header(some_header());
  std::memcpy(page.data() + at, &value, bytes);
  reseal(page);
  auto decoded = decode_header(page);
  ASSERT_FALSE(decoded.ok()) << "offset " << at;
  EXPECT_EQ(decoded.code(), expected) << decoded.error().message;
  EXPECT_NE(decoded.error().message.find(word), std::string::npos) << decoded.error().message;
}

// A good checksum is no reason to believe the fields: a bug or an enemy computes it as well.
TEST(PoolHeader, ImpossibleFieldsAreRefusedWithAGoodChecksum) {
  //            offset  value                    bytes  expected                     says
  check_refused(0, 0x4141414141414141, 8, ErrorCode::InvalidArgument, "not a perdure pool");
  check_refused(8, 2, 4, ErrorCode::VersionMismatch, "version 2");
  check_refused(8, 0, 4, ErrorCode::VersionMismatch, "version 0");
  check_refused(12, 6, 4, ErrorCode::Corrupt, "domain 6");
  check_refused(32, 100, 8, ErrorCode::Corrupt, "do not fit");
  check_refused(40, 4096, 8, ErrorCode::Corrupt, "begins at 4096");
  check_refused(48, 0, 8, ErrorCode::Corrupt, "0 bytes");
  check_refused(48, ~std::uint64_t{0}, 8, ErrorCode::Corrupt, "bytes");
  check_refused(48, std::uint64_t{1} << 20, 8, ErrorCode::Corrupt, "do not fit");
  check_refused(64, 0x1B, 1, ErrorCode::Corrupt, "control characters");
}

TEST(PoolHeader, FieldsThatDoNotFitAreTheCallersError) {
  const auto code_of = [](auto change) {
    PoolHeader header = some_header();
    change(header);
    return validate(header).code();
  };
  EXPECT_EQ(code_of([](PoolHeader& h) { h.kind = std::string(17, 'k'); }),
            ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of([](PoolHeader& h) { h.name = std::string(129, 'n'); }),
            ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of([](PoolHeader& h) { h.name = "a\nb"; }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of([](PoolHeader& h) { h.data_bytes = 0; }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of([](PoolHeader& h) { h.data_bytes = h.region_bytes; }),
            ErrorCode::InvalidArgument);
}

TEST(PoolState, EveryFieldComesBack) {
  const Uuid uuid = Uuid::random();
  const StateSlot slot = some_slot(7);
  auto decoded = decode_state(encode_state(slot, uuid), uuid);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, slot);
}

TEST(PoolState, TheLargestAndTheSmallestFieldsComeBack) {
  const Uuid uuid = Uuid::random();
  StateSlot slot;
  slot.generation = 1;
  EXPECT_EQ(*decode_state(encode_state(slot, uuid), uuid), slot);
  slot.generation = ~std::uint64_t{0};
  slot.state.epoch = Epoch{~std::uint32_t{0}};
  slot.state.holder = std::string(kHolderBytesMax, 'h');
  slot.state.opaque.assign(kOpaqueBytesMax, std::byte{0xFF});
  EXPECT_EQ(*decode_state(encode_state(slot, uuid), uuid), slot);
}

TEST(PoolState, EveryFlippedBitIsRefused) {
  const Uuid uuid = Uuid::random();
  PoolPage page = encode_state(some_slot(3), uuid);
  for (std::size_t bit = 0; bit < page.size() * 8; ++bit) {
    page[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_state(page, uuid).ok()) << "byte " << bit / 8 << ", bit " << bit % 8;
    page[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(PoolState, OfAnotherPoolIsRefused) {
  EXPECT_EQ(decode_state(encode_state(some_slot(3), Uuid::random()), Uuid::random()).code(),
            ErrorCode::Corrupt);
}

TEST(PoolState, ImpossibleFieldsAreRefusedWithAGoodChecksum) {
  const Uuid uuid = Uuid::random();
  struct Case {
    std::size_t at;
    std::uint32_t value;
  };
  // Magic, version, generation, flags, holder length, opaque length, holder text.
  for (const Case& each : {Case{0, 1}, Case{8, 2}, Case{32, 0}, Case{40, 2}, Case{44, 257},
                           Case{44, ~0U}, Case{48, 1025}, Case{48, ~0U}, Case{64, 0x0A}}) {
    PoolPage page = encode_state(some_slot(3), uuid);
    store(page.data() + each.at, each.value);
    reseal(page);
    EXPECT_EQ(decode_state(page, uuid).code(), ErrorCode::Corrupt) << "offset " << each.at;
  }
}

class StateSlotsTest : public testing::Test {
 protected:
  std::vector<std::byte> front(const PoolPage& first, const PoolPage& second) const {
    std::vector<std::byte> bytes(kPoolFrontBytes);
    std::copy(first.begin(), first.end(), bytes.begin() + kPoolPageBytes);
    std::copy(second.begin(), second.end(), bytes.begin() + 2 * kPoolPageBytes);
    return bytes;
  }
  PoolPage valid(std::uint64_t generation) const {
    return encode_state(some_slot(generation), uuid_);
  }
  PoolPage torn(std::uint64_t generation) const {
    PoolPage page = valid(generation);
    std::fill(page.begin() + 64, page.end(), std::byte{0});
    return page;
  }
  void check(const PoolPage& first, const PoolPage& second, std::uint64_t generation,
             bool both_equal) {
    auto slots = decode_states(front(first, second), uuid_);
    ASSERT_TRUE(slots.ok()) << slots.error().message;
    EXPECT_EQ(slots->newest.generation, generation);
    EXPECT_EQ(slots->both_equal, both_equal);
  }
  const Uuid uuid_ = Uuid::random();
};

TEST_F(StateSlotsTest, TheNewestValidOneCounts) {
  //    slot 0      slot 1     newest, both equal
  check(valid(5), valid(5), 5, true);
  check(valid(6), valid(5), 6, false);
  check(valid(5), valid(6), 6, false);
  check(torn(6), valid(5), 5, false);
  check(valid(5), torn(6), 5, false);
  check(PoolPage{}, valid(1), 1, false);
  check(valid(1), PoolPage{}, 1, false);
}

TEST_F(StateSlotsTest, NoneValidIsCorrupt) {
  EXPECT_EQ(decode_states(front(torn(5), torn(6)), uuid_).code(), ErrorCode::Corrupt);
  EXPECT_EQ(decode_states(std::vector<std::byte>(kPoolFrontBytes), uuid_).code(),
            ErrorCode::Corrupt);
  EXPECT_EQ(decode_states(std::vector<std::byte>(kPoolFrontBytes - 1), uuid_).code(),
            ErrorCode::Corrupt);
}

TEST(PoolFormat, RandomBytesAreNeverAPool) {
  Random random(0x5eed);
  std::vector<std::byte> bytes(kPoolFrontBytes);
  for (int round = 0; round < 300; ++round) {
    for (std::size_t at = 0; at < bytes.size(); at += 8) store(bytes.data() + at, random.next());
    EXPECT_FALSE(decode_header(bytes).ok());
    EXPECT_FALSE(decode_states(bytes, Uuid{}).ok());
  }
}

TEST(Uuid, IsRandomAndReadsAsVersion4) {
  const std::string text = to_string(Uuid::random());
  EXPECT_NE(text, to_string(Uuid::random()));
  ASSERT_EQ(text.size(), 36U);
  EXPECT_EQ(text[8], '-');
  EXPECT_EQ(text[14], '4');
  EXPECT_NE(std::string("89ab").find(text[19]), std::string::npos) << text;
}

}  // namespace
}  // namespace perdure::pmem
