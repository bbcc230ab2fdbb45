// Ordered updates and digests at the responder: whole or refused, in order, and durable.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "core/bytes.h"
#include "core/random.h"
#include "persist/deep_flush.h"
#include "persist/ordered.h"
#include "persist/page_digests.h"
#include "pmem/crashable_region.h"
#include "pmem/lent_region.h"

namespace perdure::persist {
namespace {

constexpr std::uint64_t kBytes = 64 * 1024;

struct Responding {
  std::unique_ptr<pmem::CrashableRegion> region =
      *pmem::CrashableRegion::open({kBytes, PersistenceDomain::Dmp});
  std::vector<pmem::Range> pending;
  std::array<std::byte, 64> reply{};

  Result<std::size_t> handle(RequestHandler& handler, std::span<const std::byte> payload) {
    Request request(payload, reply, *region, {4096, 32 * 1024}, pending, false);
    return handler.handle(request);
  }
};

struct Update {
  std::array<std::uint64_t, 3> words = {1, 2, 3};
  std::array<UpdateItem, 3> items;
  std::vector<std::span<const UpdateItem>> epochs;
  Update() {
    for (std::size_t index = 0; index < items.size(); ++index) {
      auto* const bytes = reinterpret_cast<std::byte*>(&words[index]);
      items[index] = {index * 128, {bytes, 8, nullptr}};
      epochs.emplace_back(&items[index], 1);
    }
  }
  /// Its encoding, in place of a longer one that was there.
  std::vector<std::byte> payload() const {
    std::vector<std::byte> bytes(1000, std::byte{0xff});
    bytes.resize(encode_ordered(epochs, bytes).size());
    return bytes;
  }
};

TEST(OrderedUpdate, StoresAllAndMakesEveryEpochDurableBeforeTheNext) {
  Responding at;
  Update update;
  std::vector<std::uint64_t> flushes;
  at.region->watch_flushes([&](std::uint64_t) {
    std::uint64_t stored = 0;
    for (std::size_t index = 0; index < 3; ++index) {
      stored += load<std::uint64_t>(at.region->bytes().data() + 4096 + index * 128) != 0 ? 1 : 0;
    }
    flushes.push_back(stored);
  });
  ASSERT_TRUE(at.handle(ordered_handler(), update.payload()).ok());
  EXPECT_EQ(flushes, (std::vector<std::uint64_t>{1, 2}));
  ASSERT_EQ(at.pending.size(), 1u);  // the last one goes with the flush of the burst
  EXPECT_EQ(at.pending[0].at, 4096u + 256);
}

TEST(OrderedUpdate, AnythingThatMakesNoSenseIsRefusedAndChangesNothing) {
  Update update;
  const auto good = update.payload();
  const auto refused = [&](const std::function<void(std::vector<std::byte>&)>& spoil) {
    auto payload = good;
    spoil(payload);
    Responding at;
    EXPECT_FALSE(at.handle(ordered_handler(), payload).ok());
    for (const std::byte each : at.region->bytes()) ASSERT_EQ(each, std::byte{0});
  };
  refused([](auto& payload) { payload.clear(); });
  refused([](auto& payload) { payload.pop_back(); });
  refused([](auto& payload) { payload.push_back(std::byte{0}); });
  refused([](auto& payload) { store(payload.data(), std::uint32_t{0}); });
  refused([](auto& payload) { store(payload.data(), std::uint32_t{kOrderedRangesMax + 1}); });
  refused([](auto& payload) { store(payload.data() + 4, std::uint32_t{1}); });
  refused([](auto& payload) { store(payload.data() + 40, std::uint64_t{32 * 1024 - 7}); });
  refused([](auto& payload) { store(payload.data() + 40, ~std::uint64_t{0} - 3); });
  refused([](auto& payload) { store(payload.data() + 48, std::uint32_t{0}); });
  refused([](auto& payload) { store(payload.data() + 20, std::uint32_t{1}); });
  refused([](auto& payload) { store(payload.data() + 52, std::uint32_t{0}); });
}

// Any bytes at all: fuzzed, with the sanitizers watching.
TEST(OrderedUpdate, AnyPayloadIsSafe) {
  Random random(5);
  Update update;
  for (int round = 0; round < 20000; ++round) {
    auto payload = update.payload();
    for (std::uint64_t change = 0; change <= random.below(3); ++change) {
      payload[random.below(payload.size())] = static_cast<std::byte>(random.below(256));
    }
    payload.resize(random.below(4) == 0 ? random.below(payload.size()) : payload.size());
    Responding at;
    (void)at.handle(ordered_handler(), payload);
  }
}

/// Memory that says what was flushed deep.
class DeepRegion final : public pmem::LentRegion {
 public:
  using LentRegion::LentRegion;
  Result<void> deep_flush(const pmem::Range& range) override {
    deep.push_back(range);
    if (refusal) return *refusal;
    return flush(range.at, range.length);
  }
  std::vector<pmem::Range> deep;
  std::optional<Error> refusal;
};

TEST(DeepFlush, ReachesTheMediumOrSaysWhyNot) {
  Responding at;
  DeepRegion region(*at.region);
  const auto handle = [&](std::span<const std::byte> payload) {
    Request request(payload, at.reply, region, {4096, 32 * 1024}, at.pending, false);
    const auto handled = deep_flush_handler().handle(request);
    EXPECT_EQ(request.medium_failed().has_value(),
              !handled.ok() && handled.code() == ErrorCode::SystemError);
    return handled;
  };
  ASSERT_TRUE(handle(encode_deep_flush(512, 100)).ok());
  ASSERT_EQ(region.deep.size(), 1u);
  EXPECT_EQ(region.deep[0].at, 4096u + 512);
  EXPECT_EQ(region.deep[0].length, 100u);
  //                                    offset          bytes
  EXPECT_FALSE(handle(encode_deep_flush(0, 0)).ok());
  EXPECT_FALSE(handle(encode_deep_flush(32 * 1024, 1)).ok());
  EXPECT_FALSE(handle(encode_deep_flush(~std::uint64_t{0}, 2)).ok());
  EXPECT_FALSE(handle(std::span<const std::byte>(encode_deep_flush(0, 8)).first(15)).ok());
  EXPECT_EQ(region.deep.size(), 1u);
  // Of a medium that has no such thing the session goes on; of one that fails it does not.
  region.refusal = Error{ErrorCode::Unsupported, "no"};
  EXPECT_EQ(handle(encode_deep_flush(0, 8)).code(), ErrorCode::Unsupported);
  region.refusal = Error{ErrorCode::SystemError, "no"};
  EXPECT_EQ(handle(encode_deep_flush(0, 8)).code(), ErrorCode::SystemError);
}

TEST(PageDigests, DifferWhereAPageDoesAndMakeItDurable) {
  Responding at;
  const DigestRequest wanted{4096, 3 * 4096, {7, 8}};
  auto payload = encode_digest_request(wanted);
  ASSERT_EQ(*at.handle(page_digest_handler(), payload), 3 * kDigestBytes);
  ASSERT_EQ(at.pending.size(), 1u);
  EXPECT_EQ(at.pending[0].at, 4096u + 4096);
  EXPECT_EQ(at.pending[0].length, 3u * 4096);
  const auto before = at.reply;
  at.region->bytes()[4096 + 4096 + 5000] = std::byte{1};
  ASSERT_TRUE(at.handle(page_digest_handler(), payload).ok());
  EXPECT_EQ(load<std::uint64_t>(before.data()), load<std::uint64_t>(at.reply.data()));
  EXPECT_NE(load<std::uint64_t>(before.data() + 8), load<std::uint64_t>(at.reply.data() + 8));
  EXPECT_EQ(load<std::uint64_t>(before.data() + 16), load<std::uint64_t>(at.reply.data() + 16));
  for (const DigestRequest& wrong :
       {DigestRequest{0, 0, {}}, DigestRequest{0, 9 * 4096, {}}, DigestRequest{31 * 1024, 2048, {}},
        DigestRequest{~std::uint64_t{0}, 2, {}}}) {
    payload = encode_digest_request(wrong);
    EXPECT_FALSE(at.handle(page_digest_handler(), payload).ok());
  }
}

}  // namespace
}  // namespace perdure::persist
