// The numbers of /metrics that are about logs, of real daemons with a writer and without.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "control/http_client.h"
#include "tests/cli/cluster.h"

namespace perdure::cli {
namespace {

/// The numbers of one pool's log on a peer, by name.
std::map<std::string, double> log_numbers(const std::string& address) {
  const auto answer =
      control::http_call(control::parse_host_port(address).value(), {"GET", "/metrics", ""},
                         1 << 20, Deadline::after(std::chrono::seconds(30)));
  EXPECT_TRUE(answer.ok());
  if (!answer.ok()) return {};
  static const std::regex line("perdure_log_([a-z_]+)\\{pool=\"orders\",.*\\} (.+)");
  std::map<std::string, double> numbers;
  std::istringstream text(answer->body);
  for (std::string each; std::getline(text, each);) {
    std::smatch match;
    if (std::regex_match(each, match, line)) numbers[match[1]] = std::stod(match[2]);
  }
  return numbers;
}

TEST(Metrics, SayHowFullALogIsAndHowFarAReplicaIsBehind) {
  Cluster cluster;
  EXPECT_TRUE(log_numbers(cluster.address(0)).empty()) << "there is none yet";
  std::string text;
  for (int index = 0; index < 50; ++index) text += std::string(100, 'x') + "\n";
  ASSERT_EQ(run(cluster.log("append"), text).status, 0);
  auto first = log_numbers(cluster.address(0));
  EXPECT_EQ(first["head_lsn"], 64);
  EXPECT_EQ(first["used_bytes"], 50 * 136);
  EXPECT_EQ(first["tail_lsn"], 64 + 50 * 136);
  EXPECT_EQ(first["committed_lsn"], first["tail_lsn"]);
  EXPECT_EQ(first["replicas"], 3);
  EXPECT_EQ(first["quorum"], 2);
  EXPECT_EQ(first["whole"], 1);

  cluster.stop(2);
  ASSERT_EQ(run(cluster.log("append"), text).status, 0);
  ASSERT_EQ(run(cluster.log("trim", {"--keep-records", "10"})).status, 0);
  cluster.start(2);  // it has not been brought to equal
  auto ahead = log_numbers(cluster.address(0));
  auto behind = log_numbers(cluster.address(2));
  EXPECT_EQ(ahead["tail_lsn"], 64 + 100 * 136);
  EXPECT_EQ(ahead["used_bytes"], 10 * 136);
  EXPECT_EQ(behind["tail_lsn"], 64 + 50 * 136) << "what it has is known before anybody writes";
  EXPECT_EQ(behind["head_lsn"], 64);
  EXPECT_LT(behind["epoch"], ahead["epoch"]);
}

TEST(Metrics, OfALogAreRenewedWhileItIsWritten) {
  const Cluster cluster;
  CommandProcess writer(cluster.log("append"));
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  double seen = 0;
  for (int appended = 1; appended <= 3; ++appended) {
    writer.write("a record\n");
    const double wanted = 40.0 * appended;
    while (seen < wanted && !deadline.passed())
      seen = log_numbers(cluster.address(0))["used_bytes"];
    EXPECT_EQ(seen, wanted) << "the writer is still there, and pauses";
  }
  writer.close_input();
  EXPECT_EQ(writer.wait().status, 0);
}

}  // namespace
}  // namespace perdure::cli
