// The status of a durable RPC server as JSON, as `GET /v1/rpc` answers it:
// docs/rpc-status.schema.json describes it.
#pragma once

#include <perdure/result.h>
#include <perdure/rpc.h>

#include <string>
#include <string_view>

namespace perdure::rpc {

inline constexpr const char* kStatusPath = "/v1/rpc";

/// With `indent` spaces for each level; -1: one line.
std::string encode_status(const RpcServerStatus& status, int indent = -1);
/// Errors: ProtocolError; VersionMismatch.
Result<RpcServerStatus> decode_status(std::string_view text);

}  // namespace perdure::rpc
