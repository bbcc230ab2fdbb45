// See peer_process.h.
#include "peer_process.h"

#include "pair.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace perdure::conformance {

using fabric::Access;
using fabric::Opcode;
using fabric::RemoteMemory;

PeerProgram::PeerProgram(const Harness& harness, std::vector<std::string> arguments) {
  std::array<int, 2> pipe_ends{};
  EXPECT_EQ(::pipe2(pipe_ends.data(), O_CLOEXEC), 0);
  arguments.insert(arguments.begin(), {"/proc/self/exe", "--peer", harness.name});
  auto started = test::ChildProcess::start(
      arguments, test::ChildStreams{STDIN_FILENO, pipe_ends[1], STDERR_FILENO});
  EXPECT_TRUE(started.ok()) << started.error().message;
  if (started.ok()) process_ = std::move(started).value();
  ::close(pipe_ends[1]);
  output_ = pipe_ends[0];
}

PeerProgram::~PeerProgram() { ::close(output_); }

std::string PeerProgram::read_line() {
  std::string line;
  const Deadline deadline = Deadline::after(kPatience);
  while (!deadline.passed()) {
    pollfd watched{output_, POLLIN, 0};
    if (::poll(&watched, 1, 100) <= 0) continue;
    char letter = 0;
    if (::read(output_, &letter, 1) != 1) return {};
    if (letter == '\n') return line;
    line += letter;
  }
  return {};
}

namespace {

constexpr std::size_t kPeerBytes = std::size_t{1} << 20;

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

int respond(fabric::Device& device) {
  Buffer memory(device, kPeerBytes, Access::RemoteReadWrite);
  Buffer inbox(device, 64 * 1024, Access::Local);
  auto listener = device.listen("", {});
  if (!listener.ok()) return 2;
  const RemoteMemory remote = memory.remote();
  say(fmt::format("{} {} {} {}", (*listener)->address(), remote.key, remote.base, remote.length));
  auto incoming = (*listener)->next(Deadline::after(kPatience));
  if (!incoming.ok()) return 3;
  auto endpoint = (*incoming)->accept(Deadline::after(kPatience));
  if (!endpoint.ok()) return 4;
  for (std::uint64_t i = 0; i < 32; ++i) {
    (void)(*endpoint)->post_receive(inbox.segment(i * 1024, 1024), i);
  }
  std::array<fabric::Completion, 16> batch;
  while ((*endpoint)->connected()) {
    const std::size_t count = (*endpoint)->poll(batch);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t at = batch[i].context;
      if (batch[i].opcode != Opcode::Receive || batch[i].error.has_value()) continue;
      (void)(*endpoint)->post_receive(inbox.segment(at * 1024, 1024), at);
    }
  }
  return 0;
}

int request(fabric::Device& device, const std::string& address, const RemoteMemory& remote) {
  Buffer local(device, kPeerBytes, Access::Local);
  auto endpoint = device.connect(address, {}, {}, Deadline::after(kPatience));
  if (!endpoint.ok()) return 2;
  std::array<fabric::Completion, 16> batch;
  for (std::uint64_t i = 0; (*endpoint)->connected(); ++i) {
    const std::size_t size = i % 17 == 0 ? 300'000 : 1 + i % 5000;
    auto first = write(local.segment(0, size), remote, i % 4096, i);
    first.signalled = false;
    const std::array requests{first, send(local.segment(0, 64), i),
                              read(local.segment(kPeerBytes / 2, size), remote, 0, i)};
    std::size_t posted = 0;
    while (posted < requests.size() && (*endpoint)->connected()) {
      auto taken = (*endpoint)->post(std::span(requests).subspan(posted));
      if (taken.ok()) posted += *taken;
      (void)(*endpoint)->poll(batch);
    }
  }
  return 0;
}

int collect(fabric::Device& device, const std::string& address) {
  Buffer inbox(device, 4096, Access::Local);
  auto connected = device.connect(address, {}, {}, Deadline::after(kPatience));
  if (!connected.ok()) return 2;
  Side side;
  side.endpoint = std::move(connected).value();
  (void)side.endpoint->post_receive(inbox.segment(0, 64), 1);
  say("sleeping");
  fabric::Endpoint* const one = side.endpoint.get();
  while (side.endpoint->connected()) {
    fabric::wait_any({&one, 1}, std::chrono::seconds(60));
    side.poll();
  }
  say("awake");
  return 0;
}

}  // namespace

int run_peer(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2) return 1;
  const Harness* harness = find_harness(arguments[0]);
  if (harness == nullptr) return 1;
  auto device = harness->open_in_process();
  if (!device.ok()) return 1;
  const auto number = [&](std::size_t i) {
    return std::strtoull(arguments[i].c_str(), nullptr, 10);
  };
  if (arguments[1] == "respond") return respond(**device);
  if (arguments[1] == "collect" && arguments.size() == 3) return collect(**device, arguments[2]);
  if (arguments[1] == "request" && arguments.size() == 6) {
    return request(**device, arguments[2], RemoteMemory{number(3), number(4), number(5)});
  }
  return 1;
}

}  // namespace perdure::conformance

int main(int count, char** values) {
  std::vector<std::string> arguments(values + 1, values + count);
  if (!arguments.empty() && arguments[0] == "--peer") {
    return perdure::conformance::run_peer({arguments.begin() + 1, arguments.end()});
  }
  ::testing::InitGoogleTest(&count, values);
  return RUN_ALL_TESTS();
}
