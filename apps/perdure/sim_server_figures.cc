// Figures 9 to 11: BROI against epoch on a server, and with more cores.
#include "core/try.h"
#include "output.h"
#include "report/charts.h"
#include "sim_figures.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::app {
namespace {

using memsys::Ordering;

constexpr std::array kCores{1U, 2U, 4U, 8U, 16U};
/// From one lane of a pool of PMDK to the next, with the log of a thread each (its lane.h).
constexpr std::uint64_t kPmdkLaneBytes = 3072;

ServerRunOptions server_options(const FigureOptions& options) {
  ServerRunOptions server = options.server;
  server.device = options.files.device;
  server.processor = options.files.processor;
  server.orders = {Ordering::Epoch, Ordering::Broi};
  return server;
}

double percent(double part) { return 100 * (part - 1); }

/// Buffers and queues of the same size that keep threads apart, and leave out equation 2.
std::string beaten_remark(const ServerGain& local, const ServerGain& hybrid) {
  return fmt::format(
      "The same buffers and queues without equation 2, `thread`, over BROI, geometric means: "
      "operations {:+.0f} % local and {:+.0f} % hybrid, memory throughput {:+.0f} and {:+.0f} %.",
      percent(local.operations), percent(hybrid.operations), percent(local.bus),
      percent(hybrid.bus));
}

/// The paper's 36 %, in the two readings that a controller can count.
std::string stalled_remark(const std::vector<ServerRow>& rows) {
  std::string text =
      "Requests that found another row of their bank open or awaited, and those of them whose bank "
      "was at work for it, %, under epoch, local:";
  for (const ServerRow& row : rows) {
    if (row.order != Ordering::Epoch) continue;
    const auto of_all = [&](std::uint64_t count) {
      return 100.0 * static_cast<double>(count) /
             static_cast<double>(std::max<std::uint64_t>(row.result.requests, 1));
    };
    text += fmt::format(" {} {:.0f} and {:.0f};", workload::to_string(row.workload),
                        of_all(row.result.bank_stalled), of_all(row.result.bank_busy));
  }
  return text +
         " the paper's motivation has 36 % stalled by bank conflicts, without saying of what.";
}

void as_hybrid(ServerRunOptions& server) {
  server.remote_channels = 2;
  server.remote_trace = true;
}

/// `runs`, made if nobody has asked before.
Result<const std::vector<ServerRow>*> rows_of(std::optional<std::vector<ServerRow>>& runs,
                                              BuiltStructures& structures, const ServerSetup& setup,
                                              ServerRunOptions server, bool hybrid) {
  if (!runs) {
    if (hybrid) as_hybrid(server);
    PERDURE_TRY(made, simulate_servers(setup, server, structures));
    runs = std::move(made);
  }
  return &*runs;
}

Claim claim_of(const std::vector<ServerRow>& rows, bool bus, bool hybrid) {
  const ServerGain gain = gain_of(rows);
  const PublishedGain paper = published_gain(hybrid);
  return {hybrid ? "hybrid, geometric mean" : "local, geometric mean",
          bus ? paper.bus : paper.operations, bus ? gain.bus : gain.operations};
}

/// The paper's throughput is that of "the whole benchmarks execution", which begins with cold
/// caches; in these runs they are warm.
Result<Assumption> from_cold_caches(SharedRuns& shared, const ServerSetup& setup,
                                    ServerRunOptions server, bool bus) {
  server.warm_up = 0;
  Assumption cold{"measured from cold caches on (--warm-up 0)", {}};
  for (const bool hybrid : {false, true}) {
    PERDURE_TRY(rows, rows_of(shared.cold_servers[hybrid ? 1 : 0], shared.structures, setup, server,
                              hybrid));
    cold.claims.push_back(claim_of(*rows, bus, hybrid));
  }
  return cold;
}

}  // namespace

Result<void> check_server_figure(int number, const FigureOptions& options) {
  ServerRunOptions server = server_options(options);
  PERDURE_TRY(setup, read_server_setup(server));
  if (number == 11) {
    server.workloads = {workload::StructureKind::Hash};
    setup.processor.cores = kCores.back();
    return check_servers(setup, server);
  }
  PERDURE_TRY_VOID(check_servers(setup, server));
  as_hybrid(server);
  return check_servers(setup, server);
}

