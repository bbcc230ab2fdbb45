// A perdured process of a test: started on free ports of loopback, killed when the test ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "control/host_port.h"
#include "control/http_client.h"
#include "core/clock.h"
#include "testing/process.h"
#include "testing/temporary_directory.h"

namespace perdure::server {

using test::TestDirectory;

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

  /// Starts one on `pools` and waits until it serves; the test ends with an exception if it never
  /// does.
  static DaemonProcess* serving(const std::string& pools, std::vector<std::string> more = {});

  /// Whether it serves: its port file is there. False if it ended, or after 60 s.
  bool await();
  /// The address that it wrote for "control" or a transport.
  std::string address(const std::string& name) const;

  void send(int signal) const { process_.signal(signal); }
  /// Waits for its end, at most 60 s.
  Ended wait();
  pid_t pid() const { return process_.pid(); }

  /// One request to its control plane; fails the test if there is no answer in time.
  control::HttpAnswer ask(const std::string& method, const std::string& path,
                          const std::string& body = "",
                          Nanoseconds within = std::chrono::seconds{60});

 private:
  TestDirectory directory_;
  test::ChildProcess process_;
};

}  // namespace perdure::server
