// The processor: which flush instructions it has, and what makes it late.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "host/doctor_checks.h"
#include "pmem/cache_flush.h"

namespace perdure::host {
namespace {

constexpr char kProcessors[] = "/sys/devices/system/cpu";

/// The words behind "flags" of the first processor, or what else the line is called; empty if there
/// is no such line.
std::vector<std::string> processor_flags(const Reading& cpuinfo, std::string_view called) {
  std::istringstream lines(cpuinfo.text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(called, 0) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos) return words_of(line.substr(colon + 1));
  }
  return {};
}

/// The best flush instruction among the flags, or empty.
std::string best_flush(const std::vector<std::string>& flags) {
  for (const char* name : {"clwb", "clflushopt", "clflush"}) {
    if (std::find(flags.begin(), flags.end(), name) != flags.end()) return name;
  }
  return {};
}

/// cpu0, cpu1 and so on.
std::vector<std::string> processors(const InspectedHost& inspected) {
  std::vector<std::string> found;
  for (const std::string& name : inspected.tree.names(kProcessors)) {
    if (name.rfind("cpu", 0) == 0 && number_in(name.substr(3))) found.push_back(name);
  }
  return found;
}

struct IdleStates {
  bool are_readable = true;
  std::size_t count = 0;
  std::string slowest;  // of those that are not disabled
  std::uint64_t slowest_us = 0;
};

IdleStates read_idle_states(const InspectedHost& inspected, Check& check) {
  const std::string at = fmt::format("{}/cpu0/cpuidle", kProcessors);
  IdleStates states;
  for (const std::string& name : inspected.tree.names(at)) {
    const std::string state = fmt::format("{}/{}", at, name);
    const Reading latency = check.keep(inspected.tree.read(state + "/latency"));
    const Reading disable = inspected.tree.read(state + "/disable");
    ++states.count;
    if (!latency.number() || !disable.number()) {
      states.are_readable = false;
    } else if (*disable.number() == 0 && *latency.number() >= states.slowest_us) {
      states.slowest_us = *latency.number();
      states.slowest = inspected.tree.read(state + "/name").text;
    }
  }
  return states;
}

void add_fence(pmem::Processor processor, Check& check) {
  check.evidence.push_back(fmt::format("between the last store and an answer: {}",
                                       pmem::store_fence_instruction(processor)));
}

/// Of an Arm processor, whose /proc/cpuinfo has Features. It can write lines back (DC CVAP), but
/// Perdure does not: who promises which of the points of persistence there is, no file tells.
void find_flush_of_arm(const InspectedHost& inspected, std::size_t features, Check& check) {
  check.evidence.push_back(fmt::format("/proc/cpuinfo: Features: {} of them", features));
  add_fence(pmem::Processor::Arm64, check);
  if (inspected.domains().contains(PersistenceDomain::Dmp)) {
    return check.find(Verdict::Problem,
                      "an Arm processor: Perdure writes no lines back there, so a domain dmp can "
                      "not be served",
                      "declare mhp or wsp if caches survive here, else use another machine",
                      {"perdure probe " + inspected.place.path});
  }
  check.find(Verdict::Ok, fmt::format("an Arm processor: domain {} needs no lines written back",
                                      domain_words(inspected)));
}

}  // namespace

Check check_flush_instructions(const InspectedHost& inspected) {
  Check check{"flush-instructions"};
  if (!lies_on(inspected, pmem::MediumKind::Dram) && !lies_on(inspected, pmem::MediumKind::Dax)) {
    check.find_nothing("behind a page cache the kernel writes back, not this processor's flush",
                       inspected.place.medium.evidence.front());
    return check;
  }
  const Reading cpuinfo = inspected.tree.read("/proc/cpuinfo");
  if (const auto features = processor_flags(cpuinfo, "Features"); !features.empty()) {
    find_flush_of_arm(inspected, features.size(), check);
    return check;
  }
  const auto flags = processor_flags(cpuinfo, "flags");
  const std::string best = best_flush(flags);
  check.evidence.push_back(cpuinfo.read()
                               ? fmt::format("/proc/cpuinfo: flags: {} of them, {}", flags.size(),
                                             best.empty() ? "none flushes" : best)
                               : cpuinfo.evidence());
  if (!flags.empty()) add_fence(pmem::Processor::X86, check);
  if (flags.empty()) {
    check.find(Verdict::NotKnown, "the processor's flags can not be read",
               "look what perdure itself found", {"perdure probe " + inspected.place.path});
  } else if (best == "clwb") {
    check.find(Verdict::Ok, "clwb: writes lines back and may keep them in the cache");
  } else if (best == "clflushopt") {
    check.find(Verdict::Ok, "clflushopt: writes lines back, many at once, and evicts them");
  } else if (best == "clflush") {
    check.find(Verdict::Advice, "only clflush: writes back one line after the other",
               "use a processor with clwb where records are large and the domain is dmp",
               {"perdure bench limits"});
  } else {
    check.find(
        inspected.domains().contains(PersistenceDomain::Dmp) ? Verdict::Problem : Verdict::Advice,
        "no flush instruction: nothing reaches a domain dmp on purpose",
        "declare mhp or wsp if caches survive here, else use another machine",
        {"perdure probe " + inspected.place.path});
  }
  return check;
}

