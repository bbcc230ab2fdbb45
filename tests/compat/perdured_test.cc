// A perdured in ssh's place: it starts an rpmemd for each client of librpmem, guards and counts
// them, and ends them with itself.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <librpmem.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "testing/process.h"
#include "testing/temporary_directory.h"
#include "tests/compat/client.h"
#include "tests/compat/target.h"
#include "tests/server/daemon_process.h"

namespace perdure {
namespace {

using server::DaemonProcess;
using test::kPage;
using test::Memory;
using test::refused;

constexpr auto kPatience = std::chrono::seconds(60);
constexpr const char* kCredential = "c29tZXRoaW5nIHNlY3JldA==";

bool holds_in_time(const std::function<bool()>& what) {
  const Deadline within = Deadline::after(kPatience);
  while (!what()) {
    if (within.passed()) return false;
    test::pause_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// A connection to a port of this machine.
class Connection {
 public:
  explicit Connection(int port) : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(descriptor_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { ::close(descriptor_); }
  void say(const std::string& text) const {
    EXPECT_EQ(::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  /// Whether the other side has closed it.
  bool has_ended() const {
    char byte = 0;
    const ssize_t got = ::recv(descriptor_, &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

 private:
  const int descriptor_;
};

class InSshsPlace : public testing::Test {
 protected:
  void SetUp() override {
    target_.serve_set("r.set", {"4M"});
    ::setenv("RPMEM_SSH", RPMEM_CONNECT, 1);
    ::unsetenv("PERDURE_RPMEM_CREDENTIAL_FILE");
  }
  void TearDown() override { ::unsetenv("PERDURE_RPMEM_CREDENTIAL_FILE"); }

  std::string at(const std::string& name) const { return target_.here(name); }
  /// A file of perdured's configuration that makes clients show kCredential.
  std::string credential_file(const std::string& credential) const {
    const std::string file = at("credential-" + credential.substr(0, 4));
    test::write_text(file, credential + "\n");
    ::chmod(file.c_str(), 0600);
    return file;
  }
  /// Serves target_, at the port of before if there was one. `more` are keys of [rpmem].
  void start(const std::string& more = "") {
    test::write_text(at("perdured.toml"),
                     fmt::format("[rpmem]\nconfig = \"{}\"\n{}\n", target_.at_home("conf"), more));
    std::vector<std::string> arguments = {
        "--config", at("perdured.toml"), "--rpmem-poolset-dir", target_.home(), "--rpmemd", RPMEMD};
    if (!host_.empty()) arguments.insert(arguments.end(), {"--rpmem-listen", host_});
    daemon_.reset(DaemonProcess::serving(pools_.path(), arguments));
    host_ = daemon_->address("rpmem");
    ASSERT_NE(host_, "");
  }
  /// It ends by a signal, with all that it started. Returns what it has said.
  std::string stop() {
    daemon_->send(SIGTERM);
    const auto ended = daemon_->wait();
    EXPECT_EQ(ended.status, 0) << ended.said;
    daemon_.reset();
    return ended.said;
  }
  int port() const { return std::atoi(host_.c_str() + host_.rfind(':') + 1); }

  RPMEMpool* create(const Memory& memory, const char* set = "r.set") const {
    const rpmem_pool_attr attributes = test::some_attributes();
    unsigned lanes = 1;
    return rpmem_create(host_.c_str(), set, memory.at(), memory.bytes(), &lanes, &attributes);
  }
  RPMEMpool* open(const Memory& memory) const {
    unsigned lanes = 1;
    return rpmem_open(host_.c_str(), "r.set", memory.at(), memory.bytes(), &lanes, nullptr);
  }
  int remove(const std::string& set) const { return rpmem_remove(host_.c_str(), set.c_str(), 0); }
  /// A line that is durable at the target.
  void expect_persists(RPMEMpool* pool, const Memory& memory, char letter) const {
    std::memset(memory.at() + kPage, letter, 100);
    ASSERT_EQ(rpmem_persist(pool, kPage, 100, 0, 0), 0) << rpmem_errormsg();
    EXPECT_EQ(test::read_whole(target_.at_home("r.set.0")).substr(kPage, 100),
              std::string(100, letter));
  }

  std::string page(const std::string& path) const { return daemon_->ask("GET", path).body; }
  /// Of a name of /metrics, with its labels.
  std::string metric(const std::string& name) const {
    const std::string all = page("/metrics");
    const std::size_t found = all.find("\n" + name + " ");
    if (found == std::string::npos) return "none";
    const std::size_t from = found + name.size() + 2;
    return all.substr(from, all.find('\n', from) - from);
  }
  /// The rpmemd that serves the only client; 0: nobody is served.
  pid_t server() const {
    const std::string all = page("/v1/rpmem");
    const std::size_t found = all.find("\"process\":");
    return found == std::string::npos ? 0 : std::atoi(all.c_str() + found + 10);
  }
  bool comes_to_nobody() const {
    return holds_in_time([this] { return metric("perdure_rpmem_clients") == "0"; });
  }

  test::Target target_{"shm", test::Target::Medium::Memory};
  test::TestDirectory pools_;
  std::string host_;  // of clients of librpmem
  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_F(InSshsPlace, CarriesAPoolAndItsRemovalAndShowsThem) {
  start();
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  expect_persists(pool, memory, 'p');
  EXPECT_TRUE(holds_in_time([this] {
    return page("/v1/rpmem").find("\"set\":\"r.set\"") != std::string::npos;
  })) << page("/v1/rpmem");
  EXPECT_EQ(metric("perdure_rpmem_clients"), "1");
  EXPECT_EQ(page("/healthz"), "ok\n");
  EXPECT_EQ(refused(remove("r.set") != 0), EBUSY) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
  EXPECT_TRUE(comes_to_nobody());
  EXPECT_EQ(server(), 0);
  EXPECT_EQ(remove("r.set"), 0) << rpmem_errormsg();
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("r.set.0")));
  EXPECT_EQ(refused(remove("r.set") != 0), ENOENT);
  EXPECT_TRUE(comes_to_nobody());
  EXPECT_EQ(metric("perdure_rpmem_started_total"), "4");
  EXPECT_EQ(metric("perdure_rpmem_failed_total"), "0");
  const std::string said = stop();
  EXPECT_NE(said.find("has the set 'r.set'"), std::string::npos) << said;
  EXPECT_NE(said.find("has gone from the set 'r.set'"), std::string::npos) << said;
}

// Receive: the end of perdured, while a program has a pool. Expect: its rpmemd has ended with it,
// and the program finds the rpmemd that the next perdured starts.
TEST_F(InSshsPlace, AProgramComesBackToThePerduredThatIsStartedAgain) {
  start();
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  expect_persists(pool, memory, '1');
  const pid_t before = server();
  ASSERT_GT(before, 0);
  stop();
  EXPECT_TRUE(::kill(before, 0) != 0 && errno == ESRCH) << before;
  // Nobody is there now.
  ::setenv("PERDURE_RPMEM_RECONNECT_MS", "0", 1);
  EXPECT_EQ(refused(open(Memory()) == nullptr), ECONNRESET);
  EXPECT_NE(std::string(rpmem_errormsg()).find("nobody listens at 127.0.0.1"), std::string::npos)
      << rpmem_errormsg();
  start();
  expect_persists(pool, memory, '2');
  EXPECT_NE(server(), before);
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
}

// Receive: the sudden end of perdured. Expect: who is served goes on being served, as by an sshd;
// the perdured that comes after it serves the next ones.
TEST_F(InSshsPlace, WhoIsServedOutlivesAKilledPerdured) {
  start();
  const Memory memory;
  RPMEMpool* pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  daemon_->send(SIGKILL);
  daemon_->wait();
  expect_persists(pool, memory, 'k');
  start();
  expect_persists(pool, memory, 'l');
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
  pool = open(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_EQ(metric("perdure_rpmem_clients"), "1");
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
}

TEST_F(InSshsPlace, ServesWhoShowsTheCredentialAndNobodyElse) {
  start(fmt::format("credential_file = \"{}\"", credential_file(kCredential)));
  const auto expect_not = [&](const char* words) {
    EXPECT_EQ(refused(create(Memory()) == nullptr), EACCES) << rpmem_errormsg();
    const std::string said = rpmem_errormsg();
    EXPECT_NE(said.find(words), std::string::npos) << said;
    EXPECT_NE(said.find("PERDURE_RPMEM_CREDENTIAL_FILE"), std::string::npos) << said;
    EXPECT_EQ(refused(remove("r.set") != 0), EACCES) << rpmem_errormsg();
  };
  expect_not("none was shown");
  const std::string beginning = std::string(kCredential).substr(0, 5);
  for (const std::string& other : {std::string("other"), beginning, kCredential + beginning}) {
    const std::string file = at("other");
    test::write_text(file, other);
    ::chmod(file.c_str(), 0600);
    ::setenv("PERDURE_RPMEM_CREDENTIAL_FILE", file.c_str(), 1);
    expect_not("the one that was shown is another");
  }
  EXPECT_EQ(metric("perdure_rpmem_refused_total{reason=\"unauthorized\"}"), "8");
  EXPECT_EQ(metric("perdure_rpmem_started_total"), "0");

  ::setenv("PERDURE_RPMEM_CREDENTIAL_FILE", credential_file(kCredential).c_str(), 1);
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
  EXPECT_EQ(remove("r.set"), 0) << rpmem_errormsg();
  ::setenv("PERDURE_RPMEM_CREDENTIAL_FILE", at("none").c_str(), 1);
  EXPECT_EQ(refused(open(memory) == nullptr), ECONNRESET);
  EXPECT_NE(std::string(rpmem_errormsg()).find("none' can not be read"), std::string::npos)
      << rpmem_errormsg();
  EXPECT_EQ(stop().find(beginning), std::string::npos) << "secrets are not logged";
}

TEST_F(InSshsPlace, TakesNoMoreClientsThanItMay) {
  target_.serve_set("s.set", {"4M"});
  start("clients_max = 1");
  const Memory memory;
  RPMEMpool* const first = create(memory);
  ASSERT_NE(first, nullptr) << rpmem_errormsg();
  EXPECT_EQ(refused(create(Memory(), "s.set") == nullptr), EAGAIN) << rpmem_errormsg();
  EXPECT_NE(std::string(rpmem_errormsg()).find("clients_max"), std::string::npos)
      << rpmem_errormsg();
  EXPECT_EQ(refused(remove("s.set") != 0), EAGAIN) << rpmem_errormsg();
  EXPECT_EQ(metric("perdure_rpmem_refused_total{reason=\"full\"}"), "2");
  expect_persists(first, memory, 'f');
  EXPECT_EQ(rpmem_close(first), 0) << rpmem_errormsg();
  EXPECT_TRUE(comes_to_nobody());
  RPMEMpool* const second = create(Memory(), "s.set");
  ASSERT_NE(second, nullptr) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(second), 0) << rpmem_errormsg();
}

// Receive: more silent clients than may wait, one that says half a line, and one that has its
// rpmemd and then asks for nothing. Expect: a program is served all the same, nobody gets an rpmemd
// for silence, and all of them are closed in time.
TEST_F(InSshsPlace, SilentClientsHoldNobodyUp) {
  start();
  constexpr int kSilent = 80;
  std::vector<std::unique_ptr<Connection>> silent;
  for (int i = 0; i < kSilent; ++i) silent.push_back(std::make_unique<Connection>(port()));
  silent.back()->say("rpmemd --rem");
  const Connection idle(port());
  idle.say("rpmemd\n");
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_TRUE(silent.front()->has_ended()) << "who waited the longest makes room";
  EXPECT_EQ(metric("perdure_rpmem_started_total"), "2");
  EXPECT_TRUE(holds_in_time([&] { return metric("perdure_rpmem_failed_total") == "1"; }));
  EXPECT_TRUE(holds_in_time([&] {
    return std::all_of(silent.begin(), silent.end(), [](auto& each) { return each->has_ended(); });
  }));
  const std::string counted = "perdure_rpmem_refused_total{reason=\"silent\"}";
  EXPECT_TRUE(holds_in_time([&] { return metric(counted) == std::to_string(kSilent); }))
      << metric(counted);
  expect_persists(pool, memory, 's');
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
}

// Receive: the end of a program that closes nothing. Expect: its rpmemd ends, and the set is free.
TEST_F(InSshsPlace, AClientThatVanishesLeavesTheSetToTheNext) {
  start();
  auto vanishing = test::ChildProcess::fork([this] {
    const Memory memory;
    return create(memory) == nullptr ? 1 : (::kill(::getpid(), SIGKILL), 2);
  });
  ASSERT_TRUE(vanishing.ok());
  vanishing->wait();
  ASSERT_EQ(vanishing->end()->signal, SIGKILL);
  EXPECT_TRUE(comes_to_nobody());
  const Memory memory;
  RPMEMpool* const pool = open(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
}

/// What a process has open, by what it is and where.
std::set<std::string> open_files(pid_t process) {
  std::set<std::string> found;
  const std::string directory = fmt::format("/proc/{}/fd", process);
  for (const auto& each : std::filesystem::directory_iterator(directory)) {
    std::error_code gone;
    found.insert(std::filesystem::read_symlink(each.path(), gone).string());
  }
  return found;
}

// Receive: a client, while perdured has pools, locks and sockets of its own. Expect: of all these
// rpmemd has the client's connection, its report and the standard error.
TEST_F(InSshsPlace, RpmemdInheritsNothingElse) {
  start();
  EXPECT_EQ(daemon_->ask("POST", "/v1/pools", R"({"name":"orders","bytes":65536})").status, 201);
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  const auto ours = open_files(daemon_->pid());
  EXPECT_TRUE(ours.count(std::filesystem::canonical(pools_.path()).string() + "/orders.pool"));
  int sockets = 0;
  int pipes = 0;
  for (const std::string& each : open_files(server())) {
    if (ours.count(each) == 0) continue;
    sockets += each.starts_with("socket:") ? 1 : 0;
    pipes += each.starts_with("pipe:") ? 1 : 0;
    EXPECT_EQ(each.find(".pool"), std::string::npos) << each;
  }
  EXPECT_EQ(sockets, 1);
  EXPECT_LE(pipes, 2);  // the test's own output may be one
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
}

TEST_F(InSshsPlace, RunsNothingElseAndStaysInItsDirectory) {
  start();
  const std::string made = at("made");
  for (const std::string& command :
       {"rpmemd; touch " + made, "rpmemd --log-file " + made, "touch " + made}) {
    ::setenv("RPMEM_CMD", command.c_str(), 1);
    EXPECT_EQ(refused(create(Memory()) == nullptr), EINVAL) << command;
    const std::string said = rpmem_errormsg();
    EXPECT_NE(said.find("not a command of librpmem's"), std::string::npos) << said;
  }
  ::unsetenv("RPMEM_CMD");
  EXPECT_NE(remove("--log-file=" + made), 0) << "the name of a set is no option";
  EXPECT_FALSE(std::filesystem::exists(made));
  EXPECT_EQ(refused(create(Memory(), "../r.set") == nullptr), EINVAL) << rpmem_errormsg();
  EXPECT_EQ(metric("perdure_rpmem_refused_total{reason=\"command\"}"), "3");
}

TEST_F(InSshsPlace, WhatIsWrongIsSaidWhenItStarts) {
  test::write_text(at("open"), "secret\n");
  ::chmod(at("open").c_str(), 0644);
  test::write_text(at("open.toml"), "[rpmem]\ncredential_file = \"" + at("open") + "\"\n");
  const std::string sets = target_.home();
  const struct {
    std::vector<std::string> arguments;
    int status;
    const char* words;
  } cases[] = {
      {{"--rpmem-poolset-dir", at("none")}, 1, "there is no such directory"},
      {{"--rpmem-poolset-dir", "sets"}, 2, "write the whole path"},
      {{"--rpmem-poolset-dir", sets, "--rpmemd", at("none")}, 1, "there is no such program"},
      {{"--rpmem-poolset-dir", sets, "--rpmemd", "no-rpmemd"}, 1, "no such program in PATH"},
      {{"--rpmem-poolset-dir", sets, "--rpmem-listen", "0.0.0.0:0"}, 2, "allow_remote"},
      {{"--rpmem-listen", "127.0.0.1:0"}, 2, "--rpmem-poolset-dir"},
      {{"--rpmem-poolset-dir", sets, "--rpmemd", RPMEMD, "--config", at("open.toml")}, 1, "chmod"},
  };
  for (const auto& each : cases) {
    std::vector<std::string> arguments = {"--pools", pools_.path(), "--listen", "127.0.0.1:0"};
    arguments.insert(arguments.end(), each.arguments.begin(), each.arguments.end());
    DaemonProcess daemon(arguments);
    const auto ended = daemon.wait();
    EXPECT_EQ(ended.status, each.status) << ended.said;
    EXPECT_NE(ended.said.find(each.words), std::string::npos) << each.words << ": " << ended.said;
  }
}

/// Says this to whoever comes, once it was asked, and closes the connection.
class OtherServer {
 public:
  explicit OtherServer(std::string words)
      : words_(std::move(words)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &length), 0);
    host_ = fmt::format("127.0.0.1:{}", ntohs(at.sin_port));
    thread_ = std::thread([this] { run(); });
  }
  ~OtherServer() {
    (void)::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  OtherServer(const OtherServer&) = delete;
  OtherServer& operator=(const OtherServer&) = delete;
  const char* host() const { return host_.c_str(); }

 private:
  void run() {
    for (int one = 0; (one = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      char asked[256];
      (void)!::recv(one, asked, sizeof asked, 0);
      (void)!::send(one, words_.data(), words_.size(), MSG_NOSIGNAL);
      ::close(one);
    }
  }

  const std::string words_;
  const int listener_;
  std::string host_;
  std::thread thread_;
};

TEST(RpmemConnect, SaysWhatAnswersThereWhereNoRpmemdDoes) {
  const test::Target target("shm", test::Target::Medium::Memory);
  ::setenv("RPMEM_SSH", RPMEM_CONNECT, 1);
  ::unsetenv("PERDURE_RPMEM_CREDENTIAL_FILE");
  const OtherServer silent("");
  const OtherServer http("HTTP/1.1 400 Bad Request\r\n\r\n");
  const struct {
    const OtherServer& server;
    const char* words;
  } cases[] = {{silent, "ended the connection without a word"}, {http, "is a server of HTTP"}};
  for (const auto& each : cases) {
    const Memory memory;
    unsigned lanes = 1;
    EXPECT_EQ(rpmem_open(each.server.host(), "r.set", memory.at(), memory.bytes(), &lanes, nullptr),
              nullptr);
    EXPECT_NE(std::string(rpmem_errormsg()).find(each.words), std::string::npos)
        << rpmem_errormsg();
    EXPECT_NE(rpmem_remove(each.server.host(), "r.set", 0), 0);
    EXPECT_NE(std::string(rpmem_errormsg()).find(each.words), std::string::npos)
        << rpmem_errormsg();
  }
}

}  // namespace
}  // namespace perdure
