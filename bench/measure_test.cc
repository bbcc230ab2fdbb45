// What measurements and the demonstration promise: that nothing which was lost goes unnoticed, that
// emulated results depend on the seed alone, and that counters count.
#include "bench/allocations.h"
#include "bench/child.h"
#include "bench/limits.h"
#include "bench/remotelog.h"
#include "bench/trace.h"
#include "core/json.h"
#include "core/try.h"
#include "demo/power.h"
#include "report/page.h"
#include "testing/process.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <set>

namespace perdure::bench {
namespace {

RemotelogOptions short_run() {
  RemotelogOptions options;
  options.records = 40;
  options.warm_up = 2;
  return options;
}

std::vector<RemotelogRow> run_all(const RemotelogOptions& options, plan::Source source) {
  std::vector<RemotelogRow> rows;
  for (const plan::Scenario& scenario : plan::all_scenarios(source, {Transport::InfiniBand})) {
    if (scenario.profile.domain == PersistenceDomain::Page) continue;
    rows.push_back(run_emulated(scenario, source, options, {}));
  }
  return rows;
}

TEST(Remotelog, EveryConfigurationKeepsEveryRecordThroughAPowerCut) {
  for (const plan::Source source : {plan::Source::Paper, plan::Source::Best}) {
    for (const std::size_t window : {1u, 7u}) {
      RemotelogOptions options = short_run();
      options.window = window;
      const auto rows = run_all(options, source);
      EXPECT_EQ(rows.size(), 72u);
      std::set<std::string> hashes;
      for (const RemotelogRow& row : rows) {
        EXPECT_EQ(row.failure, "") << row.configuration() << ", window " << window;
        EXPECT_EQ(row.latencies.count(), options.records) << row.configuration();
        EXPECT_EQ(row.checked, options.all_records()) << row.configuration();
        hashes.insert(row.hash());
      }
      EXPECT_EQ(hashes.size(), 72u);
    }
  }
}

TEST(Remotelog, AMethodThatIsWrongForItsResponderIsNoticed) {
  // WRITE and FLUSH prove visibility; with DDIO on, the lines may still be in the cache.
  plan::Scenario wrong;
  for (const plan::Scenario& scenario :
       plan::all_scenarios(plan::Source::Paper, {Transport::InfiniBand})) {
    if (scenario.profile.domain == PersistenceDomain::Mhp && scenario.profile.ddio == Ddio::On &&
        scenario.primary == Primary::Write && scenario.shape == singleton()) {
      wrong = scenario;
    }
  }
  ASSERT_FALSE(wrong.method.name.empty());
  wrong.profile.domain = PersistenceDomain::Dmp;
  int noticed = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    RemotelogOptions options = short_run();
    options.seed = seed;
    const RemotelogRow row = run_emulated(wrong, plan::Source::Paper, options, {});
    noticed += row.failure.empty() ? 0 : 1;
    EXPECT_EQ(row.lost_records, !row.failure.empty()) << row.failure;
  }
  EXPECT_GT(noticed, 0);
}

TEST(Remotelog, ARunThatIsInterruptedHasLostNoRecords) {
  RemotelogOptions options;
  options.records = 1'000'000;
  const auto scenarios = plan::all_scenarios(plan::Source::Best, {Transport::InfiniBand});
  RemotelogRow row;
  {
    const test::InterruptGuard guard;
    ::raise(SIGINT);
    row = run_emulated(scenarios.front(), plan::Source::Best, options, {});
  }
  const test::InterruptGuard forgets;  // for the tests behind this one
  EXPECT_NE(row.failure.find("interrupted"), std::string::npos) << row.failure;
  EXPECT_FALSE(row.lost_records);
}

TEST(Remotelog, TheSameSeedGivesTheSameBytesOfOutput) {
  const RemotelogOptions options = short_run();
  const std::string once = remotelog_table(run_all(options, plan::Source::Paper)).csv();
  const std::string again = remotelog_table(run_all(options, plan::Source::Paper)).csv();
  EXPECT_EQ(once, again);
}

TEST(Remotelog, OnSeveralReplicasARecordCountsWhenAllHaveIt) {
  RemotelogOptions options = short_run();
  options.replicas = 3;
  for (const RemotelogRow& row : run_all(options, plan::Source::Best)) {
    EXPECT_EQ(row.failure, "") << row.configuration();
  }
}

TEST(PowerCuts, LoseNothingThatWasCommitted) {
  const demo::RecordText text = demo::RecordText::orders();
  demo::PowerOptions options;
  options.seed = 0x5eed;
  options.cuts_max = 6;
  options.records = 200;
  options.at_most = std::chrono::minutes(4);
  const auto result = demo::run_power_cuts(options, text);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->cuts.size(), 6u);
  EXPECT_EQ(result->latencies.committed.count(), options.records);
  for (const demo::PowerCut& cut : result->cuts) {
    EXPECT_EQ(cut.failure, "") << "reproduce: perdure demo --seed=0x5eed; world " << cut.seed;
    EXPECT_GE(cut.recovered, cut.committed);
    EXPECT_TRUE(demo::all_equal(cut.checks));
  }
}

