// `perdure bench rpc`: the RPC designs that durable RPC is compared with, and the figures of its
// paper made again with them.
#include "bench/rpc_failures.h"
#include "bench/rpc_figures.h"
#include "bench_commands.h"
#include "core/json.h"
#include "core/text_file.h"
#include "core/try.h"
#include "output.h"
#include "report/page.h"
#include "report/progress.h"
#include "rpc/models/design.h"
#include "testing/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace perdure::app {
namespace {

struct RpcArguments {
  std::string figure;
  std::string explain;
  std::string fabric = "shm";
  std::string designs;
  std::string graphs;
  bench::RpcScale scale;
  bench::RpcRunOptions run;
  bench::RpcFailureOptions failures;
  std::string keep;
  Format format = Format::Text;
  std::string output;
  std::string report;
};

std::string design_names() {
  std::string names;
  for (const rpc::models::Design* design : rpc::models::designs()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", design->name);
  }
  return names;
}

Result<const rpc::models::Design*> named_design(const std::string& name) {
  if (const auto* design = rpc::models::find_design(name)) return design;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("there is no design '{}'; there are: {}", name, design_names())};
}

Result<void> check_design(const std::string& name) {
  PERDURE_TRY_VOID(named_design(name));
  return {};
}

Result<std::vector<const rpc::models::Design*>> named_designs(const std::string& names) {
  std::vector<const rpc::models::Design*> designs;
  for (const std::string& name : words_between(names, ",")) {
    PERDURE_TRY(design, named_design(name));
    designs.push_back(design);
  }
  return designs;
}

Result<std::vector<bench::RpcFigure>> chosen_figures(const RpcArguments& arguments) {
  std::vector<bench::RpcFigure> all = bench::rpc_figures(arguments.scale);
  if (arguments.figure == "all") return all;
  if (arguments.figure == "12") return std::vector<bench::RpcFigure>{};
  std::vector<bench::RpcFigure> one;
  for (bench::RpcFigure& figure : all) {
    if (figure.name == arguments.figure) one.push_back(std::move(figure));
  }
  if (!one.empty()) return one;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("there is no figure '{}'; there are: {}, or all", arguments.figure,
                           bench::rpc_figure_names())};
}

Result<std::vector<bench::RpcFigureResult>> run_figures(const RpcArguments& arguments,
                                                        std::vector<bench::RpcFigure> figures) {
  bench::RpcResults kept;
  if (!arguments.keep.empty()) {
    PERDURE_TRY(opened, bench::RpcResults::open(arguments.keep));
    kept = std::move(opened);
  }
  std::uint64_t total = 0;
  for (bench::RpcFigure& figure : figures) {
    const std::uint64_t runs = bench::rpc_runs(figure, arguments.run);
    if (runs > 0) PERDURE_TRY_VOID(bench::make_rpc_graphs(figure, arguments.scale.seed));
    total += runs;
  }
  if (arguments.figure == "all" && total == 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("of no figure over {} can be run anything with the designs '{}'",
                             arguments.fabric, arguments.designs)};
  }
  report::ProgressBar progress(total);
  std::uint64_t before = 0;
  std::vector<bench::RpcFigureResult> results;
  for (bench::RpcFigure& figure : figures) {
    // Of all figures, those of which the designs that were chosen can run something.
    if (arguments.figure == "all" && bench::rpc_runs(figure, arguments.run) == 0) {
      progress.clear();
      print_warning(fmt::format("figure {} is left out: nothing of it can be run", figure.name));
      continue;
    }
    const auto show = [&](std::uint64_t made, const std::string& what) {
      progress.show(before + made, fmt::format("figure {}: {}", figure.name, what));
    };
    PERDURE_TRY(rows, bench::run_rpc_figure(figure, arguments.run, kept, show));
    before += bench::rpc_runs(figure, arguments.run);
    results.push_back({std::move(figure), arguments.run.fabric, std::move(rows)});
  }
  return results;
}

/// Figure 12 is no grid of loads and designs.
Result<std::vector<bench::RpcFailureRow>> run_failures(const RpcArguments& arguments) {
  const bool is_asked = arguments.figure == "12" || arguments.figure == "all";
  const bool is_emulated = arguments.failures.fabric == bench::RpcFabric::Emu;
  if (!is_asked || is_emulated) return std::vector<bench::RpcFailureRow>{};
  report::ProgressBar progress(bench::kRpcFailureRows);
  std::uint64_t made = 0;
  return bench::run_rpc_failures(arguments.failures, [&](const std::string& what) {
    progress.show(made++, "figure 12: " + what);
  });
}

