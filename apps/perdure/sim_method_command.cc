// `perdure sim method`: what a method of persistence takes on hardware that is described in a file.
// The steps that run are the ones that the checker proves.
#include "check/check.h"
#include "core/json.h"
#include "method_file.h"
#include "method_library.h"
#include "output.h"
#include "plan/render.h"
#include "profile_options.h"
#include "sim/method_price.h"
#include "sim_commands.h"
#include "sim_files.h"

#include <fmt/format.h>

#include <memory>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kStatesMax = 1'000'000;  // a method of the tables has some hundreds

struct MethodPriceOptions {
  std::string hardware;  // a file; empty: what is assumed of the transport
  std::string method;
  std::string file;
  bool all = false;
  ServerProfile profile;
  bool profile_given = false;
  std::optional<UpdateShape> shape;
  UpdateShape shape_word;
  sim::PriceOptions price;
  std::uint64_t item_bytes = 64;
  Format output = Format::Text;
};

struct Priced {
  Method method;
  ServerProfile profile;
  sim::Price price;
  check::Report proof;  // whether what is priced is durable at all
};

/// Of `options.file`, each on the responder that it is meant for, or on the one that is described.
Result<std::vector<Priced>> methods_of_file(const MethodPriceOptions& options) {
  auto file = read_methods(options.file);
  if (!file.ok()) return file.error();
  std::vector<Priced> priced;
  for (FileMethod& each : file->methods) {
    const bool ours = options.profile_given || !each.server;
    priced.push_back({std::move(each.method), ours ? options.profile : *each.server, {}, {}});
  }
  return priced;
}

Result<std::vector<Priced>> methods_to_price(const MethodPriceOptions& options) {
  if (!options.file.empty()) return methods_of_file(options);
  std::vector<Priced> priced;
  if (options.all) {
    const std::vector<Transport> transports{options.profile.transport};
    for (auto& each : plan::all_scenarios(plan::Source::Paper, transports)) {
      priced.push_back({std::move(each.method), each.profile, {}, {}});
    }
    return priced;
  }
  auto method = find_method(options.method, options.profile, options.shape);
  if (!method.ok()) return method.error();
  priced.push_back({std::move(method).value(), options.profile, {}, {}});
  return priced;
}

/// The file's; else what is assumed of the methods' transport.
Result<Hardware> hardware_for(const std::vector<Priced>& priced,
                              const MethodPriceOptions& options) {
  if (!options.hardware.empty()) return read_hardware(options.hardware);
  if (priced.empty()) return default_hardware(options.profile.transport);
  const Transport transport = priced.front().profile.transport;
  for (const Priced& each : priced) {
    if (each.profile.transport == transport) continue;
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("{}: methods over {} and over {}: name their network with --hardware",
                    options.file, to_string(transport), to_string(each.profile.transport))};
  }
  return default_hardware(transport);
}

ordered_json json_of(const std::vector<Priced>& priced, const Hardware& hardware) {
  ordered_json methods = ordered_json::array();
  for (const Priced& each : priced) {
    ordered_json events = ordered_json::array();
    for (const sim::PricedEvent& event : each.price.events) {
      ordered_json one{{"at_ns", event.at_ns}, {"what", event.what}};
      events.push_back(std::move(one));
    }
    ordered_json one{{"name", each.method.name},
                     {"update", to_string(each.method.shape)},
                     {"server", describe(each.profile)},
                     {"durable", check::to_string(each.proof.verdict)},
                     {"latency_ns", each.price.latency_ns},
                     {"responder_ns", each.price.responder_ns},
                     {"round_trips", round_trips(each.method)},
                     {"events", std::move(events)}};
    methods.push_back(std::move(one));
  }
  return {{"format", 1},
          {"label", "simulated"},
          {"hardware", hardware.network.name},
          {"methods", std::move(methods)}};
}

