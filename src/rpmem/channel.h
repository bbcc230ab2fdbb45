// Channel: frames over a descriptor, or two, with a deadline.
#pragma once

#include <perdure/result.h>

#include "core/clock.h"
#include "rpmem/control.h"

#include <optional>
#include <string>

namespace perdure::rpmem {

/// Threads: one caller at a time.
class Channel {
 public:
  /// Does not own the descriptors.
  Channel(int in, int out) : in_(in), out_(out) {}

  /// Errors: Disconnected (the other side has gone), TimedOut, SystemError.
  Result<void> send(const Frame& frame, const Deadline& deadline);
  /// Nothing: waits for ever. Errors: the same; ProtocolError. Nothing more can be received then.
  Result<Frame> receive(const std::optional<Deadline>& deadline);

 private:
  Result<void> fill(char* to, std::size_t bytes, const std::optional<Deadline>& deadline);

  const int in_;
  const int out_;
};

}  // namespace perdure::rpmem
