// What the files of `perdure rpc` share.
#pragma once

#include "commands.h"

namespace perdure::app {

/// Of a server that runs.
void add_rpc_status(Command rpc);  // rpc_status.cc

}  // namespace perdure::app
