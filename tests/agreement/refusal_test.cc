// What a responder refuses for its pool, plan offers nobody and check calls nothing right: the law
// of core/method.h against a responder that is asked, for every method on every kind of file.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <tuple>
#include <vector>

#include "check/check.h"
#include "check/set_check.h"
#include "core/random.h"
#include "fabric/emu/world.h"
#include "persist/requester.h"
#include "persist/responder.h"
#include "plan/catalog.h"
#include "plan/known_unsafe.h"
#include "plan/plan.h"

namespace perdure {
namespace {

constexpr persist::ReceiveQueue kQueue{32, 1024};
constexpr std::uint64_t kPoolBytes = 16 * 1024;
constexpr std::uint64_t kItemBytes = 8;

/// Runs one update on a file whose pages the RNIC's writes leave clean, for a requester that takes
/// them for pages that it makes dirty. Returns why the responder ended the session, if it did.
class AskedResponder {
 public:
  explicit AskedResponder(const Method& method) : method_(method) {
    believed_ = {PersistenceDomain::Page, Ddio::On, ReceiveBuffers::Pm,
                 Transport::InfiniBand,   {},       WriteOrder::Ordered,
                 DmaDirties::Yes};
    believed_.capabilities = {true, true, true, true, true};
    server_ = &world_.add_machine("server", believed_);
    client_ = &world_.add_machine("client", believed_);
    region_ = &server_->add_region(kPoolBytes + kQueue.persistent_bytes());
    std::tie(near_, far_) = world_.connect(*client_, *server_);
    pool_ = *server_->register_memory(region_->bytes().first(kPoolBytes),
                                      fabric::Access::RemoteReadWrite);
    source_memory_ = *client_->register_memory(source_, fabric::Access::RemoteRead);
    acks_memory_ = *client_->register_memory(acks_, fabric::Access::RemoteReadWrite);
  }

  Result<void> run() {
    PERDURE_ASSERT(open().ok());
    std::vector<persist::UpdateItem> items;
    for (std::uint64_t item = 0; item < method_.shape.items(); ++item) {
      items.push_back({item * 64, {source_.data(), kItemBytes, source_memory_.get()}});
    }
    PERDURE_ASSERT(requester_->begin(0, items).ok());
    for (int turn = 0; turn < 2000 && requester_->resolved() == 0; ++turn) {
      (void)world_.step();
      const auto pumped = responder_->pump();
      if (!pumped.ok()) return pumped.error();
      (void)requester_->poll();
    }
    EXPECT_EQ(requester_->resolved(), 1u) << method_.name;
    return {};
  }

 private:
  Result<void> open() {
    persist::Responder::Options at_responder;
    at_responder.exported = {0, kPoolBytes};
    at_responder.queue = kQueue;
    at_responder.session = 7;
    at_responder.persistent_buffers = {kPoolBytes, kQueue.persistent_bytes()};
    at_responder.polls = at_responder.reads = true;
    ServerProfile file = believed_;
    file.dma_dirties = DmaDirties::No;
    at_responder.flushes_writes = flushes_writes(file);
    persist::Requester::Options options;
    if (writes_acks(method_)) {
      options.acks = {acks_.data(), acks_.size(), acks_memory_.get()};
      at_responder.acks = {acks_memory_->key(), acks_memory_->base(), acks_.size()};
    }
    responder_ = *persist::Responder::open(*far_, *server_, *region_, at_responder);
    options.remote = {pool_->key(), pool_->base(), kPoolBytes};
    options.queue = kQueue;
    options.session = 7;
    options.reads = true;
    options.mailbox = responder_->mailbox();
    auto requester = persist::Requester::open(*near_, *client_, believed_, {method_}, options);
    if (!requester.ok()) return requester.error();
    requester_ = std::move(*requester);
    return {};
  }

