// The command `perdure` as a process of a test: run to its end, or beside other things.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "testing/process.h"
#include "testing/temporary_directory.h"

namespace perdure::cli {

struct Outcome {
  int status = -1;  // of exit; -1: ended by `signal`, or it did not end in time
  int signal = 0;
  std::string out;
  std::string err;
};

/// Threads: one caller at a time.
class CommandProcess {
 public:
  /// Starts a program, the command unless another is named. Its input is a pipe, or `input_file`;
  /// its output goes to a file, or to `output_file`.
  explicit CommandProcess(std::vector<std::string> arguments, const std::string& input_file = "",
                          const std::string& output_file = "", std::string program = PERDURE);
  ~CommandProcess() { close_input(); }
  CommandProcess(const CommandProcess&) = delete;
  CommandProcess& operator=(const CommandProcess&) = delete;

  void write(std::string_view text);
  void close_input();
  void send(int signal) const { process_.signal(signal); }
  /// Whether it has not ended yet.
  bool running() { return process_.running(); }
  /// What it has printed so far, and what it has said on standard error.
  std::string out() const;
  std::string err() const;
  /// Waits for its end, at most 120 s.
  Outcome wait();

 private:
  test::TestDirectory directory_;
  test::ChildProcess process_;
  int input_ = -1;
};

/// Runs `perdure` to its end with `input` on standard input.
Outcome run(std::vector<std::string> arguments, std::string_view input = "");

/// What was printed is a document that this file of docs/ describes.
void expect_valid(const Outcome& printed, const std::string& schema);

/// Runs the command with --format json; its document must be what this file of docs/ says.
Outcome expect_document(std::vector<std::string> arguments, const std::string& schema);

std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view bytes);
/// Whether `part` occurs in `text`.
bool contains(const std::string& text, const std::string& part);
/// How often.
std::size_t occurrences(const std::string& text, const std::string& part);

}  // namespace perdure::cli
