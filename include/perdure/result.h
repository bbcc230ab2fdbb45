// Result<T>: a value or an Error. Every call of Perdure that can fail returns one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace perdure {

/// What went wrong, and what the caller should do. docs/errors.md: which call says what.
enum class ErrorCode {
  InvalidArgument,   // the request itself is wrong: change it
  OutOfRange,        // the address lies outside the pool: change it; nothing was executed
  Unsupported,       // this machine, medium or peer can not do that: ask for less, or declare more
  NotFound,          // no such pool, session or file: create it, or check the name
  AlreadyExists,     // choose another name, or open the existing one
  PermissionDenied,  // the authorizer or the file system said no
  Busy,              // held by another process or writer: wait, or take over explicitly
  Fenced,            // a newer writer owns it, nothing was begun: stop writing and reopen
  Disconnected,      // the peer is gone, nothing was changed there: reconnect, do it again
  OutcomeUnknown,    // it may or may not be done, or durable: look, or do it again
  TimedOut,          // the time is over, this call changed nothing: call again or give up
  QueueFull,         // a limit on work in flight is reached: poll, then try again
  LogFull,           // the ring has no room: trim, then append again
  NoSpace,           // the medium is full: free space or choose another place
  QuorumLost,        // fewer replicas than the quorum are up: repair or wait
  Corrupt,           // stored bytes fail their checksum: repair from another replica
  VersionMismatch,   // written by another version of the format or protocol: see the message
  ProtocolError,     // the other side sent something that makes no sense: it is refused
  SystemError,       // the operating system refused; the message carries its reason
};

/// The name of a code as it is written in text, JSON and logs, for example "outcome-unknown".
std::string_view to_string(ErrorCode code);

/// One failure: what a program acts on, and a sentence for a person (thing, cause, remedy).
struct Error {
  ErrorCode code = ErrorCode::SystemError;
  std::string message;
};

/// Holds a value or an Error. Reading the value of a failed result, or the error of one that holds
/// a value, is a mistake of the program: it throws (std::bad_variant_access), which ends a program
/// that catches nothing.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return std::get<1>(state_); }
  ErrorCode code() const { return error().code; }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  /// Throws std::bad_optional_access where nothing failed, as Result<T> throws: who asks a success
  /// for its error must not read one that nobody has written.
  const Error& error() const { return error_.value(); }
  ErrorCode code() const { return error().code; }

 private:
  std::optional<Error> error_;
};

}  // namespace perdure
