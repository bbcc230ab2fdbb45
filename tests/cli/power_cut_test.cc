// The two phases of `perdure probe --power-cut` around the end of a real daemon. Here no power
// fails: the daemon is killed, and the command has to say that this is less.
#include <gtest/gtest.h>

#include <poll.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <functional>

#include "core/clock.h"
#include "core/json.h"
#include "pmem/pool_format.h"
#include "testing/temporary_directory.h"
#include "tests/cli/cluster.h"

namespace perdure::cli {
namespace {

constexpr std::size_t kSlotBytes = 4096;

class PowerCutCommand : public testing::Test {
 protected:
  std::vector<std::string> phase(const std::string& phase, const std::string& transport) const {
    std::vector<std::string> words{"probe",   "--certify",   cluster_.address(0),
                                   "--pool",  "orders",      "--transport",
                                   transport, "--power-cut", phase,
                                   "--state", state_};
    if (phase == "arm") words.emplace_back("--overwrite");
    return words;
  }
  nlohmann::json state() const { return nlohmann::json::parse(read_file(state_), nullptr, false); }
  /// Until enough was acknowledged; the daemon dies then, and comes back while it is waited for, or
  /// after somebody has ended that.
  void arm_and_kill(const std::string& transport, bool back_meanwhile = false) {
    std::vector<std::string> armed = phase("arm", transport);
    armed.insert(armed.end(), {"--format", "json"});
    CommandProcess arming(armed);
    const auto await = [&](const std::function<bool(const nlohmann::json&)>& reached) {
      const Deadline patience = Deadline::after(std::chrono::seconds{60});
      while (!patience.passed()) {
        const nlohmann::json now = state();
        const bool begun = now.is_object() && now.at("checked") == false;  // not the round before
        if (begun && reached(now)) return;
        ASSERT_TRUE(arming.running()) << arming.wait().err;
        (void)::poll(nullptr, 0, 20);
      }
    };
    ASSERT_NO_FATAL_FAILURE(await([](const auto& now) { return now.at("acknowledged") > 3000; }));
    cluster_.kill(0);
    ASSERT_NO_FATAL_FAILURE(await([](const auto& now) { return now.at("ended") == true; }));
    if (back_meanwhile) {
      cluster_.start(0);
    } else {
      arming.send(SIGINT);
    }
    const Outcome outcome = arming.wait();
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "cut its power now")) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "give it its power back")) << outcome.err;
    const auto printed = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(printed, state());
    EXPECT_EQ(printed.at("ended"), true);
    EXPECT_GE(printed.at("acknowledged"), 3000);
    EXPECT_EQ(printed.contains("noticed_ns"), !back_meanwhile) << "it was there all the time";
    EXPECT_EQ(printed.at("watched"), false);
    if (!back_meanwhile) cluster_.start(0);
  }
  /// The check of this name.
  static nlohmann::json check_of(const Outcome& outcome, const std::string& name) {
    const auto report = nlohmann::json::parse(outcome.out);
    for (const auto& each : report.at("checks")) {
      if (each.at("name") == name) return each;
    }
    ADD_FAILURE() << "no " << name << " in " << outcome.out;
    return {};
  }
  /// The machine of before was another start of this one.
  void say_that_it_was_restarted() const {
    nlohmann::json said = state();
    said["boot"] = "the boot before";
    said["kernel_up_s"] = 1'000'000'000;
    said["watched"] = true;
    write_file(state_, said.dump());
  }

  Cluster cluster_;
  test::TestDirectory directory_;
  const std::string state_ = directory_.file("cut.json");
};

TEST_F(PowerCutCommand, FindsAllThatAKilledDaemonAcknowledgedAndSaysThatNoPowerWasCut) {
  for (const std::string transport : {"tcp", "shm"}) {
    ASSERT_NO_FATAL_FAILURE(arm_and_kill(transport));
    EXPECT_EQ(run(phase("arm", transport)).status, 1) << "nobody has checked it yet";
    const Outcome outcome = expect_document(phase("check", transport), "certify.schema.json");
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    const auto cut = check_of(outcome, "power-cut");
    EXPECT_EQ(cut.at("proof"), "not-proved") << cut;
    EXPECT_TRUE(contains(cut.at("finding"), "not been started anew since")) << cut;
    EXPECT_GT(cut.at("numbers").at("slots_checked"), 100);
    EXPECT_EQ(cut.at("numbers").at("slots_lost"), 0);
    EXPECT_TRUE(check_of(outcome, "dead-peer-time").at("numbers").contains("noticed_ns"));
    say_that_it_was_restarted();
    const Outcome restarted = expect_document(phase("check", transport), "certify.schema.json");
    EXPECT_EQ(check_of(restarted, "power-cut").at("proof"), "held") << restarted.out;
  }
}

TEST_F(PowerCutCommand, ADaemonThatComesBackLostNoPower) {
  ASSERT_NO_FATAL_FAILURE(arm_and_kill("tcp", true));
  EXPECT_TRUE(contains(state().at("lost_reason"), "the machine is there")) << state();
}

