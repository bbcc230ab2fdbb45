// `perdure torture`: whole clusters in a box, under one seed each, with everything going wrong; and
// a judge beside them that knows what was promised. The worlds are testing/torture's.
#include "commands.h"
#include "core/counted.h"
#include "core/text_file.h"
#include "output.h"
#include "testing/temporary_directory.h"
#include "testing/torture/campaign.h"
#include "testing/torture/emulated_log_world.h"
#include "testing/torture/mirror_world.h"
#include "testing/torture/real_log_world.h"
#include "testing/torture/rpc_world.h"
#include "testing/torture/rpmem_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include "core/json.h"
#include "core/try.h"

namespace perdure::app {
namespace {

using JsonValue = nlohmann::ordered_json;
using namespace perdure::test;  // NOLINT: this file speaks of nothing else

constexpr int kFormat = 1;  // docs/torture.schema.json

struct TortureOptions {
  CampaignOptions campaign;
  double hours = 0;
  std::size_t processes = 0;  // 0: as many as there are processors, or one with --real
  std::string resume;
  std::string keep;
  std::string world = "log";
  std::string real;  // empty: emulated worlds; else the transport of real ones
  std::string perdured;
  Format format = Format::Text;
};

JsonValue coverage_json(const Scenario& scenario, const Coverage& coverage) {
  JsonValue json = {{"operations", JsonValue::array()},
                    {"faults", JsonValue::array()},
                    {"ran", JsonValue::array()},
                    {"met", JsonValue::array()}};
  for (const Row& row : scenario.faults) json["faults"].push_back(row.name);
  for (std::size_t row = 0; row < scenario.operations.size(); ++row) {
    json["operations"].push_back(scenario.operations[row].name);
    json["ran"].push_back(coverage.times(row));
    JsonValue cells = JsonValue::array();
    for (std::size_t column = 0; column < coverage.faults(); ++column) {
      cells.push_back(coverage.times(row, column));
    }
    json["met"].push_back(std::move(cells));
  }
  json["traits"] = scenario.traits;
  json["with"] = JsonValue::array();
  for (std::size_t row = 0; row < coverage.rows(); ++row) {
    JsonValue cells = JsonValue::array();
    for (std::size_t trait = 0; trait < coverage.traits(); ++trait) {
      cells.push_back(coverage.times_with(row, trait));
    }
    json["with"].push_back(std::move(cells));
  }
  json["empty_cells"] = coverage.empty_cells();
  return json;
}

JsonValue failure_json(const Failure& failure, const CampaignOptions& options) {
  return {{"law", failure.breach.law},
          {"story", failure.breach.story},
          {"operation", failure.operation},
          {"seed", failure.seed},
          {"worlds", failure.times},
          {"steps", failure.steps},
          {"keep", failure.keep},
          {"repeat", repeat_line(failure, options)},
          {"told", failure.told}};
}

/// What the numbers are of.
std::string label_of(const TortureOptions& options) {
  return options.real.empty() ? "emulated" : "real processes";
}

/// Everything that is known of a campaign: the answer, and what a later one resumes from.
JsonValue campaign_json(const Scenario& scenario, const TortureOptions& options,
                        const CampaignState& state) {
  JsonValue json = {{"format", kFormat},
                    {"label", label_of(options)},
                    {"scenario", scenario.name},
                    {"seed", options.campaign.seed},
                    {"operations", options.campaign.operations},
                    {"often", options.campaign.often},
                    {"without", options.campaign.laws_left_out},
                    {"worlds_run", state.worlds_run},
                    {"worlds_failed", state.worlds_failed},
                    {"steps_run", state.steps_run},
                    {"seconds", state.seconds}};
  json["counters"] = JsonValue::object();
  for (const auto& [name, value] : state.counters) json["counters"][name] = value;
  json["coverage"] = coverage_json(scenario, state.coverage);
  json["failures"] = JsonValue::array();
  for (const Failure& failure : state.failures) {
    json["failures"].push_back(failure_json(failure, options.campaign));
  }
  return json;
}

Coverage coverage_of(const Scenario& scenario, const JsonValue& json) {
  Coverage coverage(scenario);
  for (std::size_t row = 0; row < coverage.operations(); ++row) {
    coverage.runs()[row] = json.at("ran").at(row).get<std::uint64_t>();
    for (std::size_t column = 0; column < coverage.faults(); ++column) {
      coverage.numbers()[row * coverage.faults() + column] =
          json.at("met").at(row).at(column).get<std::uint64_t>();
    }
  }
  for (std::size_t row = 0; row < coverage.rows(); ++row) {
    for (std::size_t trait = 0; trait < coverage.traits(); ++trait) {
      coverage.with()[row * coverage.traits() + trait] =
          json.at("with").at(row).at(trait).get<std::uint64_t>();
    }
  }
  return coverage;
}

CampaignState state_of(const Scenario& scenario, const JsonValue& json) {
  CampaignState state;
  state.worlds_run = json.at("worlds_run").get<std::uint64_t>();
  state.worlds_failed = json.at("worlds_failed").get<std::uint64_t>();
  state.steps_run = json.at("steps_run").get<std::uint64_t>();
  state.seconds = json.at("seconds").get<double>();
  for (const auto& [name, value] : json.at("counters").items())
    state.counters[name] = value.get<std::uint64_t>();
  state.coverage = coverage_of(scenario, json.at("coverage"));
  for (const JsonValue& each : json.at("failures")) {
    Failure failure;
    failure.breach.law = each.at("law").get<std::string>();
    failure.breach.story = each.at("story").get<std::string>();
    failure.operation = each.at("operation").get<std::string>();
    failure.seed = each.at("seed").get<std::uint64_t>();
    failure.times = each.at("worlds").get<std::uint64_t>();
    failure.steps = each.at("steps").get<std::uint64_t>();
    failure.keep = each.at("keep").get<std::string>();
    failure.told = each.at("told").get<std::vector<std::string>>();
    state.failures.push_back(std::move(failure));
  }
  return state;
}

/// What the file says of an earlier piece of this campaign; nothing when there is no file yet.
Result<CampaignState> resumed(const Scenario& scenario, const TortureOptions& options) {
  if (options.resume.empty() || !std::filesystem::exists(options.resume)) return CampaignState{};
  try {
    const JsonValue json = JsonValue::parse(std::ifstream(options.resume));
    const bool same = json.at("format") == kFormat && json.at("scenario") == scenario.name &&
                      json.at("seed") == options.campaign.seed &&
                      json.at("operations") == options.campaign.operations &&
                      json.at("often") == options.campaign.often &&
                      json.at("without") == options.campaign.laws_left_out &&
                      json.at("coverage").at("ran").size() == scenario.operations.size() &&
                      json.at("coverage").value("traits", JsonValue()) == scenario.traits;
    if (!same) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} is of a campaign with another seed, other operations, faults or "
                               "laws, or of another version; name another file",
                               options.resume)};
    }
    return state_of(scenario, json);
  } catch (const nlohmann::json::exception& error) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is not the file of a campaign: {}", options.resume, error.what())};
  }
}

