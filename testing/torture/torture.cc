// Drawing, running and shortening sequences: see torture.h.
#include "testing/torture/torture.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/assert.h"

namespace perdure::test {
namespace {

// A fault begins before one step in so many, if it is not left out.
constexpr std::uint64_t kFaultOneIn = 6;
constexpr std::uint64_t kActiveFaultsMax = 3;
// And those that are to come often: before one step in so many, for at most so many operations,
// and so much more often than all others together.
constexpr std::uint64_t kOftenOneIn = 2;
constexpr std::uint32_t kOftenLastsMax = 3;
constexpr std::uint64_t kOftenTimes = 8;

/// Weights of one world: of each entry none, as given, or several times as much.
std::vector<std::uint64_t> swarm_weights(const std::vector<Row>& entries, Random& random) {
  constexpr std::array<std::uint64_t, 5> kFactors = {0, 1, 1, 2, 6};
  std::vector<std::uint64_t> weights;
  for (const Row& entry : entries) {
    weights.push_back(entry.weight * kFactors[random.below(kFactors.size())]);
  }
  if (std::ranges::all_of(weights, [](std::uint64_t weight) { return weight == 0; })) {
    weights.front() = 1;
  }
  return weights;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// What is to come often comes, whatever else the weights of this world say.
void come_often(const Scenario& scenario, const std::vector<std::string>& often,
                std::vector<std::uint64_t>& weights) {
  std::uint64_t sum = 0;
  for (const std::uint64_t weight : weights) sum += weight;
  for (std::size_t index = 0; index < weights.size(); ++index) {
    const Row& fault = scenario.faults[index];
    if (contains(often, fault.name)) weights[index] = fault.weight * kOftenTimes * (1 + sum / 10);
  }
}

std::uint32_t choose(const std::vector<std::uint64_t>& weights, Random& random) {
  std::uint64_t sum = 0;
  for (const std::uint64_t weight : weights) sum += weight;
  std::uint64_t at = random.below(sum);
  std::uint32_t index = 0;
  while (at >= weights[index]) at -= weights[index++];
  return index;
}

struct Active {
  std::size_t fault = 0;
  std::uint32_t left = 0;
};

/// One step; the faults that are over afterwards are ended.
void run_step(World& world, const Step& step, const std::vector<Trait>& traits,
              std::vector<Active>& active, Coverage& coverage) {
  world.reseed(step.seed);
  if (step.fault && active.size() < kActiveFaultsMax) {
    const Fault& fault = world.faults()[*step.fault];
    const bool already =
        std::ranges::any_of(active, [&](const Active& each) { return each.fault == *step.fault; });
    Random choices(step.fault_seed);
    if (!already && fault.begin(choices)) active.push_back({*step.fault, step.fault_lasts});
  }
  Random choices(step.seed);
  world.operations()[step.operation].run(choices);
  coverage.ran(step.operation, traits);
  for (Active& each : active) {
    const Fault& fault = world.faults()[each.fault];
    if (fault.met()) coverage.met(step.operation, each.fault, traits);
    if (--each.left == 0) fault.end();
  }
  std::erase_if(active, [](const Active& each) { return each.left == 0; });
}

}  // namespace

void Judge::broken(std::string_view law, std::string story) {
  if (breach_ || std::ranges::find(left_out_, law) != left_out_.end()) return;
  breach_ = Breach{std::string(law), std::move(story)};
}

std::size_t Coverage::empty_cells() const {
  return static_cast<std::size_t>(std::ranges::count(met_, std::uint64_t{0}) +
                                  std::ranges::count(with_, std::uint64_t{0}));
}

Coverage& Coverage::operator+=(const Coverage& more) {
  if (ran_.empty()) return *this = more;
  PERDURE_ASSERT(met_.size() == more.met_.size());
  PERDURE_ASSERT(ran_.size() == more.ran_.size());
  PERDURE_ASSERT(with_.size() == more.with_.size());
  for (std::size_t i = 0; i < met_.size(); ++i) met_[i] += more.met_[i];
  for (std::size_t i = 0; i < ran_.size(); ++i) ran_[i] += more.ran_[i];
  for (std::size_t i = 0; i < with_.size(); ++i) with_[i] += more.with_[i];
  return *this;
}

Scenario scenario_of(std::string name,
                     std::function<std::unique_ptr<World>(const WorldOptions&)> make) {
  Scenario scenario{std::move(name), {}, {}, {}, std::move(make)};
  const auto world = scenario.make({});
  for (const Operation& each : world->operations()) {
    scenario.operations.push_back({each.name, each.weight, 1});
  }
  for (const Fault& each : world->faults()) {
    scenario.faults.push_back({each.name, each.weight, each.lasts_max});
  }
  for (const Trait& each : world->traits()) scenario.traits.push_back(each.name);
  return scenario;
}

std::vector<Step> draw_steps(const Scenario& scenario, std::uint64_t seed, std::size_t count,
                             const std::vector<std::string>& often) {
  Random random(seed ^ 0x5eed5eed5eed5eedULL);
  const auto operations = swarm_weights(scenario.operations, random);
  auto faults = swarm_weights(scenario.faults, random);
  std::uint64_t fault_one_in = kFaultOneIn << random.below(4);
  if (!often.empty()) {
    come_often(scenario, often, faults);
    fault_one_in = kOftenOneIn;
  }
  std::vector<Step> steps(count);
  for (std::size_t number = 0; number < count; ++number) {
    Step& step = steps[number];
    step.number = static_cast<std::uint32_t>(number);
    step.operation = choose(operations, random);
    step.seed = random.next();
    step.fault_seed = random.next();
    if (!random.chance(1, fault_one_in)) continue;
    step.fault = choose(faults, random);
    const Row& fault = scenario.faults[*step.fault];
    const std::uint32_t lasts_max =
        contains(often, fault.name) ? std::min(fault.lasts_max, kOftenLastsMax) : fault.lasts_max;
    step.fault_lasts = 1 + static_cast<std::uint32_t>(random.below(lasts_max));
  }
  return steps;
}

WorldResult run_world(const Scenario& scenario, const WorldOptions& options,
                      const std::vector<Step>& steps) {
  const auto world = scenario.make(options);
  WorldResult result;
  const std::vector<Trait> traits = world->traits();
  result.coverage = Coverage(scenario);
  std::vector<Active> active;
  for (const Step& step : steps) {
    if (options.tell) {
      options.tell(fmt::format("{:>4} {}{}", step.number, world->operations()[step.operation].name,
                               step.fault ? " | " + world->faults()[*step.fault].name : ""));
    }
    run_step(*world, step, traits, active, result.coverage);
    ++result.steps_run;
    if (world->judge().breach()) break;
  }
  if (!world->judge().breach()) {
    for (const Active& each : active) world->faults()[each.fault].end();
    world->reseed(options.seed);
    world->finish();
  }
  result.breach = world->judge().breach();
  result.counters = world->counters();
  return result;
}

std::vector<Step> shorten(std::vector<Step> steps, const StillBreaks& still_breaks,
                          std::size_t tries) {
  const auto ask = [&](const std::vector<Step>& candidate) {
    if (tries == 0) return false;
    --tries;
    return still_breaks(candidate);
  };
  for (std::size_t run = std::max<std::size_t>(steps.size() / 2, 1); tries > 0;) {
    bool shorter = false;
    // From the end: what came last is what the failure needs least of, but for the last step.
    for (std::size_t end = steps.size(); end > 0 && tries > 0;) {
      const std::size_t begin = end > run ? end - run : 0;
      std::vector<Step> candidate(steps.begin(),
                                  steps.begin() + static_cast<std::ptrdiff_t>(begin));
      candidate.insert(candidate.end(), steps.begin() + static_cast<std::ptrdiff_t>(end),
                       steps.end());
      if (ask(candidate)) {
        steps = std::move(candidate);
        shorter = true;
      }
      end = begin;
    }
    if (run == 1 && !shorter) break;
    run = std::max<std::size_t>(run / 2, 1);
  }
  for (std::size_t index = 0; index < steps.size(); ++index) {
    if (!steps[index].fault) continue;
    std::vector<Step> candidate = steps;
    candidate[index].fault.reset();
    if (ask(candidate)) steps = std::move(candidate);
  }
  return steps;
}

std::string keep_words(const std::vector<Step>& steps) {
  std::string words;
  for (const Step& step : steps) {
    words += fmt::format("{}{}{}", words.empty() ? "" : ",", step.number, step.fault ? "" : "!");
  }
  return words.empty() ? "none" : words;
}

std::optional<std::vector<Step>> keep_steps(const std::vector<Step>& all, std::string_view words) {
  std::vector<Step> kept;
  if (words == "none") return kept;
  while (!words.empty()) {
    std::uint32_t number = 0;
    const auto read = std::from_chars(words.data(), words.data() + words.size(), number);
    if (read.ec != std::errc{} || number >= all.size()) return std::nullopt;
    words.remove_prefix(static_cast<std::size_t>(read.ptr - words.data()));
    kept.push_back(all[number]);
    if (words.starts_with('!')) {
      kept.back().fault.reset();
      words.remove_prefix(1);
    }
    if (words.empty()) break;
    if (words.front() != ',' || words.size() == 1) return std::nullopt;
    words.remove_prefix(1);
  }
  return kept;
}

}  // namespace perdure::test
