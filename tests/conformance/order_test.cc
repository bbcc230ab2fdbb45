// The order of the fabric's contract, and what a completion means.
#include "pair.h"

#include "core/bytes.h"

#include <atomic>
#include <cstring>
#include <thread>

namespace perdure::conformance {
namespace {

using fabric::Access;
using fabric::Opcode;

class Order : public Conformance {
 protected:
  void SetUp() override {
    auto pair = connect_pair(GetParam());
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    pair_ = std::move(pair).value();
    local_.emplace(*pair_->devices.client, kBytes, Access::Local);
    remote_.emplace(*pair_->devices.server, kBytes, Access::RemoteReadWrite);
    inbox_.emplace(*pair_->devices.server, kBytes, Access::Local);
  }
  void TearDown() override {
    if (pair_) pair_->client.endpoint.reset();
    if (pair_) pair_->server.endpoint.reset();
  }

  static constexpr std::size_t kBytes = std::size_t{4} << 20;
  std::unique_ptr<Pair> pair_;
  std::optional<Buffer> local_;
  std::optional<Buffer> remote_;
  std::optional<Buffer> inbox_;
};

TEST_P(Order, ReceiveCompletionComesAfterEveryEarlierWriteIsVisible) {
  // Each round writes, then sends. Sizes on both sides of every provider's switch of protocol.
  std::uint64_t round = 1;
  for (const std::size_t size :
       {std::size_t{8}, std::size_t{100}, std::size_t{200}, std::size_t{4096}, std::size_t{5000},
        std::size_t{70'000}, std::size_t{1} << 20}) {
    for (int again = 0; again < 20; ++again, ++round) {
      ASSERT_TRUE(pair_->server.endpoint->post_receive(inbox_->segment(0, 64), round).ok());
      local_->fill(round, 0, size);
      auto first = write(local_->segment(0, size), remote_->remote(), 128, round);
      first.signalled = false;
      ASSERT_TRUE(pair_->post(first));
      ASSERT_TRUE(pair_->post(send(local_->segment(0, 16), round)));
      ASSERT_TRUE(pair_->pump([&] {
        const bool arrived = pair_->server.find(Opcode::Receive, round) != nullptr;
        return arrived && pair_->client.find(Opcode::Send, round) != nullptr;
      })) << size;
      EXPECT_TRUE(remote_->holds(round, 128, size)) << size;
    }
    pair_->client.completions.clear();
    pair_->server.completions.clear();
  }
}

TEST_P(Order, WritesToOnePlaceEndWithTheLastOneWhereTheyKeepTheirOrder) {
  if (!GetParam().keeps_write_order) GTEST_SKIP() << "this RNIC places WRITEs in any order";
  for (std::uint64_t i = 0; i < 200; ++i) {
    store(local_->at(i * 8), i);
    auto next = write(local_->segment(i * 8, 8), remote_->remote(), 64, i);
    next.signalled = false;
    ASSERT_TRUE(pair_->post(next));
  }
  auto* proof = pair_->run(read(local_->segment(8192, 8), remote_->remote(), 64, 1));
  ASSERT_NE(proof, nullptr);
  ASSERT_FALSE(proof->error.has_value());
  EXPECT_EQ(load<std::uint64_t>(local_->at(8192)), 199u);
  EXPECT_EQ(load<std::uint64_t>(remote_->at(64)), 199u);
}

TEST_P(Order, ReadSeesWhatWasPostedBeforeIt) {
  for (std::uint64_t i = 1; i <= 100; ++i) {
    const std::size_t size = i % 3 == 0 ? 100'000 : 40;
    local_->fill(i, 0, size);
    auto ahead = write(local_->segment(0, size), remote_->remote(), 0, i);
    ahead.signalled = false;
    ASSERT_TRUE(pair_->post(ahead));
    auto* back = pair_->run(read(local_->segment(kBytes / 2, size), remote_->remote(), 0, i));
    ASSERT_NE(back, nullptr);
    ASSERT_FALSE(back->error.has_value());
    ASSERT_TRUE(local_->holds(i, kBytes / 2, size)) << i;
  }
}

TEST_P(Order, MessagesAndImmediatesArriveInTheOrderOfPosting) {
  constexpr std::uint64_t kMessages = 400;
  std::uint64_t posted = 0;
  std::uint64_t offered = 0;
  const bool reached = pair_->pump([&] {
    while (offered < kMessages && offered < pair_->server.count(Opcode::Receive) + 50) {
      const auto slot = (offered % 64) * 64;
      EXPECT_TRUE(pair_->server.endpoint->post_receive(inbox_->segment(slot, 64), offered).ok());
      ++offered;
    }
    if (posted < kMessages) {
      auto request = send(local_->segment(0, 32), posted);
      if (posted % 3 == 0) {
        request = write_immediate(local_->segment(0, 200), remote_->remote(), 0,
                                  static_cast<std::uint32_t>(posted), posted);
      }
      auto taken = pair_->client.endpoint->post({&request, 1});
      EXPECT_TRUE(taken.ok());
      if (taken.ok()) posted += *taken;
    }
    return pair_->server.count(Opcode::Receive) == kMessages;
  });
  ASSERT_TRUE(reached);
  std::uint64_t expected = 0;
  for (const auto& completion : pair_->server.completions) {
    if (completion.opcode != Opcode::Receive) continue;
    ASSERT_EQ(completion.context, expected);
    ASSERT_EQ(completion.has_immediate, expected % 3 == 0);
    if (completion.has_immediate) {
      ASSERT_EQ(completion.immediate, expected);
    }
    ++expected;
  }
}

TEST_P(Order, CompletionsComeInTheOrderOfPosting) {
  constexpr std::uint64_t kRequests = 300;
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    const std::size_t size = i % 7 == 0 ? 3000 : 24;
    const bool reading = i % 5 == 0;
    ASSERT_TRUE(pair_->post(reading
                                ? read(local_->segment(kBytes / 2, size), remote_->remote(), 0, i)
                                : write(local_->segment(0, size), remote_->remote(), 0, i)));
  }
  ASSERT_TRUE(pair_->pump([&] { return pair_->client.completions.size() == kRequests; }));
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    EXPECT_EQ(pair_->client.completions[i].context, i);
    EXPECT_FALSE(pair_->client.completions[i].error.has_value());
  }
}

TEST_P(Order, UnsignalledRequestsAreSilentWhenTheySucceed) {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    auto silent = write(local_->segment(0, i % 2 == 0 ? 16 : 700), remote_->remote(), 0, 1000 + i);
    silent.signalled = false;
    ASSERT_TRUE(pair_->post(silent)) << i;
  }
  auto* last = pair_->run(read(local_->segment(0, 8), remote_->remote(), 0, 1));
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(pair_->client.completions.size(), 1u);
}

TEST_P(Order, CompletionOfAWriteFreesTheCallersMemory) {
  // The memory is changed as soon as the completion is there; the old bytes must arrive.
  for (std::uint64_t i = 1; i <= 200; ++i) {
    const std::size_t size = i % 2 == 0 ? 64 : 20'000;
    local_->fill(i, 0, size);
    auto* written = pair_->run(write(local_->segment(0, size), remote_->remote(), 0, i));
    ASSERT_NE(written, nullptr);
    local_->fill(99'999, 0, size);
    auto* proof = pair_->run(read(local_->segment(kBytes / 2, 8), remote_->remote(), 0, i));
    ASSERT_NE(proof, nullptr);
    ASSERT_TRUE(remote_->holds(i, 0, size)) << i;
    pair_->client.completions.clear();
  }
}

// What proves that a load on the responder returns the bytes: the completion of the WRITE over
// shared memory; elsewhere that of a READ posted after it.
TEST_P(Order, BytesAreVisibleOnceTheProofIsThere) {
  const bool write_suffices = pair_->client.endpoint->transport() == Transport::Shm;
  std::atomic<bool> stop{false};
  std::thread server([&] {
    while (!stop) pair_->server.poll();
  });
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 1; i <= 300; ++i) {
    const std::size_t size = i % 4 == 0 ? 50'000 : 64;
    local_->fill(i, 0, size);
    const std::array requests{write(local_->segment(0, size), remote_->remote(), 0, i),
                              read(local_->segment(kBytes / 2, 8), remote_->remote(), 0, i)};
    const std::size_t wanted = write_suffices ? 1 : 2;
    const auto taken = pair_->client.endpoint->post(std::span(requests).first(wanted));
    ASSERT_TRUE(taken.ok());
    ASSERT_EQ(*taken, wanted);
    const Opcode proof = write_suffices ? Opcode::Write : Opcode::Read;
    const Deadline deadline = Deadline::after(kPatience);
    while (pair_->client.find(proof, i) == nullptr && !deadline.passed()) pair_->client.poll();
    wrong += !remote_->holds(i, 0, size);
    pair_->client.completions.clear();
  }
  stop = true;
  server.join();
  EXPECT_EQ(wrong, 0u);
}

TEST_P(Order, FencedRequestWaitsForEarlierReads) {
  // The fenced SEND carries what the READ brings; unfenced it could leave before.
  for (std::uint64_t i = 1; i <= 100; ++i) {
    const std::size_t size = 30'000;
    remote_->fill(i, 0, size);
    ASSERT_TRUE(pair_->server.endpoint->post_receive(inbox_->segment(0, size), i).ok());
    ASSERT_TRUE(pair_->post(read(local_->segment(0, size), remote_->remote(), 0, i)));
    auto after = send(local_->segment(0, size), i);
    after.fenced = true;
    ASSERT_TRUE(pair_->post(after));
    ASSERT_TRUE(pair_->pump([&] { return pair_->server.find(Opcode::Receive, i) != nullptr; }));
    ASSERT_TRUE(inbox_->holds(i, 0, size)) << i;
    ASSERT_TRUE(pair_->pump([&] { return pair_->client.find(Opcode::Send, i) != nullptr; }));
    pair_->client.completions.clear();
    pair_->server.completions.clear();
  }
}

PERDURE_CONFORMANCE_SUITE(Order);

}  // namespace
}  // namespace perdure::conformance
