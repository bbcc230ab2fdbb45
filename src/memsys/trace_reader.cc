// The formats of traces, line by line: see trace.h. Every byte of a big trace comes through here
// twice, so the lines are read in place, without copies.
#include "core/assert.h"
#include "core/named.h"
#include "core/try.h"
#include "memsys/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_map>

namespace perdure::memsys {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 18;
constexpr std::uint64_t kRangeBytesMax = std::uint64_t{1} << 30;  // of one flush in a WHISPER trace

constexpr std::array<std::string_view, 5> kFormatNames{"auto", "perdure", "dramsim3", "ramulator",
                                                       "whisper"};

bool blank(char c) { return c == ' ' || c == '\t'; }
bool digit(char c) { return c >= '0' && c <= '9'; }

/// The value of a hexadecimal digit; 16: it is none.
constexpr std::array<std::uint8_t, 256> hex_values() {
  std::array<std::uint8_t, 256> values{};
  for (std::uint8_t& value : values) value = 16;
  for (std::uint8_t i = 0; i < 10; ++i) values[static_cast<std::size_t>('0' + i)] = i;
  for (std::uint8_t i = 0; i < 6; ++i) {
    values[static_cast<std::size_t>('a' + i)] = static_cast<std::uint8_t>(10 + i);
    values[static_cast<std::size_t>('A' + i)] = static_cast<std::uint8_t>(10 + i);
  }
  return values;
}
constexpr std::array<std::uint8_t, 256> kHexValues = hex_values();

std::uint32_t hex_value(char c) { return kHexValues[static_cast<unsigned char>(c)]; }

struct HexDigits {
  std::uint64_t value = 0;
  std::uint32_t count = 0;
};

/// The hexadecimal digits at the start of eight bytes, all at once: the lowest byte of `text` is
/// the first one. Each sum below leaves bit 7 of a byte set where the character is one of those
/// asked for; without that bit in the characters no byte carries into the next.
HexDigits hex_digits(const char* at) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::uint64_t kEach = 0x0101010101010101;
  std::uint64_t text = 0;
  std::memcpy(&text, at, sizeof text);
  const std::uint64_t ascii = text & (kEach * 0x7f);
  const std::uint64_t lower = ascii | (kEach * 0x20);
  const std::uint64_t decimal = (ascii + kEach * (0x80 - '0')) & ~(ascii + kEach * (0x7f - '9'));
  const std::uint64_t letter = (lower + kEach * (0x80 - 'a')) & ~(lower + kEach * (0x7f - 'f'));
  const std::uint64_t other = ~((decimal | letter) & ~text) & (kEach * 0x80);
  const auto count = static_cast<std::uint32_t>(std::countr_zero(other)) / 8;
  if (count == 0) return {};
  std::uint64_t value = (text & (kEach * 0x0f)) + ((text >> 6) & kEach) * 9;
  value <<= 64 - 8 * count;  // zeros before the first digit
  value = (value << 4 | value >> 8) & 0x00ff00ff00ff00ff;
  value = (value << 8 | value >> 16) & 0x0000ffff0000ffff;
  return {(value << 16 | value >> 32) & 0xffffffff, count};
}

/// Reads a line from its start.
class Cursor {
 public:
  Cursor(const char* begin, const char* end) : at_(begin), end_(end) {}

  void skip_blanks() {
    while (at_ != end_ && blank(*at_)) ++at_;
  }
  bool at_end() const { return at_ == end_; }
  char peek() const { return at_ == end_ ? '\0' : *at_; }
  void advance() { ++at_; }

  /// Up to the next blank.
  std::string_view word() {
    const char* const begin = at_;
    while (at_ != end_ && !blank(*at_)) ++at_;
    return {begin, static_cast<std::size_t>(at_ - begin)};
  }

  /// Up to `separator`, which is skipped; without one up to the end, and `more` is false then.
  std::string_view until(char separator, bool& more) {
    const char* const begin = at_;
    while (at_ != end_ && *at_ != separator) ++at_;
    const std::string_view text(begin, static_cast<std::size_t>(at_ - begin));
    more = at_ != end_;
    if (more) ++at_;
    return text;
  }

