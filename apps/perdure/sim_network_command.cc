// `perdure sim network`: clients make transactions durable in the memory of another machine, epoch
// by epoch, or with the order kept by the server (BSP; BROI paper, sections III and V).
#include "core/counted.h"
#include "core/json.h"
#include "core/named.h"
#include "core/try.h"
#include "output.h"
#include "profile_options.h"
#include "report/charts.h"
#include "sim_commands.h"
#include "sim_files.h"
#include "sim_network_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;
using sim::NetworkResult;
using sim::Strategy;

enum class NetworkFormat { Text, Json, Plot };

struct NetworkCommandOptions {
  NetworkFiles files;
  memsys::Ordering order = memsys::Ordering::Broi;
  memsys::PersistPoint persist_point = memsys::PersistPoint::Array;
  std::vector<Strategy> strategies{Strategy::Sync, Strategy::Bsp};
  sim::NetworkOptions run;
  double compute_us = 0;
  double writes_percent = 100;
  double ack_timeout_us = 100;
  Ddio ddio = Ddio::On;
  NetworkFormat output = NetworkFormat::Text;
};

struct NetworkRow {
  Strategy strategy = Strategy::Sync;
  NetworkResult result;
  std::optional<sim::Time> form;  // of a writing transaction, if nothing waits for anything else
};

Result<std::vector<Strategy>> parse_strategies(std::string_view word) {
  using enum Strategy;
  if (word == "both") return std::vector<Strategy>{Sync, Bsp};
  if (word == "all") return std::vector<Strategy>{Sync, Bsp, Read, Flush, Message};
  for (const Strategy each : {Sync, Bsp, Read, Flush, Message, TransportAck}) {
    if (word == to_string(each)) return std::vector<Strategy>{each};
  }
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("strategy '{}' is not known; use one of: sync, bsp, read, flush, message, "
                  "both, all, or the known unsafe transport-ack",
                  word)};
}

/// Why a strategy is not simulated with these options; empty: it is.
std::string_view impossible(Strategy strategy, const NetworkCommandOptions& options) {
  const bool banks = !options.files.device.empty() || !options.files.processor.empty();
  const bool accepted = !banks || options.persist_point == memsys::PersistPoint::Accept;
  if (strategy == Strategy::Sync || strategy == Strategy::Bsp ||
      strategy == Strategy::TransportAck) {
    return "";
  }
  if (options.run.lost_ack_one_in > 0) return "it has no persist ACKs that could be lost";
  if (strategy == Strategy::Read && (options.ddio == Ddio::On || !accepted)) {
    return "a READ makes nothing persistent that the cache answers, and says nothing of what is "
           "behind the memory controller; use it with --ddio off, and with --persist-point accept "
           "where there are banks";
  }
  if (strategy == Strategy::Message && banks) {
    return "a message's epochs are written by the server's CPU, and the banks here are simulated "
           "behind the RNIC's persist buffer; use it without --device and --processor";
  }
  return "";
}

struct LeftOut {
  Strategy strategy = Strategy::Sync;
  std::string_view why;
};

/// Of several strategies those that are not simulated, which it takes out.
std::vector<LeftOut> leave_out(NetworkCommandOptions& options) {
  std::vector<LeftOut> left_out;
  for (const Strategy each : options.strategies) {
    const std::string_view why = impossible(each, options);
    if (!why.empty()) left_out.push_back({each, why});
  }
  for (const LeftOut& each : left_out) std::erase(options.strategies, each.strategy);
  return left_out;
}

Result<memsys::Ordering> parse_remote_order(std::string_view word) {
  PERDURE_TRY(order, memsys::parse_ordering(word));
  if (memsys::is_remote_ordering(order)) return order;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("order '{}' is about cores; of remote writes it is one of: epoch, "
                           "thread, broi",
                           word)};
}

Result<NetworkFormat> parse_network_format(std::string_view word) {
  return find_named<NetworkFormat>("format", word,
                                   std::to_array<std::string_view>({"text", "json", "plot"}));
}

double us(sim::Time ps) { return static_cast<double>(ps) / 1e6; }

