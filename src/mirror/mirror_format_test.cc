// What a replica says of itself is read back, damage is noticed, and the newest is found.
#include "mirror/mirror_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "mirror/dirty_pages.h"

namespace perdure::mirror {
namespace {

std::vector<std::byte> blank() { return std::vector<std::byte>(kDataAt); }

template <typename Bytes>
void put(std::vector<std::byte>& pool, std::uint64_t at, const Bytes& bytes) {
  std::memcpy(pool.data() + at, bytes.data(), bytes.size());
}

ReplicaState complete(std::uint32_t epoch, std::uint32_t count) {
  return {{epoch, count}, {}, true, false};
}
ReplicaState incomplete(std::uint32_t epoch, std::uint32_t count) {
  return {{}, {epoch, count}, false, false};
}

std::vector<std::byte> pool_of(const ReplicaState& first, const ReplicaState& copy) {
  auto pool = blank();
  const HeaderBytes header = encode_header({3, 2, 77, 4096});
  for (const std::uint64_t at : kHeadersAt) put(pool, at, header);
  put(pool, kStatesAt[0], encode_state(first));
  put(pool, kStatesAt[1], encode_state(copy));
  return pool;
}

TEST(MirrorFormat, ReadsBackAndABlankPoolIsBlank) {
  EXPECT_FALSE(decode_start(blank())->header.has_value());
  const auto start = decode_start(pool_of(complete(4, 1), complete(4, 1)));
  ASSERT_TRUE(start.ok());
  EXPECT_EQ(start->header, (MirrorHeader{3, 2, 77, 4096}));
  EXPECT_EQ(start->state, complete(4, 1));
}

// How long the local file is has taken the place of zeros. Expect: a state of before that is read,
// and says nothing of it.
TEST(MirrorFormat, AStateTellsHowLongTheLocalFileIs) {
  ReplicaState state = complete(4, 1);
  EXPECT_EQ(decode_start(pool_of(state, state))->state->file_bytes, 0U);
  const StateBytes before = encode_state(state);
  EXPECT_TRUE(std::all_of(before.begin() + 24, before.begin() + 60,
                          [](std::byte each) { return each == std::byte{}; }));
  state.file_bytes = 0x0123456789;
  EXPECT_EQ(decode_start(pool_of(state, state))->state, state);
}

// The state is written first, then its copy. Expect: whatever tore, what is read is the old one or
// the new one, and the new one when the state is whole.
TEST(MirrorFormat, AStateThatWasBeingWrittenIsTheOldOneOrTheNewOne) {
  const ReplicaState old = complete(4, 0);
  const ReplicaState fresh = incomplete(5, 0);
  EXPECT_EQ(decode_start(pool_of(fresh, old))->state, fresh);
  for (std::size_t byte = 0; byte < kStateBytes; ++byte) {
    auto torn = pool_of(fresh, old);
    torn[kStatesAt[0] + byte] ^= std::byte{0x40};
    EXPECT_EQ(decode_start(torn)->state, old);
    torn = pool_of(fresh, fresh);
    torn[kStatesAt[1] + byte] ^= std::byte{0x40};
    EXPECT_EQ(decode_start(torn)->state, fresh);
    torn[kStatesAt[0] + byte] ^= std::byte{0x40};
    EXPECT_EQ(decode_start(torn)->state, std::nullopt) << "both are damaged";
  }
}

// The state is written before the header. Expect: until that is there the pool is blank, however
// the state tore, and what is no state is somebody else's.
TEST(MirrorFormat, APoolThatHasOnlyAStateIsBlank) {
  const StateBytes state = encode_state({{}, {7, 0}, false, false, 6});
  for (std::size_t words = 0; words <= kStateBytes / 8; ++words) {
    for (const std::uint64_t at : kStatesAt) {
      auto pool = blank();
      std::memcpy(pool.data() + at, state.data(), words * 8);
      const auto start = decode_start(pool);
      ASSERT_TRUE(start.ok()) << words;
      EXPECT_FALSE(start->header.has_value());
    }
  }
  auto other = blank();
  other[kStatesAt[0] + 40] = std::byte{1};
  EXPECT_EQ(decode_start(other).code(), ErrorCode::InvalidArgument);
}

TEST(MirrorFormat, AHeaderIsReadFromItsCopyAndOfNothingElse) {
  auto pool = pool_of(complete(1, 0), complete(1, 0));
  pool[20] ^= std::byte{1};
  EXPECT_TRUE(decode_start(pool)->header.has_value());
  pool[kHeadersAt[1] + 20] ^= std::byte{1};
  EXPECT_EQ(decode_start(pool).code(), ErrorCode::Corrupt);
  auto other = blank();
  std::memcpy(other.data(), "PERDLOG\x01", 8);
  EXPECT_EQ(decode_start(other).code(), ErrorCode::InvalidArgument);
}

using Heard = std::vector<std::optional<ReplicaState>>;

void expect_sources(const Heard& heard, Generation newest, const std::vector<std::size_t>& from) {
  const Sources sources = find_sources(heard);
  EXPECT_EQ(sources.newest, newest);
  EXPECT_EQ(sources.replicas, from);
}

TEST(MirrorSources, AreCompleteAndOfTheNewestGenerationThatAnyTellsOf) {
  const auto never = ReplicaState{};
  // clang-format off
  expect_sources({complete(3, 0),   complete(3, 0)},                 {3, 0}, {0, 1});
  expect_sources({complete(3, 0),   complete(3, 1)},                 {3, 1}, {1});  // 0 was lost
  expect_sources({complete(4, 0),   complete(3, 9)},                 {4, 0}, {0});
  expect_sources({incomplete(3, 0), complete(3, 0)},                 {3, 0}, {1});
  expect_sources({incomplete(3, 1), complete(3, 0)},                 {3, 1}, {});   // it is away
  expect_sources({incomplete(3, 0), complete(4, 0), complete(3, 0)}, {4, 0}, {1});
  expect_sources({std::nullopt,     complete(2, 0), never},          {2, 0}, {1});
  expect_sources({never,            never},                          {0, 0}, {});
  // clang-format on
}

TEST(MirrorSources, TwoWritersAlwaysHearOfAReplicaInCommonAndOfEveryQuorum) {
  for (std::size_t replicas = 1; replicas <= 16; ++replicas) {
    for (std::size_t quorum = 1; quorum <= replicas; ++quorum) {
      const std::size_t heard = needed(replicas, quorum);
      EXPECT_LE(heard, replicas);
      EXPECT_GT(heard + quorum, replicas);
      EXPECT_GT(2 * heard, replicas);
      EXPECT_GE(heard, quorum);
    }
  }
}

TEST(DirtyPages, TakesEveryMarkedPageOnceInRuns) {
  DirtyPages dirty(200 * kPageBytes + 1);
  EXPECT_EQ(dirty.pages(), 201u);
  dirty.mark(kPageBytes - 1, 2);  // two pages
  dirty.mark(200 * kPageBytes, 1);
  dirty.mark(63 * kPageBytes, 3 * kPageBytes);
  dirty.mark(63 * kPageBytes, 1);
  dirty.mark(5, 0);
  EXPECT_EQ(dirty.count(), 6u);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;
  while (const auto run = dirty.take(2)) runs.emplace_back(run->page, run->pages);
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected = {
      {0, 2}, {63, 2}, {65, 1}, {200, 1}};
  EXPECT_EQ(runs, expected);
  EXPECT_TRUE(dirty.empty());
  dirty.mark(0, 1);
  EXPECT_EQ(dirty.take(16)->page, 0u) << "it begins again from the start";
}

}  // namespace
}  // namespace perdure::mirror