report::Setup setup_of(const RpcArguments& arguments) {
  report::Setup setup = report::machine_setup();
  setup.add("Fabric", arguments.run.fabric == bench::RpcFabric::Emu
                          ? "emu, emulated: InfiniBand, DDIO off, persistent receive buffers, "
                            "SFLUSH; its times are made of edr-one-switch.toml"
                          : fmt::format("{}, measured: client and server are processes of one "
                                        "host, both spinning",
                                        to_string(arguments.run.fabric)));
  if (arguments.run.fabric != bench::RpcFabric::Emu) {
    setup.add("Durability",
              "memory of this host stands in for persistent memory: the CPU's flushes of lines are "
              "real, and the READ of WFlush-RPC takes its time but proves nothing of this memory");
  }
  setup.add("n", fmt::format("{} rounds; median, and lowest to highest; calls of a round: in the "
                             "JSON, by load",
                             arguments.run.rounds));
  setup.add("Paper form",
            "the paper's text: others one call in flight, its own up to 16 that are "
            "durable and not executed");
  setup.add("Artifact form", "the published code: all confounders");
  setup.add("Equalised", fmt::format("{} calls in flight for all, begun and not answered; all "
                                     "executed, all lines flushed, all replies delivered",
                                     arguments.run.window));
  setup.add("Seed", fmt::format("{}, and one more each round", arguments.scale.seed));
  return setup;
}

std::string text_of(const RpcArguments& arguments,
                    const std::vector<bench::RpcFigureResult>& results,
                    const std::vector<bench::RpcFailureRow>& failures, const report::Setup& setup) {
  if (arguments.format == Format::Json) {
    return bench::rpc_json(results, bench::rpc_failures_json(failures, arguments.failures), setup);
  }
  std::string text = setup.text();
  for (const bench::RpcFigureResult& result : results) text += "\n" + bench::rpc_text(result);
  if (!failures.empty()) text += "\n" + bench::rpc_failures_text(failures, arguments.failures);
  return text;
}

Result<bool> bench_rpc(const RpcArguments& arguments) {
  const test::InterruptGuard guard;
  PERDURE_TRY(figures, chosen_figures(arguments));
  PERDURE_TRY(results, run_figures(arguments, std::move(figures)));
  PERDURE_TRY(failures, run_failures(arguments));
  const report::Setup setup = setup_of(arguments);
  const std::string text = text_of(arguments, results, failures, setup);
  if (arguments.output.empty()) {
    print(text);
  } else {
    PERDURE_TRY_VOID(write_file(arguments.output, text));
  }
  bool good = true;
  for (const bench::RpcFigureResult& result : results) {
    for (const bench::RpcRow& row : result.rows) good = good && row.failure.empty();
  }
  for (const bench::RpcFailureRow& row : failures) good = good && row.failure.empty();
  if (arguments.report.empty()) return good;
  report::ReportPage page("RPC designs beside durable RPC",
                          "The figures of the *durable RPC* paper, made again: as its text has "
                          "them, as its published code runs, and with equal windows, equal work "
                          "and equal flushing for all.");
  page.verdict(good, good ? "All runs went through; every reply was that of its call."
                          : "Some runs failed: see the tables.");
  for (const bench::RpcFigureResult& result : results) bench::add_rpc_figure(page, result);
  if (!failures.empty()) bench::add_rpc_failures(page, failures, arguments.failures);
  page.setup(setup);
  PERDURE_TRY_VOID(page.write(arguments.report));
  return good;
}

