// `perdure sim server`: programs on a simulated processor with persistent memory, under several
// orders of persistence side by side (BROI paper, figures 9 to 11).
#include "core/counted.h"
#include "core/json.h"
#include "core/try.h"
#include "output.h"
#include "sim_commands.h"
#include "sim_files.h"
#include "sim_server_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

namespace perdure::app {
namespace {

using memsys::Ordering;
using memsys::ServerResult;
using nlohmann::ordered_json;
using workload::StructureKind;

struct ServerCommandOptions : ServerRunOptions {
  Format output = Format::Text;
};

Result<std::vector<StructureKind>> parse_workloads(std::string_view word) {
  if (word == "all")
    return std::vector<StructureKind>{kServerWorkloads.begin(), kServerWorkloads.end()};
  PERDURE_TRY(kind, workload::parse_structure(word));
  return std::vector<StructureKind>{kind};
}

Result<std::vector<Ordering>> parse_orders(std::string_view word) {
  if (word == "all") return std::vector<Ordering>{kServerOrders.begin(), kServerOrders.end()};
  PERDURE_TRY(order, memsys::parse_ordering(word));
  return std::vector<Ordering>{order};
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// --- output ------------------------------------------------------------------------------------

ordered_json json_of(const ServerRow& row) {
  const ServerResult& r = row.result;
  const auto us = [](memsys::Time ps) { return static_cast<double>(ps) / 1e6; };
  ordered_json document{
      {"workload", workload::to_string(row.workload)},
      {"order", memsys::to_string(row.order)},
      {"transactions", r.transactions},
      {"elapsed_us", us(r.elapsed_ps)},
      {"persisted_us", us(r.persisted_ps)},
      {"mops", r.transactions_per_us()},
      {"bus_gb_per_s", r.bus_gb_per_s()},
      {"instructions", r.instructions},
      {"loads", r.loads},
      {"persists", r.persists},
      {"coalesced", r.coalesced},
      {"epochs", r.epochs},
      {"singleton_epochs", r.singletons},
      {"dependencies", {{"direct", r.direct}, {"chained", r.chained}}},
      {"accesses",
       {{"l1", r.from_l1}, {"l2", r.from_l2}, {"peer", r.from_peer}, {"memory", r.from_memory}}},
      {"memory",
       {{"requests", r.requests}, {"bank_stalled", r.bank_stalled}, {"bank_busy", r.bank_busy}}},
      {"remote_lines", r.remote_lines},
      {"waits_us",
       {{"memory", us(r.waits.memory)},
        {"stores", us(r.waits.stores)},
        {"persist", us(r.waits.persist)},
        {"lock", us(r.waits.lock)}}},
      {"law", {{"holds", true}, {"writes_checked", r.law_checked}}}};
  if (row.order == Ordering::Asap) {
    document["recovery"] = {
        {"undo_records", r.recovery.undo},          {"delay_records", r.recovery.delay},
        {"into_undo_records", r.recovery.absorbed}, {"refused", r.recovery.refused},
        {"records_most", r.recovery.most},          {"values_checked", r.recovery_checked}};
  }
  return document;
}

ordered_json json_of(const std::vector<ServerRow>& rows, const ServerSetup& setup,
                     const ServerCommandOptions& options) {
  ordered_json runs = ordered_json::array();
  for (const ServerRow& row : rows) runs.push_back(json_of(row));
  ordered_json document{{"format", 1},
                        {"label", "simulated"},
                        {"device", setup.device.name},
                        {"processor", setup.processor.name},
                        {"cores", setup.processor.cores},
                        {"threads", setup.processor.threads()},
                        {"logging", workload::to_string(options.logging)},
                        {"persist_point", memsys::to_string(options.persist_point)},
                        {"durable_commits", options.durable_commits},
                        {"log_gap_bytes", options.log_gap},
                        {"remote_channels", options.remote_channels},
                        {"remote_trace", options.remote_trace},
                        {"seed", options.seed},
                        {"runs", std::move(runs)}};
  const ServerGain gain = gain_of(rows);
  if (gain.workloads > 0) {
    const PublishedGain paper = published_gain(options.remote_channels > 0);
    document["broi_over_epoch"] = {{"workloads", gain.workloads},
                                   {"bus", gain.bus},
                                   {"operations", gain.operations},
                                   {"published_bus", paper.bus},
                                   {"published_operations", paper.operations}};
  }
  return document;
}

/// How many times as much as under epoch; nothing if that was not run.
std::string over_epoch(double value, double epoch) {
  return epoch > 0 ? fmt::format("{:.2f}", value / epoch) : "";
}

/// Programs on PMDK's maps: medians measured with libpmemobj 1.12.1, values of 128 bytes.
struct MeasuredMap {
  StructureKind workload;
  std::string_view map;
  double epochs;
  double lines;
  double singletons;  // percent
};
constexpr std::array<MeasuredMap, 3> kMeasuredMaps{{
    {StructureKind::Hash, "hashmap_tx insert", 8, 2.10, 67},
    {StructureKind::Rbtree, "rbtree insert or remove", 14, 1.72, 74},
    {StructureKind::Btree, "btree insert or remove", 6, 3.33, 29},
}};

/// The epochs of the workloads beside those of real programs, which are larger in places.
std::string text_of_epochs(const std::vector<ServerRow>& rows) {
  std::string text =
      "  epochs of a transaction, lines of an epoch, epochs of one line; and measured, of PMDK's "
      "maps:\n";
  for (const StructureKind kind : kServerWorkloads) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const ServerRow& each) { return each.workload == kind; });
    if (row == rows.end() || row->result.epochs == 0) continue;
    const ServerResult& r = row->result;
    const auto epochs = static_cast<double>(r.epochs);
    text += fmt::format("  {:<8} {:>6.1f} {:>6.2f} {:>5.0f} %", workload::to_string(kind),
                        epochs / static_cast<double>(r.transactions),
                        static_cast<double>(r.persists) / epochs, percent(r.singletons, r.epochs));
    const auto* const map =
        std::find_if(kMeasuredMaps.begin(), kMeasuredMaps.end(),
                     [&](const MeasuredMap& each) { return each.workload == kind; });
    if (map != kMeasuredMaps.end()) {
      text += fmt::format(" {:>6.1f} {:>6.2f} {:>5.0f} % {}", map->epochs, map->lines,
                          map->singletons, map->map);
    }
    text += "\n";
  }
  return text;
}