sim::NetworkOptions run_of(const NetworkCommandOptions& options) {
  sim::NetworkOptions run = options.run;
  run.shape.compute = sim::picoseconds(options.compute_us * 1e3);
  run.shape.writes_per_mille =
      static_cast<std::uint64_t>(std::llround(options.writes_percent * 10));
  run.ack_timeout = sim::picoseconds(options.ack_timeout_us * 1e3);
  run.ddio = options.ddio == Ddio::On;
  return run;
}

Result<std::vector<NetworkRow>> simulate_all(const NetworkSetup& setup,
                                             const NetworkCommandOptions& options,
                                             sim::NetworkOptions run) {
  std::vector<NetworkRow> rows;
  StatusLine status;
  for (const Strategy strategy : options.strategies) {
    run.strategy = strategy;
    run.progress = [&](std::uint64_t begun) {
      status.show(fmt::format("{}, {} bytes: {} %", to_string(strategy), run.shape.epoch_bytes,
                              100 * begun / run.transactions));
    };
    PERDURE_TRY(result, simulate_network(setup, run));
    NetworkRow& row = rows.emplace_back();
    row.strategy = strategy;
    row.result = std::move(result);
    const bool alone = run.clients == 1 && !run.client_persists && run.lost_ack_one_in == 0;
    const bool acks = strategy == Strategy::Sync || strategy == Strategy::Bsp;
    if (!alone || setup.device || !acks) continue;
    const auto parts = sim::epoch_parts(setup.hardware.network, run.shape.epoch_bytes, run.ddio);
    // A station that is slower than a round trip is busy still when the next transaction comes.
    if (parts.spacing() > parts.round_trip()) continue;
    row.form = strategy == Strategy::Bsp ? bsp_form(parts, run.shape.epochs)
                                         : sync_form(parts, run.shape.epochs);
  }
  return rows;
}

/// Sync's time over BSP's, if both ran: they come first then.
std::optional<double> gain_of(const std::vector<NetworkRow>& rows) {
  if (rows.size() < 2 || rows[0].result.elapsed == 0) return std::nullopt;
  return rows[1].result.transactions_per_us() / rows[0].result.transactions_per_us();
}

/// Whether all that a transaction waits for is the network and the server's memory, one epoch at a
/// time.
bool has_share(Strategy strategy, const sim::NetworkOptions& run) {
  return strategy == Strategy::Sync && !run.client_persists && run.lost_ack_one_in == 0;
}

ordered_json json_of(const NetworkRow& row, const sim::NetworkOptions& run) {
  const NetworkResult& r = row.result;
  const auto busy = [&](sim::Time time) {
    return r.elapsed == 0 ? 0.0 : static_cast<double>(time) / static_cast<double>(r.elapsed);
  };
  ordered_json json{{"strategy", to_string(row.strategy)},
                    {"transactions", r.transactions},
                    {"writing_transactions", r.writing},
                    {"epochs", r.epochs},
                    {"bytes", r.bytes},
                    {"aborted", r.aborted},
                    {"round_trips", r.round_trips},
                    {"events", r.events},
                    {"elapsed_us", us(r.elapsed)},
                    {"mops", r.transactions_per_us()},
                    {"persist_us",
                     {{"mean", r.persist.mean() / 1e6},
                      {"p50", us(r.persist.quantile(0.5))},
                      {"p99", us(r.persist.quantile(0.99))},
                      {"max", us(r.persist.max())}}},
                    {"busy",
                     {{"client_pcie", busy(r.busy.client_pcie)},
                      {"link", busy(r.busy.link)},
                      {"server_pcie", busy(r.busy.server_pcie)},
                      {"link_back", busy(r.busy.link_back)},
                      {"server_cpus", busy(r.busy.server_cpu) / run.server_cpus}}}};
  if (has_share(row.strategy, run)) json["network_share"] = r.network_share();
  if (row.form) json["formula_us"] = us(*row.form);
  return json;
}

