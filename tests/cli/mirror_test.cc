// `perdure mirror` against real peers: what it says, what it changes, and with which status it
// ends.
#include <gtest/gtest.h>
#include <perdure/mirror.h>

#include <cstring>
#include <filesystem>

#include "core/json.h"
#include "core/random.h"
#include "mirror/local_state.h"
#include "tests/cli/cluster.h"

namespace perdure::cli {
namespace {

using nlohmann::json;

constexpr std::uint64_t kBytes = 1024 * 1024;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kDataInFile = 65536 + 12288;  // of the pool, and of the mirror in it

std::string noise(std::uint64_t seed, std::size_t bytes) {
  Random random(seed);
  std::string text(bytes, '\0');
  for (char& each : text) each = static_cast<char>(random.below(256));
  return text;
}

/// Three peers, a local file, and a mirror of it with quorum 2.
class MirrorCommand : public testing::Test {
 protected:
  MirrorOptions options() const {
    MirrorOptions options;
    options.peers = {cluster_.address(0), cluster_.address(1), cluster_.address(2)};
    options.pool = "orders";
    options.quorum = 2;
    options.transport = Transport::Tcp;
    options.measure_costs = false;
    return options;
  }
  /// What a program does that mirrors its memory.
  Result<Mirror> open() const {
    auto memory = MirrorMemory::file(local_);
    EXPECT_TRUE(memory.ok()) << memory.error().message;
    return Mirror::open(std::move(*memory), options());
  }
  static void store(Mirror& mirror, std::uint64_t at, const std::string& bytes) {
    std::memcpy(mirror.memory().data() + at, bytes.data(), bytes.size());
    const auto done = mirror.persist(at, bytes.size());
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  void create() {
    write_file(local_, noise(1, kBytes));
    auto mirror = open();
    ASSERT_TRUE(mirror.ok()) << mirror.error().message;
    ASSERT_TRUE(mirror->wait_in_sync(std::chrono::seconds(60)).ok());
    const auto closed = mirror->close(std::chrono::seconds(30));
    ASSERT_TRUE(closed.ok()) << closed.error().message;
  }
  std::vector<std::string> command(const std::string& what,
                                   std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"mirror", what, "--peers", cluster_.all(), "--pool", "orders",
                               "--timeout-ms", "20000"});
    return more;
  }
  std::vector<std::string> verify() const { return command("verify"); }

