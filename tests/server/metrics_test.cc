// /metrics as Prometheus reads it, and the alerts that are made of it. Where Debian's package
// prometheus is installed, its promtool judges both too.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "server/metrics.h"
#include "server/process_metrics.h"
#include "server/times.h"
#include "testing/temporary_directory.h"

namespace perdure::server {
namespace {

/// One pool with a log in it, whose flushes took 1 us, 1.5 us, 3 ms and a minute.
control::ServiceReport busy_report() {
  SharedTimes times;
  for (const std::int64_t ns : {1'000, 1'500, 3'000'000}) times.add(Nanoseconds(ns));
  times.add(std::chrono::minutes(1));
  control::PoolReport pool;
  pool.pool.name = "orders";
  pool.pool.state = control::PoolStatus::Open;
  pool.times.flush = times.counts();
  control::LogReport log;
  log.log_id = 0x1f;
  log.epoch = Epoch{3};
  log.head = Lsn{64};
  log.tail = Lsn{1064};
  log.committed = Lsn{964};
  log.ring_bytes = 65536;
  log.replicas = 3;
  log.quorum = 2;
  log.whole = true;
  pool.log = log;
  control::ServiceReport report;
  report.pools.push_back(pool);
  report.pools.push_back({});  // and one that has none, and was never flushed
  report.pools.back().pool.name = "other";
  return report;
}

std::string all_metrics(const control::ServiceReport& report) {
  return metrics_text(report) + metrics_text(HttpCounters{}) + metrics_text(RpmemCounters{}) +
         process_metrics_text();
}

/// The values by name and labels. Fails the test where the text is not of the format.
std::map<std::string, double> parsed(const std::string& text) {
  static const std::regex comment(R"(# (HELP|TYPE) ([a-z_]+) (.+))");
  static const std::regex sample(R"re(([a-z_]+)(\{([a-z]+="[^"\\]*",?)+\})? ([0-9.e+-]+|\+Inf))re");
  std::map<std::string, double> values;
  std::map<std::string, std::string> types;
  std::string family;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, comment)) {
      family = match[2];
      if (match[1] == "TYPE") {
        EXPECT_TRUE(types.emplace(family, match[3]).second) << line;
      }
      continue;
    }
    EXPECT_TRUE(std::regex_match(line, match, sample)) << line;
    std::string name = match[1];
    if (types[family] == "histogram")
      name = std::regex_replace(name, std::regex("_(bucket|sum|count)$"), "");
    EXPECT_EQ(name, family) << "values stand behind the head of their name: " << line;
    if (types[family] == "counter") {
      EXPECT_TRUE(name.ends_with("_total")) << line;
    }
    EXPECT_TRUE(values.emplace(match[1].str() + match[2].str(), std::stod(match[4])).second)
        << line;
  }
  return values;
}

TEST(Metrics, AreOfTheFormatAndHaveEachValueOnce) {
  const auto values = parsed(all_metrics(busy_report()));
  EXPECT_GT(values.size(), 80u);
  EXPECT_GT(values.at("process_resident_memory_bytes"), 1e6);
  EXPECT_GT(values.at("process_open_fds"), 2);
  EXPECT_GE(values.at("process_max_fds"), values.at("process_open_fds"));
  EXPECT_GE(values.at("process_threads"), 1);
  EXPECT_GT(values.at("process_start_time_seconds"), 1.6e9);
  EXPECT_GE(values.at("process_cpu_seconds_total"), 0);
}

TEST(Metrics, TimesAreCountedInClassesThatHoldTheSmallerOnes) {
  const auto values = parsed(metrics_text(busy_report()));
  const auto below = [&](const std::string& end) {
    return values.at("perdure_flush_duration_seconds_bucket{pool=\"orders\",le=\"" + end + "\"}");
  };
  EXPECT_EQ(below("1e-06"), 1) << "an end belongs to its class";
  EXPECT_EQ(below("2e-06"), 2);
  EXPECT_EQ(below("0.002"), 2);
  EXPECT_EQ(below("0.005"), 3);
  EXPECT_EQ(below("10"), 3);
  EXPECT_EQ(below("+Inf"), 4);
  EXPECT_EQ(values.at("perdure_flush_duration_seconds_count{pool=\"orders\"}"), 4);
  EXPECT_NEAR(values.at("perdure_flush_duration_seconds_sum{pool=\"orders\"}"), 60.0030025, 1e-9);
  EXPECT_EQ(values.at("perdure_answer_duration_seconds_count{pool=\"orders\"}"), 0);
}

