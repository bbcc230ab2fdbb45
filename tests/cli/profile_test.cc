// The client's profile, the environment and the command line: which of them counts.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "testing/temporary_directory.h"
#include "tests/cli/command_process.h"

namespace perdure::cli {
namespace {

class Profile : public testing::Test {
 protected:
  /// A command with a profile of this text, and no more said of peers.
  Outcome with(const std::string& text, std::vector<std::string> words) {
    write_file(place_.file("client.toml"), text);
    words.insert(words.end(), {"--profile", place_.file("client.toml")});
    return run(std::move(words));
  }
  const test::TestDirectory place_;
};

TEST_F(Profile, StandsInForWhatIsNotSaid) {
  const std::string text =
      "peers = [\"127.0.0.1:1\", \"127.0.0.2:1\"]\npool = \"orders\"\ntransport = \"tcp\"\n"
      "timeout_ms = 2000\n";
  const Outcome both = with(text, {"log", "status"});
  EXPECT_EQ(both.status, 1) << both.out << both.err;  // nobody listens on port 1
  EXPECT_TRUE(contains(both.out + both.err, "127.0.0.1:1")) << both.out << both.err;
  EXPECT_TRUE(contains(both.out + both.err, "127.0.0.2:1")) << both.out << both.err;
  // The command line counts most, then the environment.
  ::setenv("PERDURE_PEERS", "127.0.0.3:1", 1);
  const Outcome environment = with(text, {"log", "status"});
  const Outcome line = with(text, {"log", "status", "--peers", "127.0.0.4:1"});
  ::unsetenv("PERDURE_PEERS");
  EXPECT_TRUE(contains(environment.out + environment.err, "127.0.0.3:1")) << environment.err;
  EXPECT_FALSE(contains(environment.out + environment.err, "127.0.0.1:1")) << environment.err;
  EXPECT_TRUE(contains(line.out + line.err, "127.0.0.4:1")) << line.err;
  EXPECT_FALSE(contains(line.out + line.err, "127.0.0.3:1")) << line.err;
  EXPECT_EQ(with(text, {"plan"}).out, run({"plan"}).out) << "it asks no peer unless told to";
}

// A file is verified alone, unless the command line itself names peers.
TEST_F(Profile, StandsInForWhatIsVerifiedUnlessThatIsAFile) {
  const std::string text = "peers = [\"127.0.0.1:1\"]\npool = \"orders\"\n";
  const Outcome peers = with(text, {"log", "verify"});
  EXPECT_EQ(peers.status, 1) << peers.err;  // nobody listens on port 1
  EXPECT_TRUE(contains(peers.out, "127.0.0.1:1: unreachable")) << peers.out;
  const Outcome file = with(text, {"log", "verify", "--file", "/nonexistent.pool"});
  EXPECT_EQ(file.status, 1) << file.err;
  EXPECT_TRUE(contains(file.out, "0 of 1 replicas")) << file.out;
  EXPECT_FALSE(contains(file.out, "127.0.0.1:1")) << file.out;
  const Outcome both =
      with(text, {"log", "verify", "--file", "/nonexistent.pool", "--peers", "127.0.0.2:1"});
  EXPECT_TRUE(contains(both.out, "127.0.0.2:1: unreachable")) << both.out;
  EXPECT_TRUE(contains(both.out, "0 of 2 replicas")) << both.out;
  const Outcome none = with("timeout_ms = 2000\n", {"log", "verify"});
  EXPECT_EQ(none.status, 2) << none.out;
}

// What they do to a connection, Daemon.WhatIsAskedOfConnectionsReachesThem shows.
TEST_F(Profile, HasWhatRnicsAreAsked) {
  const std::string text =
      "peers = [\"127.0.0.1:1\"]\npool = \"orders\"\nrnic_ack_timeout = 14\n"
      "rnic_traffic_class = 106\n";
  EXPECT_EQ(with(text, {"log", "status"}).status, 1);  // nobody listens on port 1
  const Outcome line = with(text, {"log", "status", "--rnic-ack-timeout", "23"});
  EXPECT_EQ(line.status, 2) << line.err;
  EXPECT_TRUE(contains(line.err, "'23' is not between 6 and 22")) << line.err;
  ::setenv("PERDURE_RNIC_TRAFFIC_CLASS", "cs3", 1);
  const Outcome environment = with(text, {"log", "status"});
  ::unsetenv("PERDURE_RNIC_TRAFFIC_CLASS");
  EXPECT_EQ(environment.status, 2) << environment.err;
  EXPECT_TRUE(contains(environment.err, "'cs3' is not between 0 and 255")) << environment.err;
}

TEST_F(Profile, IsFoundByTheEnvironmentAndInTheUsersDirectory) {
  write_file(place_.file("other.toml"), "peers = [\"127.0.0.5:1\"]\npool = \"p\"\n");
  ::setenv("PERDURE_PROFILE", place_.file("other.toml").c_str(), 1);
  const Outcome named = run({"log", "status"});
  ::unsetenv("PERDURE_PROFILE");
  EXPECT_TRUE(contains(named.out + named.err, "127.0.0.5:1")) << named.err;

  const std::string before = std::getenv("XDG_CONFIG_HOME");
  ASSERT_EQ(run({"log", "status"}).status, 2) << "there is none";
  ::setenv("XDG_CONFIG_HOME", place_.path().c_str(), 1);
  ASSERT_EQ(::mkdir(place_.file("perdure").c_str(), 0700), 0);
  write_file(place_.file("perdure/client.toml"), "peers = [\"127.0.0.6:1\"]\npool = \"p\"\n");
  const Outcome found = run({"log", "status"});
  ::setenv("XDG_CONFIG_HOME", before.c_str(), 1);
  EXPECT_TRUE(contains(found.out + found.err, "127.0.0.6:1")) << found.err;
}

TEST_F(Profile, IsRefusedWholeWhenAnythingInItIsWrong) {
  //                         text                                      what is said
  const std::pair<std::string, std::string> cases[] = {
      {"peers = [\"nowhere\"]\n", "client.toml:1: peers: "},
      {"peers = \"127.0.0.1:1\"\n", "is no list"},
      {"peers = [7470]\n", "client.toml:1: peers: "},
      {"pool = \"../p\"\n", "pool"},
      {"transport = \"pigeon\"\n", "pigeon"},
      {"timeout_ms = 0\n", "timeout_ms"},
      {"rnic_ack_timeout = 5\n", "rnic_ack_timeout"},
      {"rnic_traffic_class = 256\n", "rnic_traffic_class"},
      {"pol = \"p\"\n", "pol"},
      {"pool = \n", "client.toml:1"},
  };
  for (const auto& [text, said] : cases) {
    const Outcome outcome = with(text, {"log", "status"});
    EXPECT_EQ(outcome.status, 2) << text << outcome.err;
    EXPECT_TRUE(contains(outcome.err, said)) << text << outcome.err;
  }
  EXPECT_EQ(run({"log", "status", "--profile", "/nonexistent.toml"}).status, 2);
}

}  // namespace
}  // namespace perdure::cli
