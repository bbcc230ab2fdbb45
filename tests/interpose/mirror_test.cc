// `perdure mirror run`: programs of PMDK, unmodified, whose files are mirrored by three real
// perdured processes; killed at random times. The judge reads the pools' files.
#include <gtest/gtest.h>
#include <perdure/mirror.h>

#include <nlohmann/json.hpp>

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/random.h"
#include "testing/process.h"
#include "testing/soak.h"
#include "tests/cli/cluster.h"

namespace perdure {
namespace {

using cli::Outcome;

constexpr std::uint64_t kDataInFile = 65536 + 12288;  // of the pool, and of the mirror in it

/// Without looking at each byte, as cli::read_file does.
std::string part_of(const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
  std::string part(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(part.data(), static_cast<std::streamsize>(bytes));
  part.resize(static_cast<std::size_t>(file.gcount()));
  return part;
}

class MirrorRun : public testing::Test {
 protected:
  MirrorRun() : cluster_("16MiB"), place_("/dev/shm") { ::setenv("PMEM_IS_PMEM_FORCE", "1", 1); }
  ~MirrorRun() override { ::unsetenv("PMEM_IS_PMEM_FORCE"); }

  std::vector<std::string> mirrored(const std::string& file, std::vector<std::string> program,
                                    const std::string& pool = "orders") const {
    std::vector<std::string> all{"mirror",    "run",      "--peers",        cluster_.all(),
                                 "--scratch", "/dev/shm", "--timeout-ms",   "3000",
                                 "--quorum",  "2",        "--take-over",    "--transport",
                                 "tcp",       "--map",    file + "=" + pool};
    all.emplace_back("--");
    all.insert(all.end(), program.begin(), program.end());
    return all;
  }
  /// Whether /var/tmp is where the time of a file's change is trusted.
  static bool times_are_trusted() {
    struct statfs system = {};
    if (::statfs("/var/tmp", &system) != 0) return false;
    const auto type = static_cast<unsigned long>(system.f_type);
    return type == EXT4_SUPER_MAGIC || type == XFS_SUPER_MAGIC || type == BTRFS_SUPER_MAGIC;
  }
  /// What `mirrored` prints as a document.
  static nlohmann::json document(std::vector<std::string> command) {
    command.insert(command.begin() + 2, {"--format", "json"});
    const Outcome ran = cli::run(command);
    cli::expect_valid(ran, "mirror-run.schema.json");
    return nlohmann::json::parse(ran.out);
  }
  /// Waits until it is so, at most a minute.
  template <typename Condition>
  static bool await(const Condition& condition) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (!condition() && !deadline.passed()) test::pause_for(std::chrono::milliseconds(20));
    return condition();
  }
  /// What peer `index` has of a file of so many bytes.
  std::string copy_at(std::size_t index, std::uint64_t bytes,
                      const std::string& pool = "orders") const {
    const auto pools = std::filesystem::path(cluster_.pool_file(index)).parent_path();
    return part_of(pools / (pool + ".pool"), kDataInFile, bytes);
  }
  /// How many replicas have the file byte for byte.
  int equal_copies(const std::string& file, const std::string& pool = "orders") const {
    const std::string whole = part_of(file, 0, std::filesystem::file_size(file));
    int equal = 0;
    for (std::size_t i = 0; i < cli::kPeers; ++i) {
      equal += copy_at(i, whole.size(), pool) == whole ? 1 : 0;
    }
    return equal;
  }
  void create_pool(const std::string& name) const {
    const Outcome made =
        cli::run({"pool", "create", "--peers", cluster_.all(), "--pool", name, "--bytes", "16MiB"});
    ASSERT_EQ(made.status, 0) << made.err;
  }

  /// The program, started by these words, maps a file anew while the quorum is away.
  void expect_mapping_waits(std::vector<std::string> program, const std::string& how = "waits") {
    const std::string file = place_.file("file");
    program.insert(program.end(), {CLIENT, how, file, "20"});
    cli::CommandProcess running(mirrored(file, program));
    ASSERT_TRUE(await([&] { return cli::contains(running.out(), "ready"); })) << running.err();
    cluster_.kill(1);
    cluster_.kill(2);
    cli::write_file(file + ".go", "");
    EXPECT_TRUE(await([&] { return cli::contains(running.err(), "waits for its replicas"); }));
    EXPECT_TRUE(running.running());
    cluster_.start(1);
    cluster_.start(2);
    const Outcome ran = running.wait();
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_TRUE(cli::contains(ran.err, "are back")) << ran.err;
    EXPECT_GE(equal_copies(file), 2);
  }

  cli::Cluster cluster_;
  const test::TestDirectory place_;
};

// Persistent memory, as libpmem takes it, and ordinary files.
class MirrorRunOn : public MirrorRun, public testing::WithParamInterface<const char*> {
 protected:
  MirrorRunOn() { ::setenv("PMEM_IS_PMEM_FORCE", GetParam(), 1); }
};

INSTANTIATE_TEST_SUITE_P(MemoryAndFiles, MirrorRunOn, testing::Values("1", "0"));

TEST_P(MirrorRunOn, WhatEachLibraryPersistsIsOnTheReplicas) {
  const std::string file = place_.file("file");
  int count = 50;
  for (const std::string how : {"pmem", "each", "pmem2", "each2", "msync"}) {
    // Another number each time: what is stored is not there already.
    const Outcome ran = cli::run(mirrored(file, {CLIENT, how, file, std::to_string(++count)}));
    EXPECT_EQ(ran.status, 0) << how << ": " << ran.err;
    EXPECT_GE(equal_copies(file), 2) << how;
  }
  // Negative control: a byte that was never persisted makes them differ.
  std::string whole = cli::read_file(file);
  whole[12345] = static_cast<char>(whole[12345] + 1);
  cli::write_file(file, whole);
  EXPECT_EQ(equal_copies(file), 0);
}

// On a file libpmemobj persists by pmem_msync. Expect: what four threads counted is on the
// replicas.
TEST_P(MirrorRunOn, WhatLibpmemobjPersistsIsOnTheReplicas) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "obj", file, "777", "4"}));
  ASSERT_EQ(ran.status, 0) << ran.err;
  const std::string copy = copy_at(0, std::filesystem::file_size(file));
  int counted = 0;
  for (std::size_t line = 0; line + 64 <= copy.size(); line += 64) {
    std::uint64_t value = 0;
    std::memcpy(&value, copy.data() + line, sizeof value);
    counted += value == 777 ? 1 : 0;
  }
  EXPECT_EQ(counted, 4);
  cli::write_file(place_.file("copy"), copy);
  const std::vector<std::string> check{"check", place_.file("copy")};
  const Outcome sound = cli::CommandProcess(check, "/dev/null", "", "/usr/bin/pmempool").wait();
  EXPECT_EQ(sound.status, 0) << sound.out << sound.err;
}

