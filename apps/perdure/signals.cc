// Counters that a signal handler may touch.
#include "signals.h"

#include "commands.h"

#include <csignal>
#include <cstdlib>

namespace perdure::app {
namespace {

constexpr int kSignalsMax = 3;
volatile std::sig_atomic_t received = 0;
volatile std::sig_atomic_t interrupts = 0;  // SIGINT, of those that are to be passed on
volatile std::sig_atomic_t interrupts_passed = 0;
volatile std::sig_atomic_t terminations = 0;
volatile std::sig_atomic_t terminations_passed = 0;

void on_signal(int) {
  received = received + 1;
  if (received >= kSignalsMax) std::_Exit(static_cast<int>(ExitStatus::Failed));
}

void on_signal_to_pass_on(int number, siginfo_t* info, void*) {
  if (info->si_code == SI_KERNEL) return;  // the terminal's: to the whole group
  if (number == SIGINT) {
    interrupts = interrupts + 1;
  } else {
    terminations = terminations + 1;
  }
  on_signal(number);
}

}  // namespace

void count_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;  // without SA_RESTART: a sleep in poll() ends at once
  (void)::sigaction(SIGINT, &action, nullptr);
  (void)::sigaction(SIGTERM, &action, nullptr);
}

int signals_received() { return received; }

void pass_on_signals() {
  struct sigaction action = {};
  action.sa_sigaction = on_signal_to_pass_on;
  action.sa_flags = SA_SIGINFO;
  (void)::sigaction(SIGINT, &action, nullptr);
  (void)::sigaction(SIGTERM, &action, nullptr);
}

int next_signal() {
  if (interrupts_passed != interrupts) {
    interrupts_passed = interrupts_passed + 1;
    return SIGINT;
  }
  if (terminations_passed == terminations) return 0;
  terminations_passed = terminations_passed + 1;
  return SIGTERM;
}

}  // namespace perdure::app
