// Pools through the public calls, in C++ and in C; and what the library says while peers come and
// go.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <perdure/log.h>
#include <perdure/messages.h>
#include <perdure/perdure.h>
#include <perdure/pool.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/json_codec.h"
#include "core/clock.h"
#include "core/mutex.h"
#include "killed_peer.h"
#include "log/log_format.h"
#include "testing/raw_server.h"

namespace perdure::server {
namespace {

constexpr auto kPoolPatience = std::chrono::minutes(1);
constexpr std::uint64_t kEnough = 1 << 20;

class PublicPools : public testing::Test {
 protected:
  static PoolOptions named(const std::string& name, std::uint64_t bytes = kEnough) {
    PoolOptions options;
    options.name = name;
    options.bytes = bytes;
    return options;
  }
  Result<Log> open(const std::string& pool) {
    LogOptions options;
    options.peers = {peer_.address()};
    options.pool = pool;
    options.measure_costs = false;
    options.record_bytes_max = 4096;
    return Log::open(options);
  }

  KilledPeer peer_;
};

TEST_F(PublicPools, AreMadeDescribedListedAndDeleted) {
  const std::string& at = peer_.address();
  EXPECT_TRUE(list_pools(at)->empty());
  const auto made = create_pool(at, named("b"));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->bytes, kEnough);
  EXPECT_EQ(made->profile.domain, PersistenceDomain::Page);
  EXPECT_EQ(create_pool(at, named("b")).code(), ErrorCode::AlreadyExists);
  EXPECT_EQ(create_pool(at, named("a/b")).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(create_pool("nowhere", named("c")).code(), ErrorCode::InvalidArgument);
  ASSERT_TRUE(create_pool(at, named("a")).ok());
  EXPECT_EQ(*describe_pool(at, "b"), *made);
  EXPECT_EQ(describe_pool(at, "c").code(), ErrorCode::NotFound);
  const auto both = list_pools(at);
  ASSERT_TRUE(both.ok());
  ASSERT_EQ(both->size(), 2u);
  EXPECT_EQ(both->at(1), *made);

  const auto deleted = delete_pool(at, "b", made->uuid);
  ASSERT_TRUE(deleted.ok()) << deleted.error().message;
  EXPECT_EQ(describe_pool(at, "b").code(), ErrorCode::NotFound);
  EXPECT_EQ(delete_pool(at, "b", made->uuid).code(), ErrorCode::NotFound);
  EXPECT_EQ(peer_.pools().names(), std::vector<std::string>{"a.pool"});
  peer_.kill();
  peer_.start();
  EXPECT_EQ(list_pools(at)->size(), 1u);
}

TEST_F(PublicPools, AreClosedAndOpenedAgain) {
  const std::string& at = peer_.address();
  ASSERT_TRUE(create_pool(at, named("orders")).ok());
  EXPECT_TRUE(open_pool(at, "orders").ok());  // harmless
  {
    auto log = open("orders");
    ASSERT_TRUE(log.ok()) << log.error().message;
    ASSERT_TRUE(close_pool(at, "orders").ok());
    const auto ticket = log->append(std::vector<std::byte>(10));
    const auto waited = ticket.ok() ? log->wait(*ticket, Level::Committed, kPoolPatience)
                                    : Result<void>(ticket.error());
    EXPECT_FALSE(waited.ok());
  }
  EXPECT_TRUE(close_pool(at, "orders").ok());  // harmless when repeated
  EXPECT_EQ(describe_pool(at, "orders")->state, PoolStatus::Closed);
  const auto refused = open("orders");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("open it before use"), std::string::npos)
      << refused.error().message;
  const auto opened = open_pool(at, "orders");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->state, PoolStatus::Open);
  EXPECT_TRUE(open("orders").ok());
  EXPECT_EQ(open_pool(at, "nothing").code(), ErrorCode::NotFound);
  EXPECT_EQ(close_pool(at, "nothing").code(), ErrorCode::NotFound);

  EXPECT_EQ(perdure_pool_close(at.c_str(), "orders", 0), PERDURE_OK) << perdure_last_error();
  perdure_pool_description pool{};
  pool.size = sizeof pool;
  EXPECT_EQ(perdure_pool_describe(at.c_str(), "orders", 0, &pool), PERDURE_OK);
  EXPECT_EQ(pool.state, PERDURE_POOL_CLOSED);
  EXPECT_EQ(perdure_pool_open(at.c_str(), "orders", 0, &pool), PERDURE_OK);
  EXPECT_EQ(pool.state, PERDURE_POOL_OPEN);
}

