// What the two long-running commands share: signals, messages, the port file.
#pragma once

#include <perdure/result.h>

#include <string>
#include <utility>
#include <vector>

namespace perdure::kv_app {

/// SIGTERM and SIGINT from now on only make a descriptor readable; the second one ends the process
/// at once. To be called before any thread is started. The descriptor lives as long as the process.
Result<int> stop_descriptor();
/// Waits for it.
void wait_for_stop(int stop);
/// It was readable: from now on a signal ends the process.
void let_signals_end();

/// Messages of the library, from this level on, go to standard error. Errors: InvalidArgument.
Result<void> log_to_stderr(const std::string& level);

/// As many descriptors as the system allows.
void lift_descriptor_limit();

/// Removes what an earlier process wrote. Nothing happens for "".
void remove_port_file(const std::string& path);
/// One "name address" a line; appears whole. Errors: SystemError. Nothing happens for "".
Result<void> write_port_file(const std::string& path,
                             const std::vector<std::pair<std::string, std::string>>& addresses);

}  // namespace perdure::kv_app
