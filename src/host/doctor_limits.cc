// What the kernel grants a process: locked memory, memory, files, huge pages.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "host/doctor_checks.h"
#include "host/rdma_devices.h"

namespace perdure::host {
namespace {

// proc(5), /proc/PID/limits: the name in 26 columns, then the soft and the hard limit.
constexpr std::size_t kLimitNameColumns = 26;
constexpr std::uint64_t kUnlimited = UINT64_MAX;
constexpr std::size_t kProcessesMax = 64;

std::string line_of(const std::string& text, std::string_view beginning) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(beginning, 0) == 0) return line;
  }
  return {};
}

/// The soft limit of that name; nothing if it can not be told.
std::optional<std::uint64_t> soft_limit(const InspectedHost& inspected, const std::string& process,
                                        const std::string& name, Check& check) {
  const Reading limits = inspected.tree.read(process + "/limits");
  const std::string line = line_of(limits.text, name);
  if (line.size() <= kLimitNameColumns) {
    check.evidence.push_back(limits.read() ? fmt::format("{}: no line '{}'", limits.path, name)
                                           : limits.evidence());
    return std::nullopt;
  }
  const auto words = words_of(line.substr(kLimitNameColumns));
  check.evidence.push_back(fmt::format("{}: {} {}", limits.path, name, fmt::join(words, " ")));
  if (words.empty()) return std::nullopt;
  return words[0] == "unlimited" ? kUnlimited : number_in(words[0]);
}

/// What an RNIC pins: the pools, and the receive buffers of all sessions.
std::uint64_t bytes_to_pin(const InspectedHost& inspected) {
  const server::Config config = inspected.settings();
  return inspected.place.pool_bytes + config.service.sessions_max * config.service.queue.depth *
                                          config.service.queue.message_bytes_max;
}

void find_locked_memory(const InspectedHost& inspected, const std::string& process, Check& check) {
  const auto limit = soft_limit(inspected, process, "Max locked memory", check);
  const std::uint64_t needed = bytes_to_pin(inspected);
  const std::vector<std::string> repair{
      "ulimit -l unlimited", "systemctl edit perdured   # [Service] LimitMEMLOCK=infinity"};
  if (!limit) {
    return check.find(Verdict::NotKnown, "how much memory may be locked can not be read",
                      "ask the shell that starts perdured", {"ulimit -l"});
  }
  if (*limit == kUnlimited) return check.find(Verdict::Ok, "any amount of memory may be locked");
  if (find_unread_config(inspected, check)) return;
  if (*limit < needed) {
    return check.find(
        Verdict::Problem,
        fmt::format("{} MiB may be locked, and pools and receive buffers have {} MiB: registering "
                    "them fails",
                    *limit >> 20, mebibytes(needed)),
        "lift the limit for the user that runs perdured", repair);
  }
  check.find(Verdict::Advice,
             fmt::format("{} MiB may be locked; pools and receive buffers have {} MiB now",
                         *limit >> 20, mebibytes(needed)),
             "lift the limit before the pools grow", repair);
}

/// The control group of a process for memory, and the files with its limit and those of the groups
/// around it: each of them holds.
struct MemoryGroup {
  std::string group;  // "/" is the root; empty: it can not be told
  std::vector<Reading> limits;
  /// What this process sees as the root is none: there are groups around it that it does not see.
  bool in_namespace = false;
};

/// cgroups(7): each line is hierarchy:controllers:path; that of version 2 is "0::path".
MemoryGroup memory_group_of(const InspectedHost& inspected, const std::string& process,
                            Check& check) {
  constexpr int kLevelsMax = 64;
  constexpr char kVersion2[] = "/memory.max";
  MemoryGroup found;
  std::string hierarchy = "/sys/fs/cgroup";
  std::string file = kVersion2;
  const Reading groups = inspected.tree.read(process + "/cgroup");
  std::istringstream lines(groups.text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t path = line.find(":/");
    const bool version_1 = line.find(":memory:/") != std::string::npos;
    if (path == std::string::npos || (!version_1 && line.rfind("0::/", 0) != 0)) continue;
    check.evidence.push_back(fmt::format("{}: {}", groups.path, line));
    found.group = line.substr(path + 1);
    if (!version_1) continue;
    hierarchy = "/sys/fs/cgroup/memory";
    file = "/memory.limit_in_bytes";
    break;
  }
  if (found.group.empty()) check.keep(groups);
  // Without control groups the file is empty, or not there.
  if (groups.text.empty() && groups.state != Reading::State::Unreadable) found.group = "/";
  // One that is outside of the namespace of what is mounted here.
  if (found.group.starts_with("/..")) return found;
  // The root of version 2 has no such file, that of a namespace does (cgroups(7)); that of version
  // 1 says that there is no limit.
  std::string at = found.group == "/" ? "" : found.group;
  for (int level = 0; level < kLevelsMax; ++level) {
    const Reading limit = inspected.tree.read(fmt::format("{}{}{}", hierarchy, at, file));
    if (!limit.absent()) found.limits.push_back(check.keep(limit));
    if (at.empty()) {
      found.in_namespace = !limit.absent() && file == kVersion2;
      break;
    }
    at.erase(at.rfind('/'));
  }
  return found;
}

