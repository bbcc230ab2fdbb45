// Who has the pools, and how files are synced: each verdict of each check.
#include "tests/host/machine.h"

namespace perdure::host {
namespace {

using enum Verdict;
using State = pmem::PoolHolder::State;

Machine held(const pmem::PoolHolder& holder) {
  PoolThere pool{"orders", std::nullopt, "", false};
  pool.holder = holder;
  return Machine().pool(pool);
}

TEST(PoolHeader, OfAPoolThatCanNotBeReadIsAProblem) {
  const auto check = check_pool_header;
  const PoolThere whole{"orders", std::nullopt, "", false};
  const PoolThere damaged{"bills", std::nullopt, "bills.pool: not a pool", false};
  const PoolThere closed{"closed", std::nullopt, "closed.pool: denied", true};
  PoolThere blank{"new", std::nullopt, "new.pool: not a pool", false};
  blank.is_blank = true;
  expect(check, Machine(), NotApplicable, "no pool is here");
  expect(check, Machine().pool(whole), Ok, "can be read");
  expect(check, Machine().pool(blank), Ok, "a pool can be made");
  expect(check, Machine().pool(whole).pool(closed), NotKnown, "pool closed may not be read");
  EXPECT_NE(check(Machine().pool(closed).inspected()).root_tells, "");
  expect(check, Machine().pool(whole).pool(damaged), Problem, "pool bills can not be opened");
  InspectedHost many = Machine().pool(whole).inspected();
  many.place.has_more = true;
  expect_whole(check(many));
  EXPECT_EQ(check(many).verdict, NotKnown);
}

TEST(PoolOwner, IsWhoHasTheLockOrTheLease) {
  const auto check = check_pool_owner;
  expect(check, Machine(), NotApplicable, "no pool is here");
  expect(check, held({State::Nobody, ""}), Ok, "nobody has pool orders");
  expect(check, held({State::Held, "process 41"}), Ok, "process 41 has pool orders");
  expect(check, held({State::Held, "process 1 of box", true}), Ok, "another node of the device");
  expect(check, held({State::Ending, "process 41"}), Advice, "has not ended");
  expect(check, held({State::Elsewhere, "process 1 of box", true}), NotKnown,
         "was taken by process 1 of box");
  const Machine closed = Machine().pool({"orders", std::nullopt, "orders.pool: denied", true});
  expect(check, closed, NotKnown, "can not be read");
  EXPECT_NE(check(closed.inspected()).root_tells, "");
}

TEST(PoolOwner, IsNobodyWhereLocksKeepNoOtherMachineOut) {
  InspectedHost shared = held({State::Nobody, ""}).inspected();
  shared.place.medium.local_locks = "locks on virtiofs do not reach other machines";
  const Check check = check_pool_owner(shared);
  EXPECT_EQ(check.verdict, Problem);
  EXPECT_NE(check.finding.find("so none is opened"), std::string::npos) << check.finding;
  expect_whole(check);
  shared.place.pools.clear();
  EXPECT_EQ(check_pool_owner(shared).verdict, Problem) << "nor made";
}

TEST(PoolOwner, TheHeaviestOfSeveralIsTold) {
  Machine machine = held({State::Held, "process 41"});
  PoolThere other{"bills", std::nullopt, "", false};
  other.holder = pmem::PoolHolder{State::Ending, "process 7"};
  expect(check_pool_owner, machine.pool(other), Advice, "process 7, which had pool bills");
}

TEST(PoolQuota, IsAdvisedWhereOthersCanAskForPools) {
  const auto check = check_pool_quota;
  const std::string remote = "[control]\nallow_remote = true\nlisten = \"0.0.0.0:7470\"\n";
  const std::string limited = remote + "[pools]\npool_bytes_max = \"64GiB\"\npools_max = 7\n";
  expect(check, Machine(), Ok, "only this machine's programs");
  expect(check, Machine().config(remote), Advice,
         "until there are 1024 or the file system is full");
  expect(check, Machine().config(limited), Ok, "7 pools at most, of 64 GiB together");
  expect(check, Machine().config("[pools]\nno_such_key = 1\n"), NotKnown, "can not be read");
  const Check blank =
      check(Machine().config("[profile.pool.orders]\ntake_device = true\n").inspected());
  EXPECT_NE(blank.evidence.back().find("pool orders: take_device"), std::string::npos);
}

Machine with_unwritten(std::optional<std::uint64_t> bytes) {
  PoolThere pool{"orders", std::nullopt, "", false};
  pool.bytes = std::uint64_t{1} << 30;
  pool.unwritten_bytes = bytes;
  return Machine().pool(pool);
}

TEST(FileSync, SaysTheWayAndWhatWasNeverWritten) {
  const auto check = check_file_sync;
  expect(check, Machine(), Ok, "by msync");
  expect(check, with_unwritten(0), Ok, "by msync");
  expect(check, with_unwritten(std::nullopt), Ok, "by msync");
  expect(check, with_unwritten(std::uint64_t{768} << 20), Advice,
         "of 1024 MiB, 768 were never written");
  expect(check, Machine().pool({"orders", std::nullopt, "orders.pool: denied", true}), Ok, "msync");
  expect(check, Machine().pool_on(pmem::MediumKind::Dram, PersistenceDomain::None, "tmpfs"),
         NotApplicable, "by a sync");
  expect(check, Machine().pool_on(pmem::MediumKind::Dax, PersistenceDomain::Dmp, "ext4"),
         NotApplicable, "by a sync");
}

}  // namespace
}  // namespace perdure::host
