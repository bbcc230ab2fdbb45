// Unix domain sockets for live devices: addresses, listening, connecting, and waiting for a frame.
#pragma once

#include <perdure/result.h>

#include "core/clock.h"
#include "fabric/emu/live_frame.h"

#include <string>

namespace perdure::fabric::emu {

/// A listening socket; the caller closes it.
struct BoundSocket {
  int fd = -1;
  std::string address;
};

/// Listens at "@name" (abstract) or "/path"; empty: at a free abstract name.
/// Errors: InvalidArgument (the address), Busy (in use), SystemError.
Result<BoundSocket> listen_at(const std::string& address);

/// Removes the socket file of a listener, if its address is one.
void remove_socket_file(const std::string& address);

/// A connected non-blocking socket; the caller closes it.
/// Errors: InvalidArgument (the address), Disconnected, TimedOut.
Result<int> connect_to(const std::string& address, Deadline deadline);

Error refused(const std::string& address);

/// Waits for one frame without data. Errors: Disconnected, TimedOut.
Result<FrameHeader> await_frame(int fd, const std::string& address, Deadline deadline);

}  // namespace perdure::fabric::emu
