// A perdured process of a test: started on free ports of loopback, killed when the test ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "control/host_port.h"
#include "control/http_client.h"
#include "core/clock.h"

namespace perdure::server {

/// A directory that is removed with all that is in it.
class TestDirectory {
 public:
  explicit TestDirectory(const std::string& below = "");
  ~TestDirectory();
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// How a program ended, and what it said on standard error.
struct Ended {
  int status = -1;  // of exit; -1: it was killed by a signal, or did not end in time
  int signal = 0;
  std::string said;
};

class DaemonProcess {
 public:
  /// Starts perdured with these arguments; await() tells when it serves.
  explicit DaemonProcess(std::vector<std::string> arguments);
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  /// Starts one on `pools` and waits until it serves; ends the test's process if it never does.
  static DaemonProcess* serving(const std::string& pools, std::vector<std::string> more = {});

  /// Whether it serves: its port file is there. False if it ended, or after 60 s.
  bool await();
  /// The address that it wrote for "control" or a transport.
  std::string address(const std::string& name) const;

  void send(int signal);
  /// Waits for its end, at most 60 s.
  Ended wait();
  pid_t pid() const { return pid_; }

  /// One request to its control plane; fails the test if there is no answer.
  control::HttpAnswer ask(const std::string& method, const std::string& path,
                          const std::string& body = "");

 private:
  TestDirectory directory_;
  pid_t pid_ = -1;
};

}  // namespace perdure::server
