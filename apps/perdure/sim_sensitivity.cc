#include "sim_sensitivity.h"

#include "core/try.h"
#include "output.h"
#include "report/charts.h"
#include "sim_files.h"
#include "sim_remotelog_runs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

namespace perdure::app {
namespace {

using memsys::Ordering;
using memsys::PersistPoint;
using report::BarChart;

constexpr std::uint64_t kWritingTransactions = 100;  // of an application, for each bar
constexpr std::array kPoints{PersistPoint::Accept, PersistPoint::Bus, PersistPoint::Array};

BarChart::Bar named_bar(double value, const std::string& name) {
  return {value, fmt::format("{}: {:.2f}", name, value), 0, 0};
}

// --- the taxonomy paper ------------------------------------------------------------------------

/// A message costs the responder's CPU; how much, the paper does not say.
Result<Sensitivity> draw_figure_2(const FigureOptions& options) {
  Hardware hardware = default_hardware(Transport::InfiniBand);
  if (!options.files.hardware.empty()) {
    PERDURE_TRY(named, network_of(options.files.hardware));
    hardware = std::move(named);
  }
  BarChart chart;
  chart.title = "By what the server's CPU takes to handle a message, ns";
  chart.unit = "times";
  chart.bar_names = {"messages over one-sided, at most", "WRITE over message, compound, DMP",
                     "the same, MHP"};
  auto& panel = chart.panels.emplace_back();
  sim::RemotelogOptions one;
  one.records = 1;
  constexpr std::array kHandles{0.0, 200.0, 400.0, 800.0, 1600.0};
  RemotelogProgress progress(kHandles.size(), one);
  for (const double handle : kHandles) {
    hardware.server.handle = handle;
    PERDURE_TRY(rows, simulate_remotelog(hardware, one, progress));
    const std::vector<Claim> claims = remotelog_claims(rows);
    auto& group = panel.groups.emplace_back();
    group.label = fmt::format("{:.0f}", handle);
    for (const std::size_t i : {0U, 3U, 4U}) {
      group.bars.push_back(named_bar(claims[i].simulated, claims[i].what));
    }
  }
  return Sensitivity{chart.title, to_svg(chart)};
}

// --- the network -------------------------------------------------------------------------------

/// By another epoch's time s against the round trip R, and by the compute of a transaction.
Result<Sensitivity> draw_figure_4(const FigureOptions& options) {
  PERDURE_TRY(setup, read_network_setup(options.files));
  setup.device.reset();
  sim::NetworkOptions run;
  run.transactions = 100;
  BarChart chart;
  chart.title =
      "By s/R, what another epoch takes of a round trip, %; memory: " + describe_memory(setup);
  chart.unit = "times";
  chart.bar_names = {"bsp over sync"};
  chart.panels_per_row = 2;
  const NetworkHardware network = setup.hardware.network;
  const double implied = sim::implied_spacing(kFigure4Gain, run.shape.epochs);
  for (const double compute_us : {0.0, 1.0, 10.0, 100.0}) {
    run.shape.compute = sim::picoseconds(compute_us * 1e3);
    auto& panel = chart.panels.emplace_back();
    panel.title = fmt::format("{:.0f} us of compute", compute_us);
    for (const double share : {0.01, 0.02, 0.05, implied, 0.1, 0.2, 0.5, 1.0}) {
      setup.hardware.network = sim::with_spacing(network, run.shape.epoch_bytes, share);
      PERDURE_TRY(pair, simulate_pair(setup, run));
      const std::string label = fmt::format("{}", std::round(share * 1000) / 10);
      const std::string name = fmt::format("s/R {} %, {:.0f} us", label, compute_us);
      panel.groups.push_back({label, {named_bar(pair.gain(), name)}});
    }
  }
  return Sensitivity{chart.title, to_svg(chart)};
}

/// By compute for each application, or by size for hashmap: with each persist point.
Result<Sensitivity> draw_figure_12_or_13(int number, const FigureOptions& options) {
  PERDURE_TRY(setup, read_network_setup(options.files));
  PERDURE_TRY(applications, applications_of(options.applications));
  BarChart chart;
  const bool compute = number == 12;
  chart.title = compute ? "BSP over Sync by the compute of a transaction, us"
                        : "BSP over Sync by the bytes of an epoch, without compute";
  chart.unit = "times";
  for (const PersistPoint point : kPoints) {
    chart.bar_names.push_back(fmt::format("persisted at {}", to_string(point)));
  }
  const std::vector<double> values = compute ? std::vector<double>{0, 1, 10, 100, 1000}
                                             : std::vector<double>{128, 512, 2048, 8192};
  for (const sim::ClientApplication& each : applications) {
    if (!compute && each.name != "hashmap") continue;
    auto& panel = chart.panels.emplace_back();
    panel.title = each.name;
    for (const double value : values) {
      sim::NetworkOptions run;
      run.shape = each.shape;
      run.transactions = std::min(options.network_transactions,
                                  kWritingTransactions * 1000 / run.shape.writes_per_mille);
      if (compute) {
        run.shape.compute = sim::picoseconds(value * 1e3);
      } else {
        run.shape.epoch_bytes = static_cast<std::uint64_t>(value);
      }
      auto& group = panel.groups.emplace_back();
      group.label = fmt::format("{:.0f}", value);
      for (const PersistPoint point : kPoints) {
        setup.persist_point = point;
        PERDURE_TRY(pair, simulate_pair(setup, run));
        group.bars.push_back(named_bar(pair.gain(), std::string(to_string(point))));
      }
    }
  }
  return Sensitivity{chart.title, to_svg(chart)};
}

// --- the server --------------------------------------------------------------------------------

ServerRunOptions short_run(const FigureOptions& options) {
  ServerRunOptions server = options.server;
  server.device = options.files.device;
  server.processor = options.files.processor;
  server.workloads = {workload::StructureKind::Hash};
  server.orders = {Ordering::Epoch, Ordering::Broi};
  server.transactions = std::min<std::uint64_t>(server.transactions, 2000);
  server.warm_up = std::min<std::uint64_t>(server.warm_up, 3000);
  const std::uint64_t mib = server.footprint_mib;
  server.footprint_mib = mib == 0 ? 64 : std::min<std::uint64_t>(mib, 64);
  return server;
}

/// BROI over epoch with each of these, which both figures draw.
Result<std::vector<SharedRuns::Assumed>> gains_by_assumption(const FigureOptions& options,
                                                             BuiltStructures& structures) {
  const ServerRunOptions usual = short_run(options);
  PERDURE_TRY(setup, read_server_setup(usual));
  std::vector<SharedRuns::Assumed> all;
  // What is usual is in each panel, and simulated once.
  std::map<std::tuple<PersistPoint, workload::Logging, double, bool, bool>, ServerGain> gains;
  const auto add = [&](const ServerSetup& here, const ServerRunOptions& server,
                       std::string label) -> Result<void> {
    const memsys::ControllerOptions& controller = here.device.controller;
    const auto key = std::tuple(server.persist_point, server.logging, here.processor.sigma,
                                controller.one_queue, controller.hits_pipeline);
    auto gain = gains.find(key);
    if (gain == gains.end()) {
      PERDURE_TRY(rows, simulate_servers(here, server, structures));
      gain = gains.emplace(key, gain_of(rows)).first;
    }
    all.back().gains.emplace_back(std::move(label), gain->second);
    return {};
  };
  all.push_back({"persisted at", {}});
  for (const PersistPoint point : kPoints) {
    ServerRunOptions server = usual;
    server.persist_point = point;
    PERDURE_TRY_VOID(add(setup, server, std::string(to_string(point))));
  }
  all.push_back({"logging", {}});
  for (const auto logging : {workload::Logging::Undo, workload::Logging::UndoBatched,
                             workload::Logging::Redo, workload::Logging::Shadow}) {
    ServerRunOptions server = usual;
    server.logging = logging;
    PERDURE_TRY_VOID(add(setup, server, std::string(to_string(logging))));
  }
  all.push_back({"sigma of equation 2", {}});
  for (const double sigma : {0.0, 0.25, 1.0, 4.0}) {
    ServerSetup here = setup;
    here.processor.sigma = sigma;
    PERDURE_TRY_VOID(add(here, usual, fmt::format("{}", sigma)));
  }
  all.push_back({"reads and writes wait", {}});
  for (const bool together : {false, true}) {
    ServerSetup here = setup;
    here.device.controller.one_queue = together;
    PERDURE_TRY_VOID(add(here, usual, together ? "in one window" : "in two queues"));
  }
  all.push_back({"hits of an open row", {}});
  for (const bool pipeline : {true, false}) {
    ServerSetup here = setup;
    here.device.controller.hits_pipeline = pipeline;
    PERDURE_TRY_VOID(add(here, usual, pipeline ? "pipelined" : "one by one"));
  }
  return all;
}

Result<Sensitivity> draw_figure_9_or_10(int number, const FigureOptions& options,
                                        SharedRuns& shared) {
  const bool bus = number == 9;
  if (!shared.assumed_of_servers) {
    PERDURE_TRY(gains, gains_by_assumption(options, shared.structures));
    shared.assumed_of_servers = std::move(gains);
  }
  BarChart chart;
  chart.title = fmt::format("BROI over epoch, {}, hash, 64 MiB or less",
                            bus ? "memory throughput" : "operations");
  chart.unit = "times";
  chart.bar_names = {"broi over epoch"};
  for (const SharedRuns::Assumed& each : *shared.assumed_of_servers) {
    auto& panel = chart.panels.emplace_back();
    panel.title = each.title;
    for (const auto& [label, gain] : each.gains) {
      panel.groups.push_back({label, {named_bar(bus ? gain.bus : gain.operations, label)}});
    }
  }
  return Sensitivity{chart.title, to_svg(chart)};
}

/// Sixteen cores, whose memory and queues may be larger: each by itself, and all together.
Result<Sensitivity> draw_figure_11(const FigureOptions& options, BuiltStructures& structures) {
  const ServerRunOptions server = short_run(options);
  PERDURE_TRY(setup, read_server_setup(server));
  setup.processor.cores = 16;
  BarChart chart;
  chart.title = "Hash on 16 cores, more of each";
  chart.unit = "transactions/us";
  chart.bar_names = {"epoch", "broi"};
  using Grow = ServerScale (*)(std::uint32_t);
  const std::pair<const char*, Grow> panels[] = {{"banks",
                                                  [](std::uint32_t by) {
                                                    return ServerScale{by, 1, 1};
                                                  }},
                                                 {"queues of the controller",
                                                  [](std::uint32_t by) {
                                                    return ServerScale{1, by, 1};
                                                  }},
                                                 {"persist buffers and queues",
                                                  [](std::uint32_t by) {
                                                    return ServerScale{1, 1, by};
                                                  }},
                                                 {"all three", [](std::uint32_t by) {
                                                    return ServerScale{by, by, by};
                                                  }}};
  // Each panel begins with the memory and queues of the file: simulated once.
  std::vector<ServerRow> as_the_file;
  for (const auto& [title, grow] : panels) {
    auto& panel = chart.panels.emplace_back();
    panel.title = title;
    for (const std::uint32_t by : {1U, 2U, 4U, 8U}) {
      if (setup.device.geometry.rows % by != 0) continue;
      std::vector<ServerRow> rows;
      if (by == 1) rows = as_the_file;
      if (rows.empty()) {
        PERDURE_TRY(made, simulate_servers(scaled(setup, grow(by)), server, structures));
        rows = std::move(made);
      }
      if (by == 1) as_the_file = rows;
      auto& group = panel.groups.emplace_back();
      group.label = fmt::format("x {}", by);
      for (const ServerRow& row : rows) {
        group.bars.push_back(
            named_bar(row.result.transactions_per_us(), std::string(to_string(row.order))));
      }
    }
  }
  return Sensitivity{chart.title, to_svg(chart)};
}

}  // namespace

/// The runs of the servers only: those of the network are shorter forms of the figures' own.
Result<void> check_sensitivity(int number, const FigureOptions& options) {
  if (number < 9 || number > 11) return {};
  const ServerRunOptions server = short_run(options);
  PERDURE_TRY(setup, read_server_setup(server));
  if (number == 11) setup.processor.cores = 16;
  return check_servers(setup, server);
}

Result<Sensitivity> draw_sensitivity(int number, const FigureOptions& options, SharedRuns& shared) {
  switch (number) {
    case 2: return draw_figure_2(options);
    case 4: return draw_figure_4(options);
    case 11: return draw_figure_11(options, shared.structures);
    case 12:
    case 13: return draw_figure_12_or_13(number, options);
    default: return draw_figure_9_or_10(number, options, shared);
  }
}

}  // namespace perdure::app
