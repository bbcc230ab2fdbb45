// A mirror of memory under updates that can be told apart byte for byte, and the judge of its copy.
//
//   write OPTIONS       updates one after the other, each numbered; `durable N` on standard output
//                       means that the library has acknowledged update N and all before. It waits
//                       for a replica that is lost. SIGTERM ends it in good order.
//   check FILE N        whether a copy has all of what was acknowledged up to update N, and nothing
//                       else than that and the one update behind it: `found T lost L`
//
// Update N stores its body into slot N % kSlots, which is made durable first, then N into the tail
// word. Every other one does both by one ordered call.
#include <perdure/mirror.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using perdure::ErrorCode;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint64_t kTailBytes = 4096;  // the tail word has a page of its own
constexpr std::uint64_t kSlots = 16;
constexpr std::uint64_t kSlotBytes = 64 * 1024;
constexpr std::uint64_t kBytes = kTailBytes + kSlots * kSlotBytes;
// In one message, in several, and written: a round over all slots has one length.
constexpr std::array<std::uint64_t, 4> kLengths = {64, 1000, kSlotBytes, 12 * 1024};
// Among so many updates each slot had every length.
constexpr std::uint64_t kSlotsFilledBy = (kLengths.size() + 1) * kSlots;
constexpr milliseconds kPersistWithin{2000};

volatile std::sig_atomic_t asked_to_end = 0;

struct Options {
  perdure::MirrorOptions mirror;
  std::string file;
  milliseconds time_max{120'000};
};

/// A line on standard output, by one write: it is out or it is not.
void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) std::exit(3);
}

perdure::MirrorRange body_of(std::uint64_t number) {
  return {kTailBytes + number % kSlots * kSlotBytes, kLengths[number / kSlots % kLengths.size()]};
}

/// Of update `number`; another one has another byte there with a probability of 255 in 256.
std::byte byte_of(std::uint64_t number, std::uint64_t at) {
  std::uint64_t mixed = (number << 20 | at / 8) * 0x9e3779b97f4a7c15U;
  mixed ^= mixed >> 29;
  return static_cast<std::byte>(mixed >> (8 * (at % 8)) & 0xff);
}

void store_body(std::span<std::byte> memory, std::uint64_t number) {
  const auto [begin, length] = body_of(number);
  for (std::uint64_t at = 0; at < length; ++at) memory[begin + at] = byte_of(number, at);
}

std::uint64_t tail_of(std::span<const std::byte> memory) {
  std::uint64_t tail = 0;
  std::memcpy(&tail, memory.data(), sizeof tail);
  return tail;
}

/// What passes when the replica is back.
bool may_pass(ErrorCode code) {
  return code == ErrorCode::OutcomeUnknown || code == ErrorCode::QuorumLost ||
         code == ErrorCode::TimedOut;
}

template <typename Persist>
perdure::Result<void> insist(const Persist& persist, steady_clock::time_point until) {
  for (;;) {
    auto done = persist();
    const bool over = asked_to_end != 0 || steady_clock::now() >= until;
    if (done.ok() || over || !may_pass(done.code())) return done;
  }
}

perdure::Result<void> update(perdure::Mirror& mirror, std::uint64_t number,
                             steady_clock::time_point until) {
  const perdure::MirrorRange body = body_of(number);
  const perdure::MirrorRange tail{0, sizeof number};
  store_body(mirror.memory(), number);
  if (number % 2 == 0) {
    std::memcpy(mirror.memory().data(), &number, sizeof number);
    const std::array<perdure::MirrorEpoch, 2> epochs = {perdure::MirrorEpoch(&body, 1),
                                                        perdure::MirrorEpoch(&tail, 1)};
    return insist([&] { return mirror.persist_ordered(epochs, kPersistWithin); }, until);
  }
  auto done = insist([&] { return mirror.persist(body.at, body.length, kPersistWithin); }, until);
  if (!done.ok()) return done;
  std::memcpy(mirror.memory().data(), &number, sizeof number);
  return insist([&] { return mirror.persist(tail.at, tail.length, kPersistWithin); }, until);
}

perdure::Result<void> update_all(perdure::Mirror& mirror, milliseconds time_max) {
  const auto until = steady_clock::now() + time_max;
  std::uint64_t number = tail_of(mirror.memory());
  while (asked_to_end == 0 && steady_clock::now() < until) {
    const auto done = update(mirror, ++number, until);
    if (!done.ok()) return done;
    say(fmt::format("durable {}", number));
  }
  return {};
}

perdure::Result<perdure::MirrorMemory> open_memory(const std::string& file) {
  if (::access(file.c_str(), F_OK) == 0) return perdure::MirrorMemory::file(file);
  return perdure::MirrorMemory::create_file(file, kBytes);
}

