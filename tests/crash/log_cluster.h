// A cluster on the emulated fabric, whose servers stop and start and whose media can be looked at
// and damaged: what the tests of the log's protocol are made of. Nothing in it is random.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/epoch.h"
#include "log/committed_reader.h"
#include "log/log_state.h"
#include "log/replicated_log.h"
#include "pmem/pool_format.h"
#include "testing/world_server.h"

namespace perdure {

using log::ReplicatedLog;
using log::WriterOptions;

inline const std::string kPool = "log";
inline constexpr std::uint64_t kPoolBytes = log::kRingAt + 64 * 1024;
using Writer = std::unique_ptr<ReplicatedLog>;
using Order = std::vector<std::size_t>;

class Cluster {
 public:
  explicit Cluster(std::size_t servers = 3, std::uint64_t pool_bytes = kPoolBytes,
                   PersistenceDomain domain = PersistenceDomain::Wsp,
                   Transport transport = Transport::Tcp)
      : random_(1), world_(random_), pool_bytes_(pool_bytes) {
    ServerProfile profile;
    profile.domain = domain;
    profile.transport = transport;
    client_ = &world_.add_machine("client", profile);
    for (std::size_t index = 0; index < servers; ++index) {
      auto server = test::WorldServer::start(world_, fmt::format("server{}", index), profile,
                                             {kPool, pool_bytes_, {32, 2048}});
      EXPECT_TRUE(server.ok()) << server.error().message;
      servers_.push_back(std::move(server).value());
    }
  }

  WriterOptions options() const {
    WriterOptions options;
    options.pool = kPool;
    options.record_bytes_max = 4096;
    options.measure_costs = false;
    options.take_over = true;
    options.replica_timeout = std::chrono::milliseconds(20);
    return options;
  }

  Result<Writer> open(const Order& order, WriterOptions options) {
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (const std::size_t index : order) peers.push_back(peer(index));
    return open(std::move(peers), std::move(options));
  }
  Result<Writer> open(std::vector<std::unique_ptr<client::Peer>> peers, WriterOptions options) {
    options.writer = ++writers_;
    return ReplicatedLog::open(std::move(peers), options, world_.clock());
  }
  Result<Writer> open(const Order& order = {0, 1, 2}) { return open(order, options()); }
  Writer opened(const Order& order = {0, 1, 2}) {
    auto log = open(order);
    EXPECT_TRUE(log.ok()) << log.error().message;
    return log.ok() ? std::move(log).value() : nullptr;
  }

