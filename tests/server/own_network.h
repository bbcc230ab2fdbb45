// A network of its own for a child process of a test: loopback alone, and nobody else on it.
#pragma once

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace perdure::server {

/// For the calling process, which has one thread; `others` are namespaces that it enters besides
/// (CLONE_NEWNS). False: not permitted.
inline bool enter_network_of_its_own(int others = 0) {
  const int all = CLONE_NEWNET | others;
  if (::unshare(all) != 0 && ::unshare(CLONE_NEWUSER | all) != 0) return false;
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  const bool up = ::ioctl(socket, SIOCSIFFLAGS, &loopback) == 0;
  ::close(socket);
  return up;
}

}  // namespace perdure::server
