// A peer in a process of its own: this program again, started with other arguments, which can be
// killed at any moment. What it prints on its standard output is how it talks to its parent.
#pragma once

#include "harness.h"

#include <sys/types.h>

#include <string>
#include <vector>

namespace perdure::conformance {

class PeerProcess {
 public:
  /// Runs `arguments` (see run_peer) on a harness.
  PeerProcess(const Harness& harness, std::vector<std::string> arguments);
  ~PeerProcess();  // kills it
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  /// The next line it prints; empty when it says nothing for a while or has ended.
  std::string read_line();
  /// Ends it at once, without a chance to say goodbye, and waits until it is gone.
  void kill();

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

/// The life of a peer, for main(): `arguments` are the harness and
///   respond                       listens, prints "address key base length", polls until killed
///   request ADDRESS KEY BASE LEN  connects; writes, sends, reads until killed or disconnected
///   collect ADDRESS               connects, posts receives and sleeps until disconnected
int run_peer(const std::vector<std::string>& arguments);

}  // namespace perdure::conformance
