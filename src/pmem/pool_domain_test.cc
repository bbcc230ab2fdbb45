// What is declared of a pool, today and before, and what becomes of one that another domain had.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/random.h"
#include "pmem/crashable_region.h"
#include "pmem/lent_region.h"
#include "pmem/medium.h"
#include "pmem/pool.h"
#include "pmem/pool_fixture.h"

namespace perdure::pmem {
namespace {

// The battery was removed, or the line that declared it: today's configuration counts.
TEST_F(PoolFile, AStrongDeclarationEndsWhenNobodyRepeatsIt) {
  PoolOptions options = small_pool();
  options.declared = PersistenceDomain::Wsp;
  ASSERT_TRUE(Pool::create(path_, options).ok());
  const auto domain_with = [&](std::optional<PersistenceDomain> declared) {
    OpenOptions today;
    today.declared = declared;
    return Pool::open(path_, today).value()->region().domain();
  };
  EXPECT_EQ(domain_with(PersistenceDomain::Wsp), PersistenceDomain::Wsp);
  EXPECT_EQ(domain_with(PersistenceDomain::None), PersistenceDomain::None);
  EXPECT_EQ(domain_with(std::nullopt), PersistenceDomain::None);
  const auto info = Pool::inspect(path_);
  EXPECT_EQ(info->domain, PersistenceDomain::None);
  EXPECT_NE(info->evidence.find("not declared here"), std::string::npos) << info->evidence;
}

// Expect: what is less than is required is not made, and nothing of it is left.
TEST_F(PoolFile, OneThatWouldBeLessThanIsRequiredIsNotMade) {
  using enum PersistenceDomain;
  constexpr std::array kAll{None, Page, Dmp, Mhp, Wsp};
  for (const auto required : kAll) {
    // Memory that no battery is declared of.
    PoolOptions options = small_pool();
    options.required = required;
    const auto made = Pool::create(path_, options);
    EXPECT_EQ(made.ok(), required == None) << to_string(required);
    if (!made.ok()) {
      EXPECT_EQ(made.code(), ErrorCode::Unsupported);
      const std::string& message = made.error().message;
      EXPECT_NE(message.find("'orders' would be of domain none here, and " +
                             std::string(to_string(required)) + " at least is required: "),
                std::string::npos)
          << message;
    }
    EXPECT_EQ(directory_.names().size(), made.ok() ? 1u : 0u);
    std::filesystem::remove(path_);
    for (const auto domain : kAll) {
      CrashableRegion::Options memory;
      memory.bytes = kPoolDataOffset + 2 * kPoolPageBytes;
      memory.domain = domain;
      const auto region = CrashableRegion::open(memory);
      ASSERT_TRUE(region.ok());
      std::memset((*region)->bytes().data(), 0x5a, kPoolDataOffset);
      options.data_bytes = kPoolPageBytes;
      const bool fits = Pool::format(std::make_unique<LentRegion>(**region), options).ok();
      EXPECT_EQ(fits, domain >= required) << to_string(domain) << " for " << to_string(required);
      EXPECT_EQ((*region)->bytes()[0] == std::byte{0x5a}, !fits) << "it was written to";
    }
  }
}

// It is what it is when it is made; afterwards its description says so, and who has it decides.
TEST_F(PoolFile, WhatWasRequiredOfItIsNotAskedWhenItIsOpened) {
  PoolOptions options = small_pool();
  options.declared = options.required = PersistenceDomain::Wsp;
  ASSERT_TRUE(Pool::create(path_, options).ok());
  const auto opened = Pool::open(path_, {});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->region().domain(), PersistenceDomain::None);
}

TEST_F(PoolFile, TheUpperLayersPartOfTheFirstStateIsThereFromTheStart) {
  PoolOptions options = small_pool();
  options.opaque = {std::byte{1}, std::byte{2}};
  ASSERT_TRUE(Pool::create(path_, options).ok());
  EXPECT_EQ(Pool::inspect(path_)->state.opaque, options.opaque);
  options.opaque.resize(kOpaqueBytesMax + 1);
  EXPECT_EQ(Pool::create(path_ + "2", options).code(), ErrorCode::InvalidArgument);
}

// It would flush too little of what was durable. What it did not open it has not changed.
TEST_F(PoolFile, WhoRecoversAPoolHasToDeclareItAgain) {
  PoolOptions options = small_pool();
  options.declared = PersistenceDomain::Wsp;
  ASSERT_TRUE(Pool::create(path_, options).value()->close().ok());
  OpenOptions today;
  today.must_be_declared = true;
  const auto refused = Pool::open(path_, today);
  ASSERT_EQ(refused.code(), ErrorCode::Unsupported);
  EXPECT_NE(refused.error().message.find("Declare wsp if that still holds, else none"),
            std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(Pool::inspect(path_)->state.clean_shutdown);
  for (const auto declared : {PersistenceDomain::Wsp, PersistenceDomain::None}) {
    today.declared = declared;
    EXPECT_TRUE(Pool::open(path_, today).ok());
  }
  ASSERT_TRUE(Pool::remove(path_, to_string(Pool::inspect(path_)->header.uuid)).ok());
  ASSERT_TRUE(Pool::create(path_, small_pool()).ok());
  today.declared.reset();
  EXPECT_TRUE(Pool::open(path_, today).ok()) << "nothing was declared of it";
}

// It was made when nothing was declared, and what it was then served as is what counts; until it is
// opened, and made durable, by another domain.
TEST_F(PoolFile, WhatItWasServedAsIsRememberedUntilAllIsDurable) {
  using enum PersistenceDomain;
  ASSERT_TRUE(Pool::create(path_, small_pool()).ok());
  const auto opened = [&](std::optional<PersistenceDomain> declared, bool recovering) {
    OpenOptions today;
    today.declared = declared;
    today.must_be_declared = recovering;
    return Pool::open(path_, today);
  };
  const auto recovers = [&] { return opened(std::nullopt, true).ok(); };
  EXPECT_TRUE(recovers());
  {
    const auto pool = opened(Wsp, false);
    ASSERT_TRUE(pool.ok());
    PoolState state = (*pool)->state();
    ++state.epoch.value;
    state.relied_on.reset();  // the pool's own to keep
    state.opened_by.reset();
    ASSERT_TRUE((*pool)->set_state(state).ok());
  }
  EXPECT_FALSE(recovers());
  EXPECT_NE(Pool::inspect(path_)->evidence.find("relies on domain wsp"), std::string::npos);
  EXPECT_EQ(Pool::inspect(path_)->state.opened_by, Wsp);
  EXPECT_TRUE(opened(None, true).ok());
  EXPECT_FALSE(recovers()) << "nothing is flushed where nothing lasts";
  EXPECT_EQ(Pool::inspect(path_)->state.opened_by, None);
  EXPECT_EQ(Pool::inspect(path_)->state.relied_on, Wsp);
  EXPECT_TRUE(opened(Dmp, true).ok());
  EXPECT_EQ(Pool::inspect(path_)->state.relied_on, Dmp);
}

/// Memory behind the caches of a machine, worked by any domain.
class WorkedBy final : public LentRegion {
 public:
  WorkedBy(CrashableRegion& memory, PersistenceDomain domain)
      : LentRegion(memory), domain_(domain) {}
  PersistenceDomain domain() const override { return domain_; }
  using Region::flush;
  Result<void> flush(std::span<const Range> ranges) override {
    return domain_ == PersistenceDomain::Dmp ? LentRegion::flush(ranges) : Result<void>();
  }

 private:
  const PersistenceDomain domain_;
};

Result<std::unique_ptr<Pool>> open_by(CrashableRegion& memory, PersistenceDomain domain,
                                      std::uint64_t place = 1) {
  OpenOptions today;
  today.declared = domain;
  return Pool::attach_device(std::make_unique<WorkedBy>(memory, domain), "device", place, today);
}

// Declared wsp, or nothing known; then dmp, and the power fails. What dmp acknowledged depends on
// all that it found: the header, the epoch, what was written before.
TEST(PoolOfAnotherDomain, IsDurableByTodaysBeforeAnythingRelies) {
  using enum PersistenceDomain;
  for (const PersistenceDomain before : {None, Mhp, Wsp}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", to_string(before), seed));
      Random random(seed);
      const auto made = CrashableRegion::open({1 << 20, Dmp, {}});
      ASSERT_TRUE(made.ok());
      CrashableRegion& memory = **made;
      const bool made_by_dmp = seed % 2 == 0;
      ASSERT_TRUE(
          Pool::format_device(std::make_unique<WorkedBy>(memory, made_by_dmp ? Dmp : before),
                              small_pool(), "device", 1)
              .ok());
      {
        const auto pool = open_by(memory, before);
        ASSERT_TRUE(pool.ok()) << pool.error().message;
        ASSERT_TRUE((*pool)->set_state(state_of(7, "host:1")).ok());
        std::memset((*pool)->data().data(), 1, (*pool)->data_bytes());
        if (seed % 3 == 0) {
          ASSERT_TRUE((*pool)->close().ok());
        }
      }
      ASSERT_TRUE(open_by(memory, Dmp).ok());
      memory.power_cut(random);
      memory.power_on();
      const auto pool = open_by(memory, Dmp);
      ASSERT_TRUE(pool.ok()) << pool.error().message;
      EXPECT_EQ((*pool)->epoch(), Epoch{7});
      const auto data = (*pool)->data();
      EXPECT_EQ(std::count(data.begin(), data.end(), std::byte{1}), std::ssize(data));
    }
  }
}

// A copy has all that the pool had, and nothing of it is flushed.
TEST(PoolOfAnotherDomain, IsDurableWhereItWasCopiedTo) {
  using enum PersistenceDomain;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto from = CrashableRegion::open({1 << 20, Dmp, {}});
    const auto to = CrashableRegion::open({1 << 20, Dmp, {}});
    ASSERT_TRUE(from.ok() && to.ok());
    ASSERT_TRUE(
        Pool::format_device(std::make_unique<LentRegion>(**from), small_pool(), "device", 1).ok());
    ASSERT_TRUE((*open_by(**from, Dmp))->set_state(state_of(7, "host:1")).ok());
    const auto bytes = (*from)->bytes();
    std::memcpy((*to)->bytes().data(), bytes.data(), bytes.size());
    ASSERT_TRUE(open_by(**to, Dmp, 2).ok());
    (*to)->power_cut(random);
    (*to)->power_on();
    const auto pool = open_by(**to, Dmp, 2);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    EXPECT_EQ((*pool)->epoch(), Epoch{7});
  }
}

