// The commands of perdure-kv. Each adds itself to the command line, and says in `status` how it
// ended.
#pragma once

#include <perdure/result.h>

#include "command_line/command_line.h"

namespace perdure::kv_app {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitDamaged = 3;

void add_serve_command(const app::Program& program, int& status);
void add_resp_command(const app::Program& program, int& status);
void add_check_command(const app::Program& program, int& status);
void add_bench_command(const app::Program& program, int& status);

/// Prints the error; returns the exit status for it.
int report(const Error& error);

}  // namespace perdure::kv_app
