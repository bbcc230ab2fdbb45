// `perdure plan`, `check` and `probe`: what needs no peer.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "core/json.h"
#include "testing/temporary_directory.h"
#include "tests/cli/command_process.h"

namespace perdure::cli {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

TEST(Plan, ChoosesOneMessageForASmallRecordOnTcp) {
  const Outcome text = run({"plan", "--domain", "dmp", "--transport", "tcp"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "1 round trip")) << text.out;
  const Outcome outcome =
      run({"plan", "--domain", "dmp", "--transport", "tcp", "--format", "json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json choice = json::parse(outcome.out);
  EXPECT_EQ(choice["chosen"], choice["candidates"][0]["name"]);
  EXPECT_EQ(choice["candidates"][0]["uses"]["round_trips"], 1);
  EXPECT_NE(choice["candidates"][0]["reason"], "");
  EXPECT_GE(choice["by_size"].size(), 2u) << "large records travel otherwise";
}

TEST(Check, AMethodOfNearlyThatNameIsSuggested) {
  const Outcome singleton = run({"check", "--method", "write-flus"});
  EXPECT_EQ(singleton.status, 2);
  EXPECT_TRUE(contains(singleton.err, "did you mean 'write-flush'?")) << singleton.err;
  const Outcome set = run({"check", "--set", "send-copy-akc,write-flush"});
  EXPECT_EQ(set.status, 2);
  EXPECT_TRUE(contains(set.err, "did you mean 'send-copy-ack'?")) << set.err;
}

TEST(Plan, CostsAreThoseOfTheHardwareThatIsNamedOrOfTheDefault) {
  const std::string files = std::string(PERDURE_TREE) + "/configs/hardware/";
  const auto plan_on = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"plan",        "--domain", "dmp",      "--ddio", "off",
                                   "--transport", "roce",     "--format", "json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out);
  };
  const json usual = plan_on({});
  EXPECT_EQ(usual["label"], "simulated");
  EXPECT_EQ(usual["hardware"], "edr-one-switch");
  EXPECT_EQ(plan_on({"--hardware", files + "edr-one-switch.toml"}), usual);
  const json far = plan_on({"--hardware", files + "hdr100-one-switch.toml"});
  EXPECT_EQ(far["hardware"], "hdr100-one-switch");
  EXPECT_GT(far["candidates"][0]["cost_ns"], usual["candidates"][0]["cost_ns"]);

  const Outcome priced =
      run({"sim", "method", "--method", usual["chosen"].get<std::string>(), "--domain", "dmp",
           "--ddio", "off", "--transport", "roce", "--shape", "singleton", "--format", "json"});
  ASSERT_EQ(priced.status, 0) << priced.err;
  const double latency = json::parse(priced.out)["methods"][0]["latency_ns"].get<double>();
  EXPECT_NEAR(usual["candidates"][0]["cost_ns"].get<double>() / latency, 1, 0.12);
  // The same steps on the same hardware: `plan` says what they take beside its sum.
  EXPECT_EQ(usual["candidates"][0]["simulated_ns"], latency);
  EXPECT_EQ(usual["candidates"][0]["rpmem_family"], "ARRM");
  EXPECT_GT(far["candidates"][0]["simulated_ns"], latency);
  const Outcome text = run({"plan", "--domain", "dmp", "--ddio", "off", "--transport", "roce"});
  EXPECT_TRUE(contains(text.out, fmt::format("step by step: {:.2f} us", latency / 1e3)))
      << text.out;

  const std::vector<std::string> named{"plan", "--domain", "dmp", "--hardware",
                                       files + "edr-back-to-back.toml"};
  for (const std::string more : {"--explain", "--set"}) {
    std::vector<std::string> words = named;
    words.push_back(more);
    EXPECT_EQ(run(words).status, 0) << more;
  }
  EXPECT_EQ(run({"plan", "--search", "--hardware", files + "edr-back-to-back.toml"}).status, 2);
  EXPECT_EQ(run({"plan", "--domain", "dmp", "--hardware", "/nonexistent.toml"}).status, 1);
}

TEST(Price, OfAMethodThatIsNotDurableThereSaysSo) {
  const Words right{"sim", "method", "--method", "write-flush", "--domain",
                    "dmp", "--ddio", "off",      "--transport", "roce"};
  EXPECT_FALSE(contains(run(right).out, "not known to be durable"));
  Words wrong = right;
  wrong[7] = "on";
  const Outcome text = run(wrong);
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "not known to be durable there (violated)")) << text.out;
  wrong.insert(wrong.end(), {"--format", "json"});
  EXPECT_EQ(json::parse(run(wrong).out)["methods"][0]["durable"], "violated");
}

