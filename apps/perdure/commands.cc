// How subcommands are added and run.
#include "commands.h"

#include "main_work.h"

#include <utility>

namespace perdure::app {
namespace {

std::function<ExitStatus()>& chosen() {
  static std::function<ExitStatus()> work;
  return work;
}

}  // namespace

void run_with(Command command, std::function<ExitStatus()> work) {
  command.callback([work = std::move(work)] { chosen() = work; });
}

void add_examples(Command command, const std::string& lines) {
  command.footer("Examples:\n" + lines);
}

ExitStatus run_chosen() { return chosen() ? chosen()() : ExitStatus::Usage; }

}  // namespace perdure::app
