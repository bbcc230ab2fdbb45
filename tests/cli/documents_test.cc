// What commands print as JSON is what the schemas in docs/ say, in good days and in bad ones.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "control/host_port.h"
#include "control/http_client.h"
#include "control/json_codec.h"
#include "control/json_fields.h"
#include "core/json.h"
#include "core/random.h"
#include "core/text_file.h"
#include "testing/temporary_directory.h"
#include "tests/cli/cluster.h"

namespace perdure::cli {
namespace {

const std::string kTree = PERDURE_TREE;

TEST(Documents, OfTheLogAreWhatTheirSchemasSay) {
  Cluster cluster;
  EXPECT_EQ(expect_document(cluster.log("status"), "log-status.schema.json").status, 4)
      << "the pools hold no log";
  EXPECT_EQ(expect_document(cluster.log("verify"), "log-verify.schema.json").status, 4);
  ASSERT_EQ(run(cluster.log("append"), "one\ntwo\nthree\n").status, 0);
  EXPECT_EQ(expect_document(cluster.log("status"), "log-status.schema.json").status, 0);
  EXPECT_EQ(expect_document(cluster.log("verify"), "log-verify.schema.json").status, 0);

  const std::vector<std::string> overview{"status", "--peers", cluster.all()};
  EXPECT_EQ(expect_document(overview, "status.schema.json").status, 0);

  cluster.stop(1);
  EXPECT_EQ(expect_document(overview, "status.schema.json").status, 1);
  EXPECT_EQ(expect_document(cluster.log("status"), "log-status.schema.json").status, 1);
  EXPECT_EQ(expect_document(cluster.log("verify"), "log-verify.schema.json").status, 1);
  ASSERT_EQ(run(cluster.log("append"), "four\n").status, 0);
  EXPECT_EQ(expect_document(cluster.log("repair"), "log-repair.schema.json").status, 1);
  std::string bytes = read_file(cluster.pool_file(1));
  const std::size_t at = bytes.find("two");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'T';
  write_file(cluster.pool_file(1), bytes);
  cluster.start(1);
  cluster.stop(2);
  EXPECT_EQ(expect_document(cluster.log("verify"), "log-verify.schema.json").status, 4)
      << "one that can not be reached hides no damage";
  cluster.start(2);
  EXPECT_EQ(expect_document(cluster.log("repair"), "log-repair.schema.json").status, 0);
  EXPECT_EQ(expect_document(cluster.log("trim", {"--keep-records", "1"}), "log-repair.schema.json")
                .status,
            0);
  EXPECT_EQ(expect_document(cluster.log("verify"), "log-verify.schema.json").status, 0);
}

TEST(Documents, OfACertifiedPeerIsWhatItsSchemaSays) {
  Cluster cluster;
  const std::vector<std::string> certify{
      "probe", "--certify", cluster.address(0), "--pool", "orders", "--transport", "tcp"};
  EXPECT_EQ(run(certify).status, 2) << "it would overwrite the pool";
  const Outcome nameless = run({"probe", "--certify", cluster.address(0), "--overwrite"});
  EXPECT_EQ(nameless.status, 2) << "it would overwrite a pool, and which?";
  EXPECT_TRUE(contains(nameless.err, "needs --pool NAME")) << nameless.err;
  std::vector<std::string> agreed = certify;
  agreed.push_back("--overwrite");
  const Outcome outcome = expect_document(agreed, "certify.schema.json");
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_EQ(run({"probe", "--certify", cluster.address(0), "--pool", "none", "--overwrite"}).status,
            1);
}

/// Until the list has come to its second writer; it must not have ended by then. Asked without the
/// command: that takes as long to start as the list takes.
void await_second_writer(const Cluster& cluster, CommandProcess& certifying) {
  const auto at = control::parse_host_port(cluster.address(0));
  ASSERT_TRUE(at.ok());
  const Deadline patience = Deadline::after(std::chrono::seconds{60});
  while (!patience.passed()) {
    const auto answer = control::http_call(*at, {"GET", "/v1/pools/orders", ""},
                                           control::kJsonAnswerBytesMax, patience);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    const auto pool = control::decode_pool(answer->body);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    constexpr std::uint64_t kSecondWriter = 3;  // the first one's epoch is 1, and is fenced at 2
    if (pool->epoch.value >= kSecondWriter) break;
    ASSERT_TRUE(certifying.running()) << certifying.wait().err;
  }
}

// The peer dies under the list: what was found is reported, and why the rest was not.
TEST(Documents, OfAPeerThatDiesWhileItIsCertifiedIsWhole) {
  Cluster cluster;
  CommandProcess certifying({"probe", "--certify", cluster.address(0), "--pool", "orders",
                             "--transport", "tcp", "--overwrite", "--format", "json"});
  ASSERT_NO_FATAL_FAILURE(await_second_writer(cluster, certifying));
  cluster.kill(0);
  const Outcome outcome = certifying.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto report = nlohmann::json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << outcome.out << outcome.err;
  EXPECT_EQ(report.at("checks").size(), 8u);
  EXPECT_TRUE(contains(outcome.out, "not found out")) << outcome.out;
}

// It stops answering under the list, and nobody says that it has gone: the report names what was
// not found out, and how long the peer had. Before the list there is nothing to report.
TEST(Documents, OfAPeerThatFallsSilentSayForHowLongItWasWaitedFor) {
  Cluster cluster;
  const std::vector<std::string> certify{
      "probe",       "--certify", cluster.address(0), "--pool",      "orders",
      "--transport", "tcp",       "--overwrite",      "--timeout-s", "2"};
  std::vector<std::string> as_json = certify;
  as_json.insert(as_json.end(), {"--format", "json"});
  CommandProcess certifying(as_json);
  ASSERT_NO_FATAL_FAILURE(await_second_writer(cluster, certifying));
  cluster.pause(0);
  const Outcome outcome = certifying.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  expect_valid(outcome, "certify.schema.json");
  const auto report = nlohmann::json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << outcome.out << outcome.err;
  ASSERT_EQ(report.at("checks").size(), 8u);
  const auto& last = report.at("checks").at(5);
  EXPECT_EQ(last.at("name"), "cqe-payload");
  EXPECT_EQ(last.at("proof"), "not-proved") << last;
  EXPECT_TRUE(contains(last.at("finding"), "not found out: ")) << last;
  EXPECT_TRUE(contains(last.at("finding"), "it had 2 s for an answer")) << last;
  const Outcome silent = run(certify);
  EXPECT_EQ(silent.status, 1);
  EXPECT_EQ(silent.out, "");
  EXPECT_TRUE(contains(silent.err, "did not answer in time")) << silent.err;
  EXPECT_TRUE(contains(silent.err, "(it had 2 s: --timeout-s)")) << silent.err;
}

TEST(Documents, OfNoPeerThatMayTakeNoTimeOrAllOfIt) {
  std::vector<std::string> certify{"probe",  "--certify",   "127.0.0.1:1", "--pool",
                                   "orders", "--overwrite", "--timeout-s"};
  for (const std::string bad : {"0", "3601", "-1", "soon", "1.5"}) {
    std::vector<std::string> words = certify;
    words.push_back(bad);
    const Outcome refused = run(words);
    EXPECT_EQ(refused.status, 2) << bad;
    EXPECT_TRUE(contains(refused.err, "--timeout-s")) << bad << ": " << refused.err;
  }
  certify.emplace_back("3600");
  EXPECT_EQ(run(certify).status, 1) << "nobody is there";
  EXPECT_EQ(run({"probe", "--timeout-s", "1"}).status, 2) << "of which peer?";
}

TEST(Documents, OfTheDoctorAreWhatTheirSchemaSays) {
  const test::TestDirectory place;
  const std::vector<std::string> doctor{"probe", "--doctor", place.path()};
  (void)expect_document(doctor, "doctor.schema.json");
  write_file(place.path() + "/orders.pool", "no pool");
  const Outcome outcome = expect_document(doctor, "doctor.schema.json");
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "to_do")) << outcome.out;
  (void)expect_document({"probe", "--doctor", "--rpmem", place.path()}, "doctor.schema.json");
}