std::string text_of(const std::vector<Priced>& priced, const Hardware& hardware) {
  std::string text = fmt::format(
      "simulated: one update on an idle connection, {}\n"
      "   latency  responder  round\n"
      "        us     CPU us  trips\n",
      hardware.network.name);
  for (const Priced& each : priced) {
    text +=
        fmt::format("  {:>8.2f}   {:>8.2f}  {:>5}  {} ({}) on {}\n", each.price.latency_ns / 1e3,
                    each.price.responder_ns / 1e3, round_trips(each.method), each.method.name,
                    to_string(each.method.shape), describe(each.profile));
    if (each.proof.holds()) continue;
    text += fmt::format("      not known to be durable there ({}): `perdure check` says how\n",
                        check::to_string(each.proof.verdict));
  }
  if (priced.size() != 1) return text;
  for (const sim::PricedEvent& event : priced[0].price.events) {
    text += fmt::format("  {:>8.0f} ns  {}\n", event.at_ns, event.what);
  }
  return text;
}

ExitStatus run_sim_method(const MethodPriceOptions& options) {
  auto priced = methods_to_price(options);
  if (!priced.ok()) {
    print_error(priced.error());
    // A name that no method has is a word of the command line.
    return options.method.empty() ? ExitStatus::Failed : ExitStatus::Usage;
  }
  const auto hardware = hardware_for(*priced, options);
  if (!hardware.ok()) return fail(hardware.error());
  check::CheckOptions bounds;
  bounds.states_max = kStatesMax;
  report::ProgressBar bar(priced->size());
  std::uint64_t done = 0;
  for (Priced& each : *priced) {
    bar.show(done++, each.method.name);
    each.price = sim::price(each.method, each.profile, *hardware, options.price);
    each.proof = check::check(each.method, each.profile, bounds);
  }
  bar.clear();
  if (options.output == Format::Json) {
    print(json_text(json_of(*priced, *hardware), 2) + "\n");
  } else {
    print(text_of(*priced, *hardware));
  }
  return ExitStatus::Ok;
}

}  // namespace

void add_sim_method_command(Command sim) {
  const auto options = std::make_shared<MethodPriceOptions>();
  const Command command =
      sim.add_subcommand("method", "What a method of persistence takes, step by step");
  command
      .add_option("--hardware", options->hardware,
                  "Network and server, TOML (what is assumed of the transport)")
      .option_text("FILE")
      .each(check_file_name);
  const Command what = command.add_choice("What to price");
  what.add_option("--method", options->method, "A method by name: `perdure check --list`")
      .option_text("NAME");
  what.add_option("--file", options->file,
                  "Methods in JSON, as `perdure plan` prints them; - is standard input")
      .option_text("FILE")
      .each(check_input_name);
  what.add_flag("--all", options->all, "All methods of the tables, on their responders");
  add_profile_options(command, options->profile);
  add_word_option(command, "--shape", options->shape_word, parse_shape,
                  "The update it is for, if several have the name", "singleton|compound|1+2+1");
  add_size_option(command, "--bytes", options->item_bytes, "Of an item of the first epoch", 1,
                  1'000'000'000);
  add_format_option(command, options->output);
  add_examples(command,
               "  perdure sim method --hardware configs/hardware/edr-back-to-back.toml \\\n"
               "      --method write-flush --domain dmp --ddio off --transport infiniband\n"
               "  perdure sim method --hardware configs/hardware/hdr100-one-switch.toml --all "
               "--transport roce\n"
               "  perdure plan --all --format json | perdure sim method --file -\n"
               "A flush costs the medium once, whatever its size: large updates are dearer than "
               "their price.\n"
               "Exit status: 0 priced, 1 an input is wrong, 2 wrong command line.");
  run_with(command, [options, command] {
    if (command.count("--shape") > 0) options->shape = options->shape_word;
    options->profile_given = describes_responder(command);
    options->price.item_bytes = static_cast<double>(options->item_bytes);
    return run_sim_method(*options);
  });
}

}  // namespace perdure::app
