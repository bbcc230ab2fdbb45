// The configuration of rpmemd: files of `key = value` lines as PMDK's daemon reads them, and two
// keys of our own.
//
//   poolset-dir     directory of the sets; absolute, or begins with $HOME
//   log-file        where messages go; turns use-syslog off
//   use-syslog      yes or no
//   log-level       err, warn, notice, info or debug
//   persist-apm     yes: inbound DMA is known to bypass the processor's caches
//   persist-general yes or no; nothing depends on it: the method is planned by the medium
//   part-dir        ours: a directory in which parts may lie besides poolset-dir; may be repeated
//   declare-domain  ours: what survives a power failure, as the operator knows it
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::rpmem {

enum class LogLevel { Error, Warning, Notice, Info, Debug };

struct DaemonConfig {
  std::string poolset_dir;  // empty: home
  std::vector<std::string> part_dirs;
  std::string log_file;
  LogLevel log_level = LogLevel::Error;
  bool use_syslog = true;
  bool persist_apm = false;
  bool persist_general = true;
  std::optional<PersistenceDomain> declared;
};

/// Sets one key. Errors: InvalidArgument.
Result<void> set_config(DaemonConfig& config, const std::string& key, const std::string& value,
                        const std::string& home);

/// Reads the text of a file on top of what there is. Pure. Errors: InvalidArgument, with the line.
Result<void> read_config(DaemonConfig& config, std::string_view text, const std::string& path,
                         const std::string& home);

}  // namespace perdure::rpmem
