// CutSwitch: what ends a connection from within a signal handler. A connection gives it out
// (fabric/fabric.h), and whatever notices in a handler that nothing more may be said on it turns it
// (pmem/mapping_guard.h).
#pragma once

#include <sys/socket.h>

#include <atomic>

namespace perdure {

/// Empty where the connection has nothing that can be turned like that. Valid as long as the
/// connection lives. Threads: any, and signal handlers.
struct CutSwitch {
  int socket = -1;                   // shut down; -1: none
  std::atomic<bool>* cut = nullptr;  // set; once it is, the connection says nothing more

  void turn() const {
    if (cut != nullptr) cut->store(true);
    if (socket >= 0) ::shutdown(socket, SHUT_RDWR);
  }
};
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace perdure
