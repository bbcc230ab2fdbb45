// What a child of fork finds, in a test whose process has threads.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace perdure::test {

/// Whether `ask` says yes in a child of fork; the child ends with that, and hangs no longer than
/// 20 s. The address sanitizer's allocator (of GCC 12) takes none of its locks for fork: another
/// thread that held one leaves it locked in the child for ever. With it, then, a child that hung is
/// followed by another, up to five.
inline bool yes_in_a_child(const std::function<bool()>& ask) {
#ifdef __SANITIZE_ADDRESS__
  constexpr int kChildren = 5;
#else
  constexpr int kChildren = 1;
#endif
  for (int forked = 0; forked < kChildren; ++forked) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGALRM, SIG_DFL);
      ::alarm(20);
      ::_exit(ask() ? 0 : 1);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) return false;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM) {
      return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
  }
  return false;
}

}  // namespace perdure::test
