// What the parts of the command `perdure` share: how a subcommand is added, and with which status
// the program exits.
#pragma once

#include "command_line/command_line.h"

#include <functional>
#include <string>

namespace perdure::app {

/// The exit status of the program; docs/man/perdure.1 lists them for users.
enum class ExitStatus {
  Ok = 0,
  Failed = 1,        // could not do it: the error on standard error says why
  Usage = 2,         // the command line makes no sense; nothing was done
  NotCommitted = 3,  // some records are not known to be committed: the output says which
  Damaged = 4,       // what was verified differs or is damaged; or committed records are lost
  LossAccepted = 5,  // it was done, and what was lost was given up (--accept-loss)
};

/// Makes `work` what the program does when `command` was chosen. It runs after the whole command
/// line was found to be right.
void run_with(Command command, std::function<ExitStatus()> work);

/// The help of a subcommand ends with these lines, each an example.
void add_examples(Command command, const std::string& lines);

// One function per file of subcommands. Each is called once, by main.
void add_status_command(Command app);   // status_command.cc
void add_log_commands(Command app);     // log_*.cc
void add_pool_commands(Command app);    // pool_commands.cc
void add_probe_command(Command app);    // probe_command.cc
void add_plan_command(Command app);     // plan_command.cc
void add_check_command(Command app);    // check_command.cc
void add_bench_commands(Command app);   // bench_commands.cc
void add_demo_command(Command app);     // demo_command.cc
void add_up_command(Command app);       // up_command.cc
void add_rpc_commands(Command app);     // rpc_commands.cc
void add_mirror_commands(Command app);  // mirror_*.cc
void add_torture_command(Command app);  // torture_command.cc
void add_sim_command(Command app);      // sim_command.cc

}  // namespace perdure::app
