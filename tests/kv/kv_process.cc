// A perdure-kv process of a test: see kv_process.h.
#include "kv_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "control/host_port.h"
#include "core/clock.h"

namespace perdure::kv_test {
namespace {

constexpr auto kPatience = std::chrono::seconds{60};
constexpr auto kNap = std::chrono::milliseconds{5};

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

KvProcess::KvProcess(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), PERDURE_KV);
  arguments.insert(arguments.end(), {"--port-file", directory_.path() + "/ports"});
  auto started = test::ChildProcess::start(arguments, directory_.path() + "/said");
  if (!started.ok()) throw std::runtime_error(started.error().message);
  process_ = std::move(started).value();
  const Deadline deadline = Deadline::after(kPatience);
  while (!std::filesystem::exists(directory_.path() + "/ports")) {
    if (!process_.running() || deadline.passed()) {
      throw std::runtime_error("perdure-kv does not serve: " +
                               contents(directory_.path() + "/said"));
    }
    test::pause_for(kNap);
  }
}

std::unique_ptr<KvProcess> KvProcess::serving(const std::string& pool,
                                              std::vector<std::string> more) {
  more.insert(more.begin(),
              {"serve", "--pool", pool, "--declare-domain", "wsp", "--listen", "127.0.0.1:0",
               "--data-listen", "127.0.0.1:0", "--resp", "127.0.0.1:0"});
  return std::make_unique<KvProcess>(std::move(more));
}

std::string KvProcess::address(const std::string& name) const {
  std::ifstream file(directory_.path() + "/ports");
  std::string word;
  std::string address;
  while (file >> word >> address) {
    if (word == name) return address;
  }
  return {};
}

std::string KvProcess::resp_port() const {
  const std::string at = address("resp");
  return at.substr(at.rfind(':') + 1);
}

Ended KvProcess::wait() {
  Ended ended;
  (void)process_.wait(Deadline::after(kPatience));
  if (const auto& end = process_.end()) ended.status = end->status;
  ended.said = contents(directory_.path() + "/said");
  return ended;
}

Ended run(const std::vector<std::string>& command, const std::string& input) {
  const test::TestDirectory directory;
  const std::string output = directory.path() + "/output";
  const int from = input.empty() ? -1 : ::open(input.c_str(), O_RDONLY | O_CLOEXEC);
  const int to = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  auto started = test::ChildProcess::start(command, test::ChildStreams{from, to, to});
  if (from >= 0) ::close(from);
  ::close(to);
  if (!started.ok()) throw std::runtime_error(started.error().message);
  (void)started->wait(Deadline::after(2 * kPatience));
  Ended ended;
  if (const auto& end = started->end()) ended.status = end->status;
  ended.said = contents(output);
  return ended;
}

RespClient::RespClient(const std::string& address)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const auto at = control::parse_host_port(address);
  if (!at.ok()) throw std::runtime_error(at.error().message);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(at->port);
  ::inet_pton(AF_INET, at->host.c_str(), &to.sin_addr);
  const timeval limit{60, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    throw std::runtime_error("no connection to " + address);
  }
}

RespClient::~RespClient() { ::close(socket_); }

bool RespClient::say(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string RespClient::encoded(const std::vector<std::string>& words) {
  std::string bytes = "*" + std::to_string(words.size()) + "\r\n";
  for (const std::string& word : words) {
    bytes += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  }
  return bytes;
}

bool RespClient::fill() {
  std::array<char, 65'536> bytes;
  const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    throw std::runtime_error("nothing came for a minute");
  }
  if (got <= 0) return false;
  input_.append(bytes.data(), static_cast<std::size_t>(got));
  return true;
}

std::optional<std::string> RespClient::line() {
  std::size_t end = std::string::npos;
  while ((end = input_.find("\r\n")) == std::string::npos) {
    if (!fill()) return std::nullopt;
  }
  std::string line = input_.substr(0, end);
  input_.erase(0, end + 2);
  return line;
}

Reply RespClient::hear() {
  const auto first = line();
  Reply reply;
  if (!first || first->empty()) return reply;
  reply.kind = first->front();
  reply.text = first->substr(1);
  if (reply.kind == '*') {
    const long count = std::stol(std::exchange(reply.text, {}));
    for (long each = 0; each < count; ++each) reply.elements.push_back(hear());
    return reply;
  }
  if (reply.kind != '$') return reply;
  const long bytes = std::stol(std::exchange(reply.text, {}));
  reply.null = bytes < 0;
  if (reply.null) return reply;
  const auto length = static_cast<std::size_t>(bytes);
  while (input_.size() < length + 2) {
    if (!fill()) return {};
  }
  reply.text = input_.substr(0, length);
  input_.erase(0, length + 2);
  return reply;
}

Reply RespClient::ask(const std::vector<std::string>& words) {
  if (!say(encoded(words))) return {};
  return hear();
}

Reply status(std::string text) { return {'+', false, std::move(text), {}}; }
Reply bulk(std::string text) { return {'$', false, std::move(text), {}}; }
Reply number(long long value) { return {':', false, std::to_string(value), {}}; }
Reply null() { return {'$', true, {}, {}}; }

}  // namespace perdure::kv_test
