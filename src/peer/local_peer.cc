// A PeerService in this process as a Peer: see local_peer.h.
#include "peer/local_peer.h"

#include "core/try.h"
#include "peer/connect_session.h"

namespace perdure::peer {

Result<Session> LocalPeer::open_session(const SessionRequest& request, Deadline deadline) {
  PERDURE_TRY(grant, service_.open_session(request, device_.transport()));
  auto session = connect_session(grant, grant.address, device_, deadline);
  if (!session) (void)service_.close_session(grant.session);
  return session;
}

}  // namespace perdure::peer
