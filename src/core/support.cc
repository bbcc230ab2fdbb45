// The small services of core: assertion, clock, dice, checksum and the message callback.
#include "core/assert.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/log_message.h"
#include "core/mutex.h"
#include "core/random.h"

#include <isa-l/crc.h>
#include <sys/random.h>

#include <cstdio>
#include <cstdlib>
#include <limits>

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

std::uint64_t random_secret() {
  std::uint64_t secret = 0;
  while (secret == 0) {
    const auto got = ::getrandom(&secret, sizeof secret, 0);
    PERDURE_ASSERT(got == sizeof secret);
  }
  return secret;
}

std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t crc) {
  // ISA-L works on the bare register: it neither inverts at the start nor at the end.
  auto* bytes = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data.data()));
  PERDURE_ASSERT(data.size() <= std::numeric_limits<int>::max());
  return ~crc32_iscsi(bytes, static_cast<int>(data.size()), ~crc);
}

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
  LogCallback callback PERDURE_GUARDED_BY(mutex);
};

MessageSink& message_sink() {
  static MessageSink sink;
  return sink;
}

}  // namespace

void set_log_callback(LogCallback callback) {
  MessageSink& sink = message_sink();
  const MutexLock lock(sink.mutex);
  sink.callback = std::move(callback);
}

void log_message(Severity severity, const std::string& message) {
  MessageSink& sink = message_sink();
  const MutexLock lock(sink.mutex);
  if (sink.callback) sink.callback(severity, message);
}

}  // namespace perdure
