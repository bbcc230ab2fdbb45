// Authorizer: who may do what on a peer. Asked before every request is executed.
#pragma once

#include <perdure/result.h>

#include <string>

namespace perdure::server {

enum class Action {
  Describe,
  CreatePool,
  OpenPool,
  ClosePool,
  DeletePool,
  Fence,
  Read,
  Write,
  CloseSession
};

/// One request, as far as a decision about it can depend on it.
struct AccessRequest {
  Action action = Action::Describe;
  std::string pool;        // empty: the request names none
  std::string origin;      // address of the requester; empty: this process
  std::string credential;  // what the requester presented; empty: nothing
};

/// An interface, although the only implementations are of tests so far: who may do what is decided
/// where credentials are (tokens, certificates, an operator's own), and that is not in this module.
/// Threads: any.
class Authorizer {
 public:
  virtual ~Authorizer() = default;
  /// Errors: PermissionDenied; its message goes to the requester, so it names no secret.
  virtual Result<void> authorize(const AccessRequest& request) = 0;
};

}  // namespace perdure::server
