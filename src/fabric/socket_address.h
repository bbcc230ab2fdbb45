// Internet addresses as text and as the kernel wants them.
#pragma once

#include <perdure/result.h>

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "core/clock.h"

namespace perdure::fabric {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

/// Parses "host:port" or "[v6]:port"; empty is any free port on 127.0.0.1. Names are resolved and
/// the first answer is taken. Errors: InvalidArgument; TimedOut (the name was not resolved).
Result<SocketAddress> parse_socket_address(const std::string& text, Deadline deadline);

/// For names to listen at: nobody waits for those.
inline constexpr Nanoseconds kListenNameWithin = std::chrono::seconds{10};

/// "1.2.3.4:5" or "[::1]:5".
std::string to_string(const SocketAddress& address);

/// The same without the port: "1.2.3.4" or "::1".
std::string host_of(const SocketAddress& address);
std::uint16_t port_of(const SocketAddress& address);

}  // namespace perdure::fabric
