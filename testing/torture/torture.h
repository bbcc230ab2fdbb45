// Torture: a world is driven by a sequence of operations with faults among them, all drawn from one
// seed, while a judge beside it knows what was promised. What operations and faults there are is a
// table of the world's; log_world.h has one, and others (RPC, mirrors) bring theirs.
//
// A sequence is made whole before it runs, so that parts of it can be left out: a step draws only
// from its own seed. That is how a failure is made short.
#pragma once

#include "core/random.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::test {

/// A promise that was not kept.
struct Breach {
  std::string law;    // one of the judge's words, "committed-is-never-lost"
  std::string story;  // what was seen, and what was promised
};

/// Knows the promises and what has happened. It says nothing of how they are kept.
class Judge {
 public:
  virtual ~Judge() = default;
  /// The first promise that was broken, if any.
  const std::optional<Breach>& breach() const { return breach_; }
  /// Breaches of these laws are not noticed.
  void leave_out(std::vector<std::string> laws) { left_out_ = std::move(laws); }

 protected:
  void broken(std::string_view law, std::string story);

 private:
  std::optional<Breach> breach_;
  std::vector<std::string> left_out_;
};

/// One thing that a world's user may do. `run` makes all its choices by the given numbers.
struct Operation {
  std::string name;
  std::uint32_t weight = 1;
  std::function<void(Random&)> run;
};

/// One thing that may go wrong, for a while.
struct Fault {
  std::string name;
  std::uint32_t weight = 1;
  std::uint32_t lasts_max = 1;  // operations
  /// Called before an operation. False: it can not happen now.
  std::function<bool(Random&)> begin;
  /// Called after each operation while it lasts: whether that operation met it.
  std::function<bool()> met;
  /// Called after the last operation.
  std::function<void()> end;
};

/// What a world counts, by name; summed over worlds.
struct Counter {
  std::string name;
  std::uint64_t value = 0;
};

/// What a world is made of and keeps to its end, by name; whether this one is.
struct Trait {
  std::string name;
  bool holds = false;
};

/// Threads: one.
class World {
 public:
  virtual ~World() = default;
  /// The same names in the same order in every world of a scenario.
  virtual const std::vector<Operation>& operations() const = 0;
  virtual const std::vector<Fault>& faults() const = 0;
  virtual std::vector<Trait> traits() const { return {}; }
  virtual const Judge& judge() const = 0;
  /// Called before each step: what the world draws by itself it draws from this seed.
  virtual void reseed(std::uint64_t seed) = 0;
  /// Everything that is broken is repaired, and the judge looks at what is there in the end.
  virtual void finish() = 0;
  virtual std::vector<Counter> counters() const = 0;
};

struct WorldOptions {
  std::uint64_t seed = 0;
  std::vector<std::string> laws_left_out;
  /// Receives a line for each thing that happens; empty: nothing is said, which is faster.
  std::function<void(const std::string&)> tell;
};

/// A row of one of the tables, without what it does.
struct Row {
  std::string name;
  std::uint64_t weight = 1;
  std::uint32_t lasts_max = 1;
};

struct Scenario {
  std::string name;
  std::vector<Row> operations;
  std::vector<Row> faults;
  std::vector<std::string> traits;
  std::function<std::unique_ptr<World>(const WorldOptions&)> make;
};

/// A scenario with the tables of the worlds that `make` makes.
Scenario scenario_of(std::string name,
                     std::function<std::unique_ptr<World>(const WorldOptions&)> make);

/// One operation, and the fault that begins before it, if any.
struct Step {
  std::uint32_t number = 0;  // in the sequence as it was drawn
  std::uint32_t operation = 0;
  std::uint64_t seed = 0;
  std::optional<std::uint32_t> fault;
  std::uint64_t fault_seed = 0;
  std::uint32_t fault_lasts = 1;
};

/// How often an operation met a fault: rows are operations, columns faults. And how often either
/// came in a world with a trait: rows are the operations and then the faults, columns traits.
class Coverage {
 public:
  Coverage() = default;
  explicit Coverage(const Scenario& scenario)
      : Coverage(scenario.operations.size(), scenario.faults.size(), scenario.traits.size()) {}
  Coverage(std::size_t operations, std::size_t faults, std::size_t traits)
      : faults_(faults),
        traits_(traits),
        met_(operations * faults),
        ran_(operations),
        with_((operations + faults) * traits) {}

  void ran(std::size_t operation, const std::vector<Trait>& traits) {
    ++ran_[operation];
    came(operation, traits);
  }
  void met(std::size_t operation, std::size_t fault, const std::vector<Trait>& traits) {
    ++met_[operation * faults_ + fault];
    came(operations() + fault, traits);
  }
  std::uint64_t times(std::size_t operation, std::size_t fault) const {
    return met_[operation * faults_ + fault];
  }
  std::uint64_t times(std::size_t operation) const { return ran_[operation]; }
  /// `row`: an operation, or the number of operations and a fault.
  std::uint64_t times_with(std::size_t row, std::size_t trait) const {
    return with_[row * traits_ + trait];
  }
  std::size_t operations() const { return ran_.size(); }
  std::size_t faults() const { return faults_; }
  std::size_t traits() const { return traits_; }
  std::size_t rows() const { return operations() + faults(); }
  std::size_t empty_cells() const;
  Coverage& operator+=(const Coverage& more);
  bool operator==(const Coverage& other) const = default;

  std::vector<std::uint64_t>& numbers() { return met_; }
  std::vector<std::uint64_t>& runs() { return ran_; }
  std::vector<std::uint64_t>& with() { return with_; }

 private:
  void came(std::size_t row, const std::vector<Trait>& traits) {
    for (std::size_t trait = 0; trait < traits.size(); ++trait) {
      if (traits[trait].holds) ++with_[row * traits_ + trait];
    }
  }

  std::size_t faults_ = 0;
  std::size_t traits_ = 0;
  std::vector<std::uint64_t> met_;
  std::vector<std::uint64_t> ran_;
  std::vector<std::uint64_t> with_;
};

struct WorldResult {
  std::optional<Breach> breach;
  std::size_t steps_run = 0;  // the last of them broke the law, unless all were run
  Coverage coverage;
  std::vector<Counter> counters;
};

/// The sequence of a seed. Which operations and faults are common, rare or left out differs from
/// seed to seed: what is only met when something else never happens is met, too. The faults named
/// in `often` come in every world, before every other step, and are soon over.
std::vector<Step> draw_steps(const Scenario& scenario, std::uint64_t seed, std::size_t count,
                             const std::vector<std::string>& often = {});

/// A world from its beginning through these steps, to its finish unless a law is broken before.
WorldResult run_world(const Scenario& scenario, const WorldOptions& options,
                      const std::vector<Step>& steps);

/// Whether a shorter sequence breaks the law as well.
using StillBreaks = std::function<bool(const std::vector<Step>&)>;

/// Leaves out steps and faults as long as it still breaks; asks at most `tries` times.
std::vector<Step> shorten(std::vector<Step> steps, const StillBreaks& still_breaks,
                          std::size_t tries);

/// "3,17!,44": the numbers of the steps that are kept, `!` without their fault; and back.
std::string keep_words(const std::vector<Step>& steps);
/// Errors: nothing when the words are not such a list, or name steps that are not there.
std::optional<std::vector<Step>> keep_steps(const std::vector<Step>& all, std::string_view words);

}  // namespace perdure::test
