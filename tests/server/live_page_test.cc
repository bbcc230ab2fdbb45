// The script of the live page, run by node where that is installed, on what /metrics says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "server/live_page.h"
#include "server/metrics.h"
#include "server/times.h"
#include "testing/temporary_directory.h"

namespace perdure::server {
namespace {

bool succeeds(const std::string& command) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe,cert-env33-c): there is one thread
  return std::system(command.c_str()) == 0;
}

std::string metrics_of(std::uint64_t messages, Lsn head, Lsn tail, SharedTimes& flushes) {
  control::ServiceReport report;
  report.pools.resize(2);
  report.pools[0].pool.name = "other";
  control::PoolReport& pool = report.pools[1];
  pool.pool.name = "orders";
  pool.counters.messages = messages;
  pool.times.flush = flushes.counts();
  control::LogReport log;
  log.log_id = 7;
  log.head = head;
  log.tail = tail;
  log.ring_bytes = 8192;
  pool.log = log;
  return metrics_text(report);
}

TEST(LivePage, IsWholeAndLoadsNothingFromElsewhere) {
  const std::string page = live_page();
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
  EXPECT_NE(page.find(live_page_numbers()), std::string::npos);
  EXPECT_EQ(page.find("://"), std::string::npos);
}

TEST(LivePage, ItsCurvesShowWhatHappenedBetweenTwoLooks) {
  if (!succeeds("node --version >/dev/null 2>&1")) GTEST_SKIP() << "node is not installed";
  SharedTimes flushes;
  for (int i = 0; i < 1000; ++i) flushes.add(std::chrono::seconds(3));  // long ago
  const std::string before =
      metrics_of(100, Lsn{64}, Lsn{64}, flushes) + "process_cpu_seconds_total 8\n";
  for (int i = 0; i < 99; ++i) flushes.add(std::chrono::microseconds(40));
  flushes.add(std::chrono::milliseconds(4));
  const std::string now = metrics_of(160, Lsn{2112}, Lsn{4160}, flushes) +
                          "process_cpu_seconds_total 8.5\n"
                          "process_resident_memory_bytes 3145728\n";

  const test::TestDirectory place;
  std::ofstream(place.file("before")) << before;
  std::ofstream(place.file("now")) << now;
  std::ofstream(place.file("test.js")) << "\"use strict\";\n"
                                       << live_page_numbers() << R"js(
const assert = require("assert"), fs = require("fs");
const [before, now] = ["before", "now"].map(
  name => numbers(fs.readFileSync(__dirname + "/" + name, "utf8")));
assert.deepStrictEqual(point(before, now, 2, "orders"), [25, 2, 1, 30, 0.05, null]);
assert.deepStrictEqual(point(before, now, 2, "other"), [null, null, null, 0, null, null]);
const again = point(now, before, 2, "orders");
assert.deepStrictEqual(again.slice(1, 4), [0, 0, 0], "the daemon was started again");
const fresh = new Map([...before].filter(([name]) => !name.startsWith("perdure_log")));
const made = point(fresh, now, 2, "orders").slice(1, 3);
assert.deepStrictEqual(made, [0, 0], "the log was made between the two looks");
assert.deepStrictEqual(process_point(before, now, 2), [3, 25]);
assert.deepStrictEqual(process_point(now, before, 2), [null, 0]);
assert.deepStrictEqual(process_point(now, new Map(), 2), [null, null]);
assert.strictEqual(curve([100, null, 50, 0], 4, 200, 40, 100), "M50.0,0.0h0.1M150.0,20.0h0.1L200.0,40.0");
assert.strictEqual(curve([1], 4, 200, 40, 100), "M200.0,39.6h0.1");
)js";
  EXPECT_TRUE(succeeds("node " + place.file("test.js") + " >&2"));
  // And the whole page is a program that can be read.
  const std::string page = live_page();
  const auto begin = page.find("<script>") + 8;
  std::ofstream(place.file("page.js")) << page.substr(begin, page.find("</script>") - begin);
  EXPECT_TRUE(succeeds("node --check " + place.file("page.js") + " >&2"));
}

}  // namespace
}  // namespace perdure::server
