// Starting, feeding and ending the command.
#include "tests/cli/command_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include "core/clock.h"

namespace perdure::cli {
namespace {

constexpr auto kPatience = std::chrono::seconds{120};
constexpr auto kNap = std::chrono::milliseconds{2};

/// In the child: the three standard streams, then the program.
[[noreturn]] void become(std::vector<std::string>& words, int input, const std::string& out,
                         const std::string& err) {
  std::vector<char*> pointers;
  for (std::string& each : words) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::dup2(input, STDIN_FILENO);
  ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDOUT_FILENO);
  ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDERR_FILENO);
  ::execv(pointers[0], pointers.data());
  ::_exit(127);
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
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
  pid_ = ::fork();
  if (pid_ == 0) become(arguments, ends[0], out, err);
  ::signal(SIGPIPE, SIG_IGN);  // a program that ended reads no more: see write
  ::close(ends[0]);
  input_ = ends[1];
}

CommandProcess::~CommandProcess() {
  close_input();
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  (void)wait();
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

// Once it has ended there is no process: kill(-1) would reach every other one.
void CommandProcess::send(int signal) {
  if (pid_ > 0) ::kill(pid_, signal);
}

bool CommandProcess::running() {
  siginfo_t info{};
  const int asked = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  return asked == 0 && info.si_pid == 0;
}

std::string CommandProcess::out() const { return read_file(directory_.path() + "/out"); }

Outcome CommandProcess::wait() {
  Outcome outcome;
  const Deadline deadline = Deadline::after(kPatience);
  while (pid_ > 0) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
    } else if (deadline.passed()) {
      ADD_FAILURE() << "it did not end in time";
      ::kill(pid_, SIGKILL);
      (void)::waitpid(pid_, &status, 0);
      pid_ = -1;
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
  outcome.out = out();
  outcome.err = read_file(directory_.path() + "/err");
  return outcome;
}

Outcome run(std::vector<std::string> arguments, std::string_view input) {
  const server::TestDirectory directory;
  write_file(directory.path() + "/input", input);
  return CommandProcess(std::move(arguments), directory.path() + "/input").wait();
}

}  // namespace perdure::cli
