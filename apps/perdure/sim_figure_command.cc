// `perdure sim figure N` and `perdure sim all`: the papers' figures simulated, each beside
// what its paper says, and whether that is within what is accepted.
#include "core/json.h"
#include "core/try.h"
#include "output.h"
#include "profile_options.h"
#include "report/page.h"
#include "sim_commands.h"
#include "sim_figures.h"
#include "sim_files.h"
#include "sim_sensitivity.h"

#include <fmt/format.h>

#include <memory>

namespace perdure::app {

Result<void> check_figure(int number, const FigureOptions& options) {
  switch (number) {
    case 2: {
      if (options.files.hardware.empty()) return {};
      PERDURE_TRY(hardware, read_hardware(options.files.hardware));
      static_cast<void>(hardware);
      return {};
    }
    case 4:
    case 12:
    case 13: return check_network_figure(number, options);
    default: return check_server_figure(number, options);
  }
}

Result<Figure> simulate_figure(int number, const FigureOptions& options, SharedRuns& shared) {
  switch (number) {
    case 2: return simulate_figure_2(options);
    case 4: return simulate_figure_4(options);
    case 11: return simulate_figure_11(options, shared);
    case 12: return simulate_figure_12(options);
    case 13: return simulate_figure_13(options);
    default: return simulate_figure_9_or_10(number, options, shared);
  }
}

namespace {

using nlohmann::ordered_json;

struct FigureCommandOptions : FigureOptions {
  int number = 4;
  std::string report;
  Format output = Format::Text;
};

std::string text_of(const Figure& figure) {
  std::string text = fmt::format("simulated, figure {}: {}\n\n{}", figure.number, figure.title,
                                 figure.table.text());
  if (!figure.claims.empty()) text += "\n" + claims_table(figure.claims).text();
  if (!figure.assumptions.empty()) text += "\n" + assumptions_table(figure.assumptions).text();
  text += fmt::format("\n- What decides: {}\n", figure.decides);
  for (const std::string& remark : figure.remarks) text += "- " + remark + "\n";
  return text;
}

ordered_json json_of(const Figure& figure) {
  ordered_json rows = ordered_json::array();
  for (const auto& row : figure.table.rows) {
    ordered_json one;
    for (std::size_t i = 0; i < row.size(); ++i) one[figure.table.columns[i].name] = row[i];
    rows.push_back(std::move(one));
  }
  return {{"figure", figure.number},
          {"title", figure.title},
          {"rows", std::move(rows)},
          {"claims", json_of(figure.claims)},
          {"assumptions", json_of(figure.assumptions)},
          {"decides", figure.decides},
          {"remarks", figure.remarks}};
}

std::string json_of(const std::vector<Figure>& figures) {
  ordered_json list = ordered_json::array();
  for (const Figure& figure : figures) list.push_back(json_of(figure));
  const ordered_json document{{"format", 1}, {"label", "simulated"}, {"figures", std::move(list)}};
  return json_text(document, 2) + "\n";
}

/// How many of the papers' numbers come out, without those that are made to.
struct ClaimCounts {
  std::size_t within = 0;
  std::size_t outside = 0;
  std::size_t by_choice = 0;
};

ClaimCounts counts_of(const std::vector<Figure>& figures) {
  ClaimCounts counts;
  for (const Figure& figure : figures) {
    for (const Claim& claim : figure.claims) {
      if (claim.by_choice) {
        ++counts.by_choice;
      } else {
        ++(claim.within() ? counts.within : counts.outside);
      }
    }
  }
  return counts;
}

std::string text_of(const ClaimCounts& counts) {
  std::string text = fmt::format("{} of {} numbers of the papers are within what is accepted.",
                                 counts.within, counts.within + counts.outside);
  if (counts.by_choice > 0) {
    text += fmt::format(
        " {} more are not counted: an input that the paper does not state was "
        "chosen so that they come out.",
        counts.by_choice);
  }
  return text;
}

Result<void> write_page(const std::vector<Figure>& figures, const FigureCommandOptions& options,
                        SharedRuns& shared) {
  const ClaimCounts counts = counts_of(figures);
  report::ReportPage page(
      "Remote persistence, simulated",
      "Figure 2 of the taxonomy paper and the others of the BROI paper, each beside what its paper "
      "says.");
  page.verdict(counts.outside == 0 && counts.within > 0, text_of(counts));
  StatusLine status;
  for (const Figure& figure : figures) {
    page.heading(fmt::format("Figure {}: {}", figure.number, figure.title));
    if (!figure.drawing.empty()) page.drawing(figure.drawing, report::Origin::Simulated, "");
    page.table(figure.table, report::Origin::Simulated, "");
    if (!figure.claims.empty()) {
      page.table(claims_table(figure.claims), report::Origin::Simulated, "");
    }
    if (!figure.assumptions.empty()) {
      page.table(assumptions_table(figure.assumptions), report::Origin::Simulated, "");
    }
    page.list(figure.remarks);
    page.paragraph("What decides: " + figure.decides);
    status.show(fmt::format("figure {}: what decides", figure.number));
    PERDURE_TRY(sensitivity, draw_sensitivity(figure.number, options, shared));
    page.drawing(sensitivity.svg, report::Origin::Simulated,
                 "The same with other assumptions. " + sensitivity.title + ".");
  }
  return page.write(options.report);
}

ExitStatus run_figures(const FigureCommandOptions& options, const std::vector<int>& numbers) {
  const NetworkFiles& files = options.files;
  const auto free = check_no_input(
      options.report, {files.hardware, files.device, files.processor, options.applications});
  if (!free.ok()) {
    print_error(free.error());
    return ExitStatus::Usage;
  }
  if (const auto right = check_log_gap(options.server); !right.ok()) {
    print_error(right.error());
    return ExitStatus::Usage;
  }
  // All of them first: who asks for much hears at once what can not be.
  for (const int number : numbers) {
    auto checked = check_figure(number, options);
    if (checked.ok() && !options.report.empty()) checked = check_sensitivity(number, options);
    if (checked.ok()) continue;
    print_error(checked.error());
    return ExitStatus::Failed;
  }
  std::vector<Figure> figures;
  SharedRuns shared;
  for (const int number : numbers) {
    auto figure = simulate_figure(number, options, shared);
    if (!figure.ok()) {
      print_error(figure.error());
      return ExitStatus::Failed;
    }
    figures.push_back(std::move(figure).value());
    if (options.output == Format::Json) continue;
    print((figures.size() > 1 ? "\n" : "") + text_of(figures.back()));
    flush_output();
  }
  if (options.output == Format::Json) print(json_of(figures));
  if (options.output != Format::Json && figures.size() > 1) {
    print("\n" + text_of(counts_of(figures)) + "\n");
  }
  if (options.report.empty()) return ExitStatus::Ok;
  const auto written = write_page(figures, options, shared);
  if (written.ok()) return ExitStatus::Ok;
  print_error(written.error());
  return ExitStatus::Failed;
}

void add_shared_options(Command command, FigureCommandOptions& options) {
  using Limit = std::uint64_t;
  command
      .add_option("--hardware", options.files.hardware,
                  "Network and server, TOML (edr-back-to-back; figure 2: edr-one-switch)")
      .option_text("FILE")
      .each(check_file_name);
  command
      .add_option("--device", options.files.device,
                  "Memory device and controller, TOML (nvm-server)")
      .option_text("FILE")
      .each(check_file_name);
  command
      .add_option("--processor", options.files.processor,
                  "Cores, caches and buffers, TOML (four-cores)")
      .option_text("FILE")
      .each(check_file_name);
  command.add_option("--applications", options.applications, "What clients run, TOML (whisper)")
      .option_text("FILE")
      .each(check_file_name);
  command
      .add_option("--network-transactions", options.network_transactions,
                  "Of each run on the network")
      .range(Limit{1}, Limit{100'000'000})
      .capture_default();
  ServerRunOptions& server = options.server;
  command.add_option("--transactions", server.transactions, "Of each run on the server")
      .range(Limit{1}, Limit{1'000'000'000})
      .capture_default();
  command.add_option("--warm-up", server.warm_up, "Before, on caches and data only")
      .range(Limit{0}, Limit{1'000'000'000})
      .capture_default();
  command
      .add_option("--footprint-mib", server.footprint_mib,
                  "Of the structures; 0: what the paper has (table IV)")
      .range(Limit{0}, Limit{65536})
      .capture_default();
  command.add_option("--partitions", server.partitions, "Of the structures, with a lock each")
      .range(Limit{1}, Limit{65536})
      .capture_default();
  add_size_option(command, "--log-gap", server.log_gap,
                  "Between the logs of two threads; 0: their headers, if the logging has such, all "
                  "lie in one bank",
                  0, 1 << 20);
  add_word_option(command, "--logging", server.logging, workload::parse_logging,
                  "How the server's transactions are atomic (undo)", workload::logging_names());
  add_word_option(command, "--persist-point", server.persist_point, memsys::parse_persist_point,
                  "When a write of the server's programs counts as persisted (array)",
                  "accept|bus|array");
  command.add_option("--seed", server.seed, "Of keys and places").capture_default();
  add_result_file_option(command, "--report", options.report,
                         "Write a page with drawings there, HTML");
  add_format_option(command, options.output);
}

/// What is given and is of other figures: `sim all` has use for everything.
Result<void> check_command_line(int number, const Command& command) {
  const std::vector<std::string> server{"--transactions",  "--warm-up", "--footprint-mib",
                                        "--partitions",    "--log-gap", "--logging",
                                        "--persist-point", "--seed"};
  const std::string why = fmt::format("is of no effect on figure {}", number);
  const bool of_server = number >= 9 && number <= 11;
  if (of_server)
    return refuse_given(command, {"--hardware", "--applications", "--network-transactions"}, why);
  PERDURE_TRY_VOID(refuse_given(command, server, why));
  if (number == 2) PERDURE_TRY_VOID(refuse_given(command, {"--device", "--processor"}, why));
  if (number > 4) return {};
  return refuse_given(command, {"--applications", "--network-transactions"}, why);
}

constexpr std::string_view kExitStatus =
    "\nExit status: 0 simulated, whether within the paper's numbers or not, 1 an input is wrong or "
    "a run failed, 2 wrong command line.";

constexpr std::string_view kFiles =
    "--hardware configs/hardware/edr-back-to-back.toml \\\n"
    "      --device configs/hardware/nvm-server.toml --processor configs/hardware/four-cores.toml "
    "\\\n"
    "      --applications configs/workloads/whisper.toml";

}  // namespace

void add_sim_figure_commands(Command sim) {
  const auto options = std::make_shared<FigureCommandOptions>();
  const Command figure =
      sim.add_subcommand("figure", "A figure of the papers, simulated, beside what the paper says");
  const auto parse = [](std::string_view word) -> Result<int> {
    for (const int number : kFigures) {
      if (word == std::to_string(number)) return number;
    }
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("figure '{}' is not simulated; use one of: 2, 4, 9, 10, 11, 12, 13", word)};
  };
  add_word_option(figure, "number", options->number, +parse, "Which one", "2|4|9|10|11|12|13")
      .required();
  add_shared_options(figure, *options);
  add_examples(figure, fmt::format("  perdure sim figure 4\n  perdure sim figure 13 {}{}", kFiles,
                                   kExitStatus));
  run_with(figure, [options, figure] {
    const auto right = check_command_line(options->number, figure);
    if (right.ok()) return run_figures(*options, {options->number});
    print_error(right.error());
    return ExitStatus::Usage;
  });

  const auto every = std::make_shared<FigureCommandOptions>();
  const Command all =
      sim.add_subcommand("all", "All figures of the papers, simulated, and a page of them");
  add_shared_options(all, *every);
  add_examples(all, fmt::format("  perdure sim all --report figures.html\n"
                                "  perdure sim all {} \\\n      --footprint-mib 64 "
                                "--transactions 2000 --report figures.html{}",
                                kFiles, kExitStatus));
  run_with(all, [every] { return run_figures(*every, {kFigures.begin(), kFigures.end()}); });
}

}  // namespace perdure::app
