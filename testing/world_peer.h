// A PeerService on a machine of an emulated world as a peer of the world's other machines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "client/peer.h"
#include "fabric/emu/world.h"
#include "server/service.h"

namespace perdure::test {

/// A request over the link between two machines, if `from` is one of this world: in time, late, not
/// at all, or without the answer. Disconnected without power at either end. `request` returns a
/// Result.
template <typename Request>
auto ask_over_link(fabric::emu::World& world, fabric::emu::Machine& server, fabric::Device& from,
                   Deadline deadline, Request request) -> decltype(request()) {
  constexpr std::uint64_t kOneInLost = 8;  // on a lossy link, and as many answers
  using fabric::emu::LinkState;
  const auto* const machine = dynamic_cast<const fabric::emu::Machine*>(&from);
  const Error off{ErrorCode::Disconnected, "no power"};
  const auto no_answer = [&] {
    world.pass(deadline.left());
    return Error{ErrorCode::TimedOut, server.name() + " does not answer"};
  };
  if ((machine != nullptr && !machine->powered()) || !server.powered()) return off;
  const LinkState link = machine != nullptr ? world.link(*machine, server) : LinkState::Up;
  const bool lossy = link == LinkState::Lossy;
  if (link == LinkState::Cut || (lossy && world.random().chance(1, kOneInLost))) return no_answer();
  const bool starved = server.starved();
  if (starved && world.random().chance(1, 2)) return no_answer();
  auto answer = request();
  if (!server.powered()) return off;
  if (starved || (lossy && world.random().chance(1, kOneInLost))) return no_answer();
  return answer;
}

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
