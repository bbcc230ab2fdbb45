// One thread polls for all that wait, and none of them sleeps through what it waits for.
#include "core/leader_mutex.h"
#include "testing/process.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace perdure {
namespace {

/// Whoever sleeps that long was not woken.
constexpr Nanoseconds kSleep = std::chrono::seconds(20);
constexpr Nanoseconds kSoon = std::chrono::seconds(10);

class SetClock final : public Clock {
 public:
  Nanoseconds now() const override { return Nanoseconds(now_.load()); }
  void advance(Nanoseconds by) { now_ += by.count(); }

 private:
  std::atomic<Nanoseconds::rep> now_{0};
};

/// What is begun resolves when it is polled for the third time.
class Work {
 public:
  explicit Work(Nanoseconds yields) : yields_(yields) {}

  void make_one(Nanoseconds* longest) {
    const Nanoseconds since = Clock::monotonic().now();
    const LeaderLock turn(mutex_);
    const std::uint64_t mine = ++begun_;
    while (resolved_ < mine) {
      if (mutex_.is_led()) {
        mutex_.follow(mine, Clock::monotonic().now() + yields_, kSleep);
      } else {
        lead(mine);
      }
    }
    *longest = std::max(*longest, Clock::monotonic().now() - since);
  }
  std::uint64_t resolved() {
    const LeaderLock turn(mutex_);
    return resolved_;
  }

 private:
  void lead(std::uint64_t mine) PERDURE_REQUIRES(mutex_) {
    mutex_.begin_leading();
    while (resolved_ < mine) {
      if (++polls_ % 3 == 0) resolved_ = begun_;
      mutex_.note_reached(resolved_);
      mutex_.give_way();
    }
    mutex_.end_leading();
  }

  const Nanoseconds yields_;
  LeaderMutex mutex_{Clock::monotonic()};
  std::uint64_t begun_ PERDURE_GUARDED_BY(mutex_) = 0;
  std::uint64_t resolved_ PERDURE_GUARDED_BY(mutex_) = 0;
  std::uint64_t polls_ PERDURE_GUARDED_BY(mutex_) = 0;
};

TEST(LeaderMutex, NobodySleepsThroughWhatItWaitsFor) {
  constexpr std::uint64_t kThreads = 8;
  constexpr std::uint64_t kEach = 500;
  for (const Nanoseconds yields : {Nanoseconds(0), Nanoseconds(std::chrono::microseconds(50))}) {
    Work work(yields);
    std::vector<Nanoseconds> longest(kThreads);
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        for (std::uint64_t each = 0; each < kEach; ++each) work.make_one(&longest[i]);
      });
    }
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(work.resolved(), kThreads * kEach);
    for (const Nanoseconds each : longest) EXPECT_LT(each, kSoon);
  }
}

// Receive: the leader ends, and its follower's number was not reached. Expect: that one is woken,
// for it has to lead.
TEST(LeaderMutex, WhoFollowsIsWokenWhenNobodyLeads) {
  LeaderMutex mutex(Clock::monotonic());
  std::atomic<bool> here{false};
  const Nanoseconds since = Clock::monotonic().now();
  {
    const LeaderLock turn(mutex);
    mutex.begin_leading();
  }
  std::thread follower([&] {
    const LeaderLock turn(mutex);
    here = true;
    while (mutex.is_led()) mutex.follow(1, Nanoseconds(0), kSleep);
  });
  while (!here) std::this_thread::yield();
  {
    const LeaderLock turn(mutex);  // it has let go of it
    mutex.end_leading();
  }
  follower.join();
  EXPECT_LT(Clock::monotonic().now() - since, kSoon);
}

/// How long one follows until its number is reached, while another thread leads throughout.
Nanoseconds follow_until_reached(Nanoseconds yields, Nanoseconds sleep_max) {
  LeaderMutex mutex(Clock::monotonic());
  std::atomic<bool> here{false};
  const Nanoseconds since = Clock::monotonic().now();
  {
    const LeaderLock turn(mutex);
    mutex.begin_leading();
    mutex.note_reached(1);
  }
  std::thread follower([&] {
    const LeaderLock turn(mutex);
    here = true;
    mutex.follow(2, since + yields, sleep_max);
  });
  while (!here) std::this_thread::yield();
  test::pause_for(std::chrono::milliseconds(100));  // by then it sleeps, if it does not yield
  {
    const LeaderLock turn(mutex);
    mutex.note_reached(2);
  }
  follower.join();
  return Clock::monotonic().now() - since;
}

TEST(LeaderMutex, WhoFollowsAndSleepsIsWokenByItsNumber) {
  EXPECT_LT(follow_until_reached(Nanoseconds(0), kSleep), kSoon);
}

TEST(LeaderMutex, WhoFollowsAndYieldsSeesItsNumber) {
  EXPECT_LT(follow_until_reached(kSleep, Nanoseconds(0)), kSoon);
}

TEST(LeaderMutex, TheLeaderGivesWayToWhoWantsTheMutex) {
  LeaderMutex mutex(Clock::monotonic());
  std::atomic<bool> had{false};
  std::thread other;
  {
    const LeaderLock turn(mutex);
    mutex.begin_leading();
    EXPECT_FALSE(mutex.give_way()) << "nobody wants it";
    other = std::thread([&] {
      const LeaderLock its_turn(mutex);
      had = true;
    });
    const Deadline deadline = Deadline::after(kSoon);
    while (!had && !deadline.passed()) mutex.give_way();
    EXPECT_TRUE(had);
    mutex.end_leading();
  }
  other.join();
}

// The leader keeps its processor for as long as a switch of threads takes, and no longer.
TEST(LeaderMutex, TheLeaderGivesItsProcessorToWhoFollows) {
  SetClock clock;
  LeaderMutex mutex(clock);
  {
    const LeaderLock turn(mutex);
    mutex.begin_leading();
    clock.advance(std::chrono::seconds(1));
    EXPECT_FALSE(mutex.give_way()) << "there is nobody";
  }
  std::atomic<bool> here{false};
  std::thread follower([&] {
    const LeaderLock turn(mutex);
    here = true;
    while (mutex.is_led()) mutex.follow(1, Nanoseconds(0), kSleep);
  });
  while (!here) std::this_thread::yield();
  {
    const LeaderLock turn(mutex);  // it has let go of it
    EXPECT_FALSE(mutex.give_way());
    clock.advance(Nanoseconds(1999));
    EXPECT_FALSE(mutex.give_way());
    clock.advance(Nanoseconds(1));
    EXPECT_TRUE(mutex.give_way());
    EXPECT_FALSE(mutex.give_way()) << "it has just done so";
    mutex.end_leading();
  }
  follower.join();
}

}  // namespace
}  // namespace perdure
