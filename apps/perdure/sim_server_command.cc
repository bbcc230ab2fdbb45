// `perdure sim server`: programs on a simulated processor with persistent memory, under several
// orders of persistence side by side (seed paper 001, figures 9 to 11).
#include "core/json.h"
#include "core/try.h"
#include "memsys/server/server_run.h"
#include "output.h"
#include "sim_commands.h"
#include "workload/transactions.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>

namespace perdure::app {
namespace {

using memsys::Ordering;
using memsys::ServerResult;
using nlohmann::ordered_json;
using workload::StructureKind;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kRemoteBytes = 64 * kMiB;  // where remote epochs go, behind the program

constexpr std::array kWorkloads{StructureKind::Hash, StructureKind::Rbtree, StructureKind::Sps,
                                StructureKind::Btree, StructureKind::Ssca2};
constexpr std::array kOrders{Ordering::Sync, Ordering::Epoch, Ordering::Thread, Ordering::Broi,
                             Ordering::Eadr};

struct ServerCommandOptions {
  std::string device;
  std::string processor;
  std::vector<StructureKind> workloads{kWorkloads.begin(), kWorkloads.end()};
  std::vector<Ordering> orders{kOrders.begin(), kOrders.end()};
  workload::Logging logging = workload::Logging::Undo;
  memsys::PersistPoint persist_point = memsys::PersistPoint::Array;
  std::uint64_t transactions = 20'000;
  std::uint64_t warm_up = 20'000;
  std::uint64_t footprint_mib = 0;  // 0: the published one
  std::uint64_t partitions = 256;
  std::uint64_t cores = 0;  // 0: the file's
  std::uint64_t seed = 1;
  bool durable_commits = false;
  std::uint64_t remote_channels = 0;
  std::uint64_t remote_epoch_bytes = 512;
  std::uint64_t remote_interval_ns = 1000;
  Format output = Format::Text;
};

struct ServerSetup {
  memsys::Device device;
  memsys::Processor processor;
};

struct ServerRow {
  StructureKind workload = StructureKind::Hash;
  Ordering order = Ordering::Broi;
  ServerResult result;
};

Result<std::vector<StructureKind>> parse_workloads(std::string_view word) {
  if (word == "all") return std::vector<StructureKind>{kWorkloads.begin(), kWorkloads.end()};
  PERDURE_TRY(kind, workload::parse_structure(word));
  return std::vector<StructureKind>{kind};
}

Result<std::vector<Ordering>> parse_orders(std::string_view word) {
  if (word == "all") return std::vector<Ordering>{kOrders.begin(), kOrders.end()};
  PERDURE_TRY(order, memsys::parse_ordering(word));
  return std::vector<Ordering>{order};
}

Result<ServerSetup> read_setup(const ServerCommandOptions& options) {
  PERDURE_TRY(device, memsys::read_device(options.device));
  PERDURE_TRY(processor, memsys::read_processor(options.processor));
  if (device.geometry.line_bytes != memsys::kCacheLineBytes) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: lines of {} bytes; the caches' have {}", options.device,
                             device.geometry.line_bytes, memsys::kCacheLineBytes)};
  }
  if (options.cores > 0) processor.cores = static_cast<std::uint32_t>(options.cores);
  return ServerSetup{std::move(device), std::move(processor)};
}

std::uint64_t footprint_of(StructureKind kind, const ServerCommandOptions& options) {
  return options.footprint_mib > 0 ? options.footprint_mib * kMiB
                                   : workload::published_footprint(kind);
}

/// What can be said before a structure is built.
Result<void> check_sizes(const ServerSetup& setup, const ServerCommandOptions& options) {
  for (const StructureKind kind : options.workloads) {
    const std::uint64_t bytes = footprint_of(kind, options);
    if (bytes / options.partitions < workload::kPartitionBytesMin) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} in {} MiB has less than {} bytes for each of {} partitions: "
                               "use fewer with --partitions, or a larger --footprint-mib",
                               workload::to_string(kind), bytes / kMiB,
                               workload::kPartitionBytesMin, options.partitions)};
    }
    const std::uint64_t needed = bytes + options.partitions * memsys::kCacheLineBytes +
                                 setup.processor.threads() * workload::Transactions::kLogBytes +
                                 kRemoteBytes;
    if (needed > setup.device.geometry.bytes()) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} needs {} MiB of memory and {} has {}: use a smaller "
                               "--footprint-mib",
                               workload::to_string(kind), needed / kMiB, setup.device.name,
                               setup.device.geometry.bytes() / kMiB)};
    }
  }
  return {};
}

