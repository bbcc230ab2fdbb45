// What an epoch of persistent writes takes on an idle connection, as a formula: the judge of
// network_run.h, which must agree with it when nothing waits for anything else.
#pragma once

#include "core/hardware.h"
#include "sim/station.h"

#include <cstdint>
#include <string_view>

namespace perdure::sim {

/// What each part of the way takes for an epoch of so many bytes, in one message.
struct EpochParts {
  Time post = 0;        // the client's CPU
  Time gap = 0;         // the queue pair, until it takes the next message
  Time fetch = 0;       // latency of a payload that is not inline; 0: it is
  Time fetch_busy = 0;  // of the client's PCIe
  Time rnic = 0;        // each crossing
  Time wire = 0;
  Time link_busy = 0;
  Time dma = 0;
  Time pcie_busy = 0;  // of the server's
  Time drain = 0;      // cache to memory controller, with DDIO
  Time medium = 0;
  Time ack = 0;       // made by the server's RNIC
  Time ack_link = 0;  // on the wire
  Time completion = 0;

  /// From the post to the persist ACK in the client's hands.
  Time round_trip() const;
  /// Of that, in the server's memory: the rest is what the network takes.
  Time in_memory() const { return drain + medium; }
  /// Between two of many that are posted one after the other: what the slowest station takes.
  Time spacing() const;
  /// The name of that station.
  std::string_view slowest() const;
};

EpochParts epoch_parts(const NetworkHardware& hardware, std::uint64_t bytes, bool ddio);

/// The network, so that another epoch of `bytes` takes `share` of a round trip: with a longer wire,
/// or with queue pairs that take the next message later.
/// Requires  0 < share.
NetworkHardware with_spacing(NetworkHardware hardware, std::uint64_t bytes, double share);

/// What another epoch takes of a round trip, if BSP is `gain` times Sync in a transaction of n.
inline double implied_spacing(double gain, std::uint64_t epochs) {
  const auto n = static_cast<double>(epochs);
  return (n / gain - 1) / (n - 1);
}

/// n epochs, each posted when the one before it is persisted.
inline Time sync_form(const EpochParts& parts, std::uint64_t epochs) {
  return epochs * parts.round_trip();
}
/// n epochs, all posted at once; the last one's persist ACK is waited for.
inline Time bsp_form(const EpochParts& parts, std::uint64_t epochs) {
  return parts.round_trip() + (epochs - 1) * parts.spacing();
}

}  // namespace perdure::sim