TEST(Price, OfMethodsInAFile) {
  const test::TestDirectory place;
  const std::string file = place.file("methods.json");
  const Outcome planned = run({"plan", "--all", "--transport", "roce", "--format", "json"});
  write_file(file, planned.out);
  const Outcome outcome = run({"sim", "method", "--file", file, "--format", "json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json priced = json::parse(outcome.out);
  EXPECT_EQ(priced["hardware"], "edr-one-switch") << "what is assumed of the file's transport";
  ASSERT_EQ(priced["methods"].size(), json::parse(planned.out)["methods"].size());
  for (const json& each : priced["methods"]) EXPECT_EQ(each["durable"], "holds") << each;

  // Receive: one method that is nobody's, on the responder that it is for and on another.
  json document = json::parse(planned.out);
  json& mine = document["methods"][0];
  for (const json& each : document["methods"]) {
    if (each["server"]["domain"] == "wsp" && each["primary"] == "write") mine = each;
  }
  document["methods"] = json::array({mine});
  document["methods"][0]["name"] = "mine";
  write_file(file, document.dump());
  const Outcome alone = run({"sim", "method", "--file", file});
  EXPECT_TRUE(contains(alone.out, "mine")) << alone.out << alone.err;
  EXPECT_FALSE(contains(alone.out, "not known to be durable")) << alone.out;
  const Outcome elsewhere =
      run({"sim", "method", "--file", file, "--domain", "dmp", "--transport", "roce"});
  EXPECT_TRUE(contains(elsewhere.out, "not known to be durable")) << elsewhere.out;
  // Two transports, and nothing said of their network.
  document["methods"].push_back(document["methods"][0]);
  document["methods"][1]["server"]["transport"] = "tcp";
  write_file(file, document.dump());
  const Outcome both = run({"sim", "method", "--file", file});
  EXPECT_EQ(both.status, 1);
  EXPECT_TRUE(contains(both.err, "--hardware")) << both.err;
  EXPECT_EQ(run({"sim", "method", "--file", place.file("none")}).status, 1);
}

TEST(Plan, SaysWhichMethodsTheDaemonCanNotRun) {
  EXPECT_EQ(occurrences(run({"plan", "--help"}).out, "(perdured does not)"), 2u);
}

TEST(Plan, DrawsAndPlots) {
  EXPECT_TRUE(contains(run({"plan", "--domain", "mhp", "--format", "sequence"}).out, "requester"));
  for (const std::string format : {"svg", "plot"}) {
    const Outcome drawn = run({"plan", "--domain", "mhp", "--format", format});
    EXPECT_EQ(drawn.status, 0) << drawn.err;
    EXPECT_TRUE(contains(drawn.out, "<svg")) << format;
    EXPECT_TRUE(contains(drawn.out, "</svg>")) << format;
  }
}

TEST(Plan, SaysWhatToDoWhereNothingIsDurable) {
  const Outcome outcome = run({"plan", "--domain", "none"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.err, "for example `--domain page` or `--level visible` [unsup"))
      << outcome.err;
  EXPECT_EQ(run({"plan", "--domain", "none", "--level", "visible"}).status, 0);
  for (const std::string form : {"text", "json", "sequence", "plot"}) {
    const Outcome nameless = run({"plan", "--bytes", "4k", "--format", form});
    EXPECT_EQ(nameless.status, 1) << nameless.out;
    EXPECT_TRUE(
        contains(nameless.err, "for example `--domain page` (without --domain it is none) or"))
        << nameless.err;
    EXPECT_EQ(run({"plan", "--bytes", "4k", "--format", form, "--domain", "page"}).status, 0);
  }
  // It is described, and there is another reason.
  const Outcome other = run({"plan", "--domain", "page", "--primary", "send", "--bytes", "1MiB",
                             "--message-bytes-max", "4096"});
  EXPECT_EQ(other.status, 1) << other.out;
  EXPECT_FALSE(contains(other.err, "--domain page")) << other.err;
}

TEST(Plan, SearchFindsWhatIsRightAndProvesWhatIsNotToBeHad) {
  const Outcome ddio = run({"plan", "--search", "--domain", "dmp", "--transport", "roce"});
  EXPECT_EQ(ddio.status, 0) << ddio.err;
  const char* const impossible =
      "without the responder's processor: impossible among those. Each of the";
  EXPECT_TRUE(contains(ddio.out, impossible)) << ddio.out;
  EXPECT_TRUE(contains(ddio.out,
                       "WRITE a; FLUSH a; completion of FLUSH a\n"
                       "      acknowledged-implies-durable"))
      << ddio.out;
  const Outcome battery = run({"plan", "--search", "--domain", "mhp", "--transport", "roce"});
  EXPECT_FALSE(contains(battery.out, "impossible")) << battery.out;
  const Outcome volatile_memory = run({"plan", "--search", "--domain", "none"});
  EXPECT_TRUE(contains(volatile_memory.out, "one round trip: impossible")) << volatile_memory.out;
  EXPECT_EQ(run({"plan", "--search", "--shape", "1+1+1+1"}).status, 2);
  EXPECT_EQ(run({"plan", "--search", "--format", "json"}).status, 2);
}

TEST(Check, EveryPublishedMethodHolds) {
  const Outcome outcome = run({"check", "--all"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "72 of 72 hold")) << outcome.out;
}

TEST(Check, ShowsTheWorldWithoutOrderAmongWrites) {
  // Only the responders that are named, and none that the tables do not have.
  const Outcome some = run({"check", "--all", "--domain", "dmp", "--ddio", "on"});
  EXPECT_EQ(some.status, 0) << some.err;
  EXPECT_NE(some.out.find("12 of 12 hold"), std::string::npos) << some.out;
  EXPECT_EQ(some.out.find("wsp"), std::string::npos) << some.out;
  const Outcome none = run({"check", "--all", "--domain", "page"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("no responder like that"), std::string::npos) << none.err;
  const Outcome lossy = run({"check", "--all", "--qp-type", "ud"});
  EXPECT_EQ(lossy.status, 2);
  EXPECT_NE(lossy.err.find("reached over rc"), std::string::npos) << lossy.err;
  const Outcome files = run({"check", "--all", "--dma-dirties", "yes"});
  EXPECT_EQ(files.status, 2);
  EXPECT_NE(files.err.find("leave out --all or --dma-dirties"), std::string::npos) << files.err;
  EXPECT_EQ(run({"check", "--all", "--native-flush"}).status, 2);
  const Outcome published = run({"check", "--all", "--write-order", "unknown"});
  EXPECT_EQ(published.status, 1);
  EXPECT_TRUE(contains(published.out, "56 of 72 hold")) << published.out;
  EXPECT_TRUE(contains(published.out, "later-implies-earlier")) << published.out;
  const Outcome planned = run({"plan", "--all", "--write-order", "unknown", "--format", "json"});
  ASSERT_EQ(planned.status, 0) << planned.err;
  const Outcome checked = run({"check", "--file", "-"}, planned.out);
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
  EXPECT_TRUE(contains(checked.out, "80 of 80 hold")) << checked.out;
}

TEST(Check, TellsHowAFileUnderAnRnicLosesData) {
  const std::vector<std::string> on_file{"check", "--method", "wrong-flush-of-a-clean-page",
                                         "--domain", "page"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.begin(), on_file.begin(), on_file.end());
    return run(words);
  };
  const Outcome pinned = with({"--transport", "roce"});
  EXPECT_EQ(pinned.status, 1);
  EXPECT_TRUE(contains(pinned.out, "it found the page clean and wrote nothing")) << pinned.out;
  EXPECT_EQ(with({"--transport", "roce", "--dma-dirties", "yes"}).status, 0);
  EXPECT_EQ(with({"--transport", "tcp"}).status, 0);
}

TEST(Check, NamesTheStepsThatAMethodDoesForNothing) {
  const Outcome outcome = run({"check", "--all", "--mutate"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "526 of 529 mutants caught")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "superfluous in send-stray-flush-copy-ack")) << outcome.out;
}

TEST(Check, ProvesTheSetThatIsPlanned) {
  const std::vector<std::string> responder{"--domain", "dmp",     "--transport",
                                           "roce",     "--shape", "compound"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), responder.begin(), responder.end());
    return run(words);
  };
  const Outcome planned = with({"plan", "--set"});
  ASSERT_EQ(planned.status, 0) << planned.err;
  const Outcome checked = with({"check", "--set", "planned"});
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
  std::vector<std::string> words{"check", "--set", "planned"};
  words.insert(words.end(), responder.begin(), responder.end());
  EXPECT_EQ(expect_document(words, "set.schema.json").status, 0);
  EXPECT_TRUE(contains(checked.out, planned.out)) << checked.out;
  EXPECT_TRUE(contains(checked.out, "holds: all properties")) << checked.out;
  const auto document = nlohmann::json::parse(with({"plan", "--set", "--format", "json"}).out);
  EXPECT_TRUE(contains(planned.out, document["batches"]["small"].get<std::string>()));
}