// It was opened once by mistake where nothing is declared, and the power failed.
TEST(PoolOfAnotherDomain, OutlivesThatItWasOpenedByNone) {
  using enum PersistenceDomain;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto memory = CrashableRegion::open({1 << 20, Dmp, {}});
    ASSERT_TRUE(memory.ok());
    ASSERT_TRUE(
        Pool::format_device(std::make_unique<LentRegion>(**memory), small_pool(), "device", 1)
            .ok());
    ASSERT_TRUE((*open_by(**memory, Dmp))->set_state(state_of(7, "host:1")).ok());
    // A spare copy of an older Perdure is of long ago, or not there.
    std::memset(&(*memory)->bytes()[kSpareStateOffset], 0, kPoolPageBytes);
    {
      const auto by_mistake = open_by(**memory, None);
      ASSERT_TRUE((*by_mistake)->set_state(state_of(8, "by mistake")).ok());
      ASSERT_TRUE((*by_mistake)->set_state(state_of(9, "by mistake")).ok());
    }
    ASSERT_EQ((*open_by(**memory, None))->epoch(), Epoch{9}) << "without a power failure";
    (*memory)->power_cut(random);
    (*memory)->power_on();
    const auto pool = open_by(**memory, Dmp);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    EXPECT_GE((*pool)->epoch(), Epoch{7});
    EXPECT_EQ((*pool)->state().relied_on, Dmp);
  }
}