  Cluster cluster_{"2MiB"};
  test::TestDirectory place_;
  const std::string local_ = place_.file("tree");
};

TEST_F(MirrorCommand, SaysWhatIsThereAndWhatIsNot) {
  for (const std::string what : {"status", "verify"}) {
    const Outcome none = expect_document(command(what), "mirror-status.schema.json");
    EXPECT_EQ(none.status, 1) << what;
    EXPECT_TRUE(contains(none.err, "holds no mirror")) << none.err;
    EXPECT_EQ(json::parse(none.out)["refused"]["code"], "not-found") << none.out;
  }
  for (const std::string what : {"resync", "restore"}) {
    const Outcome refused = run(command(what, {"--local", place_.file("new")}));
    EXPECT_EQ(refused.status, 1) << what;
    EXPECT_TRUE(contains(refused.err, "[not-found]")) << refused.err;
    EXPECT_EQ(::access(place_.file("new").c_str(), F_OK), -1) << "nothing is made of it";
  }
  const Outcome missing = run(
      {"mirror", "status", "--peers", cluster_.all(), "--pool", "order", "--timeout-ms", "20000"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(contains(missing.err, "did you mean 'orders'?")) << missing.err;

  create();
  EXPECT_EQ(expect_document(command("status"), "mirror-status.schema.json").status, 0);
  const Outcome verified = expect_document(verify(), "mirror-status.schema.json");
  EXPECT_EQ(verified.status, 0) << verified.err;
  const json report = json::parse(verified.out);
  EXPECT_EQ(report["equal"], 3);
  EXPECT_EQ(report["bytes"], kBytes);
  EXPECT_EQ(report["quorum"], 2);
  EXPECT_EQ(report["can_be_restored"], true);
  EXPECT_EQ(report["replicas"][0]["closed"], true);
}

// Receive: a replica is away while the program goes on, then comes back to nobody.
// Expect: it is behind, and resync moves only what changed.
TEST_F(MirrorCommand, ResyncBringsBackOnlyWhatChanged) {
  create();
  cluster_.kill(1);
  EXPECT_EQ(run(command("status")).status, 1);
  constexpr std::uint64_t kChanged = 10;
  {
    auto mirror = open();
    ASSERT_TRUE(mirror.ok()) << mirror.error().message;
    for (std::uint64_t page = 0; page < kChanged; ++page) {
      store(*mirror, page * 7 * kPage, noise(100 + page, kPage));
    }
    ASSERT_TRUE(mirror->close(std::chrono::seconds(30)).ok());
  }
  const Outcome away =
      expect_document(command("resync", {"--local", local_}), "mirror-resync.schema.json");
  EXPECT_EQ(away.status, 1) << "one is still away";
  EXPECT_EQ(json::parse(away.out)["in_sync"], 2);
  cluster_.start(1);
  const Outcome behind = expect_document(command("status"), "mirror-status.schema.json");
  EXPECT_EQ(behind.status, 4);
  EXPECT_EQ(json::parse(behind.out)["replicas"][1]["verdict"], "behind") << behind.out;
  EXPECT_EQ(expect_document(verify(), "mirror-status.schema.json").status, 4);

  const Outcome resynced =
      expect_document(command("resync", {"--local", local_}), "mirror-resync.schema.json");
  ASSERT_EQ(resynced.status, 0) << resynced.err;
  const json report = json::parse(resynced.out);
  EXPECT_EQ(report["replicas"][0]["copied_bytes"], 0);
  EXPECT_EQ(report["replicas"][1]["copied_bytes"], kChanged * kPage);
  EXPECT_EQ(run(verify()).status, 0);
}

// Two replicas of a writer that died may differ in what was never acknowledged; here a bit of one
// is turned over behind the back of all, which no replica can know of itself.
TEST_F(MirrorCommand, VerifyFindsADifferenceAndResyncEndsIt) {
  create();
  cluster_.stop(2);
  std::string bytes = read_file(cluster_.pool_file(2));
  ASSERT_EQ(bytes.compare(kDataInFile, 64, noise(1, kBytes).substr(0, 64)), 0);
  bytes[kDataInFile + 5 * kPage + 17] ^= 1;
  write_file(cluster_.pool_file(2), bytes);
  cluster_.start(2);
  EXPECT_EQ(run(command("status")).status, 0) << "it reads no page";
  const Outcome found = expect_document(verify(), "mirror-status.schema.json");
  EXPECT_EQ(found.status, 4);
  const json replica = json::parse(found.out)["replicas"][2];
  EXPECT_EQ(replica["pages_different"], 1);
  EXPECT_EQ(replica["first_different_at"], 5 * kPage);
  EXPECT_TRUE(contains(run(verify()).out, "2 of 3 replicas have everything and are equal"));
  const Outcome resynced = run(command("resync", {"--local", local_}));
  EXPECT_EQ(resynced.status, 0) << resynced.err;
  EXPECT_TRUE(contains(resynced.out, "4 KiB copied")) << resynced.out;
  EXPECT_EQ(run(verify()).status, 0);
}

TEST_F(MirrorCommand, RestoreBringsTheLostFileBackByteForByte) {
  create();
  const std::string whole = read_file(local_);
  const Outcome there = run(command("restore", {"--local", local_}));
  EXPECT_EQ(there.status, 1);
  EXPECT_TRUE(contains(there.err, "[already-exists]")) << there.err;
  ASSERT_EQ(::unlink(local_.c_str()), 0);
  cluster_.kill(0);
  const Outcome restored =
      expect_document(command("restore", {"--local", local_}), "mirror-resync.schema.json");
  EXPECT_EQ(restored.status, 0) << restored.err;
  EXPECT_TRUE(contains(restored.err, "still away")) << restored.err;
  EXPECT_EQ(read_file(local_), whole);
  EXPECT_NE(::access((local_ + ".restoring").c_str(), F_OK), 0);

  // What was spoilt is replaced when all is there.
  cluster_.start(0);
  write_file(local_, noise(3, kBytes));
  EXPECT_EQ(run(command("restore", {"--local", local_, "--overwrite"})).status, 0);
  EXPECT_EQ(read_file(local_), whole);
  // Without the file that counts, the newest replica does.
  EXPECT_EQ(run(command("resync")).status, 0);
  EXPECT_EQ(run(verify()).status, 0);
  // One replica of three can not tell what is newest.
  cluster_.kill(1);
  cluster_.kill(2);
  ASSERT_EQ(::unlink(local_.c_str()), 0);
  const Outcome few =
      expect_document(command("restore", {"--local", local_}), "mirror-resync.schema.json");
  EXPECT_EQ(few.status, 1);
  EXPECT_TRUE(contains(few.err, "[quorum-lost]")) << few.err;
  EXPECT_NE(::access(local_.c_str(), F_OK), 0) << "no part is half made";
  EXPECT_NE(::access((local_ + ".restoring").c_str(), F_OK), 0);
}

// Two of three peers are lost for good, and the local file. Expect: the operator's word alone
// brings nothing back, since the quorum is not there; each message says what does: all peers in the
// list, a blank pool in the place of one that is lost, and that word.
TEST_F(MirrorCommand, OneReplicaThatIsLeftIsEnoughWithABlankPoolBesideIt) {
  create();
  const std::string whole = read_file(local_);
  ASSERT_EQ(::unlink(local_.c_str()), 0);
  cluster_.kill(1);
  cluster_.kill(2);
  std::filesystem::remove(cluster_.pool_file(1));
  const auto refused = [&](const std::vector<std::string>& words, const std::string& advice) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_TRUE(contains(outcome.err, advice)) << outcome.err;
    EXPECT_NE(::access(local_.c_str(), F_OK), 0);
  };
  const std::vector<std::string> asked =
      command("restore", {"--local", local_, "--without-missing"});
  refused(asked, "create a blank pool at its address");
  std::vector<std::string> alone = asked;
  alone[3] = cluster_.address(0);
  refused(alone, "name all of its peers");

  cluster_.start(1);
  const Outcome made = run(
      {"pool", "create", "--peers", cluster_.address(1), "--pool", "orders", "--bytes", "2MiB"});
  ASSERT_EQ(made.status, 0) << made.err;
  refused(command("restore", {"--local", local_}), "(without_missing)");
  const Outcome restored = run(asked);
  ASSERT_EQ(restored.status, 0) << restored.err;
  EXPECT_EQ(read_file(local_), whole);
  // The blank one is a replica now, and the program goes on with the quorum.
  const json status = json::parse(run(command("status", {"--format", "json"})).out);
  EXPECT_EQ(status["replicas"][1]["verdict"], "newest") << status;
  EXPECT_TRUE(open().ok());
}

// Receive: restore by the name of a symbolic link. Expect: what the link leads to is restored, and
// what is kept beside that file is said of no other one.
TEST_F(MirrorCommand, ASymbolicLinkIsNotTheFileThatIsRestored) {
  create();
  const std::string whole = read_file(local_);
  const std::string link = place_.file("link");
  ASSERT_EQ(::symlink(local_.c_str(), link.c_str()), 0);
  write_file(local_, noise(3, kBytes));
  const Outcome restored = run(command("restore", {"--local", link, "--overwrite"}));
  EXPECT_EQ(restored.status, 0) << restored.err;
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_file(local_), whole);
  EXPECT_TRUE(open().ok());
  EXPECT_EQ(read_file(local_), whole);
}

// The same where the file that the link leads to is lost.
TEST_F(MirrorCommand, ALinkToALostFileIsNotReplaced) {
  create();
  const std::string whole = read_file(local_);
  std::filesystem::create_directory(place_.file("links"));
  const std::string link = place_.file("links/link");
  // By way of another one, and relative to where the link is.
  std::filesystem::create_symlink("second", link);
  std::filesystem::create_symlink("../tree", place_.file("links/second"));
  ASSERT_EQ(::unlink(local_.c_str()), 0);
  const Outcome restored = run(command("restore", {"--local", link}));
  EXPECT_EQ(restored.status, 0) << restored.err;
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_file(local_), whole);
  EXPECT_TRUE(std::filesystem::exists(local_ + ".mirror"));
  EXPECT_FALSE(std::filesystem::exists(link + ".mirror"));
}