nlohmann::json limits_of(const std::string& fabric, const std::string& question) {
  const Outcome outcome = expect_document({"bench", "limits", "--fabric", fabric, "--only",
                                           question, "--rounds", "1", "--samples", "50"},
                                          "limits.schema.json");
  const auto findings = nlohmann::json::parse(outcome.out).at("findings");
  EXPECT_EQ(findings.size(), 1u) << findings;
  const bool well = findings.at(0).at("met") == true;
  EXPECT_EQ(outcome.status, well ? 0 : 1) << outcome.err;
  return findings.at(0);
}

// Whether a target is met says nothing here; that each is asked for, and what is beside it, does.
TEST(Documents, OfLatenciesHaveTheP99OfBothSides) {
  const std::pair<std::string, std::string> targets[] = {{"tcp", "at most 1.05"},
                                                         {"shm", "at most 1.10"}};
  for (const auto& [fabric, target] : targets) {
    const auto row = limits_of(fabric, "64 B durable, one in flight");
    EXPECT_TRUE(contains(row.at("target"), target)) << row;
    EXPECT_GE(row.at("ours_p99"), row.at("ours")) << row;
    EXPECT_TRUE(contains(row.at("note"), "; Perdure: ")) << row;
    EXPECT_GE(row.at("bare_p99"), row.at("bare")) << row;
  }
  EXPECT_TRUE(limits_of("shm", "allocations per append").at("ours_p99").is_null());
}

TEST(Documents, AnAppendThatGathersHasATargetOfItsOwn) {
  const auto row = limits_of("tcp", "that gathers");
  EXPECT_EQ(row.at("target"), "at most 150");
  EXPECT_NE(row.at("failure").get<std::string>().empty(), row.at("met").is_null()) << row;
}

// Under sanitizers not every question has an answer, and then the status says so.
TEST(Documents, OfTheLimitsAreWhatTheirSchemaSays) {
  const Outcome outcome = expect_document({"bench", "limits", "--fabric", "shm", "--only",
                                           "per append", "--rounds", "1", "--samples", "50"},
                                          "limits.schema.json");
  bool all = true;
  const auto document = nlohmann::json::parse(outcome.out);
  for (const auto& each : document.at("findings")) {
    const bool answered = each.at("failure") == "";
    all = all && answered && each.at("met") == true;
    EXPECT_EQ(each.at("n"), answered ? 1 : 0) << each;
    EXPECT_EQ(each.at("ours").is_null(), !answered) << each;
    EXPECT_EQ(each.at("met").is_null(), !answered) << each;
    if (each.at("name") == "posts per append") {
      EXPECT_EQ(each.at("failure"), "");
    }
  }
  EXPECT_EQ(outcome.status, all ? 0 : 1) << outcome.err;
}