  const Method& method_;
  ServerProfile believed_;
  Random random_{5};
  fabric::emu::World world_{random_};
  fabric::emu::Machine* server_ = nullptr;
  fabric::emu::Machine* client_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::unique_ptr<fabric::Endpoint> near_;
  std::unique_ptr<fabric::Endpoint> far_;
  std::unique_ptr<fabric::Memory> pool_;
  std::array<std::byte, 64> source_{};
  std::unique_ptr<fabric::Memory> source_memory_;
  std::array<std::byte, persist::kAckBytes> acks_{};
  std::unique_ptr<fabric::Memory> acks_memory_;
  std::unique_ptr<persist::Responder> responder_;
  std::unique_ptr<persist::Requester> requester_;
};

/// Methods, each with what a responder said of it when it was asked first.
class Answers {
 public:
  /// Whether a responder of clean pages refuses it.
  bool refuses(const Method& method) {
    const auto before = std::find_if(asked_.begin(), asked_.end(),
                                     [&](const Asked& each) { return each.method == method; });
    if (before != asked_.end()) return before->refused;
    const auto answer = AskedResponder(method).run();
    if (!answer.ok()) {
      EXPECT_EQ(answer.code(), ErrorCode::Unsupported) << answer.error().message;
    }
    asked_.push_back({method, !answer.ok()});
    return !answer.ok();
  }

  std::size_t refused() const {
    return static_cast<std::size_t>(std::count_if(asked_.begin(), asked_.end(),
                                                  [](const Asked& each) { return each.refused; }));
  }
  std::size_t asked() const { return asked_.size(); }

