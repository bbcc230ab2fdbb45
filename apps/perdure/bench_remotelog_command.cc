// `perdure bench remotelog`: which configurations to run, and what to print of them.
#include "bench/remotelog.h"
#include "bench/remotelog_measured.h"
#include "bench_commands.h"
#include "core/hardware.h"
#include "core/named.h"
#include "core/text_file.h"
#include "core/try.h"
#include "fabric/verbs/verbs.h"
#include "output.h"
#include "report/page.h"
#include "report/progress.h"
#include "testing/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace perdure::app {
namespace {

enum class ResultFormat { Text, Json, Csv };

Result<ResultFormat> parse_result_format(std::string_view word) {
  return find_named<ResultFormat>("format", word,
                                  std::to_array<std::string_view>({"text", "json", "csv"}));
}

struct RemotelogArguments {
  bench::RemotelogOptions options;
  std::string fabric = "all";
  std::string methods = "both";
  std::string filter;
  ResultFormat format = ResultFormat::Text;
  std::string output;
  std::string report;
};

/// One run that is to be made.
struct Configuration {
  bench::RemotelogFabric fabric;
  plan::Source source;
  plan::Scenario scenario;
};

/// Whether every word of the filter is a part of the configuration's name.
bool chosen(const Configuration& configuration, const std::vector<std::string>& filter) {
  bench::RemotelogRow named;
  named.fabric = configuration.fabric;
  named.scenario = configuration.scenario;
  const std::vector<std::string> parts = words_between(named.configuration(), ",/");
  return std::all_of(filter.begin(), filter.end(), [&](const std::string& word) {
    return std::find(parts.begin(), parts.end(), word) != parts.end();
  });
}

/// What carries the messages; over verbs, whatever the first RNIC is.
Transport transport_of(bench::RemotelogFabric fabric) {
  switch (fabric) {
    case bench::RemotelogFabric::Tcp: return Transport::Tcp;
    case bench::RemotelogFabric::Shm: return Transport::Shm;
    case bench::RemotelogFabric::Verbs: {
      const auto rnics = fabric::verbs::list_rnics();
      return rnics.ok() ? rnics->front().transport : Transport::InfiniBand;
    }
    case bench::RemotelogFabric::Emu: break;
  }
  return Transport::InfiniBand;
}

std::vector<Configuration> configurations(const RemotelogArguments& arguments) {
  const std::map<std::string, std::vector<bench::RemotelogFabric>> fabrics{
      {"emu", {bench::RemotelogFabric::Emu}},
      {"tcp", {bench::RemotelogFabric::Tcp}},
      {"shm", {bench::RemotelogFabric::Shm}},
      {"verbs", {bench::RemotelogFabric::Verbs}},
      {"all",
       {bench::RemotelogFabric::Emu, bench::RemotelogFabric::Tcp, bench::RemotelogFabric::Shm}}};
  const std::map<std::string, std::vector<plan::Source>> sources{
      {"paper", {plan::Source::Paper}},
      {"best", {plan::Source::Best}},
      {"both", {plan::Source::Paper, plan::Source::Best}}};
  const std::vector<std::string> filter = words_between(arguments.filter, ",/");
  std::vector<Configuration> all;
  for (const bench::RemotelogFabric fabric : fabrics.at(arguments.fabric)) {
    const Transport transport = transport_of(fabric);
    for (const plan::Source source : sources.at(arguments.methods)) {
      for (plan::Scenario& scenario : plan::all_scenarios(source, {transport})) {
        // The tables have 72 configurations; files behind a page cache are not among them.
        if (scenario.profile.domain == PersistenceDomain::Page) continue;
        if (fabric != bench::RemotelogFabric::Emu && !bench::MeasuredRuns::honest(scenario))
          continue;
        Configuration configuration{fabric, source, std::move(scenario)};
        if (chosen(configuration, filter)) all.push_back(std::move(configuration));
      }
    }
  }
  return all;
}

/// Runs everything in order; fabrics that this machine lacks are left out, with a warning.
class Runs {
 public:
  Runs(const RemotelogArguments& arguments, const std::vector<Configuration>& all)
      : options_(arguments.options), all_(all), progress_(all.size() * options_.all_records()) {}

