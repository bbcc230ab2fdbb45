// SilentPeers: who has connected to a listener of the tcp provider and has said nothing yet.
//
// The provider accepts every connection and keeps it, without a limit of time or number, until its
// first byte; and when there are no descriptors left it asks for the next one in a circle. It has
// no option for either. But it says which sockets its event queue waits on (FI_GETWAIT), and a
// socket that is shut down is one that it closes.
#pragma once

#ifdef PERDURE_WITH_LIBFABRIC
#include <rdma/fi_eq.h>

#include <map>
#include <string>

#include "core/clock.h"

namespace perdure::fabric::ofi {

/// The provider reads a peer's request with blocking calls as soon as its first byte is there
/// (rx_cm_data): a peer that sends half a request would hold the listener for ever. The sockets
/// that a listening socket accepts inherit its receive time-out, so that is where a limit is set.
void limit_handshake(fid_eq* events);

/// Threads: one caller at a time.
class SilentPeers {
 public:
  struct Limits {
    Nanoseconds speak_within = std::chrono::seconds{5};
    std::size_t peers_max = 128;
    std::size_t per_address_max = 96;
  };

  SilentPeers() : SilentPeers(Limits{}) {}
  explicit SilentPeers(const Limits& limits) : limits_(limits) {}

  /// Ends those that have been silent too long; and where there are too many, of all or of one
  /// address, those that have been the longest. To be called while waiting.
  void tend(fid_eq* events);
  /// Whether the process had no descriptor for another connection at the last tend().
  bool no_descriptors() const { return no_descriptors_; }

 private:
  struct Silent {
    Deadline until;
    std::string address;
    std::uint64_t order = 0;
    bool seen = true;
  };

  const Limits limits_;
  /// By socket: the number, which is used again, and the inode, which tells whether it was.
  std::map<std::pair<int, std::uint64_t>, Silent> silent_;
  std::uint64_t came_ = 0;
  bool no_descriptors_ = false;
};

}  // namespace perdure::fabric::ofi
#endif
