// A log on real daemons of which one loses its pool file: what is mapped is not there any more, and
// whoever reads it gets nothing, while another replica is to be copied from it.
#include <gtest/gtest.h>
#include <perdure/log.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "client/http_peer.h"
#include "core/bytes.h"
#include "daemon_process.h"
#include "fabric/open_device.h"
#include "log/replicated_log.h"
#include "testing/relayed_peer.h"
#include "whole_log.h"

namespace perdure::server {
namespace {

constexpr std::size_t kDaemons = 3;
constexpr std::size_t kPayload = 1'000;

/// A peer that lets its pool be cut short between a reader's session and what is read by it.
class CutPeer final : public test::RelayedPeer {
 public:
  CutPeer(std::unique_ptr<client::Peer> real, const std::string& cut)
      : RelayedPeer(std::move(real)), cut_(cut) {}
  Result<client::Session> open_session(const control::SessionRequest& r, Deadline d) override {
    auto session = RelayedPeer::open_session(r, d);
    const bool cuts = session.ok() && !r.write && !cut_.empty();
    EXPECT_TRUE(!cuts || ::truncate(cut_.c_str(), 4096) == 0);
    return session;
  }

 private:
  const std::string& cut_;  // the file, once it is to be cut
};

class LogMedia : public testing::TestWithParam<Transport> {
 protected:
  using Writer = std::unique_ptr<log::ReplicatedLog>;

  LogMedia() {
    auto device = fabric::open_device(GetParam());
    EXPECT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    for (std::size_t index = 0; index < kDaemons; ++index) {
      daemons_[index].reset(DaemonProcess::serving(pools_[index].path()));
      EXPECT_EQ(
          daemons_[index]->ask("POST", "/v1/pools", R"({"name":"log","bytes":1048576})").status,
          201);
    }
  }

  std::string file(std::size_t index) const { return pools_[index].path() + "/log.pool"; }
  Result<Writer> open() {
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (std::size_t index = 0; index < kDaemons; ++index) {
      auto peer = client::HttpPeer::open(daemons_[index]->address("control"), device_);
      if (!peer.ok()) return peer.error();
      peers.push_back(std::make_unique<CutPeer>(std::move(*peer), cut_[index]));
    }
    log::WriterOptions options;
    options.pool = "log";
    options.record_bytes_max = 64 * 1024;
    options.measure_costs = false;
    options.take_over = true;
    return log::ReplicatedLog::open(std::move(peers), options, Clock::monotonic());
  }
  static void append(log::ReplicatedLog& log, int count) {
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
    expect_whole_log(daemons_[index]->address("control"), GetParam(), records, kPayload);
  }

  std::array<TestDirectory, kDaemons> pools_;
  std::array<std::unique_ptr<DaemonProcess>, kDaemons> daemons_;
  std::shared_ptr<fabric::Device> device_;
  std::array<std::string, kDaemons> cut_;  // files that are cut when somebody begins to read them
};

// The first one is asked first for what another replica has missed.
TEST_P(LogMedia, AReplicaIsRepairedAlthoughAnotherOneLosesItsFile) {
  auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Writer log = std::move(opened).value();
  append(*log, 200);
  ASSERT_EQ(daemons_[2]->ask("POST", "/v1/pools/log/close").status, 200);
  append(*log, 200);
  // The quorum does without it, so that it has gone may be noticed a little later.
  const Deadline soon = Deadline::after(std::chrono::seconds(30));
  while (log->status().replicas[2].up && !soon.passed()) {
    ASSERT_TRUE(log->poll(std::chrono::milliseconds(10)).ok());
  }
  ASSERT_FALSE(log->status().replicas[2].up);
  ASSERT_EQ(daemons_[2]->ask("POST", "/v1/pools/log/open").status, 200);
  cut_[0] = file(0);
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
  cut_[0].clear();
  // Expect: who takes over goes on without that one, and knows why.
  auto next = open();
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ((*next)->status().next_index, 500u);
  EXPECT_NE((*next)->status().replicas[0].down_reason, "");
  append(**next, 1);
}

INSTANTIATE_TEST_SUITE_P(Here, LogMedia, testing::Values(Transport::Tcp, Transport::Shm),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace perdure::server
