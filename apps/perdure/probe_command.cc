// `perdure probe`.
#include "commands.h"

namespace perdure::app {

void add_probe_command(CLI::App&) {}

}  // namespace perdure::app