  /// Whether what follows is written as a hexadecimal number.
  bool at_hexadecimal() const { return end_ - at_ > 2 && at_[0] == '0' && (at_[1] | 0x20) == 'x'; }

  /// Decimal or 0x. False: not a number up to the next blank, or more than 64 bits.
  bool number(std::uint64_t& value) {
    if (!at_hexadecimal()) return decimal(value);
    at_ += 2;
    return hexadecimal(value);
  }

  bool decimal(std::uint64_t& value) {
    if (at_ == end_ || !digit(*at_)) return false;
    value = 0;
    for (; at_ != end_ && digit(*at_); ++at_) {
      const auto unit = static_cast<std::uint64_t>(*at_ - '0');
      if (value > (~std::uint64_t{0} - unit) / 10) return false;
      value = value * 10 + unit;
    }
    return at_ == end_ || blank(*at_);
  }

 private:
  bool hexadecimal(std::uint64_t& value) {
    const char* const begin = at_;
    value = 0;
    for (std::uint32_t unit = 0; at_ != end_ && (unit = hex_value(*at_)) < 16; ++at_) {
      if (value >> 60 != 0) return false;
      value = value << 4 | unit;
    }
    return at_ != begin && (at_ == end_ || blank(*at_));
  }

  const char* at_;
  const char* end_;
};

}  // namespace

std::string_view to_string(TraceFormat format) {
  return kFormatNames.at(static_cast<std::size_t>(format));
}

Result<TraceFormat> parse_trace_format(std::string_view word) {
  return find_named<TraceFormat>("trace format", word, kFormatNames);
}

std::string to_string(ThreadName thread) {
  return fmt::format("{}{}", thread.remote ? 'X' : 'T', thread.number);
}

namespace {

/// What stands between the colons behind the marker of a line of WHISPER.
struct WhisperFields {
  std::array<std::string_view, 5> text;
  std::size_t count = 0;
};

/// WHISPER prints its numbers in decimal, but for addresses.
bool whole_decimal(std::string_view text, std::uint64_t& value) {
  Cursor part(text.data(), text.data() + text.size());
  return part.decimal(value) && part.at_end();
}

bool whole_number(std::string_view text, std::uint64_t& value) {
  Cursor part(text.data(), text.data() + text.size());
  return part.number(value) && part.at_end();
}

}  // namespace

struct TraceReader::Parser {
  Parser(TraceBytes& from, std::string file, TraceLimits of)
      : bytes(from),
        name(std::move(file)),
        limits(of),
        line_shift(static_cast<std::uint32_t>(std::countr_zero(of.line_bytes))) {
    thread_of.fill(kUnknown);
    block.resize(kBlockBytes + kTraceLineBytesMax);
  }

  static constexpr std::uint32_t kUnknown = ~std::uint32_t{0};

  TraceBytes& bytes;
  const std::string name;
  const TraceLimits limits;
  const std::uint32_t line_shift;
  TraceFormat format = TraceFormat::Perdure;
  std::array<std::uint32_t, 2 * (kThreadNumberMax + 1)> thread_of;
  std::unordered_map<std::uint32_t, std::uint32_t> whisper_threads;
  std::vector<ThreadName> threads;
  std::optional<Error> error;

  // The part of the trace at hand: block[begin, end).
  std::vector<char> block;
  std::size_t begin = 0;
  std::size_t end = 0;
  bool drained = false;
  bool last_line_open = false;
  std::uint64_t text_line = 0;
  std::uint64_t index = 0;

  // What is left of a line that stands for several events.
  TraceEvent range;
  std::uint64_t range_left = 0;

