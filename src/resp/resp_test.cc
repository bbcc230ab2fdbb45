// The protocol of Redis's clients: whatever the pieces, the same requests; nothing beyond limits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/random.h"
#include "resp/reply.h"
#include "resp/request_parser.h"

namespace perdure::resp {
namespace {

using Words = std::vector<std::string>;
using Step = RequestParser::Step;

struct Read {
  std::vector<Words> requests;
  std::string error;
};

/// What a stream says when it comes in pieces of up to `piece` bytes.
Read read(std::string_view stream, std::size_t piece, const RequestLimits& limits = {}) {
  RequestParser parser(limits);
  Read read;
  while (!stream.empty()) {
    std::string_view input = stream.substr(0, piece);
    stream.remove_prefix(input.size());
    while (!input.empty()) {
      const Step step = parser.take(input);
      if (step == Step::Request) read.requests.push_back(parser.arguments());
      if (step == Step::Broken) {
        read.error = parser.error();
        return read;
      }
    }
  }
  return read;
}

TEST(RespRequest, IsTheSameInWhateverPiecesItComes) {
  const std::string stream = std::string("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n") + '\0' +
                             "x\r\n" + "PING\r\n\r\n*0\r\n*-1\r\nget \"a b\"\n*1\r\n$0\r\n\r\n";
  const std::vector<Words> expected = {
      {"SET", "k", std::string("\r\n") + '\0' + 'x'}, {"PING"}, {"get", "a b"}, {""}};
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    const Read got = read(stream, piece);
    ASSERT_EQ(got.error, "") << piece;
    ASSERT_EQ(got.requests, expected) << piece;
  }
}

TEST(RespRequest, WhatIsBrokenIsSaidAsRedisSaysIt) {
  const std::string long_number(40, '1');
  const std::pair<std::string, std::string> cases[] = {
      {"*x\r\n", "invalid multibulk length"},
      {"*4097\r\n", "invalid multibulk length"},
      {"*99999999999999999999\r\n", "invalid multibulk length"},
      {"*" + long_number, "too big mbulk count string"},
      {"*1\r\n$" + long_number, "too big bulk count string"},
      {"*1\r\n:1\r\n", "expected '$', got ':'"},
      {"*1\r\n$-1\r\n", "invalid bulk length"},
      {"*1\r\n$1048577\r\n", "invalid bulk length: 1048577, and 1048576 at most"},
      {"*1\r\n$2\r\nabc\r\n", "expected a line end behind a bulk string"},
      {"*1\r\n$2\r\nab\rx", "expected a line end behind a bulk string"},
      {"get \"a\r\n", "unbalanced quotes in request"},
      {"get 'a'b\r\n", "unbalanced quotes in request"},
      {std::string(5000, 'x'), "too big inline request"},
  };
  for (const auto& [stream, error] : cases) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, stream.size()}) {
      const Read got = read(stream, piece);
      EXPECT_EQ(got.error, "Protocol error: " + error) << stream.substr(0, 40);
      EXPECT_TRUE(got.requests.empty());
    }
  }
}

TEST(RespRequest, KeepsNoMoreThanHasComeAndNoMoreThanItsLimits) {
  RequestLimits limits;
  limits.argument_bytes_max = 100;
  limits.request_bytes_max = 150;
  RequestParser parser(limits);
  std::string_view input = "*3\r\n$100\r\nabc";
  EXPECT_EQ(parser.take(input), Step::More);
  EXPECT_TRUE(parser.within_request());
  EXPECT_EQ(parser.kept_bytes(), 3u);
  EXPECT_LT(parser.arguments().back().capacity(), 100u);
  const std::string rest = std::string(97, 'x') + "\r\n$51\r\n";
  input = rest;
  EXPECT_EQ(parser.take(input), Step::Broken);
  EXPECT_EQ(parser.error(), "Protocol error: a request of more than 150 bytes");
  input = "PING\r\n";
  EXPECT_EQ(parser.take(input), Step::Broken);  // nothing behind it is read
}