std::string json_of(const std::vector<NetworkRow>& rows, const std::vector<LeftOut>& left_out,
                    const NetworkSetup& setup, const sim::NetworkOptions& run) {
  ordered_json others = ordered_json::array();
  for (const LeftOut& each : left_out) {
    others.push_back({{"strategy", to_string(each.strategy)}, {"why", each.why}});
  }
  ordered_json runs = ordered_json::array();
  for (const NetworkRow& row : rows) runs.push_back(json_of(row, run));
  ordered_json document{{"format", 1},
                        {"label", "simulated"},
                        {"hardware", setup.hardware.network.name},
                        {"memory", describe_memory(setup)},
                        {"clients", run.clients},
                        {"server_cpus", run.server_cpus},
                        {"epochs", run.shape.epochs},
                        {"epoch_bytes", run.shape.epoch_bytes},
                        {"compute_us", us(run.shape.compute)},
                        {"writes_percent", static_cast<double>(run.shape.writes_per_mille) / 10},
                        {"ddio", run.ddio},
                        {"client_persists", run.client_persists},
                        {"lost_ack_one_in", run.lost_ack_one_in},
                        {"ack_timeout_us", us(run.ack_timeout)},
                        {"seed", run.seed},
                        {"runs", std::move(runs)},
                        {"left_out", std::move(others)}};
  if (const auto gain = gain_of(rows)) document["bsp_over_sync"] = *gain;
  return json_text(document, 2) + "\n";
}

std::string text_of(const std::vector<NetworkRow>& rows, const NetworkSetup& setup,
                    const sim::NetworkOptions& run) {
  std::string text = fmt::format(
      "simulated: {}; memory: {}\n"
      "  {}, transactions of {} of {} bytes; {:.1f} % of them write; {:.2f} us of compute\n"
      "  strategy          per us   us to persist: mean       p50       p99   of it    round\n"
      "                                                                    formula    trips\n",
      setup.hardware.network.name, describe_memory(setup), counted(run.clients, "client"),
      counted(run.shape.epochs, "epoch"), run.shape.epoch_bytes,
      static_cast<double>(run.shape.writes_per_mille) / 10, us(run.shape.compute));
  for (const NetworkRow& row : rows) {
    const NetworkResult& r = row.result;
    text += fmt::format("  {:<13} {:>10.4f} {:>21.3f} {:>9.3f} {:>9.3f} {:>9} {:>7}\n",
                        to_string(row.strategy), r.transactions_per_us(), r.persist.mean() / 1e6,
                        us(r.persist.quantile(0.5)), us(r.persist.quantile(0.99)),
                        row.form ? fmt::format("{:.3f}", us(*row.form)) : "-", r.round_trips);
    if (r.aborted > 0) {
      text += fmt::format("    {}: no persist ACK within {:.3f} us, and all of it again\n",
                          counted(r.aborted, "abort"), us(run.ack_timeout));
    }
  }
  for (const NetworkRow& row : rows) {
    if (!has_share(row.strategy, run)) continue;
    text += fmt::format("  of sync's time to persist the network takes {:.1f} %\n",
                        100 * row.result.network_share());
  }
  const auto gain = gain_of(rows);
  if (gain) text += fmt::format("  bsp over sync: {:.2f} x\n", *gain);
  return text;
}

/// The time to persist a transaction, over the size of its epochs.
Result<std::string> plot_of(const NetworkSetup& setup, const NetworkCommandOptions& options,
                            sim::NetworkOptions run) {
  report::SizeChart chart;
  chart.title = fmt::format("simulated: time to persist a transaction of {}; {}; memory: {}",
                            counted(run.shape.epochs, "epoch"), setup.hardware.network.name,
                            describe_memory(setup));
  chart.unit = "us";
  for (const Strategy strategy : options.strategies) {
    chart.series.push_back({std::string(to_string(strategy)), {}});
  }
  for (std::uint64_t bytes = 64; bytes <= 16384; bytes *= 2) {
    run.shape.epoch_bytes = bytes;
    PERDURE_TRY(rows, simulate_all(setup, options, run));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      chart.series[i].points.emplace_back(static_cast<double>(bytes),
                                          rows[i].result.persist.mean() / 1e6);
    }
  }
  return report::to_svg_file(chart);
}