// cgroup version 1 says "no limit" with the largest number of whole pages.
constexpr std::uint64_t kNoLimitVersion1 = 0x7FFF'FFFF'0000'0000;

bool is_no_limit(const Reading& limit) {
  return limit.text == "max" || limit.number().value_or(0) >= kNoLimitVersion1;
}

void find_memory_limit(const InspectedHost& inspected, const MemoryGroup& group, Check& check) {
  const std::vector<std::string> ask{"systemctl show perdured -p MemoryMax"};
  if (group.limits.empty() && group.group != "/") {
    return check.find(Verdict::NotKnown, "the memory limit of the control group can not be found",
                      "ask systemd", ask);
  }
  std::uint64_t tightest = kUnlimited;
  for (const Reading& limit : group.limits) {
    if (is_no_limit(limit)) continue;
    if (!limit.number()) {
      return check.find(Verdict::NotKnown, limit.path + " can not be read", "ask systemd", ask);
    }
    tightest = std::min(tightest, *limit.number());
  }
  if (tightest == kUnlimited && group.in_namespace) {
    return check.find(Verdict::NotKnown,
                      "no control group that is seen here has a memory limit; whether one around "
                      "this container's has, does not show inside",
                      "ask outside of the container", ask);
  }
  if (tightest == kUnlimited) {
    return check.find(Verdict::Ok, "the control group has no memory limit");
  }
  if (find_unread_config(inspected, check)) return;
  const std::uint64_t needed = bytes_to_pin(inspected);
  if (tightest < needed) {
    return check.find(
        Verdict::Problem,
        fmt::format("the control group has {} MiB, and pools and receive buffers have {} MiB: "
                    "perdured is killed when they are in use",
                    tightest >> 20, mebibytes(needed)),
        "lift the limit", {"systemctl set-property perdured MemoryMax=infinity"});
  }
  check.find(Verdict::Ok, fmt::format("the control group has {} MiB, enough for the {} MiB of "
                                      "pools and receive buffers",
                                      tightest >> 20, mebibytes(needed)));
}

/// "HugePages_Total:       0" in /proc/meminfo.
std::optional<std::uint64_t> huge_pages_total(const Reading& memory) {
  const auto words = words_of(line_of(memory.text, "HugePages_Total:"));
  return words.size() == 2 ? number_in(words[1]) : std::nullopt;
}

}  // namespace

std::vector<std::string> processes_of_interest(const InspectedHost& inspected) {
  std::vector<std::string> found;
  for (const std::string& name : inspected.tree.names("/proc")) {
    if (!number_in(name) || found.size() == kProcessesMax) continue;
    if (inspected.tree.read("/proc/" + name + "/comm").text == "perdured") {
      found.push_back("/proc/" + name);
    }
  }
  if (found.empty()) found.emplace_back("/proc/self");
  return found;
}

Check check_locked_memory(const InspectedHost& inspected) {
  Check check{"locked-memory"};
  if (rdma_devices(inspected.tree).empty()) {
    check.find_nothing("no RDMA device: tcp and shm lock no memory", kNoRdmaDevice);
    return check;
  }
  for (const auto& process : processes_of_interest(inspected)) {
    find_locked_memory(inspected, process, check);
  }
  return check;
}

