// A campaign: many worlds, in processes of their own, so that a program that aborts or never
// returns is a failure like any other and does not end the campaign.
#pragma once

#include <perdure/result.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "testing/torture/torture.h"

namespace perdure::test {

struct CampaignOptions {
  std::uint64_t seed = 1;          // of the first world; the next has the next number
  std::uint64_t worlds = 100;      // 0: until the time is over or the goal is reached
  std::size_t operations = 500;    // of each world
  std::chrono::seconds time{0};    // 0: no limit
  std::string goal_counter;        // the campaign is over when this one is `goal`
  std::uint64_t goal = 0;          // 0: none
  std::vector<std::string> often;  // faults: see draw_steps
  /// At once. What is found does not depend on it, but for how far beyond a goal or a time the
  /// pieces go that had begun before.
  std::size_t processes = 1;
  std::string world_words;  // of the command line, which say what the worlds are made of
  std::vector<std::string> laws_left_out;
  std::size_t failures_max = 10;    // distinct ones (law and last operation) that are shortened
  std::size_t shorten_tries = 400;  // worlds run to shorten one failure
  /// A world that says nothing for this long never will.
  std::chrono::seconds silence{60};
  /// Called after each piece of the campaign.
  std::function<void(const struct CampaignState&)> progress;
  /// Called after each piece, too: where a later campaign may resume.
  std::function<void(const struct CampaignState&)> keep;
};

struct Failure {
  std::uint64_t seed = 0;
  Breach breach;
  std::string operation;          // that broke the law; "finish" at the end
  std::string keep;               // the shortest sequence: see keep_words
  std::size_t steps = 0;          // of it
  std::vector<std::string> told;  // what happens in it
  std::uint64_t times = 1;        // worlds of this campaign that failed in the same way
};

/// All that a campaign is so far; enough to go on from.
struct CampaignState {
  std::uint64_t worlds_run = 0;
  std::uint64_t worlds_failed = 0;
  std::uint64_t steps_run = 0;
  double seconds = 0;  // of all processes, without shortening
  Coverage coverage;
  std::map<std::string, std::uint64_t> counters;
  std::vector<Failure> failures;
};

/// From so many operations on a campaign has met everything: with fewer, an operation that never
/// met a fault, or never came in a world with a trait, says nothing. The rarest pairs of the log's
/// world (a pool is copied, or other peers are named, while connections drop) come twice in 150,000
/// operations on the average, so that one or another often does not come at all; a dozen times in a
/// million.
inline constexpr std::uint64_t kStepsForCoverage = 1'000'000;

/// Whether no law was broken, and nothing was left out that as long a campaign has to meet.
bool passed(const CampaignState& state);

/// Runs the worlds that `state` has not run yet. Errors: SystemError (no process, no pipe).
Result<void> run_campaign(const Scenario& scenario, const CampaignOptions& options,
                          CampaignState& state);

/// One world, in a process of its own: what aborts or hangs there is its breach.
Result<WorldResult> run_apart(const Scenario& scenario, const WorldOptions& options,
                              const std::vector<Step>& steps, std::chrono::seconds silence);

/// The same with all that it tells.
Result<std::vector<std::string>> tell_world(const Scenario& scenario, const WorldOptions& options,
                                            const std::vector<Step>& steps,
                                            std::chrono::seconds silence);

/// The command line that repeats a failure of a campaign exactly.
std::string repeat_line(const Failure& failure, const CampaignOptions& options);

}  // namespace perdure::test