// Nobody has noticed yet that it has gone, and who ends the wait must not say that it is there.
TEST_F(PowerCutCommand, APeerThatIsSilentWhenItIsEndedIsNotThere) {
  bool waited_for = false;  // it may have answered all just before it stood still
  for (int round = 0; round < 10 && !waited_for; ++round) {
    if (round != 0) cluster_.start(0);
    std::filesystem::remove(state_);
    CommandProcess arming(phase("arm", "tcp"));
    const Deadline patience = Deadline::after(std::chrono::seconds{60});
    while (!patience.passed() && !(state().is_object() && state().at("acknowledged") > 1000)) {
      ASSERT_TRUE(arming.running()) << arming.wait().err;
      (void)::poll(nullptr, 0, 20);
    }
    cluster_.pause(0);
    arming.send(SIGINT);
    const Outcome outcome = arming.wait();
    waited_for = state().at("begun") > state().at("acknowledged");
    EXPECT_EQ(contains(outcome.out, "the peer is silent"), waited_for) << outcome.out;
    EXPECT_FALSE(contains(outcome.out, "still there")) << outcome.out;
    EXPECT_EQ(state().at("gone"), waited_for);
    EXPECT_FALSE(state().contains("noticed_ns"));
    cluster_.kill(0);
  }
  EXPECT_TRUE(waited_for) << "no round had an update in flight";
}

TEST_F(PowerCutCommand, WhatItKeepsIsWhatItsSchemaSays) {
  auto brief = phase("arm", "shm");
  brief.insert(brief.end(), {"--write-for-s", "1", "--primary", "send"});
  const Outcome armed = expect_document(brief, "power-cut.schema.json");
  ASSERT_EQ(armed.status, 0) << armed.err;
  const auto kept = state();
  EXPECT_GT(kept.at("acknowledged"), 0);
  EXPECT_EQ(kept.at("acknowledged"), kept.at("begun")) << "what was in flight was waited for";
  EXPECT_FALSE(kept.contains("noticed_ns")) << "nobody was lost";
  EXPECT_EQ(run(phase("check", "tcp")).status, 0);
}

TEST_F(PowerCutCommand, NamesWhatWasLost) {
  ASSERT_NO_FATAL_FAILURE(arm_and_kill("tcp"));
  cluster_.stop(0);
  std::string bytes = read_file(cluster_.pool_file(0));
  bytes[pmem::kPoolDataOffset + 2 * kSlotBytes + 100] ^= 4;
  write_file(cluster_.pool_file(0), bytes);
  cluster_.start(0);
  const Outcome outcome = expect_document(phase("check", "tcp"), "certify.schema.json");
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  const auto cut = check_of(outcome, "power-cut");
  EXPECT_EQ(cut.at("proof"), "broken") << cut;
  EXPECT_EQ(cut.at("numbers").at("bytes_lost"), 8);
  EXPECT_TRUE(contains(cut.at("finding"), "at offset 8192")) << cut;
  EXPECT_TRUE(contains(run(phase("check", "tcp")).out, "broken      power-cut"));
}

// The device goes with its peer, and the memory that is registered with it before.
TEST(PowerCutOverAnEmulatedRnic, IsArmedAndChecked) {
  const test::TestDirectory directory;
  const std::string config = directory.file("perdured.toml");
  write_file(config, "[pools]\ndirectory = \"" + directory.path() +
                         "\"\n[control]\nlisten = \"127.0.0.1:0\"\n[data]\nfabric = \"emu\"\n"
                         "listen = \"127.0.0.1:0\"\n[profile]\ndomain = \"mhp\"\n"
                         "[emulated]\ntransport = \"roce\"\n");
  server::DaemonProcess daemon({"--config", config});
  ASSERT_TRUE(daemon.await());
  const std::string address = daemon.address("control");
  ASSERT_EQ(
      run({"pool", "create", "--peers", address, "--pool", "orders", "--bytes", "1MiB"}).status, 0);
  const std::vector<std::string> common{"probe", "--certify", address, "--state",
                                        directory.file("cut")};
  auto armed = common;
  armed.insert(armed.end(),
               {"--pool", "orders", "--overwrite", "--power-cut", "arm", "--write-for-s", "1"});
  const Outcome outcome = expect_document(armed, "power-cut.schema.json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_GT(nlohmann::json::parse(outcome.out).at("acknowledged"), 0);
  auto checked = common;
  checked.insert(checked.end(), {"--power-cut", "check"});
  const Outcome found = expect_document(checked, "certify.schema.json");
  EXPECT_EQ(found.status, 0) << found.out << found.err;
  EXPECT_EQ(nlohmann::json::parse(found.out).at("label"), "emulated");
  EXPECT_TRUE(contains(run(checked).out, "Emulated: "));
}

TEST_F(PowerCutCommand, RefusesWhatItCanNotBegin) {
  auto unasked = phase("arm", "tcp");
  unasked.pop_back();
  EXPECT_EQ(run(unasked).status, 2) << "it would overwrite the pool";
  const Outcome unarmed = run(phase("check", "tcp"));
  EXPECT_EQ(unarmed.status, 1) << "there is no state";
  EXPECT_TRUE(contains(unarmed.err, state_)) << unarmed.err;
  write_file(state_, "{}");
  EXPECT_EQ(run(phase("arm", "tcp")).status, 1) << "that is no state";
  EXPECT_EQ(
      run({"probe", "--certify", cluster_.address(0), "--power-cut", "arm", "--overwrite"}).status,
      2)
      << "no state file";
}

}  // namespace
}  // namespace perdure::cli
