// InHandler: whose handler the thread is in. What would wait for that handler to end is refused
// there, since it would wait for ever.
#pragma once

#include <perdure/result.h>

namespace perdure::rpc {

class Executor;

/// For the scope in which a handler of `executor` runs. Threads: each has its own.
class InHandler {
 public:
  explicit InHandler(const Executor& executor) : before_(here()) { here() = &executor; }
  ~InHandler() { here() = before_; }
  InHandler(const InHandler&) = delete;
  InHandler& operator=(const InHandler&) = delete;

  /// Errors: InvalidArgument: the thread is in one of its handlers.
  static Result<void> refuse(const Executor& executor) {
    if (here() != &executor) return {};
    return Error{
        ErrorCode::InvalidArgument,
        "a handler can not decide about calls of its own server: it would wait for itself"};
  }

 private:
  static const Executor*& here() {
    thread_local const Executor* executor = nullptr;
    return executor;
  }

  const Executor* before_;
};

}  // namespace perdure::rpc
