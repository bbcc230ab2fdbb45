// The bench of RPC designs runs what it says it runs. Speeds are looked at in the emulated fabric
// alone, whose time is the same each time.
#include "bench/rpc_failures.h"
#include "bench/rpc_figures.h"
#include "core/bytes.h"
#include "core/json.h"
#include "core/text_file.h"
#include "testing/temporary_directory.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace perdure::bench {
namespace {

namespace models = rpc::models;

RpcPoint point_of(const models::Design& design, RpcFabric fabric, RpcForm form) {
  RpcPoint point;
  point.design = &design;
  point.fabric = fabric;
  point.form = form;
  point.load.object_bytes = 256;
  point.load.objects = 64;
  point.load.calls = 60;
  point.load.warm_up = 10;
  return point;
}

RpcSample run(const RpcPoint& point) {
  const auto sample = run_rpc_point(point);
  EXPECT_TRUE(sample.ok()) << point.description() << ": " << sample.error().message;
  return sample.ok() ? *sample : RpcSample{};
}

TEST(RpcBench, EachDesignRunsInEachFormInTheEmulatedFabric) {
  for (const models::Design* design : models::designs()) {
    for (const RpcForm form : kRpcForms) {
      const RpcSample sample = run(point_of(*design, RpcFabric::Emu, form));
      EXPECT_EQ(sample.calls, 60u);
      EXPECT_GT(sample.mean_us, 0) << design->name;
      EXPECT_GE(sample.p99_us, sample.p50_us) << design->name;
    }
  }
}

TEST(RpcBench, EachDesignRunsBetweenProcesses) {
  for (const models::Design* design : models::designs()) {
    RpcPoint point = point_of(*design, RpcFabric::Shm, RpcForm::Equalised);
    if (design->needs_send_flush) {
      EXPECT_EQ(run_rpc_point(point).error().code, ErrorCode::Unsupported);
      continue;
    }
    point.load.clients = 2;
    point.load.batch = 2;
    const RpcSample sample = run(point);
    EXPECT_EQ(sample.calls, 120u) << design->name;
    EXPECT_EQ(sample.lost, 0u) << design->name;
    EXPECT_GT(sample.client_us, 0) << design->name;
    EXPECT_GT(sample.server_us, 0) << design->name;
  }
}

TEST(RpcBench, WorkIsSpentOnceForEachCallAndADurableCallDoesNotWaitForIt) {
  const auto of = [](const models::Design& design, bool skips) {
    RpcPoint point = point_of(design, RpcFabric::Emu, RpcForm::Equalised);
    point.load.read_percent = 0;
    point.load.processing = Nanoseconds{100'000};
    point.window = 4;
    point.confounders.skips_processing = skips;
    return run(point);
  };
  const RpcSample farm = of(models::kFarm, false);
  const RpcSample wflush = of(models::kWflush, false);
  // Four calls in flight, one processor: each reply takes the work of four.
  EXPECT_NEAR(farm.mean_us, 400, 20);
  EXPECT_NEAR(farm.calls_per_second(), 9'700, 500);  // 60 calls, behind 4 of the warm-up
  EXPECT_LT(wflush.mean_us, farm.mean_us);
  EXPECT_NEAR(wflush.calls_per_second(), 9'900, 700);
  EXPECT_GT(of(models::kWflush, true).calls_per_second(), 100'000);
  EXPECT_EQ(of(models::kFarm, true).calls_per_second(), farm.calls_per_second());
}

TEST(RpcBench, OneLineFlushedIsCheaperThanAll) {
  RpcPoint point = point_of(models::kFarm, RpcFabric::Emu, RpcForm::Equalised);
  point.load.object_bytes = 16 * 1024;
  point.load.read_percent = 0;
  point.window = 1;
  const double all = run(point).mean_us;
  point.confounders.flushes_first_line = true;
  EXPECT_GT(all, run(point).mean_us + 4);  // 255 lines, 20 ns each
}

TEST(RpcBench, TheArtifactsWflushLosesCallsOfASlowServer) {
  RpcPoint point = point_of(models::kWflush, RpcFabric::Emu, RpcForm::Equalised);
  point.load.read_percent = 0;
  point.load.processing = Nanoseconds{20'000};
  EXPECT_EQ(run(point).lost, 0u);
  point.confounders.reuses_places = true;
  EXPECT_GT(run(point).lost, 0u);
}

TEST(RpcBench, ABusyNetworkIsBusyFromTheFirstCallOn) {
  RpcPoint point = point_of(models::kFarm, RpcFabric::Shm, RpcForm::Equalised);
  point.load.network_clients = 1;
  EXPECT_EQ(run(point).calls, 60u);
}

TEST(RpcBench, WhatIsComparedWithABusyProcessorIsPinnedAsThatIs) {
  for (const RpcFigure& figure : rpc_figures({})) {
    if (figure.name != "15" && figure.name != "16") continue;
    for (const RpcCell& cell : figure.cells) {
      EXPECT_TRUE(cell.load.pinned) << figure.name << " " << cell.label;
    }
    RpcPoint idle;
    idle.design = &models::kFarm;
    idle.load = figure.cells.front().load;
    RpcPoint anywhere = idle;
    anywhere.load.pinned = false;
    EXPECT_NE(idle.description(), anywhere.description());
  }
}

TEST(RpcBench, YcsbHasTheReadsOfItsMix) {
  RpcPoint point = point_of(models::kWflush, RpcFabric::Emu, RpcForm::Paper);
  for (const char name : {'A', 'B', 'C', 'D', 'E', 'F'}) {
    point.load.ycsb = name;
    EXPECT_EQ(run(point).calls, 60u) << name;
  }
}

/// A point whose server keeps a graph of 300 vertices.
RpcPoint point_of_graph(const models::Design& design, RpcFabric fabric, RpcForm form) {
  RpcPoint point = point_of(design, fabric, form);
  RpcFigure figure;
  figure.cells.push_back({"small", point.load, RpcGraphSource{300, 2000, {}, 3}});
  figure.cells.back().load.object_bytes = 256;
  figure.cells.back().load.warm_up = 0;
  EXPECT_TRUE(make_rpc_graphs(figure, 1).ok());
  point.load = figure.cells.back().load;
  return point;
}

TEST(RpcBench, RanksComeOutOfEveryDesignInEveryForm) {
  for (const models::Design* design : models::designs()) {
    for (const RpcForm form : kRpcForms) {
      const RpcPoint point = point_of_graph(*design, RpcFabric::Emu, form);
      EXPECT_EQ(run(point).calls, 3 * point.load.objects) << design->name;
    }
  }
  run(point_of_graph(models::kFarm, RpcFabric::Shm, RpcForm::Paper));
}

TEST(RpcBench, RanksOfAnotherGraphAreFound) {
  for (const bool in_its_blocks : {false, true}) {
    RpcPoint point = point_of_graph(models::kFarm, RpcFabric::Emu, RpcForm::Equalised);
    auto other = std::make_shared<RpcGraph>(*point.load.graph);
    if (in_its_blocks) {
      // An edge of the first record ends elsewhere.
      store(other->blocks.data() + 20, load<std::uint32_t>(other->blocks.data() + 20) ^ 1U);
    } else {
      other->ranks.back() *= 1.00001;
    }
    point.load.graph = std::move(other);
    const auto found = run_rpc_point(point);
    ASSERT_EQ(found.code(), ErrorCode::Corrupt) << in_its_blocks;
    EXPECT_NE(found.error().message.find("ranks"), std::string::npos) << found.error().message;
  }
}

TEST(RpcBench, SamplesAreKeptAndALineThatIsNotWholeIsLeftOut) {
  const test::TestDirectory place;
  const std::string path = place.file("samples");
  const RpcPoint point = point_of(models::kFarm, RpcFabric::Emu, RpcForm::Paper);
  RpcSample sample;
  sample.calls = 7;
  sample.p99_us = 1.5;
  {
    auto kept = RpcResults::open(path);
    ASSERT_TRUE(kept.ok());
    ASSERT_TRUE(kept->add(point, 0, sample).ok());
    ASSERT_TRUE(kept->add(point, 1, sample).ok());
  }
  const std::string whole = read_text(path);
  ASSERT_TRUE(write_file(path, whole.substr(0, whole.size() - 20)).ok());
  const auto again = RpcResults::open(path);
  ASSERT_TRUE(again.ok());
  ASSERT_NE(again->find(point, 0), nullptr);
  EXPECT_EQ(again->find(point, 0)->p99_us, 1.5);
  EXPECT_EQ(again->find(point, 1), nullptr);
  RpcPoint other = point;
  other.load.seed = 2;
  EXPECT_EQ(again->find(other, 0), nullptr);
}

TEST(RpcBench, AGainIsThatOfTheLeastAndOfTheMostFavourablePair) {
  RpcFigure figure;
  figure.quantity = RpcQuantity::MeanLatency;
  figure.cells = {{"a", {}}, {"b", {}}};
  const RpcClaim claim{"", "", {&models::kWflush}, {&models::kFarm, &models::kL5}, {"a"}};
  std::vector<RpcRow> rows;
  const auto add = [&](const models::Design& design, const char* cell, double us) {
    RpcRow row;
    row.point = point_of(design, RpcFabric::Emu, RpcForm::Paper);
    row.cell = cell;
    row.rounds.resize(3);
    row.rounds[0].mean_us = us * 3;
    row.rounds[1].mean_us = us;
    row.rounds[2].mean_us = us / 3;
    rows.push_back(row);
  };
  add(models::kWflush, "a", 5);
  add(models::kFarm, "a", 10);
  add(models::kL5, "a", 4);
  add(models::kWflush, "b", 1);
  add(models::kFarm, "b", 100);
  EXPECT_EQ(gain_text(gain_of(figure, claim, rows, RpcForm::Paper)), "-50 % to +25 %");
  EXPECT_EQ(gain_text(gain_of(figure, claim, rows, RpcForm::Artifact)), "not run");
  // One of which a round failed says nothing: neither in a claim nor in the document.
  rows[2].failure = "a call is never over";
  EXPECT_EQ(gain_text(gain_of(figure, claim, rows, RpcForm::Paper)), "-50 %");
  figure.claims = {claim};
  const std::vector<RpcFigureResult> results{{figure, RpcFabric::Emu, {rows[2]}}};
  const auto json = nlohmann::json::parse(rpc_json(results, nlohmann::json::array(), {}));
  EXPECT_TRUE(json["figures"][0]["rows"][0]["median"].is_null()) << json.dump(1);
}

TEST(RpcBench, AFigureOfWhichNothingCanBeRunIsAnErrorThatNamesWhatCan) {
  RpcRunOptions options;
  options.fabric = RpcFabric::Shm;
  options.designs = {&models::kSflush};
  RpcResults none;
  const RpcFigure figure = rpc_figures({}).front();
  EXPECT_EQ(rpc_runs(figure, options), 0u);
  const auto rows = run_rpc_figure(figure, options, none, {});
  ASSERT_EQ(rows.code(), ErrorCode::InvalidArgument);
  EXPECT_NE(rows.error().message.find("sflush: SFLUSH is a verb"), std::string::npos)
      << rows.error().message;
  EXPECT_NE(rows.error().message.find("w-rflush"), std::string::npos) << rows.error().message;
}

TEST(RpcBench, AResultWithoutRowsHasTheLabelOfItsFabric) {
  const RpcFigureResult result{rpc_figures({}).front(), RpcFabric::Emu, {}};
  EXPECT_NE(rpc_text(result).find("[emulated]"), std::string::npos) << rpc_text(result);
}

TEST(RpcFailures, AServerThatIsKilledComesBackAndNoLoggedCallIsLost) {
  RpcFailureOptions options;
  options.failures = 2;
  options.quiet = std::chrono::milliseconds(50);
  options.up = std::chrono::milliseconds(50);
  options.down = std::chrono::milliseconds(20);
  options.resend = std::chrono::milliseconds(10);
  const auto rows = run_rpc_failures(options, [](const std::string&) {});
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), kRpcFailureRows);
  for (const RpcFailureRow& row : *rows) {
    EXPECT_EQ(row.failure, "") << row.relies_on_log << " " << row.write_percent;
    EXPECT_GT(row.calls, 0u);
    EXPECT_GT(row.call_us, 0);
    EXPECT_GE(row.seconds, 2 * 0.020);  // it was down for that long
  }
}

TEST(RpcFailures, MoreFailuresThanThereAreCountedWritesForAreRefused) {
  RpcFailureOptions options;
  // 4,000,000 writes of 20 us are 84 s of calls; a failure comes 0.4 s after the other.
  EXPECT_NEAR(static_cast<double>(rpc_failures_max(options)), 207, 2);
  options.failures = rpc_failures_max(options) + 1;
  const auto rows = run_rpc_failures(options, [](const std::string&) { FAIL() << "it runs"; });
  ASSERT_EQ(rows.code(), ErrorCode::InvalidArgument);
  EXPECT_NE(rows.error().message.find(std::to_string(rpc_failures_max(options))), std::string::npos)
      << rows.error().message;
}

TEST(RpcFailures, WhatAFailureCostsIsNotSaidOfAMachineThatWasNotQuiet) {
  RpcFailureRow row;
  row.calls = 1000;
  row.call_us = 10;
  row.failure_ms = -190;
  RpcFailureRow other = row;
  other.relies_on_log = true;
  other.failure_ms = 190;
  const std::string text = rpc_failures_text({row, other}, {});
  EXPECT_NE(text.find("not quiet"), std::string::npos) << text;
  EXPECT_EQ(text.find("-190"), std::string::npos) << text;
}

TEST(RpcFailures, WhatFollowsForAnAvailabilityIsCallsAndFailures) {
  const RpcFailureOptions options;  // 300 ms down
  RpcFailureRow row;
  row.calls = 1000;
  row.call_us = 10;
  row.failure_ms = 500;
  // 27 s of calls, so ten failures: up for 2.7 s before each.
  EXPECT_NEAR(row.seconds_at(0.9, 2.7e6, options), 27 + 5, 1e-6);
  EXPECT_NEAR(row.seconds_at(0.99, 2.97e6, options), 29.7 + 0.5, 1e-6);
  // It is no measurement, and says so in the text and on the page.
  RpcFailureRow other = row;
  other.relies_on_log = true;
  EXPECT_NE(rpc_failures_text({row, other}, options).find("again. [calculated]\n"),
            std::string::npos);
  report::ReportPage page("x", "y");
  add_rpc_failures(page, {row, other}, options);
  EXPECT_NE(page.html().find("class=\"origin calculated\""), std::string::npos);
}

TEST(RpcBench, WhatADesignCanNotCarryIsNotRun) {
  RpcPoint point = point_of(models::kFasst, RpcFabric::Emu, RpcForm::Paper);
  point.load.object_bytes = 64 * 1024;
  EXPECT_NE(point.impossible(), "");
  EXPECT_EQ(run_rpc_point(point).error().code, ErrorCode::Unsupported);
}

}  // namespace
}  // namespace perdure::bench
