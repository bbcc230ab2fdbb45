// The small services of core: assertion, clock, PRNG, checksum, forks and the message callback.
#include "core/assert.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/forks.h"
#include "core/log_message.h"
#include "core/mutex.h"
#include "core/random.h"

#include <isa-l/crc.h>
#include <pthread.h>
#include <sys/random.h>
#ifdef __x86_64__
#include <nmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

namespace perdure {

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "perdure: assertion failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

namespace {

class MonotonicClock final : public Clock {
 public:
  Nanoseconds now() const override {
    return std::chrono::duration_cast<Nanoseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
  }
};

std::uint64_t rotate_left(std::uint64_t value, int by) {
  return (value << by) | (value >> (64 - by));
}

std::uint64_t splitmix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

const Clock& Clock::monotonic() {
  static const MonotonicClock clock;
  return clock;
}

Random::Random(std::uint64_t seed) {
  for (std::uint64_t& word : state_) word = splitmix(seed);
}

std::uint64_t Random::next() {
  const std::uint64_t result = rotate_left(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = rotate_left(state_[3], 45);
  return result;
}

std::uint64_t Random::below(std::uint64_t bound) {
  PERDURE_ASSERT(bound > 0);
  // Rejects the incomplete last interval, so that every value is equally likely.
  const std::uint64_t limit = std::numeric_limits<std::uint64_t>::max() / bound * bound;
  std::uint64_t value = next();
  while (value >= limit) value = next();
  return value % bound;
}

bool Random::chance(std::uint64_t numerator, std::uint64_t denominator) {
  return below(denominator) < numerator;
}

namespace {

thread_local Random* seeded_secrets = nullptr;

}  // namespace

SeededSecrets::SeededSecrets(Random& random) : before_(std::exchange(seeded_secrets, &random)) {}

SeededSecrets::~SeededSecrets() { seeded_secrets = before_; }

std::uint64_t random_secret() {
  std::uint64_t secret = 0;
  while (seeded_secrets != nullptr && secret == 0) secret = seeded_secrets->next();
  while (secret == 0) {
    const auto got = ::getrandom(&secret, sizeof secret, 0);
    PERDURE_ASSERT(got == sizeof secret);
  }
  return secret;
}

#ifdef __x86_64__
const bool has_crc_instruction = __builtin_cpu_supports("sse4.2") != 0;
#endif

namespace {

#ifdef __x86_64__
__attribute__((target("sse4.2"))) std::uint32_t short_crc32c(std::span<const std::byte> data,
                                                             std::uint32_t crc) {
  const std::byte* from = data.data();
  std::size_t left = data.size();
  std::uint64_t sum = ~crc;
  for (; left >= 8; left -= 8, from += 8) sum = _mm_crc32_u64(sum, load<std::uint64_t>(from));
  auto narrow = static_cast<std::uint32_t>(sum);
  for (; left != 0; --left) {
    narrow = _mm_crc32_u8(narrow, static_cast<std::uint8_t>(*from++));
  }
  return ~narrow;
}
#endif

std::uint32_t long_crc32c(std::span<const std::byte> data, std::uint32_t crc) {
  // ISA-L works on the bare register: it neither inverts at the start nor at the end.
  auto* bytes = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data.data()));
  PERDURE_ASSERT(data.size() <= std::numeric_limits<int>::max());
  return ~crc32_iscsi(bytes, static_cast<int>(data.size()), ~crc);
}

}  // namespace

std::uint32_t crc32c_copy(std::uint32_t crc, std::byte* to, std::span<const std::byte> data) {
#ifdef __x86_64__
  if (data.size() <= short_crc_bytes_max()) return short_crc32c_copy(crc, to, data);
#endif
  // Piece by piece, so that long data passes through the cache once.
  constexpr std::size_t kPieceBytes = 16 * 1024;
  while (!data.empty()) {
    const auto piece = data.first(std::min(data.size(), kPieceBytes));
    std::memcpy(to, piece.data(), piece.size());
    crc = crc32c({to, piece.size()}, crc);
    to += piece.size();
    data = data.subspan(piece.size());
  }
  return crc;
}

std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t crc) {
#ifdef __x86_64__
  if (data.size() <= kShortCrcBytes && has_crc_instruction) return short_crc32c(data, crc);
#endif
  return long_crc32c(data, crc);
}

std::atomic<std::uint32_t> fork_count{0};

namespace {

const int watches_forks = ::pthread_atfork(nullptr, nullptr, [] { ++fork_count; });

}  // namespace

std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::Debug: return "debug";
    case Severity::Info: return "info";
    case Severity::Warning: return "warning";
    case Severity::Error: return "error";
  }
  return "unknown";
}

namespace {

struct MessageSink {
  Mutex mutex;
  MessageCallback callback PERDURE_GUARDED_BY(mutex);
};

/// Never destroyed: whatever ends after main may have something to say.
MessageSink& message_sink() {
  static MessageSink& sink = *new MessageSink;
  return sink;
}

/// Whether this thread is in the callback, and so has the sink's lock.
thread_local bool delivers_message = false;

/// In a child of fork() nobody is left who could give the lock back, if another thread of the
/// parent was in the callback.
void unlock_in_child() {
  if (!delivers_message) new (&message_sink().mutex) Mutex;
}

const int watches_sink = ::pthread_atfork(nullptr, nullptr, unlock_in_child);

}  // namespace

void set_message_callback(MessageCallback callback) {
  PERDURE_ASSERT(!delivers_message);
  MessageSink& sink = message_sink();
  const MutexLock lock(sink.mutex);
  sink.callback = std::move(callback);
}

void log_message(Severity severity, const std::string& message) {
  if (delivers_message) return;
  MessageSink& sink = message_sink();
  const MutexLock lock(sink.mutex);
  if (!sink.callback) return;
  delivers_message = true;
  sink.callback(severity, message);
  delivers_message = false;
}

}  // namespace perdure