Check check_memory_cgroup(const InspectedHost& inspected) {
  Check check{"memory-cgroup"};
  // Pages of a disk's cache can be given back; those of tmpfs, and pinned ones, can not.
  const bool stays =
      lies_on(inspected, pmem::MediumKind::Dram) ||
      (lies_on(inspected, pmem::MediumKind::PageCache) && !rdma_devices(inspected.tree).empty());
  if (!stays) {
    check.find_nothing("the pools do not stay in memory that is accounted",
                       inspected.place.medium.evidence.front());
    return check;
  }
  for (const auto& process : processes_of_interest(inspected)) {
    find_memory_limit(inspected, memory_group_of(inspected, process, check), check);
  }
  return check;
}

Check check_open_files(const InspectedHost& inspected) {
  // A session over tcp holds 9, one over shm 2 (counted in /proc/PID/fd, libfabric 1.17).
  constexpr std::uint64_t kDescriptorsPerSession = 10;
  constexpr std::uint64_t kDescriptorsOfTheDaemon = 128;
  Check check{"open-files"};
  if (find_unread_config(inspected, check)) return check;
  const std::uint64_t sessions = inspected.settings().service.sessions_max;
  const std::uint64_t needed = sessions * kDescriptorsPerSession + kDescriptorsOfTheDaemon;
  for (const auto& process : processes_of_interest(inspected)) {
    const auto limit = soft_limit(inspected, process, "Max open files", check);
    if (!limit) {
      check.find(Verdict::NotKnown, "how many files may be open can not be read",
                 "ask the shell that starts perdured", {"ulimit -n"});
    } else if (*limit < needed) {
      check.find(
          Verdict::Advice,
          fmt::format("{} files may be open; {} sessions can need {}", *limit, sessions, needed),
          "lift the limit, or lower sessions_max",
          {fmt::format("ulimit -n {}", needed),
           fmt::format("systemctl edit perdured   # [Service] LimitNOFILE={}", needed)});
    } else {
      check.find(Verdict::Ok, fmt::format("enough files may be open for {} sessions", sessions));
    }
  }
  return check;
}

Check check_huge_pages(const InspectedHost& inspected) {
  Check check{"huge-pages"};
  const bool dram = lies_on(inspected, pmem::MediumKind::Dram);
  if (!dram || hardware_rnics(inspected.tree).empty()) {
    check.find_nothing("only for pools in memory that an RNIC writes",
                       dram ? kNoRdmaDevice : inspected.place.medium.evidence.front());
    return check;
  }
  const Reading memory = inspected.tree.read("/proc/meminfo");
  const auto pages = huge_pages_total(memory);
  check.evidence.push_back(
      memory.read() ? fmt::format("/proc/meminfo: {}", line_of(memory.text, "HugePages_Total:"))
                    : memory.evidence());
  if (!pages) {
    check.find(Verdict::NotKnown, "how many huge pages there are can not be read", "ask",
               {"grep Huge /proc/meminfo"});
  } else if (*pages == 0) {
    check.find(
        Verdict::Advice, "no huge pages: an RNIC translates addresses page by page",
        "reserve huge pages and put the pools on hugetlbfs, or mount tmpfs with huge=always",
        {"sysctl vm.nr_hugepages=512", "mount -o remount,huge=always " + inspected.place.path});
  } else {
    check.find(Verdict::Ok, fmt::format("{} huge pages are reserved", *pages));
  }
  return check;
}

Check check_transparent_huge_pages(const InspectedHost& inspected) {
  Check check{"transparent-huge-pages"};
  const Reading enabled =
      check.keep(inspected.tree.read("/sys/kernel/mm/transparent_hugepage/enabled"));
  const bool always = enabled.text.find("[always]") != std::string::npos;
  const bool rest = enabled.text.find("[madvise]") != std::string::npos ||
                    enabled.text.find("[never]") != std::string::npos;
  if (enabled.absent()) {
    check.find(Verdict::NotApplicable, "this kernel has none");
  } else if (always) {
    check.find(Verdict::Advice,
               "always: the kernel may stop a process to gather pages, which shows as single late "
               "records",
               "let programs ask for them",
               {"echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  } else if (rest) {
    check.find(Verdict::Ok, "only for programs that ask");
  } else {
    check.find(Verdict::NotKnown, "the setting can not be read", "ask",
               {"cat /sys/kernel/mm/transparent_hugepage/enabled"});
  }
  return check;
}

}  // namespace perdure::host
