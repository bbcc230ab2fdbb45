// Transactions are all or nothing wherever the power fails: in any flush, in that of recovery, and
// again in the next one.
#include "rpc/redo_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "core/bytes.h"
#include "core/random.h"
#include "pmem/crashable_region.h"
#include "pmem/lent_region.h"

namespace perdure::rpc {
namespace {

constexpr std::uint64_t kBase = 4096;
constexpr std::uint64_t kWords = 64;  // that transactions change, far from one another
constexpr std::uint64_t kStride = 320;
constexpr std::uint64_t kHomeBytes = kWords * kStride;
constexpr std::uint64_t kAreaBytes = 16384;
constexpr std::uint64_t kRegionBytes = kBase + 20480 + 2 * kAreaBytes;

RedoLog::Options redo_options() {
  return {kBase, kHomeBytes, {20480, 20480 + kAreaBytes}, kAreaBytes};
}

std::uint64_t word_of(pmem::Region& region, std::uint64_t word) {
  return load<std::uint64_t>(region.bytes().data() + kBase + word * kStride);
}

/// What the words are after so many transactions: each sets some to its number.
std::vector<std::uint64_t> words_after(std::uint64_t transactions) {
  std::vector<std::uint64_t> words(kWords);
  for (std::uint64_t number = 1; number <= transactions; ++number) {
    words[0] = number;
    for (std::uint64_t step = 0; step < 1 + number % 7; ++step) {
      words[1 + (number * 13 + step * 5) % (kWords - 1)] = number;
    }
  }
  return words;
}

Result<void> change(RedoLog& redo, std::uint64_t number) {
  const auto set = [&](std::uint64_t word) { return redo.write(word * kStride, bytes_of(number)); };
  auto written = set(0);
  for (std::uint64_t step = 0; written.ok() && step < 1 + number % 7; ++step) {
    written = set(1 + (number * 13 + step * 5) % (kWords - 1));
  }
  return written;
}

/// A region whose power fails in one of its flushes, or never.
class Machine {
 public:
  Machine(PersistenceDomain domain, std::uint64_t seed) : random_(seed) {
    region = *pmem::CrashableRegion::open({.bytes = kRegionBytes, .domain = domain});
    region->watch_flushes([this](std::uint64_t) {
      if (cut_in_ != 0 && --cut_in_ == 0) region->power_cut(random_);
    });
  }
  void cut_in(std::uint64_t flushes) { cut_in_ = flushes; }
  /// The power comes back; if it never failed, it does so now.
  void start() {
    cut_in_ = 0;
    if (region->powered()) region->power_cut(random_);
    region->power_on();
  }
  void evict_some() {
    for (std::uint64_t times = random_.below(4); times > 0; --times) region->drain_some(random_);
  }

  Random random_;
  std::unique_ptr<pmem::CrashableRegion> region;

 private:
  std::uint64_t cut_in_ = 0;
};

/// Transactions until the power fails or `last` is done; returns how many were reported.
std::uint64_t run_until_cut(Machine& machine, RedoLog& redo, std::uint64_t done,
                            std::uint64_t last) {
  while (done < last) {
    EXPECT_TRUE(change(redo, done + 1).ok());
    machine.evict_some();
    if (!redo.commit().ok()) break;
    ++done;
    redo.store();
    machine.evict_some();
  }
  return done;
}

TEST(RedoLog, IsAllOrNothingWhereverThePowerFails) {
  int torn_recoveries = 0;
  int gained = 0;  // a transaction that was not reported and is there
  for (const auto domain :
       {PersistenceDomain::Dmp, PersistenceDomain::Page, PersistenceDomain::Mhp}) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", to_string(domain), seed));
      Machine machine(domain, seed);
      std::uint64_t done = 0;
      for (int life = 0; life < 6; ++life) {
        // Recovery may be cut short, twice.
        for (int attempt = 0; attempt < 3; ++attempt) {
          RedoLog redo(*machine.region, redo_options());
          machine.cut_in(attempt < 2 ? machine.random_.below(4) : 0);
          const auto recovered = redo.recover();
          if (!recovered.ok()) {
            ++torn_recoveries;
            machine.start();
            continue;
          }
          machine.cut_in(0);
          const std::uint64_t newest = word_of(*machine.region, 0);
          ASSERT_GE(newest, done) << "a transaction that was reported is lost";
          ASSERT_LE(newest, done + 1);
          gained += newest != done ? 1 : 0;
          done = newest;
          const auto expected = words_after(done);
          for (std::uint64_t word = 0; word < kWords; ++word) {
            ASSERT_EQ(word_of(*machine.region, word), expected[word]) << "word " << word;
          }
          machine.cut_in(1 + machine.random_.below(9));
          done = run_until_cut(machine, redo, done, done + 12);
          break;
        }
        machine.start();
      }
    }
  }
  EXPECT_GT(torn_recoveries, 50);
  EXPECT_GT(gained, 10);
}

