// `perdure sim method`: see sim_method_command.cc.
#pragma once

#include "commands.h"

namespace perdure::app {

void add_sim_method_command(Command sim);

}  // namespace perdure::app
