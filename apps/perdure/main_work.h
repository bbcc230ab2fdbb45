// For main alone: runs the subcommand that the command line chose.
#pragma once

#include "commands.h"

namespace perdure::app {

/// Requires that the command line was parsed.
ExitStatus run_chosen();

}  // namespace perdure::app