TEST(Check, TellsHowTwoMethodsOfOneConnectionLoseData) {
  const std::vector<std::string> words{"check",    "--set",       "send-copy-ack,write-flush",
                                       "--domain", "mhp",         "--write-order",
                                       "ordered",  "--transport", "roce"};
  EXPECT_EQ(run(words).status, 0) << "places of their own, or written again in turn";
  auto compound = words;
  compound.insert(compound.end(), {"--shape", "compound"});
  const Outcome wrong = run(compound);
  EXPECT_EQ(wrong.status, 1) << wrong.err;
  EXPECT_TRUE(contains(wrong.out, "the law refuses them: methods 'send-copy-ack'")) << wrong.out;
  EXPECT_TRUE(contains(wrong.out, "power fails; recovery finds")) << wrong.out;
  const auto document = nlohmann::json::parse(expect_document(compound, "set.schema.json").out);
  EXPECT_FALSE(document["allowed"].get<bool>());
  EXPECT_EQ(document["verdict"], "violated");
  EXPECT_EQ(document["wrong_alone"], json::array());
  EXPECT_FALSE(contains(wrong.out, "by itself")) << wrong.out;
  EXPECT_EQ(run({"check", "--set", "no-such-method"}).status, 2);
  EXPECT_EQ(run({"check", "--set", "planned", "--updates", "5"}).status, 2);
  EXPECT_EQ(run({"check", "--set", "planned", "--shape", "1+1+1"}).status, 2);
  for (const char* bound : {"--connections", "--between", "--spread"}) {
    const char* const value = bound == std::string("--connections") ? "2"
                              : bound == std::string("--between")   ? "ordered"
                                                                    : "updates";
    const Outcome refused = run({"check", "--set", "planned", bound, value});
    EXPECT_EQ(refused.status, 2);
    EXPECT_TRUE(contains(refused.err, bound)) << refused.err;
  }
}

