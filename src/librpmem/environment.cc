// What the environment says to librpmem: see environment.h.
#include "librpmem/environment.h"

#include <perdure/messages.h>
#include <perdure/profile.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/errno_error.h"

namespace perdure::librpmem {
namespace {

constexpr std::uint64_t kWithinMsMax = 24 * 3600 * 1000;

std::string variable(const char* name) {
  // tidy-allow(getenv): the interface of librpmem
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): as PMDK's does
  return value == nullptr ? "" : value;
}

/// Nothing: unset, or no whole number; PMDK's library takes no notice of that either.
std::optional<std::uint64_t> number(const char* name) {
  const std::string text = variable(name);
  if (text.empty() || text.size() > 15) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

std::vector<std::string> commands() {
  std::vector<std::string> found;
  const std::string all = variable("RPMEM_CMD");
  for (std::string_view rest = all; !rest.empty();) {
    const std::size_t end = std::min(rest.find('|'), rest.size());
    if (end != 0) found.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return found;
}

void say(std::FILE* file, const std::string& message) {
  const std::string line = "<librpmem> " + message + "\n";
  std::fwrite(line.data(), 1, line.size(), file);
  std::fflush(file);
}

}  // namespace

rpmem::RemoteShell remote_shell() {
  static std::atomic<std::size_t> turn{0};
  rpmem::RemoteShell shell;
  const std::string ssh = variable("RPMEM_SSH");
  if (!ssh.empty()) shell.ssh = ssh;
  const auto all = commands();
  if (!all.empty()) shell.command = all[turn.fetch_add(1) % all.size()];
  return shell;
}

void apply_environment(rpmem::RemotePoolOptions& options) {
  options.shell = remote_shell();
  options.choice.rdma = number("RPMEM_ENABLE_VERBS").value_or(1) != 0;
  const auto transport = parse_transport(variable("PERDURE_RPMEM_TRANSPORT"));
  if (transport.ok()) options.choice.transport = *transport;
  const auto take = [](const char* name, Nanoseconds& within) {
    const auto ms = number(name);
    if (ms) within = std::chrono::milliseconds(std::min(*ms, kWithinMsMax));
  };
  take("PERDURE_RPMEM_RECONNECT_MS", options.reconnect);
  take("PERDURE_RPMEM_CONNECT_MS", options.connect_within);
}

std::size_t lanes_for(unsigned asked) {
  std::uint64_t most = rpmem::kLanesMax;
  const auto set = number("RPMEM_MAX_NLANES");
  if (set && *set != 0) most = std::min(most, *set);
  return static_cast<std::size_t>(std::min<std::uint64_t>(asked, most));
}

void begin_logging() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::uint64_t level = number("RPMEM_LOG_LEVEL").value_or(0);
    if (level == 0) return;
    const std::string path = variable("RPMEM_LOG_FILE");
    std::FILE* file = path.empty() ? stderr : std::fopen(path.c_str(), "ae");
    if (file == nullptr) {
      const Error why = errno_error("RPMEM_LOG_FILE '" + path + "' can not be written to", errno);
      file = stderr;
      say(file, why.message + "; messages go here instead");
    }
    set_message_callback([file, level](Severity severity, const std::string& message) {
      const std::uint64_t least = severity == Severity::Error     ? 1
                                  : severity == Severity::Warning ? 2
                                  : severity == Severity::Info    ? 3
                                                                  : 4;
      if (least > level) return;
      say(file, message);
    });
  });
}

}  // namespace perdure::librpmem
