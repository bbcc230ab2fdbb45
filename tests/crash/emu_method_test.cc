// The emulated fabric against the checker: both know the abstract machine of design section 4, one
// by exploring it, one by living it. Methods are played on it step by step, straight from their
// description, with the power cut at random events; a method that the checker proves must never be
// seen to fail, and one that the checker refutes must be seen to fail within some seeds.
#include "check/check.h"
#include "check/mutate.h"
#include "plan/catalog.h"
#include "plan/known_unsafe.h"
#include "plan/paper.h"
#include "plan/render.h"
#include "testing/soak.h"
#include "tests/crash/emu_played_method.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

namespace perdure {
namespace {

using crash::PlayedMethod;
using crash::PlayedRnic;

/// Of the weaker methods that the checker refutes, so many are played: it refutes them all, and
/// what is looked for here is that it and this world agree.
constexpr std::uint64_t kWrongOneIn = 3;

/// The first broken promise in `seeds` worlds, or nothing. Every third run goes on until the
/// update was acknowledged, the others are cut at a random event before.
std::optional<std::string> find_failure(const ServerProfile& profile, const Method& method,
                                        std::uint64_t seeds, std::uint64_t* acknowledged = nullptr,
                                        const PlayedRnic& rnic = {}) {
  std::uint64_t events_max = 1;
  Random cuts(1);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    PlayedMethod played(seed, profile, method, rnic);
    const bool whole = seed % 3 == 0;
    played.play(whole ? 0 : 1 + cuts.below(events_max));
    if (whole) events_max = std::max(events_max, played.events());
    if (whole && !played.acknowledged()) return "never acknowledged";
    if (acknowledged != nullptr && played.acknowledged()) ++*acknowledged;
    if (auto broken = played.broken_promise()) return *broken + ", seed " + std::to_string(seed);
  }
  return std::nullopt;
}

TEST(EmuMethods, WhatIsProvedNeverFails) {
  const std::uint64_t seeds = test::rounds(80, 1000);
  for (Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (const plan::Scenario& scenario : plan::paper_methods(transport)) {
      std::uint64_t acknowledged = 0;
      const auto failure = find_failure(scenario.profile, scenario.method, seeds, &acknowledged);
      EXPECT_EQ(failure.value_or(""), "") << describe(scenario);
      // A world in which nothing is ever acknowledged would prove nothing.
      EXPECT_GE(acknowledged, seeds / 3) << describe(scenario);
    }
  }
}

TEST(EmuMethods, WhatIsRefutedFailsWithinSomeSeeds) {
  constexpr std::uint64_t kSeeds = 10'000;
  std::size_t refuted = 0;
  for (Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (const plan::Scenario& scenario : plan::paper_methods(transport)) {
      for (const check::Mutant& weaker : check::mutants(scenario.method)) {
        if (check::check(weaker.method, scenario.profile).verdict != check::Verdict::Violated) {
          continue;
        }
        if (!test::in_turn(refuted++, kWrongOneIn)) continue;
        EXPECT_TRUE(find_failure(scenario.profile, weaker.method, kSeeds).has_value())
            << describe(scenario) << ": " << weaker.what;
      }
    }
  }
  EXPECT_GT(refuted, 500u);
}

TEST(EmuMethods, IwarpBreaksExactlyTheOneSidedMethodsOfWsp) {
  constexpr std::uint64_t kSeeds = 300;
  for (const plan::Scenario& scenario : plan::paper_methods(Transport::InfiniBand)) {
    ServerProfile iwarp = scenario.profile;
    iwarp.transport = Transport::Iwarp;
    const bool fails = find_failure(iwarp, scenario.method, kSeeds).has_value();
    EXPECT_EQ(fails, !check::check(scenario.method, iwarp).holds()) << describe(scenario);
  }
}

/// What Perdure runs: files whose pages an RNIC leaves clean or makes dirty, and WRITEs placed in
/// order or in any.
TEST(EmuMethods, WhatIsPlannedNeverFailsWhateverTheRnicDoes) {
  const std::uint64_t seeds = test::rounds(50, 1000);
  for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
    for (const plan::Scenario& scenario : plan::all_scenarios(
             plan::Source::Best, {Transport::InfiniBand, Transport::Iwarp}, order)) {
      std::uint64_t acknowledged = 0;
      const auto failure = find_failure(scenario.profile, scenario.method, seeds, &acknowledged);
      EXPECT_EQ(failure.value_or(""), "") << describe(scenario) << ": " << scenario.method.name;
      EXPECT_GE(acknowledged, seeds / 3) << describe(scenario);
    }
  }
}

