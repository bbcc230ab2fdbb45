// Appends numbered records at full speed and says which ones are durable: `durable N` on standard
// output means that the library has told so of every record up to number N. The lab cuts the power
// of machines meanwhile and compares. A record is text: its number, a space, a payload, a space,
// and the CRC-32 of all before in hexadecimal.
#include <perdure/log.h>

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kPayloadBytesMin = 16;

struct Options {
  perdure::LogOptions log;
  std::uint64_t first = 1;          // number of the first record
  std::uint64_t records = 0;        // 0: until something ends it
  std::size_t payload_bytes = 200;  // the largest payload; sizes vary from record to record
  std::size_t window = 256;         // records under way at a time
  milliseconds time_max{60'000};
};

struct OpenRecord {
  std::uint64_t number = 0;
  perdure::Ticket ticket;
};

/// A line on standard output, by one write: it is out or it is not.
void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) std::exit(3);
}

/// The CRC-32 of zlib, bit by bit: a second implementation beside the log's own CRC-32C.
std::uint32_t crc32(std::string_view text) {
  std::uint32_t crc = ~0U;
  for (const char each : text) {
    crc ^= static_cast<unsigned char>(each);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

std::string record_text(std::uint64_t number, std::size_t payload_bytes) {
  const std::size_t span = payload_bytes - kPayloadBytesMin + 1;
  const std::size_t bytes = kPayloadBytesMin + number * 2654435761U % span;
  std::string text = fmt::format("{} ", number);
  for (std::size_t i = 0; i < bytes; ++i) {
    text += static_cast<char>('a' + (number * 31 + i * 7) % 26);
  }
  return text + fmt::format(" {:08x}", crc32(text));
}

/// Takes away the records that are durable and says so.
void note_durable(const perdure::Log& log, std::deque<OpenRecord>& open) {
  std::uint64_t last = 0;
  while (!open.empty() && log.reached(open.front().ticket, perdure::Level::Durable)) {
    last = open.front().number;
    open.pop_front();
  }
  if (last > 0) say(fmt::format("durable {}", last));
}

perdure::Result<void> append_all(perdure::Log& log, const Options& options) {
  const auto deadline = steady_clock::now() + options.time_max;
  std::deque<OpenRecord> open;
  std::uint64_t next = options.first;
  const auto all_appended = [&] {
    return options.records > 0 && next == options.first + options.records;
  };
  while ((!all_appended() || !open.empty()) && steady_clock::now() < deadline) {
    if (all_appended() || open.size() >= options.window) {
      const auto waited = log.wait(open.front().ticket, perdure::Level::Durable, milliseconds{50});
      if (!waited.ok() && waited.code() != perdure::ErrorCode::TimedOut) return waited.error();
    } else {
      const std::string record = record_text(next, options.payload_bytes);
      const auto ticket = log.append(std::as_bytes(std::span(record)));
      if (!ticket.ok()) return ticket.error();
      open.push_back({next++, *ticket});
      if (auto polled = log.poll(); !polled.ok()) return polled.error();
    }
    note_durable(log, open);
  }
  return {};
}

bool take_number(const char* text, std::uint64_t& value) {
  const auto parsed = std::from_chars(text, text + std::strlen(text), value);
  return parsed.ec == std::errc() && *parsed.ptr == '\0';
}

bool take_option(Options& options, std::string_view name, const char* value) {
  std::uint64_t number = 0;
  if (name == "--peer") return options.log.peers.emplace_back(value), true;
  if (name == "--pool") return options.log.pool = value, true;
  if (name == "--transport") return options.log.transport = value, true;
  if (name == "--primary") return options.log.primary = value, true;
  if (!take_number(value, number)) return false;
  if (name == "--first") return options.first = number, true;
  if (name == "--records") return options.records = number, true;
  if (name == "--window") return options.window = number, number > 0;
  if (name == "--payload-bytes") return options.payload_bytes = number, number >= kPayloadBytesMin;
  if (name == "--stall-ms") return options.log.stall = milliseconds(number), true;
  if (name == "--seconds") return options.time_max = std::chrono::seconds(number), true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.log.writer_name = "lab";
  options.log.take_over = true;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc || !take_option(options, argv[i], argv[i + 1])) {
      std::fprintf(stderr, "writer: not an option with its value: %s\n", argv[i]);
      return 2;
    }
  }
  auto log = perdure::Log::open(options.log);
  if (!log.ok()) {
    say(fmt::format("failed to open: {}", log.error().message));
    return 1;
  }
  const perdure::LogStatus status = log->status();
  say(fmt::format("open epoch {} records {} method {}", status.epoch.value, status.next_index,
                  status.replicas.front().small_method));
  if (const auto appended = append_all(*log, options); !appended.ok()) {
    say(fmt::format("ended: {}", appended.error().message));
    return 1;
  }
  say("ended: all appended");
  return 0;
}
