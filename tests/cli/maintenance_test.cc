// `perdure log verify`, `repair` and `trim`, and `perdure pool`.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <thread>

#include "control/host_port.h"
#include "core/bytes.h"
#include "core/json.h"
#include "log/log_format.h"
#include "tests/cli/cluster.h"

namespace perdure::cli {
namespace {

using nlohmann::json;

TEST(Verify, FindsAFlippedBitAndRepairBringsItBack) {
  for (const std::string shape : {"singleton", "compound"}) {
    Cluster cluster;
    const std::string text = "the first\nto be damaged\nthe third\nthe last one\n";
    ASSERT_EQ(run(cluster.log("append", {"--shape", shape}), text).status, 0);
    EXPECT_EQ(run(cluster.log("verify")).status, 0);
    cluster.stop(1);
    EXPECT_EQ(run({"log", "verify", "--file", cluster.pool_file(1)}).status, 0);
    cluster.damage(1, "to be damaged");

    const Outcome offline = run({"log", "verify", "--file", cluster.pool_file(1)});
    EXPECT_EQ(offline.status, 4) << offline.out;
    EXPECT_TRUE(contains(offline.out, "(index 1)")) << offline.out;

    cluster.start(1);
    const Outcome online = run(cluster.log("verify", {"--format", "json"}));
    EXPECT_EQ(online.status, 4);
    const json report = json::parse(online.out);
    EXPECT_EQ(report["equal"], 2);
    EXPECT_EQ(report["replicas"][0]["verdict"], "equal");
    EXPECT_EQ(report["replicas"][1]["verdict"], "damaged") << online.out;
    EXPECT_EQ(report["replicas"][1]["records"], 1);
    EXPECT_EQ(run(cluster.log_of(1, "read")).out, "the first\n")
        << "nothing damaged is ever returned";

    const Outcome repaired = run(cluster.log("repair"));
    EXPECT_EQ(repaired.status, 0) << repaired.err;
    EXPECT_EQ(run(cluster.log("verify")).status, 0);
    cluster.await_content(1, "the firstto be damagedthe thirdthe last one");
  }
}

// The writer said what was committed when it closed, so one replica alone tells damage from a
// record that a crash cut off.
TEST(Verify, TheLastRecordIsFoundToBeDamagedOnOneReplicaAloneToo) {
  Cluster cluster;
  ASSERT_EQ(run(cluster.log("append", {"--shape", "singleton"}), "first\nlast\n").status, 0);
  for (std::size_t index = 0; index < kPeers; ++index) cluster.stop(index);
  cluster.damage(0, "last");
  const Outcome alone = run({"log", "verify", "--file", cluster.pool_file(0)});
  EXPECT_EQ(alone.status, 4);
  EXPECT_TRUE(contains(alone.out, "damaged")) << alone.out;
  const Outcome both = run({"log", "verify", "--file", cluster.pool_file(0), "--file",
                            cluster.pool_file(1), "--file", cluster.pool_file(2)});
  EXPECT_EQ(both.status, 4);
  EXPECT_TRUE(contains(both.out, "(index 1) is damaged")) << both.out;
  EXPECT_TRUE(contains(both.out, "2 of 3 replicas are whole")) << both.out;
}

TEST(Verify, ReplicasThatWereNotAskedAreNamed) {
  Cluster cluster;
  ASSERT_EQ(run(cluster.log("append"), "one\n").status, 0);
  const std::string two = cluster.address(0) + "," + cluster.address(1);
  const Outcome part =
      run({"log", "verify", "--peers", two, "--pool", "orders", "--format", "json"});
  EXPECT_EQ(part.status, 1) << part.out;
  const json report = json::parse(part.out);
  EXPECT_EQ(report["equal"], 2);
  EXPECT_EQ(report["not_asked"], json::array({cluster.address(2)}));
  EXPECT_EQ(report["ok"], false);
  const Outcome text = run({"log", "verify", "--peers", two, "--pool", "orders"});
  EXPECT_TRUE(contains(text.out, cluster.address(2) + ": not asked")) << text.out;
  EXPECT_TRUE(contains(text.out, "2 of 3 replicas are whole")) << text.out;
  // Expect: one that was asked and does not answer is not one that was not asked.
  cluster.stop(2);
  const Outcome down = run(cluster.log("verify", {"--format", "json"}));
  EXPECT_EQ(down.status, 1);
  EXPECT_EQ(json::parse(down.out)["not_asked"], json::array());
}

// How many must be read for that follows from the log's quorum, not from how many were named.
TEST(Read, SaysWhereCommittedRecordsMayBeMissing) {
  for (const std::string quorum : {"1", "2", "3"}) {
    Cluster cluster;
    ASSERT_EQ(run(cluster.log("append", {"--quorum", quorum}), "one\n").status, 0);
    const auto warned = [&](const std::vector<std::string>& words) {
      const Outcome read = run(words);
      EXPECT_EQ(read.status, 0) << read.err;
      EXPECT_EQ(read.out, "one\n");
      return contains(read.err, "committed records may be missing");
    };
    const std::string two = cluster.address(0) + "," + cluster.address(1);
    EXPECT_FALSE(warned(cluster.log("read"))) << quorum;
    EXPECT_EQ(warned(cluster.log_of(1, "read")), quorum != "3") << quorum;
    EXPECT_EQ(warned({"log", "read", "--peers", two, "--pool", "orders"}), quorum == "1");
    cluster.stop(2);
    EXPECT_EQ(warned(cluster.log("read")), quorum == "1");
    cluster.stop(1);
    EXPECT_EQ(warned(cluster.log("read")), quorum != "3");
  }
}

TEST(Verify, AFileThatIsNoPoolOrTruncatedIsAnError) {
  Cluster cluster;
  cluster.stop(0);
  const std::string whole = read_file(cluster.pool_file(0));
  write_file(cluster.pool_file(0), whole.substr(0, whole.size() / 2));
  EXPECT_EQ(run({"log", "verify", "--file", cluster.pool_file(0)}).status, 1);
  write_file(cluster.pool_file(0), "no pool");
  EXPECT_EQ(run({"log", "verify", "--file", cluster.pool_file(0)}).status, 1);
  EXPECT_EQ(run({"log", "verify", "--file", "/does/not/exist"}).status, 1);
}

TEST(Trim, KeepsTheLastRecordsOnEveryReplica) {
  Cluster cluster;
  std::string text;
  for (int index = 0; index < 100; ++index) text += std::to_string(index) + "\n";
  ASSERT_EQ(run(cluster.log("append"), text).status, 0);
  const Outcome before = run(cluster.log("read", {"--from", "8"}));
  EXPECT_EQ(before.status, 1);
  EXPECT_TRUE(contains(before.err, "the log begins at 64 [")) << before.err;
  const Outcome inside = run(cluster.log("read", {"--from", "120"}));
  EXPECT_EQ(inside.status, 1);
  EXPECT_TRUE(contains(inside.err, "no record begins at 120: the one at 104 goes up to 144 ["))
      << inside.err;
  const Outcome kept = run(cluster.log("trim", {"--keep-records", "3"}));
  EXPECT_EQ(kept.status, 0) << kept.err;
  EXPECT_TRUE(contains(kept.out, "trimmed from LSN 64 to ")) << kept.out;
  EXPECT_TRUE(
      contains(run(cluster.log("trim", {"--keep-records", "3"})).out, "nothing had to be trimmed"));
  for (std::size_t index = 0; index < kPeers; ++index) {
    EXPECT_EQ(run(cluster.log_of(index, "read", {"--index"})).out, "97\t97\n98\t98\n99\t99\n");
  }
  const Outcome last = run(cluster.log("read", {"--lsn", "--from-index", "99"}));
  const std::string lsn = last.out.substr(0, last.out.find('\t'));
  EXPECT_EQ(run(cluster.log("trim", {"--to", std::to_string(std::stoull(lsn) + 8)})).status, 1)
      << "no record begins there";
  EXPECT_EQ(run(cluster.log("trim", {"--to", lsn})).status, 0);
  EXPECT_EQ(run(cluster.log("read")).out, "99\n");
  const Outcome gone = run(cluster.log("read", {"--from", "64"}));
  EXPECT_EQ(gone.status, 1);
  EXPECT_TRUE(contains(gone.err, "(older ones were trimmed)")) << gone.err;
  EXPECT_EQ(run(cluster.log("verify")).status, 0);
}

TEST(Pool, ThatIsMissingIsNamedOnceWithWhatMayHaveBeenMeant) {
  const Cluster cluster;
  const auto on_all = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--peers", cluster.all()});
    return words;
  };
  for (const std::string what : {"append", "read", "follow", "repair", "status", "verify"}) {
    const Outcome missing = run(on_all({"log", what, "--pool", "ordres"}), "x\n");
    EXPECT_EQ(missing.status, 1) << what;
    EXPECT_EQ(missing.out, "") << what;
    EXPECT_EQ(occurrences(missing.err, "ordres"), 1u) << what << ": " << missing.err;
    EXPECT_TRUE(contains(missing.err, "did you mean 'orders'? [not-found]")) << missing.err;
  }
  const Outcome single =
      run({"log", "read", "--peers", cluster.address(0), "--pool", "something-else"});
  EXPECT_TRUE(contains(single.err, "; there are: orders [not-found]")) << single.err;
  const Outcome described = run(on_all({"pool", "describe", "--pool", "ordres"}));
  EXPECT_EQ(occurrences(described.err, "ordres"), 1u) << described.err;
}

TEST(Pool, IsDeletedNowhereWhileSomebodyWritesToOneOfThem) {
  Cluster cluster;
  const std::string written = cluster.address(0);
  const std::string idle = cluster.address(1);
  ASSERT_EQ(
      run({"pool", "create", "--peers", idle + "," + written, "--pool", "bills", "--bytes", "1MiB"})
          .status,
      0);
  CommandProcess writer({"log", "append", "--peers", written, "--pool", "bills"});
  writer.write("one\n");
  const auto has_writer = [&] {
    const Outcome said = run({"pool", "describe", "--peers", written, "--pool", "bills"});
    return contains(said.out, "has a session: yes");
  };
  for (int tries = 0; tries < 100 && !has_writer(); ++tries) ASSERT_TRUE(writer.running());
  // The one that would let it go is named first.
  const std::vector<std::string> all = {"pool",   "delete", "--peers", idle + "," + written,
                                        "--pool", "bills"};
  const Outcome refused = run(all);
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.err, "nothing was deleted on any peer")) << refused.err;
  EXPECT_EQ(run({"pool", "describe", "--peers", idle, "--pool", "bills"}).status, 0);
  writer.close_input();
  EXPECT_EQ(writer.wait().status, 0);
  EXPECT_EQ(run(all).status, 0);
}

