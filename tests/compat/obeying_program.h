// A program on libpmemobj that has its pool open and does as it is told: objtx obey.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "testing/process.h"

namespace perdure::test {

/// The number of the last line that is whole and begins with `what`; 0: there is none.
std::uint64_t last_of(const std::string& text, const std::string& what = "");

/// The process of this number, where it is an rpmemd and not by now something else.
void kill_rpmemd(int process);

class ObeyingProgram {
 public:
  /// Nothing runs yet. What it says goes to this file.
  ObeyingProgram(std::string program, std::string set, std::string output)
      : program_(std::move(program)), set_(std::move(set)), output_(std::move(output)) {}
  ~ObeyingProgram() { end_input(); }
  ObeyingProgram(const ObeyingProgram&) = delete;
  ObeyingProgram& operator=(const ObeyingProgram&) = delete;

  /// It opens the pool, checks what is there, says so, and waits. Records failures of the test.
  void start();
  /// It begins transactions; or ends them, checks, says so, and waits.
  void tell() const;
  /// It ends when it next waits.
  void end_input();
  /// Forgets what it said so far.
  void forget() const;
  std::string said() const;
  /// Waits, as long as it runs, until this is true of what it said.
  bool says(const std::function<bool(const std::string&)>& enough);
  /// It waits, and has said what it found.
  bool waits();
  /// Waits for so many bytes more than it has said.
  bool says_more(std::size_t bytes);
  ChildProcess& process() { return process_; }

 private:
  const std::string program_;
  const std::string set_;
  const std::string output_;
  ChildProcess process_;
  int input_ = -1;
};

}  // namespace perdure::test