Result<Figure> simulate_figure_9_or_10(int number, const FigureOptions& options,
                                       SharedRuns& shared) {
  const ServerRunOptions server = server_options(options);
  PERDURE_TRY(setup, read_server_setup(server));
  Figure figure;
  figure.number = number;
  const bool bus = number == 9;
  figure.title = bus ? "memory throughput, BROI over epoch" : "operations, BROI over epoch";
  figure.table.columns = {{"workload", false},
                          {bus ? "epoch, GB/s" : "epoch, per us"},
                          {bus ? "broi, GB/s" : "broi, per us"},
                          {"broi over epoch"},
                          {"thread over broi"}};
  report::BarChart chart;
  chart.title = figure.title;
  chart.unit = "times epoch";
  chart.bar_names = {"broi over epoch"};
  std::array<ServerGain, 2> thread_over_broi;
  for (const bool hybrid : {false, true}) {
    ServerRunOptions with_thread = server;
    with_thread.orders.push_back(Ordering::Thread);
    PERDURE_TRY(runs, rows_of(shared.servers[hybrid ? 1 : 0], shared.structures, setup, with_thread,
                              hybrid));
    const std::vector<ServerRow>& rows = *runs;
    auto& panel = chart.panels.emplace_back();
    panel.title = hybrid ? "hybrid" : "local";
    for (const workload::StructureKind kind : server.workloads) {
      const memsys::ServerResult& epoch = *find_row(rows, kind, Ordering::Epoch);
      const memsys::ServerResult& broi = *find_row(rows, kind, Ordering::Broi);
      const double before = bus ? epoch.bus_gb_per_s() : epoch.transactions_per_us();
      const double after = bus ? broi.bus_gb_per_s() : broi.transactions_per_us();
      const memsys::ServerResult& thread = *find_row(rows, kind, Ordering::Thread);
      const double other = bus ? thread.bus_gb_per_s() : thread.transactions_per_us();
      const std::string name(workload::to_string(kind));
      figure.table.rows.push_back({name + (hybrid ? ", hybrid" : ""), fmt::format("{:.3f}", before),
                                   fmt::format("{:.3f}", after), times(after / before),
                                   times(other / after)});
      panel.groups.push_back({name, {{after / before, times(after / before), 0, 0}}});
    }
    figure.claims.push_back(claim_of(rows, bus, hybrid));
    thread_over_broi[hybrid ? 1 : 0] = gain_of(rows, Ordering::Thread, Ordering::Broi);
  }
  const bool within = std::all_of(figure.claims.begin(), figure.claims.end(),
                                  [](const Claim& claim) { return claim.within(); });
  if (!within && server.warm_up > 0) {
    PERDURE_TRY(cold, from_cold_caches(shared, setup, server, bus));
    figure.assumptions.push_back(std::move(cold));
  }
  figure.drawing = to_svg(chart);
  figure.decides =
      "where a write is persisted (--persist-point) and how transactions are logged (--logging); "
      "the paper states neither for its micro-benchmarks. Sigma hardly matters.";
  figure.remarks = {
      "Hybrid is two channels that replay the same workload, an epoch each microsecond; the paper "
      "does not say how fast it fed them in.",
      beaten_remark(thread_over_broi[0], thread_over_broi[1]), stalled_remark(*shared.servers[0])};
  return figure;
}

namespace {

constexpr std::uint32_t kCoresOfTheMemory = 4;  // of the file

/// Figure 10's mean, which more cores may keep or lose: figure 11 has no number of its own.
Claim kept_claim(std::uint32_t cores, double over_epoch) {
  return {fmt::format("{} cores, BROI over epoch, beside figure 10's mean", cores),
          published_gain(false).operations, over_epoch, Tolerance::MoreThan};
}

/// Of reads and writes; of both together.
std::string places_of(const memsys::ControllerOptions& controller) {
  if (controller.one_queue) return std::to_string(controller.window);
  return fmt::format("{} + {}", controller.read_queue, controller.write_queue);
}

/// Hash on more cores, with the memory of the file or with one that grows as the cores.
struct MoreCores {
  std::uint64_t log_gap = 0;
  bool larger = false;
  double one_core = 0;      // BROI there, with the memory of the file
  std::uint32_t cores = 1;  // the last row's
  double alone = 0;         // BROI there over one_core
  double over_epoch = 0;
  // Of BROI over epoch from the cores of the file's memory on.
  std::vector<Claim> claims;
  report::BarChart::Panel panel;
};

Result<void> add_more_cores(const ServerSetup& setup, ServerRunOptions server, SharedRuns& shared,
                            MoreCores& series, report::Table& table) {
  server.log_gap = series.log_gap;
  for (const std::uint32_t cores : kCores) {
    // With fewer rows there is nothing to divide.
    const std::uint32_t factor = series.larger ? cores / kCoresOfTheMemory : 1;
    if (factor == 0 || (series.larger && factor == 1)) continue;
    if (setup.device.geometry.rows % factor != 0) continue;
    ServerSetup here = scaled(setup, {factor, factor, 1});
    here.processor.cores = cores;
    PERDURE_TRY(rows, simulate_servers(here, server, shared.structures));
    const double epoch = rows[0].result.transactions_per_us();
    const double broi = rows[1].result.transactions_per_us();
    if (cores == 1) series.one_core = broi;
    series.cores = cores;
    series.alone = broi / series.one_core;
    series.over_epoch = broi / epoch;
    if (cores >= kCoresOfTheMemory) series.claims.push_back(kept_claim(cores, series.over_epoch));
    const memsys::Geometry& geometry = here.device.geometry;
    table.rows.push_back({std::to_string(series.log_gap), std::to_string(cores),
                          std::to_string(geometry.channels * geometry.banks_in_channel()),
                          places_of(here.device.controller),
                          std::to_string(here.processor.threads() * here.processor.queue_entries),
                          fmt::format("{:.3f}", epoch), fmt::format("{:.3f}", broi),
                          times(series.over_epoch), times(series.alone)});
    series.panel.groups.push_back(
        {std::to_string(cores), {{epoch, times(epoch), 0, 0}, {broi, times(broi), 0, 0}}});
  }
  return {};
}

/// What has to be assumed so that more cores keep the gain.
std::string kept_remark(const std::vector<Assumption>& assumptions) {
  std::string kept;
  for (const Assumption& each : assumptions) {
    const bool all = std::all_of(each.claims.begin(), each.claims.end(),
                                 [](const Claim& claim) { return claim.within(); });
    if (all) kept += fmt::format("{}{}", kept.empty() ? "" : "; ", each.what);
  }
  return fmt::format(
      "Figure 10's {:+.0f} %, which is a mean of all workloads, is kept or more on every number of "
      "cores of the second table with: {}.",
      percent(published_gain(false).operations), kept.empty() ? "none of these" : kept);
}

}  // namespace