// From the checksum of a record that somebody knows the log's seed follows, and with it records
// that are none. Expect: it is not printed, as a number of whatever base.
TEST(Verify, TellsNoChecksumOfARecord) {
  Cluster cluster;
  ASSERT_EQ(run(cluster.log("append"), "the record that is known\n").status, 0);
  cluster.stop(1);
  const std::string bytes = read_file(cluster.pool_file(1));
  const std::size_t payload = bytes.find("the record that is known");
  ASSERT_NE(payload, std::string::npos);
  const auto crc = load<std::uint32_t>(
      reinterpret_cast<const std::byte*>(bytes.data() + payload - log::kRecordHeaderBytes));
  for (const std::string form : {"text", "json"}) {
    const Outcome verified =
        run({"log", "verify", "--file", cluster.pool_file(1), "--format", form});
    EXPECT_EQ(verified.status, 0) << verified.err;
    EXPECT_FALSE(contains(verified.out, fmt::format("{:08x}", crc))) << verified.out;
    EXPECT_FALSE(contains(verified.out, fmt::format("{}", crc))) << verified.out;
  }
}

// A session that only reads is in the way as well, and so is what is deleted by its operator alone.
// Expect: found before anything is gone, wherever it is.
TEST(Pool, IsDeletedNowhereWhereOneOfTheDaemonsWouldRefuse) {
  Cluster cluster;
  ASSERT_EQ(run(cluster.log("append"), "one\n").status, 0);
  const std::vector<std::string> all = {"pool",        "delete", "--peers",
                                        cluster.all(), "--pool", "orders"};
  const auto expect_refused = [&](const std::string& why) {
    const Outcome refused = run(all);
    EXPECT_EQ(refused.status, 1);
    EXPECT_TRUE(contains(refused.err, why)) << refused.err;
    EXPECT_TRUE(contains(refused.err, "nothing was deleted on any peer")) << refused.err;
    const Outcome there = run({"pool", "describe", "--peers", cluster.all(), "--pool", "orders"});
    EXPECT_EQ(there.status, 0) << there.err;
  };
  CommandProcess reader(cluster.log_of(2, "follow"));
  for (int tries = 0; tries < 1'000 && reader.out() != "one\n"; ++tries) ::usleep(10'000);
  ASSERT_EQ(reader.out(), "one\n");
  expect_refused("0 of them writers': end them first");
  reader.send(SIGINT);
  EXPECT_EQ(reader.wait().status, 0);

  cluster.stop(2);
  const std::string kept = cluster.pool_file(2) + ".kept";
  std::filesystem::rename(cluster.pool_file(2), kept);
  std::filesystem::create_symlink(kept, cluster.pool_file(2));
  cluster.start(2);
  expect_refused("is a link");
  cluster.stop(2);
  std::filesystem::rename(kept, cluster.pool_file(2));
  cluster.start(2);
  const Outcome deleted = run(all);
  EXPECT_EQ(deleted.status, 0) << deleted.err;
}

