// Worlds in processes of their own, and what is made of their failures: see campaign.h.
#include "testing/torture/campaign.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <sstream>
#include <system_error>

#include "core/clock.h"
#include "core/try.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kWorldsPerProcess = 50;
/// With a limit of time, which is looked at between processes.
constexpr std::uint64_t kWorldsPerTimedProcess = 5;
constexpr std::string_view kNeverAborts = "never-aborts";
constexpr std::string_view kAlwaysReturns = "always-returns";

Error system_error(const char* what) {
  return {ErrorCode::SystemError,
          fmt::format("{}: {}", what, std::generic_category().message(errno))};
}

/// How a process ended: of itself; or a breach, if not.
using End = std::optional<Breach>;

std::string error_line(int errors) {
  std::array<char, 4096> text{};
  const auto size = ::pread(errors, text.data(), text.size(), 0);
  std::string words(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  for (const char* mark : {"perdure: assertion failed", "ERROR:", "runtime error:"}) {
    const std::size_t found = words.find(mark);
    if (found == std::string::npos) continue;
    return words.substr(found, words.find('\n', found) - found);
  }
  return words.substr(0, words.find('\n'));
}

/// Waits for the child and says how it ended. `hung`: it is to be killed first.
End bury(pid_t child, int errors, bool hung, std::chrono::seconds silence) {
  if (hung) (void)::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (hung) {
    return Breach{std::string(kAlwaysReturns), fmt::format("nothing for {} s", silence.count())};
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return Breach{std::string(kNeverAborts), error_line(errors)};
}

/// Gives whole lines of what a pipe brings to `line`, until its end. False: it was silent too long.
bool read_lines(int from, std::chrono::seconds silence,
                const std::function<void(const std::string&)>& line) {
  std::string rest;
  std::array<char, 65536> buffer;
  while (true) {
    pollfd waited{from, POLLIN, 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(silence.count() * 1000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const auto got = ::read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    rest.append(buffer.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
      line(rest.substr(begin, end - begin));
    }
    rest.erase(0, begin);
  }
}

/// Runs `work` in a process of its own; what it prints comes here line by line.
Result<End> in_process(const std::function<void(std::FILE*)>& work, std::chrono::seconds silence,
                       const std::function<void(const std::string&)>& line) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return system_error("no pipe");
  const int errors = ::memfd_create("torture", 0);
  if (errors < 0) return system_error("no memory for a process's errors");
  const pid_t child = ::fork();
  if (child < 0) return system_error("no process");
  if (child == 0) {
    ::close(ends[0]);
    ::dup2(errors, STDERR_FILENO);
    std::FILE* out = ::fdopen(ends[1], "w");
    work(out);
    std::fflush(out);
    ::_exit(0);
  }
  ::close(ends[1]);
  const bool whole = read_lines(ends[0], silence, line);
  const End end = bury(child, errors, !whole, silence);
  ::close(ends[0]);
  ::close(errors);
  return end;
}

/// A story on one line, so that it can be one.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// What a process says of its worlds, a word and numbers on each line:
//   world SEED            it begins
//   steps N               of the world that has ended
//   breach LAW STORY...
//   counter NAME VALUE, ran OPERATION TIMES, met OPERATION FAULT TIMES, with ROW TRAIT TIMES    of
//   all its
//                         worlds

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

/// One process of a campaign: `count` worlds from `first` on.
class Piece {
 public:
  Piece(const Scenario& scenario, const CampaignOptions& options, CampaignState& state)
      : scenario_(scenario), options_(options), state_(state) {}

  Result<std::vector<Found>> run(std::uint64_t first, std::uint64_t count) {
    const auto work = [&](std::FILE* out) { work_on(out, first, count); };
    PERDURE_TRY(
        end, in_process(work, options_.silence, [this](const std::string& line) { take(line); }));
    if (end) {
      const bool judged =
          std::ranges::find(options_.laws_left_out, end->law) == options_.laws_left_out.end();
      if (judged) found_.push_back({seed_, options_.operations, *end});
      ++state_.worlds_run;
    }
    return std::move(found_);
  }

 private:
  void work_on(std::FILE* out, std::uint64_t first, std::uint64_t count) {
    Coverage coverage(scenario_);
    std::map<std::string, std::uint64_t> counters;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
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

  void take(const std::string& line) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "world") words >> seed_;
    if (word == "steps") {
      words >> steps_;
      ++state_.worlds_run;
      state_.steps_run += steps_;
    }
    if (word == "breach") {
      Found found{seed_, steps_, {}};
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
      state_.counters[name] += value;
    } else if (word == "ran") {
      words >> row >> value;
      if (row < state_.coverage.operations()) state_.coverage.runs()[row] += value;
    } else if (word == "met") {
      words >> row >> column >> value;
      const std::size_t cell = row * state_.coverage.faults() + column;
      if (cell < state_.coverage.numbers().size()) state_.coverage.numbers()[cell] += value;
    } else if (word == "with") {
      words >> row >> column >> value;
      const std::size_t cell = row * state_.coverage.traits() + column;
      if (cell < state_.coverage.with().size()) state_.coverage.with()[cell] += value;
    }
  }

  const Scenario& scenario_;
  const CampaignOptions& options_;
  CampaignState& state_;
  std::uint64_t seed_ = 0;
  std::size_t steps_ = 0;
  std::vector<Found> found_;
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

}  // namespace

bool passed(const CampaignState& state) {
  const bool covered = state.steps_run < kStepsForCoverage || state.coverage.empty_cells() == 0;
  return state.worlds_failed == 0 && covered;
}

Result<void> run_campaign(const Scenario& scenario, const CampaignOptions& options,
                          CampaignState& state) {
  const Clock& clock = Clock::monotonic();
  const Nanoseconds begun = clock.now();
  if (state.coverage.operations() == 0) {
    state.coverage = Coverage(scenario);
  }
  if (reached_goal(options, state)) return {};
  while (options.worlds == 0 || state.worlds_run < options.worlds) {
    const std::uint64_t most =
        options.time.count() != 0 ? kWorldsPerTimedProcess : kWorldsPerProcess;
    const std::uint64_t left = options.worlds == 0 ? most : options.worlds - state.worlds_run;
    Piece piece(scenario, options, state);
    const Nanoseconds piece_begun = clock.now();
    PERDURE_TRY(found, piece.run(options.seed + state.worlds_run, std::min(left, most)));
    state.seconds += std::chrono::duration<double>(clock.now() - piece_begun).count();
    for (const Found& each : found) {
      PERDURE_TRY_VOID(note_failure(scenario, options, each, state));
    }
    if (options.progress) options.progress(state);
    if (options.keep) options.keep(state);
    if (options.time.count() != 0 && clock.now() - begun >= options.time) break;
    if (reached_goal(options, state)) break;
  }
  return {};
}

Result<WorldResult> run_apart(const Scenario& scenario, const WorldOptions& options,
                              const std::vector<Step>& steps, std::chrono::seconds silence) {
  WorldResult result;
  const auto work = [&](std::FILE* out) { print_world(out, run_world(scenario, options, steps)); };
  PERDURE_TRY(end, in_process(work, silence, [&](const std::string& line) {
                std::istringstream words(line);
                std::string word;
                words >> word;
                if (word == "steps") words >> result.steps_run;
                if (word != "breach") return;
                result.breach.emplace();
                words >> result.breach->law;
                std::getline(words >> std::ws, result.breach->story);
              }));
  if (end) result.breach = *end;
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
  PERDURE_TRY(end,
              in_process(work, silence, [&](const std::string& line) { told.push_back(line); }));
  if (end) told.push_back(fmt::format("BREACH {}: {}", end->law, end->story));
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