/// Machines whose RNIC has what none has yet.
std::vector<ServerProfile> machines_to_come() {
  std::vector<ServerProfile> machines;
  using enum PersistenceDomain;
  for (const PersistenceDomain domain : {Dmp, Mhp, Wsp}) {
    for (const Ddio ddio : {Ddio::On, Ddio::Off}) {
      for (const ReceiveBuffers buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
        for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
          for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
            ServerProfile machine{domain, ddio, buffers, transport, {}, order};
            machine.capabilities.ordered_persist = machine.capabilities.send_flush = true;
            machines.push_back(machine);
          }
        }
      }
    }
  }
  return machines;
}

/// What is planned for them and for no others.
std::vector<Method> methods_to_come(const ServerProfile& machine, const UpdateShape& shape) {
  std::vector<Method> methods;
  for (const plan::Known& known : plan::known_methods(machine, {shape, Level::Durable, true})) {
    const auto& steps = known.method.requester;
    const bool asks = std::any_of(steps.begin(), steps.end(), [](const RequesterStep& step) {
      return step.kind == RequesterStep::Kind::Post &&
             (step.verb == Verb::WritePersist || step.verb == Verb::SendFlush);
    });
    if (asks) methods.push_back(known.method);
  }
  return methods;
}

TEST(EmuMethods, PwriteAndSflushNeverFailWhereTheyAreProved) {
  const std::uint64_t seeds = test::rounds(60, 1000);
  std::size_t played = 0;
  for (const ServerProfile& machine : machines_to_come()) {
    for (const UpdateShape& shape : {singleton(), compound(), UpdateShape{{2, 1, 1}}}) {
      for (const Method& method : methods_to_come(machine, shape)) {
        ++played;
        EXPECT_TRUE(check::check(method, machine).holds()) << method.name << describe(machine);
        std::uint64_t acknowledged = 0;
        const auto failure = find_failure(machine, method, seeds, &acknowledged);
        EXPECT_EQ(failure.value_or(""), "") << describe(machine) << ": " << method.name;
        EXPECT_GE(acknowledged, seeds / 3) << describe(machine) << ": " << method.name;
      }
    }
  }
  EXPECT_GT(played, 100u);
}

TEST(EmuMethods, WeakerOnesThanPwriteAndSflushFailWhereTheyAreRefuted) {
  constexpr std::uint64_t kSeeds = 10'000;
  std::size_t refuted = 0;
  for (const ServerProfile& machine : machines_to_come()) {
    for (const UpdateShape& shape : {singleton(), compound()}) {
      for (const Method& method : methods_to_come(machine, shape)) {
        for (const check::Mutant& weaker : check::mutants(method)) {
          const auto verdict = check::check(weaker.method, machine).verdict;
          if (verdict != check::Verdict::Violated) continue;
          if (!test::in_turn(refuted++, kWrongOneIn)) continue;
          EXPECT_TRUE(find_failure(machine, weaker.method, kSeeds).has_value())
              << describe(machine) << ", " << method.name << ": " << weaker.what;
        }
      }
    }
  }
  EXPECT_GT(refuted, 200u);
}

/// Those whose responder finds messages by polling, on machines where they are right.
std::vector<Method> polled_methods(const ServerProfile& machine, const UpdateShape& shape) {
  std::vector<Method> methods;
  for (const plan::Known& known :
       plan::known_methods(machine, {shape, Level::Durable, true, true})) {
    const auto& steps = known.method.requester;
    const bool polls = std::any_of(steps.begin(), steps.end(), [](const RequesterStep& step) {
      return step.kind == RequesterStep::Kind::Post && step.verb == Verb::WritePolled;
    });
    if (polls) methods.push_back(known.method);
  }
  return methods;
}