// The libraries are loaded while the program runs, for itself alone, and their functions are looked
// up by handle, as ctypes of Python does.
TEST_F(MirrorRun, WhatAProgramLoadsWhileItRunsIsMirrored) {
  const std::string file = place_.file("file");
  const auto ran = document(mirrored(file, {LOADER, file}));
  EXPECT_TRUE(ran["ok"].get<bool>()) << ran;
  EXPECT_EQ(ran["flushes"], 7) << ran;
  EXPECT_EQ(part_of(file, 6 * 4096, 1), std::string(1, '\1'));
  EXPECT_GE(equal_copies(file), 2);
}

TEST_F(MirrorRun, AFileThatGrowsIsFollowed) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "grow", file, "20"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(std::filesystem::file_size(file), std::uint64_t{2} << 20);
  EXPECT_GE(equal_copies(file), 2);
  // Larger than the pools: the program can not map it.
  const std::string large = place_.file("large");
  cli::write_file(large, "");
  std::filesystem::resize_file(large, 64 << 20);
  const Outcome refused = cli::run(mirrored(large, {CLIENT, "pmem", large, "1"}));
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(cli::contains(refused.err, "has room for")) << refused.err;
}

class MirrorRunOf : public MirrorRun, public testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(ThreadsAndAChild, MirrorRunOf, testing::Values("obj", "fork"));

TEST_P(MirrorRunOf, TheCopyIsAPoolThatPmempoolAccepts) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, GetParam(), file, "50", "4"}));
  ASSERT_EQ(ran.status, 0) << ran.err;
  const std::string copy = place_.file("copy");
  cli::write_file(copy, copy_at(0, std::filesystem::file_size(file)));
  const std::vector<std::string> check{"check", copy};
  const Outcome sound = cli::CommandProcess(check, "/dev/null", "", "/usr/bin/pmempool").wait();
  EXPECT_EQ(sound.status, 0) << sound.out << sound.err;
  // Receive: the same with the local file lost. Expect: refused, since zeros would be mirrored.
  std::filesystem::remove(file);
  const Outcome lost = cli::run(mirrored(file, {CLIENT, GetParam(), file, "50", "4"}));
  EXPECT_EQ(lost.status, 1);
  EXPECT_TRUE(cli::contains(lost.err, "holds only zeros")) << lost.err;
  EXPECT_FALSE(std::filesystem::exists(file)) << "the program ran";
}

TEST_F(MirrorRun, WhereNothingWouldBeMirroredItDoesNotStart) {
  const std::string file = place_.file("file");
  const auto refuses = [](const std::vector<std::string>& command, const std::string& why) {
    const Outcome outcome = cli::run(command);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_TRUE(cli::contains(outcome.err, why)) << outcome.err;
  };
  refuses(mirrored(file, {CLIENT, "pmem", file, "1"}, "nopool"), "nopool");
  refuses(mirrored(file, {"/sbin/ldconfig"}), "linked statically");
  EXPECT_FALSE(std::filesystem::exists(file)) << "the program ran";
  refuses(mirrored(file, {"/bin/true"}), "mapped none of the files");
  refuses(mirrored(file, {CLIENT, "silent", file, "1"}), "inline (CLWB)");
  EXPECT_EQ(cli::run(mirrored(file, {})).status, 2);
  cluster_.kill(1);
  cluster_.kill(2);
  refuses(mirrored(file, {CLIENT, "pmem", file, "1"}), "[quorum-lost]");
}