// The process dies and the power stays, then the power fails: what recovery has built on must be as
// durable as what it has stored.
TEST(RedoLog, ARecordThatWasOnlyVisibleIsDurableOnceItWasReplayed) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Machine machine(PersistenceDomain::Dmp, seed);
    std::uint64_t newest = 0;
    {
      RedoLog redo(*machine.region, redo_options());
      ASSERT_TRUE(redo.recover().ok());
      run_until_cut(machine, redo, 0, 5);
      // The sixth is visible as a whole when the process dies in its flush.
      machine.region->refuse_flushes(ErrorCode::SystemError, 1, machine.random_);
      ASSERT_TRUE(change(redo, 6).ok());
      EXPECT_FALSE(redo.commit().ok());
    }
    {
      RedoLog redo(*machine.region, redo_options());
      machine.cut_in(machine.random_.below(3));
      const bool recovered = redo.recover().ok();
      newest = recovered ? word_of(*machine.region, 0) : 5;
    }
    machine.start();
    RedoLog redo(*machine.region, redo_options());
    ASSERT_TRUE(redo.recover().ok());
    const std::uint64_t now = word_of(*machine.region, 0);
    ASSERT_GE(now, newest);
    const auto expected = words_after(now);
    for (std::uint64_t word = 0; word < kWords; ++word) {
      ASSERT_EQ(word_of(*machine.region, word), expected[word]) << "seed " << seed;
    }
  }
}

TEST(RedoLog, ReadsItsOwnWrites) {
  Machine machine(PersistenceDomain::Wsp, 1);
  RedoLog redo(*machine.region, redo_options());
  ASSERT_TRUE(redo.recover().ok());
  const std::array<std::byte, 4> first = {std::byte{1}, std::byte{1}, std::byte{1}, std::byte{1}};
  const std::array<std::byte, 2> second = {std::byte{2}, std::byte{2}};
  ASSERT_TRUE(redo.write(100, first).ok());
  const std::size_t mark = redo.mark();
  ASSERT_TRUE(redo.write(102, second).ok());
  std::array<std::byte, 6> seen{};
  redo.read(99, seen);
  EXPECT_EQ(seen, (std::array<std::byte, 6>{std::byte{0}, std::byte{1}, std::byte{1}, std::byte{2},
                                            std::byte{2}, std::byte{0}}));
  redo.roll_back(mark);
  redo.read(99, seen);
  EXPECT_EQ(seen[3], std::byte{1});
  EXPECT_EQ(machine.region->bytes()[kBase + 100], std::byte{0});  // nothing is stored before
}

TEST(RedoLog, RefusesWhatDoesNotFit) {
  Machine machine(PersistenceDomain::Wsp, 1);
  RedoLog redo(*machine.region, redo_options());
  ASSERT_TRUE(redo.recover().ok());
  const std::vector<std::byte> bytes(kAreaBytes);
  EXPECT_EQ(redo.write(0, bytes).code(), ErrorCode::NoSpace);
  EXPECT_EQ(redo.write(kHomeBytes - 4, std::span(bytes).first(8)).code(), ErrorCode::OutOfRange);
  EXPECT_EQ(redo.write(UINT64_MAX - 4, std::span(bytes).first(8)).code(), ErrorCode::OutOfRange);
  EXPECT_TRUE(redo.empty());
  EXPECT_TRUE(redo.write(0, std::span(bytes).first(redo.room())).ok());
  EXPECT_EQ(redo.room(), 0u);
}

/// One of its pages can not be read any more, and zeros stand there.
class LostRegion final : public pmem::LentRegion {
 public:
  using pmem::LentRegion::LentRegion;
  bool is_lost() const override { return lost; }
  Result<void> check() override {
    return lost ? Result<void>(Error{ErrorCode::SystemError, "a page was lost"}) : Result<void>{};
  }
  bool lost = false;
};

// A handler reads from the page that was lost, and writes what follows from that. Expect: the next
// server, which finds the page again, finds no such transaction.
TEST(RedoLog, WhatFollowsFromALostPageIsNeverDurable) {
  Machine machine(PersistenceDomain::Dmp, 1);
  LostRegion region(*machine.region);
  RedoLog redo(region, redo_options());
  ASSERT_TRUE(redo.recover().ok());
  ASSERT_TRUE(change(redo, 1).ok() && redo.commit().ok());
  redo.store();
  region.lost = true;
  ASSERT_TRUE(change(redo, 2).ok());
  EXPECT_EQ(redo.commit().code(), ErrorCode::SystemError);
  RedoLog next(*machine.region, redo_options());
  ASSERT_TRUE(next.recover().ok());
  EXPECT_EQ(word_of(*machine.region, 0), 1u);
}

}  // namespace
}  // namespace perdure::rpc