// A peer that takes requests and does not answer, and none at all.
TEST_F(PublicPools, WhatWasSentAndNotAnsweredIsUnknown) {
  const auto within = std::chrono::milliseconds(1000);
  const auto all = [&](const std::string& at, ErrorCode changing, ErrorCode looking) {
    EXPECT_EQ(create_pool(at, named("orders"), within).code(), changing);
    EXPECT_EQ(open_pool(at, "orders", within).code(), changing);
    EXPECT_EQ(close_pool(at, "orders", within).code(), changing);
    EXPECT_EQ(delete_pool(at, "orders", "uuid", within).code(), changing);
    EXPECT_EQ(describe_pool(at, "orders", within).code(), looking);
    EXPECT_EQ(list_pools(at, within).code(), looking);
  };
  const int silent = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(silent, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(silent, generic, length), 0);
  ASSERT_EQ(::getsockname(silent, generic, &length), 0);
  const std::string at = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  all(at, ErrorCode::Disconnected, ErrorCode::Disconnected);  // it does not listen yet
  ASSERT_EQ(::listen(silent, 64), 0);
  all(at, ErrorCode::OutcomeUnknown, ErrorCode::TimedOut);
  ::close(silent);
}

TEST_F(PublicPools, OneThatNoLogFitsIntoIsMadeOnRequestOnly) {
  PoolOptions small = named("small", log::kLogBytesMin - 1);
  EXPECT_EQ(create_pool(peer_.address(), small).code(), ErrorCode::InvalidArgument);
  EXPECT_TRUE(list_pools(peer_.address())->empty());
  small.small = true;
  EXPECT_TRUE(create_pool(peer_.address(), small).ok());
  EXPECT_TRUE(create_pool(peer_.address(), named("least", log::kLogBytesMin)).ok());
}

TEST_F(PublicPools, AreNotMadeWhereLessSurvivesThanIsRequired) {
  const std::string& at = peer_.address();
  PoolOptions asked = named("orders");
  for (const auto more : {PersistenceDomain::Dmp, PersistenceDomain::Wsp}) {
    asked.required_domain = more;
    const auto refused = create_pool(at, asked);
    ASSERT_EQ(refused.code(), ErrorCode::Unsupported);
    const std::string& why = refused.error().message;
    EXPECT_NE(why.find("would be of domain page here, and " + std::string(to_string(more)) +
                       " at least is required: "),
              std::string::npos)
        << why;
    EXPECT_EQ(describe_pool(at, "orders").code(), ErrorCode::NotFound);
    EXPECT_TRUE(peer_.pools().names().empty());
  }
  asked.required_domain = PersistenceDomain::Page;
  asked.receive_buffers = ReceiveBuffers::Pm;
  EXPECT_EQ(create_pool(at, asked).code(), ErrorCode::Unsupported);
  EXPECT_TRUE(peer_.pools().names().empty());
  asked.receive_buffers = ReceiveBuffers::Dram;
  const auto made = create_pool(at, asked);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->profile.domain, PersistenceDomain::Page);
  peer_.kill();
  peer_.start();
  EXPECT_EQ(describe_pool(at, "orders")->uuid, made->uuid);
}

TEST_F(PublicPools, AreMadeWhereWhatIsRequiredIsDeclared) {
  const TestDirectory memory{"/dev/shm"};
  const std::unique_ptr<DaemonProcess> peer(
      DaemonProcess::serving(memory.path(), {"--declare-domain", "mhp"}));
  const std::string at = peer->address("control");
  PoolOptions asked = named("orders");
  asked.required_domain = PersistenceDomain::Wsp;
  EXPECT_EQ(create_pool(at, asked).code(), ErrorCode::Unsupported);
  for (const auto required : {PersistenceDomain::Page, PersistenceDomain::Mhp}) {
    asked.name = to_string(required);
    asked.required_domain = required;
    const auto made = create_pool(at, asked);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made->profile.domain, PersistenceDomain::Mhp);
  }
}

// A peer that makes pools and has not understood what is required of them.
TEST_F(PublicPools, OneThatWasMadeOtherwiseThanWasAskedIsNamed) {
  const auto made = create_pool(peer_.address(), named("orders"));
  ASSERT_TRUE(made.ok());
  const std::string body = control::encode(*made);
  const std::string answer =
      "HTTP/1.1 201 Created\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  const auto asked_for = [&](PersistenceDomain domain, std::optional<ReceiveBuffers> buffers) {
    const test::RawServer deaf([&](int connection) {
      test::hear(connection);
      test::say(connection, answer);
    });
    PoolOptions asked = named("orders");
    asked.required_domain = domain;
    asked.receive_buffers = buffers;
    return create_pool(to_string(deaf.at()), asked);
  };
  using enum PersistenceDomain;
  const auto less = asked_for(Dmp, std::nullopt);
  ASSERT_EQ(less.code(), ErrorCode::OutcomeUnknown);
  for (const std::string& part : {std::string("domain dmp at least was asked for"),
                                  "'orders' (" + made->uuid + ") as page"}) {
    EXPECT_NE(less.error().message.find(part), std::string::npos) << less.error().message;
  }
  const auto other = asked_for(Page, ReceiveBuffers::Pm);
  ASSERT_EQ(other.code(), ErrorCode::OutcomeUnknown);
  EXPECT_NE(other.error().message.find("receive buffers pm were asked for"), std::string::npos);
  EXPECT_EQ(asked_for(Page, ReceiveBuffers::Dram).value(), *made);
}