/// What the command line says, and what can not be.
Result<void> check_command_line(const NetworkCommandOptions& options, const Command& command) {
  if (options.run.lost_ack_one_in == 1) {
    return Error{
        ErrorCode::InvalidArgument,
        "--lost-ack-one-in 1: no transaction would ever get its persist ACK; use 2 or more"};
  }
  if (options.run.lost_ack_one_in == 0) {
    PERDURE_TRY_VOID(refuse_given(command, {"--ack-timeout-us"},
                                  "is of lost persist ACKs: use it with --lost-ack-one-in"));
  }
  const double per_mille = options.writes_percent * 10;
  if (std::abs(per_mille - std::round(per_mille)) > 1e-6) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--writes-percent {}: tenths of a percent are the finest",
                             options.writes_percent)};
  }
  // 2^64 picoseconds are half a year.
  const double compute_us = options.compute_us * static_cast<double>(options.run.transactions);
  if (compute_us > 1e13) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} transactions with {} us of compute each take more time than can "
                             "be simulated, 1e13 us: ask for fewer or less",
                             options.run.transactions, options.compute_us)};
  }
  if (options.strategies.front() == Strategy::TransportAck && options.writes_percent < 100) {
    return Error{ErrorCode::InvalidArgument,
                 "--strategy transport-ack is known unsafe, and runs to show that: all "
                 "transactions have to write"};
  }
  const auto waits_for = [&](Strategy strategy) {
    return std::count(options.strategies.begin(), options.strategies.end(), strategy) > 0;
  };
  if (!waits_for(Strategy::Message)) {
    PERDURE_TRY_VOID(refuse_given(command, {"--server-cpus"},
                                  "is of the CPUs that handle messages: use it with --strategy "
                                  "message or all"));
  }
  if (options.output == NetworkFormat::Plot) {
    PERDURE_TRY_VOID(refuse_given(command, {"--epoch-bytes"},
                                  "is what --format plot varies: it draws 64 to 16384 bytes"));
  }
  if (options.strategies.size() == 1) {
    const Strategy only = options.strategies.front();
    const std::string_view why = impossible(only, options);
    if (!why.empty()) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("--strategy {}: {}", to_string(only), why)};
    }
  }
  if (!options.files.device.empty() || !options.files.processor.empty()) return {};
  return refuse_given(command, {"--order", "--persist-point"},
                      "is of the server's banks: use it with --device or --processor");
}

ExitStatus run_sim_network(NetworkCommandOptions options) {
  const bool banks = !options.files.device.empty() || !options.files.processor.empty();
  const std::vector<LeftOut> left_out = leave_out(options);
  for (const LeftOut& each : left_out) {
    print_warning(fmt::format("{} is left out: {}", to_string(each.strategy), each.why));
  }
  auto setup =
      banks ? read_network_setup(options.files) : read_network_without_banks(options.files);
  if (!setup.ok()) {
    print_error(setup.error());
    return ExitStatus::Failed;
  }
  setup->order = options.order;
  setup->persist_point = options.persist_point;
  const sim::NetworkOptions run = run_of(options);
  if (options.output == NetworkFormat::Plot) {
    const auto plot = plot_of(*setup, options, run);
    if (plot.ok()) {
      print(*plot);
      return ExitStatus::Ok;
    }
    print_error(plot.error());
    return ExitStatus::Failed;
  }
  const auto rows = simulate_all(*setup, options, run);
  if (!rows.ok()) {
    print_error(rows.error());
    return ExitStatus::Failed;
  }
  print(options.output == NetworkFormat::Json ? json_of(*rows, left_out, *setup, run)
                                              : text_of(*rows, *setup, run));
  return ExitStatus::Ok;
}

