// RnicOptions: which RNIC of this machine a program uses, and what it asks of its connections.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace perdure {

/// Without effect over tcp and shm, but values out of range are InvalidArgument over any.
struct RnicOptions {
  /// Of several RNICs here, the one with this name ("mlx5_0") or address; empty: the first that
  /// fits.
  std::string name;
  /// How long it waits for the peer's before it sends again: 4.096 us times two to the power of
  /// this, 6 to 22, and an RNIC may take four times as long. It tries 7 times, so at 17, 0.54 s, a
  /// peer that is gone shows after about 4 s. Lower it where that is too long and the network never
  /// pauses; InfiniBand takes it from the subnet manager. Not set: 17, or what this process says of
  /// all its connections.
  std::optional<std::uint32_t> ack_timeout = std::nullopt;
  /// RoCE: the traffic class of its packets, 0 to 255: DSCP times 4 and two bits for ECN, by which
  /// switches choose a queue without loss. Not set: the system's own.
  std::optional<std::uint32_t> traffic_class = std::nullopt;
  bool operator==(const RnicOptions&) const = default;
};

}  // namespace perdure
