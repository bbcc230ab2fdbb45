// The laws of who has a device: one at a time, no longer than it lives, and never for ever.
#include "pmem/owner_lease.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "core/bytes.h"
#include "core/unordered_reads.h"
#include "pmem/lent_region.h"
#include "pmem/mapped_region.h"
#include "pmem/owner_process.h"
#include "pmem/sticky_region.h"
#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

constexpr std::uint64_t kAt = 8192;
constexpr std::uint64_t kClaim = kAt + 256;
constexpr std::uint64_t kBeat = kAt + 320;

/// A file that stands for the device: each opener maps it for itself, and none locks it, as with
/// two nodes of one device.
class OwnerLeaseTest : public testing::Test {
 protected:
  OwnerLeaseTest() : path_(directory_.file("device")) {
    auto made = MappedRegion::create(path_, 1 << 16, {});
    EXPECT_TRUE(made.ok());
  }

  std::unique_ptr<MappedRegion> region() const {
    auto file = open_file(path_, OpenMode::ReadWrite);
    EXPECT_TRUE(file.ok());
    auto mapped = MappedRegion::map(std::move(*file), {});
    EXPECT_TRUE(mapped.ok());
    return std::move(*mapped);
  }
  static OwnerLease::Options options(std::string owner, std::string boot_id = "this boot") {
    OwnerLease::Options options;
    options.owner = std::move(owner);
    options.boot_id = std::move(boot_id);
    options.watch = std::chrono::milliseconds{1500};
    return options;
  }
  static Result<std::unique_ptr<OwnerLease>> take(Region& region, const std::string& owner,
                                                  const std::string& boot_id = "this boot") {
    return OwnerLease::take(region, kAt, options(owner, boot_id));
  }
  /// A process that has it, of the given boot.
  HeldChild owner(const std::string& boot_id = "this boot") const {
    return HeldChild([this, boot_id] {
      static auto& mapped = *new std::unique_ptr<MappedRegion>;
      static auto& lease = *new std::unique_ptr<OwnerLease>;
      mapped = region();
      auto taken = take(*mapped, "the first", boot_id);
      if (taken.ok()) lease = std::move(*taken);
      return taken.ok();
    });
  }
  /// The same as the first process of PID and mount namespaces of its own, which ends with this.
  /// Not ready: it was not granted, or there are no such namespaces here.
  HeldChild contained(const std::string& name, bool take_over = false) const {
    return HeldChild([this, name, take_over] {
      int ends[2];
      if (!enter_namespaces() || ::pipe(ends) != 0) return false;
      const pid_t first = ::fork();
      if (first == 0) hold_as_first(name, take_over, ends[1]);
      char answer = 'n';
      return first > 0 && ::read(ends[0], &answer, 1) == 1 && answer == 'y';
    });
  }
  [[noreturn]] void hold_as_first(const std::string& name, bool take_over, int answers) const {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    static auto& mapped = *new std::unique_ptr<MappedRegion>;
    static auto& lease = *new std::unique_ptr<OwnerLease>;
    mapped = region();
    auto asked = options(name);
    asked.take_over = take_over;
    auto taken = OwnerLease::take(*mapped, kAt, asked);
    if (taken.ok()) lease = std::move(*taken);
    const char answer = ::getpid() == 1 && taken.ok() ? 'y' : 'n';
    if (::write(answers, &answer, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  static bool enter_namespaces() {
    return ::unshare(CLONE_NEWPID | CLONE_NEWNS) == 0 ||
           ::unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) == 0;
  }
  static bool has_namespaces() {
    return HeldChild([] { return enter_namespaces(); }).ready();
  }
  /// Until its owner has counted so often. False: it does not.
  static bool beats(Region& region, std::uint64_t count) {
    const std::uint64_t begun = word(region, kBeat);
    const Deadline patience = Deadline::after(std::chrono::seconds{60});
    while (word(region, kBeat) - begun < count && !patience.passed()) (void)::poll(nullptr, 0, 20);
    return word(region, kBeat) - begun >= count;
  }
  /// But for what each beat changes.
  static std::uint64_t claim_of(Region& region) {
    return word(region, kClaim) & ~(std::uint64_t{1} << 32);
  }
  static std::uint64_t word(Region& region, std::uint64_t at) {
    return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(region.bytes().data() + at),
                           __ATOMIC_ACQUIRE);
  }

  TestDirectory directory_{kMemoryFileSystem};
  const std::string path_;
};

TEST_F(OwnerLeaseTest, OneOwnerAtATimeUntilItGivesItBack) {
  const auto one = region();
  const auto two = region();
  auto first = take(*one, "the first");
  ASSERT_TRUE(first.ok()) << first.error().message;
  const auto second = take(*two, "the second");
  ASSERT_EQ(second.code(), ErrorCode::Busy);
  EXPECT_NE(second.error().message.find("the first"), std::string::npos) << second.error().message;
  EXPECT_NE(second.error().message.find("--take-over-device"), std::string::npos);
  first->reset();
  EXPECT_EQ(word(*two, kClaim), 0u);
  EXPECT_TRUE(take(*two, "the second").ok());
}

TEST_F(OwnerLeaseTest, AnOwnerThatWasKilledIsKnownToBeDead) {
  const auto mapped = region();
  HeldChild first = owner();
  ASSERT_TRUE(first.ready());
  EXPECT_EQ(take(*mapped, "the second").code(), ErrorCode::Busy);
  first.kill();
  // Expect: nothing is watched; the kernel has said it.
  auto options_at_once = options("the second");
  options_at_once.watch = std::chrono::hours{1};
  const auto second = OwnerLease::take(*mapped, kAt, options_at_once);
  EXPECT_TRUE(second.ok()) << second.error().message;
}

TEST_F(OwnerLeaseTest, AnOwnerThatIsStoppedIsAlive) {
  const auto mapped = region();
  HeldChild first = owner();
  ASSERT_TRUE(first.ready());
  first.signal(SIGSTOP);
  EXPECT_EQ(take(*mapped, "the second").code(), ErrorCode::Busy);
  first.signal(SIGCONT);
}

// The numbers of their threads are the same, and none sees the other's processes.
TEST_F(OwnerLeaseTest, OfTwoContainersOneGetsItAndTheOtherWhenThatHasEnded) {
  if (!has_namespaces()) GTEST_SKIP() << "no PID and mount namespaces here";
  const auto mapped = region();
  HeldChild first = contained("the first");
  ASSERT_TRUE(first.ready());
  const std::uint64_t claim = claim_of(*mapped);
  {
    HeldChild second = contained("the second");
    EXPECT_FALSE(second.ready());
  }
  // Expect: the end of the second, who never had it, says nothing about the first.
  ASSERT_TRUE(beats(*mapped, 2));
  EXPECT_EQ(claim_of(*mapped), claim);
  first.kill();
  const Deadline patience = Deadline::after(std::chrono::seconds{60});
  bool granted = false;
  while (!granted && !patience.passed()) granted = contained("the third").ready();
  EXPECT_TRUE(granted);
}

TEST_F(OwnerLeaseTest, TheEndOfAnOwnerWhoLostItIsNotTheEndOfTheNextOne) {
  if (!has_namespaces()) GTEST_SKIP() << "no PID and mount namespaces here";
  const auto mapped = region();
  HeldChild first = contained("the first");
  ASSERT_TRUE(first.ready());
  const std::uint64_t before = word(*mapped, kClaim);
  HeldChild second = contained("the second", true);
  ASSERT_TRUE(second.ready());
  const std::uint64_t claim = claim_of(*mapped);
  ASSERT_NE(claim >> 32, before >> 32);
  EXPECT_EQ(claim & 0xFFFFFFFF, before & 0xFFFFFFFF) << "threads of the same number were meant";
  first.kill();
  // Expect: whatever the kernel marks then, the second takes back.
  ASSERT_TRUE(beats(*mapped, 4));
  EXPECT_EQ(claim_of(*mapped), claim);
  EXPECT_EQ(take(*mapped, "the third").code(), ErrorCode::Busy);
}

TEST_F(OwnerLeaseTest, AMarkThatWasMeantForAnotherIsTakenBack) {
  constexpr std::uint64_t kOwnerDied = std::uint64_t{1} << 30;
  const auto mapped = region();
  const auto first = take(*mapped, "the first");
  ASSERT_TRUE(first.ok());
  const std::uint64_t claim = claim_of(*mapped);
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(mapped->bytes().data() + kClaim),
                   (claim >> 32 << 32) | (1ULL << 32) | kOwnerDied, __ATOMIC_RELEASE);
  ASSERT_TRUE(beats(*mapped, 2));
  EXPECT_EQ(claim_of(*mapped), claim);
  EXPECT_TRUE((*first)->check().ok());
}