std::string text_of(const std::vector<ServerRow>& rows, const ServerSetup& setup,
                    const ServerCommandOptions& options) {
  std::string text = fmt::format(
      "simulated: {}, {} ({} cores, {} threads), {} logging, persisted at {}\n"
      "  {} transactions after {} to warm the caches; {}\n"
      "  workload order      Mops  x epoch  bus GB/s  x epoch  lines per  other  bank at  "
      "dependent\n"
      "                                                            epoch  row %   work %  persists "
      "%\n",
      setup.device.name, setup.processor.name, setup.processor.cores, setup.processor.threads(),
      workload::to_string(options.logging), memsys::to_string(options.persist_point),
      options.transactions, options.warm_up, counted(options.remote_channels, "remote channel"));
  for (const ServerRow& row : rows) {
    const ServerResult& r = row.result;
    const ServerResult* const epoch = find_row(rows, row.workload, Ordering::Epoch);
    const double lines =
        r.epochs == 0 ? 0 : static_cast<double>(r.persists) / static_cast<double>(r.epochs);
    text += fmt::format(
        "  {:<8} {:<6} {:>8.3f} {:>8} {:>9.3f} {:>8} {:>10.2f} {:>6.1f} {:>8.1f} {:>11.2f}\n",
        workload::to_string(row.workload), memsys::to_string(row.order), r.transactions_per_us(),
        over_epoch(r.transactions_per_us(), epoch == nullptr ? 0 : epoch->transactions_per_us()),
        r.bus_gb_per_s(),
        over_epoch(r.bus_gb_per_s(), epoch == nullptr ? 0 : epoch->bus_gb_per_s()), lines,
        percent(r.bank_stalled, r.requests), percent(r.bank_busy, r.requests),
        percent(r.direct + r.chained, r.persists));
  }
  text += std::string(
              "  requests that found another row open in their bank or awaited, and those of them "
              "whose bank was\n  at work for it; the BROI paper's motivation has 36 % stalled by "
              "bank conflicts\n") +
          text_of_epochs(rows);
  const bool eadr = std::any_of(rows.begin(), rows.end(),
                                [](const ServerRow& row) { return row.order == Ordering::Eadr; });
  if (eadr) {
    text +=
        "  eadr: a write is persisted when the caches have it, in the order of the stores by "
        "definition\n";
  }
  const ServerGain gain = gain_of(rows);
  if (gain.workloads == 0) return text;
  const PublishedGain paper = published_gain(options.remote_channels > 0);
  text += fmt::format(
      "  broi over epoch, geometric mean of {}; in brackets the BROI paper's mean:\n"
      "    memory throughput (figure 9) {:+.0f} % ({:+.0f} %), operations (figure 10) {:+.0f} % "
      "({:+.0f} %)\n",
      counted(gain.workloads, "workload"), 100 * (gain.bus - 1), 100 * (paper.bus - 1),
      100 * (gain.operations - 1), 100 * (paper.operations - 1));
  return text;
}

ExitStatus run_sim_server(const ServerCommandOptions& options) {
  const auto setup = read_server_setup(options);
  if (!setup.ok()) {
    print_error(setup.error());
    return ExitStatus::Failed;
  }
  BuiltStructures structures;
  std::vector<ServerRow> rows;
  const auto simulated = simulate_servers(*setup, options, structures, rows);
  if (options.output == Format::Json) {
    if (simulated.ok()) print(json_text(json_of(rows, *setup, options), 2) + "\n");
  } else if (!rows.empty()) {
    print(text_of(rows, *setup, options));  // what one workload under one order ended, too
  }
  return simulated.ok() ? ExitStatus::Ok : fail(simulated.error());
}