  std::unique_ptr<client::Peer> peer(std::size_t index) { return servers_[index]->peer(*client_); }
  void stop(std::size_t index) { servers_[index]->lose_power(); }
  void start(std::size_t index) {
    const auto started = servers_[index]->start_again();
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  void cut_off(std::size_t index, bool cut) {
    using fabric::emu::LinkState;
    world_.set_link(*client_, servers_[index]->machine(), cut ? LinkState::Cut : LinkState::Up);
  }
  void slow_down(std::size_t index, bool slow) {
    using fabric::emu::LinkState;
    world_.set_link(*client_, servers_[index]->machine(), slow ? LinkState::Slow : LinkState::Up);
  }
  /// How many events opening the log takes.
  std::uint64_t events_to_open(const Order& order) {
    const std::uint64_t before = world_.events();
    EXPECT_NE(opened(order), nullptr);
    return world_.events() - before;
  }
  /// Somebody opens it, and the power of a server fails after so many events. It is back then.
  void open_and_cut(const Order& order, std::size_t index, std::uint64_t events) {
    world_.cut_after(servers_[index]->machine(), events);
    (void)open(order);
    world_.cancel_cut();
    stop(index);
    start(index);
  }
  /// Makes a log of 0 and 1 with three records, of which 1 is removed: the record of that is on 0
  /// alone, and nobody knows whether it is committed.
  void remove_second() {
    Writer log = opened({0, 1});
    ASSERT_NE(log, nullptr);
    append(*log, 3);
    const std::string second = log->status().replicas[1].pool_uuid;
    cut_off(1, true);
    EXPECT_EQ(log->remove_replica(second, 0).code(), ErrorCode::OutcomeUnknown);
    log.reset();
    cut_off(1, false);
  }
  fabric::emu::World& world() { return world_; }
  const fabric::emu::Machine& client() const { return *client_; }
  test::WorldServer& server(std::size_t index) { return *servers_[index]; }

  /// The exported bytes as they are on the medium; `change` may change them.
  template <typename Change>
  void on_medium(std::size_t index, Change change) {
    auto& region = servers_[index]->region();
    change(region.bytes().subspan(pmem::kPoolDataOffset, pool_bytes_));
    ASSERT_TRUE(region.flush(pmem::kPoolDataOffset, pool_bytes_).ok());
  }
  void flip(std::size_t index, std::uint64_t at) {
    on_medium(index, [&](std::span<std::byte> bytes) { bytes[at] ^= std::byte{1}; });
  }
  void flip_record(std::size_t index, Lsn lsn) {
    const std::uint64_t ring = log::ring_bytes_for(pool_bytes_);
    flip(index, log::kRingAt + lsn.value % ring + log::kRecordHeaderBytes + 2);
  }
  void wipe(std::size_t index) {
    on_medium(index, [](std::span<std::byte> bytes) {
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
    });
  }

  log::ScanReport scan(std::size_t index, std::vector<std::string>* records = nullptr) {
    log::ScanReport report;
    on_medium(index, [&](std::span<std::byte> bytes) {
      LocalBytes local(bytes);
      auto scanned = log::scan_log(local, [&](const log::RecordView& record) {
        if (records == nullptr || record.header.type != log::RecordType::Data) return;
        records->emplace_back(reinterpret_cast<const char*>(record.payload.data()),
                              record.payload.size());
      });
      EXPECT_TRUE(scanned.ok()) << scanned.error().message;
      if (scanned.ok()) report = std::move(scanned).value();
    });
    return report;
  }

  /// Every replica holds exactly the records [first, end), and nothing is marked.
  void expect_all(std::uint64_t first, std::uint64_t end, const Order& order = {0, 1, 2}) {
    for (const std::size_t index : order) {
      std::vector<std::string> records;
      const log::ScanReport report = scan(index, &records);
      ASSERT_EQ(report.start.state().head.index, first) << "replica " << index;
      ASSERT_EQ(report.next_index, end) << "replica " << index;
      ASSERT_EQ(records.size(), end - first) << "replica " << index;
      for (std::uint64_t at = first; at < end; ++at) EXPECT_EQ(records[at - first], text(at));
      EXPECT_FALSE(report.start.state().marks.any()) << "replica " << index;
      EXPECT_FALSE(report.damaged()) << "replica " << index;
    }
  }

  static std::string text(std::uint64_t index) { return fmt::format("{:0>300}", index); }

  /// Appends and waits: the next record holds its own index.
  static std::vector<Ticket> append(ReplicatedLog& log, int count) {
    std::vector<Ticket> tickets;
    for (int done = 0; done < count; ++done) {
      const std::string record = text(log.status().next_index);
      const auto ticket = log.append(std::as_bytes(std::span(record)));
      EXPECT_TRUE(ticket.ok()) << ticket.error().message;
      if (!ticket.ok()) break;
      const auto waited = log.wait(*ticket, Level::Committed, std::chrono::seconds(1));
      EXPECT_TRUE(waited.ok()) << waited.error().message;
      tickets.push_back(*ticket);
    }
    return tickets;
  }
  /// The same without waiting for each.
  static std::vector<Ticket> append_many(ReplicatedLog& log, int count) {
    std::vector<Ticket> tickets;
    for (int done = 0; done < count; ++done) {
      const std::string record = text(log.status().next_index);
      const auto ticket = log.append(std::as_bytes(std::span(record)));
      EXPECT_TRUE(ticket.ok()) << ticket.error().message;
      if (!ticket.ok()) return tickets;
      tickets.push_back(*ticket);
    }
    const auto waited = log.wait(tickets.back(), Level::Committed, std::chrono::seconds(10));
    EXPECT_TRUE(waited.ok()) << waited.error().message;
    return tickets;
  }
  static void expect_repaired(const std::vector<RepairReport>& reports, std::size_t count) {
    EXPECT_EQ(reports.size(), count);
    for (const RepairReport& each : reports) {
      EXPECT_TRUE(each.repaired) << each.peer << ": " << each.error;
    }
  }
  static void settle(ReplicatedLog& log) { (void)log.close(std::chrono::milliseconds(200)); }

 private:
  Random random_;
  fabric::emu::World world_;
  const std::uint64_t pool_bytes_;
  fabric::emu::Machine* client_ = nullptr;
  std::vector<std::unique_ptr<test::WorldServer>> servers_;
  std::uint64_t writers_ = 0;
};

/// Makes a replica say something else of itself, in both copies.
inline void put_state(Cluster& cluster, std::size_t index,
                      const std::function<void(log::LogState&)>& change) {
  cluster.on_medium(index, [&](std::span<std::byte> bytes) {
    LocalBytes local(bytes);
    auto start = log::read_start(local);
    ASSERT_TRUE(start.ok() && start->stored);
    log::LogState state = start->state();
    change(state);
    const log::StateBytes page = log::encode_state(state, start->stored->generation + 1);
    for (std::size_t copy = 0; copy < 2; ++copy) {
      std::copy(page.begin(), page.end(), bytes.data() + log::kStateAt + copy * log::kStateEvery);
    }
  });
}

}  // namespace perdure
