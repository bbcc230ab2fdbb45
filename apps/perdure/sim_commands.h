// Parts of `perdure sim`: see sim_<part>_command.cc.
#pragma once

#include "commands.h"

namespace perdure::app {

void add_sim_method_command(Command sim);
void add_sim_server_command(Command sim);
void add_sim_network_command(Command sim);
void add_sim_remotelog_command(Command sim);
void add_sim_figure_commands(Command sim);
void add_sim_record_command(Command sim);

}  // namespace perdure::app
