// A counter that a signal handler may touch.
#include "signals.h"

#include "commands.h"

#include <csignal>
#include <cstdlib>

namespace perdure::app {
namespace {

constexpr int kSignalsMax = 3;
volatile std::sig_atomic_t received = 0;

void on_signal(int) {
  received = received + 1;
  if (received >= kSignalsMax) std::_Exit(static_cast<int>(ExitStatus::Failed));
}

}  // namespace

void count_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;  // without SA_RESTART: a sleep in poll() ends at once
  (void)::sigaction(SIGINT, &action, nullptr);
  (void)::sigaction(SIGTERM, &action, nullptr);
}

int signals_received() { return received; }

}  // namespace perdure::app
