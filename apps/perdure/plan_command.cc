// `perdure plan`: which method makes an update durable on a responder, why, and at what cost.
#include "commands.h"
#include "output.h"
#include "plan/plan.h"
#include "plan/render.h"
#include "profile_options.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

namespace perdure::app {
namespace {

using JsonValue = nlohmann::ordered_json;

constexpr std::uint64_t kPlotBytesMax = 64u << 20;

enum class PlanFormat { Text, Json, Sequence, Svg, Plot };

Result<PlanFormat> parse_plan_format(std::string_view word) {
  if (word == "text") return PlanFormat::Text;
  if (word == "json") return PlanFormat::Json;
  if (word == "sequence") return PlanFormat::Sequence;
  if (word == "svg") return PlanFormat::Svg;
  if (word == "plot") return PlanFormat::Plot;
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("format '{}' is not known; use one of: text, json, sequence, svg, plot", word)};
}

struct PlanOptions {
  ServerProfile profile;
  plan::Update update;
  Primary primary = Primary::Write;
  bool primary_given = false;
  bool transport_given = false;
  bool all = false;
  plan::Source source = plan::Source::Best;
  PlanFormat format = PlanFormat::Text;
};

/// One method as docs/plan.schema.json has it.
JsonValue method_json(const ServerProfile& server, const Method& method) {
  const plan::Scenario scenario{server, method.primary, method.shape, method};
  return JsonValue::parse(plan::to_json({scenario}))["methods"][0];
}

JsonValue candidate_json(const ServerProfile& server, const plan::Candidate& candidate) {
  return {{"name", candidate.method.name},
          {"cost_ns", candidate.cost_ns},
          {"reason", candidate.reason},
          {"uses",
           {{"round_trips", candidate.usage.round_trips},
            {"copied_items", candidate.usage.copied_items},
            {"responder_wakes", candidate.usage.responder_wakes},
            {"receive_buffers", candidate.usage.receive_buffers}}},
          {"method", method_json(server, candidate.method)}};
}

Result<std::string> choice_json(const PlanOptions& options, const plan::CostModel& costs) {
  const auto found = plan::candidates(options.profile, options.update, costs);
  if (!found.ok()) return found.error();
  const auto changes = plan::crossovers(options.profile, options.update, costs, kPlotBytesMax);
  JsonValue json{
      {"format", 1},
      {"server", describe(options.profile)},
      {"update", to_string(options.update.shape)},
      {"bytes", options.update.bytes},
      {"level", to_string(options.update.level)},
      {"chosen", found->front().method.name},
      {"costs", "simulated: the planner's cost model, not a measurement of this machine"}};
  json["candidates"] = JsonValue::array();
  for (const plan::Candidate& each : *found) {
    json["candidates"].push_back(candidate_json(options.profile, each));
  }
  json["by_size"] = JsonValue::array();
  if (changes.ok()) {
    for (const plan::Crossover& change : *changes) {
      json["by_size"].push_back({{"from_bytes", change.bytes}, {"name", change.method.name}});
    }
  }
  return json.dump(2) + "\n";
}

Result<std::string> render_choice(const PlanOptions& options) {
  const plan::CostModel costs = plan::default_costs(options.profile.transport);
  switch (options.format) {
    case PlanFormat::Text: return plan::explain(options.profile, options.update, costs);
    case PlanFormat::Json: return choice_json(options, costs);
    case PlanFormat::Plot:
      return plan::cost_plot_svg(options.profile, options.update, costs, kPlotBytesMax);
    case PlanFormat::Sequence:
    case PlanFormat::Svg: break;
  }
  const auto method = plan::plan(options.profile, options.update, costs);
  if (!method.ok()) return method.error();
  const SequenceDiagram drawing = plan::diagram(*method, options.profile);
  return options.format == PlanFormat::Svg ? to_svg(drawing) : to_text(drawing);
}

Result<std::string> render_all(const PlanOptions& options) {
  const Transport transport =
      options.transport_given ? options.profile.transport : Transport::InfiniBand;
  const auto scenarios = plan::all_scenarios(options.source, {transport});
  switch (options.format) {
    case PlanFormat::Text: return plan::to_table(scenarios);
    case PlanFormat::Json: return plan::to_json(scenarios);
    case PlanFormat::Sequence: break;
    case PlanFormat::Svg:
    case PlanFormat::Plot:
      return Error{ErrorCode::InvalidArgument,
                   "one picture shows one method: leave out --all, or choose another --format"};
  }
  std::string text;
  for (const plan::Scenario& scenario : scenarios) {
    text += to_text(plan::diagram(scenario.method, scenario.profile)) + "\n";
  }
  return text;
}

ExitStatus run_plan(PlanOptions& options) {
  if (options.primary_given) options.update.primary = options.primary;
  const auto text = options.all ? render_all(options) : render_choice(options);
  if (!text.ok()) {
    print_error(text.error());
    return text.code() == ErrorCode::InvalidArgument ? ExitStatus::Usage : ExitStatus::Failed;
  }
  print(*text);
  return ExitStatus::Ok;
}

void add_update_options(CLI::App& command, PlanOptions& options) {
  const std::string group = "Update";
  plan::Update& update = options.update;
  add_word_option(command, "--shape", update.shape, parse_shape,
                  "Items in order: one; one then another; or epochs (singleton)",
                  "singleton|compound|1+2+1")
      ->group(group);
  command.add_option("--bytes", update.bytes, "Size of each item of the first epoch (64)")
      ->option_text("BYTES")
      ->group(group);
  command.add_option("--later-bytes", update.later_bytes, "Size of each later item (8)")
      ->option_text("BYTES")
      ->group(group);
  add_word_option(command, "--primary", options.primary, parse_primary,
                  "Only methods whose data travels by this operation", "write|write_imm|send")
      ->group(group);
  add_word_option(command, "--level", update.level, parse_level,
                  "How far the update must come (durable)", "received|visible|durable|committed")
      ->group(group);
  command
      .add_flag("--immediate-names-place", update.immediate_names_place,
                "32 bits of immediate data tell the responder where a WRITE went")
      ->group(group);
  command
      .add_option("--message-bytes-max", update.message_bytes_max,
                  "What a receive buffer of the responder holds (no limit)")
      ->option_text("BYTES")
      ->group(group);
}

}  // namespace

void add_plan_command(CLI::App& app) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan", "The method that makes an update durable on a responder, and why");
  add_profile_options(*command, options->profile);
  add_update_options(*command, *options);
  command->add_flag("--all", options->all,
                    "Every responder of the tables, every operation, both shapes");
  add_word_option(*command, "--source", options->source, plan::parse_source,
                  "With --all: the tables as published, or what Perdure runs (best)", "paper|best");
  add_word_option(*command, "--format", options->format, parse_plan_format,
                  "How to print it; svg is a sequence diagram, plot is cost over size (text)",
                  "text|json|sequence|svg|plot");
  add_examples(*command,
               "  perdure plan --domain dmp --ddio on --transport tcp --bytes 64\n"
               "  perdure plan --domain mhp --transport roce --shape compound --format sequence\n"
               "  perdure plan --all --source paper --format json");
  run_with(*command, [options, command] {
    options->primary_given = command->count("--primary") > 0;
    options->transport_given = command->count("--transport") > 0;
    return run_plan(*options);
  });
}

}  // namespace perdure::app
