// Methods over queue pairs that lose what is posted (uc, ud), run by persist on the emulated
// fabric: messages and parts of WRITEs are lost, datagrams come in any order, connections are made
// anew when nothing more comes, and the power of the responder fails at any event. What was
// acknowledged must be there, and what a word vouches for.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check/check.h"
#include "core/bytes.h"
#include "core/random.h"
#include "fabric/emu/world.h"
#include "persist/requester.h"
#include "persist/responder.h"
#include "plan/catalog.h"
#include "testing/soak.h"

namespace perdure {
namespace {

constexpr std::uint64_t kSlotBytes = 256;  // four lines, so that tearing is seen
constexpr std::uint64_t kUpdates = 6;
constexpr std::uint64_t kWordAt = 0;
constexpr std::uint64_t kFirstSlotAt = 4096;
constexpr std::uint64_t kExportedBytes = 16 * 1024;
constexpr std::uint64_t kConnectionsMax = 1000;
constexpr std::uint64_t kIdlePollsMax = 40;  // then nothing more comes over a connection
constexpr persist::ReceiveQueue kQueue{32, 512};

bool polls(const Method& method) {
  return std::any_of(method.requester.begin(), method.requester.end(), [](const auto& step) {
    return step.kind == RequesterStep::Kind::Post && step.verb == Verb::WritePolled;
  });
}

/// One requester that brings updates to one responder, over as many connections as it takes.
class LossyRun {
 public:
  LossyRun(const ServerProfile& profile, const Method& method, std::uint64_t seed,
           fabric::emu::LinkState link, std::uint64_t window)
      : random_(seed), world_(random_), profile_(profile), method_(method), window_(window) {
    server_ = &world_.add_machine("server", profile);
    client_ = &world_.add_machine("client", profile);
    region_ = &server_->add_region(kExportedBytes);
    world_.set_link(*server_, *client_, link);
    source_.resize(kUpdates * (kSlotBytes + 8));
    server_->add_actor([this] {
      if (responder_ == nullptr) return false;
      const auto handled = responder_->pump();
      return handled.ok() && *handled != 0;
    });
  }

  /// Until all updates are acknowledged, or the power has failed.
  void go(std::uint64_t cut_after) {
    if (cut_after != 0) world_.cut_after(*server_, cut_after);
    const std::uint64_t start = world_.events();
    while (acknowledged_ < kUpdates && server_->powered() && connections_ < kConnectionsMax) {
      if (connect()) use_connection();
      disconnect();
    }
    events_ = world_.events() - start;
  }

  void recover() {
    world_.cancel_cut();
    if (server_->powered()) server_->power_cut();
    server_->power_on();
  }

  /// What the bytes violate, or nothing.
  std::string violation() const {
    for (std::uint64_t number = 1; number <= acknowledged_; ++number) {
      if (!slot_is(number)) {
        return "update " + std::to_string(number) + " was acknowledged and is lost";
      }
    }
    if (method_.shape.items() < 2) return "";
    const auto word = load<std::uint64_t>(region_->bytes().data() + kWordAt);
    if (word < acknowledged_) return "the word of an acknowledged update is lost";
    if (word > kUpdates) return "the word is torn";
    if (word != 0 && !slot_is(word)) {
      return "the word says " + std::to_string(word) + ", whose record is not there";
    }
    return "";
  }

  std::uint64_t acknowledged() const { return acknowledged_; }
  std::uint64_t connections() const { return connections_; }
  std::uint64_t events() const { return events_; }

 private:
  static std::byte pattern(std::uint64_t number, std::uint64_t at) {
    return static_cast<std::byte>(number * 37 + at * 11 + 1);
  }

  /// False: the power has failed meanwhile.
  bool connect() {
    ++connections_;
    std::tie(near_, far_) = world_.connect(*client_, *server_);
    auto memory = server_->register_memory(region_->bytes(), fabric::Access::RemoteReadWrite);
    if (!memory.ok()) return false;
    memory_ = std::move(memory).value();
    source_memory_ = *client_->register_memory(source_, fabric::Access::RemoteRead);
    persist::Responder::Options at_server;
    at_server.exported = {0, kExportedBytes};
    at_server.queue = kQueue;
    at_server.session = static_cast<std::uint32_t>(connections_);
    at_server.polls = polls(method_);
    persist::Requester::Options at_client;
    if (writes_acks(method_)) {
      acks_.fill(std::byte{0});
      acks_memory_ = *client_->register_memory(acks_, fabric::Access::RemoteReadWrite);
      at_server.acks = {acks_memory_->key(), acks_memory_->base(), acks_.size()};
      at_client.acks = {acks_.data(), acks_.size(), acks_memory_.get()};
    }
    auto responder = persist::Responder::open(*far_, *server_, *region_, at_server);
    if (!responder.ok()) return false;
    responder_ = std::move(responder).value();
    at_client.remote = {memory_->key(), memory_->base(), kExportedBytes};
    at_client.queue = kQueue;
    at_client.session = at_server.session;
    at_client.mailbox = responder_->mailbox();
    auto requester = persist::Requester::open(*near_, *client_, profile_, {method_}, at_client);
    if (!requester.ok()) return false;
    requester_ = std::move(requester).value();
    return true;
  }

