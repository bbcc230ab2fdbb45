// "host:port" as people write it, and whether it stays on this machine.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace perdure::control {

struct HostPort {
  std::string host;  // without the brackets of an IPv6 address
  std::uint16_t port = 0;
};

/// Reads "host:port", "1.2.3.4:port" or "[v6]:port". Errors: InvalidArgument.
Result<HostPort> parse_host_port(std::string_view text);

/// The inverse: IPv6 addresses get their brackets.
std::string to_string(const HostPort& at);

/// 127.0.0.0/8, also as IPv6 has it, ::1 or localhost: nobody outside this machine can reach it.
bool is_loopback(std::string_view host);

/// The address that listens everywhere: not one to connect to from elsewhere.
bool is_wildcard(std::string_view host);

}  // namespace perdure::control