TEST(Metrics, SayHowFarAReplicaIsAndHowFullItsLog) {
  const auto values = parsed(metrics_text(busy_report()));
  const auto log = [&](const std::string& name) {
    return values.at("perdure_log_" + name + "{pool=\"orders\",log=\"000000000000001f\"}");
  };
  EXPECT_EQ(log("head_lsn"), 64);
  EXPECT_EQ(log("tail_lsn"), 1064);
  EXPECT_EQ(log("committed_lsn"), 964);
  EXPECT_EQ(log("used_bytes"), 1000);
  EXPECT_EQ(log("ring_bytes"), 65536);
  EXPECT_EQ(log("epoch"), 3);
  EXPECT_EQ(log("replicas"), 3);
  EXPECT_EQ(log("quorum"), 2);
  EXPECT_EQ(log("whole"), 1);
  for (const auto& [name, value] : values) {
    EXPECT_FALSE(name.starts_with("perdure_log_") && name.find("other") != std::string::npos)
        << "a pool without a log has none of its numbers: " << name;
  }
}

TEST(Metrics, OfAReplicaThatWasRemovedSayNothingOfTheLog) {
  auto report = busy_report();
  report.pools[0].log->removed = true;
  EXPECT_EQ(metrics_text(report).find("log=\"000000000000001f\""), std::string::npos);
}

TEST(Metrics, SayHowLongWorkHasNotEnded) {
  auto report = busy_report();
  report.pools[0].oldest_work = std::chrono::milliseconds(1500);
  const auto values = parsed(metrics_text(report));
  EXPECT_EQ(values.at("perdure_oldest_work_seconds{pool=\"orders\"}"), 1.5);
  EXPECT_EQ(values.at("perdure_oldest_work_seconds{pool=\"other\"}"), 0);
}

TEST(Metrics, OfAlikeFlushesOfMemoryASampleIsTimed) {
  TimedSample memory(PersistenceDomain::Dmp);
  TimedSample file(PersistenceDomain::Page);
  int of_memory = 0;
  int of_file = 0;
  for (int i = 0; i < 170; ++i) {
    of_memory += memory.next() ? 1 : 0;
    of_file += file.next() ? 1 : 0;
  }
  EXPECT_EQ(of_memory, 10);
  EXPECT_EQ(of_file, 170);
}

const std::string kRules = std::string(PERDURE_SOURCE) + "/configs/prometheus/perdure.rules.yml";

std::string rules() {
  std::ifstream file(kRules);
  EXPECT_TRUE(file.is_open()) << kRules;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Alerts, AreMadeOfNumbersThatThereAre) {
  std::set<std::string> names{"up"};  // Prometheus' own
  for (const auto& [name, value] : parsed(all_metrics(busy_report()))) {
    names.insert(name.substr(0, name.find('{')));
  }
  const std::regex word("\\b(perdure|process|up)(_[a-z]+)*\\b");
  std::istringstream lines(rules());
  std::set<std::string> alerts;
  std::string alert;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("- alert: ") != std::string::npos) alert = line.substr(line.rfind(' ') + 1);
    const auto at = line.find("expr: ");
    if (at == std::string::npos) continue;
    EXPECT_TRUE(alerts.insert(alert).second) << alert << " is there twice";
    const std::string expression =
        std::regex_replace(line.substr(at + 6), std::regex("\"[^\"]*\""), "");
    std::size_t used = 0;
    for (auto it = std::sregex_iterator(expression.begin(), expression.end(), word);
         it != std::sregex_iterator(); ++it, ++used) {
      EXPECT_TRUE(names.contains(it->str())) << alert << ": " << it->str();
    }
    EXPECT_GT(used, 0u) << alert;
  }
  EXPECT_GE(alerts.size(), 10u);
  for (const std::string needed : {"PerdureLogNearlyFull", "PerdureReplicaBehind"}) {
    EXPECT_TRUE(alerts.contains(needed)) << needed;
  }
  // What is tried out by their tests is there.
  std::ifstream tests(std::string(PERDURE_SOURCE) + "/configs/prometheus/perdure.rules.test.yml");
  std::size_t tried = 0;
  for (std::string line; std::getline(tests, line);) {
    static const std::regex name("alertname: ([A-Za-z]+)");
    std::smatch match;
    if (!std::regex_search(line, match, name)) continue;
    EXPECT_TRUE(alerts.contains(match[1])) << line;
    ++tried;
  }
  EXPECT_GT(tried, 10u);
}

TEST(Alerts, AreRightByPromtoolWhereItIsInstalled) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe,cert-env33-c): there is one thread
  const auto succeeds = [](const std::string& command) {
    return std::system(command.c_str()) == 0;
  };
  if (!succeeds("promtool --version >/dev/null 2>&1")) {
    GTEST_SKIP() << "promtool is not installed (Debian's package prometheus)";
  }
  const std::string directory = std::string(PERDURE_SOURCE) + "/configs/prometheus";
  EXPECT_TRUE(succeeds("promtool check rules " + kRules + " >&2"));
  EXPECT_TRUE(succeeds("cd " + directory + " && promtool test rules perdure.rules.test.yml >&2"));
  const test::TestDirectory place;
  const std::string file = place.path() + "/metrics";
  std::ofstream(file) << all_metrics(busy_report());
  EXPECT_TRUE(succeeds("promtool check metrics <" + file + " >&2"));
}

}  // namespace
}  // namespace perdure::server