  Result<std::vector<bench::RemotelogRow>> run() {
    start_servers();
    std::vector<bench::RemotelogRow> rows;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      PERDURE_TRY_VOID(test::InterruptGuard::check());
      const Configuration& configuration = all_[i];
      if (left_out_.contains(configuration.fabric)) continue;
      const bench::RemotelogProgress progress = [this, i, &configuration](std::uint64_t records) {
        progress_.show(i * options_.all_records() + records,
                       fmt::format("{} {}", to_string(configuration.fabric),
                                   configuration.scenario.method.name));
      };
      rows.push_back(run_one(configuration, progress));
    }
    PERDURE_TRY_VOID(test::InterruptGuard::check());
    progress_.clear();
    for (const auto& [fabric, reason] : left_out_) {
      print_warning(fmt::format("{} is left out: {}", to_string(fabric), reason));
    }
    return rows;
  }

 private:
  void start_servers() {
    for (const Configuration& configuration : all_) {
      const bench::RemotelogFabric fabric = configuration.fabric;
      if (fabric == bench::RemotelogFabric::Emu || measured_.contains(fabric) ||
          left_out_.contains(fabric)) {
        continue;
      }
      auto started = bench::MeasuredRuns::start(fabric, options_.replicas);
      if (started.ok()) {
        measured_[fabric] = std::move(*started);
      } else {
        left_out_[fabric] = started.error().message;
      }
    }
    for (const auto& [fabric, runs] : measured_) {
      const auto device = bench::open_measured_device(fabric);
      if (!device.ok()) left_out_[fabric] = device.error().message;
    }
  }

  bench::RemotelogRow run_one(const Configuration& configuration,
                              const bench::RemotelogProgress& progress) {
    if (configuration.fabric == bench::RemotelogFabric::Emu) {
      return bench::run_emulated(configuration.scenario, configuration.source, options_, progress);
    }
    return measured_.at(configuration.fabric)
        ->run(configuration.scenario, configuration.source, options_, progress);
  }

  const bench::RemotelogOptions& options_;
  const std::vector<Configuration>& all_;
  report::ProgressBar progress_;
  std::map<bench::RemotelogFabric, std::unique_ptr<bench::MeasuredRuns>> measured_;
  std::map<bench::RemotelogFabric, std::string> left_out_;
};

report::Setup setup_of(const bench::RemotelogOptions& options) {
  report::Setup setup = report::machine_setup();
  setup.add("Record", fmt::format("{} bytes", options.record_bytes));
  setup.add("n", fmt::format("{} records per configuration", report::grouped(options.records)));
  setup.add("Warm-up", fmt::format("{} records before, not counted", options.warm_up));
  setup.add("Window", fmt::format("{} in flight", options.window));
  setup.add("Replicas",
            fmt::format("{}; a record counts when it is durable on all", options.replicas));
  setup.add("Seed", std::to_string(options.seed));
  setup.add(
      "emu",
      fmt::format("emulated: InfiniBand with FLUSH and ATOMIC WRITE; its times are made of {}. "
                  "The power is cut at the end and the log recovered",
                  default_hardware(Transport::InfiniBand).network.name));
  setup.add("tcp, shm",
            "measured: tcp by libfabric, shm by Perdure's own provider; server in a process of its "
            "own, both polling; domain declared of memory in /dev/shm, DDIO on");
  return setup;
}

report::ReportPage page_of(const std::vector<bench::RemotelogRow>& rows, const report::Setup& setup,
                           bool good) {
  report::ReportPage page(
      "REMOTELOG",
      "Appending to a log in a server's memory, by the method of each configuration of "
      "the taxonomy's tables 2 and 3, and by the planner's best.");
  page.verdict(good, good ? "In every configuration every record was found again at the end."
                          : "Some configurations failed: see the table.");
  bench::add_remotelog(page, rows);
  page.setup(setup);
  return page;
}

