// The words and small services of core keep their promises.
#include "core/backoff.h"
#include "core/byte_text.h"
#include "core/crc32c.h"
#include "core/json.h"
#include "core/method.h"
#include "core/random.h"
#include "core/stoppable_clock.h"
#include "core/text_file.h"
#include "core/whole_words.h"
#include "testing/temporary_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace perdure {
namespace {

std::uint32_t crc_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

TEST(Backoff, DoublesUpToSixteenTimesAndStartsAnewAfterSuccess) {
  using std::chrono::milliseconds;
  Backoff backoff(milliseconds(100), 1);
  Nanoseconds now{5};
  for (const int expected_ms : {100, 200, 400, 800, 1600, 1600, 1600}) {
    backoff.failed(now);
    const Nanoseconds wait = milliseconds(expected_ms);
    EXPECT_FALSE(backoff.due(now + wait * 3 / 4 - Nanoseconds{1})) << expected_ms;
    EXPECT_TRUE(backoff.due(now + wait)) << expected_ms;
    now += wait;
  }
  backoff.reset();
  backoff.failed(now);
  EXPECT_TRUE(backoff.due(now + milliseconds(100)));
  Backoff never(Nanoseconds{0}, 1);
  never.failed(now);
  EXPECT_FALSE(never.due(now + std::chrono::hours(1000)));
}

// Somebody stores whole words to where is copied from, at every offset that a range may have.
TEST(WholeWords, NoneIsReadInPart) {
  alignas(64) std::array<std::uint64_t, 16> words{};
  std::atomic<bool> over{false};
  std::thread storing([&] {
    constexpr std::uint64_t kEveryByte = 0x0101010101010101;
    for (std::uint64_t round = 0; !over; ++round) {
      for (std::uint64_t& word : words)
        std::atomic_ref(word).store((round & 0xff) * kEveryByte, std::memory_order_relaxed);
    }
  });
  const auto* const from = reinterpret_cast<const std::byte*>(words.data());
  std::uint64_t torn = 0;
  for (std::size_t round = 0; round < 50'000; ++round) {
    const std::size_t at = round % 8;
    const std::size_t length = 90 + round % 30;
    std::array<std::byte, 128> copy{};
    load_whole_words(copy.data() + at, {from + at, length});
    for (std::size_t word = 8; word + 8 <= at + length; word += 8) {
      const auto bytes = std::span(copy).subspan(word, 8);
      torn += std::ranges::count(bytes, bytes[0]) == 8 ? 0 : 1;
    }
  }
  over = true;
  storing.join();
  EXPECT_EQ(torn, 0u);
}

TEST(WholeWords, TheCopyIsThatAndNothingElse) {
  std::vector<std::byte> from(64);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i + 1);
  for (std::size_t at = 0; at < 9; ++at) {
    for (std::size_t length = 0; length <= 40; ++length) {
      alignas(8) std::array<std::byte, 64> to{};
      copy_whole_words(to.data() + at, std::span(from).subspan(at % 3, length));
      for (std::size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= at && i < at + length;
        ASSERT_EQ(to[i], inside ? from[at % 3 + i - at] : std::byte{0}) << at << "+" << length;
      }
    }
  }
}

TEST(JsonText, ShowsWhatIsNotUtf8WithReplacementsAndIsUtf8TellsIt) {
  const std::string latin1 = "caf\xe9";
  EXPECT_EQ(json_text(nlohmann::json{{"name", latin1}}), "{\"name\":\"caf\xef\xbf\xbd\"}");
  EXPECT_EQ(json_text(nlohmann::ordered_json{{"b", 1}, {"a", latin1}}, 1),
            "{\n \"b\": 1,\n \"a\": \"caf\xef\xbf\xbd\"\n}");
  EXPECT_FALSE(is_utf8(latin1));
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));  // half of a surrogate pair
  EXPECT_TRUE(is_utf8("caf\xc3\xa9"));
  EXPECT_TRUE(is_utf8(std::string_view("\0\n", 2)));
  EXPECT_TRUE(is_utf8(""));
}

TEST(StoppableClock, EndsWhatWaitsByItAndWhatBeginsThen) {
  ManualClock clock;
  StoppableClock stoppable(clock);
  const Deadline before = stoppable.after(std::chrono::hours(1));
  EXPECT_FALSE(before.passed());
  EXPECT_EQ(before.left(), std::chrono::hours(1));
  const Deadline sooner = before.within(std::chrono::minutes(1));
  EXPECT_EQ(sooner.left(), std::chrono::minutes(1));
  EXPECT_EQ(before.within(std::chrono::hours(2)).left(), std::chrono::hours(1));
  stoppable.stop();
  EXPECT_TRUE(before.passed());
  EXPECT_TRUE(sooner.passed());
  EXPECT_TRUE(before.within(std::chrono::hours(2)).passed());
  EXPECT_TRUE(stoppable.after(std::chrono::hours(1)).passed());

  const Deadline until(clock, std::chrono::seconds(10));
  const StoppableClock ends(clock, until);
  const Deadline within = ends.after(std::chrono::hours(1));
  clock.advance(std::chrono::seconds(9));
  EXPECT_FALSE(within.passed());
  clock.advance(std::chrono::seconds(1));
  EXPECT_TRUE(within.passed());
  EXPECT_TRUE(ends.after(std::chrono::hours(1)).passed());
}