// Deleted on some peers, then on all. Expect: done; and where nobody has it, that it is said.
TEST(Pool, ThatIsGoneFromSomePeersIsDeletedOnTheOthers) {
  Cluster cluster;
  ASSERT_EQ(run({"pool", "delete", "--peers", cluster.address(0), "--pool", "orders"}).status, 0);
  const std::vector<std::string> all = {"pool",        "delete", "--peers",
                                        cluster.all(), "--pool", "orders"};
  const Outcome rest = run(all);
  EXPECT_EQ(rest.status, 0) << rest.err;
  const Outcome listed = run({"pool", "list", "--peers", cluster.all()});
  EXPECT_FALSE(contains(listed.out, "orders")) << listed.out;
  const Outcome none = run(all);
  EXPECT_EQ(none.status, 1);
  EXPECT_TRUE(contains(none.err, "[not-found]")) << none.err;
}

/// Passes requests on to a peer until one has deleted a pool; then nobody listens here any more.
class GoneAfterDeletion {
 public:
  explicit GoneAfterDeletion(const std::string& peer) : peer_(*control::parse_host_port(peer)) {
    sockaddr_in here = loopback(0);
    socklen_t length = sizeof here;
    EXPECT_EQ(::bind(listening_, reinterpret_cast<sockaddr*>(&here), length), 0);
    EXPECT_EQ(::listen(listening_, 4), 0);
    EXPECT_EQ(::getsockname(listening_, reinterpret_cast<sockaddr*>(&here), &length), 0);
    address_ = fmt::format("127.0.0.1:{}", ntohs(here.sin_port));
    thread_ = std::thread([this] {
      while (pass_on()) {
      }
      ::close(listening_);
    });
  }
  ~GoneAfterDeletion() {
    ::shutdown(listening_, SHUT_RDWR);
    thread_.join();
  }
  GoneAfterDeletion(const GoneAfterDeletion&) = delete;
  GoneAfterDeletion& operator=(const GoneAfterDeletion&) = delete;

