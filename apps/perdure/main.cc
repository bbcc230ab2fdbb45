// `perdure`: writes and reads replicated logs, manages pools, and answers questions about machines,
// methods and their proofs. Every subcommand is in a file of its own.
#include "commands.h"
#include "main_work.h"
#include "output.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>

namespace perdure::app {
namespace {

void describe_program(CLI::App& app) {
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("perdure ") + PERDURE_VERSION);
  app.get_formatter()->column_width(34);
  app.footer(
      "Exit status: 0 success, 1 failed, 2 wrong command line, 3 records not committed,\n"
      "4 replicas differ or are damaged. `perdure COMMAND --help` has examples.");
}

ExitStatus parse_and_run(int argc, char** argv) {
  CLI::App app{"Makes records durable on other machines, and proves that they are.", "perdure"};
  describe_program(app);
  bool verbose = false;
  app.add_flag("-v,--verbose", verbose, "Also say what the library has to tell");
  app.fallthrough();
  add_log_commands(app);
  add_pool_commands(app);
  add_probe_command(app);
  add_plan_command(app);
  add_check_command(app);
  add_bench_commands(app);
  add_demo_command(app);
  add_sim_command(app);
  add_torture_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    const auto unknown = app.remaining(true);
    if (unknown.empty()) return app.exit(error) == 0 ? ExitStatus::Ok : ExitStatus::Usage;
    const std::string_view what = unknown[0].starts_with('-') ? "option" : "command";
    print_error({ErrorCode::InvalidArgument,
                 fmt::format("there is no {} '{}'; `--help` lists them", what, unknown[0])});
    return ExitStatus::Usage;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ExitStatus::Ok : ExitStatus::Usage;
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
