#include "testing/torture/apart.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace perdure::test {
namespace {

Error system_error(const char* what) {
  return {ErrorCode::SystemError,
          fmt::format("{}: {}", what, std::generic_category().message(errno))};
}

/// What it said of its end: the line of an assertion or a sanitizer, if there is one.
std::string error_line(int errors) {
  std::array<char, 4096> text{};
  const auto size = ::pread(errors, text.data(), text.size(), 0);
  std::string words(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  for (const char* mark : {"perdure: assertion failed", "ERROR:", "runtime error:"}) {
    const std::size_t found = words.find(mark);
    if (found == std::string::npos) continue;
    return words.substr(found, words.find('\n', found) - found);
  }
  return words.substr(0, words.find('\n'));
}

}  // namespace

Result<std::unique_ptr<Apart>> Apart::begin(const Work& work, Line line,
                                            std::chrono::seconds silence) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("no pipe");
  const int errors = ::memfd_create("torture", MFD_CLOEXEC);
  const pid_t child = errors < 0 ? -1 : ::fork();
  if (child < 0) {
    Error error = system_error(errors < 0 ? "no memory for a process's errors" : "no process");
    for (const int each : {ends[0], ends[1], errors}) ::close(each);
    return error;
  }
  if (child == 0) {
    ::close(ends[0]);
    ::dup2(errors, STDERR_FILENO);
    std::FILE* out = ::fdopen(ends[1], "w");
    work(out);
    std::fflush(out);
    ::_exit(0);
  }
  ::close(ends[1]);
  return std::unique_ptr<Apart>(new Apart(child, ends[0], errors, std::move(line), silence));
}

Apart::Apart(pid_t child, int output, int errors, Line line, std::chrono::seconds silence)
    : child_(child),
      output_(output),
      errors_(errors),
      line_(std::move(line)),
      silence_(silence),
      heard_(Clock::monotonic().now()) {}

Apart::~Apart() {
  if (!ended_) bury(true);
}

void Apart::read_all(const std::vector<Apart*>& processes) {
  const Clock& clock = Clock::monotonic();
  const Nanoseconds asked = clock.now();
  Nanoseconds wait = Nanoseconds::max();
  std::vector<pollfd> outputs;
  for (const Apart* each : processes) {
    outputs.push_back({each->output_, POLLIN, 0});
    wait = std::clamp(each->heard_ + each->silence_ - asked, Nanoseconds(0), wait);
  }
  const auto rounded_up = std::chrono::ceil<std::chrono::milliseconds>(wait);
  const int ready = ::poll(outputs.data(), outputs.size(), static_cast<int>(rounded_up.count()));
  if (ready < 0) return;  // a signal: the next call goes on
  for (std::size_t index = 0; index < processes.size(); ++index) {
    Apart& each = *processes[index];
    if (outputs[index].revents != 0) {
      each.read();
    } else if (clock.now() >= each.heard_ + each.silence_) {
      each.bury(true);
    }
  }
}

End Apart::wait() {
  while (!ended_) read_all({this});
  return *ended_;
}

void Apart::read() {
  std::array<char, 65536> buffer;
  const auto got = ::read(output_, buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) return bury(false);
  heard_ = Clock::monotonic().now();
  rest_.append(buffer.data(), static_cast<std::size_t>(got));
  std::size_t begin = 0;
  for (std::size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    line_(rest_.substr(begin, end - begin));
  }
  rest_.erase(0, begin);
}

/// Waits for the child and notes how it ended. `hung`: it is to be killed first.
void Apart::bury(bool hung) {
  if (hung) (void)::kill(child_, SIGKILL);
  int status = 0;
  while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  if (hung) {
    ended_ = Breach{std::string(kAlwaysReturns), fmt::format("nothing for {} s", silence_.count())};
  } else if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    ended_.emplace(std::nullopt);
  } else {
    ended_ = Breach{std::string(kNeverAborts), error_line(errors_)};
  }
  ::close(output_);
  ::close(errors_);
}

}  // namespace perdure::test
