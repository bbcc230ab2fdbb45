// Standard output and standard error.
#include "output.h"

#include "core/log_message.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace perdure::app {
namespace {

bool line_is_drawn = false;  // of a StatusLine; there is one at a time

Result<Format> parse_format(std::string_view word) {
  if (word == "text") return Format::Text;
  if (word == "json") return Format::Json;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("format '{}' is not known; use text or json", word)};
}

void clear_line() {
  if (line_is_drawn) fmt::print(stderr, "\r\033[K");
  line_is_drawn = false;
}

}  // namespace

void add_format_option(Command command, Format& format) {
  add_word_option(command, "--format", format, parse_format, "How to print the result",
                  "text|json");
}

namespace {

/// Ends the program: what was asked for can not be given. Who closed the pipe knows, and hears
/// nothing.
[[noreturn]] void output_failed() {
  const int reason = errno;
  if (reason != EPIPE) {
    fmt::print(stderr, "perdure: can not write to standard output: {}\n",
               std::generic_category().message(reason));
  }
  std::_Exit(static_cast<int>(ExitStatus::Failed));
}

}  // namespace

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) output_failed();
}

void flush_output() {
  if (std::fflush(stdout) != 0) output_failed();
}

void print_error(const Error& error) {
  std::fflush(stdout);
  clear_line();
  fmt::print(stderr, "perdure: {} [{}]\n", error.message, to_string(error.code));
}

void print_warning(std::string_view message) {
  std::fflush(stdout);
  clear_line();
  fmt::print(stderr, "perdure: {}\n", message);
}

ExitStatus fail(const Error& error) {
  print_error(error);
  return ExitStatus::Failed;
}

void show_library_messages(bool verbose) {
  set_log_callback([verbose](Severity severity, const std::string& message) {
    if (severity < Severity::Warning && !verbose) return;
    clear_line();
    fmt::print(stderr, "perdure: {}: {}\n", to_string(severity), message);
  });
}

StatusLine::StatusLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void StatusLine::show(std::string_view text) {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  line_is_drawn = true;
}

void StatusLine::clear() { clear_line(); }

}  // namespace perdure::app
