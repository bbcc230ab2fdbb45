// How the command speaks: results on standard output, everything else on standard error.
#pragma once

#include <perdure/result.h>

#include "commands.h"
#include "report/progress.h"

#include <string>
#include <string_view>

namespace perdure::app {

enum class Format { Text, Json };

/// Adds `--format text|json` (and `--json`, short for the latter) to a subcommand. `format` must
/// outlive the parse.
void add_format_option(Command command, Format& format);

/// `name` is one of a file, and not `-`, which other commands take for standard input or output.
/// Errors  InvalidArgument: it is.
Result<void> refuse_hyphen(std::string_view name);

/// Adds an option that names a file for the result of a long run. One that could not be written is
/// refused at once, not after the run. `path` must outlive the parse.
Option add_result_file_option(Command command, const std::string& name, std::string& path,
                              const std::string& description);

/// Writes to standard output. A reader that went away (a closed pipe) or a full disk ends the
/// program with ExitStatus::Failed, since what was asked for can not be given.
void print(std::string_view text);
/// The same, of what print has collected so far: before waiting for something.
void flush_output();

/// Reports on standard error: "perdure: <message>", and the code in brackets for programs.
void print_error(const Error& error);
void print_warning(std::string_view message);

/// print_error, and the status that goes with the error.
ExitStatus fail(const Error& error);

/// Prints the library's warnings from now on, and with `verbose` all it has to say.
void show_library_messages(bool verbose);

/// While it lives, what the library has to tell waits for its end; with --verbose nothing waits.
/// Whoever opens a log that can not be opened gets an error that has all reasons: the warnings
/// would say them twice.
class HeldMessages {
 public:
  HeldMessages();
  ~HeldMessages();
  HeldMessages(const HeldMessages&) = delete;
  HeldMessages& operator=(const HeldMessages&) = delete;
  /// They are not to be said.
  void drop();
};

/// One line on the terminal of standard error that is drawn over and over. Elsewhere a line now and
/// then, of a run that takes long: see report::ProgressPace.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Whether it is a terminal.
  bool visible() const { return terminal_; }
  void show(std::string_view text);
  /// Takes the line away. Reports on standard error do so by themselves.
  void clear();

 private:
  const bool terminal_;
  report::ProgressPace pace_;
};

}  // namespace perdure::app
