// The processor: each verdict of each check.
#include "tests/host/machine.h"

namespace perdure::host {
namespace {

using enum Verdict;
using pmem::MediumKind;

Machine with_flags(const std::string& flags, PersistenceDomain domain = PersistenceDomain::Dmp) {
  return Machine()
      .pool_on(MediumKind::Dax, domain, "device dax")
      .file("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu " + flags + "\n\nprocessor\t: 1\n");
}

TEST(FlushInstructions, AreTheBestThatTheProcessorHas) {
  const auto check = check_flush_instructions;
  const std::string file = "/proc/cpuinfo";
  expect(check, Machine(), NotApplicable, "behind a page cache");
  expect(check, with_flags("clflush clflushopt clwb"), Ok, "clwb");
  expect(check, with_flags("clflush clflushopt"), Ok, "clflushopt");
  expect(check, with_flags("clflush"), Advice, "only clflush");
  expect(check, with_flags(""), Problem, "no flush instruction");
  expect(check, with_flags("", PersistenceDomain::Mhp), Advice, "no flush instruction");
  expect(check, with_flags("").file(file, "flags\n"), NotKnown, "can not be read");
  expect(check, with_flags("").unreadable(file), NotKnown, "can not be read");
  EXPECT_NE(check(with_flags("clwb").inspected()).evidence.back().find("sfence"),
            std::string::npos);
}

TEST(FlushInstructions, OfArmAreNotUsedAndNotNeededWhereCachesSurvive) {
  const auto arm = [](PersistenceDomain domain) {
    return Machine()
        .pool_on(MediumKind::Dax, domain, "device dax")
        .file("/proc/cpuinfo",
              "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd dcpop dcpodp\n");
  };
  const auto check = check_flush_instructions;
  expect(check, arm(PersistenceDomain::Dmp), Problem, "Perdure writes no lines back");
  expect(check, arm(PersistenceDomain::Mhp), Ok, "domain mhp needs no lines written back");
  expect(check, arm(PersistenceDomain::Wsp), Ok, "domain wsp needs no lines written back");
  expect(check, arm(PersistenceDomain::None), Ok, "domain none needs no lines written back");
  EXPECT_NE(check(arm(PersistenceDomain::Mhp).inspected()).evidence.back().find("dsb sy"),
            std::string::npos);
}

constexpr char kCpus[] = "/sys/devices/system/cpu";

Machine governed(std::string_view first, std::string_view second) {
  return Machine()
      .file(std::string(kCpus) + "/cpu0/cpufreq/scaling_governor", first)
      .file(std::string(kCpus) + "/cpu1/cpufreq/scaling_governor", second)
      .directory(std::string(kCpus) + "/cpuidle");
}

TEST(FrequencyGovernor, IsPerformanceEverywhere) {
  const auto check = check_frequency_governor;
  expect(check, Machine(), NotApplicable, "does not set frequencies");
  expect(check, Machine().directory(std::string(kCpus) + "/cpu0"), NotApplicable, "does not set");
  expect(check, governed("performance\n", "performance\n"), Ok, "on every processor");
  expect(check, governed("performance\n", "powersave\n"), Advice, "powersave");
  expect(check, governed("performance\n", "\n"), NotKnown, "cpu1");
  expect(check,
         governed("a", "b").unreadable(std::string(kCpus) + "/cpu0/cpufreq/scaling_governor"),
         NotKnown, "cpu0");
}

Machine idling(std::string_view latency, std::string_view disabled) {
  const std::string states = std::string(kCpus) + "/cpu0/cpuidle";
  return Machine()
      .file(states + "/state0/name", "POLL\n")
      .file(states + "/state0/latency", "0\n")
      .file(states + "/state0/disable", "0\n")
      .file(states + "/state1/name", "C6\n")
      .file(states + "/state1/latency", latency)
      .file(states + "/state1/disable", disabled);
}

TEST(IdleStatesCheck, AreLeftQuickly) {
  const auto check = check_idle_states;
  const std::string latency = std::string(kCpus) + "/cpu0/cpuidle/state1/latency";
  expect(check, Machine(), NotApplicable, "no idle states");
  expect(check, idling("20\n", "0\n"), Ok, "left in 20 us");
  expect(check, idling("21\n", "0\n"), Advice, "C6: leaving it takes 21 us");
  expect(check, idling("133\n", "1\n"), Ok, "left in 0 us");
  expect(check, idling("long\n", "0\n"), NotKnown, "can not be read");
  expect(check, idling("133\n", "maybe\n"), NotKnown, "can not be read");
  expect(check, idling("133\n", "0\n").unreadable(latency), NotKnown, "can not be read");
}

TEST(ClockSource, IsReadWithoutACall) {
  const auto check = check_clock_source;
  const std::string file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
  expect(check, Machine().file(file, "tsc\n"), Ok, "tsc");
  expect(check, Machine().file(file, "kvm-clock\n"), Ok, "kvm-clock");
  expect(check, Machine().file(file, "hpet\n"), Advice, "hpet");
  expect(check, Machine().file(file, "\n"), NotKnown, "can not be read");
  expect(check, Machine(), NotKnown, "can not be read");
  expect(check, Machine().unreadable(file), NotKnown, "can not be read");
}

}  // namespace
}  // namespace perdure::host
