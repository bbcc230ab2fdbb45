// resolve: the addresses of a host name, within the caller's deadline.
// getaddrinfo(3) has no deadline and can not be cancelled: with a name server that does not answer
// it takes half a minute. So it runs in a thread of its own, which is left behind when the deadline
// passes and ends by itself; whoever asks for that name meanwhile waits for the same answer.
// Addresses as numbers need no thread and no name server.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "fabric/socket_address.h"

namespace perdure::fabric {

/// Names that are looked up at a time, at most, those that were left behind included; no other one
/// is meanwhile.
inline constexpr std::size_t kLookupsMax = 16;

/// What looks a name up: the addresses in the order in which they are to be tried. Tests give their
/// own; it may be called after resolve() has returned. Errors: as the name service says them.
using Lookup =
    std::function<Result<std::vector<SocketAddress>>(const std::string& host, std::uint16_t port)>;
Result<std::vector<SocketAddress>> system_lookup(const std::string& host, std::uint16_t port);

/// At least one address. Errors: TimedOut; InvalidArgument (there is no such host).
Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port,
                                           Deadline deadline, const Lookup& lookup = system_lookup);

}  // namespace perdure::fabric