std::string result_text(const RemotelogArguments& arguments,
                        const std::vector<bench::RemotelogRow>& rows, const report::Setup& setup) {
  switch (arguments.format) {
    case ResultFormat::Json: return bench::remotelog_json(rows, setup);
    case ResultFormat::Csv: return bench::remotelog_table(rows).csv();
    case ResultFormat::Text: break;
  }
  std::string out = setup.text() + "\n" + bench::remotelog_summary(rows);
  for (const bench::RemotelogRow& row : rows) {
    if (!row.failure.empty()) {
      out += fmt::format("FAILED {} ({}): {}\n", row.configuration(), row.scenario.method.name,
                         row.failure);
    }
  }
  return out;
}

ExitStatus remotelog(const RemotelogArguments& arguments) {
  const test::InterruptGuard guard;
  const std::vector<Configuration> all = configurations(arguments);
  if (all.empty()) {
    return fail({ErrorCode::InvalidArgument,
                 fmt::format("no configuration matches '{}'; their names are like "
                             "emu/dmp/ddio-on/rq-dram/write_imm/singleton",
                             arguments.filter)});
  }
  const auto rows = Runs(arguments, all).run();
  if (!rows.ok()) return fail(rows.error());
  if (rows->empty()) return ExitStatus::Failed;
  const bool good = std::all_of(rows->begin(), rows->end(),
                                [](const bench::RemotelogRow& row) { return row.failure.empty(); });
  const report::Setup setup = setup_of(arguments.options);
  const std::string text = result_text(arguments, *rows, setup);
  if (arguments.output.empty()) {
    print(text);
  } else if (const auto written = write_file(arguments.output, text); !written.ok()) {
    return fail(written.error());
  }
  if (!arguments.report.empty()) {
    const auto written = page_of(*rows, setup, good).write(arguments.report);
    if (!written.ok()) return fail(written.error());
  }
  const bool lost = std::any_of(rows->begin(), rows->end(),
                                [](const bench::RemotelogRow& row) { return row.lost_records; });
  if (lost) return ExitStatus::Damaged;
  return good ? ExitStatus::Ok : ExitStatus::Failed;
}

}  // namespace

void add_bench_remotelog(Command bench) {
  const Command command = bench.add_subcommand(
      "remotelog", "Latency of appending by each of the taxonomy's 72 methods");
  auto arguments = std::make_shared<RemotelogArguments>();
  bench::RemotelogOptions& options = arguments->options;
  command.add_option("--records", options.records, "Records per configuration")
      .range(std::uint64_t{1}, std::uint64_t{1'000'000'000})
      .capture_default();
  add_size_option(command, "--bytes", options.record_bytes, "Of a record",
                  bench::RemotelogLayout::kRecordBytesMin, std::uint64_t{1} << 20);
  command.add_option("--window", options.window, "Records in flight at a time")
      .range(std::size_t{1}, std::size_t{1024})
      .capture_default();
  command.add_option("--replicas", options.replicas, "Servers on each of which it must be durable")
      .range(std::size_t{1}, std::size_t{8})
      .capture_default();
  command.add_option("--seed", options.seed, "Of the emulated world").capture_default();
  command
      .add_option("--fabric", arguments->fabric,
                  "emu, tcp, shm, verbs (an RNIC), or all: the first three")
      .is_member({"emu", "tcp", "shm", "verbs", "all"})
      .capture_default();
  command
      .add_option("--methods", arguments->methods,
                  "As published (paper), as Perdure would choose (best), or both")
      .is_member({"paper", "best", "both"})
      .capture_default();
  command.add_option("--config", arguments->filter,
                     "Only configurations with all these words, for example dmp,write,compound");
  add_word_option(command, "--format", arguments->format, parse_result_format,
                  "How to print the result", "text|json|csv");
  add_result_file_option(command, "--output", arguments->output, "Write the result there");
  add_result_file_option(command, "--report", arguments->report, "Write an HTML report there");
  add_examples(command,
               "  perdure bench remotelog --fabric emu\n"
               "  perdure bench remotelog --fabric tcp --config dmp,singleton --format csv\n"
               "  perdure bench remotelog --records 10000000 --config emu,wsp,write,singleton\n"
               "It exits with 4 if a record was missing at the end, with 1 if a run failed.\n");
  run_with(command, [arguments] { return remotelog(*arguments); });
}

}  // namespace perdure::app
