// What is acknowledged before a power cut is looked for after it, in an emulated world whose power
// really fails: on machines that keep what they promise, on one that was promised too much of, and
// on media that lose something.
#include "client/power_cut.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "core/random.h"
#include "pmem/pool_format.h"
#include "testing/world_server.h"

namespace perdure::client {
namespace {

const std::string kCutPool = "scratch";
constexpr std::uint64_t kCutPoolBytes = 256 * 1024;

ServerProfile machine(PersistenceDomain domain, Transport transport) {
  ServerProfile profile;
  profile.domain = domain;
  profile.transport = transport;
  return profile;
}

class PowerCut {
 public:
  explicit PowerCut(const ServerProfile& profile, std::uint64_t pool_bytes = kCutPoolBytes,
                    std::uint64_t seed = 7)
      : random_(seed), world_(random_), client_(world_.add_machine("client", profile)) {
    server_ =
        *test::WorldServer::start(world_, "server", profile, {kCutPool, pool_bytes, {32, 2048}});
    options_.pool = kCutPool;
    options_.start = {"first", 5000, "here", 100};
    options_.clock = &world_.clock();
    options_.boot_now = [] { return PeerStart{"second", 20, "here", 400}; };
    options_.save = [this](const PowerCutRun& run) -> Result<void> {
      saved_.push_back(run);
      return {};
    };
  }

  /// Writes; when the peer was asked for `updates` looks, `happens` does.
  Result<PowerCutRun> arm(std::uint64_t looks, const std::function<bool()>& happens) {
    options_.stop = [this, looks, happens, count = std::uint64_t{0}]() mutable {
      world_.tick(std::chrono::milliseconds(1));
      return ++count == looks && happens();
    };
    return arm_power_cut(server_->peer(client_), options_);
  }
  /// The power fails under the writes, and comes back.
  PowerCutRun cut(std::uint64_t looks = 2000) {
    const auto run = arm(looks, [this] {
      server_->lose_power();
      return false;
    });
    EXPECT_TRUE(run.ok()) << run.error().message;
    const auto back = server_->start_again();
    EXPECT_TRUE(back.ok()) << back.error().message;
    options_.start = {"second", 20, "here", 400};
    return run.ok() ? *run : PowerCutRun{};
  }

  CertifyCheck check(PowerCutRun& run) {
    const auto peer = server_->peer(client_);
    const auto found = check_power_cut(*peer, run, options_);
    EXPECT_TRUE(found.ok()) << found.error().message;
    if (!found.ok()) return {};
    EXPECT_EQ(found->checks.size(), 2u);
    EXPECT_EQ(found->checks[1].name, "dead-peer-time");
    return found->checks[0];
  }
  /// What is said of the time in which its loss was noticed.
  std::string dead_peer(PowerCutRun& run) {
    const auto peer = server_->peer(client_);
    const auto found = check_power_cut(*peer, run, options_);
    return found.ok() ? found->checks[1].finding : found.error().message;
  }
  /// A bit of the slot's first word decays.
  void damage(std::uint64_t slot) {
    server_->region().flip_bit(pmem::kPoolDataOffset + slot * kPowerCutSlotBytes, 3);
  }

  PowerCutOptions& options() { return options_; }
  test::WorldServer& server() { return *server_; }
  fabric::Device& client() { return client_; }
  const std::vector<PowerCutRun>& saved() const { return saved_; }

