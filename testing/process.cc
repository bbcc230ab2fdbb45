// Starting, watching and ending processes.
#include "testing/process.h"

#include "core/assert.h"
#include "core/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace perdure::test {
namespace {

volatile std::sig_atomic_t g_interrupts = 0;
struct sigaction g_before[3];
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr Nanoseconds kLookAgain = std::chrono::milliseconds(2);
constexpr int kStartFailed = 127;

void on_interrupt(int number) {
  if (g_interrupts != 0) ::_exit(128 + number);
  g_interrupts = 1;
}

/// In the child, between fork and exec: only calls that are safe there.
void die_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kStartFailed);  // it ended before the line above
}

/// The same, and then it is another program.
[[noreturn]] void become(char* const* arguments, const ChildStreams& streams) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) ::_exit(kStartFailed);
  const auto take = [nothing](int from, int to) { ::dup2(from < 0 ? nothing : from, to); };
  take(streams.input, STDIN_FILENO);
  take(streams.output, STDOUT_FILENO);
  take(streams.error, STDERR_FILENO);
  ::execv(arguments[0], arguments);
  ::_exit(kStartFailed);
}

Error errno_of(const std::string& what) {
  return Error{ErrorCode::SystemError,
               fmt::format("{}: {}", what, std::generic_category().message(errno))};
}

/// Whether each thread of a process is stopped or has ended.
bool stands_still(pid_t process) {
  std::error_code failed;
  std::filesystem::directory_iterator each(fmt::format("/proc/{}/task", process), failed);
  for (const std::filesystem::directory_iterator end; !failed && each != end;
       each.increment(failed)) {
    const std::string text = read_text(each->path().string() + "/stat");
    // The name in parentheses may hold anything; the state follows it (proc(5)).
    const std::size_t state = text.rfind(')') + 2;
    if (state >= text.size() || (text[state] != 'T' && text[state] != 'Z')) return false;
  }
  return !failed;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  g_interrupts = 0;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], &action, &g_before[i]);
  }
}

InterruptGuard::~InterruptGuard() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], &g_before[i], nullptr);
  }
}

bool InterruptGuard::interrupted() { return g_interrupts != 0; }

Result<void> InterruptGuard::check() {
  if (!interrupted()) return {};
  return Error{ErrorCode::SystemError, "interrupted; everything that was started has been ended"};
}

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& command,
                                         const std::string& output) {
  const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return errno_of(fmt::format("opening '{}'", output));
  auto started = start(command, ChildStreams{-1, file, file});
  ::close(file);
  return started;
}

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& command,
                                         const ChildStreams& streams, ChildGroup group) {
  PERDURE_ASSERT(!command.empty());
  if (::access(command[0].c_str(), X_OK) != 0) {
    return Error{ErrorCode::NotFound,
                 fmt::format("the program '{}' can not be started: {}", command[0],
                             std::generic_category().message(errno))};
  }
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    die_with(parent);
    if (group == ChildGroup::Own) ::setpgid(0, 0);
    become(arguments.data(), streams);
  }
  if (pid < 0) return errno_of(fmt::format("starting '{}'", command[0]));
  return ChildProcess(pid);
}

Result<ChildProcess> ChildProcess::fork(const std::function<int()>& work) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    die_with(parent);
    ::_exit(work());
  }
  if (pid < 0) return errno_of("fork");
  return ChildProcess(pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), end_(other.end_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this == &other) return *this;
  kill();
  pid_ = std::exchange(other.pid_, 0);
  end_ = other.end_;
  return *this;
}

ChildProcess::~ChildProcess() { kill(); }

void ChildProcess::note_end(int status) {
  pid_ = 0;
  end_.emplace();
  if (WIFEXITED(status)) end_->status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end_->signal = WTERMSIG(status);
}

bool ChildProcess::running() {
  if (pid_ == 0) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == 0) return true;
  note_end(status);
  return false;
}

bool ChildProcess::wait(Deadline deadline) {
  while (running()) {
    if (deadline.passed()) return false;
    ::poll(nullptr, 0, static_cast<int>(kLookAgain.count() / 1'000'000));
  }
  return true;
}

void ChildProcess::wait() {
  if (pid_ == 0) return;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  note_end(status);
}

