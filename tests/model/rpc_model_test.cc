// Durable RPC explored whole within bounds: two clients, two calls each, crashes anywhere, twice.
// What was reported durable is executed once, without its client; each unsafe variant is caught.
#include "model/rpc_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "model/search.h"
#include "testing/soak.h"

namespace perdure::model {
namespace {

constexpr std::uint64_t kRpcStatesMax = 40'000'000;

std::string story(const Searched<RpcModel>& searched) {
  std::string words = fmt::format("law {}\n", static_cast<int>(searched.broken));
  int number = 0;
  for (const RpcModel::Step& step : searched.story) {
    words += fmt::format("{:3}. {}\n", ++number, RpcModel::describe(step));
  }
  return words;
}

struct RpcScope {
  const char* name;
  RpcBounds bounds;
  std::uint64_t states;
};

void expect_kept(const RpcScope& scope, std::array<std::uint64_t, 13>& taken) {
  RpcModel model(scope.bounds, RpcMutant::Right);
  const auto searched = Search<RpcModel>(model, kRpcStatesMax).run(RpcModel::first());
  EXPECT_EQ(searched.broken, RpcLaw::None) << scope.name << "\n" << story(searched);
  EXPECT_FALSE(searched.limit_reached) << scope.name;
  EXPECT_EQ(searched.states, scope.states) << scope.name;
  for (std::size_t each = 0; each < taken.size(); ++each) {
    taken[each] += model.taken(static_cast<RpcModel::Action>(each));
  }
  fmt::print("| {} | {} | {} | {} |\n", scope.name, searched.states, searched.steps,
             searched.depth);
}

TEST(RpcModel, DurableImpliesAppliedOnce) {
  std::array<std::uint64_t, 13> taken{};
  const RpcScope scopes[] = {{"one slot, power fails twice", {1, 2, true, false}, 3132298},
                             {"one slot, two deaths", {1, 2, false, true}, 2253216},
                             {"two slots, one death", {2, 1, false, true}, 1087871}};
  for (const RpcScope& scope : scopes) expect_kept(scope, taken);
  for (std::size_t each = 0; each < taken.size(); ++each) EXPECT_GT(taken[each], 0u) << each;
}

TEST(RpcModel, DurableImpliesAppliedOnceInLargeScopes) {
  if (!test::soak()) GTEST_SKIP() << "minutes: set PERDURE_SOAK=1";
  std::array<std::uint64_t, 13> taken{};
  expect_kept({"two slots, two deaths", {2, 2, false, true}, 10877729}, taken);
  expect_kept({"one slot, everything", {1, 2, true, true}, 16825364}, taken);
}

TEST(RpcModel, EveryUnsafeVariantIsCaughtWithAStory) {
  struct Known {
    RpcMutant mutant;
    RpcLaw broken;
    RpcBounds bounds;
  };
  const Known all[] = {
      {RpcMutant::ReplyBeforeFlush, RpcLaw::DurableIsApplied, {1, 1, true, false}},
      {RpcMutant::ZeroByteRead, RpcLaw::DurableIsApplied, {1, 1, true, false}},
      {RpcMutant::SlotReusedAfterFlush, RpcLaw::DurableIsApplied, {1, 1, true, false}},
      {RpcMutant::MarkBeforeEffects, RpcLaw::DurableIsApplied, {1, 1, true, false}},
      {RpcMutant::EffectsBeforeMark, RpcLaw::NoneTwice, {1, 1, true, false}},
      {RpcMutant::RecordStoredAtOnce, RpcLaw::NoneTwice, {1, 1, true, false}},
      {RpcMutant::StoresAreNotFlushed, RpcLaw::AppliedIsKept, {1, 1, true, false}},
      {RpcMutant::AppliedBeforeCommit, RpcLaw::AppliedIsKept, {1, 1, true, false}},
      {RpcMutant::RecoveryTrustsVisible, RpcLaw::NoneTwice, {1, 2, true, true}},
      {RpcMutant::OlderGenerationTaken, RpcLaw::DurableIsApplied, {2, 1, false, true}},
  };
  for (const Known& known : all) {
    RpcModel model(known.bounds, known.mutant);
    const auto searched = Search<RpcModel>(model, kRpcStatesMax).run(RpcModel::first());
    EXPECT_EQ(searched.broken, known.broken) << static_cast<int>(known.mutant) << "\n"
                                             << story(searched);
    EXPECT_FALSE(searched.story.empty());
    EXPECT_EQ(searched.story.size(), searched.depth + 1) << "the whole way is told";
    if (test::soak()) fmt::print("{} {}\n", static_cast<int>(known.mutant), story(searched));
  }
}

}  // namespace
}  // namespace perdure::model