TEST(ByteText, IsReadAsItIsWritten) {
  const auto read = [](std::string_view word) { return parse_bytes(word).value(); };
  EXPECT_EQ(read("4096"), 4096u);
  EXPECT_EQ(read("64KiB"), 65536u);
  EXPECT_EQ(read("64K"), 65536u);
  EXPECT_EQ(read("64KB"), 65536u);
  EXPECT_EQ(read("64B"), 64u);
  for (const std::string_view word : {"64k", "64kb", "64kib", "64KIB"}) {
    EXPECT_EQ(read(word), 65536u) << word;
  }
  EXPECT_EQ(read("1.5GiB"), 1536u << 20);
  EXPECT_EQ(read("0"), 0u);
  for (const std::string_view word :
       {"", "KiB", "-1", "1iB", "1X", "1ki", "64 KiB", "nan", "10000000T"}) {
    const auto refused = parse_bytes(word);
    ASSERT_FALSE(refused.ok()) << word;
    EXPECT_EQ(refused.code(), ErrorCode::InvalidArgument);
    EXPECT_NE(refused.error().message.find("for example 64KiB"), std::string::npos);
  }
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(64 << 10), "64 KiB");
  EXPECT_EQ(format_bytes(6'710'886), "6.40 MiB");
  EXPECT_EQ(format_bytes(488'858), "477.4 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{1} << 40), "1 TiB");
  EXPECT_EQ(format_bytes(std::uint64_t{3} << 50), "3072 TiB");
}

TEST(Crc32c, AgreesWithTheVectorsOfRfc3720) {
  EXPECT_EQ(crc_of("123456789"), 0xe3069283u);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32c, ContinuesOverPieces) {
  const std::string_view text = "123456789";
  const auto first = crc_of(text.substr(0, 4));
  EXPECT_EQ(crc32c(std::as_bytes(std::span(text.substr(4))), first), crc_of(text));
}

/// Bit by bit, as the standard defines it.
std::uint32_t slow_crc(std::span<const std::byte> data) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::byte byte : data) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1u) != 0 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

TEST(Crc32c, OfEveryLengthIsThatOfTheDefinitionAndCopiesTheBytes) {
  std::vector<std::byte> bytes(700);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + i / 7);
  for (std::size_t length = 0; length <= 600; ++length) {
    const auto data = std::span(bytes).first(length);
    ASSERT_EQ(crc32c(data), slow_crc(data)) << length;
    std::vector<std::byte> to(length + 1, std::byte{0xee});
    const auto whole = std::span(bytes).first(28 + length);
    const std::uint32_t head = crc32c_of<28>(whole.data());
    ASSERT_EQ(crc32c_copy(head, to.data(), whole.subspan(28)), slow_crc(whole));
    ASSERT_TRUE(std::equal(to.begin(), to.end() - 1, whole.begin() + 28));
    ASSERT_EQ(to.back(), std::byte{0xee});
  }
}

TEST(Crc32c, OfAHeaderIsThatOfItsBytes) {
  std::vector<std::byte> bytes(64);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  const std::byte* const at = bytes.data() + 1;
  EXPECT_EQ(crc32c_of<4>(at), slow_crc({at, 4}));
  EXPECT_EQ(crc32c_of<28>(at), slow_crc({at, 28}));
  EXPECT_EQ(crc32c_of<36>(at), slow_crc({at, 36}));
  EXPECT_EQ(crc32c_of<52>(at), slow_crc({at, 52}));
}

TEST(Random, SameSeedSameNumbers) {
  Random one(7);
  Random two(7);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(one.next(), two.next());
}

TEST(Random, BelowStaysBelowAndReachesEveryValue) {
  Random random(1);
  std::uint32_t seen = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto value = random.below(5);
    ASSERT_LT(value, 5u);
    seen |= 1u << value;
  }
  EXPECT_EQ(seen, 0x1fu);
}

TEST(Profile, WordsReadBackAsTheyWereWritten) {
  using enum PersistenceDomain;
  for (const auto domain : {None, Page, Dmp, Mhp, Wsp}) {
    EXPECT_EQ(*parse_persistence_domain(to_string(domain)), domain);
  }
  const auto wrong = parse_transport("carrier-pigeon");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("infiniband, roce, iwarp, tcp, shm"), std::string::npos);
}

TEST(Method, ValidateFindsWhatIsMalformed) {
  Method method{.name = "m",
                .primary = Primary::Write,
                .shape = singleton(),
                .requester = {},
                .responder = {}};
  EXPECT_FALSE(validate(method).ok());  // never writes a
  method.requester.push_back({.verb = Verb::Write, .items = {0}, .flush = {}, .readable = {}});
  EXPECT_TRUE(validate(method).ok());
  method.requester.push_back({.kind = RequesterStep::Kind::WaitCompletion,
                              .items = {},
                              .flush = {},
                              .readable = {},
                              .of = 1});
  EXPECT_FALSE(validate(method).ok());  // waits for itself
}

