// `perdure log`.
#include "commands.h"

namespace perdure::app {

void add_log_commands(CLI::App&) {}

}  // namespace perdure::app
