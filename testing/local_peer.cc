// A PeerService in this process as a Peer: see local_peer.h.
#include "testing/local_peer.h"

#include "client/connect_session.h"
#include "core/try.h"

namespace perdure::test {

Result<client::Session> LocalPeer::open_session(const control::SessionRequest& request,
                                                Deadline deadline) {
  PERDURE_TRY(grant, service_.open_session(request, device_.transport()));
  auto session = client::connect_session(grant, grant.address, device_, {}, deadline);
  if (!session) (void)service_.close_session(grant.session);
  return session;
}

}  // namespace perdure::test
