// The documents of the control plane, to and from JSON (docs/control-plane.md has them as text).
// Reading is strict: what is not described is an error, and nothing throws.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "control/documents.h"
#include "control/service_types.h"

namespace perdure::control {

/// The body of POST /v1/pools/{name}/sessions; `pool` is filled in from the path.
struct SessionAsk {
  SessionRequest request;
  TransportChoice transport;
};

// Requests. Errors of reading: InvalidArgument, VersionMismatch.
std::string encode(const PoolRequest& request);
Result<PoolRequest> decode_pool_request(std::string_view text);
std::string encode(const SessionAsk& ask);
Result<SessionAsk> decode_session_ask(std::string_view text, const std::string& pool);
std::string encode_fence(Epoch epoch);
Result<Epoch> decode_fence(std::string_view text);
/// Which pool is to be deleted.
struct Deletion {
  std::string uuid;
  bool look = false;  // nothing is deleted: only what would be in the way is said
};
std::string encode(const Deletion& deletion);
Result<Deletion> decode_deletion(std::string_view text);
/// For requests that carry nothing: an empty body or an empty object.
Result<void> decode_empty(std::string_view text);

// Answers. Errors of reading: ProtocolError, VersionMismatch.
std::string encode(const PoolDescription& pool);
Result<PoolDescription> decode_pool(std::string_view text);
std::string encode(const std::vector<PoolDescription>& pools);
Result<std::vector<PoolDescription>> decode_pools(std::string_view text);
std::string encode(const SessionGrant& grant);
Result<SessionGrant> decode_grant(std::string_view text);
std::string encode(const SessionDescription& session);
Result<SessionDescription> decode_session(std::string_view text);
std::string encode(const std::vector<SessionDescription>& sessions);
std::string encode(const ServiceDescription& service);
Result<ServiceDescription> decode_service(std::string_view text);
std::string encode(const Error& error);
/// The error that an answer carries; a ProtocolError if it carries none.
Error decode_error(std::string_view text);
/// An answer that only says that it was done.
std::string encode_accepted();
Result<void> decode_accepted(std::string_view text);

}  // namespace perdure::control
