// A log on real daemons of which one loses its pool file: what is mapped is not there any more, and
// whoever reads it gets nothing, while another replica is to be copied from it.
#include <gtest/gtest.h>
#include <perdure/log.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "core/bytes.h"
#include "daemon_process.h"

namespace perdure::server {
namespace {

constexpr std::size_t kDaemons = 3;
constexpr std::size_t kPayload = 1'000;

class LogMedia : public testing::TestWithParam<const char*> {
 protected:
  LogMedia() {
    for (std::size_t index = 0; index < kDaemons; ++index) {
      daemons_[index].reset(DaemonProcess::serving(pools_[index].path()));
      EXPECT_EQ(
          daemons_[index]->ask("POST", "/v1/pools", R"({"name":"log","bytes":1048576})").status,
          201);
    }
  }

  Result<Log> open() {
    LogOptions options;
    for (const auto& each : daemons_) options.peers.push_back(each->address("control"));
    options.pool = "log";
    options.transport = GetParam();
    options.record_bytes_max = 64 * 1024;
    options.measure_costs = false;
    options.take_over = true;
    return Log::open(std::move(options));
  }
  void append(Log& log, int count) {
    Ticket last;
    for (int done = 0; done < count; ++done) {
      std::vector<std::byte> record(kPayload);
      store(record.data(), log.status().next_index);
      const auto ticket = log.append(record);
      ASSERT_TRUE(ticket.ok()) << ticket.error().message;
      last = *ticket;
    }
    const auto waited = log.wait(last, Level::Committed, std::chrono::minutes(1));
    ASSERT_TRUE(waited.ok()) << waited.error().message;
  }
  void expect_whole(std::size_t index, std::uint64_t records) {
    LogReaderOptions options;
    options.peer = daemons_[index]->address("control");
    options.pool = "log";
    options.transport = GetParam();
    auto reader = LogReader::open(std::move(options));
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    for (std::uint64_t number = 0; number < records; ++number) {
      const auto record = reader->next();
      ASSERT_TRUE(record.ok() && *record) << index << ": " << number;
      EXPECT_EQ((*record)->index, number);
      ASSERT_EQ((*record)->bytes.size(), kPayload);
      EXPECT_EQ(load<std::uint64_t>((*record)->bytes.data()), number);
    }
  }

  std::array<TestDirectory, kDaemons> pools_;
  std::array<std::unique_ptr<DaemonProcess>, kDaemons> daemons_;
};

// The first one is asked first for what another replica has missed.
TEST_P(LogMedia, AReplicaIsRepairedAlthoughAnotherOneLosesItsFile) {
  auto log = open();
  ASSERT_TRUE(log.ok()) << log.error().message;
  append(*log, 200);
  ASSERT_EQ(daemons_[2]->ask("POST", "/v1/pools/log/close").status, 200);
  append(*log, 200);
  ASSERT_FALSE(log->status().replicas[2].up);
  ASSERT_EQ(daemons_[2]->ask("POST", "/v1/pools/log/open").status, 200);
  ASSERT_EQ(::truncate((pools_[0].path() + "/log.pool").c_str(), 4096), 0);
  const auto reports = log->repair();
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0].peer, daemons_[2]->address("control"));
  EXPECT_TRUE(reports[0].repaired) << reports[0].error;
  append(*log, 100);
  EXPECT_FALSE(log->status().replicas[0].up);
  EXPECT_TRUE(log->status().replicas[1].up);
  EXPECT_TRUE(log->status().replicas[2].up);
  EXPECT_EQ(log->close(std::chrono::seconds(1)).code(), ErrorCode::TimedOut) << "one has it not";
  for (const std::size_t index : {1u, 2u}) expect_whole(index, 500);
  // Expect: the daemon goes on, and says of its pool what is the matter.
  EXPECT_EQ(daemons_[0]->ask("GET", "/healthz").status, 200);
  EXPECT_NE(daemons_[0]->ask("GET", "/v1/pools/log").body.find("unavailable"), std::string::npos);
  // Expect: who takes over goes on without that one, and knows why.
  auto next = open();
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(next->status().next_index, 500u);
  EXPECT_NE(next->status().replicas[0].down_reason, "");
  append(*next, 1);
}

INSTANTIATE_TEST_SUITE_P(Here, LogMedia, testing::Values("tcp", "shm"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace perdure::server
