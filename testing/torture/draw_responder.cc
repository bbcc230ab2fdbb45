// Drawing a responder.
#include "testing/torture/draw_responder.h"

#include <array>

namespace perdure::test {

ServerProfile draw_responder(Random& choices) {
  using enum PersistenceDomain;
  constexpr std::array kDomains = {Dmp, Dmp, Mhp, Wsp, Page};
  constexpr std::array kTransports = {Transport::InfiniBand, Transport::Roce, Transport::Tcp};
  ServerProfile profile;
  profile.domain = kDomains[choices.below(kDomains.size())];
  profile.transport = kTransports[choices.below(kTransports.size())];
  profile.ddio = choices.chance(1, 2) ? Ddio::Off : Ddio::On;
  profile.write_order = choices.chance(1, 2) ? WriteOrder::Ordered : WriteOrder::Unknown;
  profile.dma_dirties = choices.chance(1, 2) ? DmaDirties::Yes : DmaDirties::No;
  profile.capabilities.native_flush = profile.ddio == Ddio::Off && choices.chance(1, 2);
  profile.receive_buffers = choices.chance(1, 3) ? ReceiveBuffers::Pm : ReceiveBuffers::Dram;
  return profile;
}

}  // namespace perdure::test