TEST_F(MirrorRun, AFileThatIsMadeShorterIsSaidToBe) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "shrink", file, "50"}));
  EXPECT_EQ(ran.signal, 0) << ran.err;
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(cli::contains(ran.err, "was made shorter while it was mirrored")) << ran.err;
  EXPECT_TRUE(cli::contains(ran.err, "it ends here")) << ran.err;
  // What was synced before is on the replicas.
  std::uint64_t there = 0;
  std::memcpy(&there, copy_at(0, 4096).data() + 50 * 64, sizeof there);
  EXPECT_EQ(there, 50u);
}

TEST_F(MirrorRun, SaysInJsonWhatCameOfIt) {
  const std::string file = place_.file("file");
  const auto said = [&](std::vector<std::string> program, const std::string& pool) {
    return document(mirrored(file, std::move(program), pool));
  };
  const auto good = said({CLIENT, "msync", file, "50"}, "orders");
  EXPECT_TRUE(good["ok"].get<bool>()) << good;
  EXPECT_EQ(good["files"][0]["replicas"].size(), cli::kPeers);
  EXPECT_GE(good["drains"].get<int>(), 50);
  // What the program writes is not in the document.
  const auto loud = said({"/bin/echo", "loud"}, "orders");
  EXPECT_FALSE(loud["ok"].get<bool>());
  EXPECT_EQ(loud["error"]["code"], "invalid-argument") << loud;
  const auto failed = said({CLIENT, "shrink", file, "50"}, "orders");
  EXPECT_EQ(failed["program"]["status"], 1) << failed;
  EXPECT_EQ(failed["error"]["code"], "system-error") << failed;
  EXPECT_TRUE(said({CLIENT, "msync", file, "1"}, "nopool").contains("refused"));
}

// The program leaves the file's inode and size as they are, and gives it other bytes by write().
// Expect: what it maps then is on the replicas, also where nothing of it is persisted afterwards.
TEST_F(MirrorRun, AFileThatIsWrittenAnewIsComparedWhenItIsMapped) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "rewrite", file, "20"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(part_of(file, 2 * 65536, 65536), std::string(65536, 'x'));
  EXPECT_GE(equal_copies(file), 2);
}

// Receive: the same with zeros, which is what a lost file looks like. Expect: the program can not
// map it, and nobody says that its copies are whole.
TEST_F(MirrorRun, AMirrorThatCanNotBeOpenedAgainIsNoSuccess) {
  const std::string file = place_.file("file");
  const auto ran = document(mirrored(file, {CLIENT, "zeros", file, "20"}));
  EXPECT_EQ(ran["program"]["status"], 0) << ran;
  EXPECT_FALSE(ran["ok"].get<bool>()) << ran;
  EXPECT_TRUE(cli::contains(ran["error"]["message"].get<std::string>(), "holds only zeros")) << ran;
}

// Each time a mirror is compared it has a new writer, of the next epoch.
TEST_F(MirrorRun, AFileThatNobodyWroteIsNotComparedEachTimeItIsMapped) {
  if (!times_are_trusted()) GTEST_SKIP() << "the times of /var/tmp's file system are not trusted";
  const test::TestDirectory disk("/var/tmp");
  const std::string file = disk.file("file");
  const auto epoch_after = [&](const std::string& maps) {
    const auto ran = document(mirrored(file, {CLIENT, "maps", file, maps}));
    EXPECT_TRUE(ran["ok"].get<bool>()) << ran;
    return ran["files"][0]["epoch"].get<int>();
  };
  const int first = epoch_after("1");
  test::pause_for(std::chrono::seconds(5));  // two writes can not have the same time
  EXPECT_EQ(epoch_after("6"), first + 1);
  EXPECT_GE(equal_copies(file), 2);
  // Negative control: what was written is seen by its time.
  EXPECT_EQ(cli::run(mirrored(file, {CLIENT, "rewrite", file, "20"})).status, 0);
  EXPECT_GE(equal_copies(file), 2);
}

// Receive: by a mapping that stays, a store to a page that is dirty since before it was compared,
// which leaves the file's times as they are. Expect: the file is compared when it is mapped again.
TEST_F(MirrorRun, AStoreToAPageThatWasNotWrittenBackIsSeen) {
  if (!times_are_trusted()) GTEST_SKIP() << "the times of /var/tmp's file system are not trusted";
  const test::TestDirectory disk("/var/tmp");
  const std::string file = disk.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "dirty", file, "20"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(part_of(file, 8, 1), std::string(1, '\2'));
  EXPECT_GE(equal_copies(file), 2);
}

