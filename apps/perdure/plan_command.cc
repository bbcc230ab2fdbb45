// `perdure plan`: which method makes an update durable on a responder, why, and at what cost.
#include "client/connection_costs.h"
#include "commands.h"
#include "core/byte_text.h"
#include "core/json.h"
#include "core/named.h"
#include "core/rpmem_family.h"
#include "output.h"
#include "peer_options.h"
#include "plan/plan.h"
#include "plan/render.h"
#include "plan_plot.h"
#include "plan_search.h"
#include "profile_options.h"
#include "set_questions.h"
#include "sim/method_price.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace perdure::app {
namespace {

using JsonValue = nlohmann::ordered_json;

constexpr std::uint64_t kPlotBytesMax = 64u << 20;

enum class PlanFormat { Text, Json, Sequence, Svg, Plot };

Result<PlanFormat> parse_plan_format(std::string_view word) {
  return find_named<PlanFormat>(
      "format", word, std::to_array<std::string_view>({"text", "json", "sequence", "svg", "plot"}));
}

struct PlanOptions {
  ServerProfile profile;
  plan::Update update;
  Primary primary = Primary::Write;
  bool transport_given = false;
  bool order_given = false;
  bool all = false;
  bool explain = false;
  bool search = false;
  bool set = false;
  std::string hardware;               // a file; empty: what is assumed of the transport
  PeerOptions peers;                  // none: the responder is the one that is described
  plan::CostModel costs;              // of that hardware, or measured
  std::optional<Hardware> priced_on;  // nothing: they are measured
  plan::Source source = plan::Source::Best;
  PlanFormat format = PlanFormat::Text;
};

JsonValue costs_json(const plan::CostModel& costs) {
  return {{"message_round_trip_ns", costs.message_round_trip_ns},
          {"write_round_trip_ns", costs.write_round_trip_ns},
          {"read_round_trip_ns", costs.read_round_trip_ns},
          {"persist_round_trip_ns", costs.persist_round_trip_ns},
          {"extra_post_ns", costs.extra_post_ns},
          {"responder_wake_ns", costs.responder_wake_ns},
          {"one_sided_wake_ns", costs.one_sided_wake_ns},
          {"copy_byte_ns", costs.copy_byte_ns},
          {"flush_ns", costs.flush_ns},
          {"flush_line_ns", costs.flush_line_ns},
          {"sync_ns", costs.sync_ns},
          {"send_flush_ns", costs.send_flush_ns},
          {"wire_byte_ns", costs.wire_byte_ns},
          {"fetch_ns", costs.fetch.fixed_ns},
          {"fetch_byte_ns", costs.fetch.byte_ns}};
}

/// What the simulator takes for the steps, where the sums are of the same hardware; nothing: they
/// were measured.
std::optional<double> simulated_ns(const PlanOptions& options, const Method& method) {
  if (!options.priced_on) return std::nullopt;
  const sim::PriceOptions sizes{static_cast<double>(options.update.bytes),
                                static_cast<double>(options.update.later_bytes)};
  return sim::price(method, options.profile, *options.priced_on, sizes).latency_ns;
}

JsonValue candidate_json(const PlanOptions& options, const plan::Candidate& candidate) {
  const auto simulated = simulated_ns(options, candidate.method);
  return {{"name", candidate.method.name},
          {"rpmem_family", rpmem_family(candidate.method)},
          {"cost_ns", candidate.cost_ns},
          {"simulated_ns", simulated ? JsonValue(*simulated) : JsonValue(nullptr)},
          {"reason", candidate.reason},
          {"uses",
           {{"round_trips", candidate.usage.round_trips},
            {"copied_items", candidate.usage.copied_items},
            {"responder_wakes", candidate.usage.responder_wakes},
            {"receive_buffers", candidate.usage.receive_buffers}}},
          {"method", JsonValue::parse(plan::to_json(options.profile, candidate.method))}};
}

Result<std::string> choice_json(const PlanOptions& options) {
  const plan::CostModel& costs = options.costs;
  const auto found = plan::candidates(options.profile, options.update, costs);
  if (!found.ok()) return found.error();
  const auto changes = plan::crossovers(options.profile, options.update, costs, kPlotBytesMax);
  JsonValue json{{"format", 2},
                 {"server", describe(options.profile)},
                 {"update", to_string(options.update.shape)},
                 {"bytes", options.update.bytes},
                 {"level", to_string(options.update.level)},
                 {"chosen", found->front().method.name},
                 {"label", costs.measured ? "measured" : "simulated"}};
  if (!costs.measured) json["hardware"] = costs.hardware;
  json["costs"] = costs_json(costs);
  json["candidates"] = JsonValue::array();
  for (const plan::Candidate& each : *found) {
    json["candidates"].push_back(candidate_json(options, each));
  }
  json["by_size"] = JsonValue::array();
  if (changes.ok()) {
    for (const plan::Crossover& change : *changes) {
      json["by_size"].push_back({{"from_bytes", change.bytes}, {"name", change.method.name}});
    }
  }
  return json_text(json, 2) + "\n";
}

/// The sum of the chosen method beside its steps on the simulator's clock.
std::string simulated_text(const PlanOptions& options, const plan::Candidate& chosen) {
  const auto simulated = simulated_ns(options, chosen.method);
  if (!simulated) return "";
  return fmt::format("\n{} step by step: {:.2f} us (simulated; its cost above is a sum)\n",
                     chosen.method.name, *simulated / 1e3);
}

Result<std::string> choice_text(const PlanOptions& options) {
  auto text = plan::explain(options.profile, options.update, options.costs);
  if (!text.ok()) return text;
  const auto found = plan::candidates(options.profile, options.update, options.costs);
  if (found.ok()) *text += simulated_text(options, found->front());
  if (!text.ok() || !options.explain) return text;
  const auto plot =
      plan::cost_plot_text(options.profile, options.update, options.costs, kPlotBytesMax);
  if (!plot.ok()) return plot.error();
  return *text + plan::to_text(options.costs) + "\ncost of the cheapest by size:\n" + *plot;
}

/// What the search found; as it looks at orders and not at sizes, a size only says what fits a
/// word.
Result<std::string> render_search(const PlanOptions& options) {
  constexpr std::uint64_t kAtomicBytes = 8;
  plan::SearchOptions search;
  search.shape = options.update.shape;
  search.primary = options.update.primary;
  search.later_small = options.update.later_bytes <= kAtomicBytes;
  return search_text(options.profile, search);
}

/// What one connection would use: for a log, of shape compound with a tail word.
Result<std::string> render_set(const PlanOptions& options) {
  plan::SetOptions asked;
  asked.tail_word = options.update.shape == compound();
  asked.primary = options.update.primary;
  asked.level = options.update.level;
  asked.message_bytes_max = std::min(options.update.message_bytes_max, kUsualMessageBytes);
  if (!asked.tail_word && options.update.shape != singleton()) {
    return Error{ErrorCode::InvalidArgument,
                 "--set is for singleton updates and for compound ones, which end in a word"};
  }
  const auto set = plan::choose_methods(options.profile, asked, options.costs);
  if (!set.ok()) return set.error();
  const SetDrawing drawing = planned_drawing(*set, options.profile);
  switch (options.format) {
    case PlanFormat::Text: return plan::to_text(*set);
    case PlanFormat::Json: return planned_json(*set, options.profile, asked.level);
    case PlanFormat::Sequence: return to_text(drawing.heading, drawing.diagrams);
    case PlanFormat::Svg: return to_svg(drawing.heading, drawing.diagrams);
    case PlanFormat::Plot: break;
  }
  return Error{ErrorCode::InvalidArgument,
               "--set has methods for all sizes and no plot: choose another --format"};
}

Result<std::string> render_choice(const PlanOptions& options) {
  if (options.set) return render_set(options);
  if (options.search) return render_search(options);
  switch (options.format) {
    case PlanFormat::Text: return choice_text(options);
    case PlanFormat::Json: return choice_json(options);
    case PlanFormat::Plot:
      return cost_plot(options.profile, options.update, options.costs, kPlotBytesMax);
    case PlanFormat::Sequence:
    case PlanFormat::Svg: break;
  }
  const auto method = plan::plan(options.profile, options.update, options.costs);
  if (!method.ok()) return method.error();
  const SequenceDiagram drawing = plan::diagram(*method, options.profile);
  return options.format == PlanFormat::Svg ? to_svg(drawing) : to_text(drawing);
}

Result<std::string> render_all(const PlanOptions& options) {
  const Transport transport =
      options.transport_given ? options.profile.transport : Transport::InfiniBand;
  const WriteOrder order = options.order_given ? options.profile.write_order : WriteOrder::Ordered;
  const auto scenarios = plan::all_scenarios(options.source, {transport}, order);
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

/// Puts the peer's profile and what its connection costs in the place of what was described.
Result<void> ask_peer(PlanOptions& options, bool message_bytes_given) {
  const std::string& address = options.peers.peers.front();
  control::TransportChoice choice;
  if (options.transport_given) choice = options.profile.transport;
  client::Dialer dialer;
  const Clock& clock = Clock::monotonic();
  const auto dialed = dialer.dial(address, choice);
  if (!dialed.ok()) return dialed.error();
  const auto measured =
      client::measure_pool(**dialed, options.peers.pool, options.peers.timeout(), clock);
  if (!measured.ok()) return measured.error();
  options.profile = measured->profile;
  options.costs = measured->costs;
  options.priced_on.reset();
  if (!message_bytes_given) options.update.message_bytes_max = measured->message_bytes_max;
  return {};
}

/// What of the command line contradicts the rest, or nothing.
std::optional<Error> contradiction(const Command command, const PlanOptions& options) {
  const auto wrong = [](std::string what) { return Error{ErrorCode::InvalidArgument, what}; };
  if (options.search) {
    for (const char* other : {"--all", "--explain", "--format", "--level", "--peers"}) {
      if (command.count(other) == 0) continue;
      return wrong(
          fmt::format("--search prints a text for one described responder: leave out {}", other));
    }
  }
  if (options.set) {
    for (const char* other : {"--all", "--search", "--explain", "--bytes"}) {
      if (command.count(other) == 0) continue;
      return wrong(fmt::format("--set is for updates of all sizes: leave out {}", other));
    }
  }
  if (options.all && options.profile.qp_type != QpType::Rc) {
    return wrong("the tables' responders are reached over rc: leave out --all or --qp-type");
  }
  if (!options.hardware.empty()) {
    for (const char* other : {"--all", "--search", "--peers"}) {
      if (command.count(other) == 0) continue;
      return wrong(fmt::format("--hardware prices a described responder: leave out {}", other));
    }
  }
  if (options.peers.peers.empty()) return {};
  if (options.peers.peers.size() > 1) return wrong("a plan is for one peer: name one in --peers");
  if (options.all) return wrong("--all is for the tables' responders: leave out --all or --peers");
  for (const char* described :
       {"--domain", "--ddio", "--receive-buffers", "--write-order", "--dma-dirties", "--qp-type",
        "--native-flush", "--persistent-flush", "--atomic-write", "--ordered-persist",
        "--send-flush"}) {
    if (command.count(described) == 0) continue;
    return wrong(fmt::format("the peer says what it is: leave out {} or --peers", described));
  }
  return {};
}

/// With an example, where nothing is durable because the responder was not described.
Error with_domain_example(Error error, const PlanOptions& options, const Command command) {
  const bool described = options.profile.domain != PersistenceDomain::None;
  const bool durable = options.update.level >= Level::Durable;
  const bool asked = !options.peers.peers.empty();
  if (error.code != ErrorCode::Unsupported || described || !durable || asked) return error;
  error.message +=
      fmt::format(": for example `--domain page`{} or `--level visible`",
                  command.count("--domain") == 0 ? " (without --domain it is none)" : "");
  return error;
}

ExitStatus run_plan(PlanOptions& options, const Command command) {
  options.transport_given = command.count("--transport") > 0;
  options.order_given = command.count("--write-order") > 0;
  if (command.count("--primary") > 0) options.update.primary = options.primary;
  if (const auto wrong = contradiction(command, options)) {
    print_error(*wrong);
    return ExitStatus::Usage;
  }
  if (options.hardware.empty()) {
    options.costs = plan::default_costs(options.profile.transport);
    options.priced_on = default_hardware(options.profile.transport);
  } else {
    const auto hardware = read_hardware(options.hardware);
    if (!hardware.ok()) return fail(hardware.error());
    options.costs = plan::usual_costs(*hardware, options.profile.transport);
    options.priced_on = *hardware;
  }
  if (!options.peers.peers.empty()) {
    const auto asked = ask_peer(options, command.count("--message-bytes-max") > 0);
    if (!asked.ok()) return fail(asked.error());
  }
  const auto text = options.all ? render_all(options) : render_choice(options);
  if (!text.ok()) {
    print_error(with_domain_example(text.error(), options, command));
    return text.code() == ErrorCode::InvalidArgument ? ExitStatus::Usage : ExitStatus::Failed;
  }
  print(*text);
  return ExitStatus::Ok;
}

void add_update_options(Command command, PlanOptions& options) {
  const std::string group = "Update";
  plan::Update& update = options.update;
  add_word_option(command, "--shape", update.shape, parse_shape,
                  "Items in order: one; one then another; or epochs (singleton)",
                  "singleton|compound|1+2+1")
      .group(group);
  add_word_option(command, "--bytes", update.bytes, parse_bytes,
                  "Size of each item of the first epoch, for example 64 or 4KiB (64)", "SIZE")
      .group(group);
  add_word_option(command, "--later-bytes", update.later_bytes, parse_bytes,
                  "Size of each later item (8)", "SIZE")
      .group(group);
  add_word_option(command, "--primary", options.primary, parse_primary,
                  "Only methods whose data travels by this operation", "write|write_imm|send")
      .group(group);
  add_word_option(command, "--level", update.level, parse_level,
                  "How far the update must come (durable)", "received|visible|durable|committed")
      .group(group);
  command
      .add_flag("--immediate-names-place", update.immediate_names_place,
                "32 bits of immediate data tell the responder where a WRITE went")
      .group(group);
  command
      .add_flag("--polled", update.polled,
                "The responder polls a mailbox for messages, too (perdured does not)")
      .group(group);
  command
      .add_flag("--responder-posts", update.responder_posts,
                "The responder READs and WRITEs the requester's memory, too (perdured does not)")
      .group(group);
  command
      .add_option("--message-bytes-max", update.message_bytes_max,
                  "What a receive buffer of the responder holds (no limit)")
      .option_text("BYTES")
      .group(group);
}

}  // namespace

void add_plan_command(Command app) {
  const auto options = std::make_shared<PlanOptions>();
  const Command command =
      app.add_subcommand("plan", "The method that makes an update durable on a responder, and why");
  add_profile_options(command, options->profile);
  add_update_options(command, *options);
  const std::string group = "Measured";
  const Option peers = add_peers_option(command, options->peers, Needed::Never);
  const Option pool = add_pool_option(command, options->peers, Needed::Never);
  peers.needs(pool)
      .description("Ask this peer what it is, and time the connection to it")
      .option_text("HOST:PORT")
      .group(group);
  pool.needs(peers).description("The peer's pool").group(group);
  add_timeout_option(command, options->peers, Needed::Never);
  command
      .add_option("--hardware", options->hardware,
                  "Cost of the network and server of this file, and not what is usual (simulated)")
      .option_text("FILE");
  command.add_flag("--explain", options->explain,
                   "Print the costs too, and the cheapest method's cost by size");
  command.add_flag("--search", options->search,
                   "Find all right methods anew; where one round trip is impossible, prove it");
  command.add_flag("--set", options->set,
                   "The methods of one connection: small and large updates, and single places");
  command.add_flag("--all", options->all,
                   "Every responder of the tables, every operation, both shapes");
  add_word_option(command, "--source", options->source, plan::parse_source,
                  "With --all: the tables as published, or what Perdure runs (best)", "paper|best");
  add_word_option(command, "--format", options->format, parse_plan_format,
                  "How to print it; svg is a sequence diagram, plot is cost over size (text)",
                  "text|json|sequence|svg|plot");
  add_examples(command,
               "  perdure plan --domain dmp --ddio on --transport tcp --bytes 64\n"
               "  perdure plan --domain mhp --transport roce --shape compound --format sequence\n"
               "  perdure plan --search --domain dmp --ddio on --transport roce --shape compound\n"
               "  perdure plan --domain dmp --ddio off --transport roce \\\n"
               "      --hardware configs/hardware/edr-back-to-back.toml --explain\n"
               "  perdure plan --explain --peers 127.0.0.1:7470 --pool orders\n"
               "  perdure plan --set --shape compound --domain dmp --transport roce\n"
               "  perdure plan --all --source paper --format json");
  run_with(command, [options, command] { return run_plan(*options, command); });
}

}  // namespace perdure::app