perdure::Result<perdure::Mirror> open_mirror(const Options& options) {
  auto memory = open_memory(options.file);
  if (!memory.ok()) return memory.error();
  return perdure::Mirror::open(std::move(*memory), options.mirror);
}

int write_mirror(const Options& options) {
  std::signal(SIGTERM, [](int) { asked_to_end = 1; });
  auto mirror = open_mirror(options);
  if (!mirror.ok()) {
    say(fmt::format("failed to open: {}", mirror.error().message));
    return 1;
  }
  const perdure::MirrorStatus status = mirror->status();
  const perdure::MirrorReplicaStatus& replica = status.replicas.front();
  say(fmt::format("open epoch {} small {} {} large {} {}", status.epoch.value, replica.small_family,
                  replica.small_method, replica.large_family, replica.large_method));
  auto ended = update_all(*mirror, options.time_max);
  const auto closed = mirror->close();
  if (ended.ok()) ended = closed;
  say(fmt::format("ended: {}", ended.ok() ? "all durable" : ended.error().message));
  return ended.ok() ? 0 : 1;
}

/// What update `number` and all before it have left, and who stored each byte; 0: nobody.
struct Expected {
  explicit Expected(std::uint64_t number) : memory(kBytes), owners(kBytes) {
    const std::uint64_t first = number > kSlotsFilledBy ? number - kSlotsFilledBy : 0;
    for (std::uint64_t each = first + 1; each <= number; ++each) {
      store_body(memory, each);
      const auto [begin, length] = body_of(each);
      std::fill_n(owners.begin() + static_cast<std::ptrdiff_t>(begin), length, each);
    }
    std::memcpy(memory.data(), &number, sizeof number);
    std::fill_n(owners.begin(), sizeof number, number);
  }
  std::vector<std::byte> memory;
  std::vector<std::uint64_t> owners;
};

/// Update `acknowledged` + 1 may be there, in any part: of its body if the tail has not its number,
/// else whole.
int check_copy(const std::string& path, std::uint64_t acknowledged) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto copy = std::as_bytes(std::span(text));
  if (copy.size() != kBytes) {
    say(fmt::format("{} has {} bytes, not {}", path, copy.size(), kBytes));
    return 1;
  }
  const std::uint64_t next = acknowledged + 1;
  const std::uint64_t tail = tail_of(copy);
  const Expected before(acknowledged);
  const Expected behind(next);
  const bool whole = tail == next;
  std::set<std::uint64_t> lost;
  for (std::uint64_t at = 0; at < kBytes; ++at) {
    if (whole ? copy[at] == behind.memory[at] : copy[at] == before.memory[at]) continue;
    if (!whole && behind.owners[at] == next && at >= kTailBytes && copy[at] == behind.memory[at]) {
      continue;
    }
    lost.insert(whole ? behind.owners[at] : before.owners[at]);
  }
  say(fmt::format("found {} lost {}", tail, lost.size()));
  return lost.empty() ? 0 : 1;
}

bool take_number(const char* text, std::uint64_t& value) {
  const auto parsed = std::from_chars(text, text + std::strlen(text), value);
  return parsed.ec == std::errc() && *parsed.ptr == '\0';
}

bool take_option(Options& options, std::string_view name, const char* value) {
  if (name == "--peer") return options.mirror.peers.emplace_back(value), true;
  if (name == "--pool") return options.mirror.pool = value, true;
  if (name == "--file") return options.file = value, true;
  if (name == "--transport" || name == "--primary") {
    return perdure::set_option(options.mirror, name.substr(2), value).ok();
  }
  std::uint64_t number = 0;
  if (!take_number(value, number)) return false;
  if (name == "--measure-costs") return options.mirror.measure_costs = number != 0, true;
  if (name == "--peer-timeout-ms") return options.mirror.peer_timeout = milliseconds(number), true;
  if (name == "--seconds") return options.time_max = std::chrono::seconds(number), true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t acknowledged = 0;
  if (argc == 4 && std::string_view(argv[1]) == "check" && take_number(argv[3], acknowledged)) {
    return check_copy(argv[2], acknowledged);
  }
  Options options;
  options.mirror.writer_name = "lab";
  options.mirror.take_over = true;
  bool right = argc >= 2 && std::string_view(argv[1]) == "write";
  for (int i = 2; right && i < argc; i += 2) {
    right = i + 1 < argc && take_option(options, argv[i], argv[i + 1]);
  }
  if (!right || options.file.empty()) {
    std::fprintf(stderr, "usage: mirror write OPTION VALUE ... | mirror check FILE NUMBER\n");
    return 2;
  }
  return write_mirror(options);
}