TEST(EmuMethods, PolledMessagesLoseNothingWhereTheyAreProvedAndSomethingWhereNot) {
  const std::uint64_t seeds = test::rounds(60, 1000);
  constexpr std::uint64_t kSeedsOfWrong = 10'000;
  std::size_t refuted = 0;
  for (const ServerProfile& machine : machines_to_come()) {
    if (machine.receive_buffers == ReceiveBuffers::Pm) continue;  // it uses none
    ServerProfile ordered = machine;
    ordered.write_order = WriteOrder::Ordered;
    for (const UpdateShape& shape : {singleton(), compound()}) {
      // Of the ordered machine: without order some of them are wrong.
      for (const Method& method : polled_methods(ordered, shape)) {
        const bool right = check::check(method, machine).holds();
        refuted += right ? 0 : 1;
        const auto failure = find_failure(machine, method, right ? seeds : kSeedsOfWrong);
        EXPECT_EQ(failure.has_value(), !right)
            << describe(machine) << ": " << method.name << ": " << failure.value_or("");
        if (!right || machine != ordered) continue;
        for (const check::Mutant& weaker : check::mutants(method)) {
          const auto verdict = check::check(weaker.method, machine).verdict;
          if (verdict != check::Verdict::Violated) continue;
          if (!test::in_turn(refuted++, kWrongOneIn)) continue;
          EXPECT_TRUE(find_failure(machine, weaker.method, kSeedsOfWrong).has_value())
              << describe(machine) << ", " << method.name << ": " << weaker.what;
        }
      }
    }
  }
  EXPECT_GT(refuted, 50u);
}

/// Those whose responder READs from the requester or writes its acknowledgement there.
std::vector<Method> methods_that_post_back(const ServerProfile& machine, const UpdateShape& shape) {
  std::vector<Method> methods;
  for (plan::Known& known :
       plan::known_methods(machine, {shape, Level::Durable, true, false, true})) {
    const bool posts = fetches(known.method) || writes_acks(known.method);
    if (posts) methods.push_back(std::move(known.method));
  }
  return methods;
}

TEST(EmuMethods, RespondersThatPostLoseNothingWhereTheyAreProvedAndSomethingWhereNot) {
  const std::uint64_t seeds = test::rounds(60, 1000);
  constexpr std::uint64_t kSeedsOfWrong = 10'000;
  std::size_t played = 0;
  std::size_t refuted = 0;
  for (const ServerProfile& machine : machines_to_come()) {
    if (machine.receive_buffers == ReceiveBuffers::Pm) continue;  // nothing is replayed
    for (const UpdateShape& shape : {singleton(), compound()}) {
      for (const Method& method : methods_that_post_back(machine, shape)) {
        ++played;
        EXPECT_TRUE(check::check(method, machine).holds()) << method.name << describe(machine);
        std::uint64_t acknowledged = 0;
        const auto failure = find_failure(machine, method, seeds, &acknowledged);
        EXPECT_EQ(failure.value_or(""), "") << describe(machine) << ": " << method.name;
        EXPECT_GE(acknowledged, seeds / 3) << describe(machine) << ": " << method.name;
        for (const check::Mutant& weaker : check::mutants(method)) {
          const auto verdict = check::check(weaker.method, machine);
          const bool loses = verdict.verdict == check::Verdict::Violated &&
                             verdict.property != check::Property::SometimesAcknowledged &&
                             verdict.property != check::Property::AlwaysCompletes;
          if (!loses) continue;
          if (!test::in_turn(refuted++, kWrongOneIn)) continue;
          EXPECT_TRUE(find_failure(machine, weaker.method, kSeedsOfWrong).has_value())
              << describe(machine) << ", " << method.name << ": " << weaker.what;
        }
      }
    }
  }
  EXPECT_GE(played, 40u);
  EXPECT_GT(refuted, 50u);
}

/// An RNIC may keep a small payload in its completion, in DRAM, until somebody polls. All messages
/// are short here, but for what makes those that recovery looks for longer.
PlayedRnic keeps_payloads(std::uint64_t replayable_bytes_min) {
  PlayedRnic rnic;
  rnic.switches.cqe_payload_bytes = 64;
  rnic.item_bytes = crash::kSmallBytes;
  rnic.replayable_bytes_min = replayable_bytes_min;
  return rnic;
}

TEST(EmuMethods, WhatIsPlannedNeverFailsWherePayloadsStayInCompletions) {
  const std::uint64_t seeds = test::rounds(50, 1000);
  std::size_t replaying = 0;
  for (const plan::Scenario& scenario :
       plan::all_scenarios(plan::Source::Best, {Transport::InfiniBand}, WriteOrder::Unknown)) {
    replaying += replays(scenario.method) ? 1 : 0;
    const auto failure = find_failure(scenario.profile, scenario.method, seeds, nullptr,
                                      keeps_payloads(persist::kReplayableBytesMin));
    EXPECT_EQ(failure.value_or(""), "") << describe(scenario) << ": " << scenario.method.name;
  }
  EXPECT_GT(replaying, 0u);
}