 private:
  Random random_;
  fabric::emu::World world_;
  fabric::emu::Machine& client_;
  std::unique_ptr<test::WorldServer> server_;
  PowerCutOptions options_;
  std::vector<PowerCutRun> saved_;
};

double figure(const CertifyCheck& check, const std::string& name) {
  for (const auto& [each, value] : check.numbers) {
    if (each == name) return value;
  }
  ADD_FAILURE() << check.name << " has no " << name;
  return -1;
}

TEST(PowerCut, WhatWasAcknowledgedIsThereOnEveryMachineThatKeepsItsPromise) {
  for (const auto domain : {PersistenceDomain::Page, PersistenceDomain::Dmp, PersistenceDomain::Mhp,
                            PersistenceDomain::Wsp}) {
    for (const auto transport : {Transport::Roce, Transport::Iwarp, Transport::Tcp}) {
      PowerCut cut(machine(domain, transport));
      PowerCutRun run = cut.cut();
      EXPECT_TRUE(run.ended);
      EXPECT_GT(run.acknowledged, 100u);
      EXPECT_TRUE(run.noticed_ns.has_value());
      const CertifyCheck check = cut.check(run);
      EXPECT_EQ(check.proof, Proof::Held)
          << to_string(domain) << " " << to_string(transport) << ": " << check.finding;
      EXPECT_EQ(figure(check, "slots_checked"), 64);
      EXPECT_EQ(run.cuts_checked, 1u);
      (void)cut.check(run);
      EXPECT_EQ(run.cuts_checked, 1u) << "a look more is no cut more";
    }
  }
}

// Its slots are written again and again: by a record's method, a WRITE alone, one of before could
// be placed over the last one.
TEST(PowerCut, WritesThatKeepNoOrderAreEachFlushed) {
  ServerProfile profile = machine(PersistenceDomain::Wsp, Transport::Roce);
  profile.write_order = WriteOrder::Unknown;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    PowerCut cut(profile, kPowerCutSlotsMin * kPowerCutSlotBytes, seed);
    cut.options().primary = Primary::Write;
    PowerCutRun run = cut.cut();
    ASSERT_GT(run.acknowledged, 100u);
    EXPECT_EQ(run.methods, "write-flush");
    EXPECT_GE(cut.server().machine().counters().operations, 2 * run.acknowledged);
    const CertifyCheck check = cut.check(run);
    EXPECT_EQ(check.proof, Proof::Held) << seed << ": " << check.finding;
  }
}

// "ddio = off" is declared of a machine whose RNIC writes into the caches.
TEST(PowerCut, AMachineThatWasPromisedTooMuchOfIsFoundOut) {
  ServerProfile profile = machine(PersistenceDomain::Dmp, Transport::Roce);
  profile.ddio = Ddio::On;
  PowerCut cut(profile);
  cut.server().declare(Ddio::Off, WriteOrder::Unknown);
  ASSERT_TRUE(cut.server().start_again().ok());
  cut.options().primary = Primary::Write;
  PowerCutRun run = cut.cut();
  ASSERT_GT(run.acknowledged, 100u);
  const CertifyCheck check = cut.check(run);
  EXPECT_EQ(check.proof, Proof::Broken) << check.finding;
  EXPECT_GT(figure(check, "slots_lost"), 0);
  EXPECT_EQ(run.cuts_checked, 0u);
}

TEST(PowerCut, WhatIsDamagedIsNamedWhateverTheDamage) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  PowerCutRun run = cut.cut();
  ASSERT_GT(run.acknowledged, 128u);
  cut.damage(5);
  const CertifyCheck check = cut.check(run);
  EXPECT_EQ(check.proof, Proof::Broken) << check.finding;
  EXPECT_EQ(figure(check, "slots_lost"), 1);
  EXPECT_EQ(figure(check, "bytes_lost"), 8);
  EXPECT_NE(check.finding.find("at offset 20480"), std::string::npos) << check.finding;
  EXPECT_NE(check.finding.find("of no update that was written"), std::string::npos);
}

TEST(PowerCut, AnOlderMediumHasTheUpdatesOfBefore) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  std::vector<std::byte> older;
  cut.options().write_for = std::chrono::seconds(3);
  const auto run = cut.arm(1500, [&] {
    older = cut.server().region().durable();
    return false;
  });
  (void)run;
  PowerCutRun armed = cut.saved().back();
  ASSERT_TRUE(armed.ended) << "it ends by itself";
  ASSERT_TRUE(cut.server().start_with(older).ok());
  cut.options().start = {"second", 20, "here", 400};
  const CertifyCheck check = cut.check(armed);
  EXPECT_EQ(check.proof, Proof::Broken) << check.finding;
  EXPECT_GT(figure(check, "slots_lost"), 1);
}

