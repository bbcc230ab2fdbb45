// The log's format and scan: whatever bytes are there, only whole records in order come back.
#include "log/log_format.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "log/log_report.h"
#include "log/log_scan.h"

namespace perdure::log {
namespace {

/// Builds a pool with a log in it, record by record, without the writer.
class LogImage {
 public:
  explicit LogImage(std::uint64_t ring = kRingBytesMin, LogShape shape = LogShape::Singleton)
      : bytes_(kRingAt + ring) {
    anchor_.ring_bytes = ring;
    anchor_.shape = shape;
    anchor_.log_id = 42;
    anchor_.seed = seed;
    encode_anchor(anchor_, std::span<std::byte, kAnchorBytes>(bytes_.data(), kAnchorBytes));
    state.anchor = anchor_;
    state.epoch = Epoch{1};
    state.configuration = {1, 1, {Member{}}};
    write_state();
  }

  /// As the replica says it: both copies.
  void write_state() {
    ++generation_;
    for (std::size_t copy = 0; copy < kStateCopies; ++copy) {
      const StateBytes page = encode_state(state, generation_);
      std::copy(page.begin(), page.end(), bytes_.begin() + kStateAt + copy * kStateEvery);
    }
  }
  /// A writer of the next epoch begins here.
  void begin_epoch() {
    ++epoch.value;
    state.epoch = epoch;
    state.begin = tail;
    write_state();
  }

  Lsn add(const std::string& text, RecordType type = RecordType::Data) {
    const Lsn at = tail;
    RecordHeader header;
    header.type = type;
    header.payload_bytes = static_cast<std::uint32_t>(text.size());
    header.lsn = tail;
    header.index = index;
    header.epoch = epoch;
    header.previous_crc = previous;
    header.committed = committed;
    std::byte* to = bytes_.data() + kRingAt + tail.value % anchor_.ring_bytes;
    const auto payload = std::as_bytes(std::span(text));
    previous =
        encode_record(header, seed, type == RecordType::Pad ? payload.first(0) : payload, to);
    tail = next_place(Lsn{tail.value + record_bytes(text.size())}, anchor_.ring_bytes);
    if (type == RecordType::Data) ++index;
    return at;
  }

  std::byte& at(Lsn lsn, std::uint64_t offset) {
    return bytes_[kRingAt + lsn.value % anchor_.ring_bytes + offset];
  }
  void set_tail_word(Lsn lsn) { store(bytes_.data() + kTailWordAt, encode_word(lsn)); }

  ScanReport scan() {
    LocalBytes local(bytes_);
    auto report = scan_log(local);
    EXPECT_TRUE(report.ok());
    return *report;
  }
  std::vector<std::byte>& bytes() { return bytes_; }

  Lsn tail = kFirstLsn;
  Epoch epoch{1};
  std::uint64_t index = 0;
  std::uint32_t previous = 0;
  std::uint32_t seed = 0x12345678;  // the log's; another makes records that are none of its
  Lsn committed;
  LogState state;