Result<ServerResult> simulate(const ServerSetup& setup, const ServerCommandOptions& options,
                              const workload::Structure& structure, Ordering order) {
  workload::TransactionsOptions program_options;
  program_options.logging = options.logging;
  program_options.threads = setup.processor.threads();
  program_options.partitions = static_cast<std::uint32_t>(options.partitions);
  program_options.seed = options.seed;
  program_options.durable_commits = options.durable_commits;
  workload::Transactions program(structure.clone(), program_options);
  memsys::ServerOptions run;
  run.ordering = order;
  run.persist_point = options.persist_point;
  run.transactions = options.transactions;
  run.warm_transactions = options.warm_up;
  run.remote = {static_cast<std::uint32_t>(options.remote_channels),
                options.remote_epoch_bytes,
                options.remote_interval_ns * 1000,
                program.bytes() / memsys::kCacheLineBytes,
                kRemoteBytes / memsys::kCacheLineBytes,
                options.seed};
  return memsys::run_server(setup.device, setup.processor, program, run);
}

Result<std::vector<ServerRow>> simulate_all(const ServerSetup& setup,
                                            const ServerCommandOptions& options) {
  PERDURE_TRY_VOID(check_sizes(setup, options));
  std::vector<ServerRow> rows;
  StatusLine status;
  for (const StructureKind kind : options.workloads) {
    status.show(fmt::format("{}: building", workload::to_string(kind)));
    Random random(options.seed);
    const auto structure = workload::make_structure(
        kind, {footprint_of(kind, options), static_cast<std::uint32_t>(options.partitions)},
        random);
    for (const Ordering order : options.orders) {
      status.show(fmt::format("{}: {} ({} of {})", workload::to_string(kind),
                              memsys::to_string(order), rows.size() + 1,
                              options.workloads.size() * options.orders.size()));
      PERDURE_TRY(result, simulate(setup, options, *structure, order));
      rows.push_back({kind, order, result});
    }
  }
  return rows;
}

// --- gains -------------------------------------------------------------------------------------

/// BROI over epoch, as seed paper 001 reports it: over all workloads, geometric means.
struct Gain {
  std::size_t workloads = 0;
  double operations = 1;
  double bus = 1;
};

const ServerResult* find(const std::vector<ServerRow>& rows, StructureKind kind, Ordering order) {
  for (const ServerRow& row : rows) {
    if (row.workload == kind && row.order == order) return &row.result;
  }
  return nullptr;
}

Gain gain_of(const std::vector<ServerRow>& rows) {
  Gain gain;
  double operations = 0;
  double bus = 0;
  for (const StructureKind kind : kWorkloads) {
    const ServerResult* const epoch = find(rows, kind, Ordering::Epoch);
    const ServerResult* const broi = find(rows, kind, Ordering::Broi);
    if (epoch == nullptr || broi == nullptr) continue;
    operations += std::log(broi->transactions_per_us() / epoch->transactions_per_us());
    bus += std::log(broi->bus_gb_per_s() / epoch->bus_gb_per_s());
    ++gain.workloads;
  }
  if (gain.workloads == 0) return gain;
  gain.operations = std::exp(operations / static_cast<double>(gain.workloads));
  gain.bus = std::exp(bus / static_cast<double>(gain.workloads));
  return gain;
}

