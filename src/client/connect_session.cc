// From a grant to a session: see connect_session.h.
#include "client/connect_session.h"

#include "control/token.h"
#include "core/try.h"

namespace perdure::client {

Result<Session> connect_session(const control::SessionGrant& grant, const std::string& address,
                                fabric::Device& device, const fabric::EndpointOptions& endpoints,
                                Deadline deadline) {
  const auto token = encode(control::SessionToken{grant.session, grant.token});
  PERDURE_TRY(endpoint, device.connect(address, token, endpoints, deadline));
  Session session;
  session.id = grant.session;
  session.endpoint = std::move(endpoint);
  session.remote = grant.remote;
  session.pool = grant.pool;
  Capabilities& can = session.pool.profile.capabilities;
  can = both(can, session.endpoint->capabilities());  // the responder's RNIC and ours
  session.receive_depth = grant.receive_depth;
  session.message_bytes_max = grant.message_bytes_max;
  session.medium = grant.medium;
  return session;
}

}  // namespace perdure::client