 private:
  Anchor anchor_;
  std::uint64_t generation_ = 0;
  std::vector<std::byte> bytes_;
};

/// Reads fail once `left` bytes were read.
class ShortOfTime final : public ByteSource {
 public:
  explicit ShortOfTime(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Result<void> read(std::uint64_t at, std::span<std::byte> to) override {
    if (to.size() > left) return Error{ErrorCode::TimedOut, "there is no time left"};
    left -= to.size();
    all += to.size();
    return bytes_.read(at, to);
  }
  std::uint64_t left = 0;
  std::uint64_t all = 0;

 private:
  LocalBytes bytes_;
};

TEST(LogFormat, AWordReadsBackAndAnyFlippedBitIsSeen) {
  for (const std::uint64_t lsn : {std::uint64_t{64}, std::uint64_t{123456}, kLsnMax - 7}) {
    const std::uint64_t word = encode_word(Lsn{lsn});
    EXPECT_EQ((**decode_word(word)).value, lsn);
    for (int bit = 0; bit < 64; ++bit) {
      EXPECT_FALSE(decode_word(word ^ std::uint64_t{1} << bit).ok()) << lsn << " bit " << bit;
    }
  }
  EXPECT_FALSE((*decode_word(0)).has_value());
}

TEST(LogFormat, AnAnchorReadsBackAndAnyFlippedBitIsSeen) {
  Anchor anchor{LogShape::Compound, kRingBytesMin, 7, 11};
  std::array<std::byte, kAnchorBytes> bytes;
  encode_anchor(anchor, bytes);
  EXPECT_EQ(**decode_anchor(bytes, kRingAt + kRingBytesMin), anchor);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_anchor(flipped, kRingAt + kRingBytesMin).ok()) << "bit " << bit;
  }
}

TEST(LogFormat, ARingThatExceedsItsPoolIsCorrupt) {
  Anchor anchor{LogShape::Singleton, 2 * kRingBytesMin, 7, 11};
  std::array<std::byte, kAnchorBytes> bytes;
  encode_anchor(anchor, bytes);
  EXPECT_EQ(decode_anchor(bytes, kRingAt + kRingBytesMin).code(), ErrorCode::Corrupt);
}

TEST(LogScan, ARecordWithTheChecksumOfAnotherLogEndsIt) {
  LogImage image;
  image.add("of this log");
  image.seed ^= 1;
  image.add("of another");
  const ScanReport report = image.scan();
  EXPECT_EQ(report.records, 1u);
  EXPECT_EQ(report.end, LogEnd::Torn);
}

TEST(LogScan, AnEmptyPoolHoldsNoLog) {
  const std::vector<std::byte> zeros(kRingAt + kRingBytesMin);
  LocalBytes bytes(zeros);
  EXPECT_EQ(scan_log(bytes).code(), ErrorCode::NotFound);
}

TEST(LogScan, AFreshLogIsEmptyAndClean) {
  LogImage image;
  const ScanReport report = image.scan();
  EXPECT_EQ(report.tail, kFirstLsn);
  EXPECT_EQ(report.records, 0u);
  EXPECT_EQ(report.end, LogEnd::Clean);
}

TEST(LogScan, RecordsComeBackInOrder) {
  LogImage image;
  image.add("one");
  image.add("two");
  LocalBytes bytes(image.bytes());
  std::vector<std::string> read;
  const auto report = scan_log(bytes, [&](const RecordView& record) {
    read.emplace_back(reinterpret_cast<const char*>(record.payload.data()), record.payload.size());
  });
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(read, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(report->tail, image.tail);
}

constexpr std::uint64_t kLongRing = 8 << 20;  // many of the windows that are read at a time
constexpr Lsn kAll{kLsnMax};

LogImage long_image(int records) {
  LogImage image(kLongRing);
  for (int i = 0; i < records; ++i) image.add(std::string(200, static_cast<char>('a' + i % 26)));
  return image;
}

// A replica that takes longer to read than whoever brings it back has time is read all the same.
TEST(LogScan, GoesOnWhereItWasGivenUp) {
  LogImage image = long_image(25'000);
  const ScanReport whole = image.scan();
  ShortOfTime once(image.bytes());
  once.left = 100 * kLongRing;
  std::optional<ScanSoFar> in_one;
  ASSERT_TRUE(scan_log_on(once, in_one, image.tail).ok());
  ShortOfTime bytes(image.bytes());
  std::optional<ScanSoFar> so_far;
  Result<ScanReport> report = Error{};
  int calls = 0;
  for (; calls < 100 && !report.ok(); ++calls) {
    bytes.left = once.all / 4;
    report = scan_log_on(bytes, so_far, image.tail);
    ASSERT_TRUE(report.ok() || report.code() == ErrorCode::TimedOut);
  }
  ASSERT_TRUE(report.ok());
  EXPECT_GT(calls, 4);
  EXPECT_LT(bytes.all, 3 * once.all) << "what one call has read the next one does not read again";
  EXPECT_EQ(report->boundary(), whole.boundary());
  EXPECT_EQ(report->records, whole.records);
  EXPECT_EQ(report->payload_bytes, whole.payload_bytes);
  EXPECT_EQ(report->extent, whole.extent);
  EXPECT_EQ(report->end, whole.end);
}

TEST(LogScan, WhatWasAddedSinceTheLastCallIsReadAndNothingElse) {
  LogImage image = long_image(15'000);
  ShortOfTime bytes(image.bytes());
  bytes.left = 100 * kLongRing;
  std::optional<ScanSoFar> so_far;
  ASSERT_TRUE(scan_log_on(bytes, so_far, kAll).ok());
  const std::uint64_t first = std::exchange(bytes.all, 0);
  image.add("one more");
  const auto report = scan_log_on(bytes, so_far, kAll);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->boundary(), image.scan().boundary());
  EXPECT_EQ(report->records, 15'001U);
  EXPECT_LT(bytes.all, first);
}

// One page has the end of the longest record and the header of the longest pad.
TEST(LogScan, WhatIsBehindALostRecordAndALostPadIsFound) {
  constexpr std::uint64_t kRing = 4 * (kPayloadBytesMax + kRecordHeaderBytes);
  constexpr std::uint64_t kPad = kPayloadBytesMax;
  LogImage image(kRing);
  image.tail = Lsn{kRing - kPad - record_bytes(kPayloadBytesMax)};
  image.state.head.lsn = image.state.begin = image.tail;
  image.write_state();
  image.committed = image.tail;
  const Lsn longest = image.add(std::string(kPayloadBytesMax, 'l'));
  const Lsn end = image.tail;
  image.add(std::string(kPad - kRecordHeaderBytes, 'p'), RecordType::Pad);
  ASSERT_EQ(image.tail.value, kRing);
  image.committed = end;
  image.add("says that the longest one was committed");
  EXPECT_EQ(image.scan().next_index, 2u);
  for (std::uint64_t at = 0; at < 64; ++at) image.at(Lsn{end.value - 32}, at) = std::byte{0};
  const ScanReport report = image.scan();
  EXPECT_EQ(report.tail, longest);
  EXPECT_EQ(report.records_after_hole, 1u);
  EXPECT_TRUE(report.damaged());
}

TEST(LogScan, LooksBehindTheEndAsFarAsTheCallersLogGoes) {
  LogImage image = long_image(1000);
  const Lsn end = image.tail;
  for (const Lsn until : {end, kAll}) {
    ShortOfTime bytes(image.bytes());
    bytes.left = 100 * kLongRing;
    std::optional<ScanSoFar> so_far;
    ASSERT_TRUE(scan_log_on(bytes, so_far, until).ok());
    EXPECT_EQ(bytes.all < 2 * kLongRing / 4, until == end) << bytes.all;
  }
  // Expect: a hole before the end of the caller's log is seen for what it is.
  image.committed = end;
  const Lsn hole = image.add("is lost");
  const Lsn behind = image.add("is whole");
  image.at(hole, kRecordHeaderBytes) ^= std::byte{1};
  ShortOfTime bytes(image.bytes());
  bytes.left = 100 * kLongRing;
  std::optional<ScanSoFar> so_far;
  const auto report = scan_log_on(bytes, so_far, image.tail);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->tail, hole);
  EXPECT_EQ(report->records_after_hole, 1U) << behind.value;
}

// Between two calls somebody puts an older copy of the pool, or one of another state, in its place.
TEST(LogScan, IsReadAnewWhereItIsNotWhatItWas) {
  const std::vector<std::byte> older = long_image(500).bytes();
  for (const int given_up_at : {4, 2}) {
    LogImage image = long_image(25'000);
    ShortOfTime bytes(image.bytes());
    bytes.left = image.bytes().size() / static_cast<std::uint64_t>(given_up_at);
    std::optional<ScanSoFar> so_far;
    ASSERT_FALSE(scan_log_on(bytes, so_far, kAll).ok());
    ASSERT_GT(so_far->report.records, 500U);
    std::copy(older.begin(), older.end(), image.bytes().begin());
    bytes.left = 100 * kLongRing;
    const auto report = scan_log_on(bytes, so_far, kAll);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->boundary(), image.scan().boundary());
    EXPECT_EQ(report->records, 500U);
  }
  LogImage image = long_image(25'000);
  ShortOfTime bytes(image.bytes());
  bytes.left = image.bytes().size() / 2;
  std::optional<ScanSoFar> so_far;
  ASSERT_FALSE(scan_log_on(bytes, so_far, kAll).ok());
  const Lsn cut = so_far->again_from.lsn;
  image.state.begin = Lsn{cut.value / 2};  // everything from there on is of another epoch now
  image.state.epoch = Epoch{2};
  image.write_state();
  bytes.left = 100 * kLongRing;
  const auto report = scan_log_on(bytes, so_far, kAll);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->boundary(), image.scan().boundary());
  EXPECT_LT(report->tail, cut);
}

TEST(LogScan, AnyFlippedBitOfARecordEndsTheLogThere) {
  LogImage image;
  image.add("first");
  const Lsn second = image.add("second");
  image.add("third");
  for (std::uint64_t bit = 0; bit < 8 * (kRecordHeaderBytes + 6); ++bit) {
    image.at(second, bit / 8) ^= std::byte{1} << (bit % 8);
    const ScanReport report = image.scan();
    EXPECT_EQ(report.tail, second) << "bit " << bit;
    EXPECT_EQ(report.records, 1u);
    EXPECT_EQ(report.records_after_hole, 1u) << "the third is there, and does not count";
    EXPECT_EQ(report.index_after_hole, 3u);
    image.at(second, bit / 8) ^= std::byte{1} << (bit % 8);
  }
  EXPECT_EQ(image.scan().records, 3u);
}

TEST(LogScan, ATornRecordIsToldFromACleanEnd) {
  LogImage image;
  const Lsn torn = image.add("a record of which the end is missing");
  image.at(torn, kRecordHeaderBytes + 20) = std::byte{0};
  EXPECT_EQ(image.scan().end, LogEnd::Torn);
}

TEST(LogScan, WhatAnOlderEpochLeftBehindIsNotARecord) {
  // Writer 1 leaves a whole record after a hole; writer 2 fills the hole exactly.
  LogImage old;
  old.epoch = Epoch{1};
  old.add("same");
  old.add("size");
  old.add("left");
  LogImage image;
  image.epoch = Epoch{1};
  image.add("same");
  image.begin_epoch();
  image.add("SIZE");
  std::copy_n(&old.at(image.tail, 0), record_bytes(4), &image.at(image.tail, 0));
  const ScanReport report = image.scan();
  EXPECT_EQ(report.records, 2u);
  EXPECT_EQ(report.end, LogEnd::ChainBroken);
}

TEST(LogScan, WhatFollowsTheChainButIsOfAnOlderEpochThanBeganThereIsNotARecord) {
  LogImage image;
  image.add("kept");
  const Lsn begin = image.tail;
  image.add("never committed");
  // The next writer took a shorter history: nothing was erased.
  image.tail = begin;
  image.begin_epoch();
  const ScanReport report = image.scan();
  EXPECT_EQ(report.records, 1u);
  EXPECT_EQ(report.tail, begin);
  EXPECT_FALSE(report.damaged()) << "what is behind was never acknowledged";
}

TEST(LogScan, AnEmptyLogKeepsWhoItIs) {
  LogImage image;
  image.add("trimmed");
  image.state.head = {image.tail, image.index, image.epoch, image.previous};
  image.write_state();
  const ScanReport empty = image.scan();
  EXPECT_EQ(empty.records, 0u);
  EXPECT_EQ(empty.tail, image.tail);
  EXPECT_EQ(empty.next_index, 1u);
  EXPECT_EQ(empty.last_crc, image.previous);
  EXPECT_EQ(empty.last_epoch, image.epoch);
  image.previous ^= 1;  // a record of another history at the same place
  image.add("foreign");
  EXPECT_EQ(image.scan().records, 0u);
}

TEST(LogScan, RecordsBehindAHoleProveDamageOnlyByWhatTheySayWasCommitted) {
  LogImage image;
  image.add("first");
  const Lsn hole = image.add("second");
  const Lsn third = image.add("third");
  image.at(hole, kRecordHeaderBytes) ^= std::byte{1};
  EXPECT_FALSE(image.scan().damaged()) << "writes in flight arrive in any order";
  image.committed = third;  // as of a fourth record: the second one was committed
  image.add("fourth");
  const ScanReport report = image.scan();
  EXPECT_TRUE(report.damaged());
  EXPECT_EQ(report.extent, image.tail);
  EXPECT_EQ(report.claimed, third);
}

TEST(LogScan, BehindDamageThatIsProvedEveryWholeRecordCounts) {
  LogImage image;
  const Lsn first = image.add("first");
  const Lsn second = image.add("second");  // sent before it was known that the first is committed
  store(image.bytes().data() + kCommittedWordAt, encode_word(second));
  image.at(first, kRecordHeaderBytes) ^= std::byte{1};
  const ScanReport report = image.scan();
  EXPECT_EQ(report.tail, first);
  EXPECT_EQ(report.extent, image.tail) << "the second one may have been acknowledged as well";
}

TEST(LogScan, TheCommittedWordProvesDamageOfTheLastRecord) {
  LogImage image;
  const Lsn last = image.add("last");
  store(image.bytes().data() + kCommittedWordAt, encode_word(image.tail));
  EXPECT_FALSE(image.scan().damaged());
  image.at(last, kRecordHeaderBytes) ^= std::byte{1};
  EXPECT_TRUE(image.scan().damaged());
}

TEST(LogScan, AnyFlippedBitOfOneCopyOfTheStateChangesNothing) {
  LogImage image;
  image.add("kept");
  for (std::size_t copy = 0; copy < kStateCopies; ++copy) {
    for (std::size_t bit = 0; bit < 8 * kStateBytes; bit += 7) {
      std::byte& flipped = image.bytes()[kStateAt + copy * kStateEvery + bit / 8];
      flipped ^= std::byte{1} << (bit % 8);
      const ScanReport report = image.scan();
      EXPECT_EQ(report.records, 1u) << "copy " << copy << " bit " << bit;
      EXPECT_EQ(report.start.state(), image.state);
      flipped ^= std::byte{1} << (bit % 8);
    }
  }
}

/// A writer writes a state, one copy after the other, and each of them is read when half of it is
/// there.
class BeingWritten final : public ByteSource {
 public:
  BeingWritten(std::span<std::byte> bytes, const StateBytes& next) : bytes_(bytes), next_(next) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Result<void> read(std::uint64_t at, std::span<std::byte> to) override {
    const bool copy = at >= kStateAt && at < kStateAt + kStateCopies * kStateEvery;
    const auto place = bytes_.subspan(at, to.size());
    if (copy) std::copy_n(next_.begin(), kStateBytes / 2, place.begin());
    std::copy(place.begin(), place.end(), to.begin());
    if (copy) std::copy(next_.begin(), next_.end(), place.begin());
    return {};
  }

 private:
  std::span<std::byte> bytes_;
  const StateBytes next_;
};

TEST(LogScan, AStateThatIsReadWhileItIsWrittenIsNotDamaged) {
  LogImage image;
  image.add("kept");
  LogState next = image.state;
  next.epoch = Epoch{2};
  next.begin = image.tail;
  BeingWritten bytes(image.bytes(), encode_state(next, 100));
  const auto start = read_start(bytes);
  ASSERT_TRUE(start.ok()) << start.error().message;
  EXPECT_EQ(start->state(), next);
}

TEST(LogScan, ADamagedTailWordOfALogWithoutOneIsNothing) {
  LogImage image;
  image.add("kept");
  store(image.bytes().data() + kTailWordAt, std::uint64_t{12345});
  EXPECT_EQ(image.scan().records, 1u);
  EXPECT_FALSE(image.scan().damaged());
}

TEST(LogScan, ADamagedAnchorIsReadFromTheState) {
  LogImage image;
  image.add("kept");
  image.bytes()[20] ^= std::byte{1};
  const ScanReport report = image.scan();
  EXPECT_EQ(report.records, 1u);
  EXPECT_TRUE(report.start.anchor_damaged);
}

TEST(LogScan, AnOlderFormatIsRefusedWithAdvice) {
  LogImage image;
  store(image.bytes().data() + 8, std::uint32_t{1});
  store(image.bytes().data() + 60, crc32c(std::span(image.bytes()).first(60)));
  LocalBytes bytes(image.bytes());
  const auto report = scan_log(bytes);
  ASSERT_EQ(report.code(), ErrorCode::VersionMismatch);
  EXPECT_NE(report.error().message.find("log read"), std::string::npos);
}

// Its anchor is missing or damaged. Expect: that is not damage that a repair takes away, and no
// pool in which a log may begin.
TEST(LogScan, AStateOfAnotherFormatIsNoDamage) {
  LogImage image;
  image.add("kept");
  for (const std::uint64_t at : {kStateAt, kStateAt + kStateEvery}) {
    store(image.bytes().data() + at + 8, std::uint32_t{2});
    const auto state = std::span(image.bytes()).subspan(at, kStateBytes - 4);
    store(image.bytes().data() + at + kStateBytes - 4, crc32c(state));
  }
  const std::uint64_t second = kStateAt + kStateEvery;
  for (const bool second_was_written : {true, false}) {
    if (!second_was_written) {
      std::fill_n(image.bytes().begin() + static_cast<std::ptrdiff_t>(second), kStateBytes,
                  std::byte{0});
    }
    for (const bool damaged : {true, false}) {
      for (std::size_t byte = 0; byte < kAnchorBytes; ++byte) {
        image.bytes()[byte] = std::byte{damaged ? std::uint8_t{7} : std::uint8_t{0}};
      }
      LocalBytes bytes(image.bytes());
      EXPECT_EQ(scan_log(bytes).code(), ErrorCode::VersionMismatch)
          << second_was_written << damaged;
    }
  }
}

TEST(LogScan, ATailWordBeyondTheRecordsIsDamage) {
  LogImage image(kRingBytesMin, LogShape::Compound);
  image.add("kept");
  const Lsn lost = image.add("lost");
  image.set_tail_word(image.tail);
  EXPECT_FALSE(image.scan().damaged());
  image.at(lost, kRecordHeaderBytes + 1) ^= std::byte{1};
  EXPECT_TRUE(image.scan().damaged());
}

TEST(LogScan, RandomBytesNeverGiveARecordAndNeverFail) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    LogImage image;
    for (std::size_t at = kRingAt; at < image.bytes().size(); at += 8) {
      store(image.bytes().data() + at, random.next());
    }
    EXPECT_EQ(image.scan().records, 0u);
  }
}

TEST(LogCursor, FollowsAWriterAndLooksAgainAfterATornRecord) {
  LogImage image;
  const Lsn first = image.add("first");
  image.at(first, kRecordHeaderBytes) ^= std::byte{1};  // still in flight
  LocalBytes bytes(image.bytes());
  const auto start = read_start(bytes);
  LogCursor cursor(bytes, start->state(), start->head);
  EXPECT_FALSE((*cursor.next()).has_value());
  image.at(first, kRecordHeaderBytes) ^= std::byte{1};  // now it has arrived
  EXPECT_TRUE((*cursor.next()).has_value());
  EXPECT_FALSE((*cursor.next()).has_value());
  image.add("second");
  EXPECT_TRUE((*cursor.next()).has_value());
}

TEST(LogReport, TellsWhatTheFirstPagesSay) {
  const auto report_of_bytes = [](std::vector<std::byte>& bytes) {
    LocalBytes source(bytes);
    return report_log(source);
  };
  LogImage image(kRingBytesMin, LogShape::Compound);
  image.state.configuration = {3, 2, {}};
  for (const int pool : {1, 2, 3}) {
    image.state.configuration.members.push_back({});
    image.state.configuration.members.back().pool.bytes[0] = std::byte(pool);
  }
  image.add("one");
  const Lsn second = image.tail;
  image.begin_epoch();
  image.add("two");
  image.set_tail_word(image.tail);
  store(image.bytes().data() + kCommittedWordAt, encode_word(second));
  const auto found = report_of_bytes(image.bytes());
  ASSERT_TRUE(found.ok());
  ASSERT_TRUE(found->has_value());
  const control::LogReport& log = **found;
  EXPECT_EQ(log.log_id, 42u);
  EXPECT_EQ(log.epoch, Epoch{2});
  EXPECT_EQ(log.head, kFirstLsn);
  EXPECT_EQ(log.committed, second);
  EXPECT_EQ(log.tail, image.tail);
  EXPECT_EQ(log.ring_bytes, kRingBytesMin);
  EXPECT_EQ(log.replicas, 3u);
  EXPECT_EQ(log.quorum, 2u);
  EXPECT_TRUE(log.whole);

  // Being brought to equal, its epoch began where its records may not yet be.
  store(image.bytes().data() + kTailWordAt, std::uint64_t{0});
  EXPECT_EQ((*report_of_bytes(image.bytes()))->tail, second) << "the epoch's begin is known of";
  image.state.begin = Lsn{second.value + 800};
  image.state.marks.incomplete = true;
  image.write_state();
  EXPECT_EQ((*report_of_bytes(image.bytes()))->tail, second);
  EXPECT_FALSE((*report_of_bytes(image.bytes()))->whole);
  EXPECT_FALSE((*report_of_bytes(image.bytes()))->removed);
  image.state.marks.removed = true;
  image.write_state();
  EXPECT_TRUE((*report_of_bytes(image.bytes()))->removed);

  // Torn under our eyes: it can not be told now, which is not the same as that there is none.
  image.bytes()[kStateAt] ^= std::byte{1};
  image.bytes()[kStateAt + kStateEvery] ^= std::byte{1};
  EXPECT_EQ(report_of_bytes(image.bytes()).code(), ErrorCode::Corrupt);
  std::vector<std::byte> zeros(kLogBytesMin);
  EXPECT_EQ(report_of_bytes(zeros).value(), std::nullopt);
  std::vector<std::byte> small(4096, std::byte{7});
  EXPECT_EQ(report_of_bytes(small).value(), std::nullopt);
}

}  // namespace
}  // namespace perdure::log
