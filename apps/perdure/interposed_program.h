// Programs that are not ours, started with the interposer (src/interpose) before their libraries.
#pragma once

#include <perdure/result.h>

#include "testing/process.h"

#include <functional>
#include <string>
#include <vector>

namespace perdure::app {

/// Finds PROGRAM as execvp() would, and whether the interposer gets to see what it does.
///
/// Errors  NotFound; Unsupported: it is linked statically, is of another architecture, or changes
///         its user (setuid), for which the dynamic loader preloads nothing.
Result<std::string> find_interposable(const std::string& program);

struct InterposedRun {
  std::vector<std::string> command;  // what find_interposable returned, and its arguments
  std::string backend;               // the value of the interposer's variable
  bool output_to_error = false;      // its standard output is ours for the result
  /// Called ten times a second while it runs; false ends it.
  std::function<bool()> meanwhile;
};

/// Runs it to its end, in this process's group: it may read from the terminal, and gets what is
/// typed there. SIGINT and SIGTERM that are sent to this process are passed on to it. Errors
/// NotFound (no interposer beside this program), SystemError.
Result<test::ChildEnd> run_interposed(const InterposedRun& run);

/// "with status 3", "by signal 9 (Killed)"
std::string describe(const test::ChildEnd& end);

}  // namespace perdure::app