Finding latency_of(const std::string& question, const std::string& note) {
  Finding finding;
  finding.question = question;
  finding.fabric = "shm";
  finding.unit = "us, p50";
  finding.bare.values = finding.perdure.values = {1.5};
  finding.note = note;
  return finding;
}

TEST(Limits, WhatANoteCountedIsNotInTheHashOfARow) {
  const auto hash = [](const Finding& finding) {
    const std::string text = limits_json({finding}, {});
    return nlohmann::json::parse(text)["findings"][0]["hash"].get<std::string>();
  };
  const std::string first = hash(latency_of("64 B durable, one in flight", "slept 0.1 times"));
  EXPECT_EQ(first, hash(latency_of("64 B durable, one in flight", "slept 0.2 times")));
  EXPECT_NE(first, hash(latency_of("64 B durable, one-sided", "slept 0.1 times")));
}

TEST(Limits, TheChartOfDurableLatenciesHasNoOthers) {
  report::ReportPage page("x", "y");
  add_limits(page,
             {latency_of("64 B durable, one in flight", ""), latency_of("64 B call to applied", ""),
              latency_of("libpmemobj: transaction", "")});
  const std::string html = page.html();
  const std::string chart =
      html.substr(html.find("<svg"), html.rfind("</svg>") - html.find("<svg"));
  EXPECT_NE(chart.find("shm: 64 B durable, one in flight"), std::string::npos) << chart;
  EXPECT_EQ(chart.find("applied"), std::string::npos) << chart;
  EXPECT_EQ(chart.find("libpmemobj"), std::string::npos) << chart;
}

TEST(Text, RecordsTogetherAreTheTextOverAndOver) {
  const demo::RecordText text = demo::RecordText::orders();
  ASSERT_GT(text.lines(), 1000u);
  std::uint64_t bytes = 0;
  const std::uint64_t records = 2 * text.lines() + 17;
  for (std::uint64_t i = 0; i < records; ++i) {
    ASSERT_GE(text.record(i).size(), 1u);
    bytes += text.record(i).size();
  }
  EXPECT_EQ(bytes, text.bytes(records));
  EXPECT_EQ(text.record(3).data(), text.record(text.lines() + 3).data());
  EXPECT_EQ(demo::RecordText::from_directory("/nowhere").code(), ErrorCode::NotFound);
}

TEST(Child, AnswersOrSaysWhyNot) {
  const auto answered = run_in_child([](const ChildPipes&) -> Result<nlohmann::json> {
    return nlohmann::json{{"a", 1}};
  });
  ASSERT_TRUE(answered.ok());
  EXPECT_EQ((*answered)["a"], 1);
  const auto refused = run_in_child([](const ChildPipes&) -> Result<nlohmann::json> {
    return Error{ErrorCode::NoSpace, "full"};
  });
  EXPECT_EQ(refused.code(), ErrorCode::NoSpace);
  EXPECT_EQ(refused.error().message, "full");
  const auto died = run_in_child([](const ChildPipes&) -> Result<nlohmann::json> {
    ::raise(SIGKILL);
    return nlohmann::json(0);
  });
  EXPECT_EQ(died.code(), ErrorCode::SystemError);
}

