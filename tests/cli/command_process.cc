// Starting, feeding and ending the command.
#include "tests/cli/command_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "core/clock.h"

namespace perdure::cli {
namespace {

constexpr auto kPatience = std::chrono::seconds{120};

/// Commands of tests meet nothing that the user has set up for himself.
[[maybe_unused]] const bool alone = [] {
  for (const char* variable : {"PERDURE_PEERS", "PERDURE_POOL", "PERDURE_TRANSPORT", "PERDURE_RNIC",
                               "PERDURE_TIMEOUT_MS", "PERDURE_PROFILE", "COLUMNS"}) {
    ::unsetenv(variable);
  }
  // A third of a short command's time is notes about allocations and a search for those that are
  // left when it ends anyway. Other tests run the same code with both.
  const char* const given = std::getenv("ASAN_OPTIONS");
  const std::string options = given == nullptr ? "" : std::string(given) + ":";
  ::setenv("ASAN_OPTIONS", (options + "detect_leaks=0:malloc_context_size=0").c_str(), 1);
  return ::setenv("XDG_CONFIG_HOME", "/nonexistent", 1) == 0;
}();

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

CommandProcess::CommandProcess(std::vector<std::string> arguments, const std::string& input_file,
                               const std::string& output_file, std::string program) {
  arguments.insert(arguments.begin(), std::move(program));
  const std::string out = output_file.empty() ? directory_.path() + "/out" : output_file;
  const std::string err = directory_.path() + "/err";
  int ends[2] = {-1, -1};
  if (input_file.empty()) {
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  } else {
    ends[0] = ::open(input_file.c_str(), O_RDONLY | O_CLOEXEC);
  }
  const auto open_to_write = [](const std::string& path) {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  };
  const test::ChildStreams streams{ends[0], open_to_write(out), open_to_write(err)};
  auto started = test::ChildProcess::start(arguments, streams);
  for (const int descriptor : {streams.input, streams.output, streams.error}) ::close(descriptor);
  ::signal(SIGPIPE, SIG_IGN);  // a program that ended reads no more: see write
  input_ = ends[1];
  EXPECT_TRUE(started.ok()) << started.error().message;
  if (started.ok()) process_ = std::move(started).value();
}

void CommandProcess::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(input_, text.data(), text.size());
    if (written <= 0) return;  // it has ended: wait() tells
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void CommandProcess::close_input() {
  if (input_ >= 0) ::close(input_);
  input_ = -1;
}

std::string CommandProcess::out() const { return read_file(directory_.path() + "/out"); }
std::string CommandProcess::err() const { return read_file(directory_.path() + "/err"); }

Outcome CommandProcess::wait() {
  Outcome outcome;
  if (!process_.wait(Deadline::after(kPatience))) {
    ADD_FAILURE() << "it did not end in time";
    process_.kill();
  }
  if (const auto& end = process_.end()) {
    outcome.status = end->status;
    outcome.signal = end->signal;
  }
  outcome.out = out();
  outcome.err = err();
  return outcome;
}

Outcome run(std::vector<std::string> arguments, std::string_view input) {
  const test::TestDirectory directory;
  write_file(directory.path() + "/input", input);
  return CommandProcess(std::move(arguments), directory.path() + "/input").wait();
}

void expect_valid(const Outcome& printed, const std::string& schema) {
  const std::string tree = PERDURE_TREE;
  CommandProcess judge({tree + "/tests/cli/validate.py", tree + "/docs/" + schema}, "", "",
                       "/usr/bin/python3");
  judge.write(printed.out);
  judge.close_input();
  const Outcome judged = judge.wait();
  EXPECT_EQ(judged.status, 0) << schema << ": " << judged.out << judged.err << "\n"
                              << printed.out << printed.err;
}

Outcome expect_document(std::vector<std::string> arguments, const std::string& schema) {
  arguments.insert(arguments.end(), {"--format", "json"});
  const Outcome printed = run(arguments);
  expect_valid(printed, schema);
  return printed;
}

}  // namespace perdure::cli