/// Seed paper 001, section VII.A: memory throughput (figure 9), operations (figure 10).
struct Published {
  double bus;
  double operations;
};
Published published(const ServerCommandOptions& options) {
  return options.remote_channels > 0 ? Published{1.18, 1.30} : Published{1.16, 1.28};
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// --- output ------------------------------------------------------------------------------------

ordered_json json_of(const ServerRow& row) {
  const ServerResult& r = row.result;
  const auto us = [](memsys::Time ps) { return static_cast<double>(ps) / 1e6; };
  return {
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
      {"memory", {{"requests", r.requests}, {"bank_stalled", r.bank_stalled}}},
      {"remote_lines", r.remote_lines},
      {"waits_us",
       {{"memory", us(r.waits.memory)},
        {"stores", us(r.waits.stores)},
        {"persist", us(r.waits.persist)},
        {"lock", us(r.waits.lock)}}},
      {"law", {{"holds", true}, {"writes_checked", r.law_checked}}}};
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
                        {"remote_channels", options.remote_channels},
                        {"seed", options.seed},
                        {"runs", std::move(runs)}};
  const Gain gain = gain_of(rows);
  if (gain.workloads > 0) {
    const Published paper = published(options);
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

std::string text_of(const std::vector<ServerRow>& rows, const ServerSetup& setup,
                    const ServerCommandOptions& options) {
  std::string text = fmt::format(
      "simulated: {}, {} ({} cores, {} threads), {} logging, persisted at {}\n"
      "  {} transactions after {} to warm the caches; {} remote channel(s)\n"
      "  workload order      Mops  x epoch  bus GB/s  x epoch  lines per  stalled by  dependent\n"
      "                                                            epoch   a bank %  persists %\n",
      setup.device.name, setup.processor.name, setup.processor.cores, setup.processor.threads(),
      workload::to_string(options.logging), memsys::to_string(options.persist_point),
      options.transactions, options.warm_up, options.remote_channels);
  for (const ServerRow& row : rows) {
    const ServerResult& r = row.result;
    const ServerResult* const epoch = find(rows, row.workload, Ordering::Epoch);
    const double lines =
        r.epochs == 0 ? 0 : static_cast<double>(r.persists) / static_cast<double>(r.epochs);
    text += fmt::format(
        "  {:<8} {:<6} {:>8.3f} {:>8} {:>9.3f} {:>8} {:>10.2f} {:>11.1f} {:>11.2f}\n",
        workload::to_string(row.workload), memsys::to_string(row.order), r.transactions_per_us(),
        over_epoch(r.transactions_per_us(), epoch == nullptr ? 0 : epoch->transactions_per_us()),
        r.bus_gb_per_s(),
        over_epoch(r.bus_gb_per_s(), epoch == nullptr ? 0 : epoch->bus_gb_per_s()), lines,
        percent(r.bank_stalled, r.requests), percent(r.direct + r.chained, r.persists));
  }
  const Gain gain = gain_of(rows);
  if (gain.workloads == 0) return text;
  const Published paper = published(options);
  text += fmt::format(
      "  broi over epoch, geometric mean of {} workload(s); in brackets seed paper 001's mean:\n"
      "    memory throughput (figure 9) {:+.0f} % ({:+.0f} %), operations (figure 10) {:+.0f} % "
      "({:+.0f} %)\n",
      gain.workloads, 100 * (gain.bus - 1), 100 * (paper.bus - 1), 100 * (gain.operations - 1),
      100 * (paper.operations - 1));
  return text;
}

ExitStatus run_sim_server(const ServerCommandOptions& options) {
  const auto setup = read_setup(options);
  if (!setup.ok()) {
    print_error(setup.error());
    return ExitStatus::Failed;
  }
  const auto rows = simulate_all(*setup, options);
  if (!rows.ok()) {
    print_error(rows.error());
    return ExitStatus::Failed;
  }
  if (options.output == Format::Json) {
    print(json_of(*rows, *setup, options).dump(2) + "\n");
  } else {
    print(text_of(*rows, *setup, options));
  }
  return ExitStatus::Ok;
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
  command.add_option("--cores", options.cores, "Instead of the file's; 0: the file's")
      .range(Limit{0}, Limit{memsys::kCoresMax})
      .capture_default();
  command.add_option("--seed", options.seed, "Of keys and places").capture_default();
  command.add_flag("--durable-commits", options.durable_commits,
                   "A thread waits until its transaction is persisted");
  command
      .add_option("--remote-channels", options.remote_channels,
                  "RDMA channels that write beside the threads (\"hybrid\")")
      .range(Limit{0}, Limit{64})
      .capture_default();
  command.add_option("--remote-epoch-bytes", options.remote_epoch_bytes, "Of a remote epoch")
      .range(Limit{64}, Limit{65536})
      .capture_default();
  command
      .add_option("--remote-interval-ns", options.remote_interval_ns,
                  "Between the epochs of a channel")
      .range(Limit{1}, Limit{1'000'000'000})
      .capture_default();
}

}  // namespace

void add_sim_server_command(Command sim) {
  const auto options = std::make_shared<ServerCommandOptions>();
  const Command command = sim.add_subcommand(
      "server", "Programs on cores, caches, persist buffers and persistent memory");
  command.add_option("--device", options->device, "Memory device and controller, TOML")
      .required()
      .option_text("FILE");
  command.add_option("--processor", options->processor, "Cores, caches and buffers, TOML")
      .required()
      .option_text("FILE");
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
      "  perdure sim server --device configs/hardware/nvm-a.toml \\\n"
      "      --processor configs/hardware/four-cores.toml\n"
      "  perdure sim server --device configs/hardware/nvm-a.toml \\\n"
      "      --processor configs/hardware/four-cores.toml --workload hash --order broi \\\n"
      "      --logging redo --persist-point bus --format json\n"
      "docs/simulator.md describes both files. Exit status: 0 simulated, 1 an input is "
      "wrong, 2 wrong command line.");
  run_with(command, [options] { return run_sim_server(*options); });
}

}  // namespace perdure::app