  bool next(TraceEvent& event);
  bool next_plain(TraceEvent& event);
  bool next_other(TraceEvent& event);
  bool next_line(Cursor& cursor);
  bool fill();
  void restart();
  bool parse(Cursor& cursor, TraceEvent& event);
  Result<void> check_text();
  bool parse_perdure(Cursor& cursor, TraceEvent& event);
  bool parse_dramsim3(Cursor& cursor, TraceEvent& event);
  bool parse_ramulator(Cursor& cursor, TraceEvent& event);
  bool parse_whisper(Cursor& cursor, TraceEvent& event);
  bool whisper_thread(std::uint64_t tid, TraceEvent& event);
  bool whisper_range(Cursor& cursor, TraceEvent& event, bool asked_for);
  bool whisper_delimiter(Cursor& cursor);
  bool whisper_fields(Cursor& cursor, WhisperFields& fields);
  bool thread(std::uint64_t number, bool remote, TraceEvent& event);
  bool address(Cursor& cursor, TraceEvent& event);
  bool cycle(Cursor& cursor, TraceEvent& event);
  bool line_end(Cursor& cursor);
  bool refuse(std::string_view what);
  Result<TraceFormat> guess();
};

bool TraceReader::Parser::refuse(std::string_view what) {
  error = Error{ErrorCode::InvalidArgument, fmt::format("{}:{}: {}", name, text_line, what)};
  return false;
}

void TraceReader::Parser::restart() {
  begin = end = 0;
  drained = last_line_open = false;
  text_line = index = range_left = 0;
  error.reset();
  if (const auto rewound = bytes.rewind(); !rewound.ok()) error = rewound.error();
}

/// Moves the rest of the block to its front and reads more behind it. False at the end.
bool TraceReader::Parser::fill() {
  if (drained) return false;
  std::memmove(block.data(), block.data() + begin, end - begin);
  end -= begin;
  begin = 0;
  const auto got = bytes.read(block.data() + end, block.size() - end);
  if (!got.ok()) error = got.error();
  drained = !got.ok() || *got == 0;
  if (!drained) end += *got;
  return !drained;
}

/// The next line that holds something; `#` begins a comment.
bool TraceReader::Parser::next_line(Cursor& cursor) {
  for (;;) {
    const auto* newline =
        static_cast<const char*>(std::memchr(block.data() + begin, '\n', end - begin));
    if (newline == nullptr) {
      if (end - begin > kTraceLineBytesMax) {
        ++text_line;
        return refuse(fmt::format("a line of more than {} bytes", kTraceLineBytesMax));
      }
      if (fill()) continue;
      if (error || begin == end) return false;
      newline = block.data() + end;
      last_line_open = true;
    }
    const char* const start = block.data() + begin;
    begin = std::min(end, static_cast<std::size_t>(newline - block.data()) + 1);
    ++text_line;
    // Lines may end as those of Windows do.
    cursor = Cursor(start, newline != start && newline[-1] == '\r' ? newline - 1 : newline);
    cursor.skip_blanks();
    if (!cursor.at_end() && cursor.peek() != '#') return true;
  }
}

