// Probes are answered and change nothing; methods can be exchanged between updates.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/method_set.h"
#include "core/random.h"
#include "fabric/emu/world.h"
#include "persist/requester.h"
#include "persist/responder.h"
#include "plan/plan.h"

namespace perdure::persist {
namespace {

constexpr std::uint64_t kExported = 8192;
constexpr std::uint64_t kLineAt = 256;
constexpr ReceiveQueue kQueue{32, 1024};

/// A responder with a pool full of something but for one line, and a requester without methods.
class ProbedPair {
 public:
  explicit ProbedPair(ReceiveBuffers buffers, bool line = true) {
    profile_.domain = PersistenceDomain::Mhp;
    profile_.transport = Transport::InfiniBand;
    profile_.receive_buffers = buffers;
    profile_.capabilities.native_flush = true;
    server_ = &world_.add_machine("server", profile_);
    client_ = &world_.add_machine("client", profile_);
    region_ = &server_->add_region(kExported + kQueue.persistent_bytes());
    std::fill_n(region_->bytes().begin(), kExported, std::byte{0xa5});
    std::fill_n(region_->bytes().begin() + kLineAt, kCacheLineBytes, std::byte{0});
    before_.assign(region_->bytes().begin(), region_->bytes().begin() + kExported);
    auto ends = world_.connect(*client_, *server_);
    near_ = std::move(ends.first);
    far_ = std::move(ends.second);
    options_.exported = {0, kExported};
    options_.queue = kQueue;
    options_.session = 7;
    if (buffers == ReceiveBuffers::Pm) {
      options_.persistent_buffers = {kExported, kQueue.persistent_bytes()};
    }
    memory_ = *server_->register_memory(region_->bytes().first(kExported),
                                        fabric::Access::RemoteReadWrite);
    responder = *Responder::open(*far_, *server_, *region_, options_);
    server_->add_actor([this] {
      if (cpu_stands_still) return false;
      const auto handled = responder->pump();
      return handled.ok() && *handled != 0;
    });
    Requester::Options options;
    options.remote = {memory_->key(), memory_->base(), kExported};
    options.queue = kQueue;
    options.session = 7;
    options.probes = true;
    if (line) options.probe_line = kLineAt;
    auto opened = Requester::open(*near_, *client_, profile_, {}, options);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    requester = std::move(opened).value();
    source_memory_ = *client_->register_memory(source_, fabric::Access::Local);
  }

  /// Whether everything that was begun resolves.
  bool finish() {
    for (int round = 0; round < 10000 && requester->resolved() < requester->begun(); ++round) {
      if (!requester->poll().ok()) return false;
    }
    return requester->resolved() == requester->begun();
  }

  Method method(Primary primary) const {
    plan::Update update;
    update.shape = singleton();
    update.primary = primary;
    return *plan::plan(profile_, update);
  }

  void fill(std::byte with) { source_.fill(with); }

  UpdateItem item(std::uint64_t at) {
    return {at, {source_.data(), source_.size(), source_memory_.get()}};
  }

  bool unchanged() const {
    return std::equal(before_.begin(), before_.end(), region_->bytes().begin());
  }
  const ServerProfile& profile() const { return profile_; }
  std::byte at(std::uint64_t place) const { return region_->bytes()[place]; }

  /// The power fails and comes back; returns how many messages recovery applied.
  std::uint64_t recover() {
    server_->power_cut();
    responder.reset();
    server_->power_on();
    return *replay_messages(*region_, options_.exported, options_.persistent_buffers, kQueue);
  }

 private:
  Random random_{3};
  fabric::emu::World world_{random_};
  ServerProfile profile_;
  fabric::emu::Machine* server_ = nullptr;
  fabric::emu::Machine* client_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::vector<std::byte> before_;
  Responder::Options options_;
  std::unique_ptr<fabric::Endpoint> near_;
  std::unique_ptr<fabric::Endpoint> far_;
  std::unique_ptr<fabric::Memory> memory_;
  std::array<std::byte, 256> source_{};
  std::unique_ptr<fabric::Memory> source_memory_;

