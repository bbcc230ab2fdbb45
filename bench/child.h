// Running a piece of a measurement in a process of its own, so that it starts from nothing: no
// device open, no thread, no memory of what was measured before.
#pragma once

#include <perdure/result.h>

#include <nlohmann/json_fwd.hpp>

#include <sys/types.h>

#include <functional>

namespace perdure::bench {

/// What the parent may do while the child works: the child's process and a way to talk to it.
struct ChildTask {
  pid_t pid = 0;
  int from_child = -1;  // lines that the child writes while it works
  int to_child = -1;
};

/// The child's ends.
struct ChildPipes {
  int to_parent = -1;
  int from_parent = -1;
};

using ChildWork = std::function<Result<nlohmann::json>(const ChildPipes&)>;
using ParentWork = std::function<Result<void>(const ChildTask&)>;

/// Forks, runs `work` in the child, meanwhile `beside` in the parent, and returns what the child
/// found. The child never returns from here. Requires no threads in this process.
/// Errors: those of the child and of `beside`; SystemError when the child dies.
Result<nlohmann::json> run_in_child(const ChildWork& work, const ParentWork& beside = {});

/// One byte, to say "ready" or "go on". Errors: Disconnected.
Result<void> tell(int pipe);
Result<void> await_word(int pipe);

}  // namespace perdure::bench
