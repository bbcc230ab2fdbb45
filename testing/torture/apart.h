// Work in a process of its own, whose lines are read here: what aborts or never returns there is
// the end of that process and of nothing else.
#pragma once

#include <perdure/result.h>

#include <sys/types.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "testing/torture/torture.h"

namespace perdure::test {

/// The laws that a process breaks, and no judge sees.
inline constexpr std::string_view kNeverAborts = "never-aborts";
inline constexpr std::string_view kAlwaysReturns = "always-returns";

/// How a process ended: of itself; or a breach, if not.
using End = std::optional<Breach>;

class Apart {
 public:
  using Work = std::function<void(std::FILE*)>;
  using Line = std::function<void(const std::string&)>;

  /// Begins the work; each line that it prints is given to `line`, by read_all. One that prints
  /// nothing for `silence` is killed. Errors: SystemError (no process, no pipe).
  static Result<std::unique_ptr<Apart>> begin(const Work& work, Line line,
                                              std::chrono::seconds silence);
  ~Apart();
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;

  /// Waits until one of them has printed something, or was silent too long; reads what there is.
  static void read_all(const std::vector<Apart*>& processes);
  /// Waits until this one has ended. Its last lines are read.
  End wait();
  /// Set once it has ended; its last lines are read.
  const std::optional<End>& ended() const { return ended_; }

 private:
  Apart(pid_t child, int output, int errors, Line line, std::chrono::seconds silence);
  void read();
  void bury(bool hung);

  pid_t child_;
  int output_;
  int errors_;
  Line line_;
  std::chrono::seconds silence_;
  Nanoseconds heard_;
  std::string rest_;
  std::optional<End> ended_;
};

}  // namespace perdure::test
