// The protocol of the replicated log, explored whole within bounds: the right one keeps every law,
// and each mutant of it breaks the law that it is known to break.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>

#include "model/protocol_scopes.h"
#include "model/search.h"
#include "testing/soak.h"

namespace perdure::model {
namespace {

constexpr std::uint64_t kStatesMax = 30'000'000;

std::string story(const Protocol& protocol, const Searched<Protocol>& searched) {
  std::string words = fmt::format("broken: {}\n", to_string(searched.broken));
  int number = 0;
  for (const ModelStep& step : searched.story) {
    words += fmt::format("{:3}. {}\n", ++number, protocol.describe(step.action));
  }
  if (!searched.story.empty()) words += protocol.describe(searched.story.back().state);
  return words;
}

Searched<Protocol> explore(Protocol& protocol) {
  return Search<Protocol>(protocol, kStatesMax).run(protocol.first());
}

/// Explores the right protocol; prints the row of docs/log-protocol.md.
std::uint64_t expect_clean(const Bounds& bounds, std::array<std::uint64_t, kKinds>& taken) {
  const auto begun = std::chrono::steady_clock::now();
  Protocol protocol(bounds, Mutant::Right);
  const auto searched = explore(protocol);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  EXPECT_EQ(searched.broken, Law::None) << bounds.name << "\n" << story(protocol, searched);
  EXPECT_FALSE(searched.limit_reached) << bounds.name;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    taken[kind] += protocol.taken(static_cast<Kind>(kind));
  }
  fmt::print("| {} | {} | {} | {} | {} | {:.1f} |\n", bounds.name, describe(bounds),
             searched.states, searched.steps, searched.depth, seconds.count());
  return searched.states;
}

TEST(ProtocolModel, TheProtocolKeepsItsLawsInEveryScope) {
  const std::map<std::string, std::uint64_t> expected = {
      {"two-writers", 115755},     {"trim-and-take-over", 10599},
      {"trim-and-wrap", 69749},    {"power-cuts", 45109},
      {"lost-media", 54108},       {"damage", 35101},
      {"compound", 12255},         {"trim-and-damage", 48051},
      {"creation", 7240},          {"replace", 42065},
      {"two-changes", 49011},      {"newcomer", 53276},
      {"buried-change", 387977},   {"trimmed-change", 105016},
      {"buried-quorum", 202452},   {"quorum-of-one", 19164},
      {"quorum-of-all", 8133},     {"four-replicas", 4518},
      {"accepted-loss", 111227},   {"loss-of-four", 99614},
      {"loss-and-change", 186958}, {"addition-and-loss", 271434},
      {"loss-by-word", 278539},    {"loss-of-one", 40939},
      {"quorum-and-loss", 69761},
  };
  std::array<std::uint64_t, kKinds> taken{};
  for (const Bounds& bounds : scopes(false)) {
    const std::uint64_t states = expect_clean(bounds, taken);
    const auto known = expected.find(bounds.name);
    EXPECT_EQ(states, known == expected.end() ? 0 : known->second) << bounds.name;
  }
  // Nothing holds only because it never happened.
  for (std::size_t kind = 0; kind < kKinds; ++kind) EXPECT_GT(taken[kind], 0u) << kind;
}

TEST(ProtocolModel, TheProtocolKeepsItsLawsInLargeScopes) {
  if (!test::soak()) GTEST_SKIP() << "minutes: set PERDURE_SOAK=1";
  std::array<std::uint64_t, kKinds> taken{};
  for (const Bounds& bounds : scopes(true)) expect_clean(bounds, taken);
}

TEST(ProtocolModel, EveryMutantBreaksTheLawThatItIsKnownToBreak) {
  std::set<Mutant> found;
  for (const Known& known : known_mutants()) {
    Bounds bounds = scope(known.scope, known.large);
    bounds.lemma = known.breaks == Law::WholeIsWhole;
    Protocol protocol(bounds, known.mutant);
    const auto searched = explore(protocol);
    EXPECT_EQ(searched.broken, known.breaks) << to_string(known.mutant) << "\n"
                                             << story(protocol, searched);
    EXPECT_EQ(searched.story.size(), searched.depth + 1) << "the whole way is told";
    found.insert(known.mutant);
    if (!test::soak()) continue;
    fmt::print("{} in {}, {} states, {}", to_string(known.mutant), known.scope, searched.states,
               story(protocol, searched));
  }
  EXPECT_EQ(found.size(), static_cast<std::size_t>(Mutant::ChosenIsNotMarked));
}

// docs/log-protocol.md, "What is not promised": if this is found no more, promise it.
TEST(ProtocolModel, DamageThatNothingVouchesForCanLoseWhatWasCommitted) {
  Bounds bounds = scope("damage");
  bounds.unvouched = true;
  Protocol protocol(bounds, Mutant::Right);
  const auto searched = explore(protocol);
  EXPECT_EQ(searched.broken, Law::CommittedIsNeverLost) << story(protocol, searched);
}

// The same page, and "State of a log": those of a replacement that was given up with a loss are a
// quorum of it by themselves.
TEST(ProtocolModel, WhoKnowsAReplacementThatWasGivenUpCanOpenByItself) {
  Bounds bounds = replacement_and_loss();
  bounds.lemma = false;
  Protocol protocol(bounds, Mutant::Right);
  const auto searched = explore(protocol);
  EXPECT_EQ(searched.broken, Law::NoSecondWriterCommits) << story(protocol, searched);
}

}  // namespace
}  // namespace perdure::model
