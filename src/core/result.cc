// Names of the public enumerations, both ways.
#include <perdure/pool.h>
#include <perdure/result.h>
#include <perdure/types.h>

namespace perdure {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument: return "invalid-argument";
    case ErrorCode::OutOfRange: return "out-of-range";
    case ErrorCode::Unsupported: return "unsupported";
    case ErrorCode::NotFound: return "not-found";
    case ErrorCode::AlreadyExists: return "already-exists";
    case ErrorCode::PermissionDenied: return "permission-denied";
    case ErrorCode::Busy: return "busy";
    case ErrorCode::Fenced: return "fenced";
    case ErrorCode::Disconnected: return "disconnected";
    case ErrorCode::OutcomeUnknown: return "outcome-unknown";
    case ErrorCode::TimedOut: return "timed-out";
    case ErrorCode::QueueFull: return "queue-full";
    case ErrorCode::LogFull: return "log-full";
    case ErrorCode::NoSpace: return "no-space";
    case ErrorCode::QuorumLost: return "quorum-lost";
    case ErrorCode::Corrupt: return "corrupt";
    case ErrorCode::VersionMismatch: return "version-mismatch";
    case ErrorCode::ProtocolError: return "protocol-error";
    case ErrorCode::SystemError: return "system-error";
  }
  return "unknown";
}

std::string_view to_string(Level level) {
  switch (level) {
    case Level::Received: return "received";
    case Level::Visible: return "visible";
    case Level::Durable: return "durable";
    case Level::Committed: return "committed";
  }
  return "unknown";
}

std::string_view to_string(LogShape shape) {
  switch (shape) {
    case LogShape::Singleton: return "singleton";
    case LogShape::Compound: return "compound";
  }
  return "unknown";
}

std::string_view to_string(LogEnd end) {
  switch (end) {
    case LogEnd::Clean: return "clean";
    case LogEnd::Torn: return "torn";
    case LogEnd::ChainBroken: return "chain-broken";
    case LogEnd::RingFull: return "ring-full";
  }
  return "unknown";
}

std::string_view to_string(PoolStatus state) {
  switch (state) {
    case PoolStatus::Open: return "open";
    case PoolStatus::Closed: return "closed";
    case PoolStatus::Unavailable: return "unavailable";
  }
  return "unknown";
}

std::string_view to_string(Primary primary) {
  switch (primary) {
    case Primary::Write: return "write";
    case Primary::WriteImm: return "write_imm";
    case Primary::Send: return "send";
  }
  return "unknown";
}

}  // namespace perdure
