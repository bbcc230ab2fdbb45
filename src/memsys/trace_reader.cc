// The formats of traces, line by line: see trace.h. Every byte of a big trace comes through here
// twice, so the lines are read in place, without copies.
#include "core/assert.h"
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
constexpr std::size_t kLineBytesMax = std::size_t{1} << 16;
constexpr std::uint64_t kRangeBytesMax = std::uint64_t{1} << 30;  // of one flush in a WHISPER trace

constexpr std::array<std::string_view, 5> kFormatNames{"auto", "perdure", "dramsim3", "ramulator",
                                                       "whisper"};

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
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

  /// Up to `separator`, which is skipped.
  std::string_view until(char separator) {
    const char* const begin = at_;
    while (at_ != end_ && *at_ != separator) ++at_;
    const std::string_view text(begin, static_cast<std::size_t>(at_ - begin));
    if (at_ != end_) ++at_;
    return text;
  }

  /// Decimal or 0x. False: not a number, or more than 64 bits.
  bool number(std::uint64_t& value) {
    if (end_ - at_ > 2 && at_[0] == '0' && (at_[1] | 0x20) == 'x') {
      at_ += 2;
      return hexadecimal(value);
    }
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
  const auto* const found = std::find(kFormatNames.begin(), kFormatNames.end(), word);
  if (found != kFormatNames.end()) {
    return static_cast<TraceFormat>(found - kFormatNames.begin());
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("trace format '{}' is not known; use one of: {}", word,
                           fmt::join(kFormatNames, ", "))};
}

std::string to_string(ThreadName thread) {
  return fmt::format("{}{}", thread.remote ? 'X' : 'T', thread.number);
}

struct TraceReader::Parser {
  Parser(TraceBytes& from, std::string file, TraceLimits of)
      : bytes(from),
        name(std::move(file)),
        limits(of),
        line_shift(static_cast<std::uint32_t>(std::countr_zero(of.line_bytes))) {
    thread_of.fill(kUnknown);
    block.resize(kBlockBytes + kLineBytesMax);
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
  bool next_line(Cursor& cursor);
  bool fill();
  void restart();
  bool parse(Cursor& cursor, TraceEvent& event);
  bool parse_perdure(Cursor& cursor, TraceEvent& event);
  bool parse_dramsim3(Cursor& cursor, TraceEvent& event);
  bool parse_ramulator(Cursor& cursor, TraceEvent& event);
  bool parse_whisper(Cursor& cursor, TraceEvent& event);
  bool whisper_thread(std::uint64_t tid, TraceEvent& event);
  bool whisper_range(Cursor& cursor, TraceEvent& event);
  bool whisper_cached(Cursor& cursor);
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
      if (end - begin > kLineBytesMax) {
        ++text_line;
        return refuse(fmt::format("a line of more than {} bytes", kLineBytesMax));
      }
      if (fill()) continue;
      if (error || begin == end) return false;
      newline = block.data() + end;
      last_line_open = true;
    }
    const char* const start = block.data() + begin;
    begin = std::min(end, static_cast<std::size_t>(newline - block.data()) + 1);
    ++text_line;
    cursor = Cursor(start, newline);
    cursor.skip_blanks();
    if (!cursor.at_end() && cursor.peek() != '#') return true;
  }
}