// Between two runs the file loses its end. Expect: what was acknowledged there is not overwritten
// by zeros, unless the operator says that the file counts.
TEST_F(MirrorRun, AFileThatHasLostItsEndIsRefused) {
  const std::string file = place_.file("file");
  ASSERT_EQ(cli::run(mirrored(file, {CLIENT, "msync", file, "20"})).status, 0);
  const std::string there = copy_at(0, 1 << 20);
  std::filesystem::resize_file(file, 4096);
  const Outcome refused = cli::run(mirrored(file, {CLIENT, "msync", file, "1"}));
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(cli::contains(refused.err, "had 1048576 when it was mirrored last")) << refused.err;
  EXPECT_EQ(copy_at(0, 1 << 20), there);
  EXPECT_EQ(std::filesystem::file_size(file), 4096u) << "the program ran";
  std::filesystem::remove(file + ".mirror");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "msync", file, "1"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_GE(equal_copies(file), 2);
}

// A file that is lost with all that was kept beside it, and is shorter than its mirror. Expect: it
// comes back as long as it was, also from replicas that resync has written to since.
TEST_F(MirrorRun, ARestoredFileIsAsLongAsItWas) {
  const std::string file = place_.file("file");
  ASSERT_EQ(cli::run(mirrored(file, {CLIENT, "grow", file, "20"})).status, 0);
  const std::string whole = cli::read_file(file);
  ASSERT_EQ(whole.size(), std::size_t{2} << 20);
  const auto command = [&](const std::string& what, std::vector<std::string> more) {
    more.insert(more.begin(), {"mirror", what, "--peers", cluster_.all(), "--pool", "orders",
                               "--take-over", "--transport", "tcp"});
    return cli::run(more);
  };
  const auto restore = [&](const std::string& to) {
    const Outcome restored = command("restore", {"--local", to});
    EXPECT_EQ(restored.status, 0) << restored.err;
    EXPECT_TRUE(cli::contains(restored.out, "restored 2 MiB to")) << restored.out;
    EXPECT_TRUE(cli::read_file(to) == whole) << std::filesystem::file_size(to);
  };
  std::filesystem::remove(file);
  std::filesystem::remove(file + ".mirror");
  restore(file);
  ASSERT_EQ(command("resync", {}).status, 0);
  restore(place_.file("elsewhere"));
  const Outcome opened = cli::run(mirrored(file, {"/bin/true"}));
  EXPECT_TRUE(cli::contains(opened.err, "mapped none of the files")) << opened.err;

  // Negative control: where a replica holds something behind that end, nothing is cut off.
  constexpr std::uint64_t kBehind = std::uint64_t{3} << 20;
  for (std::size_t peer = 0; peer < cli::kPeers; ++peer) {
    cluster_.stop(peer);
    std::fstream pool(cluster_.pool_file(peer), std::ios::binary | std::ios::in | std::ios::out);
    pool.seekp(static_cast<std::streamoff>(kDataInFile + kBehind));
    ASSERT_TRUE(pool.put('x').good());
    pool.close();
    cluster_.start(peer);
  }
  const std::string longer = place_.file("longer");
  const Outcome kept = command("restore", {"--local", longer});
  EXPECT_EQ(kept.status, 0) << kept.err;
  EXPECT_TRUE(cli::contains(kept.err, "as long as the mirror")) << kept.err;
  EXPECT_EQ(part_of(longer, kBehind, 1), "x");
}

// A program of its own goes on with all of a mirror that was a file of `mirror run`. Expect: what
// is restored after that is as long as its memory.
TEST_F(MirrorRun, TheLengthIsOfTheLastWriter) {
  const std::string file = place_.file("file");
  ASSERT_EQ(cli::run(mirrored(file, {CLIENT, "msync", file, "20"})).status, 0);
  MirrorOptions options;
  options.peers = {cluster_.address(0), cluster_.address(1), cluster_.address(2)};
  options.pool = "orders";
  options.start = MirrorStart::Replicas;
  options.transport = Transport::Tcp;
  options.measure_costs = false;
  options.take_over = true;
  std::vector<std::byte> bytes((std::size_t{16} << 20) - 12288);
  auto mirror = Mirror::open(MirrorMemory::bytes(bytes), options);
  ASSERT_TRUE(mirror.ok()) << mirror.error().message;
  ASSERT_TRUE(mirror->wait_in_sync(std::chrono::seconds(30)).ok());
  ASSERT_TRUE(mirror->close(std::chrono::seconds(30)).ok());
  const Outcome restored =
      cli::run({"mirror", "restore", "--peers", cluster_.all(), "--pool", "orders", "--local", file,
                "--overwrite", "--transport", "tcp"});
  ASSERT_EQ(restored.status, 0) << restored.err;
  EXPECT_EQ(std::filesystem::file_size(file), bytes.size());
  // Its length is known from what was kept beside it, which no replica tells any more.
  EXPECT_TRUE(cli::contains(restored.err, "truncate -s 1048576")) << restored.err;
}

