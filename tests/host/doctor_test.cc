// The checklist as a whole: every check is whole, explained in the documentation, and printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/json.h"
#include "pmem/pool.h"
#include "server/served_pool.h"
#include "tests/host/machine.h"

namespace perdure::host {
namespace {

/// The anchors of a page: its headings, in small letters, with hyphens for spaces.
std::set<std::string> anchors_of(const std::string& page) {
  std::ifstream in(page);
  std::set<std::string> anchors;
  for (std::string line; std::getline(in, line);) {
    const std::size_t text = line.find_first_not_of('#');
    if (text == 0 || text == std::string::npos || line[text] != ' ') continue;
    std::string anchor = line.substr(text + 1);
    std::replace(anchor.begin(), anchor.end(), ' ', '-');
    anchors.insert(anchor);
  }
  return anchors;
}

TEST(Doctor, EachCheckHasItsSectionInTheDocumentation) {
  const auto anchors = anchors_of(HARDWARE_PAGE);
  ASSERT_FALSE(anchors.empty()) << HARDWARE_PAGE;
  for (const Check& check : check_host(Machine().inspected())) {
    EXPECT_TRUE(anchors.contains(check.name)) << check.name;
  }
}

TEST(Doctor, EveryCheckOfAMachineWithNothingIsWhole) {
  const auto checks = check_host(Machine().inspected());
  EXPECT_EQ(checks.size(), 38u);
  std::set<std::string> names;
  for (const Check& check : checks) {
    expect_whole(check);
    EXPECT_TRUE(names.insert(check.name).second) << check.name;
  }
}

TEST(Doctor, LooksAtThisMachineAndLeavesNothingBehind) {
  pmem::TestDirectory place;
  const auto inspected = inspect_host(place.path(), place.file("perdured.toml"));
  ASSERT_TRUE(inspected.ok()) << inspected.error().message;
  for (const Check& check : check_host(*inspected)) expect_whole(check);
  EXPECT_TRUE(place.names().empty());
  EXPECT_EQ(inspect_host("/no/such/place", "").code(), ErrorCode::NotFound);
}

TEST(Doctor, CountsTheBytesOfThePools) {
  pmem::TestDirectory place;
  pmem::write_all(place.file("a.pool"), std::vector<char>(100));
  pmem::write_all(place.file("b.pool"), std::vector<char>(23));
  pmem::write_all(place.file("notes"), std::vector<char>(7));
  EXPECT_EQ(inspect_host(place.path(), "")->place.pool_bytes, 123u);
  EXPECT_EQ(inspect_host(place.file("b.pool"), "")->place.pool_bytes, 23u);
}

TEST(Doctor, LooksAtPoolsBehindAnyNumberOfOtherFiles) {
  pmem::TestDirectory place;
  for (int i = 0; i < 4200; ++i) pmem::write_all(place.file(std::to_string(i)), {});
  for (int i = 0; i < 3; ++i) pmem::write_all(place.file(std::to_string(i) + ".pool"), {});
  const auto inspected = inspect_host(place.path(), "");
  ASSERT_TRUE(inspected.ok()) << inspected.error().message;
  EXPECT_EQ(inspected->place.pools.size(), 3u);
  EXPECT_FALSE(inspected->place.has_more);
}

TEST(Doctor, SaysWhenThereAreMorePoolsThanItLooksAt) {
  pmem::TestDirectory place;
  for (int i = 0; i < 4097; ++i) pmem::write_all(place.file(std::to_string(i) + ".pool"), {});
  const auto inspected = inspect_host(place.path(), "");
  ASSERT_TRUE(inspected.ok()) << inspected.error().message;
  EXPECT_EQ(inspected->place.pools.size(), 4096u);
  EXPECT_TRUE(inspected->place.has_more);
}

TEST(Doctor, ReadsWhatPoolsWereMadeWith) {
  pmem::TestDirectory place(pmem::kMemoryFileSystem);
  pmem::PoolOptions options;
  options.name = "orders";
  options.data_bytes = 1 << 16;
  options.declared = PersistenceDomain::Wsp;
  ASSERT_TRUE(pmem::Pool::create(place.file("orders.pool"), options).ok());
  options.declared.reset();
  ASSERT_TRUE(pmem::Pool::create(place.file("scratch.pool"), options).ok());
  pmem::write_all(place.file("torn.pool"), std::vector<char>(100));
  const auto inspected = inspect_host(place.path(), place.file("perdured.toml"));
  ASSERT_TRUE(inspected.ok()) << inspected.error().message;
  const auto& pools = inspected->place.pools;
  ASSERT_EQ(pools.size(), 3u);
  EXPECT_EQ(pools[0].name, "orders");
  EXPECT_EQ(pools[0].declared, PersistenceDomain::Wsp);
  EXPECT_EQ(pools[1].declared, std::nullopt);
  EXPECT_NE(pools[2].unreadable, "");
  EXPECT_FALSE(pools[2].forbidden);
  EXPECT_GE(pools[0].bytes, std::uint64_t{1} << 16);
  ASSERT_TRUE(pools[0].holder.has_value());
  EXPECT_EQ(pools[0].holder->state, pmem::PoolHolder::State::Nobody);
  const Check check = check_declared_domain(*inspected);
  EXPECT_EQ(check.verdict, Verdict::Problem) << check.finding;
  // Looking took nothing: it opens, with its declaration.
  pmem::OpenOptions again;
  again.declared = PersistenceDomain::Wsp;
  EXPECT_TRUE(pmem::Pool::open(place.file("orders.pool"), again).ok());
}

// The name of a pool may be a link to where it lies.
TEST(Doctor, LooksAtWhatEachPoolLiesOn) {
  pmem::TestDirectory place;
  pmem::TestDirectory memory(pmem::kMemoryFileSystem);
  pmem::PoolOptions options;
  options.data_bytes = 1 << 16;
  ASSERT_TRUE(pmem::Pool::create(memory.file("orders.pool"), options).ok());
  std::filesystem::create_symlink(memory.file("orders.pool"), place.file("orders.pool"));
  std::filesystem::create_symlink(place.file("nowhere"), place.file("bills.pool"));
  const auto inspected = inspect_host(place.path(), "");
  ASSERT_TRUE(inspected.ok()) << inspected.error().message;
  ASSERT_EQ(inspected->place.pools.size(), 2u);
  EXPECT_TRUE(inspected->place.pools[0].is_unseen);
  const auto storages = inspected->storages();
  ASSERT_EQ(storages.size(), 1u);
  EXPECT_EQ(storages[0].medium.kind, pmem::MediumKind::Dram);
  EXPECT_EQ(storages[0].domain, PersistenceDomain::None);
  EXPECT_GE(inspected->place.pool_bytes, std::uint64_t{1} << 16);
  EXPECT_EQ(check_pool_file_system(*inspected).verdict, Verdict::Problem);
  EXPECT_EQ(check_pool_header(*inspected).verdict, Verdict::Problem);  // bills
}

TEST(Doctor, ReadsWhereReceiveBuffersAre) {
  pmem::TestDirectory place;
  pmem::PoolOptions options;
  options.data_bytes = 1 << 20;
  for (const auto where : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
    const std::string file = place.file(where == ReceiveBuffers::Pm ? "pm.pool" : "dram.pool");
    auto made = pmem::Pool::create(file, options);
    ASSERT_TRUE(made.ok());
    server::PoolSettings settings;
    settings.receive_buffers = where;
    ASSERT_TRUE(server::ServedPool::adopt(std::move(made).value(), settings, {4, 4096}).ok());
  }
  const auto inspected = inspect_host(place.path(), "");
  ASSERT_TRUE(inspected.ok()) << inspected.error().message;
  ASSERT_EQ(inspected->place.pools.size(), 2u);
  EXPECT_FALSE(inspected->place.pools[0].has_receive_buffers);
  EXPECT_TRUE(inspected->place.pools[1].has_receive_buffers);
  EXPECT_EQ(inspected->place.pools[1].data_bytes, std::uint64_t{1} << 20);
}

TEST(Doctor, RootIsNotToldWhatRootWouldTell) {
  const Machine machine = Machine().rdma();
  InspectedHost inspected = machine.inspected();
  const auto would_tell = [](const Check& check) { return !check.root_tells.empty(); };
  inspected.is_root = false;
  const auto as_user = check_host(inspected);
  EXPECT_TRUE(std::any_of(as_user.begin(), as_user.end(), would_tell));
  inspected.is_root = true;
  const auto as_root = check_host(inspected);
  EXPECT_FALSE(std::any_of(as_root.begin(), as_root.end(), would_tell));
}

TEST(Doctor, TheHeaviestFindingIsTheVerdict) {
  Check check("x");
  check.find_nothing("nothing", "/sys/x: is not there");
  check.find(Verdict::Advice, "advice", "do", {"true"});
  check.find(Verdict::Ok, "ok");
  check.find(Verdict::Advice, "other advice", "do", {"false"});
  EXPECT_EQ(check.finding, "advice");
  check.find(Verdict::Problem, "problem", "do", {"true"});
  check.find(Verdict::NotKnown, "not known", "do", {"true"});
  EXPECT_EQ(check.verdict, Verdict::Problem);
  EXPECT_EQ(check.finding, "problem");
}

TEST(Doctor, TextAndJsonSayTheSame) {
  Machine machine = Machine().rdma({.state = "1: DOWN"});
  // Ok, and yet root would tell more: the environment of perdured.
  machine.file("/proc/41/comm", "perdured\n").unreadable("/proc/41/environ");
  const InspectedHost inspected = machine.inspected();
  const auto checks = check_host(inspected);
  const auto json = nlohmann::json::parse(doctor_json(inspected, checks));
  const std::string text = doctor_text(inspected, checks);
  EXPECT_EQ(json["format"], 1);
  ASSERT_EQ(json["checks"].size(), checks.size());
  std::map<std::string, std::size_t> counts;
  for (std::size_t i = 0; i < checks.size(); ++i) {
    const auto& each = json["checks"][i];
    ++counts[each["verdict"]];
    EXPECT_EQ(each["name"], checks[i].name);
    EXPECT_EQ(each["section"], "docs/hardware.md#" + checks[i].name);
    EXPECT_EQ(each["evidence"].size(), checks[i].evidence.size());
    EXPECT_EQ(each.contains("to_do"), !checks[i].advice.empty());
    EXPECT_NE(text.find(checks[i].name + ": " + checks[i].finding), std::string::npos);
    EXPECT_EQ(each.contains("root_would_tell"), !checks[i].root_tells.empty());
    if (!checks[i].root_tells.empty()) {
      EXPECT_NE(text.find("root would tell: " + checks[i].root_tells), std::string::npos);
    }
    if (!checks[i].advice.empty()) {
      EXPECT_NE(text.find("to do: " + checks[i].advice), std::string::npos);
      EXPECT_NE(text.find("$ " + checks[i].commands[0]), std::string::npos);
    }
  }
  for (const auto& [verdict, count] : counts) EXPECT_EQ(json["counts"][verdict], count) << verdict;
  EXPECT_GE(counts["problem"], 1u);
  EXPECT_NE(text.find("38 checks: "), std::string::npos);
}

}  // namespace
}  // namespace perdure::host
