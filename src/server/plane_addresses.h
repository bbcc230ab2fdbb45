// Where the control plane and the data plane of a server listen, and who reaches them there.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include <string>
#include <vector>

#include "control/host_port.h"

namespace perdure::server {

struct PlaneAddresses {
  std::string control;  // host:port, as it was given or as it was bound
  std::string data;     // the same, of tcp
  std::vector<Transport> transports;
  bool allow_remote = false;
};

/// What whoever sets these calls them, for messages.
struct PlaneWords {
  std::string control = "[control] listen";
  std::string data = "[data] listen";
  std::string transports = "[data] transports";
  std::string allow_remote = "[control] allow_remote = true";
};

/// Whether nobody on another machine reaches what listens there. A name counts as the address that
/// will be bound; one that can not be resolved, as no loopback.
bool is_local(const control::HostPort& at);

/// Errors: PermissionDenied: other machines reach an address (an RNIC's always) without
/// allow_remote. InvalidArgument: they reach the control plane, which would send them to loopback,
/// their own, for data over tcp; or by IPv6, and would be sent to where only IPv4 is taken; or no
/// addresses.
Result<void> check_planes(const PlaneAddresses& planes, const PlaneWords& words = {});

}  // namespace perdure::server