TEST_F(PoolFile, AWeakDeclarationStays) {
  TestDirectory disk;
  auto medium = examine_file_system(disk.path());
  ASSERT_TRUE(medium.ok());
  if (medium->found != PersistenceDomain::Page) GTEST_SKIP() << disk.path() << " is not a disk";
  PoolOptions options = small_pool();
  options.declared = PersistenceDomain::None;
  ASSERT_TRUE(Pool::create(disk.file("a.pool"), options).ok());
  EXPECT_EQ(Pool::open(disk.file("a.pool"), {}).value()->region().domain(),
            PersistenceDomain::None);
}

// Declared dmp in memory, then copied to a disk where that is not true.
TEST_F(PoolFile, ADeclarationDoesNotSurviveAMoveToAPageCache) {
  TestDirectory disk;
  auto medium = examine_file_system(disk.path());
  ASSERT_TRUE(medium.ok());
  if (medium->kind != MediumKind::PageCache) GTEST_SKIP() << disk.path() << " is not a disk";
  PoolOptions options = small_pool();
  options.declared = PersistenceDomain::Dmp;
  ASSERT_TRUE(Pool::create(path_, options).ok());
  std::filesystem::copy_file(path_, disk.file("a.pool"));

  EXPECT_EQ(Pool::open(disk.file("a.pool"), {}).value()->region().domain(), medium->found);
  EXPECT_EQ(Pool::inspect(disk.file("a.pool"))->domain, medium->found);
  OpenOptions repeated;
  repeated.declared = PersistenceDomain::Dmp;
  EXPECT_EQ(Pool::open(disk.file("a.pool"), repeated).code(), ErrorCode::Unsupported);
  OpenOptions honest;
  honest.declared = PersistenceDomain::Page;
  EXPECT_TRUE(Pool::open(disk.file("a.pool"), honest).ok());
}

}  // namespace
}  // namespace perdure::pmem
