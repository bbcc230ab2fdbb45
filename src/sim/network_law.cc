// Watching a run on the network.
#include "sim/network_law.h"

#include <fmt/format.h>

namespace perdure::sim {

void NetworkLaw::on_persisted(const RemoteEpoch& epoch, Time at) {
  if (persisted_[epoch.connection] != epoch.number && broken_.empty()) {
    broken_ = fmt::format("epoch {} of connection {} persisted at {} ps, epoch {} was not",
                          epoch.number, epoch.connection, at, persisted_[epoch.connection]);
  }
  ++persisted_[epoch.connection];
  ++checked_;
}

void NetworkLaw::on_acknowledged(const RemoteEpoch& epoch, Time at) {
  if (persisted_[epoch.connection] > epoch.number || !broken_.empty()) return;
  broken_ = fmt::format("epoch {} of connection {} was acknowledged at {} ps and not persisted",
                        epoch.number, epoch.connection, at);
}

}  // namespace perdure::sim