TEST(PowerCut, WithoutARestartNothingIsProved) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  PowerCutRun run = cut.cut();
  cut.options().start.boot = run.start.boot;
  const CertifyCheck check = cut.check(run);
  EXPECT_EQ(check.proof, Proof::NotProved) << check.finding;
  EXPECT_EQ(figure(check, "cut_while_writing"), 0);
  EXPECT_EQ(run.cuts_checked, 0u);
}

// A container has a boot id of its own, and the kernel of its host.
TEST(PowerCut, AContainerThatWasStartedAnewHadNoPowerCut) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  PowerCutRun run = cut.cut();
  const std::array<std::optional<std::uint64_t>, 3> answers = {5300, 5298, std::nullopt};
  for (const std::optional<std::uint64_t>& up_s : answers) {
    cut.options().start.up_s = up_s;
    const CertifyCheck check = cut.check(run);
    EXPECT_EQ(check.proof, Proof::NotProved) << check.finding;
    EXPECT_EQ(figure(check, "cut_while_writing"), 0);
    EXPECT_EQ(run.cuts_checked, 0u);
    run.checked = false;
    EXPECT_NE(cut.dead_peer(run).find("not been started anew"), std::string::npos);
    run.checked = false;
  }
  cut.options().start.up_s = 20;
  EXPECT_EQ(cut.check(run).proof, Proof::Held);
}

// Asked 300 s later, unless said.
TEST(PeerStart, IsAnotherOneWhereTheKernelIsUpForTooShort) {
  const PeerStart before{"first", 50, "here", 1000};
  const auto restarted = [&](std::uint64_t up_s, const char* asked_on, std::uint64_t asked_s) {
    return started_anew(before, {"second", up_s, asked_on, asked_s}).why.empty();
  };
  EXPECT_TRUE(restarted(49, "here", 1300)) << "shorter than before";
  EXPECT_TRUE(restarted(49, "elsewhere", 3)) << "whoever asks";
  EXPECT_TRUE(restarted(200, "here", 1300)) << "shorter than it took";
  EXPECT_FALSE(restarted(295, "here", 1300)) << "asking takes time";
  EXPECT_FALSE(restarted(350, "here", 1300)) << "the same kernel";
  EXPECT_FALSE(restarted(200, "elsewhere", 1300)) << "how long it took is not known";
  EXPECT_FALSE(restarted(200, "here", 900)) << "this machine's time went backwards";
  EXPECT_FALSE(restarted(86'400 * 30 + 50 - 1000, "here", 86'400 * 30 + 1000))
      << "after a month clocks have drifted apart";
  EXPECT_TRUE(restarted(86'400 * 29, "here", 86'400 * 30 + 1000));
  using enum StartedAnew::Answer;
  EXPECT_EQ(started_anew(before, {"first", 20, "here", 1300}).answer, No);
  EXPECT_EQ(started_anew(before, {"second", 350, "here", 1300}).answer, No);
  EXPECT_EQ(started_anew(before, {"second", 200, "elsewhere", 1300}).answer, NotKnown);
  EXPECT_EQ(started_anew(before, {"second", 55, "here", 1005}).answer, NotKnown) << "too soon";
  EXPECT_EQ(started_anew({"first", {}, "here", 1000}, {"second", 20, "here", 1300}).answer,
            NotKnown);
  // Without an id a machine that stood still looks as if it had been started anew.
  EXPECT_EQ(started_anew({"unknown", 50, "here", 1000}, {"unknown", 200, "here", 1300}).answer,
            NotKnown);
  EXPECT_EQ(started_anew({"unknown", 50, "here", 1000}, {"unknown", 40, "here", 1300}).answer, Yes);
}

