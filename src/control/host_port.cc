// "host:port": see host_port.h.
#include "control/host_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <charconv>

namespace perdure::control {

Result<HostPort> parse_host_port(std::string_view text) {
  const Error wrong{ErrorCode::InvalidArgument,
                    fmt::format("'{}' is not an address; write host:port, for example "
                                "127.0.0.1:7470 or [::1]:7470",
                                text.substr(0, 256))};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return wrong;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return wrong;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong;
  }
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc{} || digits.empty() || end != digits.data() + digits.size()) return wrong;
  return HostPort{std::string(host), port};
}

std::string to_string(const HostPort& at) {
  const bool v6 = at.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", at.host, at.port) : fmt::format("{}:{}", at.host, at.port);
}

bool is_loopback(std::string_view host) {
  if (host == "localhost") return true;
  const std::string text(host);
  in_addr v4{};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, text.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool is_wildcard(std::string_view host) { return host == "0.0.0.0" || host == "::"; }

}  // namespace perdure::control