void keep_state(const Scenario& scenario, const TortureOptions& options,
                const CampaignState& state) {
  if (options.resume.empty()) return;
  const auto kept =
      write_file(options.resume, json_text(campaign_json(scenario, options, state)) + '\n');
  if (!kept.ok()) print_warning("the campaign is not kept: " + kept.error().message);
}

std::string coverage_text(const Scenario& scenario, const Coverage& coverage) {
  std::string text = fmt::format("{:<16}{:>9}", "", "ran");
  for (const Row& fault : scenario.faults) text += fmt::format(" {:>16}", fault.name);
  text += '\n';
  for (std::size_t row = 0; row < coverage.operations(); ++row) {
    text += fmt::format("{:<16}{:>9}", scenario.operations[row].name, coverage.times(row));
    for (std::size_t column = 0; column < coverage.faults(); ++column) {
      const std::uint64_t times = coverage.times(row, column);
      text += times == 0 ? fmt::format(" {:>16}", "NEVER") : fmt::format(" {:>16}", times);
    }
    text += '\n';
  }
  return text;
}

std::string traits_text(const Scenario& scenario, const Coverage& coverage) {
  std::string text = fmt::format("{:<16}", "in worlds with");
  for (const std::string& trait : scenario.traits) text += fmt::format(" {:>18}", trait);
  text += '\n';
  for (std::size_t row = 0; row < coverage.rows(); ++row) {
    const bool operation = row < coverage.operations();
    text += fmt::format("{:<16}", operation ? scenario.operations[row].name
                                            : scenario.faults[row - coverage.operations()].name);
    for (std::size_t trait = 0; trait < coverage.traits(); ++trait) {
      const std::uint64_t times = coverage.times_with(row, trait);
      text += times == 0 ? fmt::format(" {:>18}", "NEVER") : fmt::format(" {:>18}", times);
    }
    text += '\n';
  }
  return text;
}

std::string failure_text(const Failure& failure, const CampaignOptions& options) {
  std::string text = fmt::format("\n{} (at {}, in {})\n  {}\n  repeat: {}\n", failure.breach.law,
                                 failure.operation, counted(failure.times, "world"),
                                 failure.breach.story, repeat_line(failure, options));
  for (const std::string& line : failure.told) text += "    " + line + '\n';
  return text;
}