Check check_frequency_governor(const InspectedHost& inspected) {
  Check check{"frequency-governor"};
  std::string other;
  for (const std::string& name : processors(inspected)) {
    const Reading governor =
        inspected.tree.read(fmt::format("{}/{}/cpufreq/scaling_governor", kProcessors, name));
    if (governor.absent()) continue;
    if (check.evidence.empty() || governor.text != "performance") check.keep(governor);
    if (!governor.read() || governor.text.empty()) {
      check.find(Verdict::NotKnown, name + ": its governor can not be read", "ask",
                 {"cpupower frequency-info"});
    } else if (governor.text != "performance") {
      other = governor.text;
    } else {
      check.find(Verdict::Ok, "performance on every processor");
    }
    if (!other.empty()) break;  // one is enough; large machines have hundreds
  }
  if (!other.empty()) {
    check.find(Verdict::Advice, fmt::format("{}: a processor that was idle begins slowly", other),
               "use the governor performance where latency counts",
               {"cpupower frequency-set -g performance"});
  }
  check.find_nothing("the kernel does not set frequencies here",
                     std::string(kProcessors) + "/cpu0/cpufreq: is not there");
  return check;
}

Check check_idle_states(const InspectedHost& inspected) {
  // A record over RDMA takes a few microseconds; a state that takes longer to leave than several of
  // them shows in the latency of every wait that sleeps.
  constexpr std::uint64_t kLatencyUsMax = 20;
  Check check{"idle-states"};
  const IdleStates states = read_idle_states(inspected, check);
  if (states.count == 0) {
    check.find_nothing("the kernel has no idle states to choose from here",
                       std::string(kProcessors) + "/cpu0/cpuidle: is not there");
  } else if (!states.are_readable) {
    check.find(Verdict::NotKnown, "the idle states can not be read", "ask", {"cpupower idle-info"});
  } else if (states.slowest_us > kLatencyUsMax) {
    check.find(Verdict::Advice,
               fmt::format("{}: leaving it takes {} us", states.slowest, states.slowest_us),
               "forbid deep states where latency counts, or let perdured poll longer "
               "([data] spin_us)",
               {fmt::format("cpupower idle-set -D {}", kLatencyUsMax)});
  } else {
    check.find(Verdict::Ok,
               fmt::format("the deepest state in use is left in {} us", states.slowest_us));
  }
  return check;
}

Check check_clock_source(const InspectedHost& inspected) {
  constexpr char kSource[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
  // These are read without a call of the kernel (vDSO).
  constexpr std::string_view kFast[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page",
                                        "arch_sys_counter"};
  Check check{"clock-source"};
  const Reading source = check.keep(inspected.tree.read(kSource));
  if (!source.read() || source.text.empty()) {
    check.find(Verdict::NotKnown, "the clock source can not be read", "look what the kernel said",
               {"dmesg | grep -i clocksource"});
  } else if (std::find(std::begin(kFast), std::end(kFast), source.text) != std::end(kFast)) {
    check.find(Verdict::Ok, source.text + ": time is read without a call of the kernel");
  } else {
    check.find(
        Verdict::Advice,
        source.text +
            ": every look at the clock is a call of the kernel, and each record "
            "looks several times",
        "find out why the kernel distrusts the tsc; the kernel option tsc=reliable trusts it",
        {"dmesg | grep -i -e tsc -e clocksource",
         "cat /sys/devices/system/clocksource/clocksource0/available_clocksource"});
  }
  return check;
}

}  // namespace perdure::host