TEST(Documents, OfTheFiguresOfDurableRpcAreWhatTheirSchemaSays) {
  const test::TestDirectory place;
  const std::string kept = place.path() + "/samples";
  const std::vector<std::string> arguments{
      "bench",   "rpc", "9",        "--fabric", "emu",    "--designs", "wflush,fasst",
      "--calls", "20",  "--rounds", "1",        "--keep", kept,        "--confounders"};
  const Outcome outcome = expect_document(arguments, "rpc-bench.schema.json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto figure = nlohmann::json::parse(outcome.out).at("figures").at(0);
  // FaSST carries no 64 KiB: the other in two loads, it in one; three forms, ten confounders.
  EXPECT_EQ(figure.at("rows").size(), 3u * 13u);
  for (const auto& row : figure.at("rows")) EXPECT_EQ(row.at("failure"), "");
  // What is kept is not run again: the same samples, which the emulated fabric makes again anyway,
  // and no other line.
  const std::string lines = read_text(kept);
  const Outcome again = expect_document(arguments, "rpc-bench.schema.json");
  EXPECT_EQ(nlohmann::json::parse(again.out).at("figures").at(0), figure);
  EXPECT_EQ(read_text(kept), lines);
}

TEST(Documents, OfTheWaysToMakeAFileDurableAreWhatTheirSchemaSays) {
  const test::TestDirectory place;
  const std::vector<std::string> files{"bench",     "files", place.path(), "--rounds", "2",
                                       "--samples", "3",     "--file-mib", "2"};
  for (const bool single_pages : {false, true}) {
    std::vector<std::string> arguments = files;
    if (single_pages) arguments.push_back("--single-pages");
    const Outcome outcome = expect_document(arguments, "file-sync.schema.json");
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto findings = nlohmann::json::parse(outcome.out).at("findings");
    EXPECT_EQ(findings.size(), 20u) << "four sizes by five ways";
    for (const auto& each : findings) {
      const std::string failure = each.at("failure");
      const std::string way = each.at("way");
      // Every file system can be mapped and written to; O_DIRECT and io_uring may be missing.
      if (!way.starts_with("direct")) {
        EXPECT_EQ(failure, "") << way;
      }
      if (!failure.empty()) continue;
      EXPECT_EQ(each.at("samples"), 6) << way;
      EXPECT_GT(each.at("p50_ns"), 0) << way;
      EXPECT_GE(each.at("p99_ns"), each.at("p50_ns")) << way;
    }
    EXPECT_TRUE(std::filesystem::is_empty(place.path())) << "its files are left";
  }
  const Outcome nowhere = run({"bench", "files", place.path() + "/none"});
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_NE(nowhere.err.find(place.path() + "/none"), std::string::npos) << nowhere.err;
  EXPECT_EQ(run({"bench", "files", place.path(), "--file-mib", "0"}).status, 2);
}

TEST(Documents, OfPlanAndSimulatorAreWhatTheirSchemasSay) {
  EXPECT_EQ(expect_document({"plan", "--all"}, "plan.schema.json").status, 0);
  const test::TestDirectory place;
  const std::string trace = place.path() + "/trace";
  write_file(trace, "0x0 WRITE 0\n0x40 READ 10\n");
  const Outcome simulated =
      expect_document({"sim", "memory", "--device", kTree + "/configs/hardware/ddr4-2400.toml",
                       "--trace", trace, "--trace-format", "dramsim3"},
                      "memory-simulation.schema.json");
  EXPECT_EQ(simulated.status, 0) << simulated.err;
  EXPECT_EQ(nlohmann::json::parse(simulated.out).at("last_line_open"), false);
  write_file(trace, "W 0x40\nW 0x80");
  const Outcome open = expect_document(
      {"sim", "memory", "--device", kTree + "/configs/hardware/ddr4-2400.toml", "--trace", trace},
      "memory-simulation.schema.json");
  EXPECT_EQ(nlohmann::json::parse(open.out).at("last_line_open"), true);
  EXPECT_EQ(nlohmann::json::parse(open.out).at("requests"), 2);
  write_file(trace, "# nothing\n");
  const Outcome nothing = expect_document(
      {"sim", "memory", "--device", kTree + "/configs/hardware/ddr4-2400.toml", "--trace", trace},
      "memory-simulation.schema.json");
  EXPECT_EQ(nothing.status, 0);
  EXPECT_NE(nothing.err.find("there is no request in it"), std::string::npos) << nothing.err;
  const Outcome server = expect_document(
      {"sim", "server", "--device", kTree + "/configs/hardware/nvm-a.toml", "--processor",
       kTree + "/configs/hardware/four-cores.toml", "--footprint-mib", "4", "--partitions", "16",
       "--transactions", "50", "--warm-up", "0", "--remote-channels", "1", "--remote-trace"},
      "server-simulation.schema.json");
  EXPECT_EQ(server.status, 0) << server.err;
}

/// What `perdure check` says of a document that was printed, as the schema has it.
nlohmann::json checked_document(const Outcome& planned, const std::vector<std::string>& more,
                                const std::string& schema, int status) {
  std::vector<std::string> words{"check", "--file", "-", "--format", "json"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome checked = run(words, planned.out);
  EXPECT_EQ(checked.status, status) << checked.out << checked.err;
  expect_valid(checked, schema);
  return nlohmann::json::parse(checked.out, nullptr, false);
}

TEST(Documents, OfAPlanForOneUpdateIsWhatItsSchemaSaysAndCheckReadsIt) {
  const std::vector<std::string> plans[] = {
      {"plan", "--domain", "dmp"},
      {"plan", "--domain", "dmp", "--transport", "roce", "--polled", "--responder-posts"},
      {"plan", "--domain", "mhp", "--transport", "roce", "--shape", "compound"},
      {"plan", "--domain", "none", "--level", "visible"},
  };
  for (const std::vector<std::string>& words : plans) {
    SCOPED_TRACE(testing::PrintToString(words));
    const Outcome planned = expect_document(words, "plan.schema.json");
    ASSERT_EQ(planned.status, 0) << planned.err;
    const auto plan = nlohmann::json::parse(planned.out);
    EXPECT_EQ(plan.at("format"), 2);
    EXPECT_EQ(contains(planned.out, "write_polled"), words.back() == "--responder-posts");
    // Expect: every candidate, by its name, for the level of the plan, on its responder.
    const auto checked = checked_document(planned, {}, "check.schema.json", 0);
    ASSERT_TRUE(checked.is_object());
    const auto& reports = checked.at("reports");
    ASSERT_EQ(reports.size(), plan.at("candidates").size());
    for (std::size_t i = 0; i < reports.size(); ++i) {
      EXPECT_EQ(reports.at(i).at("method"), plan.at("candidates").at(i).at("name"));
      EXPECT_EQ(reports.at(i).at("level"), plan.at("level"));
      EXPECT_EQ(reports.at(i).at("server"), plan.at("server"));
    }
  }
  // What was planned to be visible is not durable, if that is asked.
  const Outcome visible =
      run({"plan", "--domain", "none", "--level", "visible", "--format", "json"});
  const auto durable = checked_document(visible, {"--level", "durable"}, "check.schema.json", 1);
  EXPECT_EQ(durable.at("held"), 0);
  EXPECT_EQ(durable.at("reports").at(0).at("level"), "durable");
}

TEST(Documents, OfAPlannedSetIsWhatItsSchemaSaysAndCheckReadsIt) {
  const std::vector<std::string> plans[] = {
      {"plan", "--set", "--shape", "compound", "--domain", "dmp", "--transport", "roce"},
      {"plan", "--set", "--domain", "dmp"},
      {"plan", "--set", "--domain", "none", "--level", "visible"},
  };
  for (const std::vector<std::string>& words : plans) {
    SCOPED_TRACE(testing::PrintToString(words));
    const Outcome planned = expect_document(words, "plan.schema.json");
    ASSERT_EQ(planned.status, 0) << planned.err;
    const auto plan = nlohmann::json::parse(planned.out);
    EXPECT_EQ(plan.at("format"), 2);
    EXPECT_EQ(plan.at("members").at(0).at("name"), plan.at("batches").at("small"));
    // Expect: its members, as a set that the law allows.
    const auto checked = checked_document(planned, {}, "set.schema.json", 0);
    ASSERT_TRUE(checked.is_object());
    EXPECT_EQ(checked.at("verdict"), "holds");
    EXPECT_EQ(checked.at("allowed"), true);
    EXPECT_EQ(checked.at("level"), plan.at("level"));
    EXPECT_EQ(checked.at("server"), plan.at("server"));
    ASSERT_EQ(checked.at("methods").size(), plan.at("members").size());
    for (std::size_t i = 0; i < plan.at("members").size(); ++i) {
      const auto& member = plan.at("members").at(i);
      const auto& method = checked.at("methods").at(i);
      EXPECT_EQ(method.at("method"), member.at("name"));
      EXPECT_EQ(method.at("written_again"), member.at("written_again"));
      EXPECT_EQ(method.at("vouched"), member.at("vouched"));
    }
  }
}

TEST(Documents, OfWhatIsCheckedAreWhatTheirSchemaSays) {
  const std::vector<std::string> method{"check",  "--method", "write-flush", "--domain", "dmp",
                                        "--ddio", "off",      "--transport", "roce"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = method;
    words.insert(words.end(), more.begin(), more.end());
    return expect_document(words, "check.schema.json");
  };
  const Outcome mutated = with({"--mutate"});
  EXPECT_EQ(mutated.status, 0) << mutated.err;
  EXPECT_GT(nlohmann::json::parse(mutated.out).at("mutants"), 0);
  const Outcome limited = with({"--states-max", "3"});
  EXPECT_EQ(limited.status, 1) << limited.err;
  EXPECT_EQ(nlohmann::json::parse(limited.out).at("reports").at(0).at("verdict"), "limit-reached");
  const Outcome all =
      expect_document({"check", "--all", "--domain", "dmp", "--ddio", "on"}, "check.schema.json");
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(nlohmann::json::parse(all.out).at("checked"), 12);
  EXPECT_EQ(expect_document({"check", "--known-unsafe"}, "check.schema.json").status, 1);
}

TEST(Documents, OfAMethodThatIsPricedIsWhatItsSchemaSays) {
  const std::string hardware = kTree + "/configs/hardware/";
  const Outcome all =
      expect_document({"sim", "method", "--hardware", hardware + "hdr100-one-switch.toml", "--all"},
                      "method-simulation.schema.json");
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(nlohmann::json::parse(all.out).at("methods").size(), 72U);
  // On a responder where it is no proof of anything: it is priced, and said to be violated.
  const Outcome wrong =
      expect_document({"sim", "method", "--hardware", hardware + "edr-back-to-back.toml",
                       "--method", "write-flush", "--domain", "dmp", "--ddio", "on"},
                      "method-simulation.schema.json");
  EXPECT_EQ(nlohmann::json::parse(wrong.out).at("methods").at(0).at("durable"), "violated");
}

/// What docs/simulator.md says of its short runs under epoch is what the command prints: two of the
/// five workloads, for time.
TEST(Documents, TheManualOfTheSimulatorHasTheNumbersOfTheCommand) {
  const std::string manual = read_file(kTree + "/docs/simulator.md");
  for (const std::string workload : {"hash", "sps"}) {
    const Outcome outcome =
        run({"sim", "server", "--workload", workload, "--order", "epoch", "--footprint-mib", "64",
             "--transactions", "2000", "--warm-up", "3000", "--format", "json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const nlohmann::json one = nlohmann::json::parse(outcome.out).at("runs").at(0);
    const nlohmann::json& memory = one.at("memory");
    const double requests = memory.at("requests");
    for (const char* count : {"bank_stalled", "bank_busy"}) {
      const std::string said =
          fmt::format("{} {:.1f}", workload, 100 * memory.at(count).get<double>() / requests);
      EXPECT_NE(manual.find(said), std::string::npos) << said << " is not in docs/simulator.md";
    }
    // | hash | sync | epoch | of the first table
    const std::size_t row = manual.find("\n| " + workload + " | ");
    ASSERT_NE(row, std::string::npos);
    const std::size_t sync = manual.find(" | ", row + workload.size() + 3) + 3;
    EXPECT_EQ(manual.find(fmt::format("| {:.2f} |", one.at("mops").get<double>()), sync),
              manual.find("| ", sync))
        << workload << ": " << one.at("mops");
  }
}

/// The document of `sim memory` without the format of its trace, which has to be what is wanted.
nlohmann::json simulated(const std::string& trace, const std::string& format,
                         const std::string& wanted) {
  const test::TestDirectory place;
  write_file(place.file("trace"), trace);
  const Outcome outcome =
      expect_document({"sim", "memory", "--device", kTree + "/configs/hardware/nvm-a.toml",
                       "--trace", place.file("trace"), "--trace-format", format},
                      "memory-simulation.schema.json");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  auto document = nlohmann::json::parse(outcome.out, nullptr, false);
  if (document.is_discarded()) return document;
  EXPECT_EQ(document.at("trace_format"), wanted);
  document.erase("trace_format");
  return document;
}

TEST(Documents, OfOneTraceInEveryFormatAreTheSame) {
  const auto same = [](const std::map<std::string, std::string>& traces) {
    const auto own = simulated(traces.at("perdure"), "perdure", "perdure");
    EXPECT_EQ(own.at("requests"), 200);
    for (const auto& [format, trace] : traces) {
      EXPECT_EQ(simulated(trace, format, format), own) << format;
      EXPECT_EQ(simulated(trace, "auto", format), own) << format;
    }
  };
  std::map<std::string, std::string> at_once;
  std::map<std::string, std::string> with_cycles;
  Random random(7);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const bool reads = random.below(3) != 0;
    const std::uint64_t address = random.below(1 << 18) * 64;
    at_once["perdure"] += fmt::format("{} 0x{:x}\n", reads ? "R" : "W", address);
    at_once["ramulator"] += fmt::format("{} 0x{:x}\n", reads ? "LD" : "ST", address);
    at_once["whisper"] +=
        fmt::format("0:{}:{}:0x{:x}:64:f:1\n", i, reads ? "PM_R" : "PM_I", address);
    with_cycles["perdure"] += fmt::format("{} 0x{:x} {}\n", reads ? "R" : "W", address, i * 20);
    with_cycles["dramsim3"] +=
        fmt::format("0x{:x} {} {}\n", address, reads ? "READ" : "WRITE", i * 20);
  }
  same(at_once);
  same(with_cycles);
}

/// What a paper says is simulated within its tolerance, or with an assumption of those beside it.
void expect_every_claim_is_brought_in(const nlohmann::json& simulated) {
  const nlohmann::json& claims = simulated.at("claims");
  std::size_t outside = 0;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    bool within = claims.at(i).at("within");
    outside += within ? 0 : 1;
    for (const nlohmann::json& assumption : simulated.at("assumptions")) {
      const nlohmann::json& same = assumption.at("claims").at(i);
      EXPECT_EQ(same.at("what"), claims.at(i).at("what"));
      within = within || same.at("within") == true;
    }
    EXPECT_TRUE(within) << claims.at(i);
  }
  EXPECT_GT(outside, 0u) << "or there is nothing to bring in";
}

const nlohmann::json& claim_of(const nlohmann::json& claims, const std::string& what) {
  for (const nlohmann::json& claim : claims) {
    if (claim.at("what").get<std::string>().find(what) != std::string::npos) return claim;
  }
  static const nlohmann::json none;
  ADD_FAILURE() << "no claim about " << what;
  return none;
}

TEST(Documents, WhatAPaperSaysIsMeasuredByTheKindOfItsNumber) {
  const Outcome outcome = run({"sim", "remotelog", "--records", "200", "--format", "json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json remotelog = nlohmann::json::parse(outcome.out);
  // "Over 2x" has no limit above, and less than that is outside, by however little.
  const nlohmann::json& twice = claim_of(remotelog.at("claims"), "DMP with DDIO");
  EXPECT_TRUE(twice.at("accepted_to").is_null());
  EXPECT_EQ(twice.at("within"), true);
  bool below = false;
  for (const nlohmann::json& assumption : remotelog.at("assumptions")) {
    const nlohmann::json& same = claim_of(assumption.at("claims"), "DMP with DDIO");
    EXPECT_EQ(same.at("within"), same.at("simulated") > 2.0) << same;
    below = below || same.at("simulated") < 2.0;
  }
  EXPECT_TRUE(below);
  // 1.6 us is a time, and no gain of 60 %.
  const nlohmann::json& time = claim_of(remotelog.at("claims"), "singleton on WSP, us");
  EXPECT_NEAR(time.at("accepted_from").get<double>(), 1.44, 1e-9);
  EXPECT_NEAR(time.at("accepted_to").get<double>(), 1.76, 1e-9);
}

/// whisper.toml, with so many INSERT transactions where table IV surely means 102,400.
std::string applications_with(const std::string& meant, const std::string& directory) {
  std::string text = read_file(kTree + "/configs/workloads/whisper.toml");
  const std::string all = "value = 102400,";
  std::size_t replaced = 0;
  for (std::size_t at = text.find(all); at != std::string::npos; at = text.find(all, at)) {
    text.replace(at, all.size(), "value = " + meant + ",");
    ++replaced;
  }
  EXPECT_EQ(replaced, 2u) << "ctree and hashmap";
  write_file(directory + "/applications.toml", text);
  return directory + "/applications.toml";
}

/// 4.6 comes out there too; the share of the network, which is not chosen, is right then.
void expect_at_the_array_with_a_longer_wire(const nlohmann::json& far) {
  EXPECT_NE(far.at("what").get<std::string>().find("array, R 4.6 us"), std::string::npos) << far;
  EXPECT_EQ(far.at("claims").at(0).at("by_choice"), true);
  EXPECT_NEAR(far.at("claims").at(0).at("simulated").get<double>(), 4.6, 0.01);
  EXPECT_EQ(far.at("claims").at(1).at("by_choice"), false);
  EXPECT_NEAR(far.at("claims").at(1).at("simulated").get<double>(), 0.92, 0.005);
}

/// An application whose epochs are recalled has the fewest and the most that are known behind it.
void expect_what_is_known_of_epochs(const nlohmann::json& twelve) {
  std::vector<std::string> names;
  for (const nlohmann::json& row : twelve.at("rows")) names.push_back(row.at("application"));
  EXPECT_EQ(names,
            (std::vector<std::string>{"ycsb", "ycsb, 5 epochs", "ycsb, 50 epochs", "tpcc",
                                      "tpcc, 5 epochs", "tpcc, 50 epochs", "ctree", "hashmap",
                                      "memcached", "memcached, 5 epochs", "memcached, 50 epochs"}));
  for (const nlohmann::json& row : twelve.at("rows")) {
    const std::string name = row.at("application");
    const std::size_t comma = name.find(", ");
    if (comma == std::string::npos) continue;
    EXPECT_EQ(name.substr(comma + 2), row.at("epochs").get<std::string>() + " epochs");
    // More epochs, more round trips that BSP does without.
    EXPECT_GT(std::stod(row.at("without compute").get<std::string>()),
              row.at("epochs") == "5" ? 2 : 5);
  }
  EXPECT_NE(
      twelve.at("remarks").dump().find(
          "ycsb 42 (5 to 50: within), tpcc 197 (5 to 50: outside), memcached 4 (5 to 50: outside)"),
      std::string::npos);
}

/// Figure 13: the client persists on its own side under both, which gains less or the same.
void expect_a_client_with_nvm_at_every_size(const nlohmann::json& thirteen) {
  ASSERT_EQ(thirteen.at("rows").size(), 8u);
  for (const nlohmann::json& row : thirteen.at("rows")) {
    const double with_nvm = std::stod(row.at("client with NVM").get<std::string>());
    EXPECT_LE(with_nvm, std::stod(row.at("bsp over sync").get<std::string>())) << row;
    EXPECT_GT(with_nvm, 1) << row;
  }
}

TEST(Documents, ANumberThatIsChosenOrSimulatedTwiceIsNotCounted) {
  auto directory = test::TemporaryDirectory::make(::testing::TempDir());
  ASSERT_TRUE(directory.ok()) << directory.error().message;
  const std::string page = directory->path() + "/figure.html";
  const std::string applications = applications_with("300", directory->path());
  const auto figure = [&](const char* number) {
    std::vector<std::string> words{"sim", "figure", number, "--report", page};
    if (number == std::string("13")) words.insert(words.end(), {"--network-transactions", "100"});
    if (number == std::string("12")) {
      words.insert(words.end(), {"--network-transactions", "100", "--applications", applications});
    }
    const Outcome outcome = expect_document(words, "figure-simulation.schema.json");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at("figures").at(0);
  };
  // Figure 4 has two numbers in the text, whatever memories they are simulated with.
  const nlohmann::json four = figure("4");
  ASSERT_EQ(four.at("claims").size(), 2u);
  EXPECT_EQ(four.at("claims").at(0).at("within"), true);
  EXPECT_EQ(four.at("claims").at(1).at("within"), false) << "more than 90 %, at the array";
  ASSERT_EQ(four.at("assumptions").size(), 5u);
  for (const nlohmann::json& memory : four.at("assumptions")) {
    EXPECT_EQ(memory.at("claims").at(1).at("within"), true) << memory;
  }
  const std::string html = read_file(page);
  EXPECT_NE(html.find("1 of 2 numbers of the papers are within"), std::string::npos);
  // At the s/R that 4.6 implies it comes out, by that choice.
  const nlohmann::json& implied = four.at("assumptions").at(1);
  EXPECT_NE(implied.at("what").get<std::string>().find("s/R 6.1 %"), std::string::npos) << implied;
  EXPECT_EQ(implied.at("claims").at(0).at("by_choice"), true);
  EXPECT_NEAR(implied.at("claims").at(0).at("simulated").get<double>(), 4.6, 0.01);
  EXPECT_EQ(four.at("rows").at(1).at("another epoch over R, %"), "6.1");
  expect_at_the_array_with_a_longer_wire(four.at("assumptions").at(4));
  // The second drawing: n / (1 + (n - 1) s/R) without compute, and less of a gain with it.
  for (const char* bar : {"s/R 1 %, 0 us: 5.71", "s/R 10 %, 0 us: 4.00", "s/R 50 %, 0 us: 1.71",
                          "s/R 100 %, 0 us: 1.00"}) {
    EXPECT_NE(html.find(bar), std::string::npos) << bar;
  }
  EXPECT_NE(html.find("s/R 10 %, 100 us: 1."), std::string::npos);
  // A client that persists on its own side does that under both.
  for (const nlohmann::json& row : four.at("rows")) {
    const double with_nvm = std::stod(row.at("over sync, client with NVM").get<std::string>());
    EXPECT_LT(with_nvm, std::stod(row.at("bsp over sync").get<std::string>())) << row;
    EXPECT_GT(with_nvm, 1) << row;
  }
  // Figure 12's come out since compute is chosen for them.
  const nlohmann::json twelve = figure("12");
  ASSERT_EQ(twelve.at("claims").size(), 6u);
  for (const nlohmann::json& claim : twelve.at("claims")) {
    EXPECT_EQ(claim.at("by_choice"), true) << claim;
  }
  expect_what_is_known_of_epochs(twelve);
  EXPECT_NE(read_file(page).find("0 of 0 numbers of the papers are within"), std::string::npos);
  EXPECT_NE(read_file(page).find("6 more are not counted"), std::string::npos);
  // INSERT transactions, as many as the paper states and as it surely means.
  for (const nlohmann::json& row : twelve.at("rows")) {
    const std::string name = row.at("application");
    const std::string stated = row.at("so many as stated");
    const std::string meant = row.at("as surely meant");
    const bool insert = name == "ctree" || name == "hashmap";
    EXPECT_EQ(stated.starts_with("100: "), insert) << row;
    EXPECT_EQ(meant.starts_with("300: "), insert) << row;
    if (!insert) continue;
    // The figure's own run has 100 too.
    EXPECT_EQ(stated.substr(5), row.at("without compute")) << row;
    EXPECT_NEAR(std::stod(meant.substr(5)), std::stod(stated.substr(5)), 0.1) << row;
  }
  expect_a_client_with_nvm_at_every_size(figure("13"));
}

TEST(Documents, AComparisonOfTransactionsOfWhichNoneWritesIsRefused) {
  auto directory = test::TemporaryDirectory::make(::testing::TempDir());
  ASSERT_TRUE(directory.ok()) << directory.error().message;
  // Of memcached's, one in 20 does, and of the first 20 none.
  const Outcome outcome =
      run({"sim", "figure", "12", "--network-transactions", "20", "--applications",
           applications_with("100", directory->path()), "--format", "json"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("memcached: none of 20 transactions writes"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("--network-transactions"), std::string::npos) << outcome.err;
}

TEST(Documents, AllFiguresAreCheckedBeforeTheFirstIsSimulated) {
  auto directory = test::TemporaryDirectory::make(::testing::TempDir());
  ASSERT_TRUE(directory.ok()) << directory.error().message;
  const std::string applications = applications_with("100", directory->path());
  const auto refused = [&](std::vector<std::string> more, const std::string& why) {
    std::vector<std::string> all{"sim",          "all", "--footprint-mib", "4",
                                 "--partitions", "64",  "--transactions",  "100",
                                 "--warm-up",    "0"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.status, 1);
    // Figures are printed as they come: nothing was simulated.
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  };
  // Figure 12's, after six others.
  refused({"--network-transactions", "20", "--applications", applications},
          "memcached: none of 20 transactions writes");
  // Figure 13's.
  std::string text = read_file(applications);
  text.replace(text.find("[hashmap]"), 9, "[other]");
  write_file(applications, text);
  refused({"--network-transactions", "100", "--applications", applications}, "no table [hashmap]");
}

/// Figure 11 has no number in the text. What more cores make of figure 10's stands by assumption:
/// both places of the logs, and of each the memory of the file and one that grows.
void expect_every_assumption_has_the_rows_gains(const nlohmann::json& eleven) {
  EXPECT_TRUE(eleven.at("claims").empty());
  const nlohmann::json& assumptions = eleven.at("assumptions");
  ASSERT_EQ(assumptions.size(), 4u);
  // Rows of 4, 8 and 16 cores; four cores have the file's memory under both.
  constexpr std::size_t kRows[4][3] = {{2, 3, 4}, {2, 5, 6}, {9, 10, 11}, {9, 12, 13}};
  for (std::size_t i = 0; i < assumptions.size(); ++i) {
    const nlohmann::json& claims = assumptions.at(i).at("claims");
    ASSERT_EQ(claims.size(), 3u);
    for (std::size_t k = 0; k < claims.size(); ++k) {
      const nlohmann::json& row = eleven.at("rows").at(kRows[i][k]);
      const std::string cores = row.at("cores");
      EXPECT_EQ(row.at("BROI queues"), std::to_string(std::stoul(cores) * 2 * 8));
      EXPECT_TRUE(claims.at(k).at("what").get<std::string>().starts_with(cores + " cores")) << row;
      EXPECT_EQ(claims.at(k).at("published"), 1.28);
      EXPECT_NEAR(claims.at(k).at("simulated").get<double>(),
                  std::stod(row.at("broi over epoch").get<std::string>()), 0.005);
    }
  }
  EXPECT_NE(eleven.at("remarks").dump().find("is kept or more on every number of cores"),
            std::string::npos);
}

TEST(Documents, FiguresOfTheServerSayWhatBeatsBroiAndWhatMoreCoresTake) {
  const auto figure = [](const char* number) {
    const Outcome outcome =
        expect_document({"sim", "figure", number, "--footprint-mib", "4", "--partitions", "64",
                         "--transactions", "300", "--warm-up", "0"},
                        "figure-simulation.schema.json");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at("figures").at(0);
  };
  const auto number_of = [](const nlohmann::json& row, const char* column) {
    return std::stod(row.at(column).get<std::string>());
  };
  const nlohmann::json ten = figure("10");
  double logs = 0;
  for (const nlohmann::json& row : ten.at("rows")) {
    if (row.at("workload").get<std::string>().find("hybrid") != std::string::npos) continue;
    logs += std::log(number_of(row, "thread over broi"));
  }
  const std::string remarks = ten.at("remarks").dump();
  const std::string before = "geometric means: operations ";
  ASSERT_NE(remarks.find(before), std::string::npos) << remarks;
  EXPECT_NEAR(std::stod(remarks.substr(remarks.find(before) + before.size())),
              100 * (std::exp(logs / 5) - 1), 1.5);
  EXPECT_NE(remarks.find("the paper's motivation has 36 %"), std::string::npos) << remarks;

  // Five numbers of cores on the file's memory, then 8 and 16 on one that grows with them; the
  // same with the threads' logs apart.
  const nlohmann::json eleven = figure("11");
  ASSERT_EQ(eleven.at("rows").size(), 14u);
  for (const std::size_t first : {0u, 7u}) {
    const nlohmann::json& small = eleven.at("rows").at(first + 4);
    const nlohmann::json& large = eleven.at("rows").at(first + 6);
    EXPECT_EQ(small.at("cores"), large.at("cores"));
    EXPECT_EQ(small.at("log gap"), first == 0 ? "0" : "3072");
    EXPECT_EQ(number_of(large, "banks"), 4 * number_of(small, "banks"));
    EXPECT_EQ(number_of(large, "requests queued"), 4 * number_of(small, "requests queued"));
    for (const char* order : {"epoch, per us", "broi, per us"}) {
      EXPECT_GT(number_of(large, order), number_of(small, order)) << order;
    }
  }
  expect_every_assumption_has_the_rows_gains(eleven);
  // The bank of all headers is what more banks do not help.
  const nlohmann::json& together = eleven.at("rows").at(6);
  const nlohmann::json& apart = eleven.at("rows").at(13);
  EXPECT_GT(number_of(apart, "broi, per us"), 2 * number_of(together, "broi, per us"));
}

TEST(Documents, OfTheSimulatedNetworkAreWhatTheirSchemasSay) {
  const std::string hardware = kTree + "/configs/hardware/";
  const std::vector<std::string> banks{"--device", hardware + "nvm-a.toml", "--processor",
                                       hardware + "four-cores.toml"};
  std::vector<std::string> log{
      "sim", "network", "--hardware", hardware + "edr-back-to-back.toml", "--transactions", "20"};
  EXPECT_EQ(expect_document(log, "network-simulation.schema.json").status, 0);
  std::vector<std::string> figure{"sim", "figure", "4", "--hardware",
                                  hardware + "edr-back-to-back.toml"};
  figure.insert(figure.end(), banks.begin(), banks.end());
  EXPECT_EQ(expect_document(figure, "figure-simulation.schema.json").status, 0);

  const std::vector<std::string> remotelog{"sim", "remotelog", "--records", "200"};
  const Outcome claimed = expect_document(remotelog, "remotelog-simulation.schema.json");
  EXPECT_EQ(claimed.status, 0);
  expect_every_claim_is_brought_in(nlohmann::json::parse(claimed.out));
  auto directory = test::TemporaryDirectory::make(::testing::TempDir());
  ASSERT_TRUE(directory.ok()) << directory.error().message;
  const std::string page = directory->path() + "/figure_2.html";
  EXPECT_EQ(
      expect_document({"sim", "figure", "2", "--report", page}, "figure-simulation.schema.json")
          .status,
      0);
  const std::string html = read_file(page);
  // Beside what the paper says: what decides, and a second drawing of that.
  EXPECT_NE(html.find("What decides: "), std::string::npos);
  EXPECT_NE(html.find("<svg", html.find("<svg") + 1), std::string::npos);
  EXPECT_NE(html.find("<figcaption>The same with other assumptions. By what the server"),
            std::string::npos)
      << "what was varied is said in the page, not only to those who hear it read";

  // A READ holds without DDIO, and is left out with it.
  for (const char* const ddio : {"on", "off"}) {
    std::vector<std::string> all = log;
    all.insert(all.end(), {"--strategy", "all", "--ddio", ddio, "--server-cpus", "2"});
    const Outcome each = expect_document(all, "network-simulation.schema.json");
    EXPECT_EQ(each.status, 0) << each.err;
    const auto document = nlohmann::json::parse(each.out);
    const bool left_out = ddio == std::string("on");
    EXPECT_EQ(document.at("runs").size(), left_out ? 4u : 5u);
    EXPECT_EQ(document.at("left_out").size(), left_out ? 1u : 0u);
  }

  // With banks, as a drawing; and the known unsafe strategy, which gets no number.
  log.insert(log.end(), banks.begin(), banks.end());
  EXPECT_EQ(expect_document(log, "network-simulation.schema.json").status, 0);
  std::vector<std::string> unsafe = log;
  log.insert(log.end(), {"--format", "plot"});
  const Outcome plot = run(log);
  EXPECT_EQ(plot.status, 0) << plot.err;
  EXPECT_NE(plot.out.find("<svg"), std::string::npos);
  unsafe.insert(unsafe.end(), {"--strategy", "transport-ack"});
  const Outcome refused = run(unsafe);
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(refused.out.empty()) << refused.out;
  EXPECT_NE(refused.err.find("acknowledged"), std::string::npos) << refused.err;
}

TEST(Documents, TheJudgeRefusesWhatIsNoneOfThem) {
  CommandProcess judge({kTree + "/tests/cli/validate.py", kTree + "/docs/log-status.schema.json"},
                       "", "", "/usr/bin/python3");
  judge.write(R"({"format": 1, "replicas": [{"replica": "a"}]})");
  judge.close_input();
  EXPECT_EQ(judge.wait().status, 1);
}

}  // namespace
}  // namespace perdure::cli