/// The commonest lines, `[T<n>] R|W 0xADDRESS` of a known thread, without a look back. False: the
/// line is another, and nothing was taken.
bool TraceReader::Parser::next_plain(TraceEvent& event) {
  constexpr std::size_t kPlainBytesMax = 64;
  if (format != TraceFormat::Perdure || end - begin < kPlainBytesMax) return false;
  const char* at = block.data() + begin;
  std::size_t thread = 0;
  if (*at == 'T') {
    if (!digit(at[1])) return false;
    for (++at; digit(*at) && thread < kThreadNumberMax; ++at) {
      thread = thread * 10 + static_cast<std::size_t>(*at - '0');
    }
    if (*at++ != ' ' || thread > kThreadNumberMax) return false;
  }
  const bool write = *at == 'W';
  if (!write && *at != 'R') return false;
  if (at[1] != ' ' || at[2] != '0' || at[3] != 'x') return false;
  const char* const digits = at += 4;
  std::uint64_t value = 0;
  for (std::uint32_t unit = 0; (unit = hex_value(*at)) < 16 && at - digits < 16; ++at) {
    value = value << 4 | unit;
  }
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
  if (range_left == 0 && next_plain(event)) return true;
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

bool TraceReader::Parser::cycle(Cursor& cursor, TraceEvent& event) {
  if (!cursor.number(event.cycle)) return refuse("the cycle is not a number");
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
    if (!digit(cursor.peek()) || !cursor.number(number)) {
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

/// `0xADDRESS READ|WRITE CYCLE`
bool TraceReader::Parser::parse_dramsim3(Cursor& cursor, TraceEvent& event) {
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
  if (word == "LD" || word == "R") {
    event.kind = EventKind::Read;
  } else if (word == "ST" || word == "W") {
    event.kind = EventKind::Write;
  } else {
    return refuse(fmt::format("'{}' is neither LD nor ST", word));
  }
  return thread(0, false, event) && address(cursor, event) && line_end(cursor);
}

/// `tid:usec:MARKER:address:bytes:function:line`. Stores to the cache become durable when they are
/// flushed (PM_L); what a thread stores past the cache (PM_I, PM_DI) does at once. Programs'
/// virtual addresses are folded into the device.
bool TraceReader::Parser::parse_whisper(Cursor& cursor, TraceEvent& event) {
  const auto whole = [](std::string_view text, std::uint64_t& value) {
    Cursor part(text.data(), text.data() + text.size());
    part.skip_blanks();
    return part.number(value);
  };
  std::uint64_t tid = 0;
  std::uint64_t microseconds = 0;
  if (!whole(cursor.until(':'), tid)) return refuse("the thread is not a number");
  if (!whole(cursor.until(':'), microseconds)) return refuse("the time is not a number");
  if (!whisper_thread(tid, event)) return false;
  std::string_view marker = cursor.until(':');
  while (!marker.empty() && blank(marker.back())) marker.remove_suffix(1);
  if (marker == "PM_N" || marker == "PM_B" || marker == "PM_C" || marker == "PM_XE") {
    const bool durable = marker == "PM_C" || marker == "PM_XE";
    event.kind = durable ? EventKind::Fence : EventKind::Barrier;
    return true;
  }
  if (marker == "PM_L" || marker == "PM_I" || marker == "PM_DI") {
    event.kind = EventKind::Write;
    return whisper_range(cursor, event);
  }
  if (marker == "PM_R") {
    event.kind = EventKind::Read;
    return whisper_range(cursor, event);
  }
  if (marker == "PM_W" || marker == "PM_DW") return whisper_cached(cursor);
  if (marker == "PM_XS" || marker == "PM_O") return false;
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

/// What stays in the cache is no event, but what is cut or garbled is refused here too.
bool TraceReader::Parser::whisper_cached(Cursor& cursor) {
  TraceEvent ignored{};
  if (whisper_range(cursor, ignored)) range_left = 0;
  return false;
}

bool TraceReader::Parser::whisper_range(Cursor& cursor, TraceEvent& event) {
  const std::string_view from = cursor.until(':');
  const std::string_view size = cursor.until(':');
  Cursor first(from.data(), from.data() + from.size());
  Cursor second(size.data(), size.data() + size.size());
  std::uint64_t start = 0;
  std::uint64_t count = 0;
  if (!first.number(start)) return refuse("the address is neither decimal nor 0x...");
  if (!second.number(count)) return refuse("the number of bytes is not a number");
  if (count > kRangeBytesMax || start > ~std::uint64_t{0} - count) {
    return refuse("the range is too long");
  }
  const std::uint64_t last = start + std::max<std::uint64_t>(count, 1) - 1;
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