  /// Until nothing more comes over it.
  void use_connection() {
    const std::uint64_t before = acknowledged_;
    std::uint64_t begun = before;
    for (std::uint64_t idle = 0; idle < kIdlePollsMax && acknowledged_ < kUpdates;) {
      if (begun < kUpdates && begun - acknowledged_ < window_ && begin(begun + 1)) ++begun;
      const std::uint64_t events = world_.events();
      const bool stands = requester_->poll().ok();
      acknowledged_ = before + requester_->resolved();
      if (!stands || !server_->powered()) break;
      idle = world_.events() == events ? idle + 1 : 0;
    }
  }

  void disconnect() {
    near_->disconnect();
    if (server_->powered()) far_->disconnect();
    requester_.reset();
    responder_.reset();
    near_.reset();
    far_.reset();
  }

  bool begin(std::uint64_t number) {
    std::byte* data = source_.data() + (number - 1) * (kSlotBytes + 8);
    for (std::uint64_t at = 0; at < kSlotBytes; ++at) data[at] = pattern(number, at);
    store(data + kSlotBytes, number);
    std::vector<persist::UpdateItem> items(method_.shape.items());
    items[0] = {kFirstSlotAt + number * kSlotBytes, {data, kSlotBytes, source_memory_.get()}};
    if (items.size() > 1) items[1] = {kWordAt, {data + kSlotBytes, 8, source_memory_.get()}};
    return requester_->begin(0, items).ok();
  }

  bool slot_is(std::uint64_t number) const {
    const std::byte* slot = region_->bytes().data() + kFirstSlotAt + number * kSlotBytes;
    for (std::uint64_t at = 0; at < kSlotBytes; ++at) {
      if (slot[at] != pattern(number, at)) return false;
    }
    return true;
  }