TEST(PowerCut, NothingAcknowledgedIsNothingTried) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  PowerCutRun run = cut.cut(1);
  run.acknowledged = 0;
  EXPECT_EQ(cut.check(run).proof, Proof::NotProved);
}

// The process that writes dies too; its state is older than its last updates.
TEST(PowerCut, AStateThatIsOlderThanTheLastUpdatesIsEnough) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  const PowerCutRun last = cut.cut();
  PowerCutRun run;
  for (const PowerCutRun& each : cut.saved()) {
    if (!each.ended && each.acknowledged > 100 && run.acknowledged == 0) run = each;
  }
  ASSERT_GT(run.acknowledged, 100u);
  ASSERT_GT(last.acknowledged, run.acknowledged);
  const CertifyCheck check = cut.check(run);
  EXPECT_EQ(check.proof, Proof::NotProved) << "whether it wrote until the cut nobody knows";
  EXPECT_EQ(figure(check, "slots_lost"), 0);
  cut.damage(9);
  EXPECT_EQ(cut.check(run).proof, Proof::Broken);
}

// A medium that takes no notice of flushes keeps all of it, if it has the time.
TEST(PowerCut, WritingThatHasEndedBeforeTheCutProvesNothing) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  auto run = cut.arm(500, [] { return true; });
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(cut.server().start_again().ok());
  cut.options().start = {"second", 20, "here", 400};
  const CertifyCheck check = cut.check(*run);
  EXPECT_EQ(check.proof, Proof::NotProved) << check.finding;
  EXPECT_EQ(figure(check, "cut_while_writing"), 0);
  EXPECT_NE(check.finding.find("while it was written"), std::string::npos) << check.finding;
  EXPECT_EQ(run->cuts_checked, 0u);
}

// A link that breaks and heals while nobody looks; or nobody is back for longer than is waited.
TEST(PowerCut, ALossAfterWhichNobodyWatchedProvesNothing) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  int asked = 0;
  for (const bool somebody_asks : {false, true}) {
    cut.options().start = {"first", 5000, "here", 100};
    cut.options().boot_now = nullptr;
    if (somebody_asks) {
      cut.options().boot_now = [&] {
        ++asked;
        return std::optional<PeerStart>();
      };
    }
    cut.options().watch_for = std::chrono::milliseconds(5);
    PowerCutRun run = cut.cut();
    EXPECT_TRUE(run.noticed_ns.has_value());
    EXPECT_TRUE(run.ended);
    const CertifyCheck check = cut.check(run);
    EXPECT_EQ(check.proof, Proof::NotProved) << check.finding;
    EXPECT_NE(check.finding.find("until it answered again"), std::string::npos) << check.finding;
    EXPECT_EQ(run.cuts_checked, 0u);
    cut.options().seed++;
  }
  EXPECT_GT(asked, 1);
}

// The daemon is killed and comes back; the power is cut when all has been written back by itself.
TEST(PowerCut, ASessionThatEndsWhileTheMachineIsThereProvesNothing) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  const PeerStart same{"first", 5010, "here", 110};
  const PeerStart container{"second", 5300, "here", 400};  // started anew, on the kernel of before
  const PeerStart cut_off{"second", 20, "here", 400};
  const PeerStart silent_of_its_age{"second", std::nullopt, "here", 400};
  for (const PeerStart& there : {same, container, silent_of_its_age, cut_off}) {
    cut.options().start = {"first", 5000, "here", 100};
    cut.options().boot_now = [there] { return there; };
    PowerCutRun run = cut.cut();
    const bool was_cut = there == cut_off;
    const bool may_be = there == silent_of_its_age;
    EXPECT_EQ(run.gone, was_cut || may_be);
    EXPECT_EQ(run.watched, was_cut);
    EXPECT_EQ(run.noticed_ns.has_value(), was_cut || may_be);
    EXPECT_NE(run.lost_reason, "");
    const CertifyCheck check = cut.check(run);  // after a power cut, of later
    EXPECT_EQ(check.proof, was_cut ? Proof::Held : Proof::NotProved) << check.finding;
    cut.options().seed++;
  }
}

