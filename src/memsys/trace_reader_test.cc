// Traces: every format, every refusal with its line, and nothing read twice or kept.
#include <gtest/gtest.h>

#include "memsys/trace.h"
#include "memsys/trace_streams.h"

namespace perdure::memsys {
namespace {

constexpr TraceLimits kLimits{1 << 20, 64};

std::string word(const TraceEvent& e, const TraceSummary& summary) {
  const char kinds[] = {'R', 'W', 'B', 'F', 'S'};
  std::string text =
      to_string(summary.threads[e.thread].name) + " " + kinds[static_cast<std::size_t>(e.kind)];
  if (e.kind <= EventKind::Write) text += " " + std::to_string(e.line);
  if (e.cycle > 0) text += " @" + std::to_string(e.cycle);
  return text;
}

struct Reading {
  Result<TraceSummary> summary;
  std::vector<std::string> events;
};

Reading read(const std::string& text, TraceFormat format = TraceFormat::Auto) {
  const auto bytes = trace_of(text);
  TraceReader reader(*bytes, "t", kLimits);
  Reading reading{reader.survey(format), {}};
  if (!reading.summary.ok()) return reading;
  TraceEvent event;
  while (reader.next(event)) {
    EXPECT_EQ(event.index, reading.events.size());
    reading.events.push_back(word(event, *reading.summary));
  }
  EXPECT_TRUE(reader.outcome().ok());
  return reading;
}

using Events = std::vector<std::string>;

TEST(TraceReader, ReadsItsOwnFormat) {
  const Reading r = read(
      "# a comment\n\nR 0x40\nT1 W 128 500\n X1 W 0x80 # after\nT1 B\nB\r\nT1 F\nX1 S\nT1 R 63");
  ASSERT_TRUE(r.summary.ok()) << r.summary.error().message;
  EXPECT_EQ(r.summary->format, TraceFormat::Perdure);
  EXPECT_EQ(r.events,
            (Events{"T0 R 1", "T1 W 2 @500", "X1 W 2", "T1 B", "T0 B", "T1 F", "X1 S", "T1 R 0"}));
  EXPECT_EQ(r.summary->writes, 2U);
  EXPECT_EQ(r.summary->threads[1].events, 4U);
}

TEST(TraceReader, KnowsTheFormatsOfOthersByTheirFirstLine) {
  const Reading dramsim = read("0x40 READ 10\n0x80 WRITE 20\n");
  ASSERT_TRUE(dramsim.summary.ok());
  EXPECT_EQ(dramsim.summary->format, TraceFormat::Dramsim3);
  EXPECT_EQ(dramsim.events, (Events{"T0 R 1 @10", "T0 W 2 @20"}));

  const Reading ramulator = read("LD 0x40\nST 128\n");
  ASSERT_TRUE(ramulator.summary.ok());
  EXPECT_EQ(ramulator.summary->format, TraceFormat::Ramulator);
  EXPECT_EQ(ramulator.events, (Events{"T0 R 1", "T0 W 2"}));

  const Reading whisper = read(
      "7:100:PM_W:0x40:8:f:1\n7:101:PM_L:0x40:130:f:2\n7:102:PM_N:0:0:f:3\n"
      "7:103:PM_I:0x100:8:f:4\n7:104:PM_XE:0:0:f:5\n");
  ASSERT_TRUE(whisper.summary.ok()) << whisper.summary.error().message;
  EXPECT_EQ(whisper.summary->format, TraceFormat::Whisper);
  EXPECT_EQ(whisper.events, (Events{"T7 W 1", "T7 W 2", "T7 W 3", "T7 B", "T7 W 4", "T7 F"}));
}

TEST(TraceReader, RefusesWhatItDoesNotUnderstandWithTheLine) {
  //          text                                   line  what is said
  const std::tuple<std::string, int, std::string> cases[] = {
      {"R 0\nR\n", 2, "cut short"},
      {"R 0\nT1\n", 2, "cut short"},
      {"R 0\nT1 W\n", 2, "cut short"},
      {"T W 0\n", 1, "thread"},
      {"T0 R 0x40\nT R 0x40\n" + std::string(200, '#') + "\n", 2, "thread"},
      {"T5000 W 0\n", 1, "limit of 4095"},
      {"Q 0\n", 1, "'Q'"},
      {"RW 0\n", 1, "'RW'"},
      {"R 0x\n", 1, "address"},
      {"R 12z\n", 1, "address"},
      {"R -1\n", 1, "address"},
      {"R 0x11111111111111111\n", 1, "address"},
      {"R 99999999999999999999\n", 1, "address"},
      {"R 0x4000000\n", 1, "beyond the device"},
      {"R 0\n\nR 64 x\n", 3, "cycle"},
      {"R 0 1 2\n", 1, "too much"},
      {"B 1\n", 1, "too much"},
      {"R 0 9999999999999999999\n", 1, "cycle"},
      {"0x40 READ 1\n0x40 READ\n", 2, "cut short"},
      {"0x40 READ 1\n0x40 FETCH 1\n", 2, "FETCH"},
      {"LD 0\nST\n", 2, "cut short"},
      {"LD 0\nR2 0\n", 2, "neither LD nor ST"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_Q:0:0:f:1\n", 2, "PM_Q"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0\n", 2, "bytes"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_W:0x0\n", 2, "bytes"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_DW:x:8:f:1\n", 2, "address"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0:67108865:f:1\n", 2, "longer than the device"},
      {"4294967296:2:PM_L:0x0:64:f:1\n", 1, "no number of a thread"},
      {std::string(70000, 'R'), 1, ""},
      {"R 0\n" + std::string(300000, ' '), 2, "more than"},
  };
  for (const auto& [text, line, what] : cases) {
    const Reading r = read(text);
    ASSERT_FALSE(r.summary.ok()) << text.substr(0, 80);
    EXPECT_EQ(r.summary.code(), ErrorCode::InvalidArgument);
    const std::string& message = r.summary.error().message;
    EXPECT_EQ(message.rfind("t:" + std::to_string(line) + ":", 0), 0U) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
  }
}

TEST(TraceReader, ARangeOfWhisperGoesOnAtTheBeginOfTheDevice) {
  // The device has 2^20 lines of 64 bytes; the third line of the range is its first one.
  const Reading r = read("5:100:PM_L:0x103ffff80:200:f:1\n");
  ASSERT_TRUE(r.summary.ok()) << r.summary.error().message;
  EXPECT_EQ(r.events, (Events{"T5 W 1048574", "T5 W 1048575", "T5 W 0", "T5 W 1"}));
  // All of it, and no more.
  EXPECT_EQ(read("5:100:PM_L:0x0:67108864:f:1\n").summary->writes, std::uint64_t{1} << 20);
}

TEST(TraceReader, ThreadsOfWhisperAreAsManyAsHaveDifferentNumbers) {
  const Reading r = read("5000:1:PM_L:0x0:8:f:1\n904:2:PM_L:0x40:8:f:1\n5000:3:PM_N:0:0:f:1\n");
  ASSERT_TRUE(r.summary.ok()) << r.summary.error().message;
  EXPECT_EQ(r.events, (Events{"T5000 W 0", "T904 W 1", "T5000 B"}));
  std::string many;
  for (int tid = 0; tid <= 4095; ++tid) many += std::to_string(7000 + tid) + ":1:PM_L:0:8:f:1\n";
  EXPECT_EQ(read(many).summary->threads.size(), 4096U);
  const Reading more = read(many + "1:1:PM_L:0:8:f:1\n");
  ASSERT_FALSE(more.summary.ok());
  EXPECT_NE(more.summary.error().message.find("more than 4096 threads"), std::string::npos);
}

TEST(TraceReader, AnEmptyTraceHasNoEvents) {
  for (const char* text : {"", "\n\n", "# nothing\n"}) {
    const Reading r = read(text);
    ASSERT_TRUE(r.summary.ok());
    EXPECT_TRUE(r.events.empty());
  }
}

TEST(TraceReader, SaysThatTheLastLineMayBeCut) {
  for (const char* whole : {"", "R 0x40\n", "R 0x40\nW 64\n", "R 0x40\n# nothing\n"}) {
    const Reading r = read(whole);
    ASSERT_TRUE(r.summary.ok());
    EXPECT_FALSE(r.summary->last_line_open) << whole;
  }
  for (const char* open : {"R 0x40", "R 0x40\nW 6", "R 0x40\n\nW 64 1"}) {
    const Reading r = read(open);
    ASSERT_TRUE(r.summary.ok());
    EXPECT_TRUE(r.summary->last_line_open) << open;
  }
}

TEST(TraceReader, LinesMayLieAcrossBlocks) {
  std::string text;
  Events wanted;
  for (int i = 0; i < 60000; ++i) {
    text += "T" + std::to_string(i % 7) + " W " + std::to_string(i * 64) + "\n";
    wanted.push_back("T" + std::to_string(i % 7) + " W " + std::to_string(i));
  }
  EXPECT_EQ(read(text).events, wanted);
}

struct Ignore final : TraceListener {
  void on_read(const TraceEvent& /*event*/) override { ++count; }
  std::uint64_t count = 0;
};

TEST(TraceStreams, EachThreadHasItsOwnOrderAndMemoryIsBounded) {
  std::string text;
  for (int t = 0; t < 2; ++t) {
    for (int i = 0; i < 1000; ++i)
      text += "T" + std::to_string(t) + " W " + std::to_string(i * 64) + "\n";
  }
  const auto bytes = trace_of(text);
  TraceReader reader(*bytes, "t", kLimits);
  auto summary = reader.survey(TraceFormat::Auto);
  ASSERT_TRUE(summary.ok());
  Ignore ignore;
  TraceStreams streams(reader, *summary, ignore, 100);
  // T1's first event is behind a thousand of T0's: more than may be held.
  EXPECT_EQ(streams.peek(1), nullptr);
  EXPECT_TRUE(streams.lookahead_reached());
  EXPECT_EQ(ignore.count, 100U);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ASSERT_NE(streams.peek(0), nullptr);
    EXPECT_EQ(streams.peek(0)->line, i);
    streams.pop(0);
  }
  EXPECT_EQ(streams.peek(0), nullptr);
  EXPECT_EQ(streams.left(0), 0U);
  ASSERT_NE(streams.peek(1), nullptr);
  EXPECT_EQ(streams.peek(1, 5)->line, 5U);
  EXPECT_EQ(streams.writes_left(1), 1000U);
}

}  // namespace
}  // namespace perdure::memsys
