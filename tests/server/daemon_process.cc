// A perdured process of a test: see daemon_process.h.
#include "daemon_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace perdure::server {
namespace {

constexpr auto kPatience = std::chrono::seconds{60};
constexpr auto kNap = std::chrono::milliseconds{5};

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TestDirectory::TestDirectory(const std::string& below) {
  const auto parent = below.empty() ? std::filesystem::temp_directory_path().string() : below;
  std::string name = parent + "/perdure-peer-test-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

TestDirectory::~TestDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

DaemonProcess::DaemonProcess(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), PERDURED);
  arguments.insert(arguments.end(), {"--port-file", directory_.path() + "/ports"});
  std::vector<char*> words;
  for (std::string& each : arguments) words.push_back(each.data());
  words.push_back(nullptr);
  const std::string said = directory_.path() + "/said";
  pid_ = ::fork();
  if (pid_ != 0) return;
  const int file = ::open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ::dup2(file, STDERR_FILENO);
  ::execv(words[0], words.data());
  ::_exit(127);
}

DaemonProcess::~DaemonProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  (void)wait();
}

DaemonProcess* DaemonProcess::serving(const std::string& pools, std::vector<std::string> more) {
  more.insert(more.begin(), {"--pools", pools, "--listen", "127.0.0.1:0"});
  auto* daemon = new DaemonProcess(std::move(more));
  if (daemon->await()) return daemon;
  ADD_FAILURE() << "perdured does not serve: " << daemon->wait().said;
  std::abort();
}

bool DaemonProcess::await() {
  const Deadline deadline = Deadline::after(kPatience);
  while (!deadline.passed()) {
    if (std::filesystem::exists(directory_.path() + "/ports")) return true;
    siginfo_t info{};
    const bool asked =
        ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
    if (!asked || info.si_pid == pid_) return false;
    std::this_thread::sleep_for(kNap);
  }
  return false;
}

std::string DaemonProcess::address(const std::string& name) const {
  std::ifstream file(directory_.path() + "/ports");
  std::string word;
  std::string address;
  while (file >> word >> address) {
    if (word == name) return address;
  }
  return {};
}

// Once it has ended there is no process: kill(-1) would reach every other one.
void DaemonProcess::send(int signal) {
  if (pid_ > 0) ::kill(pid_, signal);
}

Ended DaemonProcess::wait() {
  Ended ended;
  const Deadline deadline = Deadline::after(kPatience);
  int status = 0;
  while (pid_ > 0 && !deadline.passed()) {
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
  ended.said = contents(directory_.path() + "/said");
  return ended;
}

control::HttpAnswer DaemonProcess::ask(const std::string& method, const std::string& path,
                                       const std::string& body) {
  const auto at = control::parse_host_port(address("control"));
  EXPECT_TRUE(at.ok());
  if (!at.ok()) return {};
  auto answer = control::http_call(*at, {method, path, body}, 1 << 20, Deadline::after(kPatience));
  EXPECT_TRUE(answer.ok()) << method << ' ' << path << ": " << answer.error().message;
  return answer.ok() ? *answer : control::HttpAnswer{};
}

}  // namespace perdure::server