// Where the boot's id can not be read, it is the same word for each.
TEST(PowerCut, APeerWhoseBootHasNoIdIsToldByItsAge) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  cut.options().start = {"unknown", 5000, "here", 100};
  cut.options().boot_now = [] { return PeerStart{"unknown", 20, "here", 400}; };
  PowerCutRun run = cut.cut();
  EXPECT_TRUE(run.watched);
  cut.options().start = {"unknown", 5300, "here", 400};
  EXPECT_EQ(cut.check(run).proof, Proof::NotProved);
  cut.options().start = {"unknown", 20, "here", 400};
  EXPECT_EQ(cut.check(run).proof, Proof::Held);
}

// It is asked from elsewhere first, and from the machine that armed afterwards.
TEST(PowerCut, ACutIsCountedWhenItIsProvedHoweverOftenItWasNot) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  PowerCutRun run = cut.cut();
  cut.options().start = {"second", 5020, "elsewhere", 3};
  EXPECT_EQ(cut.check(run).proof, Proof::NotProved);
  EXPECT_EQ(run.cuts_checked, 0u);
  cut.options().start = {"second", 20, "here", 400};
  for (int looks = 0; looks < 2; ++looks) {
    EXPECT_EQ(cut.check(run).proof, Proof::Held);
    EXPECT_EQ(run.cuts_checked, 1u);
  }
}

// As a reboot leaves it.
TEST(PowerCut, APoolThatWasClosedBeforeProvesNothing) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  PowerCutRun run = cut.cut();
  ASSERT_TRUE(cut.server().service().close_pool(kCutPool).ok());
  ASSERT_TRUE(cut.server().start_again().ok());
  const CertifyCheck check = cut.check(run);
  EXPECT_EQ(check.proof, Proof::NotProved) << check.finding;
  EXPECT_NE(check.finding.find("closed the pool"), std::string::npos) << check.finding;
}

TEST(PowerCut, CutsCountInARowOfOnePoolAndOneMethod) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  cut.options().primary = Primary::Send;
  std::uint64_t seed = 1;
  const auto next = [&](const PowerCutRun& before) {
    cut.options().before = before;
    cut.options().seed = ++seed;
    cut.options().start = {"first", 5000, "here", 100};
    return cut.cut();
  };
  PowerCutRun run = next({});
  EXPECT_EQ(cut.check(run).proof, Proof::Held);
  run = next(run);
  EXPECT_EQ(cut.check(run).proof, Proof::Held);
  EXPECT_EQ(run.cuts_checked, 2u);
  PowerCutRun lost = next(run);
  EXPECT_EQ(lost.cuts_checked, 2u);
  cut.damage(5);
  EXPECT_EQ(cut.check(lost).proof, Proof::Broken);
  EXPECT_EQ(lost.cuts_checked, 0u) << "not in a row any more";
  cut.options().primary = Primary::Write;
  EXPECT_EQ(next(run).cuts_checked, 0u) << "by another method";
  cut.options().primary = Primary::Send;
  run.uuid = "another pool's";
  EXPECT_EQ(next(run).cuts_checked, 0u);
}

TEST(PowerCut, AnotherWritersBytesAreNoLoss) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  PowerCutRun run = cut.cut();
  cut.options().seed = 2;
  const auto other = cut.arm(500, [] { return true; });
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_FALSE(other->noticed_ns.has_value());
  EXPECT_EQ(other->begun, other->acknowledged) << "what is in flight at the end is waited for";
  const CertifyCheck check = cut.check(run);
  EXPECT_EQ(check.proof, Proof::NotProved) << check.finding;
}

