// The measurements that `perdure bench` offers, one function per file.
#pragma once

#include "commands.h"

namespace perdure::app {

void add_bench_remotelog(Command bench);  // bench_remotelog_command.cc
void add_bench_limits(Command bench);     // bench_limits_command.cc
void add_bench_mirror(Command bench);     // bench_limits_command.cc
void add_bench_files(Command bench);      // bench_files_command.cc
void add_bench_rpc(Command bench);        // bench_rpc_command.cc

}  // namespace perdure::app