/// Runs `work` in a child and `count` on its trace. False where no process may trace another.
bool trace(const std::function<void()>& work,
           const std::function<Result<void>(ChildTrace&)>& count) {
  const ChildWork child = [&](const ChildPipes& pipes) -> Result<nlohmann::json> {
    PERDURE_TRY_VOID(tell(pipes.to_parent));
    PERDURE_TRY_VOID(await_word(pipes.from_parent));
    work();
    mark_end();
    return nlohmann::json(0);
  };
  bool allowed = true;
  const auto ran = run_in_child(child, [&](const ChildTask& task) -> Result<void> {
    PERDURE_TRY_VOID(await_word(task.from_child));
    auto attached = ChildTrace::attach(task.pid);
    allowed = attached.ok();
    PERDURE_TRY_VOID(tell(task.to_child));
    return allowed ? count(*attached) : Result<void>{};
  });
  EXPECT_TRUE(ran.ok()) << ran.error().message;
  return allowed;
}

TEST(Trace, SystemCallsAreCountedBetweenTheMarksAndNowhereElse) {
  SyscallCount count;
  const auto work = [] {
    (void)::getuid();
    mark_begin();
    for (int i = 0; i < 5; ++i) (void)::syscall(SYS_getuid);
    (void)::syscall(SYS_sched_yield);
  };
  const bool allowed = trace(work, [&](ChildTrace& child) -> Result<void> {
    PERDURE_TRY(counted, child.count_calls());
    count = std::move(counted);
    return {};
  });
  if (!allowed) GTEST_SKIP() << "this system lets no process trace its child (ptrace)";
  EXPECT_EQ(count.total(), 6u);
  EXPECT_EQ(count.ours(), 6u);
}

TEST(Trace, InstructionsAreCountedUpToTheLibraryOrTheMark) {
  std::vector<std::uint64_t> counts;
  const auto work = [] {
    (void)::syscall(SYS_getuid);  // bound by the linker when it is first called
    for (int i = 0; i < 3; ++i) {
      mark_begin();
      asm volatile(".rept 1000\n nop\n .endr\n");
      (void)::syscall(SYS_getuid);
    }
    mark_begin();
    asm volatile(".rept 500\n nop\n .endr\n");
    mark_step_end();
  };
  const bool allowed = trace(work, [&](ChildTrace& child) -> Result<void> {
    PERDURE_TRY(counted, child.count_instructions({"libc.so"}));
    counts = std::move(counted);
    return {};
  });
  if (!allowed) GTEST_SKIP() << "this system lets no process trace its child (ptrace)";
  ASSERT_EQ(counts.size(), 4u);
  constexpr std::uint64_t kToCallMax = 100;  // loop, arguments
  EXPECT_GE(counts.back(), 500u);
  EXPECT_LE(counts.back(), 500 + kToCallMax);
  counts.pop_back();
  for (const std::uint64_t count : counts) {
    EXPECT_GE(count, 1000u);
    EXPECT_LE(count, 1000 + kToCallMax);
  }
}

TEST(Allocations, EveryOperatorNewIsCounted) {
  const std::uint64_t before = allocations();
  const auto kept = std::make_unique<std::vector<int>>(100);
  const std::uint64_t counted = allocations() - before;
  EXPECT_EQ(counted, allocations_counted() ? 2u : 0u);
  EXPECT_EQ(kept->size(), 100u);
}

TEST(Process, IsGoneWhenItsOwnerIs) {
  pid_t pid = 0;
  {
    auto child = test::ChildProcess::start({"/bin/sleep", "60"}, "/dev/null");
    ASSERT_TRUE(child.ok());
    EXPECT_TRUE(child->running());
    pid = child->pid();
    EXPECT_TRUE(test::resident_bytes(pid).ok());
    EXPECT_TRUE(test::processor_time(pid).ok());
  }
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(test::ChildProcess::start({"/no/such/program"}, "/dev/null").code(),
            ErrorCode::NotFound);
}

}  // namespace
}  // namespace perdure::bench
