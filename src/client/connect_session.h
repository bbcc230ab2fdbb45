// From a grant to a session: the connection on the data plane.
#pragma once

#include <string>

#include "client/peer.h"
#include "control/service_types.h"

namespace perdure::client {

/// Connects to `address`, with these options, and shows the grant's token. Errors: those of
/// Device::connect; the grant is then still to be given back.
Result<Session> connect_session(const control::SessionGrant& grant, const std::string& address,
                                fabric::Device& device, const fabric::EndpointOptions& endpoints,
                                Deadline deadline);

}  // namespace perdure::client
