// `perdure`: writes and reads replicated logs, manages pools, and answers questions about machines,
// methods and their proofs. Every subcommand is in a file of its own.
#include "client_profile.h"
#include "commands.h"
#include "main_work.h"
#include "output.h"

#include <fmt/format.h>
#include <perdure/version.h>

#include <csignal>
#include <cstdio>
#include <exception>

namespace perdure::app {
namespace {

void describe(const Program& program) {
  program.require_subcommand();
  program.set_version(std::string("perdure ") + PERDURE_VERSION_STRING);
  program.set_column_width(34);
  program.footer(
      "Exit status: 0 success, 1 failed, 2 wrong command line, 3 records not committed,\n"
      "4 replicas differ or are damaged, 5 done, and what was lost was given up.\n"
      "`perdure COMMAND --help` has examples.");
  program.allow_options_anywhere();
  add_status_command(program);
  add_log_commands(program);
  add_pool_commands(program);
  add_mirror_commands(program);
  add_rpc_commands(program);
  add_probe_command(program);
  add_plan_command(program);
  add_check_command(program);
  add_bench_commands(program);
  add_demo_command(program);
  add_up_command(program);
  add_sim_command(program);
  add_torture_command(program);
}

/// What stands in for the options that most commands need, and where it does not.
void explain_missing(Program& program) {
  const auto say = [&program](const std::string& option, const char* variable, const char* field,
                              const char* more) {
    program.when_missing(
        option,
        fmt::format("{} or `{}` in ~/.config/perdure/client.toml does as well{}", variable, field,
                    more),
        fmt::format("{} and client.toml do not count here, give it on the command line", variable));
  };
  say("--peers", kPeersVariable, "peers", "; `perdure up` starts peers to try things with");
  say("--pool", kPoolVariable, "pool", "");
}

ExitStatus parse_and_run(int argc, char** argv) {
  if (const auto stands_in = use_client_profile(argc, argv); !stands_in.ok()) {
    print_error(stands_in.error());
    return ExitStatus::Usage;
  }
  Program program("Makes records durable on other machines, and proves that they are.", "perdure");
  bool verbose = false;
  program.add_flag("-v,--verbose", verbose, "Also say what the library has to tell");
  std::string profile;  // was looked at before the rest: see below
  program
      .add_option("--profile", profile,
                  "Peers, pool and the like of commands that do not name them "
                  "(~/.config/perdure/client.toml)")
      .option_text("FILE");
  describe(program);
  explain_missing(program);
  switch (program.parse(argc, argv)) {
    case Program::Parsed::Right: break;
    case Program::Parsed::Answered: return ExitStatus::Ok;
    case Program::Parsed::Wrong: return ExitStatus::Usage;
  }
  show_library_messages(verbose);
  const ExitStatus status = run_chosen();
  flush_output();
  return status;
}

}  // namespace
}  // namespace perdure::app

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of the write, reported like any other
  try {
    return static_cast<int>(perdure::app::parse_and_run(argc, argv));
  } catch (const std::exception& error) {
    // Only the standard library's allocation and the command line parser throw.
    std::fprintf(stderr, "perdure: %s\n", error.what());
    return static_cast<int>(perdure::app::ExitStatus::Failed);
  }
}
