// Traces: every format, every refusal with its line, and nothing read twice or kept.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

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
      "# a comment\n\nR 0x40\nT1 W 128 500\n X1 W 0x80 # after\nT1 B\nB\r\nT1 F\nX1 S\nT1 R 63\n");
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

// As pm_instr.h prints each marker.
TEST(TraceReader, ReadsWhatWhispersMacrosPrint) {
  const Reading r = read(
      "5:1:PM_XS:begin:10\n5:2:PM_R:0x40:8:get:11\n5:3:PM_W:0x80:8:set:12\n"
      "5:4:PM_DW:0x80:8:set:12\n5:5:PM_L:0x80:64:64:flush:13\n5:6:PM_O:0xc0:64:64:flush:13\n"
      "5:7:PM_N:fence:14\n5:8:PM_I:0x100:8:8:copy:15\n5:9:PM_DI:0x140:8:copy:16\n"
      "5:10:PM_B:barrier:17\n5:11:PM_C:commit:18\r\n5:12:PM_XE:end:19\n");
  ASSERT_TRUE(r.summary.ok()) << r.summary.error().message;
  EXPECT_EQ(r.events, (Events{"T5 R 1", "T5 W 2", "T5 W 3", "T5 B", "T5 W 4", "T5 W 5", "T5 B",
                              "T5 F", "T5 F"}));
}

struct Refusal {
  std::string text;
  int line = 0;
  std::string what;  // is said
};

void expect_refused(const std::vector<Refusal>& refusals) {
  for (const auto& [text, line, what] : refusals) {
    const Reading r = read(text);
    ASSERT_FALSE(r.summary.ok()) << text.substr(0, 80);
    EXPECT_EQ(r.summary.code(), ErrorCode::InvalidArgument);
    const std::string& message = r.summary.error().message;
    EXPECT_EQ(message.rfind("t:" + std::to_string(line) + ":", 0), 0U) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
  }
}

TEST(TraceReader, RefusesWhatItDoesNotUnderstandWithTheLine) {
  expect_refused({
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
      {"LD 0\nR 0\n", 2, "neither LD nor ST"},
      {"ST 0\nW 0\n", 2, "neither LD nor ST"},
      // DRAMsim3 would read 0x40, and cycle 0.
      {"0x40 READ 1\n40 READ 1\n", 2, "not 0x"},
      {"40 READ 1\n", 1, "not 0x"},
      {"0x40 READ 0x10\n", 1, "cycle"},
      {"R 0\nT0x1 W 0\n", 2, "thread"},
      {"R 0\r64\n", 1, "address"},
      {"R 0 5\r6\n", 1, "cycle"},
      {"R 0\nB\r\r\n", 2, "'B\r'"},
      {std::string(70000, 'R'), 1, ""},
      {"R 0\n" + std::string(300000, ' '), 2, "more than"},
  });
}

TEST(TraceReader, RefusesWhatWhispersMacrosDoNotPrintWithTheLine) {
  expect_refused({
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_Q:0:0:f:1\n", 2, "PM_Q"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0\n", 2, "cut short"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_W:0x0\n", 2, "cut short"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0:64\n", 2, "cut short"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0:64:f\n", 2, "line of the function"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0:64:f:\n", 2, "line of the function"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_R:0x0:x:f:1\n", 2, "bytes"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_I:0x0:64:x:f:1\n", 2, "asked for"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0:64:64:64:f:1\n", 2, "too much"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_O:0x0\n", 2, "cut short"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_O:f:1\n", 2, "cut short"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_N\n", 2, "cut short"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_B:f\n", 2, "cut short"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_C:f:\n", 2, "cut short"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_XE:f:g\n", 2, "line of the function"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_XS:f:1:2\n", 2, "not a function"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_XS::1\n", 2, "no name"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_N:f:64:g:1\n", 2, "not a function"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_N:0x0:64:64:g:1\n", 2, "not a function"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_DW:x:8:f:1\n", 2, "address"},
      {"1:2:PM_L:0x0:64:f:1\n1 x:2:PM_L:0x0:64:f:1\n", 2, "thread"},
      {"1:2:PM_L:0x0:64:f:1\n0x1:2:PM_L:0x0:64:f:1\n", 2, "thread"},
      {"1:2:PM_L:0x0:64:f:1\n1:2 x:PM_L:0x0:64:f:1\n", 2, "time"},
      {"1:2:PM_L:0x0:64:f:1\n1: 2:PM_L:0x0:64:f:1\n", 2, "time"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L :0x0:64:f:1\n", 2, "'PM_L '"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0 x:64:f:1\n", 2, "address"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0:64 x:f:1\n", 2, "bytes"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0:0x40:f:1\n", 2, "bytes"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0:64:64 x:f:1\n", 2, "asked for"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_R:0x0:64:64:f:1\n", 2, "too much"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_DI:0x0:64:64:f:1\n", 2, "too much"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0:64:f:1 x\n", 2, "line of the function"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0:64:f:1:\n", 2, "line of the function"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_N:f:1:\n", 2, "line of the function"},
      {"1:2:PM_L:0x0:64:f:1\n1:2:PM_L:0x0:67108865:f:1\n", 2, "longer than the device"},
      {"4294967296:2:PM_L:0x0:64:f:1\n", 1, "no number of a thread"},
  });
}