  Random random_;
  fabric::emu::World world_;
  const ServerProfile profile_;
  const Method method_;
  const std::uint64_t window_;
  fabric::emu::Machine* server_ = nullptr;
  fabric::emu::Machine* client_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::vector<std::byte> source_;
  std::array<std::byte, persist::kAckBytes> acks_{};
  std::unique_ptr<fabric::Memory> memory_;
  std::unique_ptr<fabric::Memory> source_memory_;
  std::unique_ptr<fabric::Memory> acks_memory_;
  std::unique_ptr<fabric::Endpoint> near_;
  std::unique_ptr<fabric::Endpoint> far_;
  std::unique_ptr<persist::Responder> responder_;
  std::unique_ptr<persist::Requester> requester_;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t connections_ = 0;
  std::uint64_t events_ = 0;
};

struct Case {
  ServerProfile profile;
  Method method;
};

std::vector<ServerProfile> profiles(QpType type) {
  std::vector<ServerProfile> all;
  using enum PersistenceDomain;
  for (const PersistenceDomain domain : {Page, Dmp, Mhp, Wsp}) {
    for (const Ddio ddio : {Ddio::On, Ddio::Off}) {
      ServerProfile profile{
          domain, ddio, ReceiveBuffers::Dram, Transport::InfiniBand, {}, WriteOrder::Ordered};
      profile.qp_type = type;
      all.push_back(profile);
    }
  }
  return all;
}

std::vector<Method> methods_of(const ServerProfile& profile, const UpdateShape& shape) {
  std::vector<Method> methods;
  for (plan::Known& known :
       plan::known_methods(profile, {shape, Level::Durable, true, true, true})) {
    methods.push_back(std::move(known.method));
  }
  return methods;
}

/// What is planned over queue pairs of a type.
std::vector<Case> cases(QpType type) {
  std::vector<Case> all;
  for (const ServerProfile& profile : profiles(type)) {
    for (const UpdateShape& shape : {singleton(), compound()}) {
      for (Method& method : methods_of(profile, shape)) all.push_back({profile, std::move(method)});
    }
  }
  return all;
}

std::string name_of(const Case& each) {
  return describe(each.profile) + ": " + each.method.name + ", " + to_string(each.method.shape);
}

class LossyMethods : public testing::TestWithParam<QpType> {};

TEST_P(LossyMethods, AllIsAcknowledgedInTheEndAndIsThere) {
  std::uint64_t again = 0;
  for (const Case& each : cases(GetParam())) {
    for (const std::uint64_t window : {std::uint64_t{1}, std::uint64_t{4}}) {
      LossyRun run(each.profile, each.method, 1, fabric::emu::LinkState::Lossy, window);
      run.go(0);
      EXPECT_EQ(run.acknowledged(), kUpdates) << name_of(each);
      again += run.connections() - 1;
      run.recover();
      EXPECT_EQ(run.violation(), "") << name_of(each);
    }
  }
  EXPECT_GT(again, cases(GetParam()).size() / 2) << "hardly anything was lost";
}

TEST_P(LossyMethods, WhereNothingIsLostOneConnectionIsEnough) {
  for (const Case& each : cases(GetParam())) {
    LossyRun run(each.profile, each.method, 2, fabric::emu::LinkState::Up, 1);
    run.go(0);
    EXPECT_EQ(run.acknowledged(), kUpdates) << name_of(each);
    EXPECT_EQ(run.connections(), 1u) << name_of(each);
  }
}

TEST_P(LossyMethods, PowerLossAtAnyTimeLosesNothingAcknowledged) {
  const std::uint64_t rounds = test::rounds(25, 1000);
  Random random(7);
  std::uint64_t cut_short = 0;
  std::uint64_t acknowledged = 0;
  for (const Case& each : cases(GetParam())) {
    LossyRun whole(each.profile, each.method, 1, fabric::emu::LinkState::Lossy, 4);
    whole.go(0);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t seed = random.next();
      LossyRun run(each.profile, each.method, seed, fabric::emu::LinkState::Lossy,
                   1 + random.below(4));
      run.go(1 + random.below(whole.events()));
      run.recover();
      ASSERT_EQ(run.violation(), "") << name_of(each) << ", seed " << seed;
      cut_short += run.acknowledged() < kUpdates ? 1 : 0;
      acknowledged += run.acknowledged();
    }
  }
  EXPECT_GT(cut_short, 0u);
  EXPECT_GT(acknowledged, 0u);
}

INSTANTIATE_TEST_SUITE_P(QueuePairs, LossyMethods, testing::Values(QpType::Uc, QpType::Ud),
                         [](const auto& each) { return std::string(to_string(each.param)); });

/// What is right over rc, can be posted over uc, and is refuted there: a WRITE is lost in front of
/// the message that vouches for it. The judge must see it fail.
TEST(LossyMethods, AWriteBeforeItsMessageLosesWhatWasAcknowledged) {
  constexpr std::uint64_t kSeeds = 2000;
  std::size_t refuted = 0;
  for (const ServerProfile& lossy : profiles(QpType::Uc)) {
    ServerProfile reliable = lossy;
    reliable.qp_type = QpType::Rc;
    for (const Method& method : methods_of(reliable, singleton())) {
      const auto& steps = method.requester;
      const bool posts = std::all_of(steps.begin(), steps.end(), [](const RequesterStep& step) {
        return step.kind != RequesterStep::Kind::Post || step.verb == Verb::Write ||
               step.verb == Verb::Send;
      });
      const bool writes = std::any_of(steps.begin(), steps.end(), [](const RequesterStep& step) {
        return step.kind == RequesterStep::Kind::Post && step.verb == Verb::Write;
      });
      if (!posts || !writes || fetches(method) || !two_sided(method)) continue;
      if (check::check(method, lossy).verdict != check::Verdict::Violated) continue;
      ++refuted;
      bool failed = false;
      for (std::uint64_t seed = 0; seed < kSeeds && !failed; ++seed) {
        LossyRun run(lossy, method, seed, fabric::emu::LinkState::Lossy, 1);
        run.go(0);
        run.recover();
        failed = !run.violation().empty();
      }
      EXPECT_TRUE(failed) << describe(lossy) << ": " << method.name;
    }
  }
  EXPECT_GT(refuted, 2u);
}

TEST(LossyMethods, WhatAQueuePairDoesNotCarryIsRefusedByName) {
  for (const QpType type : {QpType::Uc, QpType::Ud}) {
    std::size_t refused = 0;
    for (const ServerProfile& lossy : profiles(type)) {
      ServerProfile reliable = lossy;
      reliable.qp_type = QpType::Rc;
      for (const Method& method : methods_of(reliable, singleton())) {
        const auto& steps = method.requester;
        const bool carried = std::all_of(steps.begin(), steps.end(), [](const auto& step) {
          return step.kind != RequesterStep::Kind::Post || step.verb == Verb::Send ||
                 step.verb == Verb::Write || step.verb == Verb::WriteImm;
        });
        if (carried || polls(method)) continue;
        const auto compiled = persist::compile({method}, lossy, {}, kQueue);
        ASSERT_FALSE(compiled.ok()) << method.name;
        EXPECT_EQ(compiled.code(), ErrorCode::Unsupported);
        EXPECT_NE(
            compiled.error().message.find("is not carried over " + std::string(to_string(type))),
            std::string::npos)
            << compiled.error().message;
        ++refused;
      }
    }
    EXPECT_GT(refused, 0u);
  }
}

}  // namespace
}  // namespace perdure