/// Of one process.
double worlds_a_second(const CampaignState& state) {
  return static_cast<double>(state.worlds_run) / std::max(state.seconds, 1e-9);
}

std::string campaign_text(const Scenario& scenario, const TortureOptions& options,
                          const CampaignState& state) {
  std::string text = fmt::format("{}: {} from seed {}, {} each\n\n", label_of(options),
                                 counted(state.worlds_run, "world"), options.campaign.seed,
                                 counted(options.campaign.operations, "operation"));
  text += coverage_text(scenario, state.coverage) + '\n';
  if (!scenario.traits.empty()) text += traits_text(scenario, state.coverage) + '\n';
  for (const auto& [name, value] : state.counters)
    text += fmt::format("{:<20}{:>14}\n", name, value);
  text +=
      fmt::format("{:<20}{:>14}\n{:<20}{:>14.1f}\n{:<20}{:>14.1f}\n", "operations", state.steps_run,
                  "process seconds", state.seconds, "worlds/s and process", worlds_a_second(state));
  for (const Failure& failure : state.failures) {
    text += failure_text(failure, options.campaign);
  }
  text += fmt::format("\n{} of {} broke a law", state.worlds_failed,
                      counted(state.worlds_run, "world"));
  if (state.coverage.empty_cells() != 0) {
    text += fmt::format("; {} cells of the tables are empty", state.coverage.empty_cells());
    if (state.steps_run < kStepsForCoverage) text += " (so short a run is not failed for that)";
  }
  return text + '\n';
}

/// One world, and all that happens in it.
ExitStatus tell_one(const Scenario& scenario, const TortureOptions& options) {
  const auto all = draw_steps(scenario, options.campaign.seed, options.campaign.operations,
                              options.campaign.often);
  const auto kept = keep_steps(all, options.keep);
  if (!kept) {
    return fail({ErrorCode::InvalidArgument,
                 fmt::format("--keep '{}': numbers of steps below {}, with commas", options.keep,
                             options.campaign.operations)});
  }
  WorldOptions world;
  world.seed = options.campaign.seed;
  world.laws_left_out = options.campaign.laws_left_out;
  const auto told = tell_world(scenario, world, *kept, options.campaign.silence);
  if (!told.ok()) return fail(told.error());
  const bool broken = !told->empty() && told->back().starts_with("BREACH");
  if (options.format == Format::Json) {
    print(json_text(JsonValue{{"format", kFormat}, {"broken", broken}, {"told", *told}}, 2) + "\n");
  } else {
    for (const std::string& line : *told) print(line + "\n");
  }
  return broken ? ExitStatus::Failed : ExitStatus::Ok;
}

/// Nothing, or what is wrong with the names of faults.
std::optional<Error> unknown_fault(const Scenario& scenario, const TortureOptions& options) {
  for (const std::string& name : options.campaign.often) {
    if (std::ranges::find(scenario.faults, name, &Row::name) != scenario.faults.end()) continue;
    std::string known;
    for (const Row& fault : scenario.faults) known += (known.empty() ? "" : ", ") + fault.name;
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--often '{}': there are {}", name, known)};
  }
  return std::nullopt;
}

ExitStatus run_scenario(const Scenario& scenario, TortureOptions& options) {
  if (const auto error = unknown_fault(scenario, options)) return fail(*error);
  if (!options.keep.empty()) return tell_one(scenario, options);
  options.campaign.time = std::chrono::seconds(static_cast<std::int64_t>(options.hours * 3600));
  options.campaign.goal_counter = "power_cuts_counted";
  if (options.hours > 0 || options.campaign.goal > 0) options.campaign.worlds = 0;
  options.campaign.processes = options.processes;
  if (options.processes == 0) {
    const unsigned processors = std::max(std::thread::hardware_concurrency(), 1u);
    options.campaign.processes = options.real.empty() ? processors : 1;
  }
  auto state = resumed(scenario, options);
  if (!state.ok()) return fail(state.error());
  StatusLine status;
  options.campaign.progress = [&status](const CampaignState& now) {
    status.show(fmt::format("{}, {:.1f} a second in each process, {} failed",
                            counted(now.worlds_run, "world"), worlds_a_second(now),
                            now.worlds_failed));
  };
  options.campaign.keep = [&](const CampaignState& now) { keep_state(scenario, options, now); };
  const auto run = run_campaign(scenario, options.campaign, *state);
  status.clear();
  if (!run.ok()) return fail(run.error());
  print(options.format == Format::Json
            ? json_text(campaign_json(scenario, options, *state), 2) + "\n"
            : campaign_text(scenario, options, *state));
  return passed(*state) ? ExitStatus::Ok : ExitStatus::Failed;
}

