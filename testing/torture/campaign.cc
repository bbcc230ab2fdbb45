// Worlds in processes of their own, and what is made of their failures: see campaign.h.
#include "testing/torture/campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <sstream>

#include "core/clock.h"
#include "core/try.h"
#include "testing/torture/apart.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kWorldsPerProcess = 50;
/// With a limit of time, which is looked at between processes.
constexpr std::uint64_t kWorldsPerTimedProcess = 5;
/// A story on one line, so that it can be one.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// What a process says of its worlds, a word and numbers on each line:
//   world SEED            it begins
//   steps N               of the world that has ended
//   breach LAW STORY...
//   counter NAME VALUE, ran OPERATION TIMES, met OPERATION FAULT TIMES, with ROW TRAIT TIMES
//                         of all its worlds

void print_world(std::FILE* out, const WorldResult& result) {
  std::string text = fmt::format("steps {}\n", result.steps_run);
  if (result.breach) {
    text += fmt::format("breach {} {}\n", result.breach->law, one_line(result.breach->story));
  }
  std::fputs(text.c_str(), out);
  std::fflush(out);
}

void print_sums(std::FILE* out, const Coverage& coverage,
                const std::map<std::string, std::uint64_t>& counters) {
  std::string text;
  for (const auto& [name, value] : counters) text += fmt::format("counter {} {}\n", name, value);
  for (std::size_t row = 0; row < coverage.operations(); ++row) {
    text += fmt::format("ran {} {}\n", row, coverage.times(row));
    for (std::size_t column = 0; column < coverage.faults(); ++column) {
      const std::uint64_t times = coverage.times(row, column);
      if (times != 0) text += fmt::format("met {} {} {}\n", row, column, times);
    }
  }
  for (std::size_t row = 0; row < coverage.rows(); ++row) {
    for (std::size_t trait = 0; trait < coverage.traits(); ++trait) {
      const std::uint64_t times = coverage.times_with(row, trait);
      if (times != 0) text += fmt::format("with {} {} {}\n", row, trait, times);
    }
  }
  std::fputs(text.c_str(), out);
}

WorldOptions world_options(const CampaignOptions& options, std::uint64_t seed) {
  WorldOptions world;
  world.seed = seed;
  world.laws_left_out = options.laws_left_out;
  return world;
}

struct Found {
  std::uint64_t seed = 0;
  std::size_t steps = 0;
  Breach breach;
};

/// The worlds of some seeds in a row, in one process; in a further one behind each that aborts or
/// never returns.
class Piece {
 public:
  Piece(const Scenario& scenario, const CampaignOptions& options, std::uint64_t first,
        std::uint64_t count)
      : scenario_(scenario), options_(options), next_(first), end_(first + count) {
    sum_.coverage = Coverage(scenario);
  }

  /// Begins the worlds that are left. Errors: SystemError.
  Result<void> begin() {
    begun_ = Clock::monotonic().now();
    const auto work = [this](std::FILE* out) { work_on(out); };
    const auto line = [this](const std::string& text) { take(text); };
    PERDURE_TRY(process, Apart::begin(work, line, options_.silence));
    process_ = std::move(process);
    return {};
  }
  Apart& process() { return *process_; }

  /// Goes on when the process has ended and was not to. Errors: SystemError.
  Result<void> go_on() {
    if (!process_->ended()) return {};
    sum_.seconds += to_seconds(Clock::monotonic().now() - begun_);
    if (const End& end = *process_->ended()) {
      note_end(*end);
      if (next_ < end_) return begin();
    }
    process_.reset();
    return {};
  }
  bool finished() const { return process_ == nullptr; }
  const std::vector<Found>& found() const { return found_; }
  /// What its worlds come to, without their failures.
  const CampaignState& sum() const { return sum_; }

 private:
  void work_on(std::FILE* out) {
    Coverage coverage(scenario_);
    std::map<std::string, std::uint64_t> counters;
    for (std::uint64_t seed = next_; seed < end_; ++seed) {
      std::fputs(fmt::format("world {}\n", seed).c_str(), out);
      std::fflush(out);
      const auto steps = draw_steps(scenario_, seed, options_.operations, options_.often);
      const WorldResult result = run_world(scenario_, world_options(options_, seed), steps);
      coverage += result.coverage;
      for (const Counter& each : result.counters) counters[each.name] += each.value;
      print_world(out, result);
    }
    print_sums(out, coverage, counters);
  }

  /// The process ended in the world that had begun; or behind the last one.
  void note_end(const Breach& breach) {
    const std::uint64_t seed = next_ < end_ ? next_ : end_ - 1;
    const bool judged =
        std::ranges::find(options_.laws_left_out, breach.law) == options_.laws_left_out.end();
    if (judged) found_.push_back({seed, options_.operations, breach});
    if (next_ == end_) return;
    ++next_;
    ++sum_.worlds_run;
  }