/// What is given and would be of no effect.
Result<void> check_command_line(const ServerCommandOptions& options, const Command& command) {
  PERDURE_TRY_VOID(check_log_gap(options));
  if (options.remote_channels == 0) {
    return refuse_given(command, {"--remote-trace", "--remote-epoch-bytes", "--remote-interval-ns"},
                        "is of remote channels: use it with --remote-channels");
  }
  if (!options.remote_trace) {
    return check_whole_lines("--remote-epoch-bytes", options.remote_epoch_bytes);
  }
  return refuse_given(command, {"--remote-epoch-bytes"},
                      "is of epochs at random places: with --remote-trace they are the workload's");
}

void add_run_options(Command command, ServerCommandOptions& options) {
  using Limit = std::uint64_t;
  command.add_option("--transactions", options.transactions, "To be measured, of all threads")
      .range(Limit{1}, Limit{1'000'000'000})
      .capture_default();
  command.add_option("--warm-up", options.warm_up, "Before, on caches and data only")
      .range(Limit{0}, Limit{1'000'000'000})
      .capture_default();
  command
      .add_option("--footprint-mib", options.footprint_mib,
                  "Of the structure; 0: what the paper has (table IV)")
      .range(Limit{0}, Limit{65536})
      .capture_default();
  command.add_option("--partitions", options.partitions, "Of the structure, with a lock each")
      .range(Limit{1}, Limit{65536})
      .capture_default();
  add_size_option(command, "--log-gap", options.log_gap,
                  "Between the logs of two threads; 0: their headers, if the logging has such, all "
                  "lie in one bank",
                  0, 1 << 20);
  command.add_option("--cores", options.cores, "Instead of the file's; 0: the file's")
      .range(Limit{0}, Limit{memsys::kCoresMax})
      .capture_default();
  command.add_option("--seed", options.seed, "Of keys and places").whole_number().capture_default();
  command.add_flag("--durable-commits", options.durable_commits,
                   "A thread waits until its transaction is persisted");
  command
      .add_option("--remote-channels", options.remote_channels,
                  "RDMA channels that write beside the threads (\"hybrid\")")
      .range(Limit{0}, Limit{64})
      .capture_default();
  add_size_option(command, "--remote-epoch-bytes", options.remote_epoch_bytes,
                  "Of a remote epoch; a multiple of 64", 64, 65536);
  command
      .add_option("--remote-interval-ns", options.remote_interval_ns,
                  "Between the epochs of a channel")
      .range(Limit{1}, Limit{1'000'000'000})
      .capture_default();
  command.add_flag("--remote-trace", options.remote_trace,
                   "A channel brings the epochs of the same workload, run elsewhere on data of its "
                   "own, instead of lines at random places");
}

}  // namespace

void add_sim_server_command(Command sim) {
  const auto options = std::make_shared<ServerCommandOptions>();
  const Command command = sim.add_subcommand(
      "server", "Programs on cores, caches, persist buffers and persistent memory");
  command.add_option("--device", options->device, "Memory device and controller, TOML (nvm-server)")
      .option_text("FILE")
      .each(check_file_name);
  command
      .add_option("--processor", options->processor, "Cores, caches and buffers, TOML (four-cores)")
      .option_text("FILE")
      .each(check_file_name);
  add_word_option(command, "--workload", options->workloads, parse_workloads,
                  "What the threads run (all)", workload::structure_names() + "|all");
  add_word_option(command, "--order", options->orders, parse_orders,
                  "How epochs are kept apart (all)", memsys::ordering_names() + "|all");
  add_word_option(command, "--logging", options->logging, workload::parse_logging,
                  "How transactions are atomic (undo)", workload::logging_names());
  add_word_option(command, "--persist-point", options->persist_point, memsys::parse_persist_point,
                  "When a write counts as persisted (array)", "accept|bus|array");
  add_run_options(command, *options);
  add_format_option(command, options->output);
  add_examples(
      command,
      "  perdure sim server\n"
      "  perdure sim server --device configs/hardware/nvm-server.toml \\\n"
      "      --processor configs/hardware/four-cores.toml --workload hash --order broi \\\n"
      "      --logging redo --persist-point bus --format json\n"
      "docs/simulator.md describes both files. Exit status: 0 simulated, 1 an input is "
      "wrong, a deadlock, or the order of persistence was broken, 2 wrong command line.");
  run_with(command, [options, command] {
    const auto right = check_command_line(*options, command);
    if (right.ok()) return run_sim_server(*options);
    print_error(right.error());
    return ExitStatus::Usage;
  });
}

}  // namespace perdure::app
