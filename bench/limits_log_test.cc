// The log whose limits are measured gets the records that its options say.
#include "bench/limits_log.h"

#include "bench/bare.h"
#include "core/bytes.h"
#include "testing/peer_process.h"
#include "testing/temporary_directory.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace perdure::bench {
namespace {

constexpr std::uint64_t kRecordBytes = 4096;
constexpr std::uint64_t kRecords = 12;
constexpr std::size_t kWindow = 4;

/// What a log holds that was appended to so.
std::vector<std::string> appended(bool in_place, std::size_t sources) {
  const test::TestDirectory place{"/dev/shm"};
  test::PeerProcessOptions daemon;
  daemon.program = PERDURED;
  daemon.directory = place.path();
  daemon.declared = PersistenceDomain::Dmp;
  daemon.transports = {"shm"};
  auto peer = test::PeerProcess::start(daemon);
  if (!peer.ok()) throw std::runtime_error(peer.error().message);
  LogUnderTestOptions options;
  options.peer = peer->address();
  options.transport = "shm";
  options.pool = "records";
  options.record_bytes = kRecordBytes;
  options.in_place = in_place;
  options.sources = sources;
  auto log = LogUnderTest::open(options);
  if (!log.ok()) throw std::runtime_error(log.error().message);
  auto reader = log->log().reader();
  if (!reader.ok()) throw std::runtime_error(reader.error().message);
  EXPECT_TRUE(log->windowed(kRecords, kWindow).ok());
  EXPECT_TRUE(log->log().close().ok());
  std::vector<std::string> records;
  while (records.size() < kRecords) {
    const auto record = reader->next();
    if (!record.ok()) throw std::runtime_error(record.error().message);
    if (!*record) break;
    const auto bytes = (*record)->bytes;
    records.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return records;
}

TEST(LogUnderTest, ARecordInPlaceIsWrittenFromItsFirstByteToItsLast) {
  const std::vector<std::string> records = appended(/*in_place=*/true, kWindow);
  ASSERT_EQ(records.size(), kRecords);
  std::set<std::uint64_t> words;
  for (const std::string& record : records) {
    ASSERT_EQ(record.size(), kRecordBytes);
    const auto bytes = std::as_bytes(std::span(record));
    for (std::size_t at = 0; at < record.size(); at += sizeof(std::uint64_t)) {
      words.insert(load<std::uint64_t>(bytes.data() + at));
    }
  }
  EXPECT_EQ(words.size(), kRecords * kRecordBytes / sizeof(std::uint64_t));
}

TEST(LogUnderTest, AsManyDifferentRecordsAreAppendedAsItIsToHave) {
  const std::vector<std::string> records = appended(/*in_place=*/false, kWindow);
  ASSERT_EQ(records.size(), kRecords);
  EXPECT_EQ(std::set<std::string>(records.begin(), records.end()).size(), kWindow);
  for (std::size_t i = kWindow; i < kRecords; ++i) EXPECT_EQ(records[i], records[i - kWindow]);
}

TEST(LogUnderTest, AnEndThatIsNoWholeWordIsWrittenToo) {
  std::array<std::byte, 19> room{};
  produce(room, 0xa5);
  for (std::size_t at = 16; at < room.size(); ++at) EXPECT_EQ(room[at], std::byte{0xa5}) << at;
}

}  // namespace
}  // namespace perdure::bench