TEST_F(OwnerLeaseTest, AnOwnerBeforeARestartOfTheMachineIsDead) {
  const auto mapped = region();
  HeldChild first = owner("the boot before");
  ASSERT_TRUE(first.ready());
  first.kill();
  // What a power failure may leave: the claim as it was while its owner lived.
  store(mapped->bytes().data() + kClaim, word(*mapped, kClaim) & ~std::uint64_t{1U << 30});
  const auto second = take(*mapped, "the second");
  EXPECT_TRUE(second.ok()) << second.error().message;
}

TEST_F(OwnerLeaseTest, AnOwnerOfAnotherBootThatCountsIsAlive) {
  const auto mapped = region();
  HeldChild first = owner("another machine beside this one");
  ASSERT_TRUE(first.ready());
  const auto second = take(*mapped, "the second");
  ASSERT_EQ(second.code(), ErrorCode::Busy);
  EXPECT_NE(second.error().message.find("alive"), std::string::npos) << second.error().message;
}

// /proc/sys is hidden (ProcSubset=pid): after a restart the name of the boot is what it was before.
TEST_F(OwnerLeaseTest, AnOwnerOfABootThatHasNoNameIsWatched) {
  const auto mapped = region();
  HeldChild first = owner(kUnknownBoot);
  ASSERT_TRUE(first.ready());
  const auto at_once = take(*mapped, "the second", kUnknownBoot);
  ASSERT_EQ(at_once.code(), ErrorCode::Busy);
  EXPECT_NE(at_once.error().message.find("alive"), std::string::npos) << at_once.error().message;
  first.kill();
  // What a power failure may leave: the claim as it was while its owner lived.
  store(mapped->bytes().data() + kClaim, word(*mapped, kClaim) & ~std::uint64_t{1U << 30});
  {
    const auto second = take(*mapped, "the second", kUnknownBoot);
    ASSERT_TRUE(second.ok()) << second.error().message;
  }
  // Nor is it that of whoever reads a torn description.
  HeldChild third = owner(kUnknownBoot);
  ASSERT_TRUE(third.ready());
  mapped->bytes()[kAt + 70] ^= std::byte{1};
  third.kill();
  store(mapped->bytes().data() + kClaim, word(*mapped, kClaim) & ~std::uint64_t{1U << 30});
  const auto fourth = take(*mapped, "the fourth", kUnknownBoot);
  EXPECT_TRUE(fourth.ok()) << fourth.error().message;
}