void add_load_options(Command command, NetworkCommandOptions& options) {
  using Limit = std::uint64_t;
  sim::NetworkOptions& run = options.run;
  command.add_option("--epochs", run.shape.epochs, "Of a transaction")
      .range(Limit{1}, Limit{4096})
      .capture_default();
  add_size_option(command, "--epoch-bytes", run.shape.epoch_bytes, "Of an epoch", 1,
                  Limit{1} << 20);
  command.add_option("--clients", run.clients, "Of one machine, with a CPU and a connection each")
      .range(1, 256)
      .capture_default();
  command
      .add_option("--server-cpus", run.server_cpus,
                  "That handle the messages of --strategy message")
      .range(1, 256)
      .capture_default();
  command.add_option("--transactions", run.transactions, "Of all clients")
      .range(Limit{1}, Limit{100'000'000})
      .capture_default();
  command.add_option("--compute-us", options.compute_us, "Of the client, before its epochs (0)")
      .range(0.0, 1e6)
      .option_text("N");
  command
      .add_option("--writes-percent", options.writes_percent,
                  "Of transactions that write; the others ask nothing of the network (100)")
      .range(0.0, 100.0)
      .option_text("N");
  command.add_flag(
      "--client-persists", run.client_persists,
      "The client has persistent memory too, and persists each epoch there while it is "
      "on its way, before it posts the next one");
  command
      .add_option("--lost-ack-one-in", run.lost_ack_one_in,
                  "Of so many persist ACKs that are waited for, one is lost (0: none)")
      .range(Limit{0}, Limit{1'000'000'000})
      .option_text("N");
  command
      .add_option("--ack-timeout-us", options.ack_timeout_us,
                  "Until a transaction without its ACK is aborted and done again (100)")
      .range(0.001, 1e6)
      .option_text("N");
  command.add_option("--seed", run.seed, "Of what is written and lost")
      .whole_number()
      .capture_default();
}

}  // namespace

void add_sim_network_command(Command sim) {
  const auto options = std::make_shared<NetworkCommandOptions>();
  const Command command = sim.add_subcommand(
      "network", "Transactions made durable in another machine's memory, under load");
  command
      .add_option("--hardware", options->files.hardware,
                  "Network and server, TOML (edr-back-to-back)")
      .option_text("FILE")
      .each(check_file_name);
  command
      .add_option("--device", options->files.device,
                  "The server's memory device, TOML (no banks: each epoch takes medium_write)")
      .option_text("FILE")
      .each(check_file_name);
  command
      .add_option("--processor", options->files.processor, "Its persist buffers, TOML (four-cores)")
      .option_text("FILE")
      .each(check_file_name);
  add_word_option(command, "--strategy", options->strategies, parse_strategies,
                  "What a client waits for: persist ACKs (sync, bsp; both: the default), a READ or "
                  "native FLUSH behind each epoch, a message's answer; all: each that holds on the "
                  "server; transport-ack is known unsafe, and refused",
                  "both|sync|bsp|read|flush|message|all|transport-ack");
  add_word_option(command, "--order", options->order, parse_remote_order,
                  "How the server keeps epochs apart (broi)", "epoch|thread|broi");
  add_word_option(command, "--persist-point", options->persist_point, memsys::parse_persist_point,
                  "When a write counts as persisted (array)", "accept|bus|array");
  add_word_option(command, "--ddio", options->ddio, parse_ddio,
                  "Whether the RNIC writes into the cache (on)", "on|off");
  add_load_options(command, *options);
  add_word_option(command, "--format", options->output, parse_network_format,
                  "How to print it; plot is time over the size of epochs, SVG (text)",
                  "text|json|plot");
  add_examples(
      command,
      "  perdure sim network\n"
      "  perdure sim network --strategy all --ddio off --clients 64 --server-cpus 2\n"
      "  perdure sim network --hardware configs/hardware/edr-back-to-back.toml \\\n"
      "      --device configs/hardware/nvm-server.toml --processor "
      "configs/hardware/four-cores.toml \\\n"
      "      --clients 4 --epochs 8 --epoch-bytes 128 --persist-point bus --format json\n"
      "docs/simulator.md describes the files. Exit status: 0 simulated, 1 an input is wrong or the "
      "order of persistence was broken, 2 wrong command line.");
  run_with(command, [options, command] {
    const auto right = check_command_line(*options, command);
    if (right.ok()) return run_sim_network(*options);
    print_error(right.error());
    return ExitStatus::Usage;
  });
}

}  // namespace perdure::app
