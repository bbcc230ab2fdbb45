// A perdured process of a test: see daemon_process.h.
#include "daemon_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
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

DaemonProcess::DaemonProcess(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), PERDURED);
  arguments.insert(arguments.end(), {"--port-file", directory_.path() + "/ports"});
  const std::string said = directory_.path() + "/said";
  const int file = ::open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  auto started =
      test::ChildProcess::start(arguments, test::ChildStreams{STDIN_FILENO, STDOUT_FILENO, file});
  ::close(file);
  if (!started.ok()) throw std::runtime_error(started.error().message);
  process_ = std::move(started).value();
}

DaemonProcess* DaemonProcess::serving(const std::string& pools, std::vector<std::string> more) {
  more.insert(more.begin(), {"--pools", pools, "--listen", "127.0.0.1:0"});
  auto daemon = std::make_unique<DaemonProcess>(std::move(more));
  if (daemon->await()) return daemon.release();
  daemon->send(SIGKILL);
  throw std::runtime_error("perdured does not serve: " + daemon->wait().said);
}

bool DaemonProcess::await() {
  const Deadline deadline = Deadline::after(kPatience);
  while (!deadline.passed()) {
    if (std::filesystem::exists(directory_.path() + "/ports")) return true;
    if (!process_.running()) return false;
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

Ended DaemonProcess::wait() {
  Ended ended;
  (void)process_.wait(Deadline::after(kPatience));
  if (const auto& end = process_.end()) {
    ended.status = end->status;
    ended.signal = end->signal;
  }
  ended.said = contents(directory_.path() + "/said");
  return ended;
}

control::HttpAnswer DaemonProcess::ask(const std::string& method, const std::string& path,
                                       const std::string& body, Nanoseconds within) {
  const auto at = control::parse_host_port(address("control"));
  EXPECT_TRUE(at.ok());
  if (!at.ok()) return {};
  auto answer = control::http_call(*at, {method, path, body}, 1 << 20, Deadline::after(within));
  EXPECT_TRUE(answer.ok()) << method << ' ' << path << ": " << answer.error().message;
  return answer.ok() ? *answer : control::HttpAnswer{};
}

}  // namespace perdure::server
