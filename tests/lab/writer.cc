// Appends numbered records at full speed and says which ones are durable: `durable N` on standard
// output means that the library has acknowledged every record up to number N, on the quorum. The
// lab cuts the power of machines meanwhile and compares. SIGTERM ends it in good order; with
// --repair all that was appended is durable on every replica then. A record is text: its number, a
// space, a payload, a space, and the CRC-32 of all before in hexadecimal.
#include <perdure/log.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kPayloadBytesMin = 16;
constexpr perdure::Level kLevel = perdure::Level::Committed;
constexpr milliseconds kRepairEvery{1000};
constexpr milliseconds kLevelWithin{20'000};
constexpr milliseconds kAskWithin{10'000};
constexpr milliseconds kAskAgainWithin{3000};
constexpr milliseconds kAskPause{100};

volatile std::sig_atomic_t asked_to_end = 0;

struct Options {
  perdure::LogOptions log;
  bool repair = false;              // replicas that are down, now and then
  std::uint64_t first = 1;          // number of the first record
  std::uint64_t records = 0;        // 0: until something ends it
  std::size_t payload_bytes = 200;  // the largest payload; sizes vary from record to record
  std::size_t window = 256;         // records in flight at a time
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
  while (!open.empty() && log.reached(open.front().ticket, kLevel)) {
    last = open.front().number;
    open.pop_front();
  }
  if (last > 0) say(fmt::format("durable {}", last));
}

/// Tries to bring back replicas that are down, and says why they were and which came.
void repair(perdure::Log& log) {
  bool complete = true;
  for (const perdure::ReplicaStatus& each : log.status().replicas) {
    if (each.up) continue;
    complete = false;
    say(fmt::format("down {}: {}", each.peer, each.down_reason));
  }
  if (complete) return;
  const auto repaired = log.repair();
  if (!repaired.ok()) return say("repair: " + repaired.error().message);
  for (const perdure::RepairReport& report : *repaired) {
    say(fmt::format("{} {}: {} bytes copied; {}", report.repaired ? "repaired" : "not repaired",
                    report.peer, report.copied_bytes, report.found + report.error));
  }
}

/// Waits until every replica has all that was appended.
perdure::Result<void> level(perdure::Log& log) {
  const auto deadline = steady_clock::now() + kLevelWithin;
  while (steady_clock::now() < deadline) {
    repair(log);
    if (auto polled = log.poll(); !polled.ok()) return polled.error();
    const perdure::LogStatus status = log.status();
    if (std::ranges::all_of(status.replicas, [&](const perdure::ReplicaStatus& each) {
          return each.up && each.durable_below >= status.tail;
        })) {
      return {};
    }
  }
  return perdure::Error{perdure::ErrorCode::TimedOut, "a replica stays down or behind"};
}

/// Calls that do not wait say that the quorum is lost; one that has time asks who took over. Asked
/// again for a while: whoever takes over first has the rights of this one taken away, and is noted
/// only then.
perdure::Error reason(perdure::Log& log, const std::deque<OpenRecord>& open, perdure::Error said) {
  const bool asks = said.code == perdure::ErrorCode::QuorumLost ||
                    said.code == perdure::ErrorCode::OutcomeUnknown;
  if (!asks || open.empty()) return said;
  const auto until = steady_clock::now() + kAskAgainWithin;
  do {
    (void)log.wait(open.back().ticket, kLevel, kAskWithin);
    if (const auto polled = log.poll(); !polled.ok()) said = polled.error();
    if (said.code == perdure::ErrorCode::Fenced) break;
    std::this_thread::sleep_for(kAskPause);
  } while (steady_clock::now() < until);
  return said;
}

perdure::Result<void> append_all(perdure::Log& log, const Options& options) {
  const auto deadline = steady_clock::now() + options.time_max;
  std::deque<OpenRecord> open;
  std::uint64_t next = options.first;
  const auto all_appended = [&] {
    return asked_to_end != 0 || (options.records > 0 && next == options.first + options.records);
  };
  auto repair_at = steady_clock::now() + kRepairEvery;
  while ((!all_appended() || !open.empty()) && steady_clock::now() < deadline) {
    if (all_appended() || open.size() >= options.window) {
      const auto waited = log.wait(open.front().ticket, kLevel, milliseconds{50});
      if (!waited.ok() && waited.code() != perdure::ErrorCode::TimedOut) {
        return reason(log, open, waited.error());
      }
    } else {
      const std::string record = record_text(next, options.payload_bytes);
      const auto ticket = log.append(std::as_bytes(std::span(record)));
      if (!ticket.ok()) return reason(log, open, ticket.error());
      open.push_back({next++, *ticket});
      if (auto polled = log.poll(); !polled.ok()) return reason(log, open, polled.error());
    }
    note_durable(log, open);
    if (options.repair && steady_clock::now() >= repair_at) {
      repair(log);
      repair_at = steady_clock::now() + kRepairEvery;
    }
  }
  return options.repair && asked_to_end != 0 ? level(log) : perdure::Result<void>();
}

bool take_number(const char* text, std::uint64_t& value) {
  const auto parsed = std::from_chars(text, text + std::strlen(text), value);
  return parsed.ec == std::errc() && *parsed.ptr == '\0';
}

bool take_option(Options& options, std::string_view name, const char* value) {
  std::uint64_t number = 0;
  if (name == "--peer") return options.log.peers.emplace_back(value), true;
  if (name == "--pool") return options.log.pool = value, true;
  if (name == "--transport" || name == "--primary") {
    return perdure::set_option(options.log, name.substr(2), value).ok();
  }
  if (!take_number(value, number)) return false;
  if (name == "--measure-costs") return options.log.measure_costs = number != 0, true;
  if (name == "--first") return options.first = number, true;
  if (name == "--records") return options.records = number, true;
  if (name == "--window") return options.window = number, number > 0;
  if (name == "--payload-bytes") return options.payload_bytes = number, number >= kPayloadBytesMin;
  if (name == "--replica-timeout-ms")
    return options.log.replica_timeout = milliseconds(number), true;
  if (name == "--repair") return options.repair = number != 0, true;
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
  std::signal(SIGTERM, [](int) { asked_to_end = 1; });
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