// A planned set is drawn member by member, a wrong pair as it loses data.
TEST(Check, DrawsSets) {
  const Words planned{"plan", "--set",       "--shape", "compound", "--domain",
                      "dmp",  "--transport", "roce",    "--format"};
  const Words wrong{"check",    "--set",       "send-copy-ack,write-flush",
                    "--domain", "mhp",         "--write-order",
                    "ordered",  "--transport", "roce",
                    "--shape",  "compound",    "--format"};
  const auto with = [](Words words, const std::string& format) {
    words.push_back(format);
    return run(words);
  };
  const auto members = json::parse(with(planned, "json").out)["members"];
  const Outcome text = with(planned, "sequence");
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "the law lets them share a connection")) << text.out;
  EXPECT_EQ(occurrences(text.out, "requester"), members.size()) << text.out;
  for (const json& member : members) {
    EXPECT_TRUE(contains(text.out, "\n" + member["name"].get<std::string>() + " (")) << text.out;
  }
  const Outcome picture = with(planned, "svg");
  EXPECT_EQ(picture.status, 0) << picture.err;
  EXPECT_EQ(occurrences(picture.out, "<svg "), 1u);
  EXPECT_EQ(occurrences(picture.out, "<g transform="), members.size()) << picture.out;
  EXPECT_EQ(with(planned, "plot").status, 2);

  const Outcome story = with(wrong, "sequence");
  EXPECT_EQ(story.status, 1) << story.err;
  EXPECT_TRUE(contains(story.out, "the law refuses them: methods 'send-copy-ack'")) << story.out;
  EXPECT_TRUE(contains(story.out, ": breaks ")) << story.out;
  EXPECT_TRUE(contains(story.out, "power fails; recovery finds")) << story.out;
  const Outcome drawn = with(wrong, "svg");
  EXPECT_EQ(drawn.status, 1) << drawn.err;
  EXPECT_TRUE(contains(drawn.out, "the law refuses them")) << drawn.out;
  EXPECT_TRUE(contains(drawn.out, "#b3261e")) << drawn.out;  // what must not happen, in red
  Words mutated = wrong;
  mutated.insert(mutated.end(), {"text", "--mutate"});
  EXPECT_TRUE(contains(run(mutated).err, "leave out --mutate"));
}

