// One HTTP/1.1 request and its answer, under one deadline that covers all of it: a peer that
// answers a byte at a time, or never ends its headers, is given up like one that is silent.
// docs/decisions/0010-http.md says why this is code of our own and the server's is not.
#pragma once

#include <perdure/result.h>

#include <string>
#include <string_view>

#include "control/host_port.h"
#include "core/clock.h"

namespace perdure::control {

struct HttpRequest {
  std::string method;
  std::string path;
  std::string body;  // JSON; empty: none
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};

inline constexpr std::size_t kAnswerHeaderBytesMax = 16 * 1024;

/// Errors: Disconnected (nobody listens, or gone before the whole answer), TimedOut, ProtocolError
/// (not HTTP, or larger than `body_bytes_max`). After a TimedOut or Disconnected the peer may or
/// may not have executed the request.
/// A host name is resolved within the same deadline.
/// `sent`, if given, says then whether it may have got any of it.
Result<HttpAnswer> http_call(const HostPort& to, const HttpRequest& request,
                             std::size_t body_bytes_max, Deadline deadline, bool* sent = nullptr);

/// Reads a whole answer as it stood on the wire. Errors: ProtocolError.
Result<HttpAnswer> parse_http_answer(std::string_view text);

}  // namespace perdure::control
