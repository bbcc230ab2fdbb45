// `perdure check`.
#include "commands.h"

namespace perdure::app {

void add_check_command(CLI::App&) {}

}  // namespace perdure::app
