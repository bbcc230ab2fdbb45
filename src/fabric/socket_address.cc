// See socket_address.h.
#include "fabric/socket_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <cstring>
#include <system_error>

#include "fabric/resolve.h"

namespace perdure::fabric {

Result<SocketAddress> parse_socket_address(const std::string& text, Deadline deadline) {
  const std::string whole = text.empty() ? "127.0.0.1:0" : text;
  const std::size_t colon = whole.rfind(':');
  if (colon == std::string::npos) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("address '{}' has no port: write host:port", text)};
  }
  std::string host = whole.substr(0, colon);
  const std::string port = whole.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }

  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc{} || end != port.data() + port.size()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("address '{}': '{}' is no port", text, port)};
  }
  auto found = resolve(host, number, deadline);
  if (!found) {
    return Error{found.code(), fmt::format("address '{}': {}", text, found.error().message)};
  }
  return found->front();
}

std::string host_of(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (address.storage.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address.storage, sizeof v6);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, host.data(), host.size());
  } else {
    sockaddr_in v4;
    std::memcpy(&v4, &address.storage, sizeof v4);
    ::inet_ntop(AF_INET, &v4.sin_addr, host.data(), host.size());
  }
  return host.data();
}

std::uint16_t port_of(const SocketAddress& address) {
  // The port is at one place in both forms.
  sockaddr_in either;
  std::memcpy(&either, &address.storage, sizeof either);
  return ntohs(either.sin_port);
}

std::string to_string(const SocketAddress& address) {
  const bool v6 = address.storage.ss_family == AF_INET6;
  return fmt::format(fmt::runtime(v6 ? "[{}]:{}" : "{}:{}"), host_of(address), port_of(address));
}

}  // namespace perdure::fabric