 private:
  struct Asked {
    Method method;
    bool refused = false;
  };
  std::vector<Asked> asked_;
};

std::vector<ServerProfile> files() {
  std::vector<ServerProfile> all;
  using enum Transport;
  for (const auto transport : {InfiniBand, Roce, Iwarp, Tcp, Shm}) {
    for (const auto buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
      for (const auto order : {WriteOrder::Unknown, WriteOrder::Ordered}) {
        for (const auto dirties : {DmaDirties::No, DmaDirties::Yes}) {
          for (const bool able : {false, true}) {
            const Capabilities can{able, able, able, able, able};
            all.push_back(
                {PersistenceDomain::Page, Ddio::On, buffers, transport, can, order, dirties});
          }
        }
      }
    }
  }
  return all;
}

const std::array kLevels{Level::Received, Level::Visible, Level::Durable, Level::Committed};

std::vector<UpdateShape> shapes() {
  return {singleton(), compound(), UpdateShape{{2}}, UpdateShape{{2, 1}}, UpdateShape{{1, 1, 1}}};
}

/// All that is offered on some machine at some level, and what never is.
std::vector<Method> every_method() {
  std::vector<Method> methods;
  const auto add = [&](const Method& method) {
    if (std::find(methods.begin(), methods.end(), method) == methods.end()) {
      methods.push_back(method);
    }
  };
  using enum PersistenceDomain;
  for (const UpdateShape& shape : shapes()) {
    for (ServerProfile profile : files()) {
      for (const Level level : kLevels) {
        for (const auto domain : {Page, Dmp, Mhp, Wsp}) {
          profile.domain = domain;
          for (const auto& known : plan::known_methods(profile, {shape, level, true, true, true})) {
            add(known.method);
          }
        }
      }
    }
  }
  for (const plan::KnownUnsafe& wrong : plan::known_unsafe_methods()) {
    if (validate(wrong.method).ok()) add(wrong.method);
  }
  return methods;
}

TEST(Refusal, TheLawSaysWhatAResponderDoes) {
  Answers answers;
  ServerProfile clean{PersistenceDomain::Page, Ddio::On, ReceiveBuffers::Pm,
                      Transport::InfiniBand,   {},       WriteOrder::Ordered};
  for (const Method& method : every_method()) {
    // A mark alone is no message to any responder of Perdure.
    const bool by_mark = std::any_of(
        method.requester.begin(), method.requester.end(),
        [](const RequesterStep& step) { return step.verb == Verb::WritePolled && !step.checked; });
    if (by_mark) continue;
    EXPECT_EQ(is_refused(method, clean), answers.refuses(method)) << method.name;
  }
  EXPECT_GT(answers.refused(), 20u);
  EXPECT_GT(answers.asked() - answers.refused(), 20u);
}

TEST(Refusal, WhatIsPlannedForAFileItsResponderTakesAndTheCheckerProves) {
  Answers answers;
  std::size_t clean = 0;
  for (const UpdateShape& shape : shapes()) {
    for (const ServerProfile& profile : files()) {
      for (const Level level : kLevels) {
        for (const auto& known : plan::known_methods(profile, {shape, level, true, true, true})) {
          EXPECT_FALSE(is_refused(known.method, profile)) << known.method.name;
          if (flushes_writes(profile)) continue;
          ++clean;
          EXPECT_FALSE(answers.refuses(known.method))
              << known.method.name << ", " << to_string(level) << ", " << describe(profile);
          check::CheckOptions options;
          options.level = level;
          EXPECT_TRUE(check::check(known.method, profile, options).holds()) << known.method.name;
        }
      }
    }
  }
  EXPECT_GT(clean, 500u);
}

// For each level and verb: a method that is taken, or an answer that there is none.
TEST(Refusal, EveryVerbAndLevelIsPlannedOrRefusedByName) {
  for (const ServerProfile& profile : files()) {
    for (const Level level : kLevels) {
      for (const auto primary : {Primary::Write, Primary::WriteImm, Primary::Send}) {
        plan::Update update;
        update.shape = singleton();
        update.level = level;
        update.primary = primary;
        const auto method = plan::plan(profile, update);
        const bool durable = level == Level::Durable || level == Level::Committed;
        const bool none = durable && !flushes_writes(profile) && primary != Primary::Send;
        ASSERT_EQ(method.ok(), !none) << describe(profile) << ", " << to_string(level);
        if (none) {
          EXPECT_EQ(method.code(), ErrorCode::Unsupported);
        } else {
          EXPECT_FALSE(is_refused(*method, profile));
        }
      }
    }
  }
}

TEST(Refusal, CheckCallsNothingRightThatIsRefused) {
  ServerProfile profile{
      PersistenceDomain::Page, Ddio::On, ReceiveBuffers::Dram, Transport::Iwarp, {}};
  ServerProfile stored = profile;
  stored.transport = Transport::Tcp;
  check::CheckOptions options;
  options.level = Level::Visible;
  std::size_t asked = 0;
  for (const auto& known : plan::known_methods(stored, {singleton(), Level::Visible})) {
    EXPECT_TRUE(check::check(known.method, stored, options).holds()) << known.method.name;
    const check::Report report = check::check(known.method, profile, options);
    if (!is_refused(known.method, profile)) continue;
    ++asked;
    EXPECT_EQ(report.verdict, check::Verdict::NotModelled) << known.method.name;
    EXPECT_NE(report.reason.find("is refused"), std::string::npos) << report.reason;
  }
  EXPECT_GE(asked, 1u);
}

TEST(Refusal, CheckCallsNoSetRightWithOneThatIsRefused) {
  const ServerProfile clean{
      PersistenceDomain::Page, Ddio::On, ReceiveBuffers::Dram, Transport::Iwarp, {}};
  check::SetOptions options;
  options.level = Level::Visible;
  options.updates_max = 2;
  std::vector<Method> taken;
  for (const auto& known : plan::known_methods(clean, {singleton(), Level::Visible})) {
    taken.push_back(known.method);
  }
  ASSERT_FALSE(taken.empty());
  EXPECT_TRUE(check::check_set({{taken[0]}, {taken[0]}}, clean, options).holds());
  std::size_t refused = 0;
  ServerProfile dirtied = clean;
  dirtied.dma_dirties = DmaDirties::Yes;
  for (const auto& known : plan::known_methods(dirtied, {singleton(), Level::Visible})) {
    if (!is_refused(known.method, clean)) continue;
    const std::vector<SetMember> members{{taken[0]}, {known.method}};
    if (!check::check_set(members, dirtied, options).holds())
      continue;  // they may share no connection
    ++refused;
    const check::SetReport report = check::check_set(members, clean, options);
    EXPECT_EQ(report.verdict, check::Verdict::NotModelled) << known.method.name;
    EXPECT_NE(report.report.reason.find(known.method.name), std::string::npos)
        << report.report.reason;
  }
  EXPECT_GE(refused, 1u);
}

}  // namespace
}  // namespace perdure
