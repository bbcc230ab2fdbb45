// `perdure bench`: measurements.
#include "commands.h"

namespace perdure::app {

void add_bench_commands(CLI::App&) {}

}  // namespace perdure::app
