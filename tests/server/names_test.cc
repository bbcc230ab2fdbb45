// A name server that does not answer: every call that has a deadline keeps it, and those that do
// not wait do not. glibc asks such a server for two and a half minutes here, so a lookup that
// begins before all calls and has not ended behind them shows that none of them waited for one.
//
// The test makes the name server by itself: in a child with a network and mounts of its own, where
// port 53 of loopback is taken and never read.
#include <gtest/gtest.h>
#include <netdb.h>
#include <perdure/log.h>
#include <perdure/log_writer.h>
#include <perdure/pool.h>
#include <perdure/region.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <memory>
#include <thread>

#include "daemon_process.h"
#include "own_network.h"

namespace perdure::server {
namespace {

constexpr auto kShort = std::chrono::milliseconds(100);
constexpr auto kAnswers = std::chrono::seconds(4);  // in which those that are there have answered
constexpr int kNotPermitted = 77;
const std::string kUnanswered = "nobody.example";

/// What is asked for names from now on; with mounts and a network of its own.
class SilentNameServer {
 public:
  explicit SilentNameServer(const TestDirectory& directory) : hosts_(directory.file("hosts")) {
    write(directory.file("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n");
    write(directory.file("nsswitch.conf"), "hosts: files dns\n");
    write(hosts_, "");
    ready_ = ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    for (const char* name : {"hosts", "resolv.conf", "nsswitch.conf"}) {
      const std::string place = std::string("/etc/") + name;
      ready_ = ready_ &&
               ::mount(directory.file(name).c_str(), place.c_str(), nullptr, MS_BIND, nullptr) == 0;
    }
    socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(53);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ready_ = ready_ && ::bind(socket_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
    if (!ready_) return;
    std::thread([this] {
      addrinfo* found = nullptr;
      if (::getaddrinfo(kUnanswered.c_str(), nullptr, nullptr, &found) == 0) ::freeaddrinfo(found);
      answered_ = true;
    }).detach();
  }

  bool ready() const { return ready_; }
  /// Whether the name server has answered or been given up.
  bool answered() const { return answered_; }
  /// From now on the only names that are known without it.
  void know(const std::string& hosts) { write(hosts_, hosts); }

 private:
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
  }

  const std::string hosts_;
  int socket_ = -1;
  bool ready_ = false;
  std::atomic<bool> answered_{false};
};

/// What is run where no name is resolved.
class Names {
 public:
  Names() {
    for (std::size_t index = 0; index < daemons_.size(); ++index) {
      daemons_[index].reset(DaemonProcess::serving(pools_[index].path()));
      const std::string at = daemons_[index]->address("control");
      peers_.push_back(at);
      for (const char* pool : {"log", "region"}) {
        PoolOptions options;
        options.name = pool;
        options.bytes = 1 << 20;
        EXPECT_TRUE(create_pool(at, options).ok());
      }
    }
  }

  /// The address of a peer by a name that no file knows.
  std::string unanswered(std::size_t index) const {
    return kUnanswered + peers_[index].substr(peers_[index].find(':'));
  }
  std::string named(const std::string& name, std::size_t index) const {
    return name + peers_[index].substr(peers_[index].find(':'));
  }
  LogOptions log(const std::vector<std::string>& peers) const {
    LogOptions options;
    options.peers = peers;
    options.pool = "log";
    options.transport = Transport::Tcp;
    options.record_bytes_max = 4096;
    options.measure_costs = false;
    options.replica_timeout = kAnswers;
    return options;
  }
  const std::vector<std::string>& peers() const { return peers_; }
  void kill_daemons() {
    for (auto& daemon : daemons_) daemon.reset();
  }

  void pools();
  void a_log_with_one_of_them();
  void a_region_with_one_of_them();
  void a_log_whose_names_are_gone(SilentNameServer& names);