  void take(const std::string& line) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "steps") {
      words >> steps_;
      ++next_;
      ++sum_.worlds_run;
      sum_.steps_run += steps_;
    }
    if (word == "breach") {
      Found found{next_ - 1, steps_, {}};
      words >> found.breach.law;
      std::getline(words >> std::ws, found.breach.story);
      found_.push_back(std::move(found));
    }
    take_sum(word, words);
  }

  void take_sum(const std::string& word, std::istringstream& words) {
    std::size_t row = 0;
    std::size_t column = 0;
    std::uint64_t value = 0;
    if (word == "counter") {
      std::string name;
      words >> name >> value;
      sum_.counters[name] += value;
    } else if (word == "ran") {
      words >> row >> value;
      if (row < sum_.coverage.operations()) sum_.coverage.runs()[row] += value;
    } else if (word == "met") {
      words >> row >> column >> value;
      const std::size_t cell = row * sum_.coverage.faults() + column;
      if (cell < sum_.coverage.numbers().size()) sum_.coverage.numbers()[cell] += value;
    } else if (word == "with") {
      words >> row >> column >> value;
      const std::size_t cell = row * sum_.coverage.traits() + column;
      if (cell < sum_.coverage.with().size()) sum_.coverage.with()[cell] += value;
    }
  }

  const Scenario& scenario_;
  const CampaignOptions& options_;
  std::uint64_t next_;  // seed of the world that runs
  std::uint64_t end_;
  std::size_t steps_ = 0;
  CampaignState sum_;
  std::vector<Found> found_;
  Nanoseconds begun_{0};
  std::unique_ptr<Apart> process_;
};

std::string operation_of(const Scenario& scenario, const std::vector<Step>& steps,
                         const WorldResult& result, bool in_the_end) {
  if (in_the_end || result.steps_run == 0 || result.steps_run > steps.size()) return "finish";
  return scenario.operations[steps[result.steps_run - 1].operation].name;
}

/// Makes a failure short and tells it, unless one like it is known.
Result<void> note_failure(const Scenario& scenario, const CampaignOptions& options,
                          const Found& found, CampaignState& state) {
  ++state.worlds_failed;
  const WorldOptions world = world_options(options, found.seed);
  std::vector<Step> steps = draw_steps(scenario, found.seed, options.operations, options.often);
  steps.resize(std::min(steps.size(), found.steps));
  const bool in_the_end = found.steps == options.operations;
  Failure failure;
  failure.seed = found.seed;
  failure.breach = found.breach;
  failure.operation = operation_of(scenario, steps, {{}, found.steps, {}, {}}, in_the_end);
  if (found.breach.law == kNeverAborts) failure.operation = found.breach.story;
  for (Failure& known : state.failures) {
    if (known.breach.law != found.breach.law || known.operation != failure.operation) continue;
    ++known.times;
    return {};
  }
  if (state.failures.size() >= options.failures_max) return {};
  std::optional<Error> stopped;
  const auto still_breaks = [&](const std::vector<Step>& candidate) {
    auto result = run_apart(scenario, world, candidate, options.silence);
    if (!result.ok()) stopped = result.error();
    return result.ok() && result->breach && result->breach->law == found.breach.law;
  };
  steps = shorten(std::move(steps), still_breaks, options.shorten_tries);
  if (stopped) return *stopped;
  PERDURE_TRY(told, tell_world(scenario, world, steps, options.silence));
  PERDURE_TRY(shortest, run_apart(scenario, world, steps, options.silence));
  if (shortest.breach) failure.breach = *shortest.breach;
  failure.keep = keep_words(steps);
  failure.steps = steps.size();
  failure.told = std::move(told);
  state.failures.push_back(std::move(failure));
  return {};
}

bool reached_goal(const CampaignOptions& options, const CampaignState& state) {
  const auto counter = state.counters.find(options.goal_counter);
  return options.goal != 0 && counter != state.counters.end() && counter->second >= options.goal;
}

void add(CampaignState& state, const CampaignState& more) {
  state.worlds_run += more.worlds_run;
  state.steps_run += more.steps_run;
  state.seconds += more.seconds;
  state.coverage += more.coverage;
  for (const auto& [name, value] : more.counters) state.counters[name] += value;
}

/// The pieces that run, and those that have ended before an earlier one did.
class Pieces {
 public:
  Pieces(const Scenario& scenario, const CampaignOptions& options, CampaignState& state)
      : scenario_(scenario),
        options_(options),
        state_(state),
        begun_(Clock::monotonic().now()),
        next_(state.worlds_run) {}