// One blank less than in `slow`, and the reader takes eight digits at once.
TEST(TraceReader, ReadsAddressesAlikeAtOnceAndByDigits) {
  const std::string rest =
      "\n# more than a line may have that is read at once, so that it is read\n";
  const auto alike = [&](const std::string& address) {
    const Reading fast = read("T0 R 0x0\nT0 W 0x" + address + rest + rest, TraceFormat::Perdure);
    const Reading slow = read("T0 R 0x0\nT0 W  0x" + address + rest + rest, TraceFormat::Perdure);
    ASSERT_EQ(fast.summary.ok(), slow.summary.ok()) << address;
    EXPECT_EQ(fast.events, slow.events) << address;
    if (fast.summary.ok()) return;
    EXPECT_EQ(fast.summary.error().message, slow.summary.error().message) << address;
  };
  for (int c = 1; c < 256; ++c) {
    if (c == '\n') continue;
    const auto character = static_cast<char>(c);
    for (const std::string before : {"", "3", "00af", "00000EF", "00000001", "000000000001"}) {
      alike(before + character);
      alike(before + character + "7");
    }
  }
  for (std::size_t digits = 0; digits <= 18; ++digits) {
    alike(std::string(digits, '0'));
    alike(std::string(digits, '0') + "1fFc0");
    alike(std::string(digits, 'f'));
  }
  EXPECT_EQ(read("R 0x0\nR 0x0000000000A9F40" + rest).events, (Events{"T0 R 0", "T0 R 10877"}));
}

