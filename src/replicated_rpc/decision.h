// What an operator decides about a call that is set aside, where no server executes.
#pragma once

#include <perdure/replicated_rpc.h>
#include <perdure/result.h>

#include "replicated_rpc/effects.h"

#include <cstdint>
#include <string>

namespace perdure::replicated_rpc {

/// Becomes the writer of the effects for a moment, as ReplicatedRpcServer::retry and drop write
/// them; on success the decision is committed.
/// Errors: Busy (a server executes), NotFound (no such service; no such client), InvalidArgument
/// (this call is not set aside), and those of Log::open, append and wait.
Result<void> decide(const ReplicatedRpcGroup& group, const std::string& client,
                    std::uint64_t sequence, Decision decision);

}  // namespace perdure::replicated_rpc
