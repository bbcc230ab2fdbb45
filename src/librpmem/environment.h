// What the environment says to librpmem: the variables of PMDK's library, and our own.
#pragma once

#include <cstddef>
#include <string>

#include "rpmem/remote_pool.h"

namespace perdure::librpmem {

/// RPMEM_SSH, and one of the commands of RPMEM_CMD, which are used in turn. Threads: any.
rpmem::RemoteShell remote_shell();

/// What else it says of a pool: RPMEM_ENABLE_VERBS (0: no RNIC is looked for), and our own
/// PERDURE_RPMEM_TRANSPORT, PERDURE_RPMEM_RECONNECT_MS and PERDURE_RPMEM_CONNECT_MS.
void apply_environment(rpmem::RemotePoolOptions& options);

/// How many lanes a pool gets that asks for so many: RPMEM_MAX_NLANES, and our own limit.
std::size_t lanes_for(unsigned asked);

/// RPMEM_LOG_LEVEL (0 to 4) and RPMEM_LOG_FILE: from the first call on. Threads: any.
void begin_logging();

}  // namespace perdure::librpmem