// Copied while its owner lived: here nobody marks its end.
TEST_F(OwnerLeaseTest, InACopyOfItsDeviceAnOwnerHasNothing) {
  const auto of_device = [](const char* name, std::uint64_t place) {
    OwnerLease::Options asked = options(name);
    asked.place = place;
    return asked;
  };
  const auto mapped = region();
  const auto first = OwnerLease::take(*mapped, kAt, of_device("the first", 1));
  ASSERT_TRUE(first.ok()) << first.error().message;
  auto copied = MappedRegion::create(directory_.file("copy"), 1 << 16, {});
  ASSERT_TRUE(copied.ok());
  const auto copy = [&] {
    const UnorderedReads of_what_its_owner_beats;
    std::ranges::copy(mapped->bytes().subspan(kAt, kOwnerLeaseBytes),
                      (*copied)->bytes().begin() + kAt);
  };
  const auto seen = [&](std::uint64_t place) {
    const UnorderedReads of_what_its_owner_beats;
    return look_at_lease((*copied)->bytes().subspan(kAt, kOwnerLeaseBytes), "this boot", place)
        .state;
  };
  copy();
  EXPECT_EQ(seen(1), LeaseSeen::State::Held);
  EXPECT_EQ(seen(0), LeaseSeen::State::Held);  // by who does not know where it is
  EXPECT_EQ(seen(2), LeaseSeen::State::Elsewhere);
  EXPECT_EQ(OwnerLease::take(**copied, kAt, of_device("the second", 1)).code(), ErrorCode::Busy);
  const auto second = OwnerLease::take(**copied, kAt, of_device("the second", 2));
  EXPECT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(seen(2), LeaseSeen::State::Held);
  EXPECT_TRUE((*first)->check().ok());
}

