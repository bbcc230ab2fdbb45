// The signals that end commands: see stop_signals.h.
#include "stop_signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <cerrno>

#include "core/errno_error.h"

namespace perdure::kv_app {
namespace {

sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

Result<int> stop_descriptor() {
  const sigset_t signals = ending_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int descriptor = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor < 0) return errno_error("a descriptor for signals", errno);
  return descriptor;
}

void wait_for_stop(int stop) {
  pollfd waited{stop, POLLIN, 0};
  while (::poll(&waited, 1, -1) <= 0) {
  }
}

void let_signals_end() {
  // The first one is still there, or it would end the process now.
  const sigset_t signals = ending_signals();
  timespec none{};
  while (::sigtimedwait(&signals, nullptr, &none) > 0) {
  }
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace perdure::kv_app