TEST(Files, ASymbolicLinkStaysAndWhatItLeadsToIsReplaced) {
  const test::TestDirectory place;
  const std::string file = place.file("file");
  const std::string link = place.file("link");
  ASSERT_TRUE(write_file(file, "a longer text").ok());
  std::filesystem::create_symlink("file", link);
  ASSERT_TRUE(require_writable(link).ok());
  EXPECT_EQ(read_text(file), "a longer text");
  ASSERT_TRUE(write_file(link, "text").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_text(file), "text");
  const std::string astray = place.file("astray");
  std::filesystem::create_symlink("no-directory/file", astray);
  EXPECT_EQ(require_writable(astray).code(), ErrorCode::NotFound);
  EXPECT_EQ(write_file("/dev/full", std::string(1 << 20, 'x')).code(), ErrorCode::NoSpace);
}

// As /dev/stdout does, where it is redirected into a file: who has that open sees the text.
TEST(Files, WhatAProcessHasOpenIsWrittenTo) {
  const test::TestDirectory place;
  const std::string path = place.file("file");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> open(std::fopen(path.c_str(), "w+e"),
                                                             &std::fclose);
  ASSERT_NE(open, nullptr);
  std::setbuf(open.get(), nullptr);
  const std::string link = place.file("link");
  const std::string number = std::to_string(::fileno(open.get()));
  std::filesystem::create_symlink("/proc/self/fd/" + number, link);
  ASSERT_TRUE(require_writable(link).ok());
  for (const std::string& by : {link, "/dev/fd/" + number, "/proc/self/fd/" + number}) {
    ASSERT_TRUE(write_file(by, by).ok()) << by;
    std::rewind(open.get());
    std::string seen(by.size(), ' ');
    EXPECT_EQ(std::fread(seen.data(), 1, seen.size(), open.get()), by.size()) << by;
    EXPECT_EQ(seen, by);
  }
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST(Files, AppearWholeAndTemporaryDirectoriesGo) {
  std::string gone;
  {
    auto directory = test::TemporaryDirectory::make(::testing::TempDir());
    ASSERT_TRUE(directory.ok());
    gone = directory->path();
    const std::string path = gone + "/report.html";
    ASSERT_TRUE(require_writable(path).ok());
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_TRUE(write_file(path, "one").ok());
    ASSERT_TRUE(write_file(path, "two").ok());
    ASSERT_TRUE(require_writable(path).ok());
    EXPECT_EQ(read_text(path), "two");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(gone), {}), 1);
    //                       path                        why it can not be written
    const std::pair<std::string, ErrorCode> wrong[] = {
        {gone + "/deep/report.html", ErrorCode::NotFound},
        {path + "/below", ErrorCode::NotFound},
        {gone, ErrorCode::InvalidArgument}};
    for (const auto& [where, code] : wrong) {
      EXPECT_EQ(write_file(where, "x").code(), code) << where;
      EXPECT_EQ(require_writable(where).code(), code) << where;
    }
    EXPECT_FALSE(write_file("/proc/perdure", "x").ok());
    EXPECT_FALSE(require_writable("/proc/perdure").ok());
    EXPECT_EQ(write_file("/dev/full", "x").code(), ErrorCode::NoSpace);
    EXPECT_TRUE(std::filesystem::is_character_file("/dev/full")) << "it is still a device";
  }
  EXPECT_FALSE(std::filesystem::exists(gone));
}

TEST(Files, AFileWrittenInPiecesReplacesTheOldOneWhenItIsWhole) {
  const test::TestDirectory place;
  const std::string path = place.file("commands");
  const std::string link = place.file("link");
  ASSERT_TRUE(write_file(path, "old").ok());
  std::filesystem::create_symlink("commands", link);
  {
    auto dropped = ReplacingFile::create(path);
    ASSERT_TRUE(dropped.ok());
    ASSERT_GE(std::fputs("half", dropped->stream()), 0);
  }
  EXPECT_EQ(read_text(path), "old");
  auto whole = ReplacingFile::create(path);
  ASSERT_TRUE(whole.ok());
  ASSERT_GE(std::fputs("new", whole->stream()), 0);
  EXPECT_EQ(read_text(path), "old");
  ASSERT_TRUE(whole->replace().ok());
  EXPECT_EQ(read_text(path), "new");
  // What can not be replaced is written to.
  auto through = ReplacingFile::create(link);
  ASSERT_TRUE(through.ok());
  ASSERT_GE(std::fputs("linked", through->stream()), 0);
  ASSERT_TRUE(through->replace().ok());
  EXPECT_EQ(read_text(path), "linked");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  auto full = ReplacingFile::create("/dev/full");
  ASSERT_TRUE(full.ok());
  ASSERT_GE(std::fputs("x", full->stream()), 0);
  EXPECT_EQ(full->replace().code(), ErrorCode::NoSpace);
  EXPECT_EQ(ReplacingFile::create(path + "/below").code(), ErrorCode::NotFound);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(place.path()), {}), 2);
}

}  // namespace
}  // namespace perdure
