// A peer that says something else of its memory than it is: for tests of what is decided by that.
#pragma once

#include <memory>
#include <utility>

#include "testing/relayed_peer.h"

namespace perdure::test {

/// By default nothing that is in its memory survives, whatever it is asked for.
class VolatilePeer final : public RelayedPeer {
 public:
  explicit VolatilePeer(std::unique_ptr<client::Peer> real,
                        PersistenceDomain domain = PersistenceDomain::None)
      : RelayedPeer(std::move(real)), domain_(domain) {}
  Result<client::Session> open_session(const control::SessionRequest& request,
                                       Deadline deadline) override {
    auto session = RelayedPeer::open_session(request, deadline);
    if (session.ok()) session->pool.profile.domain = domain_;
    return session;
  }

 private:
  PersistenceDomain domain_;
};

}  // namespace perdure::test
