#include "bench/rpc_figures.h"

#include "core/crc32c.h"
#include "core/try.h"
#include "testing/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace perdure::bench {
namespace {

namespace models = rpc::models;
using models::Design;

const std::vector<const Design*> kWriteOwn{&models::kWflush, &models::kWRflush};
const std::vector<const Design*> kWriteOthers{&models::kL5, &models::kRfp, &models::kOctopus,
                                              &models::kFarm, &models::kScalerpc};
const std::vector<const Design*> kSendOwn{&models::kSflush, &models::kSRflush};
const std::vector<const Design*> kSendOthers{&models::kDarpc};

/// The designs of the paper's figures, in their order.
const std::vector<const Design*> kPaperDesigns{
    &models::kL5,     &models::kRfp,      &models::kFasst, &models::kOctopus,
    &models::kFarm,   &models::kScalerpc, &models::kDarpc, &models::kSRflush,
    &models::kSflush, &models::kWRflush,  &models::kWflush};

constexpr Nanoseconds kHeavyWork{100'000};
/// Bytes of all objects of a server, unless all of the paper's are asked for.
constexpr std::uint64_t kObjectBytesMax = std::uint64_t{64} << 20;
constexpr std::uint64_t kPaperObjects = 50'000;
constexpr std::uint64_t kPaperCalls = 300'000;

/// The load that figures vary.
RpcLoad load_of(const RpcScale& scale, std::uint64_t object_bytes) {
  RpcLoad load;
  load.object_bytes = object_bytes;
  load.seed = scale.seed;
  if (scale.full) {
    load.objects = kPaperObjects;
    load.calls = kPaperCalls;
    load.warm_up = 1000;
  } else {
    load.objects = std::min(kPaperObjects, kObjectBytesMax / object_bytes);
    load.calls = object_bytes >= 16 * 1024 ? 400 : 1000;
    load.warm_up = 100;
  }
  if (scale.calls > 0) load.calls = scale.calls;
  return load;
}

RpcCell heavy(std::string label, RpcLoad load, bool is_counted_down) {
  load.processing = kHeavyWork;
  // A call takes 100 us at least, so fewer of them say as much.
  if (is_counted_down) load.calls = std::min<std::uint64_t>(load.calls, 400);
  return {std::move(label), load};
}

RpcFigure figure_8(const RpcScale& scale) {
  RpcFigure figure{"8", "Throughput in micro-benchmarks", RpcQuantity::CallsPerSecond, {}, {}, {}};
  const bool down = !scale.full && scale.calls == 0;
  const std::array<std::pair<const char*, std::uint64_t>, 3> sizes{
      {{"32 B", 32}, {"1 KiB", 1024}, {"64 KiB", 64 * 1024}}};
  for (const auto& [name, bytes] : sizes) {
    figure.cells.push_back(heavy(fmt::format("heavy, {}", name), load_of(scale, bytes), down));
  }
  for (const auto& [name, bytes] : sizes) {
    figure.cells.push_back({fmt::format("light, {}", name), load_of(scale, bytes)});
  }
  figure.claims = {
      {"heavy load, WRITEs",
       "+58 % to +85 %",
       kWriteOwn,
       kWriteOthers,
       {"heavy, 32 B", "heavy, 1 KiB", "heavy, 64 KiB"}},
      {"heavy load, SENDs",
       "+43 % to +69 %",
       kSendOwn,
       kSendOthers,
       {"heavy, 32 B", "heavy, 1 KiB", "heavy, 64 KiB"}},
      {"light load, small, WRITEs",
       "moderate",
       kWriteOwn,
       kWriteOthers,
       {"light, 32 B", "light, 1 KiB"}},
      {"light load, 64 KiB, WRITEs", "+20 % to +90 %", kWriteOwn, kWriteOthers, {"light, 64 KiB"}},
      {"light load, 64 KiB, SENDs", "+42 %", kSendOwn, kSendOthers, {"light, 64 KiB"}},
  };
  return figure;
}

RpcFigure figure_9(const RpcScale& scale) {
  RpcFigure figure{"9", "99th percentile latency", RpcQuantity::P99Latency, {}, {}, {}};
  figure.cells = {{"1 KiB", load_of(scale, 1024)}, {"64 KiB", load_of(scale, 64 * 1024)}};
  figure.claims = {{"SENDs", "-10 %", kSendOwn, kSendOthers, {}},
                   {"1 KiB, WRITEs", "-49 %", kWriteOwn, kWriteOthers, {"1 KiB"}},
                   {"64 KiB, WRITEs", "-24 %", kWriteOwn, kWriteOthers, {"64 KiB"}}};
  return figure;
}

RpcFigure figure_10(const RpcScale& scale) {
  constexpr std::uint64_t kGraphBlockBytes = 2048;  // FaSST carries no 4 KiB
  RpcFigure figure{"10", "PageRank, time until all ranks are there", RpcQuantity::TotalTime, {}, {},
                   {}};
  RpcLoad load = load_of(scale, kGraphBlockBytes);
  load.warm_up = 0;
  const std::uint64_t iterations = scale.full && scale.calls == 0 ? 20 : 0;
  if (scale.calls == 0) load.calls = 12'000;  // DBLP twice
  const auto add = [&](std::string label, RpcGraphSource source) {
    source.iterations = iterations;
    figure.cells.push_back({std::move(label), load, std::move(source)});
  };
  for (const std::string& file : scale.graphs) {
    add(file, {0, 0, file});
  }
  if (scale.graphs.empty()) {
    // Section 5.1 of *durable RPC*.
    add("word association", {10'000, 72'000});
    add("Enron", {69'000, 276'000});
    add("DBLP", {326'000, 1'615'000});
  }
  figure.claims = {{"SENDs", "-8 % to -30 %", kSendOwn, kSendOthers, {}},
                   {"WRITEs", "-8 % to -38 %", kWriteOwn, kWriteOthers, {}}};
  figure.note = fmt::format(
      "{} The client reads the graph in blocks of 2 KiB, all of them in each iteration, and "
      "computes between calls; there are no writes. {} Ranks are compared with those that are "
      "computed without calls. The paper says neither how much a call reads nor how many "
      "iterations there are. Emulated, computing takes no time.",
      iterations == 0
          ? fmt::format("As many iterations as {} calls make, one at least.", load.calls)
          : fmt::format("{} iterations.", iterations),
      scale.graphs.empty() ? "The graphs have the vertices and edges that the paper says, and "
                             "degrees of a power law with exponent 3."
                           : "The graphs are those of the files.");
  return figure;
}

RpcFigure figure_11(const RpcScale& scale) {
  RpcFigure figure{"11", "YCSB, mean latency of a call", RpcQuantity::MeanLatency, {}, {}, {}};
  for (const char name : {'A', 'B', 'C', 'D', 'E', 'F'}) {
    RpcLoad load = load_of(scale, 4096);
    load.ycsb = name;
    figure.cells.push_back({std::string(1, name), load});
  }
  figure.claims = {{"A and E, WRITEs", "up to -50 %", kWriteOwn, kWriteOthers, {"A", "E"}},
                   {"SENDs", "-7 % to -23 %", kSendOwn, kSendOthers, {}},
                   {"B, C and D, WRITEs", "moderate", kWriteOwn, kWriteOthers, {"B", "C", "D"}}};
  figure.note =
      "A scan reads its records one call after another, up to 100 of them; the published artifact "
      "scans 1 to 10. Exponent 0.99; the artifact has 1.3 and values of 1,024 B.";
  return figure;
}

RpcFigure figure_13(const RpcScale& scale) {
  RpcFigure figure{"13", "Mean latency by object size", RpcQuantity::MeanLatency, {}, {}, {}};
  for (const unsigned bytes : {64U, 256U, 1024U, 4096U, 16384U, 65536U}) {
    figure.cells.push_back(
        {bytes < 1024 ? fmt::format("{} B", bytes) : fmt::format("{} KiB", bytes / 1024),
         load_of(scale, bytes)});
  }
  figure.claims = {{"WRITEs", "always less", kWriteOwn, kWriteOthers, {}},
                   {"SENDs", "always less", kSendOwn, kSendOthers, {}}};
  return figure;
}

RpcFigure figure_14(const RpcScale& scale) {
  RpcFigure figure{"14", "Mean latency when the network is busy", RpcQuantity::MeanLatency, {}, {},
                   {}};
  RpcLoad load = load_of(scale, 64 * 1024);
  figure.cells.push_back({"idle", load});
  load.network_clients = 1;
  figure.cells.push_back({"busy", load});
  figure.claims = {{"busy, W-RFlush-RPC", "-43 %", {&models::kWRflush}, kWriteOthers, {"busy"}},
                   {"busy, S-RFlush-RPC", "-45 %", {&models::kSRflush}, kSendOthers, {"busy"}}};
  figure.note =
      "Busy: another pair of processes sends small messages without a pause. On one host it takes "
      "processors from those that are measured as well as the network.";
  return figure;
}

RpcFigure figure_15(const RpcScale& scale) {
  RpcFigure figure{
      "15", "Mean latency when the receiver's CPU is busy", RpcQuantity::MeanLatency, {}, {}, {}};
  RpcLoad load = load_of(scale, 64 * 1024);
  load.pinned = true;
  figure.cells.push_back({"idle", load});
  load.server_spinners = 1;
  figure.cells.push_back({"busy", load});
  figure.claims = {
      {"busy, WRITEs", "lower, growth relative to idle higher", kWriteOwn, kWriteOthers, {"busy"}},
      {"busy, SENDs", "lower", kSendOwn, kSendOthers, {"busy"}}};
  figure.note =
      "Client and server have a processor each; a process that computes shares one of "
      "them.";
  return figure;
}

RpcFigure figure_16(const RpcScale& scale) {
  RpcFigure figure{
      "16", "Mean latency when the sender's CPU is busy", RpcQuantity::MeanLatency, {}, {}, {}};
  RpcLoad load = load_of(scale, 64 * 1024);
  load.pinned = true;
  figure.cells.push_back({"idle", load});
  load.client_spinners = 1;
  figure.cells.push_back({"busy", load});
  figure.claims = {{"busy, WRITEs", "all grow", kWriteOwn, kWriteOthers, {"busy"}},
                   {"busy, SENDs", "all grow", kSendOwn, kSendOthers, {"busy"}}};
  figure.note = "As in figure 15.";
  return figure;
}

RpcFigure figure_17(const RpcScale& scale) {
  RpcFigure figure{"17", "Mean latency by concurrent senders", RpcQuantity::MeanLatency, {}, {},
                   {}};
  for (const unsigned clients : {1U, 4U, 16U, 64U}) {
    RpcLoad load = load_of(scale, 1024);
    load.clients = clients;
    load.objects = std::min<std::uint64_t>(load.objects, 4096);
    if (scale.full) load.calls = 30'000;
    if (!scale.full && scale.calls == 0) {
      load.calls = std::max<std::uint64_t>(50, 1000 / clients);
      load.warm_up = 10;
    }
    figure.cells.push_back({fmt::format("{} senders", clients), load});
  }
  figure.claims = {
      {"64 senders, WRITEs", "stable, others grow", kWriteOwn, kWriteOthers, {"64 senders"}},
      {"64 senders, SENDs", "stable, others grow", kSendOwn, kSendOthers, {"64 senders"}}};
  figure.note =
      "1 KiB. The senders are connections of one process that goes round them, and the "
      "server is one thread that does the same; the artifact forks a process for each.";
  return figure;
}

RpcFigure figure_18(const RpcScale& scale) {
  RpcFigure figure{"18", "Mean latency by share of reads", RpcQuantity::MeanLatency, {}, {}, {}};
  for (const unsigned reads : {95U, 50U, 5U}) {
    RpcLoad load = load_of(scale, 64 * 1024);
    load.read_percent = reads;
    figure.cells.push_back({fmt::format("{} % reads", reads), load});
  }
  figure.claims = {
      {"95 % reads, WRITEs", "similar", kWriteOwn, kWriteOthers, {"95 % reads"}},
      {"5 % reads, WRITEs", "-63 % to -71 %", kWriteOwn, kWriteOthers, {"5 % reads"}},
      {"5 % reads, SENDs", "1.3 and 3.1 times less", kSendOwn, kSendOthers, {"5 % reads"}}};
  return figure;
}

RpcFigure figure_19(const RpcScale& scale) {
  RpcFigure figure{"19", "Total time by batch size", RpcQuantity::TotalTime, {}, {}, {}};
  for (const unsigned batch : {1U, 4U, 16U}) {
    RpcLoad load = load_of(scale, 1024);
    load.batch = batch;
    load.calls /= batch;
    load.warm_up /= batch;
    figure.cells.push_back({fmt::format("batch {}", batch), load});
  }
  figure.claims = {
      {"batch 16, WRITEs",
       "significantly reduced by batching",
       kWriteOwn,
       kWriteOthers,
       {"batch 16"}},
      {"batch 16, SENDs", "not that significant", kSendOwn, kSendOthers, {"batch 16"}}};
  figure.note =
      "1 KiB; a call carries so many requests, and one flush makes all of them durable. "
      "The published artifact has a batch of 1.";
  return figure;
}

RpcFigure figure_20(const RpcScale& scale) {
  RpcFigure figure{"20", "Where the time of a call goes, YCSB A", RpcQuantity::MeanLatency, {}, {},
                   {}};
  RpcLoad load = load_of(scale, 4096);
  load.ycsb = 'A';
  figure.cells.push_back({"A", load});
  figure.note =
      "Sender: building, posting and taking in the client. Receiver: the server's pump "
      "of a call, which of durable designs is not waited for. The rest is the network "
      "and waiting. The paper says: software is at most 7 % of durable RPCs.";
  return figure;
}

std::vector<const Design*> designs_of(const RpcRunOptions& options) {
  return options.designs.empty() ? kPaperDesigns : options.designs;
}

/// All rows of a figure, without rounds.
std::vector<RpcRow> rows_of(const RpcFigure& figure, const RpcRunOptions& options) {
  std::vector<RpcRow> rows;
  for (const RpcCell& cell : figure.cells) {
    for (const Design* design : designs_of(options)) {
      const auto add = [&](RpcForm form, const RpcConfounder* confounder) {
        RpcRow row;
        row.point = {design, options.fabric, form, options.window, {}, cell.load};
        row.cell = cell.label;
        if (confounder != nullptr) {
          row.point.confounders.*confounder->flag = true;
          row.confounder = confounder->name;
        }
        row.failure = row.point.impossible();
        if (row.failure.empty()) rows.push_back(std::move(row));
      };
      for (const RpcForm form : kRpcForms) add(form, nullptr);
      if (!options.confounders) continue;
      for (const RpcConfounder& each : rpc_confounders()) add(RpcForm::Equalised, &each);
    }
  }
  return rows;
}

/// Why a figure has no rows: what each design lacks, and which designs have some.
Error nothing_to_run(const RpcFigure& figure, const RpcRunOptions& options) {
  std::string why;
  for (const Design* design : designs_of(options)) {
    const RpcPoint point{design, options.fabric,           RpcForm::Paper, options.window,
                         {},     figure.cells.front().load};
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", design->name, point.impossible());
  }
  std::string others;
  for (const Design* design : models::designs()) {
    RpcRunOptions alone = options;
    alone.designs = {design};
    if (rows_of(figure, alone).empty()) continue;
    others += fmt::format("{}{}", others.empty() ? "" : ", ", design->name);
  }
  return {ErrorCode::InvalidArgument,
          fmt::format("figure {} over {} has nothing to run ({}); there can be run: {}",
                      figure.name, to_string(options.fabric), why, others)};
}

}  // namespace

std::string_view unit_of(RpcQuantity quantity) {
  switch (quantity) {
    case RpcQuantity::CallsPerSecond: return "calls/s";
    case RpcQuantity::MeanLatency:
    case RpcQuantity::P99Latency: return "us";
    case RpcQuantity::TotalTime: return "s";
  }
  return "?";
}

double value_of(RpcQuantity quantity, const RpcSample& sample) {
  switch (quantity) {
    case RpcQuantity::CallsPerSecond: return sample.calls_per_second();
    case RpcQuantity::MeanLatency: return sample.mean_us;
    case RpcQuantity::P99Latency: return sample.p99_us;
    case RpcQuantity::TotalTime: return sample.seconds;
  }
  return 0;
}

std::vector<RpcFigure> rpc_figures(const RpcScale& scale) {
  return {figure_8(scale),  figure_9(scale),  figure_10(scale), figure_11(scale),
          figure_13(scale), figure_14(scale), figure_15(scale), figure_16(scale),
          figure_17(scale), figure_18(scale), figure_19(scale), figure_20(scale)};
}

std::string rpc_figure_names() {
  std::string names;
  for (const RpcFigure& figure : rpc_figures({})) {
    if (figure.name == "13") names += ", 12";
    names += fmt::format("{}{}", names.empty() ? "" : ", ", figure.name);
  }
  return names;
}

double RpcRow::median(RpcQuantity quantity) const {
  std::vector<double> values;
  for (const RpcSample& sample : rounds) values.push_back(value_of(quantity, sample));
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double RpcRow::low(RpcQuantity quantity) const {
  double least = rounds.empty() ? 0 : value_of(quantity, rounds.front());
  for (const RpcSample& sample : rounds) least = std::min(least, value_of(quantity, sample));
  return least;
}

double RpcRow::high(RpcQuantity quantity) const {
  double most = 0;
  for (const RpcSample& sample : rounds) most = std::max(most, value_of(quantity, sample));
  return most;
}

std::uint64_t RpcRow::lost() const {
  std::uint64_t all = 0;
  for (const RpcSample& sample : rounds) all += sample.lost;
  return all;
}

std::uint64_t rpc_runs(const RpcFigure& figure, const RpcRunOptions& options) {
  return rows_of(figure, options).size() * options.rounds;
}

Result<void> make_rpc_graphs(RpcFigure& figure, std::uint64_t seed) {
  for (RpcCell& cell : figure.cells) {
    if (!cell.graph) continue;
    const RpcGraphSource& source = *cell.graph;
    auto made = std::make_shared<RpcGraph>();
    if (source.file.empty()) {
      made->graph = workload::generate_graph(source.vertices, source.edges, seed);
    } else {
      PERDURE_TRY(read, workload::read_edge_list(source.file));
      made->graph = std::move(read);
    }
    made->blocks = workload::graph_blocks(made->graph, cell.load.object_bytes);
    cell.load.objects = made->blocks.size() / cell.load.object_bytes;
    made->iterations = source.iterations > 0
                           ? source.iterations
                           : std::max<std::uint64_t>(1, cell.load.calls / cell.load.objects);
    made->ranks = workload::page_rank(made->graph, made->iterations);
    made->name = fmt::format("{} ({} vertices, {} edges, {:08x})", cell.label,
                             made->graph.vertices(), made->graph.edges(), crc32c(made->blocks));
    cell.load.calls = cell.load.objects * made->iterations;
    cell.load.graph = std::move(made);
  }
  return {};
}

Result<std::vector<RpcRow>> run_rpc_figure(const RpcFigure& figure, const RpcRunOptions& options,
                                           RpcResults& results, const RpcProgress& progress) {
  std::vector<RpcRow> rows = rows_of(figure, options);
  if (rows.empty()) return nothing_to_run(figure, options);
  std::uint64_t made = 0;
  for (std::size_t round = 0; round < options.rounds; ++round) {
    for (RpcRow& row : rows) {
      progress(made++, fmt::format("{} {} {}", row.point.design->title, row.cell,
                                   to_string(row.point.form)));
      PERDURE_TRY_VOID(test::InterruptGuard::check());
      if (!row.failure.empty()) continue;
      RpcPoint point = row.point;
      point.load.seed += round;
      if (const RpcSample* known = results.find(point, round)) {
        row.rounds.push_back(*known);
        continue;
      }
      const auto sample = run_rpc_point(point);
      if (!sample.ok()) {
        PERDURE_TRY_VOID(test::InterruptGuard::check());
        row.failure = sample.error().message;
        continue;
      }
      PERDURE_TRY_VOID(results.add(point, round, *sample));
      row.rounds.push_back(*sample);
    }
  }
  return rows;
}

std::optional<RpcGain> gain_of(const RpcFigure& figure, const RpcClaim& claim,
                               std::span<const RpcRow> rows, RpcForm form,
                               std::string_view confounder) {
  const auto value = [&](const Design* design, const std::string& cell) -> std::optional<double> {
    // A confounder that says nothing of a design leaves it as it is.
    for (const RpcRow& row : rows) {
      if (row.point.design == design && row.cell == cell && row.point.form == form &&
          row.confounder == confounder && row.is_whole()) {
        return row.median(figure.quantity);
      }
    }
    return std::nullopt;
  };
  std::optional<RpcGain> all;
  for (const RpcCell& cell : figure.cells) {
    const bool is_meant = claim.cells.empty() || std::find(claim.cells.begin(), claim.cells.end(),
                                                           cell.label) != claim.cells.end();
    if (!is_meant) continue;
    for (const Design* own : claim.own) {
      for (const Design* other : claim.others) {
        const auto ours = value(own, cell.label);
        const auto theirs = value(other, cell.label);
        if (!ours || !theirs || *theirs <= 0) continue;
        const double gain = *ours / *theirs - 1;
        all =
            all ? RpcGain{std::min(all->from, gain), std::max(all->to, gain)} : RpcGain{gain, gain};
      }
    }
  }
  return all;
}

std::string gain_text(const std::optional<RpcGain>& gain) {
  if (!gain) return "not run";
  const std::string from = fmt::format("{:+.0f} %", gain->from * 100);
  const std::string to = fmt::format("{:+.0f} %", gain->to * 100);
  return from == to ? from : from + " to " + to;
}

}  // namespace perdure::bench
