// An rpmemd that listens in ssh's place (rpmemd --listen), as a child of the test.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "testing/process.h"
#include "tests/compat/target.h"

namespace perdure::test {

class ListeningDaemon {
 public:
  /// At any free port of this address, with the target's configuration. The environment of this
  /// process says to librpmem that it goes there. Records failures of the test.
  void start(const Target& target, const std::string& address);
  /// As set files and rpmem_open() name it.
  const std::string& host() const { return host_; }
  std::string said() const { return read_whole(said_); }
  ChildProcess& process() { return process_; }

 private:
  std::string said_;  // the file
  std::string host_;
  ChildProcess process_;
};

/// Whether this machine has IPv6 on its loopback.
bool has_ipv6();

}  // namespace perdure::test