ExitStatus run(RpcArguments arguments) {
  if (!arguments.explain.empty()) {
    print(rpc::models::explain(*rpc::models::find_design(arguments.explain)));
    return ExitStatus::Ok;
  }
  if (arguments.figure.empty()) {
    print_error(
        {ErrorCode::InvalidArgument, fmt::format("which figure: {}, or all? Or --explain a design",
                                                 bench::rpc_figure_names())});
    return ExitStatus::Usage;
  }
  const auto fabric = bench::parse_rpc_fabric(arguments.fabric);
  if (!fabric.ok()) return fail(fabric.error());
  arguments.run.fabric = *fabric;
  arguments.failures.fabric = *fabric;
  arguments.failures.seed = arguments.scale.seed;
  if (*fabric == bench::RpcFabric::Emu && arguments.figure == "12") {
    return fail({ErrorCode::InvalidArgument, "figure 12 kills processes: over shm or tcp"});
  }
  if (arguments.figure == "12" || arguments.figure == "all") {
    if (const auto fits = bench::check_rpc_failures(arguments.failures); !fits.ok()) {
      return fail(fits.error());  // before hours of other figures
    }
  }
  const auto designs = named_designs(arguments.designs);
  if (!designs.ok()) return fail(designs.error());
  arguments.run.designs = *designs;
  for (const std::string& file : words_between(arguments.graphs, ",")) {
    auto& graphs = arguments.scale.graphs;
    if (std::find(graphs.begin(), graphs.end(), file) == graphs.end()) graphs.push_back(file);
  }
  if (!arguments.graphs.empty() && arguments.scale.graphs.empty()) {
    return fail({ErrorCode::InvalidArgument, "--graphs names no file"});
  }
  if (!arguments.graphs.empty() && arguments.figure != "10" && arguments.figure != "all") {
    return fail({ErrorCode::InvalidArgument, "--graphs are for figure 10 alone"});
  }
  const auto good = bench_rpc(arguments);
  if (!good.ok()) return fail(good.error());
  return *good ? ExitStatus::Ok : ExitStatus::Failed;
}

}  // namespace

void add_bench_rpc(Command bench) {
  const Command command =
      bench.add_subcommand("rpc", "RPC designs over RDMA that durable RPC is compared with");
  auto arguments = std::make_shared<RpcArguments>();
  command
      .add_option("figure", arguments->figure,
                  fmt::format("Figure of the paper: {}; or all", bench::rpc_figure_names()))
      .option_text("FIGURE");
  command
      .add_option("--explain", arguments->explain, "Draw a call of that design: " + design_names())
      .each(check_design)
      .option_text("NAME");
  command.add_option("--fabric", arguments->fabric, "shm or tcp, measured; emu, emulated")
      .is_member({"emu", "shm", "tcp"})
      .capture_default();
  command.add_option("--designs", arguments->designs,
                     "Only these, with commas; else those of the paper's figures");
  command
      .add_option("--graphs", arguments->graphs,
                  "For figure 10, in place of generated graphs: files with an edge, the numbers of "
                  "two vertices, in each line; with commas")
      .option_text("FILES");
  command.add_flag("--confounders", arguments->run.confounders,
                   "Also the equalised form with each confounder alone");
  command.add_flag("--full", arguments->scale.full,
                   "As many objects and calls as the paper has; takes hours");
  command.add_option("--calls", arguments->scale.calls, "Of a client in a round; else by load")
      .range(std::uint64_t{1}, std::uint64_t{1'000'000'000});
  command.add_option("--rounds", arguments->run.rounds, "Rounds of each point")
      .range(std::size_t{1}, std::size_t{1000})
      .capture_default();
  command.add_option("--window", arguments->run.window, "Calls in flight in the equalised form")
      .range(std::size_t{1}, rpc::models::kWindowMax)
      .capture_default();
  command
      .add_option("--failures", arguments->failures.failures, "Of the server in a run of figure 12")
      .range(std::uint64_t{1}, std::uint64_t{100'000})
      .capture_default();
  command.add_option("--seed", arguments->scale.seed, "Of the order of reads and writes")
      .capture_default();
  add_result_file_option(command, "--keep", arguments->keep,
                         "Keep samples there; a run that was ended goes on from them");
  add_format_option(command, arguments->format);
  add_result_file_option(command, "--output", arguments->output, "Write the result there");
  add_result_file_option(command, "--report", arguments->report, "Write an HTML report there");
  add_examples(command,
               "  perdure bench rpc --explain farm\n"
               "  perdure bench rpc 8\n"
               "  perdure bench rpc 10 --graphs enron.txt,dblp.txt --full\n"
               "  perdure bench rpc 12 --failures 20\n"
               "  perdure bench rpc 13 --fabric emu --designs farm,wflush,w-rflush\n"
               "  perdure bench rpc all --keep samples.jsonl --report rpc.html\n");
  run_with(command, [arguments] { return run(*arguments); });
}

}  // namespace perdure::app