  const std::string& address() const { return address_; }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  /// One request, which comes in one piece, and its answer. False: it was the last one.
  bool pass_on() {
    const int from = ::accept(listening_, nullptr, nullptr);
    if (from < 0) return false;
    std::array<char, 16 * 1024> bytes{};
    const ssize_t asked = ::recv(from, bytes.data(), bytes.size(), 0);
    const std::string request(bytes.data(), asked > 0 ? static_cast<std::size_t>(asked) : 0);
    const int to = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in there = loopback(peer_.port);
    EXPECT_EQ(::connect(to, reinterpret_cast<const sockaddr*>(&there), sizeof there), 0);
    (void)!::send(to, request.data(), request.size(), MSG_NOSIGNAL);
    const bool last = contains(request, "/delete ") && !contains(request, "\"look\"");
    std::string answer;
    for (ssize_t got = 0; (got = ::recv(to, bytes.data(), bytes.size(), 0)) > 0;) {
      answer.append(bytes.data(), static_cast<std::size_t>(got));
    }
    if (last) ::shutdown(listening_, SHUT_RDWR);  // before the answer is there
    (void)!::send(from, answer.data(), answer.size(), MSG_NOSIGNAL);
    ::close(to);
    ::close(from);
    return !last;
  }

  const control::HostPort peer_;
  const int listening_ = ::socket(AF_INET, SOCK_STREAM, 0);
  std::string address_;
  std::thread thread_;
};

