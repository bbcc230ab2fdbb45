// What programs that serve until they are ended share: see service.h.
#include "command_line/service.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "core/errno_error.h"

namespace perdure::app {
namespace {

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

void log_to_stderr(const std::string& program, Severity least) {
  auto logger = spdlog::stderr_logger_mt(program);
  logger->set_level(level_of(least));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l: %v");
  set_message_callback([logger](Severity severity, const std::string& message) {
    logger->log(level_of(severity), message);
  });
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

}  // namespace perdure::app