TEST(PowerCut, AnotherPoolIsNotTheOneThatWasWritten) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce));
  PowerCutRun run = cut.cut();
  ASSERT_TRUE(cut.server().start_with({}).ok());
  const auto peer = cut.server().peer(cut.client());
  EXPECT_EQ(check_power_cut(*peer, run, cut.options()).code(), ErrorCode::NotFound);
  EXPECT_FALSE(run.checked);
}

TEST(PowerCut, NeedsAPoolThatIsLargeEnough) {
  PowerCut cut(machine(PersistenceDomain::Mhp, Transport::Roce), 64 * 1024);
  EXPECT_EQ(cut.arm(1, [] { return true; }).code(), ErrorCode::InvalidArgument);
  EXPECT_TRUE(cut.saved().empty()) << "nothing was written";
}

TEST(PowerCutState, ComesBackAsItWasAndNothingElseDoes) {
  PowerCutRun run;
  run.peer = "10.2.0.1:7470";
  run.pool = kCutPool;
  run.uuid = "uuid";
  run.start = {"boot", 1'700'000, "here", 12};
  run.gone = true;
  run.watched = true;
  run.epoch = 9;
  run.seed = ~std::uint64_t{0};
  run.slots = 64;
  run.lengths = {64, 1024, 4096};
  run.methods = "write-read";
  run.acknowledged = 70;
  run.begun = 80;
  run.ended = true;
  run.counted = true;
  for (const bool noticed : {false, true}) {
    if (noticed) run.noticed_ns = 123;
    const auto back = read_state(write_state(run));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, run);
  }
  PowerCutRun wrong = run;
  wrong.begun = 60;
  EXPECT_EQ(read_state(write_state(wrong)).code(), ErrorCode::InvalidArgument);
  wrong = run;
  wrong.lengths[2] = 12;
  EXPECT_EQ(read_state(write_state(wrong)).code(), ErrorCode::InvalidArgument);
  for (const char* text : {"", "{}", "[]", "{\"format\": 1}"}) {
    EXPECT_FALSE(read_state(text).ok()) << text;
  }
}

TEST(DeadPeerTime, IsHeldAgainstWhatTheConnectionWasAskedFor) {
  fabric::EndpointOptions asked;
  const CertifyCheck unseen = dead_peer_time(Transport::Roce, asked, std::nullopt, true);
  EXPECT_EQ(unseen.proof, Proof::NotHere);
  EXPECT_NEAR(figure(unseen, "expected_ns"), 7 * 0.537e9, 0.01e9);
  EXPECT_EQ(dead_peer_time(Transport::Roce, asked, 4'000'000'000, true).proof, Proof::Held);
  EXPECT_EQ(dead_peer_time(Transport::Roce, asked, 60'000'000'000, true).proof, Proof::Broken);
  asked.ack_timeout = 14;
  EXPECT_NEAR(figure(dead_peer_time(Transport::Roce, asked, 1, true), "expected_ns"), 7 * 67.1e6,
              1e6);
  EXPECT_EQ(dead_peer_time(Transport::Roce, asked, 4'000'000'000, true).proof, Proof::Broken);
  EXPECT_EQ(dead_peer_time(Transport::Tcp, asked, 60'000'000'000, true).proof, Proof::NotProved);
}

TEST(DeadPeerTime, OfAPeerThatLivesOrEndsTheConnectionNothingIsProved) {
  const fabric::EndpointOptions asked;
  const auto proof = [&](std::uint64_t noticed_ns, bool restarted) {
    return dead_peer_time(Transport::Roce, asked, noticed_ns, restarted).proof;
  };
  EXPECT_EQ(proof(4'000'000'000, false), Proof::NotProved);
  EXPECT_EQ(proof(60'000'000'000, false), Proof::NotProved);
  EXPECT_EQ(proof(4'000'000, true), Proof::NotProved);
  EXPECT_EQ(proof(600'000'000, true), Proof::Held);
}

}  // namespace
}  // namespace perdure::client