// Receive: the same after the file was restored, and opened by others that know nothing of its
// length. Expect: it is known all the same.
TEST_F(MirrorRun, HowLongAFileWasIsKeptWhoeverOpensItsMirror) {
  const std::string file = place_.file("file");
  ASSERT_EQ(cli::run(mirrored(file, {CLIENT, "msync", file, "20"})).status, 0);
  const std::string said = "bytes 0000000000100000\n";
  ASSERT_TRUE(cli::contains(cli::read_file(file + ".mirror"), said));
  std::vector<std::string> command{"mirror", "restore", "--peers", cluster_.all(), "--pool",
                                   "orders", "--local", file,      "--overwrite",  "--take-over"};
  const Outcome restored = cli::run(command);
  ASSERT_EQ(restored.status, 0) << restored.err;
  EXPECT_TRUE(cli::contains(cli::read_file(file + ".mirror"), said));
  command[1] = "resync";
  command.erase(command.begin() + 8);
  const Outcome too_short = cli::run(command);
  EXPECT_EQ(too_short.status, 1);
  EXPECT_TRUE(cli::contains(too_short.err, "without --local")) << too_short.err;
  command.erase(command.begin() + 6, command.begin() + 8);
  const Outcome resynced = cli::run(command);
  ASSERT_EQ(resynced.status, 0) << resynced.err;
  EXPECT_TRUE(cli::contains(cli::read_file(file + ".mirror"), said));
  std::filesystem::resize_file(file, 4096);
  const Outcome refused = cli::run(mirrored(file, {CLIENT, "msync", file, "1"}));
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(cli::contains(refused.err, "had 1048576 when it was mirrored last")) << refused.err;
}

TEST_F(MirrorRun, MsyncIsOfWholePages) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "word", file, "20"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_GE(equal_copies(file), 2);
}

// The mirror was made by another program, and is no whole pages long. Expect: the last page of a
// file that is as long can be synced.
TEST_F(MirrorRun, AMirrorNeedNotBeWholePages) {
  constexpr std::size_t kOdd = 100;
  MirrorOptions options;
  options.peers = {cluster_.address(0), cluster_.address(1), cluster_.address(2)};
  options.pool = "orders";
  options.quorum = 2;
  options.transport = Transport::Tcp;
  options.measure_costs = false;
  std::vector<std::byte> bytes((std::size_t{1} << 20) + kOdd);
  auto mirror = Mirror::open(MirrorMemory::bytes(bytes), options);
  ASSERT_TRUE(mirror.ok()) << mirror.error().message;
  ASSERT_TRUE(mirror->close(std::chrono::seconds(30)).ok());
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "odd", file, std::to_string(kOdd)}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(std::filesystem::file_size(file), bytes.size());
  EXPECT_GE(equal_copies(file), 2);
}

// Receive: msync of bytes for which the mirror has no room. Expect: it does not return.
TEST_F(MirrorRun, WhatTheMirrorHasNoRoomForIsNotAcknowledged) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "beyond", file, "20"}));
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(cli::contains(ran.err, "has room for")) << ran.err;
  EXPECT_FALSE(cli::contains(ran.out, "synced")) << ran.out;
}

TEST_F(MirrorRun, ASignalHandlerThatLeavesACallHidesNothingOfWhatFollows) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "jump", file, "20"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_GE(equal_copies(file), 2);
}

TEST_F(MirrorRun, WhatASignalHandlerPersistsInsideOfACallIsOnTheReplicas) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "handler", file, "20"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(part_of(file, 4096 * 64, 1), std::string(1, '\1')) << "the handler did not run";
  EXPECT_GE(equal_copies(file), 2);
}

// While a thread waits for a drain, its signal handler begins another one. Expect: it ends, for
// what the handler made durable could be on a replica before what the thread did.
TEST_F(MirrorRun, ASignalHandlerThatPersistsInADrainEndsTheProgram) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "alarm", file, "100000000"}));
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(cli::contains(ran.err, "a signal handler of this program")) << ran.err;
}

TEST_F(MirrorRun, AMappingThatCanNotGrowStaysAsItIs) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "moves", file, "20"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_GE(equal_copies(file), 2);
}

TEST_F(MirrorRun, AFileThatIsReplacedByAnotherOneIsSaidToBe) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "rename", file, "20"}));
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(cli::contains(ran.err, "is not the file that was mirrored")) << ran.err;
  // A run that begins with it mirrors it.
  const Outcome again = cli::run(mirrored(file, {CLIENT, "pmem", file, "20"}));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_GE(equal_copies(file), 2);
}

// Receive: a file that is mapped before it is given its name. Expect: once it is mapped by that
// name, here or in a child, what is made durable by the first mapping is on the replicas.
TEST_F(MirrorRun, AMappingIsOfTheFileWhateverItsNameWas) {
  for (const std::string how : {"renamed", "elsewhere"}) {
    const std::string file = place_.file(how);
    create_pool(how);
    const Outcome ran = cli::run(mirrored(file, {CLIENT, how, file, "20"}, how));
    ASSERT_EQ(ran.status, 0) << how << ": " << ran.err;
    const std::string whole = cli::read_file(file);
    int equal = 0;
    for (std::size_t peer = 0; peer < cli::kPeers; ++peer) {
      const auto pool = std::filesystem::path(cluster_.pool_file(peer)).parent_path();
      equal += part_of(pool / (how + ".pool"), kDataInFile, whole.size()) == whole;
    }
    EXPECT_GE(equal, 2) << how;
  }
}