// Its number is another one only in name: whoever beats there lives.
TEST_F(OwnerLeaseTest, AnOwnerThatBeatsHasItWhateverTheDeviceIsCalled) {
  const auto mapped = region();
  auto asked = options("the first");
  asked.place = 1;
  const auto first = OwnerLease::take(*mapped, kAt, asked);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const auto other = region();
  asked.place = 2;
  const auto second = OwnerLease::take(*other, kAt, asked);
  ASSERT_EQ(second.code(), ErrorCode::Busy);
  EXPECT_NE(second.error().message.find("alive"), std::string::npos) << second.error().message;
}

TEST_F(OwnerLeaseTest, WhatACrashTearsOfTheDescriptionIsNobody) {
  const auto mapped = region();
  { auto first = take(*mapped, "the first", "the boot before"); }
  store(mapped->bytes().data() + kClaim, std::uint64_t{0x1234567800000007});
  mapped->bytes()[kAt + 70] ^= std::byte{1};
  const auto second = take(*mapped, "the second");
  EXPECT_TRUE(second.ok()) << second.error().message;
}

// Who only looks takes nothing, and waits for nothing.
TEST_F(OwnerLeaseTest, WhoHasItCanBeSeen) {
  using State = LeaseSeen::State;
  const auto mapped = region();
  const auto seen = [&](const char* boot_id) {
    return look_at_lease(mapped->bytes().subspan(kAt, kOwnerLeaseBytes), boot_id);
  };
  EXPECT_EQ(seen("this boot").state, State::Free);
  HeldChild first = owner();
  ASSERT_TRUE(first.ready());
  const std::uint64_t claim = claim_of(*mapped);
  EXPECT_EQ(seen("this boot").state, State::Held);
  EXPECT_EQ(seen("this boot").owner, "the first");
  EXPECT_EQ(seen("another boot").state, State::Elsewhere);
  EXPECT_EQ(claim_of(*mapped), claim);
  // Its description is torn: it is held all the same.
  mapped->bytes()[kAt + 70] ^= std::byte{1};
  EXPECT_EQ(seen("this boot").state, State::Held);
  EXPECT_EQ(seen("this boot").owner, "");
  mapped->bytes()[kAt + 70] ^= std::byte{1};
  first.kill();
  EXPECT_EQ(seen("this boot").state, State::Free);
  EXPECT_EQ(seen("another boot").state, State::Elsewhere) << "the mark is of this kernel";
}

TEST_F(OwnerLeaseTest, AnOperatorTakesItFromWhoeverHasIt) {
  const auto mapped = region();
  HeldChild first = owner();
  ASSERT_TRUE(first.ready());
  auto by_force = options("the second");
  by_force.take_over = true;
  auto second = OwnerLease::take(*mapped, kAt, by_force);
  ASSERT_TRUE(second.ok()) << second.error().message;
  const std::uint64_t claim = claim_of(*mapped);
  first.kill();  // its end is its own
  EXPECT_EQ(claim_of(*mapped), claim);
  const auto other = region();
  EXPECT_EQ(take(*other, "the third").code(), ErrorCode::Busy);
}

// Expect: nothing is durable any more by its word, and it leaves the other one's lease alone.
TEST_F(OwnerLeaseTest, AnOwnerWhoLostItKnowsItBeforeItSaysAnythingMore) {
  const auto one = region();
  const auto two = region();
  auto first = take(*one, "the first");
  ASSERT_TRUE(first.ok());
  StickyRegion sticky(std::make_unique<LentRegion>(*one), first->get());
  ASSERT_TRUE(sticky.flush(0, 64).ok());
  auto by_force = options("the second");
  by_force.take_over = true;
  auto second = OwnerLease::take(*two, kAt, by_force);
  ASSERT_TRUE(second.ok()) << second.error().message;
  const auto late = sticky.flush(0, 64);
  ASSERT_EQ(late.code(), ErrorCode::SystemError);
  EXPECT_NE(late.error().message.find("another owner"), std::string::npos) << late.error().message;
  EXPECT_EQ(first->get()->check().code(), ErrorCode::SystemError);
  EXPECT_FALSE(one->check().ok());
  EXPECT_TRUE(two->check().ok());
  const std::uint64_t claim = claim_of(*two);
  first->reset();
  EXPECT_EQ(claim_of(*two), claim);
  EXPECT_TRUE(second->get()->check().ok());
}

