// `perdure demo`: the main job on an embedded default.
#include "commands.h"

namespace perdure::app {

void add_demo_command(CLI::App&) {}

}  // namespace perdure::app
