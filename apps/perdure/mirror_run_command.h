// `perdure mirror run`, a part of `perdure mirror`.
#pragma once

#include "commands.h"

namespace perdure::app {

void add_mirror_run(Command mirror);  // mirror_run_command.cc

}  // namespace perdure::app
