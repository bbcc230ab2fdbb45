// The devices of a process: logs, readers and regions share them, and a child has its own.
#include <gtest/gtest.h>
#include <perdure/log.h>
#include <perdure/region.h>

#include <memory>
#include <thread>
#include <vector>

#include "client/dial.h"
#include "opened_peer.h"
#include "testing/child_of_fork.h"

namespace perdure::server {
namespace {

class Devices : public testing::TestWithParam<Transport> {
 protected:
  /// Nobody listens there, and nothing is sent.
  static const fabric::Device* device(client::Dialer& dialer) {
    auto peer = dialer.dial("127.0.0.1:1", GetParam());
    EXPECT_TRUE(peer.ok()) << peer.error().message;
    return peer.ok() ? &(*peer)->device() : nullptr;
  }
};

TEST_P(Devices, AreThoseOfTheProcess) {
  client::Dialer one;
  client::Dialer other;
  const fabric::Device* const first = device(one);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(device(one), first);
  // Over tcp there is nothing to share: see docs/decisions/0026-devices-of-a-process.md.
  EXPECT_EQ(device(other) == first, GetParam() != Transport::Tcp);
  // A child's is its own: the parent's is there, and nothing of it is used.
  EXPECT_TRUE(test::yes_in_a_child([&] {
    client::Dialer own;
    const fabric::Device* const opened = device(own);
    return opened != nullptr && opened != first;
  }));
}

// Whoever opens one has it for as long as a peer that was dialled with it is there.
TEST_P(Devices, OutliveTheirDialer) {
  auto dialer = std::make_unique<client::Dialer>();
  auto peer = dialer->dial("127.0.0.1:1", GetParam());
  ASSERT_TRUE(peer.ok());
  dialer.reset();
  EXPECT_EQ((*peer)->device().transport(), GetParam());
  client::Dialer other;
  EXPECT_EQ(device(other) == &(*peer)->device(), GetParam() != Transport::Tcp);
}

// One thread writes, and others read over connections of their own, opened and closed all the time:
// over shm all of them over one device. Expect: each reads every record.
TEST_P(Devices, AreUsedByManyThreadsAtOnce) {
  constexpr std::uint64_t kReadRecords = 400;
  OpenedPeers peers(GetParam());
  auto opened = Log::open(peers.options());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Log& log = *opened;
  std::vector<std::thread> readers;
  std::vector<std::uint64_t> read(3);
  const Deadline patience = Deadline::after(std::chrono::minutes(1));
  for (std::size_t number = 0; number < read.size(); ++number) {
    readers.emplace_back([&, number] {
      LogReaderOptions options;
      options.peers = {peers[number].address()};
      options.pool = "log";
      options.transport = GetParam();
      std::uint64_t& next = read[number];
      while (next < kReadRecords && !patience.passed()) {
        options.from_index = next;
        auto reader = LogReader::open(options);
        for (int some = 0; reader.ok() && some < 50; ++some) {
          const auto record = reader->next();
          if (!record.ok() || !*record) break;
          ASSERT_EQ((*record)->index, next);
          ++next;
        }
      }
    });
  }
  for (std::uint64_t count = 0; count < kReadRecords; ++count) {
    const std::vector<std::byte> record(1 + count * 37 % 5000, std::byte{1});
    const auto ticket = log.append(record);
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    if (count % 10 != 9) continue;
    const auto waited = log.wait(*ticket, Level::Committed, std::chrono::minutes(1));
    ASSERT_TRUE(waited.ok()) << waited.error().message;
  }
  EXPECT_TRUE(log.close(std::chrono::minutes(1)).ok());
  for (std::thread& reader : readers) reader.join();
  for (const std::uint64_t each : read) EXPECT_EQ(each, kReadRecords);
}

INSTANTIATE_TEST_SUITE_P(Over, Devices, testing::Values(Transport::Tcp, Transport::Shm),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace perdure::server
