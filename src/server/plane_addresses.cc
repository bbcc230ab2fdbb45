// See plane_addresses.h.
#include "server/plane_addresses.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/try.h"
#include "fabric/open_device.h"
#include "fabric/resolve.h"

namespace perdure::server {
namespace {

/// That of a name is the first of its addresses, as where it is bound.
std::string bound_host(const control::HostPort& at) {
  const auto found = fabric::resolve(at.host, at.port, Deadline::after(fabric::kListenNameWithin));
  return found.ok() ? fabric::host_of(found->front()) : at.host;
}

Result<void> refuse_remote(const std::string& key, const std::string& listen,
                           const control::HostPort& at, const PlaneWords& words) {
  if (is_local(at)) return {};
  return Error{ErrorCode::PermissionDenied,
               fmt::format("{} = \"{}\" can be reached from other machines, and this version "
                           "authenticates nobody; listen on 127.0.0.1, or set {} if everyone on "
                           "that network may read and write the pools",
                           key, listen, words.allow_remote)};
}

Result<void> refuse_rnics(const PlaneAddresses& planes, const PlaneWords& words) {
  for (const Transport transport : planes.transports) {
    if (!fabric::is_rdma(transport)) continue;
    return Error{ErrorCode::PermissionDenied,
                 fmt::format("{} has \"{}\": an RNIC can be reached from other machines, and this "
                             "version authenticates nobody; set {} if everyone on that network may "
                             "read and write the pools",
                             words.transports, to_string(transport), words.allow_remote)};
  }
  return {};
}

/// Addresses of IPv4 that are written as IPv6 has them are none of IPv6.
bool is_v6(const std::string& host) {
  return host.find(':') != std::string::npos && !host.starts_with("::ffff:");
}

/// Who is granted a wildcard goes to the address that the control plane was reached at. At one of
/// IPv6 no wildcard of IPv4 listens; that of IPv6 does at both.
Result<void> refuse_v4_beside_v6(const PlaneAddresses& planes, const control::HostPort& control,
                                 const control::HostPort& data, const PlaneWords& words) {
  if (!is_v6(bound_host(control)) || bound_host(data) != "0.0.0.0") return {};
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("{} is \"{}\", which clients reach by IPv6, and {} \"{}\", which they do not: "
                  "set {} to \"[::]:{}\", which takes IPv4 too, or {} to an address of IPv4",
                  words.control, planes.control, words.data, planes.data, words.data, data.port,
                  words.control)};
}

}  // namespace

bool is_local(const control::HostPort& at) {
  return control::is_loopback(at.host) || control::is_loopback(bound_host(at));
}

Result<void> check_planes(const PlaneAddresses& planes, const PlaneWords& words) {
  PERDURE_TRY(control, control::parse_host_port(planes.control));
  const bool by_tcp = std::find(planes.transports.begin(), planes.transports.end(),
                                Transport::Tcp) != planes.transports.end();
  control::HostPort data{"127.0.0.1", 0};  // what an empty one means
  if (by_tcp && !planes.data.empty()) {
    PERDURE_TRY(given, control::parse_host_port(planes.data));
    data = given;
  }
  if (!planes.allow_remote) {
    PERDURE_TRY_VOID(refuse_rnics(planes, words));
    PERDURE_TRY_VOID(refuse_remote(words.control, planes.control, control, words));
    return refuse_remote(words.data, planes.data, data, words);
  }
  if (by_tcp) PERDURE_TRY_VOID(refuse_v4_beside_v6(planes, control, data, words));
  if (!by_tcp || is_local(control) || !is_local(data)) return {};
  // Who comes by IPv6 reaches no wildcard of IPv4.
  const bool v6 = bound_host(control).find(':') != std::string::npos;
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("{} is \"{}\", for other machines, and {} \"{}\", where tcp takes them to "
                  "themselves: set {} to an address that they reach, or to \"{}:{}\"; or leave tcp "
                  "out of {}: then who writes runs on this machine, and is reached by shm",
                  words.control, planes.control, words.data, planes.data, words.data,
                  v6 ? "[::]" : "0.0.0.0", data.port, words.transports)};
}

}  // namespace perdure::server
