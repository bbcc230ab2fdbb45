// `perdure mirror`: mirrors of memory.
#include "commands.h"
#include "mirror_run_command.h"

namespace perdure::app {

void add_mirror_commands(Command app) {
  const Command mirror = app.add_subcommand("mirror", "Memory whose ranges are durable elsewhere");
  mirror.require_subcommand();
  add_mirror_run(mirror);
}

}  // namespace perdure::app
