// Leading and following: see leader_mutex.h.
#include "core/leader_mutex.h"

namespace perdure {
namespace {

/// How long who leads keeps its processor beside those who follow: a switch of threads takes as
/// much.
constexpr Nanoseconds kAlone = std::chrono::microseconds(2);
constexpr std::uint32_t kYieldsMax = 64;  // of who leads, for those who want the mutex

}  // namespace

void LeaderMutex::lock() {
  if (try_lock()) return;
  wanting_.fetch_add(1, std::memory_order_relaxed);
  Mutex::lock();
  wanting_.fetch_sub(1, std::memory_order_relaxed);
}

void LeaderMutex::begin_leading() {
  led_ = true;
  alone_since_.reset();
}

void LeaderMutex::end_leading() {
  led_ = false;
  wake_followers();
}

/// Without others it does not look at the clock, which costs as much as to poll.
bool LeaderMutex::give_way() {
  if (!wanted()) {
    if (followers_ == 0) return false;
    const Nanoseconds now = clock_.now();
    if (!alone_since_) alone_since_ = now;
    if (now - *alone_since_ < kAlone) return false;
  }
  give_turns();
  alone_since_.reset();
  return true;
}

void LeaderMutex::give_turns() {
  unlock();
  std::uint32_t yields = 0;
  do {
    std::this_thread::yield();
  } while (wanted() && ++yields < kYieldsMax);
  lock();
}

void LeaderMutex::note_reached(std::uint64_t number) {
  if (reached_ == number) return;
  reached_ = number;
  wake_followers();
}

void LeaderMutex::wake_followers() {
  if (sleepers_ != 0) changed_.notify_all();
}

void LeaderMutex::follow(std::uint64_t number, Nanoseconds yields_until, Nanoseconds sleep_max) {
  const auto goes_on = [&] { return led_ && reached_ < number; };
  ++followers_;
  unlock();
  while (goes_on() && clock_.now() < yields_until) std::this_thread::yield();
  if (goes_on()) {
    MutexLock lock(*this);
    ++sleepers_;
    if (goes_on()) lock.wait_for(changed_, sleep_max);
    --sleepers_;
  }
  lock();
  --followers_;
}

}  // namespace perdure