TEST(TraceReader, ARangeOfNoBytesIsNoEvent) {
  const Reading r = read("5:1:PM_L:0x40:0:64:f:1\n5:2:PM_I:0x80:8:8:f:2\n5:3:PM_R:0xc0:0:f:3\n");
  ASSERT_TRUE(r.summary.ok()) << r.summary.error().message;
  EXPECT_EQ(r.events, (Events{"T5 W 2"}));
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

TEST(TraceReader, ALastLineWithoutANewlineIsUsedAndTold) {
  for (const char* open : {"R 0x40", "R 0x40\nW 64", "R 0x40\n\nW 64 1", "R 0x40 ", "R 0x40\r",
                           "R 0x40\nT1 F", "R 0x40\nW 64 # end", "0x40 READ 1\n0x80 WRITE 1",
                           "LD 0x40\nST 0x8", "5:100:PM_L:0x40:8:f:1"}) {
    const Reading cut = read(open);
    const Reading whole = read(std::string(open) + "\n");
    ASSERT_TRUE(cut.summary.ok()) << cut.summary.error().message;
    ASSERT_TRUE(whole.summary.ok()) << whole.summary.error().message;
    EXPECT_EQ(cut.events, whole.events) << open;
    EXPECT_TRUE(cut.summary->last_line_open) << open;
    EXPECT_FALSE(whole.summary->last_line_open) << open;
    EXPECT_EQ(cut.summary->text_lines, whole.summary->text_lines) << open;
  }
  EXPECT_FALSE(read("").summary->last_line_open);
  EXPECT_EQ(read("R 0x40\n\nW 64").summary->text_lines, 3U);
}

TEST(TraceReader, ALastLineThatWasCutIsRefused) {
  for (const char* line : {"W", "R 0x", "T", "T1", "X1 R", "0x12", "0x12 REA", "0x12 READ", "LD",
                           "ST 0x", "5:100:PM_L:0x40", "5:100:PM_L:0x40:8:f"}) {
    const Reading r = read(line);
    ASSERT_FALSE(r.summary.ok()) << line;
    EXPECT_EQ(r.summary.code(), ErrorCode::InvalidArgument) << line;
    EXPECT_EQ(r.summary.error().message.substr(0, 4), "t:1:") << line;
  }
}

/// Wherever a trace is cut, it is refused with its last line, or told.
TEST(TraceReader, ATraceCutAtAnyByteIsRefusedOrTold) {
  for (const std::string text :
       {"R 0x40\nT1 W 128 500\nT1 B\nX2 W 0x80 # x\nS\n", "0x40 READ 1\n0x80 WRITE 12\n",
        "LD 0x40\nST 128\n", "5:100:PM_L:0x40:8:f:1\n5:101:PM_I:0x80:64:64:f:2\n"}) {
    const TraceFormat format = read(text).summary->format;
    std::size_t line = 1;
    for (std::size_t bytes = 1; bytes <= text.size(); ++bytes) {
      const std::string cut = text.substr(0, bytes);
      const bool ended = cut.back() == '\n';
      const Reading r = read(cut, format);
      if (r.summary.ok()) {
        EXPECT_EQ(r.summary->last_line_open, !ended) << cut;
        EXPECT_EQ(r.summary->text_lines, line) << cut;
      } else {
        EXPECT_FALSE(ended) << cut;
        EXPECT_EQ(r.summary.error().message.substr(0, 4), "t:" + std::to_string(line) + ":") << cut;
      }
      if (ended) ++line;
    }
  }
}

TEST(TraceReader, WhatIsNoTextIsToldByItsFirstBytes) {
  const auto told = [](const std::string& text) {
    const Reading r = read(text);
    return r.summary.ok() ? "none" : r.summary.error().message;
  };
  EXPECT_NE(told("\x1f\x8b\x08 R 0x40\n").find("zcat"), std::string::npos);
  EXPECT_NE(told("\xef\xbb\xbfR 0x40\n").find("byte order mark"), std::string::npos);
}

/// The reading end of a pipe that holds `text`, as a path.
class Pipe {
 public:
  explicit Pipe(const std::string& text) {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(ends_[1]);
  }
  ~Pipe() { ::close(ends_[0]); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  std::string path() const { return "/dev/fd/" + std::to_string(ends_[0]); }

 private:
  std::array<int, 2> ends_{};
};

TEST(TraceBytes, ThatAreCopiedAreLimitedByLineAndInAll) {
  const std::string text = "W 0x40\nW 0x80\n";
  const auto open = [&](std::uint64_t limit) { return open_trace(Pipe(text).path(), limit); };
  ASSERT_TRUE(open(text.size()).ok());
  const auto more = open(text.size() - 1);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().message.find("write them to a file"), std::string::npos);
  // It has no end.
  const auto zeros = open_trace("/dev/zero");
  ASSERT_FALSE(zeros.ok());
  EXPECT_EQ(zeros.error().message, "/dev/zero:1: a line of more than 65536 bytes");
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

TEST(TraceReader, ZerosBeforeTheNumberOfAThreadAreReadAsOtherLinesAre) {
  const std::string rest = "# more than a line may have that is read at once, so that it is read\n";
  const Reading r =
      read("T4095 R 0x40\nT0001 W 0x80\nT00001 W 0x80\nT04095 R 0x40\n" + rest + rest);
  ASSERT_TRUE(r.summary.ok()) << r.summary.error().message;
  EXPECT_EQ(r.events, (Events{"T4095 R 1", "T1 W 2", "T1 W 2", "T4095 R 1"}));
  expect_refused({{"T0 R 0x0\nT5000 W 0x0\n" + rest, 2, "limit of 4095"},
                  {"T0 R 0x0\nT05000 W 0x0\n" + rest, 2, "limit of 4095"}});
}

// The reader's block still holds what was read into it before. The last line ends with the trace,
// and what is behind it in the block would make it a request, and others after it.
TEST(TraceReader, ALastLineOfZerosDoesNotGoOnInWhatWasReadBefore) {
  constexpr std::size_t kAtOnce = (std::size_t{1} << 18) + kTraceLineBytesMax;
  const std::string request = "R 0x0\n";
  const std::string half = request.substr(0, request.size() / 2);
  const std::string last = "T" + std::string(99, '0');
  // The block is read again when it ends in half a request. Then it holds that request and the last
  // line, and behind them what follows here after as many bytes.
  const std::size_t kept = request.size() + last.size();
  std::string text = "#" + std::string(kept - 1, '.') + "00000 W 0x40\n";
  int lines = 1;
  for (; text.size() + half.size() < kAtOnce; ++lines) text += request;
  ASSERT_EQ(text.size() + half.size(), kAtOnce);
  text += request + last;
  const Reading r = read(text, TraceFormat::Perdure);
  ASSERT_FALSE(r.summary.ok());
  EXPECT_EQ(r.summary.error().message.rfind(fmt::format("t:{}: cut short", lines + 2), 0), 0U)
      << r.summary.error().message;
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
