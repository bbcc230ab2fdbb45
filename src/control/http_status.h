// Which HTTP status says what an ErrorCode says. The code itself is in the body.
#pragma once

#include <perdure/result.h>

namespace perdure::control {

constexpr int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument:
    case ErrorCode::OutOfRange: return 400;
    case ErrorCode::PermissionDenied: return 403;
    case ErrorCode::NotFound: return 404;
    case ErrorCode::AlreadyExists:
    case ErrorCode::Busy:
    case ErrorCode::Fenced:
    case ErrorCode::VersionMismatch: return 409;
    case ErrorCode::Unsupported: return 422;
    case ErrorCode::QueueFull: return 503;
    case ErrorCode::TimedOut: return 504;
    case ErrorCode::NoSpace: return 507;
    default: return 500;
  }
}

}  // namespace perdure::control
