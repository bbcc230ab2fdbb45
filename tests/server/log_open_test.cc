// A log is opened on replicas that are all read at once, over transports of this machine. Runs
// under the thread sanitizer too: nothing but the end of its own survey is what a thread hands
// over.
#include <gtest/gtest.h>
#include <perdure/log.h>

#include <algorithm>
#include <array>

#include "core/bytes.h"
#include "fabric/open_device.h"
#include "log/log_format.h"
#include "pmem/crashable_region.h"
#include "pmem/pool.h"
#include "pmem/pool_format.h"
#include "server/http_server.h"

namespace perdure::server {
namespace {

constexpr std::size_t kReplicas = 3;
constexpr std::uint64_t kRecords = 300;
constexpr std::size_t kRecordBytes = 1'000;

/// A control plane in this process with the blank pool "log".
class OpenedPeer {
 public:
  OpenedPeer(Transport transport, std::size_t number) {
    auto device = fabric::open_device(transport);
    EXPECT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    const std::string listen = transport == Transport::Tcp ? "127.0.0.1:0" : "";
    auto service = PeerService::open({}, {{device_.get(), listen, {}}});
    EXPECT_TRUE(service.ok()) << service.error().message;
    service_ = std::move(*service);
    pmem::CrashableRegion::Options memory;
    memory.bytes = std::uint64_t{4} << 20;
    memory.domain = PersistenceDomain::Page;
    auto region = pmem::CrashableRegion::open(memory);
    EXPECT_TRUE(region.ok());
    region_ = region->get();
    pmem::PoolOptions options;
    options.uuid = pmem::Uuid{std::byte(number + 1)};
    auto pool = pmem::Pool::format(std::move(*region), options);
    EXPECT_TRUE(pool.ok());
    const auto added = service_->add_pool("log", std::move(*pool));
    EXPECT_TRUE(added.ok()) << added.error().message;
    HttpServerOptions http;
    http.listen = "127.0.0.1:0";
    auto server = HttpServer::open(*service_, http);
    EXPECT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
    address_ = server_->address();
  }

  const std::string& address() const { return address_; }
  /// A bit of what follows `lsn` in the first lap of the ring.
  void flip_behind(Lsn lsn) {
    region_->flip_bit(pmem::kPoolDataOffset + log::kRingAt + lsn.value + 100, 3);
  }
  void stop() { server_.reset(); }

 private:
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<PeerService> service_;
  pmem::CrashableRegion* region_ = nullptr;  // the service's
  std::unique_ptr<HttpServer> server_;
  std::string address_;
};

class LogOpen : public testing::TestWithParam<Transport> {
 protected:
  LogOpen() {
    for (std::size_t index = 0; index < kReplicas; ++index) {
      peers_.push_back(std::make_unique<OpenedPeer>(GetParam(), index));
    }
  }

  Result<Log> open() {
    LogOptions options;
    for (const auto& each : peers_) options.peers.push_back(each->address());
    options.pool = "log";
    options.transport = std::string(to_string(GetParam()));
    options.record_bytes_max = 64 * 1024;
    options.measure_costs = false;
    options.take_over = true;  // that the one before has gone may take a moment to be noticed
    return Log::open(std::move(options));
  }

  /// Where its records begin.
  std::vector<Lsn> fill() {
    std::vector<Lsn> places;
    auto log = open();
    EXPECT_TRUE(log.ok()) << log.error().message;
    if (!log.ok()) return places;
    std::vector<std::byte> record(kRecordBytes);
    for (std::uint64_t index = 0; index < kRecords; ++index) {
      store(record.data(), index);
      const auto ticket = log->append(record);
      EXPECT_TRUE(ticket.ok()) << ticket.error().message;
      if (!ticket.ok()) return places;
      places.push_back(ticket->lsn);
    }
    const auto closed = log->close(std::chrono::minutes(1));
    EXPECT_TRUE(closed.ok()) << closed.error().message;
    return places;
  }

  void expect_whole(std::size_t index) {
    LogReaderOptions options;
    options.peer = peers_[index]->address();
    options.pool = "log";
    options.transport = std::string(to_string(GetParam()));
    auto reader = LogReader::open(std::move(options));
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    for (std::uint64_t number = 0; number < kRecords; ++number) {
      const auto record = reader->next();
      ASSERT_TRUE(record.ok() && *record) << index << ": " << number;
      EXPECT_EQ((*record)->index, number);
      ASSERT_EQ((*record)->bytes.size(), kRecordBytes);
      EXPECT_EQ(load<std::uint64_t>((*record)->bytes.data()), number);
    }
  }

  std::vector<std::unique_ptr<OpenedPeer>> peers_;
};

TEST_P(LogOpen, AllReplicasAreReadAndNoneIsTakenForAnother) {
  const std::vector<Lsn> places = fill();
  ASSERT_EQ(places.size(), kRecords);
  // Each in turn is damaged at a place of its own: the first is read by the caller's thread.
  for (std::size_t damaged = 0; damaged < kReplicas; ++damaged) {
    const std::size_t number = 10 + 100 * damaged;
    peers_[damaged]->flip_behind(places[number]);
    auto log = open();
    ASSERT_TRUE(log.ok()) << log.error().message;
    EXPECT_EQ(log->status().next_index, kRecords);
    const std::vector<RepairReport> repairs = log->take_repairs();
    ASSERT_EQ(repairs.size(), 1u);
    EXPECT_EQ(repairs[0].peer, peers_[damaged]->address());
    EXPECT_TRUE(repairs[0].repaired) << repairs[0].error;
    const std::string found = "damaged record at " + std::to_string(places[number].value);
    EXPECT_NE(repairs[0].found.find(found), std::string::npos) << repairs[0].found;
    for (const ReplicaStatus& each : log->status().replicas) {
      EXPECT_TRUE(each.up) << each.peer << ": " << each.down_reason;
    }
    EXPECT_TRUE(log->close(std::chrono::minutes(1)).ok());
  }
  for (std::size_t index = 0; index < kReplicas; ++index) expect_whole(index);
}

TEST_P(LogOpen, WhoDoesNotAnswerIsDownAndTheOthersAreRead) {
  ASSERT_EQ(fill().size(), kRecords);
  // The first has no session: another one is then the one that is read by the caller's thread.
  peers_[0]->stop();
  {
    auto log = open();
    ASSERT_TRUE(log.ok()) << log.error().message;
    EXPECT_EQ(log->status().next_index, kRecords);
    EXPECT_FALSE(log->status().replicas[0].up);
    EXPECT_TRUE(log->status().replicas[1].up && log->status().replicas[2].up);
  }
  peers_[1]->stop();
  EXPECT_EQ(open().code(), ErrorCode::QuorumLost);
}

INSTANTIATE_TEST_SUITE_P(Here, LogOpen, testing::Values(Transport::Tcp, Transport::Shm),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace perdure::server
