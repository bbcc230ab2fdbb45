// PeerProcess: a perdured on this machine, with a directory of its own, that can be killed and
// started again at the same address.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "testing/process.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace perdure::test {

struct PeerProcessOptions {
  std::string program;    // empty: see find_perdured
  std::string directory;  // made if need be; pools, ports and the daemon's messages go there
  std::string address;    // of the control plane; empty: a free port of loopback
  std::optional<PersistenceDomain> declared;
  std::vector<std::string> transports;            // empty: as the daemon has it by default
  bool allow_remote = false;                      // an RNIC is reached from other machines too
  std::optional<std::chrono::microseconds> spin;  // after a message it polls for this long
};

class PeerProcess {
 public:
  /// Starts the daemon and waits until it serves; but for options.address, on free ports.
  /// Errors: NotFound (no perdured beside this program), TimedOut, SystemError; with the last line
  /// that the daemon wrote.
  static Result<PeerProcess> start(PeerProcessOptions options);

  const std::string& address() const { return address_; }  // of the control plane
  pid_t pid() const { return process_.pid(); }
  bool running() { return process_.running(); }
  /// kill -9.
  void kill() { process_.kill(); }
  /// Again, at the same address, after it was killed or stopped. Errors: those of start.
  Result<void> start_again();
  Result<void> stop() { return process_.stop(std::chrono::seconds(10)); }
  void signal(int number) const { process_.signal(number); }

 private:
  explicit PeerProcess(PeerProcessOptions options)
      : options_(std::move(options)), address_(options_.address) {}
  Result<void> launch();
  Result<void> await_ports(const std::string& port_file);

  PeerProcessOptions options_;
  ChildProcess process_;
  std::string address_;
};

/// Where the daemon that was last started in this directory had its control plane; empty: none was.
std::string last_address(const std::string& directory);

/// Where the daemon is: beside this program when installed, or where the build puts it.
/// Errors: NotFound, naming the places.
Result<std::string> find_perdured();

}  // namespace perdure::test