TEST(RespRequest, OfTheLargestSizesIsTaken) {
  const std::string value(1024 * 1024, 'v');
  const Read got = read("*2\r\n$1\r\nk\r\n$1048576\r\n" + value + "\r\n", 16 * 1024);
  ASSERT_EQ(got.error, "");
  ASSERT_EQ(got.requests.size(), 1u);
  EXPECT_EQ(got.requests[0][1], value);
}

// Bytes at random near the real thing: never more than the limits, and never a request from
// nothing.
TEST(RespRequest, WhateverComesStaysWithinTheLimits) {
  RequestLimits limits;
  limits.argument_bytes_max = 64;
  limits.request_bytes_max = 128;
  limits.inline_bytes_max = 64;
  Random random(11);
  const std::string_view letters = "*$1234\r\n\"'x -\\";
  std::size_t requests = 0;
  std::size_t broken = 0;
  for (int round = 0; round < 20'000; ++round) {
    RequestParser parser(limits);
    std::string stream;
    for (std::size_t at = random.below(40); at > 0; --at)
      stream += letters[random.below(letters.size())];
    std::string_view input = stream;
    while (!input.empty()) {
      const Step step = parser.take(input);
      ASSERT_LE(parser.kept_bytes(), 64u + 128u);
      if (step == Step::Broken) ++broken;
      if (step == Step::Broken) break;
      if (step != Step::Request) continue;
      ASSERT_FALSE(parser.arguments().empty());
      ++requests;
    }
  }
  EXPECT_GT(requests, 1000u);
  EXPECT_GT(broken, 1000u);
}

TEST(RespWords, AreSplitAsRedisCliWritesThem) {
  const std::pair<std::string, Words> cases[] = {
      {"", {}},
      {"  a\tb ", {"a", "b"}},
      {R"("a b" 'c d')", {"a b", "c d"}},
      {R"("\x41\n\"\\" '\'')", {"A\n\"\\", "'"}},
      {R"("" x)", {"", "x"}},
  };
  for (const auto& [line, expected] : cases) {
    Words words;
    EXPECT_TRUE(split_words(line, words)) << line;
    EXPECT_EQ(words, expected) << line;
  }
}

TEST(RespReply, HasTheBytesOfTheProtocol) {
  std::string to;
  append_status(to, "OK");
  append_error(to, "ERR a\r\nb");
  append_number(to, -3);
  append_bulk(to, "a\r\n");
  append_null(to);
  append_array(to, 2);
  EXPECT_EQ(to, "+OK\r\n-ERR a  b\r\n:-3\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n");
}

TEST(RespPattern, MeansWhatRedisMeans) {
  //  pattern, text, whether it matches
  struct Case {
    const char* pattern;
    const char* text;
    bool matches;
  };
  const Case cases[] = {
      {"*", "", true},          {"", "", true},
      {"", "a", false},         {"a*c", "abbc", true},
      {"a*c", "abbd", false},   {"a?c", "abc", true},
      {"a?c", "ac", false},     {"[a-c]x", "bx", true},
      {"[^a-c]x", "bx", false}, {"[c-a]x", "bx", true},
      {"\\*x", "*x", true},     {"\\*x", "ax", false},
      {"*a*b", "aab", true},    {"key:[0-9]*", "key:7z", true},
      {"a**", "a", true},       {"[ab", "a", true},
      {"a", "aa", false},       {"*?", "", false},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(matches(each.pattern, each.text), each.matches) << each.pattern << ' ' << each.text;
  }
  // Never more than both lengths multiplied.
  std::string hard;
  for (int star = 0; star < 100; ++star) hard += "*a";
  EXPECT_FALSE(matches(hard + "b", std::string(512, 'a')));
}

}  // namespace
}  // namespace perdure::resp
