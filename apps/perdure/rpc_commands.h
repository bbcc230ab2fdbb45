// What the files of `perdure rpc` share.
#pragma once

#include "commands.h"

namespace perdure::app {

/// Of a server that runs.
void add_rpc_status(Command rpc);  // rpc_status.cc
/// Of a service on k servers.
void add_rpc_service(Command rpc);  // rpc_service.cc

}  // namespace perdure::app