 public:
  std::unique_ptr<Responder> responder;
  std::unique_ptr<Requester> requester;
  bool cpu_stands_still = false;  // the responder's program sees nothing
};

constexpr std::array kAllProbes = {Probe::Message, Probe::LongMessage, Probe::TwoMessages,
                                   Probe::Read,    Probe::Write,       Probe::WriteMessage};

TEST(Probes, AreAnsweredAndChangeNothing) {
  for (const ReceiveBuffers buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
    ProbedPair pair(buffers);
    EXPECT_EQ(pair.requester->probe_padding(), 1000u);  // with its header, a whole message
    for (int round = 0; round < 20; ++round) {
      for (const Probe probe : kAllProbes) {
        ASSERT_TRUE(pair.requester->begin_probe(probe).ok());
        ASSERT_TRUE(pair.finish());
      }
    }
    EXPECT_TRUE(pair.unchanged());
    EXPECT_EQ(pair.requester->resolved(), 120u);
    EXPECT_EQ(pair.responder->counters().messages, 100u);  // 1 + 1 + 2 + 0 + 0 + 1 each round
    EXPECT_EQ(pair.requester->counters().messages, 100u);
    EXPECT_EQ(pair.requester->counters().requests, 160u);  // 1 + 1 + 2 + 1 + 1 + 2
    EXPECT_EQ(pair.requester->counters().posts, 120u);     // what need not wait goes together
    EXPECT_EQ(pair.responder->counters().copied_bytes, 0u);
    EXPECT_EQ(pair.responder->counters().flush_calls, 0u);
  }
}

TEST(Probes, WithoutALineReadAndSendOnly) {
  ProbedPair pair(ReceiveBuffers::Dram, false);
  for (const Probe probe : {Probe::Message, Probe::LongMessage, Probe::TwoMessages, Probe::Read}) {
    ASSERT_TRUE(pair.requester->begin_probe(probe).ok());
    ASSERT_TRUE(pair.finish());
  }
  EXPECT_TRUE(pair.unchanged());
}

// A probe among messages that recovery replays must not end the replay.
TEST(Probes, DoNotEndAReplay) {
  ProbedPair pair(ReceiveBuffers::Pm);
  const Method replayed = pair.method(Primary::Send);
  ASSERT_TRUE(replays(replayed)) << replayed.name;
  ASSERT_TRUE(pair.requester->use_methods({replayed}).ok());
  pair.cpu_stands_still = true;
  ASSERT_TRUE(pair.requester->begin_probe(Probe::TwoMessages).ok());
  const UpdateItem item = pair.item(512);
  ASSERT_TRUE(pair.requester->begin(0, std::span(&item, 1)).ok());
  for (int round = 0; round < 1000; ++round) ASSERT_TRUE(pair.requester->poll().ok());
  EXPECT_EQ(pair.at(512), std::byte{0xa5});
  EXPECT_EQ(pair.recover(), 3u);  // two probes and the update behind them
  EXPECT_EQ(pair.at(512), std::byte{0});
}

// What the law of core/method_set.h is there for: both updates were durable, the older one returns.
TEST(ReplayedMessages, AreAppliedOverWhatWasWrittenSince) {
  ProbedPair pair(ReceiveBuffers::Pm);
  const std::vector<Method> methods = {pair.method(Primary::Send), pair.method(Primary::Write)};
  ASSERT_TRUE(replays(methods[0])) << methods[0].name;
  ASSERT_TRUE(pair.requester->use_methods(methods).ok()) << "for places of their own";
  pair.cpu_stands_still = true;
  for (const std::size_t method : {0u, 1u}) {
    pair.fill(std::byte(method + 1));
    const UpdateItem item = pair.item(512);
    ASSERT_TRUE(pair.requester->begin(method, std::span(&item, 1)).ok());
    ASSERT_TRUE(pair.finish());
  }
  EXPECT_EQ(pair.at(512), std::byte{2});
  EXPECT_EQ(pair.recover(), 1u);
  EXPECT_EQ(pair.at(512), std::byte{1});
  // So a WRITE does not take the place of a message, nor is it chosen beside one.
  EXPECT_EQ(may_replace({methods[0]}, {methods[1]}, pair.profile()).code(),
            ErrorCode::InvalidArgument);
  EXPECT_FALSE(may_share({{methods[0], Reuse::AfterAnother}, {methods[1], Reuse::AfterItsEnd}},
                         pair.profile())
                   .ok());
}

TEST(Probes, MethodsCanBeExchangedBetweenUpdates) {
  ProbedPair pair(ReceiveBuffers::Dram);
  const auto update = [&](std::uint64_t at) {
    const UpdateItem item = pair.item(at);
    EXPECT_TRUE(pair.requester->begin(0, std::span(&item, 1)).ok());
    EXPECT_TRUE(pair.finish());
  };
  for (const Primary primary : {Primary::Write, Primary::Send, Primary::WriteImm}) {
    const auto used = pair.requester->use_methods({pair.method(primary)});
    ASSERT_TRUE(used.ok()) << used.error().message;
    const std::uint64_t at = 1024 * (1 + static_cast<std::uint64_t>(primary));
    update(at);
    EXPECT_EQ(pair.at(at), std::byte{0});
    EXPECT_EQ(pair.at(at + 256), std::byte{0xa5});
    ASSERT_TRUE(pair.requester->begin_probe(Probe::WriteMessage).ok());
    ASSERT_TRUE(pair.finish());
  }
}

// Expect: an error, and the methods that were there go on.
TEST(Probes, MethodsThatDoNotSuitAreRefusedAndTheOldOnesKept) {
  ProbedPair pair(ReceiveBuffers::Dram);
  ASSERT_TRUE(pair.requester->use_methods({pair.method(Primary::Write)}).ok());
  Method replayed = pair.method(Primary::Send);
  replayed.requester.front().replay = true;
  EXPECT_EQ(pair.requester->use_methods({replayed}).code(), ErrorCode::Unsupported);
  const UpdateItem item = pair.item(1024);
  ASSERT_TRUE(pair.requester->begin(0, std::span(&item, 1)).ok());
  EXPECT_TRUE(pair.finish());
  EXPECT_EQ(pair.at(1024), std::byte{0});
}

}  // namespace
}  // namespace perdure::persist