 private:
  std::array<TestDirectory, 3> pools_;
  std::array<std::unique_ptr<DaemonProcess>, 3> daemons_;
  std::vector<std::string> peers_;
};

const std::vector<std::byte> kRecord(100, std::byte{7});

void Names::pools() {
  const std::string at = unanswered(0);
  PoolOptions options;
  options.name = "new";
  options.bytes = 1 << 20;
  EXPECT_EQ(create_pool(at, options, kShort).code(), ErrorCode::TimedOut);
  EXPECT_EQ(describe_pool(at, "log", kShort).code(), ErrorCode::TimedOut);
  EXPECT_EQ(list_pools(at, kShort).code(), ErrorCode::TimedOut);
  EXPECT_EQ(close_pool(at, "log", kShort).code(), ErrorCode::TimedOut);
  EXPECT_EQ(open_pool(at, "log", kShort).code(), ErrorCode::TimedOut);
  EXPECT_EQ(delete_pool(at, "log", "", kShort).code(), ErrorCode::TimedOut);
}

void Names::a_log_with_one_of_them() {
  auto created = Log::open(log(peers_));
  ASSERT_TRUE(created.ok()) << created.error().message;
  ASSERT_TRUE(created->close().ok());
  EXPECT_FALSE(Log::open(log({unanswered(0), unanswered(1), peers_[2]})).ok());
  LogOptions options = log({unanswered(0), peers_[1], peers_[2]});
  options.reconnect = std::chrono::milliseconds(1);
  options.take_over = true;  // of one that may not be known to have gone
  auto opened = Log::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_FALSE(opened->status().replicas[0].up);
  for (int count = 0; count < 3; ++count) {
    const auto ticket = opened->append(kRecord);
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    EXPECT_TRUE(opened->wait(*ticket, Level::Committed).ok());
    EXPECT_TRUE(opened->poll().ok());
    EXPECT_TRUE(opened->poll(kShort).ok());
  }
  const auto repaired = opened->repair(kShort);
  ASSERT_TRUE(repaired.ok());
  ASSERT_EQ(repaired->size(), 1u);
  EXPECT_FALSE(repaired->front().repaired);
  EXPECT_TRUE(opened->trim(opened->status().tail).ok());
  EXPECT_FALSE(opened->add_replica(unanswered(1)).ok());
  LogReaderOptions reading;
  reading.peers = {unanswered(0), peers_[1]};
  reading.pool = "log";
  reading.transport = Transport::Tcp;
  reading.timeout = kAnswers;
  auto reader = LogReader::open(reading);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  for (int count = 0; count < 3; ++count) EXPECT_TRUE(reader->next().ok());
  reading.peers = {unanswered(0)};
  EXPECT_EQ(LogReader::open(reading).code(), ErrorCode::TimedOut);
  (void)opened->close(kShort);
}

void Names::a_region_with_one_of_them() {
  RegionOptions options;
  options.peers = peers_;
  options.pool = "region";
  options.quorum = 2;
  options.transport = Transport::Tcp;
  options.measure_costs = false;
  options.peer_timeout = kAnswers;
  {
    auto created = Region::open(options);
    ASSERT_TRUE(created.ok()) << created.error().message;
  }
  options.peers[0] = unanswered(0);
  options.reconnect = std::chrono::milliseconds(1);
  options.take_over = true;
  auto opened = Region::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  for (int count = 0; count < 3; ++count) {
    EXPECT_TRUE(opened->write(0, kRecord).ok());
    EXPECT_TRUE(opened->flush(Level::Committed).ok());
    EXPECT_TRUE(opened->poll(kShort).ok());
  }
}

// Known when it was opened, and not any more when all its peers go.
void Names::a_log_whose_names_are_gone(SilentNameServer& names) {
  names.know("127.0.0.1 first.example second.example third.example\n");
  const std::vector<std::string> peers{named("first.example", 0), named("second.example", 1),
                                       named("third.example", 2)};
  LogOptions options = log(peers);
  options.take_over = true;
  options.replica_timeout = std::chrono::seconds(5);
  auto writer = LogWriter::open(options);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  ASSERT_TRUE(writer->commit(kRecord).ok());
  names.know("");
  kill_daemons();
  for (int count = 0; count < 3; ++count) {
    EXPECT_FALSE(writer->commit(kRecord, Level::Committed, kShort).ok());
    writer->poll(kShort);
  }
  ASSERT_TRUE(writer
                  ->with_log([&](Log& log) {
                    EXPECT_FALSE(log.append(kRecord).ok());
                    EXPECT_FALSE(log.trim(log.status().tail).ok());
                    EXPECT_FALSE(log.poll().ok());
                    EXPECT_FALSE(log.poll(kShort).ok());
                    EXPECT_TRUE(log.repair(kShort).ok());
                  })
                  .ok());
  (void)writer->close(kShort);
}

int run_where_no_name_is_resolved() {
  const TestDirectory directory;
  if (!enter_network_of_its_own(CLONE_NEWNS)) return kNotPermitted;
  SilentNameServer names(directory);
  if (!names.ready()) return kNotPermitted;
  Names all;
  all.pools();
  all.a_log_with_one_of_them();
  all.a_region_with_one_of_them();
  all.a_log_whose_names_are_gone(names);
  EXPECT_FALSE(names.answered());
  return testing::Test::HasFailure() ? 1 : 0;
}

TEST(Names, ANameServerThatDoesNotAnswerHoldsNoCallBeyondItsTime) {
  auto child = test::ChildProcess::fork(run_where_no_name_is_resolved);
  ASSERT_TRUE(child.ok()) << child.error().message;
  ASSERT_TRUE(child->wait(Deadline::after(std::chrono::minutes(5))));
  ASSERT_TRUE(child->end());
  if (child->end()->status == kNotPermitted) GTEST_SKIP() << "namespaces are not permitted here";
  EXPECT_EQ(child->end()->status, 0);
}

}  // namespace
}  // namespace perdure::server