// The law has nothing against them, and it is no sharing that breaks them.
TEST(Check, SaysWhichMethodsOfASetAreWrongWithoutTheOthers) {
  const std::vector<std::string> words{"check", "--set", "write-flush,send-copy-ack,send-copy-ack",
                                       "--domain", "dmp"};
  const Outcome text = run(words);
  EXPECT_EQ(text.status, 1) << text.err;
  EXPECT_TRUE(contains(text.out, "the law lets them share a connection")) << text.out;
  for (const char* method : {"write-flush", "send-copy-ack"}) {
    const std::string said = fmt::format("by itself '{}' is wrong there: it breaks ", method);
    EXPECT_EQ(occurrences(text.out, said), 1u) << text.out;
  }
  const auto document = json::parse(expect_document(words, "set.schema.json").out);
  EXPECT_EQ(document["allowed"], true);
  EXPECT_EQ(document["wrong_alone"], json::array({"write-flush", "send-copy-ack"}));
}

// What is said of a responder counts, or is refused.
TEST(Check, OptionsOfAResponderAreNotLeftOut) {
  EXPECT_EQ(run({"check", "--known-unsafe", "--domain", "mhp"}).status, 2);
  EXPECT_EQ(run({"plan", "--peers", "127.0.0.1:1", "--persistent-flush"}).status, 2);
  EXPECT_EQ(run({"check", "--method", "poll-copy-flush-ack", "--domain", "dmp"}).status, 0);
  const Outcome little = run({"plan", "--set", "--shape", "compound", "--domain", "dmp",
                              "--transport", "roce", "--message-bytes-max", "10"});
  EXPECT_FALSE(contains(little.out, "send-copy-flush-ack")) << little.out;
}

TEST(Check, AsksAboutTwoConnections) {
  const Outcome outcome = run({"check", "--method", "write-flush", "--shape", "compound",
                               "--domain", "mhp", "--transport", "roce", "--connections", "2"});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "two connections (successive epochs alternate)"))
      << outcome.out;
}

TEST(Check, TellsHowAKnownUnsafeMethodLosesData) {
  const Outcome outcome = run({"check", "--method", "wrong-read-after-write", "--domain", "dmp",
                               "--ddio", "on", "--transport", "roce"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.out, "acknowledged-implies-durable")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "power fails")) << outcome.out;
  const Outcome right = run({"check", "--method", "wrong-read-after-write", "--domain", "dmp",
                             "--ddio", "off", "--transport", "roce"});
  EXPECT_EQ(right.status, 0) << right.out;
  const Outcome all = run({"check", "--known-unsafe", "--format", "json"});
  EXPECT_EQ(all.status, 1);
  const json document = json::parse(all.out);
  EXPECT_EQ(document["held"], 0);
  EXPECT_GE(document["checked"], 5);
  for (const json& report : document["reports"]) EXPECT_GT(report["path"].size(), 1u);
}

TEST(Check, ReadsWhatPlanPrints) {
  const Outcome planned = run({"plan", "--all", "--format", "json"});
  ASSERT_EQ(planned.status, 0) << planned.err;
  const Outcome checked = run({"check", "--file", "-"}, planned.out);
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
  EXPECT_TRUE(contains(checked.out, "80 of 80 hold")) << checked.out;
}

constexpr const char* kWsp = R"(, "server": {"domain": "wsp", "ddio": true, "transport": "roce", )"
                             R"("receive_buffers": "dram", "write_order": "ordered"})";

/// Of a set in a file: one WRITE, and what more is said of its method.
std::string member(const std::string& reuse, const std::string& more) {
  return fmt::format(
      R"({{"name": "mine", "written_again": "{}", "vouched": false, "method": {{)"
      R"("update": "singleton", "primary": "write", "responder": [], "requester": [)"
      R"({{"post": "write", "items": ["a"]}}, {{"wait": "completion", "of": 0}}]{}}}}})",
      reuse, more);
}

