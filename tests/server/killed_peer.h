// A perdured of a test with pools of its own, which is killed and comes back at the same address.
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>

#include "daemon_process.h"

namespace perdure::server {

class KilledPeer {
 public:
  KilledPeer() : daemon_(DaemonProcess::serving(pools_.path())) {
    address_ = daemon_->address("control");
  }

  const std::string& address() const { return address_; }
  /// Of the files of its pools.
  const TestDirectory& pools() const { return pools_; }

  /// It does nothing any more, and nobody has noticed.
  void stop() { daemon_->send(SIGSTOP); }
  void go_on() { daemon_->send(SIGCONT); }
  /// As kill -9 or a crash of the program does it: nothing is said to anybody.
  void kill() {
    daemon_->send(SIGKILL);
    EXPECT_EQ(daemon_->wait().signal, SIGKILL);
  }
  void start() {
    daemon_ = std::make_unique<DaemonProcess>(std::vector<std::string>{
        "--pools", pools_.path(), "--listen", address_, "--data-listen", "127.0.0.1:0"});
    if (!daemon_->await()) FAIL() << "at " << address_ << ": " << daemon_->wait().said;
  }

 private:
  TestDirectory pools_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::string address_;
};

}  // namespace perdure::server