// Receive: msync of what a file has grown by while its name was away.
TEST_F(MirrorRun, AFileThatGrowsWithoutItsNameIsFollowed) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "nameless", file, "20"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(std::filesystem::file_size(file), std::uint64_t{2} << 20);
  EXPECT_GE(equal_copies(file), 2);
}

// Receive: between two syncs pages become zeros by no store. Expect: what was deleted is on no
// replica that is in sync.
TEST_F(MirrorRun, WhatIsCutOutOfAFileIsCutOutOfItsCopies) {
  const std::string file = place_.file("file");
  for (const std::string how : {"cut", "punch", "remove"}) {
    const Outcome ran = cli::run(mirrored(file, {CLIENT, how, file, "20"}));
    EXPECT_EQ(ran.status, 0) << how << ": " << ran.err;
    EXPECT_EQ(part_of(file, 4096, 4096), std::string(4096, '\0')) << how;
    EXPECT_GE(equal_copies(file), 2) << how;
  }
}

// Receive: a store that no drain follows, and abort(). Expect: nobody says that it is mirrored.
TEST_F(MirrorRun, WhatWasNotMadeDurableIsNotSaidToBeMirrored) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "killed", file, "20"}));
  EXPECT_EQ(ran.status, 1);
  EXPECT_LE(equal_copies(file), 1) << "of one that was still being compared";
  EXPECT_TRUE(cli::contains(ran.err, "have what it had made durable")) << ran.err;
  EXPECT_FALSE(cli::contains(ran.err, "as it left them")) << ran.err;
}

TEST_F(MirrorRun, AMappingThatIsRefusedEndsNoOther) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "refused", file, "20"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(cli::contains(ran.err, "can not be written")) << ran.err;
  EXPECT_GE(equal_copies(file), 2);
}

TEST_F(MirrorRun, AFileThatHasGrownUnseenIsSaidTo) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(mirrored(file, {CLIENT, "longer", file, "20"}));
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(cli::contains(ran.err, "had 1048576 when it was mirrored last")) << ran.err;
}

// Both names are mirrored, and the file goes from one to the other.
TEST_F(MirrorRun, AFileThatMovesToAnotherMirroredNameIsFollowed) {
  create_pool("second");
  const std::string file = place_.file("file");
  std::vector<std::string> command = mirrored(file, {CLIENT, "renamed", file, "20"});
  command.insert(command.begin() + 2, {"--map", file + ".tmp=second"});
  const Outcome ran = cli::run(command);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_GE(equal_copies(file), 2);
}

/// A file in pool `orders` and another one in pool `second`. Drains wait for all three replicas of
/// each.
class MirrorRunOfTwo : public MirrorRun {
 protected:
  MirrorRunOfTwo() { create_pool("second"); }

  std::string first() const { return place_.file("file"); }
  std::string second() const { return first() + ".second"; }
  std::vector<std::string> both_mirrored(const std::string& rounds) const {
    std::vector<std::string> command = mirrored(first(), {CLIENT, "two", first(), rounds});
    *(std::find(command.begin(), command.end(), "--quorum") + 1) = "3";
    command.insert(command.begin() + 2, {"--map", second() + "=second"});
    return command;
  }
  std::uint64_t first_word_at(std::size_t peer, const std::string& pool) const {
    std::uint64_t word = 0;
    const std::string bytes = copy_at(peer, sizeof word, pool);
    if (bytes.size() == sizeof word) std::memcpy(&word, bytes.data(), sizeof word);
    return word;
  }
};

TEST_F(MirrorRunOfTwo, EachFileIsInItsPool) {
  const auto said = document(both_mirrored("50"));
  EXPECT_TRUE(said["ok"].get<bool>()) << said;
  ASSERT_EQ(said["files"].size(), 2u) << said;
  for (const auto& file : said["files"]) EXPECT_TRUE(file["mapped"].get<bool>()) << said;
  EXPECT_EQ(equal_copies(first(), "orders"), 3);
  EXPECT_EQ(equal_copies(second(), "second"), 3);
  // Negative control: they are not the same.
  EXPECT_EQ(equal_copies(second(), "orders"), 0);
}