void ChildProcess::kill() {
  signal(SIGKILL);
  wait();
}

void ChildProcess::signal(int number) const {
  if (pid_ == 0) return;
  ::kill(pid_, number);
  if (number != SIGSTOP) return;
  const Deadline patience = Deadline::after(std::chrono::seconds(30));
  while (!stands_still(pid_) && !patience.passed()) ::usleep(100);
}

Result<void> ChildProcess::stop(Nanoseconds within) {
  if (!running()) return {};
  const pid_t pid = pid_;
  signal(SIGTERM);
  if (!wait(Deadline::after(within))) {
    kill();
    return Error{ErrorCode::TimedOut,
                 fmt::format("process {} did not end when asked; it was killed", pid)};
  }
  if (end_->status == 0) return {};
  const std::string how = end_->signal != 0 ? fmt::format("by signal {}", end_->signal)
                                            : fmt::format("with status {}", end_->status);
  return Error{ErrorCode::SystemError, fmt::format("process {} ended {}", pid, how)};
}

Result<Nanoseconds> processor_time(pid_t process) {
  const std::string text = read_text(fmt::format("/proc/{}/stat", process));
  // The name in parentheses may hold anything; fields are counted after it (proc(5)).
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return Error{ErrorCode::NotFound, fmt::format("there is no process {}", process)};
  }
  std::size_t at = name_end + 1;
  for (int field = 2; field < 13; ++field) at = text.find(' ', at + 1);
  char* end = nullptr;
  const unsigned long user_ticks = std::strtoul(text.c_str() + at, &end, 10);
  const unsigned long system_ticks = std::strtoul(end, nullptr, 10);
  const auto per_second = static_cast<unsigned long>(::sysconf(_SC_CLK_TCK));
  return Nanoseconds(
      static_cast<std::int64_t>((user_ticks + system_ticks) * (1'000'000'000 / per_second)));
}

Result<std::uint64_t> resident_bytes(pid_t process) {
  const std::string text = read_text(fmt::format("/proc/{}/statm", process));
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) {
    return Error{ErrorCode::NotFound, fmt::format("there is no process {}", process)};
  }
  const unsigned long pages = std::strtoul(text.c_str() + space, nullptr, 10);
  return std::uint64_t{pages} * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

Result<std::map<pid_t, ContextSwitches>> context_switches(pid_t process) {
  const auto count_of = [](const std::string& status, const std::string& name) -> std::uint64_t {
    const std::size_t at = status.find("\n" + name);
    if (at == std::string::npos) return 0;
    return std::strtoull(status.c_str() + at + 1 + name.size(), nullptr, 10);
  };
  std::map<pid_t, ContextSwitches> threads;
  std::error_code failed;
  std::filesystem::directory_iterator each(fmt::format("/proc/{}/task", process), failed);
  if (failed) return Error{ErrorCode::NotFound, fmt::format("there is no process {}", process)};
  for (const std::filesystem::directory_iterator end; !failed && each != end;
       each.increment(failed)) {
    const std::string status = read_text(each->path().string() + "/status");
    threads[std::atoi(each->path().filename().c_str())] = {
        count_of(status, "voluntary_ctxt_switches:"),
        count_of(status, "nonvoluntary_ctxt_switches:")};
  }
  return threads;
}

ContextSwitches switched(const std::map<pid_t, ContextSwitches>& before,
                         const std::map<pid_t, ContextSwitches>& after) {
  ContextSwitches all;
  for (const auto& [thread, switches] : after) {
    const auto found = before.find(thread);
    const ContextSwitches begun = found == before.end() ? ContextSwitches{} : found->second;
    // The status of a thread that is ending can not be read.
    all.slept += switches.slept - std::min(switches.slept, begun.slept);
    all.preempted += switches.preempted - std::min(switches.preempted, begun.preempted);
  }
  return all;
}

void pause_for(Nanoseconds time) {
  const Deadline deadline = Deadline::after(time);
  while (!deadline.passed() && !InterruptGuard::interrupted()) {
    const auto left_ms = deadline.left().count() / 1'000'000;
    ::poll(nullptr, 0, static_cast<int>(std::min<std::int64_t>(left_ms + 1, 50)));
  }
}

std::string program_directory() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : program.parent_path().string();
}

}  // namespace perdure::test