TEST_F(OwnerLeaseTest, TheConnectionsOfAnOwnerWhoLostItAreCutUnasked) {
  const auto one = region();
  const auto two = region();
  std::atomic<bool> cut{false};
  const auto tie = one->cut_on_failure(CutSwitch{-1, &cut});
  auto first = take(*one, "the first");
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(cut.load());
  auto by_force = options("the second");
  by_force.take_over = true;
  ASSERT_TRUE(OwnerLease::take(*two, kAt, by_force).ok());
  const Deadline patience = Deadline::after(std::chrono::seconds{60});
  while (!cut.load() && !patience.passed()) (void)::poll(nullptr, 0, 20);
  EXPECT_TRUE(cut.load());
}

// Whoever watched it begins with what it saw at first.
TEST_F(OwnerLeaseTest, AnOwnerThatBeatsAtTheLastMomentKeepsIt) {
  const auto mapped = region();
  auto first = take(*mapped, "the first");
  ASSERT_TRUE(first.ok());
  const std::uint64_t seen = word(*mapped, kClaim);
  ASSERT_TRUE(beats(*mapped, 1));
  EXPECT_NE(word(*mapped, kClaim), seen);
  EXPECT_EQ(look_at_lease(mapped->bytes().subspan(kAt, kOwnerLeaseBytes), "this boot").owner,
            "the first");
}

// A machine that stood still, beside another one that shares the device.
TEST_F(OwnerLeaseTest, AnOwnerThatStoodStillAcknowledgesNothingWhenItWakes) {
  constexpr std::uint64_t kToldYes = 16384;
  constexpr std::uint64_t kToldNo = 16448;
  const auto mapped = region();
  HeldChild first([this] {
    static auto& own = *new std::unique_ptr<MappedRegion>(region());
    static auto& lease = *new std::unique_ptr<OwnerLease>;
    auto taken = take(*own, "the first", "another machine");
    if (!taken.ok()) return false;
    lease = std::move(*taken);
    std::thread([] {
      StickyRegion sticky(std::make_unique<LentRegion>(*own), lease.get());
      for (;;) {
        const std::uint64_t to = sticky.flush(0, 64).ok() ? kToldYes : kToldNo;
        auto* const count = reinterpret_cast<std::uint64_t*>(own->bytes().data() + to);
        __atomic_fetch_add(count, 1, __ATOMIC_RELEASE);
        (void)::poll(nullptr, 0, 1);
      }
    }).detach();
    return true;
  });
  ASSERT_TRUE(first.ready());
  first.signal(SIGSTOP);
  auto second = take(*mapped, "the second", "this machine");
  ASSERT_TRUE(second.ok()) << second.error().message;
  const std::uint64_t before = word(*mapped, kToldYes);
  first.signal(SIGCONT);
  const Deadline patience = Deadline::after(std::chrono::seconds{60});
  while (word(*mapped, kToldNo) < 10 && !patience.passed()) (void)::poll(nullptr, 0, 20);
  EXPECT_GE(word(*mapped, kToldNo), 10u);
  // One that was flushed before it stood still may be counted when it wakes.
  EXPECT_LE(word(*mapped, kToldYes), before + 1);
  EXPECT_TRUE(second->get()->check().ok());
}

TEST_F(OwnerLeaseTest, OfManyWhoComeAtOnceOneGetsIt) {
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> won{0};
    std::atomic<int> came{0};
    std::vector<std::thread> threads;
    constexpr int kThreads = 6;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        const auto mapped = region();
        auto taken = take(*mapped, "one of many");
        if (taken.ok()) won.fetch_add(1);
        came.fetch_add(1);
        while (came.load() < kThreads) std::this_thread::yield();  // the winner keeps it that long
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(won.load(), 1);
  }
}

TEST_F(OwnerLeaseTest, TheBeatGoesOnForAsLongAsItIsHeld) {
  const auto mapped = region();
  auto first = take(*mapped, "the first");
  ASSERT_TRUE(first.ok());
  const std::uint64_t before = word(*mapped, kBeat);
  const Deadline deadline = Deadline::after(std::chrono::seconds{20});
  while (word(*mapped, kBeat) < before + 2 && !deadline.passed()) std::this_thread::yield();
  EXPECT_GE(word(*mapped, kBeat), before + 2);
  first->reset();
}

}  // namespace
}  // namespace perdure::pmem
