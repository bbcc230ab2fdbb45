// The process as /proc shows it: see process_metrics.h; proc(5) has the fields.
#include "server/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "core/metrics_writer.h"

namespace perdure::server {
namespace {

// Of /proc/self/stat, counted behind the name, which may have spaces and ends with a parenthesis.
constexpr std::size_t kUserTicks = 11;
constexpr std::size_t kSystemTicks = 12;
constexpr std::size_t kThreads = 17;
constexpr std::size_t kStartTicks = 19;
constexpr std::size_t kVirtualBytes = 20;
constexpr std::size_t kResidentPages = 21;

std::vector<std::uint64_t> stat_fields() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream rest(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string state;
  rest >> state;
  std::vector<std::uint64_t> fields{0};  // the state, which is no number
  for (std::string word; rest >> word;) {
    fields.push_back(word[0] == '-' ? 0 : std::strtoull(word.c_str(), nullptr, 10));
  }
  return fields;
}

/// When the machine was started, in seconds since 1970.
std::optional<std::uint64_t> boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> open_descriptors() {
  DIR* const directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return std::nullopt;
  std::uint64_t count = 0;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this function's own
  while (const dirent* entry = ::readdir(directory)) count += entry->d_name[0] != '.' ? 1 : 0;
  ::closedir(directory);
  return count - 1;  // without the one that was just open
}

}  // namespace

std::string process_metrics_text() {
  MetricsWriter text;
  const std::vector<std::uint64_t> stat = stat_fields();
  if (stat.size() > kResidentPages) {
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    text.single("process_cpu_seconds_total", "Processor time, of the user and of the system.",
                "counter", static_cast<double>(stat[kUserTicks] + stat[kSystemTicks]) / ticks);
    text.single("process_resident_memory_bytes", "Memory that is present, pools included.", "gauge",
                stat[kResidentPages] * page);
    text.single("process_virtual_memory_bytes", "Address space, pools included.", "gauge",
                stat[kVirtualBytes]);
    text.single("process_threads", "Threads now.", "gauge", stat[kThreads]);
    if (const auto boot = boot_time()) {
      text.single("process_start_time_seconds", "When it was started, in seconds since 1970.",
                  "gauge",
                  static_cast<double>(*boot) + static_cast<double>(stat[kStartTicks]) / ticks);
    }
  }
  if (const auto open = open_descriptors()) {
    text.single("process_open_fds", "Descriptors that are open.", "gauge", *open);
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    text.single("process_max_fds", "Descriptors that may be.", "gauge",
                static_cast<std::uint64_t>(limit.rlim_cur));
  }
  return text.take();
}

}  // namespace perdure::server
