// `perdure pool`.
#include "commands.h"

namespace perdure::app {

void add_pool_commands(CLI::App&) {}

}  // namespace perdure::app