/// The machines of real worlds, whose files are in `directory`.
Result<RealMachines> real_machines(const TortureOptions& options, const std::string& directory) {
  RealMachines machines;
  machines.directory = directory;
  machines.perdured = options.perdured;
  machines.transport = options.real == "shm" ? Transport::Shm : Transport::Tcp;
  if (machines.perdured.empty()) {
    PERDURE_TRY(found, find_perdured());
    machines.perdured = std::move(found);
  } else if (!std::filesystem::exists(machines.perdured)) {
    return Error{ErrorCode::NotFound,
                 fmt::format("--perdured '{}': there is no such program", machines.perdured)};
  }
  return machines;
}

Scenario scenario_named(const std::string& world) {
  if (world == "mirror") return mirror_scenario();
  if (world == "rpmem") return rpmem_scenario();
  return rpc_scenario();
}

ExitStatus run_torture(TortureOptions& options) {
  if (options.world != "log") {
    if (!options.real.empty()) {
      return fail({ErrorCode::InvalidArgument, "--real: there are worlds of the log only"});
    }
    options.campaign.world_words = "--world " + options.world;
    return run_scenario(scenario_named(options.world), options);
  }
  if (options.real.empty()) return run_scenario(log_scenario(), options);
  const auto directory = TemporaryDirectory::make_in_memory();
  if (!directory.ok()) return fail(directory.error());
  const auto machines = real_machines(options, directory->path());
  if (!machines.ok()) return fail(machines.error());
  options.campaign.world_words = "--real " + options.real;
  return run_scenario(real_log_scenario(*machines), options);
}

}  // namespace

void add_torture_command(Command app) {
  const auto options = std::make_shared<TortureOptions>();
  const Command command = app.add_subcommand(
      "torture", "Whole clusters in a box, everything going wrong, and a judge beside them");
  CampaignOptions& campaign = options->campaign;
  command
      .add_option("--seed", campaign.seed, "Of the first world; the next has the next number (1)")
      .option_text("NUMBER");
  command
      .add_option("--world", options->world,
                  "Of a replicated log, mirrored memory, durable RPC, or a program on librpmem: "
                  "log, mirror, rpc, rpmem (log)")
      .option_text("WHICH")
      .is_member({"log", "mirror", "rpc", "rpmem"});
  command.add_option("--worlds", campaign.worlds, "How many, in all pieces together (100)")
      .option_text("NUMBER");
  command.add_option("--ops", campaign.operations, "Operations in each world (500)")
      .option_text("NUMBER")
      .range(1, 1'000'000);
  command.add_option("--hours", options->hours, "Go on for this long, however many worlds that are")
      .option_text("HOURS");
  command
      .add_option("--resume", options->resume,
                  "Keep the campaign in this file, and go on where it says")
      .option_text("FILE");
  command
      .add_option("--cuts", campaign.goal,
                  "Go on until so many power cuts came while an operation was in flight")
      .option_text("NUMBER");
  command
      .add_option("--keep", options->keep,
                  "Run one world, of the sequence only these steps, and tell what happens")
      .option_text("STEPS");
  command.add_option("--without", campaign.laws_left_out, "Do not judge by this law")
      .option_text("LAW");
  command
      .add_option("--real", options->real,
                  "On perdured processes over tcp or shm, which are killed and stopped")
      .option_text("TRANSPORT")
      .is_member({"tcp", "shm"});
  command
      .add_option("--perdured", options->perdured,
                  "The daemon for --real (the one beside this program)")
      .option_text("PATH");
  command
      .add_option("--often", campaign.often,
                  "This fault comes in every world, before every other operation (repeatable)")
      .option_text("FAULT");
  command
      .add_option("--processes", options->processes,
                  "Worlds that run at once (as many as there are processors; with --real: 1)")
      .option_text("NUMBER")
      .range(1, 1024);
  command
      .add_option("--failures", campaign.failures_max, "Shorten and show this many failures (10)")
      .option_text("NUMBER");
  add_format_option(command, options->format);
  add_examples(command,
               "  perdure torture --seed 1 --worlds 1000 --ops 500\n"
               "  perdure torture --seed 7 --ops 500 --keep '3,17!,44'\n"
               "  perdure torture --hours 2 --resume night.json --format json\n"
               "  perdure torture --cuts 100000 --often power-cut --ops 100 --resume cuts.json\n"
               "  perdure torture --world mirror --worlds 200\n"
               "  perdure torture --world rpc --worlds 200\n"
               "  perdure torture --world rpmem --worlds 200\n"
               "  perdure torture --real tcp --worlds 20 --ops 100");
  run_with(command, [options] { return run_torture(*options); });
}

}  // namespace perdure::app
