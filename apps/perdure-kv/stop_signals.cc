// What the two long-running commands share: see process.h.
#include "process.h"

#include <fmt/format.h>
#include <perdure/messages.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <system_error>

#include "core/errno_error.h"
#include "server/config.h"

namespace perdure::kv_app {
namespace {

sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

spdlog::level::level_enum level_of(Severity severity) {
  switch (severity) {
    case Severity::Debug: return spdlog::level::debug;
    case Severity::Info: return spdlog::level::info;
    case Severity::Warning: return spdlog::level::warn;
    case Severity::Error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

Result<int> stop_descriptor() {
  const sigset_t signals = ending_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int descriptor = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor < 0) return errno_error("a descriptor for signals", errno);
  return descriptor;
}

void wait_for_stop(int stop) {
  pollfd waited{stop, POLLIN, 0};
  while (::poll(&waited, 1, -1) <= 0) {
  }
}

void let_signals_end() {
  // The first one is still there, or it would end the process now.
  const sigset_t signals = ending_signals();
  timespec none{};
  while (::sigtimedwait(&signals, nullptr, &none) > 0) {
  }
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

Result<void> log_to_stderr(const std::string& level) {
  auto least = server::parse_severity(level);
  if (!least.ok()) return least.error();
  auto logger = spdlog::stderr_logger_mt("perdure-kv");
  logger->set_level(level_of(*least));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l: %v");
  set_message_callback([logger](Severity severity, const std::string& message) {
    logger->log(level_of(severity), message);
  });
  return {};
}

void lift_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

void remove_port_file(const std::string& path) {
  if (!path.empty()) (void)std::remove(path.c_str());
}

Result<void> write_port_file(const std::string& path,
                             const std::vector<std::pair<std::string, std::string>>& addresses) {
  if (path.empty()) return {};
  const std::string half = path + ".part";
  {
    std::ofstream file(half, std::ios::trunc);
    for (const auto& [name, address] : addresses) file << name << ' ' << address << '\n';
    file.flush();
    if (file && std::rename(half.c_str(), path.c_str()) == 0) return {};
  }
  return errno_error(fmt::format("the port file '{}' can not be written", path), errno);
}

}  // namespace perdure::kv_app