TEST_F(PublicPools, OnlyThePoolThatIsMeantIsDeletedAndNoneInUse) {
  const std::string& at = peer_.address();
  const auto made = create_pool(at, named("orders"));
  ASSERT_TRUE(made.ok());
  // Another one of that name.
  ASSERT_TRUE(delete_pool(at, "orders", made->uuid).ok());
  const auto other = create_pool(at, named("orders"));
  ASSERT_TRUE(other.ok());
  EXPECT_NE(other->uuid, made->uuid);
  EXPECT_EQ(delete_pool(at, "orders", made->uuid).code(), ErrorCode::NotFound);
  EXPECT_EQ(delete_pool(at, "orders", "").code(), ErrorCode::NotFound);
  {
    auto log = open("orders");
    ASSERT_TRUE(log.ok()) << log.error().message;
    EXPECT_EQ(delete_pool(at, "orders", other->uuid).code(), ErrorCode::Busy);
    const auto ticket = log->append(std::vector<std::byte>(10));
    ASSERT_TRUE(ticket.ok());
    EXPECT_TRUE(log->wait(*ticket, Level::Committed, kPoolPatience).ok());
    ASSERT_TRUE(log->close(kPoolPatience).ok());
  }
  // Its sessions have ended when it does; a reader's may take the daemon a moment.
  const Deadline patience = Deadline::after(kPoolPatience);
  auto deleted = delete_pool(at, "orders", other->uuid);
  while (!deleted.ok() && deleted.code() == ErrorCode::Busy && !patience.passed()) {
    deleted = delete_pool(at, "orders", other->uuid);
  }
  EXPECT_TRUE(deleted.ok()) << deleted.error().message;
  EXPECT_TRUE(peer_.pools().names().empty());
  EXPECT_EQ(open("orders").code(), ErrorCode::NotFound);
}

TEST_F(PublicPools, OneWhoseFileSomebodyDeletedMakesRoomForAnother) {
  const std::string& at = peer_.address();
  const auto made = create_pool(at, named("orders"));
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(std::filesystem::remove(peer_.pools().file("orders.pool")));
  EXPECT_EQ(create_pool(at, named("orders")).code(), ErrorCode::AlreadyExists);
  EXPECT_EQ(delete_pool(at, "orders", "another").code(), ErrorCode::NotFound);
  const auto deleted = delete_pool(at, "orders", made->uuid);
  EXPECT_TRUE(deleted.ok()) << deleted.error().message;
  const auto other = create_pool(at, named("orders"));
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_NE(other->uuid, made->uuid);
}

TEST_F(PublicPools, InC) {
  const char* const at = peer_.address().c_str();
  perdure_pool_description pool{};
  pool.size = sizeof pool;
  ASSERT_EQ(perdure_pool_create(at, "a", kEnough, false, 0, &pool), PERDURE_OK)
      << perdure_last_error();
  EXPECT_STREQ(pool.name, "a");
  EXPECT_EQ(pool.bytes, kEnough);
  EXPECT_EQ(pool.state, PERDURE_POOL_OPEN);
  EXPECT_NE(std::string(pool.profile).find("page"), std::string::npos) << pool.profile;
  EXPECT_EQ(perdure_pool_create(at, "s", 4096, false, 0, nullptr), PERDURE_INVALID_ARGUMENT);
  ASSERT_EQ(perdure_pool_create(at, "s", 4096, true, 0, nullptr), PERDURE_OK);
  perdure_pool_description pools[3] = {};
  for (auto& each : pools) each.size = sizeof each;
  std::size_t there = 0;
  ASSERT_EQ(perdure_pool_list(at, 0, pools, 1, &there), PERDURE_OK);
  EXPECT_EQ(there, 2u);
  EXPECT_STREQ(pools[1].name, "");
  ASSERT_EQ(perdure_pool_list(at, 0, pools, 3, &there), PERDURE_OK);
  EXPECT_STREQ(pools[1].name, "s");
  EXPECT_EQ(perdure_pool_delete(at, "a", pools[1].uuid, 0), PERDURE_NOT_FOUND);
  EXPECT_EQ(perdure_pool_delete(at, "a", pool.uuid, 0), PERDURE_OK) << perdure_last_error();
  EXPECT_EQ(perdure_pool_describe(at, "a", 0, &pool), PERDURE_NOT_FOUND);
  EXPECT_EQ(perdure_pool_describe(at, "s", 0, &pool), PERDURE_OK);
  EXPECT_EQ(perdure_pool_list(nullptr, 0, nullptr, 0, &there), PERDURE_INVALID_ARGUMENT);
}