  /// Errors: SystemError.
  Result<void> run() {
    while (true) {
      while (more() && running().size() < std::max<std::size_t>(options_.processes, 1)) {
        PERDURE_TRY_VOID(begin());
      }
      if (pieces_.empty()) return {};
      Apart::read_all(running());
      for (const auto& piece : pieces_) {
        if (!piece->finished()) PERDURE_TRY_VOID(piece->go_on());
      }
      while (!pieces_.empty() && pieces_.front()->finished()) PERDURE_TRY_VOID(take_first());
    }
  }

 private:
  bool more() const {
    if (options_.worlds != 0 && next_ >= options_.worlds) return false;
    if (reached_goal(options_, state_)) return false;
    return options_.time.count() == 0 || Clock::monotonic().now() - begun_ < options_.time;
  }

  Result<void> begin() {
    const std::uint64_t most =
        options_.time.count() != 0 ? kWorldsPerTimedProcess : kWorldsPerProcess;
    const std::uint64_t left = options_.worlds == 0 ? most : options_.worlds - next_;
    const std::uint64_t count = std::min(left, most);
    pieces_.push_back(std::make_unique<Piece>(scenario_, options_, options_.seed + next_, count));
    next_ += count;
    return pieces_.back()->begin();
  }

  std::vector<Apart*> running() const {
    std::vector<Apart*> processes;
    for (const auto& piece : pieces_) {
      if (!piece->finished()) processes.push_back(&piece->process());
    }
    return processes;
  }

  /// In the order of their seeds, so that a campaign can be resumed behind any of them.
  Result<void> take_first() {
    const std::unique_ptr<Piece> piece = std::move(pieces_.front());
    pieces_.pop_front();
    add(state_, piece->sum());
    for (const Found& each : piece->found()) {
      PERDURE_TRY_VOID(note_failure(scenario_, options_, each, state_));
    }
    if (options_.progress) options_.progress(state_);
    if (options_.keep) options_.keep(state_);
    return {};
  }

  const Scenario& scenario_;
  const CampaignOptions& options_;
  CampaignState& state_;
  Nanoseconds begun_;
  std::uint64_t next_;  // world that is in no piece yet
  std::deque<std::unique_ptr<Piece>> pieces_;
};

}  // namespace

bool passed(const CampaignState& state) {
  const bool covered = state.steps_run < kStepsForCoverage || state.coverage.empty_cells() == 0;
  return state.worlds_failed == 0 && covered;
}

Result<void> run_campaign(const Scenario& scenario, const CampaignOptions& options,
                          CampaignState& state) {
  if (state.coverage.operations() == 0) state.coverage = Coverage(scenario);
  return Pieces(scenario, options, state).run();
}

Result<WorldResult> run_apart(const Scenario& scenario, const WorldOptions& options,
                              const std::vector<Step>& steps, std::chrono::seconds silence) {
  WorldResult result;
  const auto work = [&](std::FILE* out) { print_world(out, run_world(scenario, options, steps)); };
  const auto take = [&](const std::string& line) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "steps") words >> result.steps_run;
    if (word != "breach") return;
    result.breach.emplace();
    words >> result.breach->law;
    std::getline(words >> std::ws, result.breach->story);
  };
  PERDURE_TRY(process, Apart::begin(work, take, silence));
  if (const End end = process->wait()) result.breach = *end;
  return result;
}

Result<std::vector<std::string>> tell_world(const Scenario& scenario, const WorldOptions& options,
                                            const std::vector<Step>& steps,
                                            std::chrono::seconds silence) {
  std::vector<std::string> told;
  const auto work = [&](std::FILE* out) {
    WorldOptions telling = options;
    telling.tell = [out](const std::string& line) {
      std::fputs((one_line(line) + "\n").c_str(), out);
      std::fflush(out);
    };
    const WorldResult result = run_world(scenario, telling, steps);
    if (result.breach) {
      telling.tell(fmt::format("BREACH {}: {}", result.breach->law, result.breach->story));
    }
  };
  const auto take = [&](const std::string& line) { told.push_back(line); };
  PERDURE_TRY(process, Apart::begin(work, take, silence));
  if (const End end = process->wait())
    told.push_back(fmt::format("BREACH {}: {}", end->law, end->story));
  return told;
}

std::string repeat_line(const Failure& failure, const CampaignOptions& options) {
  std::string line =
      fmt::format("perdure torture --seed {} --ops {}", failure.seed, options.operations);
  if (!options.world_words.empty()) line += ' ' + options.world_words;
  for (const std::string& fault : options.often) line += " --often " + fault;
  for (const std::string& law : options.laws_left_out) line += " --without " + law;
  return line + fmt::format(" --keep '{}'", failure.keep);
}

}  // namespace perdure::test
