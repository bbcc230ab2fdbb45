#include "model/protocol_scopes.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/assert.h"

namespace perdure::model {
namespace {

const log::Configuration kThree = configuration_of(1, 2, {0, 1, 2});
const log::Configuration kReplaced = configuration_of(2, 2, {0, 1, 3});  // C by D
const log::Configuration kAllOfThree = configuration_of(2, 3, {0, 1, 2});
const log::Configuration kAdded = configuration_of(2, 3, {0, 1, 2, 3});

Bounds named(const char* name, std::vector<log::Configuration> configurations) {
  Bounds bounds;
  bounds.name = name;
  bounds.writers = 1;
  bounds.configurations = std::move(configurations);
  for (const log::Configuration& each : bounds.configurations) {
    for (const log::Member& member : each.members) {
      bounds.pools = std::max(bounds.pools, static_cast<int>(member.pool.bytes[15]));
    }
  }
  return bounds;
}

Bounds two_writers(int more) {
  Bounds bounds = named("two-writers", {kThree});
  bounds.writers = 2;
  bounds.appends = 2 + more;
  bounds.openings = 2;
  bounds.interruptions = 1 + more;
  return bounds;
}

Bounds trim_and_take_over(int more) {
  Bounds bounds = named("trim-and-take-over", {kThree});
  bounds.writers = 2;
  bounds.ring = 2;
  bounds.appends = 1 + more;
  bounds.trims = 1;
  bounds.openings = 2;
  bounds.interruptions = more;
  return bounds;
}

Bounds trim_and_wrap(int more) {
  Bounds bounds = named("trim-and-wrap", {kThree});
  bounds.ring = 2;
  bounds.appends = 3 + more;
  bounds.trims = 1 + more;
  bounds.openings = 1 + more;
  bounds.interruptions = 2;
  return bounds;
}

Bounds power_cuts(int more) {
  Bounds bounds = named("power-cuts", {kThree});
  bounds.appends = 2 + more;
  bounds.openings = 2 + more;
  bounds.interruptions = 2 + more;
  bounds.in_flight = 2;
  bounds.power_cuts = true;
  bounds.catch_up = false;
  return bounds;
}

Bounds lost_media(int more) {
  Bounds bounds = named("lost-media", {kThree});
  bounds.appends = 2 + more;
  bounds.openings = 1 + more;
  bounds.interruptions = 2;
  bounds.losses = 1 + more;
  bounds.wipe = bounds.die = bounds.words = true;
  return bounds;
}

Bounds damage(int more) {
  Bounds bounds = named("damage", {kThree});
  bounds.appends = 2 + more;
  bounds.openings = 1 + more;
  bounds.interruptions = 1;
  bounds.losses = 1;
  bounds.in_flight = 2;
  bounds.damage = bounds.words = true;
  return bounds;
}

Bounds compound(int more) {
  Bounds bounds = named("compound", {kThree});
  bounds.appends = 2 + more;
  bounds.openings = 1 + more;
  bounds.interruptions = 1;
  bounds.losses = 1;
  bounds.damage = bounds.wipe = bounds.compound = true;
  return bounds;
}

Bounds trim_and_damage(int more) {
  Bounds bounds = named("trim-and-damage", {kThree});
  bounds.ring = 2;
  bounds.appends = 2 + more;
  bounds.trims = 1;
  bounds.openings = 1 + more;
  bounds.interruptions = 1;
  bounds.losses = 1;
  bounds.damage = bounds.wipe = true;
  return bounds;
}

Bounds creation(int more) {
  Bounds bounds = named("creation", {kThree});
  bounds.writers = 2;
  bounds.create = true;
  bounds.appends = 1;
  bounds.openings = 2 + more;
  bounds.interruptions = 2;
  return bounds;
}

Bounds replace(int more) {
  Bounds bounds = named("replace", {kThree, kReplaced});
  bounds.appends = 1 + more;
  bounds.openings = 1 + more;
  bounds.interruptions = 1;
  bounds.changes = 1;
  return bounds;
}

Bounds two_changes(int more) {
  Bounds bounds = named("two-changes", {kThree, kReplaced, kAdded});
  bounds.writers = 2;
  bounds.appends = more;
  bounds.openings = 1;
  bounds.interruptions = 1 + more;
  bounds.changes = 1;
  return bounds;
}

Bounds buried_change(int more) {
  Bounds bounds = named("buried-change", {kThree, kReplaced});
  bounds.ring = 2;
  bounds.appends = 1;
  bounds.trims = 1;
  bounds.openings = 1;
  bounds.interruptions = 1 + more;
  bounds.changes = 1;
  bounds.losses = 1;
  bounds.die = true;
  bounds.power_cuts = more != 0;
  return bounds;
}

/// It is trimmed, and a replica that has not heard of it is brought to equal in part.
Bounds trimmed_change(int more) {
  Bounds bounds = named("trimmed-change", {kThree, kReplaced});
  bounds.ring = 2;
  bounds.appends = more;
  bounds.trims = 1;
  bounds.openings = 2;
  bounds.interruptions = 1;
  bounds.changes = 1;
  return bounds;
}

/// The same of a quorum, which takes no newcomer: there is room for power cuts.
Bounds buried_quorum(int more) {
  Bounds bounds = named("buried-quorum", {kThree, kAllOfThree});
  bounds.ring = 2;
  bounds.appends = 1 + more;
  bounds.trims = 1;
  bounds.openings = 2;
  bounds.interruptions = 2;
  bounds.changes = 1;
  bounds.power_cuts = true;
  return bounds;
}

Bounds newcomer(int more) {
  Bounds bounds = named("newcomer", {kThree, kReplaced});
  bounds.ring = 2;
  bounds.appends = 1 + more;
  bounds.trims = 1;
  bounds.openings = 1;
  bounds.interruptions = 2;
  bounds.changes = more;
  bounds.newcomers = true;
  return bounds;
}

Bounds quorum_of_one(int more) {
  Bounds bounds = named("quorum-of-one", {configuration_of(1, 1, {0, 1, 2})});
  bounds.appends = 2 + more;
  bounds.openings = 2;
  bounds.interruptions = 1 + more;
  bounds.losses = 1;
  bounds.wipe = true;
  return bounds;
}

Bounds quorum_of_all(int more) {
  Bounds bounds = named("quorum-of-all", {configuration_of(1, 3, {0, 1, 2})});
  bounds.writers = 1 + more;
  bounds.appends = 2 + more;
  bounds.openings = 2;
  bounds.interruptions = 2;
  return bounds;
}

Bounds four_replicas(int more) {
  Bounds bounds = named("four-replicas", {configuration_of(1, 3, {0, 1, 2, 3})});
  bounds.ring = 2;
  bounds.appends = 1 + more;
  bounds.trims = more;
  bounds.openings = 2;
  bounds.interruptions = 1;
  return bounds;
}

/// More is lost than may be, and who opens accepts it.
Bounds accepted_loss(int more) {
  Bounds bounds = named("accepted-loss", {kThree});
  bounds.appends = 1 + more;
  bounds.openings = 2;
  bounds.acceptances = 1;
  bounds.interruptions = 1;
  bounds.losses = 2;
  bounds.damage = bounds.wipe = bounds.words = bounds.beyond = true;
  bounds.catch_up = more != 0;
  return bounds;
}

/// The same with a quorum below a majority.
Bounds loss_of_four(int more) {
  Bounds bounds = named("loss-of-four", {configuration_of(1, 2, {0, 1, 2, 3})});
  bounds.ring = 2;
  bounds.appends = 1;
  bounds.openings = 2 + more;
  bounds.acceptances = 1;
  bounds.interruptions = 1 + more;
  bounds.losses = 3;
  bounds.wipe = bounds.beyond = true;
  bounds.catch_up = false;
  return bounds;
}

/// A change is given up with the loss, and another one decided.
Bounds loss_and_change(int more) {
  Bounds bounds = named("loss-and-change", {kThree, kAllOfThree});
  bounds.appends = 1;
  bounds.openings = 2 + more;
  bounds.acceptances = 1;
  bounds.interruptions = 1;
  bounds.losses = 2;
  bounds.changes = 1 + more;
  bounds.wipe = bounds.beyond = true;
  bounds.catch_up = false;
  return bounds;
}

Bounds unheard(const char* name, std::vector<log::Configuration> configurations) {
  Bounds bounds = named(name, std::move(configurations));
  bounds.unheard = bounds.beyond = true;
  bounds.appends = 1;
  bounds.openings = 3;
  bounds.acceptances = 1;
  bounds.interruptions = 2;
  bounds.changes = 1;
  bounds.catch_up = false;
  return bounds;
}

/// A replica was added without a higher quorum; that is given up with a loss, or the loss is not.
Bounds addition_and_loss(int more) {
  Bounds bounds = unheard("addition-and-loss", {kThree, configuration_of(2, 2, {0, 1, 2, 3})});
  bounds.openings += more;
  bounds.acceptances += more;
  return bounds;
}

/// The same where nothing but its tail word says that a replica had more.
Bounds loss_by_word(int more) {
  Bounds bounds = addition_and_loss(0);
  bounds.name = "loss-by-word";
  bounds.by_word = bounds.compound = true;
  bounds.openings += more;
  return bounds;
}

/// One replica alone has begun with the loss.
Bounds loss_of_one(int more) {
  Bounds bounds = addition_and_loss(0);
  bounds.name = "loss-of-one";
  bounds.of_one = true;
  bounds.openings = 4 + more;
  return bounds;
}

/// The same of a lower quorum, where those that know it are trimmed, and more is damaged.
Bounds quorum_and_loss(int more) {
  Bounds bounds = unheard("quorum-and-loss", {configuration_of(1, 3, {0, 1, 2, 3}),
                                              configuration_of(2, 2, {0, 1, 2, 3})});
  bounds.interruptions = 1 + more;
  bounds.openings += more;
  bounds.trims = 1;
  bounds.losses = 1;
  bounds.damage = true;
  return bounds;
}

}  // namespace

std::vector<Bounds> scopes(bool large) {
  const int more = large ? 1 : 0;
  return {two_writers(more),       trim_and_take_over(more), trim_and_wrap(more),
          power_cuts(more),        lost_media(more),         damage(more),
          compound(more),          trim_and_damage(more),    creation(more),
          replace(more),           two_changes(more),        buried_change(more),
          trimmed_change(more),    buried_quorum(more),      newcomer(more),
          quorum_of_one(more),     quorum_of_all(more),      four_replicas(more),
          accepted_loss(more),     loss_of_four(more),       loss_and_change(more),
          addition_and_loss(more), loss_by_word(more),       loss_of_one(more),
          quorum_and_loss(more)};
}

Bounds replacement_and_loss() { return unheard("replacement-and-loss", {kThree, kReplaced}); }

Bounds scope(const std::string& name, bool large) {
  for (Bounds& each : scopes(large)) {
    if (each.name == name) return each;
  }
  PERDURE_ASSERT(false && "no scope of that name");
  return {};
}

std::vector<Known> known_mutants() {
  return {
      {Mutant::OldHeadComesBack, "trim-and-wrap", Law::SomethingCanBeDone},
      {Mutant::HeadOfAnyEpoch, "trim-and-take-over", Law::CommittedIsNeverLost},
      {Mutant::HeadOfTheChosen, "trim-and-wrap", Law::TrimmedNeverReturns},
      {Mutant::EmptyForgets, "trim-and-wrap", Law::SomethingCanBeDone},
      {Mutant::SourceIsTrusted, "compound", Law::DamageIsNeverReturned},
      {Mutant::BlankVotes, "trim-and-damage", Law::CommittedIsNeverLost},
      {Mutant::DamageIsIgnored, "damage", Law::CommittedIsNeverLost},
      {Mutant::FencedTakesTheTail, "two-writers", Law::NoSecondWriterCommits},
      {Mutant::QuorumIsNotStored, "quorum-of-one", Law::CommittedIsNeverLost},
      {Mutant::AnyPeersWillDo, "trim-and-wrap", Law::CommittedIsNeverLost},
      {Mutant::ReadersGetAll, "two-writers", Law::OnlyCommittedIsRead},
      {Mutant::CreationHasNoMark, "creation", Law::SomethingCanBeDone},
      {Mutant::CreateOnSome, "creation", Law::SomethingCanBeDone},
      {Mutant::CreateUnseen, "creation", Law::SomethingCanBeDone},
      {Mutant::HolesAreNotLookedBehind, "damage", Law::CommittedIsNeverLost},
      {Mutant::EndsBehindDoNotCount, "damage", Law::CommittedIsNeverLost},
      {Mutant::ClaimOfAnyHistory, "buried-change", Law::SomethingCanBeDone},
      {Mutant::ClaimUnderTheMark, "buried-change", Law::SomethingCanBeDone},
      {Mutant::LongestWins, "two-writers", Law::CommittedIsNeverLost},
      {Mutant::NoMarkBeforeCopying, "trim-and-wrap", Law::WholeIsWhole},
      {Mutant::OneCopyCommits, "two-writers", Law::CommittedIsNeverLost},
      {Mutant::OldWritersGoOn, "two-writers", Law::NoSecondWriterCommits},
      {Mutant::FenceLeavesLoose, "power-cuts", Law::WholeIsWhole},
      {Mutant::BeginIsIgnored, "power-cuts", Law::SomethingCanBeDone},
      {Mutant::NewConfigurationAlone, "replace", Law::CommittedIsNeverLost},
      {Mutant::NewestConfigurationOnly, "replace", Law::SomethingCanBeDone},
      {Mutant::WordIsCommitted, "lost-media", Law::WholeIsWhole},
      {Mutant::TrimByOne, "trim-and-wrap", Law::TrimmedNeverReturns},
      {Mutant::PrefixByLength, "two-writers", Law::CommittedIsNeverLost},
      {Mutant::RecordsBeforeHead, "trim-and-wrap", Law::WholeIsWhole},
      {Mutant::TailWordIsLeft, "compound", Law::SomethingCanBeDone},
      {Mutant::RemovedIsToldFirst, "buried-change", Law::SomethingCanBeDone},
      {Mutant::NewcomerCounts, "newcomer", Law::TrimmedNeverReturns},
      {Mutant::MarkBeforeSource, "compound", Law::SomethingCanBeDone},
      {Mutant::MarkTakesTheVote, "trim-and-damage", Law::SomethingCanBeDone},
      {Mutant::ResumeWithoutSurvey, "quorum-of-one", Law::CommittedIsNeverLost},
      {Mutant::StateBeforeRecords, "trim-and-damage", Law::SomethingCanBeDone},
      {Mutant::AppendBeforeBegun, "trim-and-wrap", Law::TrimmedNeverReturns},
      {Mutant::LossHasNoNumber, "quorum-and-loss", Law::CommittedIsNeverLost},
      {Mutant::LossOfOneCounts, "quorum-and-loss", Law::CommittedIsNeverLost},
      {Mutant::LossOfOneIsLeft, "loss-of-one", Law::CommittedIsNeverLost},
      {Mutant::VotesAreNotKept, "loss-of-one", Law::CommittedIsNeverLost},
      {Mutant::OthersStayWhole, "accepted-loss", Law::CommittedIsNeverLost},
      {Mutant::ChosenFirst, "addition-and-loss", Law::CommittedIsNeverLost},
      {Mutant::ChosenKeepsItsWords, "accepted-loss", Law::SomethingCanBeDone},
      {Mutant::CutOffKeepsItsWord, "accepted-loss", Law::SomethingCanBeDone},
      {Mutant::CutOffKeepsConfiguration, "loss-of-one", Law::CommittedIsNeverLost},
      {Mutant::HeadKeepsConfiguration, "trimmed-change", Law::CommittedIsNeverLost, true},
      {Mutant::ChosenIsNotMarked, "loss-by-word", Law::CommittedIsNeverLost},
  };
}

std::string describe(const Bounds& bounds) {
  std::string words =
      fmt::format("{} pools, ring {}, {} writers at a time and {} more, {} appends", bounds.pools,
                  bounds.ring, bounds.writers, bounds.openings, bounds.appends);
  const auto say = [&](int count, const char* what) {
    if (count != 0) words += fmt::format(", {} {}", count, what);
  };
  say(bounds.trims, "trims");
  say(bounds.changes, "changes of the configuration");
  say(bounds.acceptances, "openings that may accept a loss");
  say(bounds.interruptions, "interruptions");
  say(bounds.losses, "media lost or damaged");
  if (bounds.in_flight > 1) say(bounds.in_flight, "records in flight");
  if (bounds.newcomers) words += ", newcomers";
  if (bounds.unheard) words += ", a change not all have heard of";
  if (bounds.of_one) words += ", a loss on one";
  if (bounds.power_cuts) words += ", power cuts";
  if (bounds.compound) words += ", compound";
  return words;
}

}  // namespace perdure::model