TEST_F(PublicPools, AreMadeInCWithWhatIsRequired) {
  perdure_pool_create_options options{};
  options.size = sizeof options;
  options.peer = peer_.address().c_str();
  options.name = "a";
  options.bytes = kEnough;
  options.required_domain = "dmp";
  perdure_pool_description pool{};
  pool.size = sizeof pool;
  EXPECT_EQ(perdure_pool_create_with(&options, &pool), PERDURE_UNSUPPORTED);
  EXPECT_NE(std::string(perdure_last_error()).find("dmp at least is required"), std::string::npos);
  EXPECT_TRUE(peer_.pools().names().empty());
  options.required_domain = "page";
  options.receive_buffers = "dram";
  ASSERT_EQ(perdure_pool_create_with(&options, &pool), PERDURE_OK) << perdure_last_error();
  EXPECT_STREQ(pool.name, "a");
  options.name = "s";
  options.bytes = 4096;
  EXPECT_EQ(perdure_pool_create_with(&options, nullptr), PERDURE_INVALID_ARGUMENT);
  options.small = true;
  EXPECT_EQ(perdure_pool_create_with(&options, nullptr), PERDURE_OK) << perdure_last_error();
}

/// What was said, by severity.
class Said {
 public:
  void note(perdure_severity severity, const std::string& message) {
    const MutexLock lock(mutex_);
    messages_.emplace_back(severity, message);
  }
  bool has(perdure_severity severity, const std::string& part) const {
    const MutexLock lock(mutex_);
    for (const auto& [level, message] : messages_) {
      if (level == severity && message.find(part) != std::string::npos) return true;
    }
    return false;
  }
  std::size_t count() const {
    const MutexLock lock(mutex_);
    return messages_.size();
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::pair<perdure_severity, std::string>> messages_ PERDURE_GUARDED_BY(mutex_);
};

TEST_F(PublicPools, ALogSaysThatAReplicaIsDownAndBackToWhoeverListens) {
  KilledPeer second;
  KilledPeer third;
  LogOptions options;
  for (const KilledPeer* each : {&peer_, &second, &third}) {
    ASSERT_TRUE(create_pool(each->address(), named("log")).ok());
    options.peers.push_back(each->address());
  }
  options.pool = "log";
  options.measure_costs = false;
  options.record_bytes_max = 4096;
  Said said;
  ASSERT_EQ(perdure_set_message_callback(
                [](perdure_severity severity, const char* message, void* context) {
                  static_cast<Said*>(context)->note(severity, message);
                },
                &said),
            PERDURE_OK);
  auto log = Log::open(options);
  ASSERT_TRUE(log.ok()) << log.error().message;
  const auto append = [&] {
    const auto ticket = log->append(std::vector<std::byte>(10));
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    EXPECT_TRUE(log->wait(*ticket, Level::Committed, kPoolPatience).ok());
  };
  append();
  second.kill();
  const Deadline patience = Deadline::after(kPoolPatience);
  while (log->status().replicas[1].up && !patience.passed()) append();
  EXPECT_TRUE(said.has(PERDURE_WARNING, "replica " + second.address() + " is down"));
  EXPECT_FALSE(said.has(PERDURE_INFO, "is back"));
  second.start();
  const auto repaired = log->repair(kPoolPatience);
  ASSERT_TRUE(repaired.ok()) << repaired.error().message;
  for (const RepairReport& report : *repaired) {
    EXPECT_TRUE(report.repaired) << report.error;
  }
  EXPECT_TRUE(said.has(PERDURE_INFO, "replica " + second.address() + " is back"));
  // Nobody listens: nothing more is noted.
  ASSERT_EQ(perdure_set_message_callback(nullptr, nullptr), PERDURE_OK);
  const std::size_t count = said.count();
  third.kill();
  while (log->status().replicas[2].up && !patience.passed()) append();
  EXPECT_FALSE(log->status().replicas[2].up);
  EXPECT_EQ(said.count(), count);
}

}  // namespace
}  // namespace perdure::server