// The first peer ends between its deletion and the next question. Expect: that is no deletion that
// failed, and with --wait nothing is deleted twice, or by another peer's UUID.
TEST(Pool, OfAPeerThatEndsAfterItsDeletionIsDeletedAndTheOthersToo) {
  Cluster cluster;
  const GoneAfterDeletion first(cluster.address(0));
  const Outcome deleted =
      run({"pool", "delete", "--peers",
           first.address() + "," + cluster.address(1) + "," + cluster.address(2), "--pool",
           "orders", "--wait", "1"});
  EXPECT_EQ(deleted.status, 0) << deleted.err;
  EXPECT_TRUE(contains(deleted.err, "is not there any more; which others are is not known"))
      << deleted.err;
  const Outcome listed = run({"pool", "list", "--peers", cluster.all()});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_FALSE(contains(listed.out, "orders")) << listed.out;
}

TEST(Pool, IsCreatedListedDescribedAndFenced) {
  Cluster cluster;
  const auto pool = [&](const std::string& what, std::vector<std::string> more) {
    more.insert(more.begin(), {"pool", what, "--peers", cluster.all()});
    return run(std::move(more));
  };
  const Outcome again = pool("create", {"--pool", "orders", "--bytes", "1MiB"});
  EXPECT_EQ(again.status, 1);
  EXPECT_TRUE(contains(again.err, "[already-exists]")) << again.err;
  ASSERT_EQ(pool("create", {"--pool", "second", "--bytes", "1.5M"}).status, 0);
  const Outcome listed = pool("list", {"--format", "json"});
  ASSERT_EQ(listed.status, 0) << listed.err;
  const json all = json::parse(listed.out);
  for (const json& peer : all["peers"]) {
    ASSERT_EQ(peer["pools"].size(), 2u);
    EXPECT_EQ(peer["pools"][1]["pool"], "second");
    EXPECT_EQ(peer["pools"][1]["bytes"], 1536 * 1024);
  }
  const Outcome described = pool("describe", {"--pool", "second"});
  EXPECT_EQ(described.status, 0) << described.err;
  EXPECT_TRUE(contains(described.out, "evidence")) << described.out;
  EXPECT_EQ(pool("describe", {"--pool", "missing"}).status, 1);
  // Neither what the environment names is deleted, nor anything where one of the peers is away.
  ::setenv("PERDURE_POOL", "second", 1);
  const Outcome unnamed = run({"pool", "delete", "--peers", cluster.all()});
  ::unsetenv("PERDURE_POOL");
  EXPECT_EQ(unnamed.status, 2) << unnamed.err;
  const Outcome away =
      run({"pool", "delete", "--peers", cluster.all() + ",127.0.0.1:1", "--pool", "second"});
  EXPECT_EQ(away.status, 1);
  EXPECT_TRUE(contains(away.err, "nothing was deleted on any peer")) << away.err;
  EXPECT_EQ(pool("describe", {"--pool", "second"}).status, 0);
  const Outcome deleted = pool("delete", {"--pool", "second"});
  EXPECT_EQ(deleted.status, 0) << deleted.err;
  EXPECT_FALSE(contains(deleted.out, "second")) << deleted.out;
  EXPECT_EQ(pool("describe", {"--pool", "second"}).status, 1);

  // A pool that no log fits into is made only on request.
  const Outcome small = pool("create", {"--pool", "small", "--bytes", "8KiB"});
  EXPECT_EQ(small.status, 1);
  EXPECT_EQ(occurrences(small.err, "a log takes"), 1u) << small.err;
  EXPECT_TRUE(contains(small.err, "a log takes 76 KiB (77824 bytes) at least")) << small.err;
  EXPECT_EQ(pool("create", {"--pool", "small", "--bytes", "8KiB", "--small"}).status, 0);
  ASSERT_EQ(pool("create", {"--pool", "least", "--bytes", "76KiB"}).status, 0);
  EXPECT_EQ(run({"log", "append", "--peers", cluster.all(), "--pool", "least"}, "x\n").status, 0);
  const Outcome too_small =
      run({"log", "append", "--peers", cluster.all(), "--pool", "small"}, "x\n");
  EXPECT_EQ(too_small.status, 1);
  EXPECT_EQ(occurrences(too_small.err, "too small for a log"), 1u) << too_small.err;

  ASSERT_EQ(run(cluster.log("append"), "x\n").status, 0);
  const Outcome fenced = pool("fence", {"--pool", "orders", "--format", "json"});
  ASSERT_EQ(fenced.status, 0) << fenced.err;
  const json at_epoch = json::parse(fenced.out);
  for (const json& peer : at_epoch["peers"]) {
    EXPECT_EQ(peer["pools"][0]["epoch"], 2);
  }
  cluster.kill(2);
  const Outcome partly = pool("list", {});
  EXPECT_EQ(partly.status, 1);
  EXPECT_TRUE(contains(partly.out, cluster.address(0))) << "the others are still listed";
  EXPECT_TRUE(contains(partly.err, cluster.address(2))) << partly.err;
}