TEST(EmuMethods, AShortMessageThatIsReplayedIsLostInItsCompletionAndNoOtherOne) {
  constexpr std::uint64_t kSeeds = 500;
  std::size_t lost = 0;
  for (const plan::Scenario& scenario : plan::paper_methods(Transport::InfiniBand)) {
    const auto failure =
        find_failure(scenario.profile, scenario.method, kSeeds, nullptr, keeps_payloads(0));
    if (!replays(scenario.method)) {
      EXPECT_EQ(failure.value_or(""), "") << describe(scenario) << ": " << scenario.method.name;
    }
    lost += failure ? 1 : 0;
  }
  EXPECT_GT(lost, 0u);
}

TEST(EmuMethods, WithoutOrderAmongWritesFailsWhatTheCheckerRefutesAndNothingElse) {
  constexpr std::uint64_t kSeedsOfWrong = 10'000;
  constexpr std::uint64_t kSeedsOfRight = 150;
  std::size_t wrong = 0;
  for (const plan::Scenario& scenario : plan::paper_methods(Transport::InfiniBand)) {
    ServerProfile unordered = scenario.profile;
    unordered.write_order = WriteOrder::Unknown;
    const bool right = check::check(scenario.method, unordered).holds();
    const auto failure =
        find_failure(unordered, scenario.method, right ? kSeedsOfRight : kSeedsOfWrong);
    EXPECT_EQ(failure.has_value(), !right) << describe(scenario) << failure.value_or("");
    wrong += right ? 0 : 1;
  }
  EXPECT_EQ(wrong, 16u);
}

/// How many of `seeds` worlds, each with a reset of the server's RNIC at a random event, broke a
/// promise.
std::uint64_t failures_of_resets(const ServerProfile& profile, const Method& method,
                                 std::uint64_t seeds, std::uint64_t& acknowledged) {
  std::uint64_t failures = 0;
  Random resets(1);
  PlayedMethod whole(0, profile, method);
  whole.play(0);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    PlayedMethod played(seed, profile, method);
    played.play_with_reset(1 + resets.below(2 * whole.events()));
    acknowledged += played.acknowledged() ? 1 : 0;
    failures += played.broken_promise() ? 1 : 0;
  }
  return failures;
}

// The checker knows no reset. It needs none: what a reset takes is what the RNIC holds, and so does
// a power cut wherever no battery keeps that; a method that is right without the battery (mhp) is
// right when the RNIC is reset, of whichever domain the machine is.
TEST(EmuMethods, AResetLosesNothingOfWhatTheCheckerProvesWithoutABatteryForTheRnic) {
  const std::uint64_t seeds = test::rounds(60, 1000);
  std::size_t proved = 0;
  std::uint64_t failures_of_others = 0;
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (const plan::Scenario& scenario : plan::paper_methods(transport)) {
      ServerProfile without = scenario.profile;
      if (without.domain == PersistenceDomain::Wsp) without.domain = PersistenceDomain::Mhp;
      const bool right = check::check(scenario.method, without).holds();
      std::uint64_t acknowledged = 0;
      const std::uint64_t failures =
          failures_of_resets(scenario.profile, scenario.method, seeds, acknowledged);
      EXPECT_GT(acknowledged, 0u) << describe(scenario);
      if (!right) {
        failures_of_others += failures;
        continue;
      }
      ++proved;
      EXPECT_EQ(failures, 0u) << describe(scenario) << ": " << scenario.method.name;
    }
  }
  EXPECT_GT(proved, 80u);
  EXPECT_GT(failures_of_others, 0u);
}

TEST(EmuMethods, KnownUnsafeOnesLoseDataAndNotWhereTheyAreRight) {
  constexpr std::uint64_t kSeedsOfWrong = 10'000;
  constexpr std::uint64_t kSeedsOfRight = 150;
  for (const plan::KnownUnsafe& wrong : plan::known_unsafe_methods()) {
    EXPECT_TRUE(find_failure(wrong.profile, wrong.method, kSeedsOfWrong).has_value())
        << wrong.method.name;
    if (!wrong.right_on) continue;
    const auto failure = find_failure(*wrong.right_on, wrong.method, kSeedsOfRight);
    EXPECT_EQ(failure.value_or(""), "") << wrong.method.name;
  }
}

}  // namespace
}  // namespace perdure