/// The commonest lines, `[T<n>] R|W 0xADDRESS` of a known thread, without a look back. False: the
/// line is another, and nothing was taken.
inline bool TraceReader::Parser::next_plain(TraceEvent& event) {
  // A thread of kThreadDigits, an address of 16 and what is between them are fewer bytes.
  constexpr std::size_t kPlainBytesMax = 64;
  constexpr int kThreadDigits = 4;
  static_assert(kThreadNumberMax < 10'000);
  if (format != TraceFormat::Perdure || end - begin < kPlainBytesMax) return false;
  const char* at = block.data() + begin;
  std::size_t thread = 0;
  if (*at == 'T') {
    if (!digit(*++at)) return false;
    // By their count, not their value: zeros in front would lead past what is in the block.
    for (int digits = 0; digits < kThreadDigits && digit(*at); ++digits, ++at) {
      thread = thread * 10 + static_cast<std::size_t>(*at - '0');
    }
    if (*at++ != ' ' || thread > kThreadNumberMax) return false;
  }
  const bool write = *at == 'W';
  if (!write && *at != 'R') return false;
  if (at[1] != ' ' || at[2] != '0' || at[3] != 'x') return false;
  const char* const digits = at += 4;
  std::uint64_t value = 0;
  HexDigits more;
  do {
    more = hex_digits(at);
    value = value << 4 * more.count | more.value;
    at += more.count;
  } while (more.count == 8 && at - digits < 16);
  const std::uint32_t known = thread_of[thread * 2];
  const std::uint64_t line = value >> line_shift;
  if (*at != '\n' || at == digits || known == kUnknown || line >= limits.lines) return false;
  event = {line, 0, index++, known, write ? EventKind::Write : EventKind::Read};
  begin = static_cast<std::size_t>(at - block.data()) + 1;
  ++text_line;
  return true;
}

bool TraceReader::Parser::next(TraceEvent& event) {
  if (error) return false;
  return (range_left == 0 && next_plain(event)) || next_other(event);
}

bool TraceReader::Parser::next_other(TraceEvent& event) {
  if (range_left == 0) {
    Cursor cursor(nullptr, nullptr);
    do {
      if (!next_line(cursor)) return false;
      event.cycle = 0;
    } while (!parse(cursor, event) && !error);
    if (error) return false;
  } else {
    event = range;
    range.line = (range.line + 1) & (limits.lines - 1);
    --range_left;
  }
  event.index = index++;
  return true;
}

/// False: refused, or a line without an event.
bool TraceReader::Parser::parse(Cursor& cursor, TraceEvent& event) {
  switch (format) {
    case TraceFormat::Dramsim3: return parse_dramsim3(cursor, event);
    case TraceFormat::Ramulator: return parse_ramulator(cursor, event);
    case TraceFormat::Whisper: return parse_whisper(cursor, event);
    default: return parse_perdure(cursor, event);
  }
}

/// What is no text is told by its first bytes.
Result<void> TraceReader::Parser::check_text() {
  using namespace std::string_view_literals;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kOthers{
      {{"\x1f\x8b"sv, "is compressed by gzip; `zcat FILE |` and --trace - read it"},
       {"\xfd"
        "7zXZ"sv,
        "is compressed by xz; `xzcat FILE |` and --trace - read it"},
       {"\x28\xb5\x2f\xfd"sv, "is compressed by zstd; `zstdcat FILE |` and --trace - read it"},
       {"\xef\xbb\xbf"sv,
        "begins with a byte order mark; `tail -c +4 FILE |` and --trace - read it"},
       {"\xff\xfe"sv, "is UTF-16; `iconv -f UTF-16 -t ASCII FILE |` and --trace - read it"},
       {"\xfe\xff"sv, "is UTF-16; `iconv -f UTF-16 -t ASCII FILE |` and --trace - read it"}}};
  fill();
  if (error) return *error;
  const std::string_view text(block.data() + begin, end - begin);
  for (const auto& [start, what] : kOthers) {
    if (!text.starts_with(start)) continue;
    return Error{ErrorCode::InvalidArgument, fmt::format("{}:1: {}", name, what)};
  }
  return {};
}

bool TraceReader::Parser::thread(std::uint64_t number, bool remote, TraceEvent& event) {
  if (number > kThreadNumberMax) {
    return refuse(fmt::format("thread {} is above the limit of {}", number, kThreadNumberMax));
  }
  std::uint32_t& known = thread_of.at(number * 2 + (remote ? 1 : 0));
  if (known == kUnknown) {
    known = static_cast<std::uint32_t>(threads.size());
    threads.push_back({static_cast<std::uint32_t>(number), remote});
  }
  event.thread = known;
  return true;
}

bool TraceReader::Parser::address(Cursor& cursor, TraceEvent& event) {
  cursor.skip_blanks();
  if (cursor.at_end()) return refuse("cut short: an address is missing");
  std::uint64_t value = 0;
  if (!cursor.number(value)) return refuse("the address is neither decimal nor 0x...");
  event.line = value >> line_shift;
  if (event.line >= limits.lines) {
    return refuse(fmt::format("address 0x{:x} is beyond the device, which ends at 0x{:x}", value,
                              limits.lines << line_shift));
  }
  return true;
}

/// DRAMsim3 reads cycles as decimal only.
bool TraceReader::Parser::cycle(Cursor& cursor, TraceEvent& event) {
  const bool read =
      format == TraceFormat::Dramsim3 ? cursor.decimal(event.cycle) : cursor.number(event.cycle);
  if (!read) return refuse("the cycle is not a number");
  if (event.cycle <= kCycleMax) return true;
  return refuse(fmt::format("cycle {} is above the limit of {}", event.cycle, kCycleMax));
}

bool TraceReader::Parser::line_end(Cursor& cursor) {
  cursor.skip_blanks();
  if (cursor.at_end() || cursor.peek() == '#') return true;
  return refuse(fmt::format("'{}' is too much", cursor.word()));
}

/// `[T<n>|X<n>] R|W ADDRESS [CYCLE]`, `[T<n>|X<n>] B|F|S`
bool TraceReader::Parser::parse_perdure(Cursor& cursor, TraceEvent& event) {
  std::uint64_t number = 0;
  bool remote = false;
  if (cursor.peek() == 'T' || cursor.peek() == 'X') {
    remote = cursor.peek() == 'X';
    cursor.advance();
    if (!cursor.decimal(number)) {
      return refuse("the number of the thread is not one: T<n> or X<n>");
    }
    cursor.skip_blanks();
    if (cursor.at_end()) return refuse("cut short: the event is missing");
  }
  if (!thread(number, remote, event)) return false;
  const char kind = cursor.peek();
  cursor.advance();
  if (!cursor.at_end() && !blank(cursor.peek())) {
    return refuse(fmt::format("'{}{}' is no event: R, W, B, F or S", kind, cursor.word()));
  }
  switch (kind) {
    case 'R': event.kind = EventKind::Read; break;
    case 'W': event.kind = EventKind::Write; break;
    case 'B': event.kind = EventKind::Barrier; return line_end(cursor);
    case 'F': event.kind = EventKind::Fence; return line_end(cursor);
    case 'S': event.kind = EventKind::Strand; return line_end(cursor);
    default: return refuse(fmt::format("'{}' is no event: R, W, B, F or S", kind));
  }
  if (!address(cursor, event)) return false;
  cursor.skip_blanks();
  if (cursor.at_end() || cursor.peek() == '#') return true;
  return cycle(cursor, event) && line_end(cursor);
}

/// `0xADDRESS READ|WRITE CYCLE`. DRAMsim3 takes an address without 0x for hexadecimal too.
bool TraceReader::Parser::parse_dramsim3(Cursor& cursor, TraceEvent& event) {
  if (!cursor.at_hexadecimal()) return refuse("the address is not 0x...");
  if (!thread(0, false, event) || !address(cursor, event)) return false;
  cursor.skip_blanks();
  const std::string_view word = cursor.word();
  if (word == "READ") {
    event.kind = EventKind::Read;
  } else if (word == "WRITE") {
    event.kind = EventKind::Write;
  } else {
    return refuse(word.empty() ? "cut short: READ or WRITE is missing"
                               : fmt::format("'{}' is neither READ nor WRITE", word));
  }
  cursor.skip_blanks();
  if (cursor.at_end()) return refuse("cut short: the cycle is missing");
  return cycle(cursor, event) && line_end(cursor);
}

/// `LD|ST ADDRESS`
bool TraceReader::Parser::parse_ramulator(Cursor& cursor, TraceEvent& event) {
  const std::string_view word = cursor.word();
  if (word == "LD") {
    event.kind = EventKind::Read;
  } else if (word == "ST") {
    event.kind = EventKind::Write;
  } else {
    return refuse(fmt::format("'{}' is neither LD nor ST", word));
  }
  return thread(0, false, event) && address(cursor, event) && line_end(cursor);
}

/// As WHISPER's pm_instr.h prints them: `tid:usec:MARKER:address:bytes:function:line`, behind the
/// bytes of a flush or of a store past the cache their number once more, and
/// `tid:usec:MARKER:function:line` where a marker has no address. Stores to the cache become
/// durable when they are flushed (PM_L, PM_O); what a thread stores past the cache (PM_I, PM_DI)
/// does at once. Programs' virtual addresses are folded into the device.
bool TraceReader::Parser::parse_whisper(Cursor& cursor, TraceEvent& event) {
  std::uint64_t tid = 0;
  std::uint64_t microseconds = 0;
  bool more = true;
  if (!whole_decimal(cursor.until(':', more), tid)) return refuse("the thread is not a number");
  if (!whole_decimal(cursor.until(':', more), microseconds)) {
    return refuse("the time is not a number");
  }
  if (!whisper_thread(tid, event)) return false;
  const std::string_view marker = cursor.until(':', more);
  if (marker == "PM_N" || marker == "PM_B" || marker == "PM_C" || marker == "PM_XE") {
    const bool durable = marker == "PM_C" || marker == "PM_XE";
    event.kind = durable ? EventKind::Fence : EventKind::Barrier;
    return whisper_delimiter(cursor);
  }
  const bool asked_for = marker == "PM_L" || marker == "PM_O" || marker == "PM_I";
  if (asked_for || marker == "PM_DI") {
    event.kind = EventKind::Write;
    return whisper_range(cursor, event, asked_for);
  }
  if (marker == "PM_R") {
    event.kind = EventKind::Read;
    return whisper_range(cursor, event, false);
  }
  // No events, but what is cut or garbled is refused here too.
  if (marker == "PM_W" || marker == "PM_DW") {
    if (whisper_range(cursor, event, false)) range_left = 0;
    return false;
  }
  if (marker == "PM_XS") {
    whisper_delimiter(cursor);
    return false;
  }
  return refuse(fmt::format("'{}' is no marker of WHISPER", marker));
}

/// Threads are those of the system: their numbers may be any, and only how many there are is
/// limited.
bool TraceReader::Parser::whisper_thread(std::uint64_t tid, TraceEvent& event) {
  if (tid > std::numeric_limits<std::uint32_t>::max()) {
    return refuse(fmt::format("{} is no number of a thread", tid));
  }
  const auto number = static_cast<std::uint32_t>(tid);
  const auto [known, added] =
      whisper_threads.try_emplace(number, static_cast<std::uint32_t>(threads.size()));
  if (added && threads.size() > kThreadNumberMax) {
    return refuse(fmt::format("more than {} threads", kThreadNumberMax + 1));
  }
  if (added) threads.push_back({number, false});
  event.thread = known->second;
  return true;
}

/// False: refused. The last two are the function and the line of the program.
bool TraceReader::Parser::whisper_fields(Cursor& cursor, WhisperFields& fields) {
  for (bool more = true; more;) {
    if (fields.count == fields.text.size()) return refuse("too much behind the marker");
    fields.text[fields.count++] = cursor.until(':', more);
  }
  if (fields.count < 2) return refuse("cut short: the function or its line is missing");
  const std::string_view line = fields.text[fields.count - 1];
  std::uint64_t ignored = 0;
  if (line.empty()) return refuse("cut short: the line of the function is missing");
  if (fields.text[fields.count - 2].empty()) return refuse("the function has no name");
  return whole_decimal(line, ignored) || refuse("the line of the function is not a number");
}

/// A marker without an address; who prints one all the same means nothing by it.
bool TraceReader::Parser::whisper_delimiter(Cursor& cursor) {
  WhisperFields fields;
  if (!whisper_fields(cursor, fields)) return false;
  if (fields.count == 2) return true;
  std::uint64_t ignored = 0;
  const bool with_range = fields.count == 4 && whole_number(fields.text[0], ignored) &&
                          whole_decimal(fields.text[1], ignored);
  return with_range || refuse("what is behind the marker is not a function and its line");
}

/// With `asked_for`, the bytes that were asked for may stand behind those that were written. False:
/// refused, or nothing is in the range.
bool TraceReader::Parser::whisper_range(Cursor& cursor, TraceEvent& event, bool asked_for) {
  WhisperFields fields;
  if (!whisper_fields(cursor, fields)) return false;
  if (fields.count == 5 && !asked_for) return refuse("too much behind the marker");
  if (fields.count < 4) return refuse("cut short: address, bytes, function or line is missing");
  std::uint64_t start = 0;
  std::uint64_t count = 0;
  std::uint64_t ignored = 0;
  if (!whole_number(fields.text[0], start)) {
    return refuse("the address is neither decimal nor 0x...");
  }
  if (!whole_decimal(fields.text[1], count)) return refuse("the number of bytes is not a number");
  if (fields.count == 5 && !whole_decimal(fields.text[2], ignored)) {
    return refuse("the bytes asked for are not a number");
  }
  if (count > kRangeBytesMax || start > ~std::uint64_t{0} - count) {
    return refuse("the range is too long");
  }
  if (count == 0) return false;
  const std::uint64_t last = start + count - 1;
  event.line = (start >> line_shift) & (limits.lines - 1);
  range = event;
  range_left = (last >> line_shift) - (start >> line_shift);
  range.line = (event.line + 1) & (limits.lines - 1);
  if (range_left < limits.lines) return true;
  return refuse(fmt::format("a range of {} bytes is longer than the device", count));
}

/// By the first line that holds something.
Result<TraceFormat> TraceReader::Parser::guess() {
  Cursor cursor(nullptr, nullptr);
  if (!next_line(cursor)) {
    if (error) return *error;
    return TraceFormat::Perdure;
  }
  const std::string_view first = cursor.word();
  if (first == "LD" || first == "ST") return TraceFormat::Ramulator;
  if (std::count(first.begin(), first.end(), ':') >= 2) return TraceFormat::Whisper;
  cursor.skip_blanks();
  const std::string_view second = cursor.word();
  if (second == "READ" || second == "WRITE") return TraceFormat::Dramsim3;
  if (first.size() > 1 && digit(first[0])) return TraceFormat::Dramsim3;
  return TraceFormat::Perdure;
}

TraceReader::TraceReader(TraceBytes& bytes, std::string name, TraceLimits limits)
    : parser_(std::make_unique<Parser>(bytes, std::move(name), limits)) {}

TraceReader::~TraceReader() = default;

Result<TraceSummary> TraceReader::survey(TraceFormat format) {
  Parser& p = *parser_;
  p.restart();
  PERDURE_TRY_VOID(p.check_text());
  if (format == TraceFormat::Auto) {
    PERDURE_TRY(guessed, p.guess());
    format = guessed;
    p.restart();
  }
  p.format = format;
  TraceSummary summary;
  summary.format = format;
  TraceEvent event;
  while (p.next(event)) {
    if (event.thread >= summary.threads.size()) summary.threads.resize(event.thread + 1);
    TraceSummary::Thread& thread = summary.threads[event.thread];
    ++thread.events;
    switch (event.kind) {
      case EventKind::Read: ++summary.reads; break;
      case EventKind::Write: ++summary.writes, ++thread.writes; break;
      case EventKind::Barrier: ++summary.barriers; break;
      case EventKind::Fence: ++summary.fences; break;
      case EventKind::Strand: ++summary.strands; break;
    }
  }
  PERDURE_TRY_VOID(outcome());
  summary.text_lines = p.text_line;
  summary.last_line_open = p.last_line_open;
  for (std::size_t i = 0; i < summary.threads.size(); ++i) summary.threads[i].name = p.threads[i];
  p.restart();
  PERDURE_TRY_VOID(outcome());
  return summary;
}

bool TraceReader::next(TraceEvent& event) { return parser_->next(event); }

Result<void> TraceReader::outcome() const {
  if (parser_->error) return *parser_->error;
  return {};
}

std::uint64_t TraceReader::text_line() const { return parser_->text_line; }

}  // namespace perdure::memsys