std::string set_of(const std::vector<std::string>& members) {
  return fmt::format(R"({{"format": 2, "level": "durable", "batches": {{}}, "places": {{}}, )"
                     R"("members": [{}]}})",
                     fmt::join(members, ", "));
}

// The set is asked about on the responder of its members, unless the command line describes one.
TEST(Check, ReadsASetOfMethodsFromAFile) {
  const std::string file = set_of({member("after-its-end", kWsp)});
  const Outcome battery = run({"check", "--file", "-"}, file);
  EXPECT_EQ(battery.status, 0) << battery.out << battery.err;
  EXPECT_TRUE(contains(battery.out, "the law lets them share a connection")) << battery.out;
  const Outcome other = run({"check", "--file", "-", "--domain", "dmp", "--transport", "roce",
                             "--write-order", "ordered"},
                            file);
  EXPECT_EQ(other.status, 1) << other.out << other.err;
  EXPECT_TRUE(contains(other.out, "violated")) << other.out;
}

TEST(Check, RefusesAFileThatMakesNoSense) {
  //                     file                                             what is said
  const std::pair<std::string, std::string> cases[] = {
      {"", "is not JSON"},
      {"[]", "JSON object"},
      {"{}", "'format'"},
      {R"({"format": 3, "methods": []})", "another version"},
      {R"({"format": 1, "methods": []})", "has no methods"},
      {R"({"format": 1, "methods": [{}]})", "methods[0]: 'update'"},
      {R"({"format": 1, "methods": [7]})", "must be an object"},
      {R"({"format": 1, "methods": [{"updates": "singleton"}]})", "'updates' is not known"},
      {R"({"format": 1, "methods": [{"update": "singleton", "primary": "write",
           "requester": [{"post": "fly", "items": ["a"]}], "responder": []}]})",
       "verb 'fly'"},
      {R"({"format": 1, "methods": [{"update": "singleton", "primary": "write",
           "requester": [{"post": "write", "items": ["b"]}], "responder": []}]})",
       "does not have"},
      {R"({"format": 1, "methods": [{"update": "singleton", "primary": "write",
           "requester": [{"wait": "completion", "of": -1}], "responder": []}]})",
       "requester[0]"},
      {R"({"format": 2, "candidates": []})", "'level' must be there"},
      {R"({"format": 2, "level": "safe", "candidates": []})", "safe"},
      {R"({"format": 2, "level": "durable", "candidates": []})", "has no candidates"},
      {R"({"format": 2, "level": "durable", "candidates": 7})", "'candidates' must be there"},
      {R"({"format": 2, "level": "durable", "candidates": [{"name": "mine"}]})",
       "candidates[0]: 'method' must be there"},
      {R"({"format": 2, "level": "durable", "candidates": [], "price": 1})",
       "'price' is not known"},
      {R"({"format": 1, "level": "durable", "batches": {}, "places": {}})",
       "'members' must be there"},
      {set_of({member("often", "")}), "not 'often'"},
      {set_of({member("never", ""), member("never", kWsp)}), "for one responder"},
      {set_of(std::vector<std::string>(9, member("never", ""))), "at most 8 methods"},
  };
  for (const auto& [file, said] : cases) {
    const Outcome outcome = run({"check", "--file", "-"}, file);
    EXPECT_EQ(outcome.status, 2) << file;
    EXPECT_TRUE(contains(outcome.err, said)) << file << "\n" << outcome.err;
  }
}

