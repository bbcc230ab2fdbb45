// A program that does as it is told: see obeying_program.h.
#include "tests/compat/obeying_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "tests/compat/target.h"

namespace perdure::test {

std::uint64_t last_of(const std::string& text, const std::string& what) {
  std::uint64_t last = 0;
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(what)) continue;
    const std::string number = line.substr(what.size());
    const bool digits = number.find_first_not_of("0123456789") == std::string::npos;
    if (digits && !number.empty()) last = std::stoull(number);
  }
  return last;
}

void kill_rpmemd(int process) {
  const std::string image = fmt::format("/proc/{}/exe", process);
  std::error_code none;
  if (std::filesystem::read_symlink(image, none).filename() == "rpmemd" && !none) {
    ::kill(process, SIGKILL);
  }
}

void ObeyingProgram::start() {
  end_input();
  forget();
  int input[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input), 0);
  input_ = input[1];
  const int output = ::open(output_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  auto started = ChildProcess::start(client_command({program_, "obey", set_}),
                                     ChildStreams{input[0], output, output});
  ::close(input[0]);
  ::close(output);
  ASSERT_TRUE(started.ok()) << started.error().message;
  process_ = std::move(*started);
  ASSERT_TRUE(waits()) << said();
}

void ObeyingProgram::tell() const { ASSERT_EQ(::send(input_, "\n", 1, MSG_NOSIGNAL), 1); }

void ObeyingProgram::end_input() {
  if (input_ >= 0) ::close(input_);
  input_ = -1;
}

void ObeyingProgram::forget() const { write_text(output_, ""); }

std::string ObeyingProgram::said() const { return read_whole(output_); }

bool ObeyingProgram::says(const std::function<bool(const std::string&)>& enough) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (!deadline.passed() && process_.running()) {
    if (enough(said())) return true;
    pause_for(std::chrono::milliseconds(1));
  }
  return enough(said());
}

bool ObeyingProgram::waits() {
  return says([](const std::string& text) {
    return text.find("checked ") != std::string::npos && text.ends_with('\n');
  });
}

bool ObeyingProgram::says_more(std::size_t bytes) {
  const std::size_t enough = said().size() + bytes;
  return says([enough](const std::string& text) { return text.size() >= enough; });
}

}  // namespace perdure::test