// The copying of a replica over the file was cut off. Expect: nobody takes that for what counts,
// until it is copied again.
TEST_F(MirrorCommand, AFileThatIsHalfCopiedDoesNotCount) {
  create();
  const std::string whole = read_file(local_);
  const mirror::LocalStateFile state(local_);
  const auto set_half = [&] {
    auto now = state.read();
    ASSERT_TRUE(now.ok() && *now);
    EXPECT_TRUE((*now)->whole);
    (*now)->whole = false;
    ASSERT_TRUE(state.write(**now).ok());
  };
  set_half();
  write_file(local_, noise(3, kBytes / 2) + whole.substr(kBytes / 2));
  EXPECT_EQ(open().code(), ErrorCode::InvalidArgument);
  const Outcome refused = run(command("resync", {"--local", local_}));
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.err, "is not whole")) << refused.err;
  EXPECT_EQ(run(verify()).status, 0);
  EXPECT_EQ(run(command("restore", {"--local", local_, "--overwrite"})).status, 0);
  EXPECT_EQ(read_file(local_), whole);
  EXPECT_NE(::access((local_ + ".restoring.mirror").c_str(), F_OK), 0);
  EXPECT_TRUE(open().ok());

  set_half();
  ASSERT_EQ(::unlink(local_.c_str()), 0);
  {
    auto memory = MirrorMemory::create_file(local_, kBytes);
    ASSERT_TRUE(memory.ok()) << memory.error().message;
    EXPECT_NE(::access(state.path().c_str(), F_OK), 0) << "it was of an earlier file";
    auto replicas = options();
    replicas.start = MirrorStart::Replicas;
    ASSERT_TRUE(Mirror::open(std::move(*memory), replicas).ok());
  }
  EXPECT_EQ(read_file(local_), whole);
  EXPECT_TRUE(state.check_whole().ok());
}