Result<Figure> simulate_figure_11(const FigureOptions& options, SharedRuns& shared) {
  ServerRunOptions server = server_options(options);
  server.workloads = {workload::StructureKind::Hash};
  PERDURE_TRY(setup, read_server_setup(server));
  Figure figure;
  figure.number = 11;
  figure.title = fmt::format("hash on more cores of {} threads", setup.processor.threads_per_core);
  figure.table.columns = {{"log gap"},         {"cores"},           {"banks"},
                          {"requests queued"}, {"BROI queues"},     {"epoch, per us"},
                          {"broi, per us"},    {"broi over epoch"}, {"broi over broi on one core"}};
  report::BarChart chart;
  chart.title = figure.title;
  chart.unit = "transactions/us";
  chart.bar_names = {"epoch", "broi"};
  chart.panels_per_row = 2;
  std::vector<std::uint64_t> gaps{server.log_gap};
  if (server.log_gap == 0) gaps.push_back(kPmdkLaneBytes);
  std::string found = "BROI on the most cores over BROI on one, and over epoch there:";
  for (const std::uint64_t gap : gaps) {
    MoreCores series;
    series.log_gap = gap;
    for (const bool larger : {false, true}) {
      series.larger = larger;
      series.panel = {};
      series.panel.title =
          fmt::format("{}, log gap {}",
                      larger ? "banks and queues grow as the cores" : "the file's memory", gap);
      // On the fewest of these cores both have the memory of the file.
      series.claims.resize(larger ? std::min<std::size_t>(series.claims.size(), 1) : 0);
      PERDURE_TRY_VOID(add_more_cores(setup, server, shared, series, figure.table));
      chart.panels.push_back(series.panel);
      // A memory that has no rows to divide into more banks is not compared.
      const bool whole = figure.assumptions.empty() ||
                         series.claims.size() == figure.assumptions.front().claims.size();
      if (whole) figure.assumptions.push_back({series.panel.title, series.claims});
      if (!series.panel.groups.empty()) {
        found += fmt::format(" {:.2f} and {:.2f} ({} cores, {});", series.alone, series.over_epoch,
                             series.cores, series.panel.title);
      }
    }
  }
  found.back() = '.';
  figure.drawing = to_svg(chart);
  figure.decides =
      "where the threads' logs lie, and whether the memory grows with the cores; the paper's text "
      "says neither. BROI scales by itself and over epoch where both are so; where the headers of "
      "all logs are in one bank (log gap 0), that bank limits every processor.";
  figure.remarks = {
      "The paper's text says that performance scales well with the number of cores: of BROI by "
      "itself or over epoch it does not say, and it has no number. Its table of cores and queue "
      "sizes is not in the text either. The last two columns are the two readings.",
      found, kept_remark(figure.assumptions),
      "Each thread has an entry of its own in the ordering controller, of the file's size, and "
      "each core a persist buffer: these grow with the cores in all rows. BROI queues is how many "
      "requests all entries together hold, the hardware that the paper calls affordable: 4 bits "
      "each, and two registers of 3 bits an entry (its section IV.E)."};
  return figure;
}

}  // namespace perdure::app
