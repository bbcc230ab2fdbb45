// Standard output and standard error.
#include "output.h"

#include "core/log_message.h"
#include "core/mutex.h"
#include "core/printable.h"
#include "core/text_file.h"
#include "core/try.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <vector>

namespace perdure::app {
namespace {

bool line_is_drawn = false;  // of a StatusLine; there is one at a time

/// What a HeldMessages keeps. The library may speak from threads of its own.
struct Held {
  Mutex mutex;
  bool holds PERDURE_GUARDED_BY(mutex) = false;
  std::vector<std::string> lines PERDURE_GUARDED_BY(mutex);
};

Held& held() {
  static Held messages;
  return messages;
}

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

Result<void> refuse_hyphen(std::string_view name) {
  if (name != "-") return {};
  return Error{ErrorCode::InvalidArgument,
               "'-' is no file here; /dev/stdin and /dev/stdout are, and ./- is one of that name"};
}

Option add_result_file_option(Command command, const std::string& name, std::string& path,
                              const std::string& description) {
  return command.add_option(name, path, description)
      .option_text("FILE")
      .each([](const std::string& word) -> Result<void> {
        PERDURE_TRY_VOID(refuse_hyphen(word));
        return require_writable(word);
      });
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
  fmt::print(stderr, "perdure: {} [{}]\n", printable_lines(error.message), to_string(error.code));
}

void print_warning(std::string_view message) {
  std::fflush(stdout);
  clear_line();
  fmt::print(stderr, "perdure: {}\n", printable_lines(message));
}

ExitStatus fail(const Error& error) {
  print_error(error);
  return ExitStatus::Failed;
}

void show_library_messages(bool verbose) {
  set_message_callback([verbose](Severity severity, const std::string& message) {
    if (severity < Severity::Warning && !verbose) return;
    std::string line = fmt::format("perdure: {}: {}\n", to_string(severity), message);
    Held& messages = held();
    const MutexLock lock(messages.mutex);
    if (messages.holds && !verbose) {
      messages.lines.push_back(std::move(line));
      return;
    }
    clear_line();
    fmt::print(stderr, "{}", line);
  });
}

HeldMessages::HeldMessages() {
  Held& messages = held();
  const MutexLock lock(messages.mutex);
  messages.holds = true;
}

HeldMessages::~HeldMessages() {
  Held& messages = held();
  const MutexLock lock(messages.mutex);
  messages.holds = false;
  if (!messages.lines.empty()) clear_line();
  for (const std::string& line : messages.lines) fmt::print(stderr, "{}", line);
  messages.lines.clear();
}

void HeldMessages::drop() {
  Held& messages = held();
  const MutexLock lock(messages.mutex);
  messages.lines.clear();
}

StatusLine::StatusLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void StatusLine::show(std::string_view text) {
  if (!terminal_) {
    if (pace_.due()) fmt::print(stderr, "perdure: {}\n", printable_name(text));
    return;
  }
  fmt::print(stderr, "\r\033[K{}", printable_name(text));
  std::fflush(stderr);
  line_is_drawn = true;
}

void StatusLine::clear() { clear_line(); }

}  // namespace perdure::app