// The program went on elsewhere with a restored file, and then somebody starts it here again.
// Expect: what was acknowledged there is not lost; a copy that holds the same is as good.
TEST_F(MirrorCommand, AFileOfBeforeAFailoverDoesNotCount) {
  create();
  const std::string before = read_file(local_);
  const std::string elsewhere = place_.file("elsewhere");
  ASSERT_EQ(run(command("restore", {"--local", elsewhere})).status, 0);
  EXPECT_TRUE(open().ok()) << "it holds the same";
  const auto there = [&] {
    auto memory = MirrorMemory::file(elsewhere);
    EXPECT_TRUE(memory.ok()) << memory.error().message;
    return Mirror::open(std::move(*memory), options());
  };
  {
    auto mirror = there();
    ASSERT_TRUE(mirror.ok()) << mirror.error().message;
    store(*mirror, 5 * kPage, noise(9, kPage));
  }
  const auto older = open();
  EXPECT_EQ(older.code(), ErrorCode::InvalidArgument);
  const Outcome refused = run(command("resync", {"--local", local_}));
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.err, "another memory has been this mirror's since")) << refused.err;
  EXPECT_EQ(read_file(local_), before);
  {
    auto mirror = there();
    ASSERT_TRUE(mirror.ok()) << mirror.error().message;
  }
  // The operator decides that it counts all the same.
  ASSERT_TRUE(mirror::LocalStateFile(local_).remove().ok());
  EXPECT_TRUE(open().ok());
  EXPECT_EQ(there().code(), ErrorCode::InvalidArgument);
}

TEST_F(MirrorCommand, AWriterIsLeftAloneUnlessItIsTakenOver) {
  create();
  auto mirror = open();
  ASSERT_TRUE(mirror.ok()) << mirror.error().message;
  store(*mirror, 0, noise(5, 100));
  const Outcome status = run(command("status"));
  EXPECT_TRUE(contains(status.out, "has a session")) << status.out;
  const Outcome busy = run(command("resync"));
  EXPECT_EQ(busy.status, 1);
  EXPECT_TRUE(contains(busy.err, "[busy]")) << busy.err;
  store(*mirror, 0, noise(6, 100));
  EXPECT_EQ(run(command("resync", {"--take-over"})).status, 0);
  // The first one was begun, if nobody had seen by then that it is fenced.
  EXPECT_FALSE(mirror->persist(0, 100).ok());
  EXPECT_EQ(mirror->persist(0, 100).code(), ErrorCode::Fenced);
  std::string read(100, '?');
  cluster_.stop(0);
  EXPECT_EQ(read_file(cluster_.pool_file(0)).substr(kDataInFile, 100), noise(6, 100));
}

}  // namespace
}  // namespace perdure::cli
