// A PeerService on a machine of an emulated world as a peer of the world's other machines.
#pragma once

#include <functional>
#include <memory>

#include "client/peer.h"
#include "fabric/emu/world.h"
#include "server/service.h"

namespace perdure::test {

/// The service that runs there just now, or none.
using RunningService = std::function<server::PeerService*()>;

/// Whatever service runs on `server` when it is asked; Disconnected while none does, or without
/// power. If the device is a machine of the world, requests go over the link between the two: in
/// time, late, not at all, or without the answer. Requires that all of these outlive it.
std::unique_ptr<client::Peer> world_peer(fabric::emu::World& world, fabric::emu::Machine& server,
                                         RunningService service, fabric::Device& device);

/// What CertifyOptions::beside is in such a world, which has one thread: some steps before the call
/// and after it.
inline void step_around(const std::function<void()>& step, const std::function<void()>& call) {
  step();
  call();
  step();
}

}  // namespace perdure::test
