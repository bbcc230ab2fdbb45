// The back-end that the environment names: see choice.h.
#include "interpose/choice.h"

#include "interpose/forwarder.h"
#include "interpose/mappings.h"
#include "interpose/recorder.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace perdure::interpose {
namespace {

Backend* chosen = nullptr;

void choose() {
  // tidy-allow(getenv): nothing else reaches a program that is not ours
  const char* const choice = std::getenv(kVariable);  // NOLINT: before the program's threads
  if (choice == nullptr) return;
  constexpr char kRecord[] = "record:";
  constexpr char kMirror[] = "mirror:";
  if (std::strncmp(choice, kRecord, sizeof kRecord - 1) == 0) {
    chosen = record_into(choice + sizeof kRecord - 1);
  } else if (std::strncmp(choice, kMirror, sizeof kMirror - 1) == 0) {
    chosen = forward_over(choice + sizeof kMirror - 1);
  } else {
    say("PERDURE_INTERPOSE says nothing that is known here: ", choice);
  }
  if (chosen == nullptr) ::_exit(EXIT_FAILURE);
}

/// A program may change its environment: what it was started with counts.
__attribute__((constructor)) void choose_early() {
  if (backend() != nullptr) watch_forks();
}

}  // namespace

Backend* backend() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, choose);
  return chosen;
}

}  // namespace perdure::interpose
