// `perdure plan`.
#include "commands.h"

namespace perdure::app {

void add_plan_command(CLI::App&) {}

}  // namespace perdure::app