TEST(Pool, IsMadeWithWhatIsRequiredOrNotAtAll) {
  const test::TestDirectory pools{"/dev/shm"};
  const std::unique_ptr<server::DaemonProcess> peer(
      server::DaemonProcess::serving(pools.path(), {"--declare-domain", "dmp"}));
  const auto create = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"pool", "create", "--peers", peer->address("control"), "--pool",
                               "orders", "--bytes", "1MiB"});
    return run(std::move(more));
  };
  const Outcome refused = create({"--require-domain", "mhp", "--format", "json"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.err, "mhp at least is required")) << refused.err;
  EXPECT_EQ(json::parse(refused.out)["peers"][0]["error"]["code"], "unsupported") << refused.out;
  EXPECT_EQ(create({"--receive-buffers", "pm"}).status, 1);
  const Outcome nothing = create({"--require-domain", "none"});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_TRUE(contains(nothing.err, "use one of: page, dmp, mhp, wsp")) << nothing.err;
  EXPECT_EQ(create({"--receive-buffers", "disk"}).status, 2);
  EXPECT_TRUE(pools.names().empty());
  const Outcome made =
      create({"--require-domain", "page", "--receive-buffers", "dram", "--format", "json"});
  ASSERT_EQ(made.status, 0) << made.err;
  const json profile = json::parse(made.out)["peers"][0]["pools"][0]["profile"];
  EXPECT_EQ(profile["domain"], "dmp");
  EXPECT_EQ(profile["receive_buffers"], "dram");
}

}  // namespace
}  // namespace perdure::cli