// The command is killed at random times, and the program with it. Expect: on no replica is what the
// program made durable in the one file without what it had made durable before in the other one.
TEST_F(MirrorRunOfTwo, WhatIsDrainedInOneFileIsBeforeWhatFollowsInTheOther) {
  constexpr std::uint64_t kSeed = 21;
  Random random(kSeed);
  const int rounds = test::soak() ? 50 : 4;
  std::uint64_t last = 0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round) + " of seed " + std::to_string(kSeed));
    cli::CommandProcess running(both_mirrored("100000000"));
    const auto is_on = [&] {
      for (std::size_t peer = 0; peer < cli::kPeers; ++peer) {
        if (first_word_at(peer, "second") < last + 20) return false;
      }
      return true;
    };
    ASSERT_TRUE(await(is_on)) << running.err();
    test::pause_for(std::chrono::microseconds(random.below(20'000)));
    running.send(SIGKILL);
    EXPECT_EQ(running.wait().signal, SIGKILL);
    for (std::size_t peer = 0; peer < cli::kPeers; ++peer) {
      const std::uint64_t later = first_word_at(peer, "second");
      const std::uint64_t earlier = first_word_at(peer, "orders");
      EXPECT_GE(earlier, later) << "peer " << peer;
      EXPECT_LE(earlier, later + 1) << "peer " << peer;
      last = std::max(last, later);
    }
  }
}

// The quorum is away when the file has grown and is mapped again. Expect: mmap waits for it.
TEST_F(MirrorRun, MappingWaitsForTheQuorum) { expect_mapping_waits({}); }

// The same where the program has other process numbers than the command. Expect: it does not take
// the command for one that has ended.
TEST_F(MirrorRun, MappingWaitsInAnotherPidNamespace) {
  const std::vector<std::string> apart{"/usr/bin/unshare", "--user", "--map-root-user", "--pid",
                                       "--fork"};
  std::vector<std::string> nothing(apart.begin() + 1, apart.end());
  nothing.emplace_back("/bin/true");
  if (cli::CommandProcess(nothing, "/dev/null", "", apart.front()).wait().status != 0) {
    GTEST_SKIP() << "no PID namespace can be made here";
  }
  expect_mapping_waits(apart);
}

// The same while a signal handler of the thread that waits maps and unmaps memory of its own.
TEST_F(MirrorRun, MappingWaitsWhileASignalHandlerMapsMemory) {
  expect_mapping_waits({"/usr/bin/timeout", "-s", "KILL", "200"}, "alarms");
}

// Receive: exec() while other threads wait for drains. Expect: what they had of the channel is
// free.
TEST_F(MirrorRun, AProgramThatBecomesAnotherOneLeavesNothingTaken) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(
      mirrored(file, {"/usr/bin/timeout", "-s", "KILL", "120", CLIENT, "exec", file, "12"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_GE(equal_copies(file), 2);
}

// Allocators that lock themselves for fork() wait there for threads that map memory inside of them.
// Expect: those do not wait for the thread that forks; and a child is mirrored though another
// thread of its parent was mapping memory.
TEST_F(MirrorRun, ForkWaitsForNobodyWhoMapsMemory) {
  const std::string file = place_.file("file");
  const Outcome ran = cli::run(
      mirrored(file, {"/usr/bin/timeout", "-s", "KILL", "120", CLIENT, "forks", file, "200"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_GE(equal_copies(file), 2);
}

// A quorum of one of three: to be compared again takes three. Expect: that is said before.
TEST_F(MirrorRun, AQuorumBelowTheMajorityIsWarnedOf) {
  const std::string file = place_.file("file");
  std::vector<std::string> command = mirrored(file, {CLIENT, "msync", file, "5"});
  *(std::find(command.begin(), command.end(), "--quorum") + 1) = "1";
  const Outcome ran = cli::run(command);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(cli::contains(ran.err, "waits until 3 are there")) << ran.err;
  create_pool("second");
  const Outcome more = cli::run(mirrored(file + "2", {CLIENT, "msync", file + "2", "5"}, "second"));
  EXPECT_EQ(more.status, 0) << more.err;
  EXPECT_FALSE(cli::contains(more.err, "waits until")) << more.err;
}

// The program is ended while it waits for the quorum. Expect: the command does not go on waiting.
TEST_F(MirrorRun, EndsWithItsProgramAlsoWithoutTheQuorum) {
  const std::string file = place_.file("file");
  cli::CommandProcess running(mirrored(file, {CLIENT, "pmem", file, "100000000"}));
  const std::string zeros(64, '\0');
  ASSERT_TRUE(await([&] { return copy_at(0, 64) != zeros; })) << running.err();
  cluster_.kill(1);
  cluster_.kill(2);
  EXPECT_TRUE(await([&] { return cli::contains(running.err(), "waits for its replicas"); }));
  running.send(SIGTERM);
  EXPECT_EQ(running.wait().status, 1);
}

// The smallest pool is away. Expect: the mirror is as large as it was made, not as the others are.
TEST_F(MirrorRun, TheMirrorHasTheSizeThatItWasMadeWith) {
  for (std::size_t peer = 0; peer < cli::kPeers; ++peer) {
    const Outcome made = cli::run({"pool", "create", "--peers", cluster_.address(peer), "--pool",
                                   "uneven", "--bytes", peer == 0 ? "8MiB" : "16MiB"});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  const std::string file = place_.file("file");
  const std::vector<std::string> command = mirrored(file, {CLIENT, "msync", file, "20"}, "uneven");
  const Outcome first = cli::run(command);
  ASSERT_EQ(first.status, 0) << first.err;
  cluster_.kill(0);
  const Outcome second = cli::run(command);
  EXPECT_EQ(second.status, 0) << second.err;
}

// Receive: a program that reads a line, at a terminal. Expect: it is not stopped for reading there.
TEST_F(MirrorRun, TheProgramReadsFromTheTerminal) {
  const std::string file = place_.file("file");
  std::vector<std::string> command{"-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)",
                                   PERDURE};
  const std::string script = "read word && test \"$word\" = go && exec \"$0\" \"$@\"";
  for (const std::string& word :
       mirrored(file, {"/bin/sh", "-c", script, CLIENT, "msync", file, "5"})) {
    command.push_back(word);
  }
  cli::CommandProcess terminal(command, "", "", "/usr/bin/python3");
  terminal.write("go\n");
  const Outcome ran = terminal.wait();
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_GE(equal_copies(file), 2);
}

TEST_F(MirrorRun, PassesOnTheSignalThatItGets) {
  const std::string file = place_.file("file");
  const std::string script =
      "trap 'echo interrupted; exit 0' INT; echo ready; while :; do sleep 0.1; done";
  cli::CommandProcess running(mirrored(file, {"/bin/sh", "-c", script}));
  ASSERT_TRUE(await([&] { return cli::contains(running.out(), "ready"); })) << running.err();
  running.send(SIGINT);
  EXPECT_TRUE(cli::contains(running.wait().out, "interrupted"));
}

#ifdef OBJTX
class MirrorKilled : public MirrorRun {
 protected:
  MirrorKilled() { write_set("set", file()); }
  std::string file() const { return place_.file("part"); }
  std::string set() const { return place_.file("set"); }
  void write_set(const std::string& name, const std::string& part) const {
    cli::write_file(place_.file(name), "PMEMPOOLSET\n10M " + part + "\n");
  }
  /// The copy at a peer is a pool whose invariants hold, with so many transactions at least.
  void expect_copy(std::size_t peer, std::uint64_t acknowledged) {
    cli::write_file(place_.file("copy"), copy_at(peer, std::filesystem::file_size(file())));
    write_set("copyset", place_.file("copy"));
    const std::string copy = place_.file("copyset");
    const Outcome sound =
        cli::CommandProcess({"check", copy}, "/dev/null", "", "/usr/bin/pmempool").wait();
    EXPECT_EQ(sound.status, 0) << sound.out << sound.err;
    const Outcome counted = cli::CommandProcess({"check", copy}, "/dev/null", "", OBJTX).wait();
    EXPECT_EQ(counted.status, 0) << counted.err;
    const std::uint64_t there = std::strtoull(counted.out.c_str(), nullptr, 10);
    EXPECT_GE(there, acknowledged) << "peer " << peer;
    EXPECT_LE(there, acknowledged + 1) << "peer " << peer;
  }
  static std::uint64_t last_number(const std::string& lines) {
    std::uint64_t last = 0;
    std::istringstream text(lines);
    for (std::uint64_t number = 0; text >> number;) last = number;
    return last;
  }
};

TEST_F(MirrorKilled, WhatWasCommittedIsOnTheReplicasWheneverTheProgramIsKilled) {
  const Outcome made = cli::run(mirrored(file(), {OBJTX, "create", set()}));
  ASSERT_EQ(made.status, 0) << made.err;
  constexpr std::uint64_t kSeed = 20;
  Random random(kSeed);
  const int rounds = test::soak() ? 50 : 4;
  std::uint64_t acknowledged = 0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round) + " of seed " + std::to_string(kSeed));
    const std::string microseconds = std::to_string(random.below(500'000));
    const Outcome ran = cli::run(mirrored(file(), {OBJTX, "die", set(), microseconds}));
    EXPECT_TRUE(cli::contains(ran.err, "ended by signal 9")) << ran.err;
    EXPECT_GT(last_number(ran.out), acknowledged);
    acknowledged = last_number(ran.out);
    for (std::size_t peer = 0; peer < cli::kPeers; ++peer) expect_copy(peer, acknowledged);
  }
}

TEST_F(MirrorKilled, TheCommandAndAPeerMayBeKilledToo) {
  ASSERT_EQ(cli::run(mirrored(file(), {OBJTX, "create", set()})).status, 0);
  cli::CommandProcess running(mirrored(file(), {OBJTX, "run", set(), "1000000", "LOUD"}));
  const auto await_more = [&running](std::uint64_t than) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (last_number(running.out()) <= than && !deadline.passed()) {
      test::pause_for(std::chrono::milliseconds(20));
    }
    return last_number(running.out());
  };
  const std::uint64_t before = await_more(20);
  EXPECT_GT(before, 20u);
  // A peer dies: the program goes on with two.
  cluster_.kill(2);
  const std::uint64_t after = await_more(before + 20);
  EXPECT_GT(after, before + 20);
  // The command dies, and the program with it.
  running.send(SIGKILL);
  const Outcome ended = running.wait();
  EXPECT_EQ(ended.signal, SIGKILL);
  const std::uint64_t acknowledged = last_number(ended.out);
  EXPECT_GT(acknowledged, 0u);
  expect_copy(0, acknowledged);
  expect_copy(1, acknowledged);
  // It runs again, and the third peer is brought back.
  cluster_.start(2);
  const Outcome again = cli::run(mirrored(file(), {OBJTX, "run", set(), "10"}));
  EXPECT_EQ(again.status, 0) << again.err;
}
#endif

}  // namespace
}  // namespace perdure
