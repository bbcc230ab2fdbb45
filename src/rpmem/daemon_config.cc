// The configuration of rpmemd: see daemon_config.h.
#include "rpmem/daemon_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/try.h"

namespace perdure::rpmem {
namespace {

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1));
}

Result<bool> parse_flag(const std::string& word) {
  if (word == "yes") return true;
  if (word == "no") return false;
  return Error{ErrorCode::InvalidArgument, fmt::format("'{}'; say yes or no", word)};
}

Result<LogLevel> parse_level(const std::string& word) {
  if (word == "err") return LogLevel::Error;
  if (word == "warn") return LogLevel::Warning;
  if (word == "notice") return LogLevel::Notice;
  if (word == "info") return LogLevel::Info;
  if (word == "debug") return LogLevel::Debug;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("'{}'; there are err, warn, notice, info and debug", word)};
}

Result<std::string> parse_directory(const std::string& word, const std::string& home) {
  constexpr std::string_view kHome = "$HOME";
  std::string path = word;
  if (path.compare(0, kHome.size(), kHome) == 0) path = home + path.substr(kHome.size());
  if (!path.empty() && path.front() == '/') return path;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("'{}' is not absolute; it begins with / or with $HOME", word)};
}

template <typename T>
Result<void> take(T& variable, Result<T> parsed) {
  if (!parsed.ok()) return parsed.error();
  variable = std::move(parsed).value();
  return {};
}

Result<void> set_key(DaemonConfig& config, const std::string& key, const std::string& value,
                     const std::string& home) {
  if (key == "poolset-dir") return take(config.poolset_dir, parse_directory(value, home));
  if (key == "use-syslog") return take(config.use_syslog, parse_flag(value));
  if (key == "persist-apm") return take(config.persist_apm, parse_flag(value));
  if (key == "persist-general") return take(config.persist_general, parse_flag(value));
  if (key == "log-level") return take(config.log_level, parse_level(value));
  if (key == "log-file") {
    PERDURE_TRY(path, parse_directory(value, home));
    config.log_file = path;
    config.use_syslog = false;
    return {};
  }
  if (key == "part-dir") {
    PERDURE_TRY(path, parse_directory(value, home));
    config.part_dirs.push_back(path);
    return {};
  }
  if (key == "declare-domain") {
    PERDURE_TRY(domain, parse_persistence_domain(value));
    config.declared = domain;
    return {};
  }
  return Error{ErrorCode::InvalidArgument,
               "there is no such key; there are poolset-dir, part-dir, declare-domain, "
               "persist-apm, persist-general, log-file, log-level and use-syslog"};
}

}  // namespace

Result<void> set_config(DaemonConfig& config, const std::string& key, const std::string& value,
                        const std::string& home) {
  auto set = set_key(config, key, value, home);
  if (set.ok()) return set;
  return Error{set.code(), fmt::format("{}: {}", key, set.error().message)};
}

Result<void> read_config(DaemonConfig& config, std::string_view text, const std::string& path,
                         const std::string& home) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    if (trimmed(line).empty()) continue;
    const std::size_t equals = line.find('=');
    const auto set =
        equals == std::string_view::npos
            ? Result<void>(Error{ErrorCode::InvalidArgument, "a line is `key = value`"})
            : set_config(config, trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)),
                         home);
    if (!set.ok()) {
      return Error{set.code(), fmt::format("{}:{}: {}", path, number, set.error().message)};
    }
  }
  return {};
}

}  // namespace perdure::rpmem
