// A peer in a process of its own: this program again, started with other arguments, which can be
// killed at any moment. What it prints on its standard output is how it talks to its parent.
#pragma once

#include "harness.h"
#include "testing/process.h"

#include <string>
#include <vector>

namespace perdure::conformance {

class PeerProgram {
 public:
  /// Runs `arguments` (see run_peer) on a harness.
  PeerProgram(const Harness& harness, std::vector<std::string> arguments);
  ~PeerProgram();
  PeerProgram(const PeerProgram&) = delete;
  PeerProgram& operator=(const PeerProgram&) = delete;

  /// The next line it prints; empty when it says nothing for a while or has ended.
  std::string read_line();
  /// Ends it at once, without a chance to say goodbye, and waits until it is gone.
  void kill() { process_.kill(); }

 private:
  test::ChildProcess process_;
  int output_ = -1;
};

/// The life of a peer, for main(): `arguments` are the harness and
///   respond                       listens, prints "address key base length", polls until killed
///   request ADDRESS KEY BASE LEN  connects; writes, sends, reads until killed or disconnected
///   collect ADDRESS               connects, posts receives and sleeps until disconnected
int run_peer(const std::vector<std::string>& arguments);

}  // namespace perdure::conformance