TEST(Probe, HasEvidenceForEveryAxis) {
  const Outcome outcome = run({"probe", "--format", "json", "/"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  std::vector<std::string> axes;
  for (const json& axis : document["axes"]) {
    axes.push_back(axis["axis"]);
    EXPECT_FALSE(axis["evidence"].empty()) << axis["axis"];
  }
  for (const std::string axis : {"persistence domain", "flush instruction", "ddio",
                                 "receive buffers", "transport tcp", "locked memory", "cores"}) {
    EXPECT_NE(std::find(axes.begin(), axes.end(), axis), axes.end()) << axis;
  }
  // An axis for each RNIC, or one that says why there is none.
  EXPECT_TRUE(std::any_of(axes.begin(), axes.end(), [](const std::string& axis) {
    return axis == "rdma" || axis.starts_with("rnic ");
  }));
  EXPECT_TRUE(document["rnics"].is_array());
  EXPECT_EQ(run({"probe", "/does/not/exist"}).status, 1);
}

TEST(Doctor, GoesThroughItsListAndSaysWhatToDo) {
  const test::TestDirectory place;
  const Outcome text = run({"probe", "--doctor", place.path()});
  EXPECT_TRUE(contains(text.out, "pool-file-system: ")) << text.out << text.err;
  EXPECT_TRUE(contains(text.out, "38 checks: ")) << text.out;
  const Outcome outcome = run({"probe", "--doctor", place.path(), "--format", "json"});
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["checks"].size(), 38u);
  // Expect: the status says whether there is a problem, and both formats agree.
  EXPECT_EQ(outcome.status, document["counts"]["problem"] == 0 ? 0 : 1) << outcome.out;
  EXPECT_EQ(outcome.status, text.status);
  EXPECT_EQ(run({"probe", "--doctor", "/does/not/exist"}).status, 1);
}

TEST(Demo, TheMainJobIsDoneAndEveryReplicaIsReadBack) {
  const test::TestDirectory place;
  const Outcome outcome = run({"demo", "--records", "2000", "--no-memory", "--power-cuts", "2",
                               "--peers-dir", place.path()});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "Every replica holds every record, byte for byte."))
      << outcome.out;
}

TEST(Doctor, AProblemIsTheExitStatus) {
  // A page cache does not survive what a whole-system battery is declared for.
  const test::TestDirectory place;
  const std::string config = place.path() + "/perdured.toml";
  write_file(config, "[profile]\ndomain = \"mhp\"\n[profile.pool.a]\ndomain = \"page\"\n");
  const Outcome declared = run({"probe", "--doctor", "--config", config, "/", "--format", "json"});
  EXPECT_EQ(declared.status, 1) << declared.out;
  bool found = false;
  const json document = json::parse(declared.out);
  for (const json& check : document["checks"]) {
    if (check["name"] != "declared-domain") continue;
    found = check["verdict"] == "problem" && !check["commands"].empty();
  }
  EXPECT_TRUE(found) << declared.out;
  const Outcome missing = run({"probe", "--doctor", "--config", place.path() + "/none.toml", "/"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(contains(missing.err, "[not-found]")) << missing.err;
}

TEST(Torture, SaysWhatItRanAndGoesOnWhereItWas) {
  const std::string file = ::testing::TempDir() + "perdure_torture_campaign.json";
  (void)std::remove(file.c_str());
  const std::vector<std::string> words = {"torture", "--seed",   "1",  "--ops",
                                          "20",      "--resume", file, "--worlds"};
  auto first = words;
  first.emplace_back("2");
  const Outcome outcome = expect_document(first, "torture.schema.json");
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  const json campaign = json::parse(outcome.out);
  EXPECT_EQ(campaign["label"], "emulated");
  EXPECT_EQ(campaign["worlds_run"], 2);
  EXPECT_EQ(campaign["worlds_failed"], 0);
  EXPECT_EQ(campaign["steps_run"], 40);
  const json& coverage = campaign["coverage"];
  EXPECT_EQ(coverage["met"].size(), coverage["operations"].size());
  EXPECT_EQ(coverage["met"][0].size(), coverage["faults"].size());
  auto second = words;
  second.emplace_back("3");
  const json more = json::parse(expect_document(second, "torture.schema.json").out);
  EXPECT_EQ(more["worlds_run"], 3);
  EXPECT_EQ(more["steps_run"], 60);
  // Another campaign does not go on from this one's file.
  auto another = second;
  another[2] = "2";
  EXPECT_EQ(run(another).status, 1);
  auto not_judged = second;
  not_judged.insert(not_judged.end(), {"--without", "committed-is-never-lost"});
  const Outcome refused = run(not_judged);
  EXPECT_EQ(refused.status, 1) << refused.out;
  EXPECT_TRUE(contains(refused.err, file)) << refused.err;
}

TEST(Torture, TellsOneWorldTheSameWayEveryTime) {
  const std::vector<std::string> words = {"torture", "--seed", "3",     "--ops",
                                          "20",      "--keep", "1,2!,7"};
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "replicas, quorum")) << outcome.out;
  EXPECT_EQ(run(words).out, outcome.out);
  const Outcome document = expect_document(words, "torture.schema.json");
  EXPECT_EQ(document.status, 0) << document.err;
  EXPECT_EQ(json::parse(document.out)["broken"], false);
  EXPECT_NE(run({"torture", "--ops", "20", "--keep", "20"}).status, 0);
}

}  // namespace
}  // namespace perdure::cli
