// `perdure bench limits`, and `perdure bench mirror`, which is some of its questions.
#include "bench/bare.h"
#include "bench/limits.h"
#include "bench_commands.h"
#include "core/text_file.h"
#include "output.h"
#include "report/page.h"
#include "report/progress.h"
#include "testing/process.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace perdure::app {
namespace {

struct LimitsArguments {
  bench::LimitsOptions options;
  std::string fabric = "all";
  Format format = Format::Text;
  std::string output;
  std::string report;
  bool list = false;
};

/// Loads libfabric: after what was measured.
report::Setup setup_of(const bench::LimitsOptions& options) {
  report::Setup setup = report::machine_setup();
  setup.add("Layout",
            "processes of this machine, not pinned; the bare program polls without end, both sides "
            "of Perdure for as long as they do by default, over a software RNIC for 100 ms");
  setup.add("Bare", fmt::format("providers tcp and shm of libfabric, here: {}; libibverbs over the "
                                "first RNIC (bench/bare.h)",
                                bench::bare_libfabric()));
  setup.add("Perdure",
            "public Log API, one perdured, pool in /dev/shm declared as dmp: cache lines "
            "are written back before every answer");
  setup.add("n", fmt::format("{} rounds of a comparison, sides take turns; {} samples of a round "
                             "of latencies, other questions make their number of it; what is "
                             "counted or weighed is so once",
                             options.rounds, report::grouped(options.samples)));
  setup.add("Warm-up",
            fmt::format("not counted: {} samples before a round of latencies, all places twice "
                        "before one of bandwidth",
                        options.samples / 5));
  return setup;
}

/// What is said of an `only` that is in no question's name: which may have been meant.
Error with_questions_meant(Error error, const bench::LimitsOptions& options) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> meant = nearest_texts(options.only, bench::limits_questions(options));
  const bool more = meant.size() > kNamed;
  if (more) meant.resize(kNamed);
  if (!meant.empty()) {
    error.message += fmt::format("; did you mean '{}'{}?", fmt::join(meant, "' or '"),
                                 more ? ", or others" : "");
  }
  error.message += meant.empty() ? "; `--list` prints them all" : " `--list` prints all";
  return error;
}

ExitStatus limits(LimitsArguments arguments) {
  if (arguments.fabric != "all") arguments.options.fabrics = {arguments.fabric};
  if (arguments.list) {
    print(fmt::format("{}\n", fmt::join(bench::limits_questions(arguments.options), "\n")));
    return ExitStatus::Ok;
  }
  const test::InterruptGuard guard;
  std::optional<report::ProgressBar> bar;
  const auto findings = bench::find_limits(
      arguments.options, [&](const std::string& what, std::uint64_t done, std::uint64_t all) {
        if (!bar) bar.emplace(all);
        bar->show(done, what);
      });
  bar.reset();
  if (!findings.ok() && findings.code() == ErrorCode::InvalidArgument) {
    (void)fail(with_questions_meant(findings.error(), arguments.options));
    return ExitStatus::Usage;
  }
  if (!findings.ok()) return fail(findings.error());
  const report::Setup setup = setup_of(arguments.options);
  const std::string text = arguments.format == Format::Json
                               ? bench::limits_json(*findings, setup)
                               : setup.text() + "\n" + bench::limits_text(*findings);
  if (arguments.output.empty()) {
    print(text);
  } else if (const auto written = write_file(arguments.output, text); !written.ok()) {
    return fail(written.error());
  }
  const bool all = std::all_of(findings->begin(), findings->end(), [](const auto& finding) {
    return finding.failure.empty() && finding.met.value_or(true);
  });
  if (!arguments.report.empty()) {
    report::ReportPage page(
        "The limits of Perdure",
        "What Perdure costs beside a bare libfabric program that does the same verbs, "
        "in one run and in the same layout.");
    bench::add_limits(page, *findings);
    page.setup(setup);
    if (const auto written = page.write(arguments.report); !written.ok()) {
      return fail(written.error());
    }
  }
  return all ? ExitStatus::Ok : ExitStatus::Failed;
}

using Arguments = std::shared_ptr<LimitsArguments>;

void add_sizes(Command command, const Arguments& arguments) {
  command.add_option("--rounds", arguments->options.rounds, "Rounds of each comparison")
      .range(std::size_t{1}, std::size_t{1000})
      .capture_default();
  command.add_option("--samples", arguments->options.samples, "Appends per round")
      .range(std::uint64_t{50}, std::uint64_t{10'000'000})
      .capture_default();
}

void add_results(Command command, const Arguments& arguments) {
  add_format_option(command, arguments->format);
  add_result_file_option(command, "--output", arguments->output, "Write the result there");
  add_result_file_option(command, "--report", arguments->report, "Write an HTML report there");
  run_with(command, [arguments] { return limits(*arguments); });
}

}  // namespace

void add_bench_limits(Command bench) {
  const Command command = bench.add_subcommand(
      "limits",
      "Perdure beside a bare libfabric or verbs program: latency, bandwidth, memory, idleness");
  auto arguments = std::make_shared<LimitsArguments>();
  command
      .add_option("--fabric", arguments->fabric,
                  "tcp, shm, verbs (the first RNIC of this machine), or all: tcp and shm")
      .is_member({"tcp", "shm", "verbs", "all"})
      .capture_default();
  add_sizes(command, arguments);
  command
      .add_option("--idle-seconds", arguments->options.idle_seconds,
                  "For how long idle processes are watched")
      .range(std::uint64_t{1}, std::uint64_t{600})
      .capture_default();
  command.add_option("--only", arguments->options.only,
                     "Only questions whose name has this in it, for example \"one in flight\"");
  command.add_flag("--list", arguments->list, "Print the names of the questions, and ask none");
  add_results(command, arguments);
  add_examples(command,
               "  perdure bench limits\n"
               "  perdure bench limits --fabric tcp --only \"one in flight\" --rounds 15\n"
               "  perdure bench limits --fabric verbs --samples 200\n"
               "  perdure bench limits --format json --report limits.html\n"
               "It exits with 1 if a target was missed or a question got no answer.\n");
}

void add_bench_mirror(Command bench) {
  const Command command = bench.add_subcommand(
      "mirror", "Mirrors beside a bare libfabric program: bench limits --only mirror");
  auto arguments = std::make_shared<LimitsArguments>();
  arguments->options.only = "mirror";
  command.add_option("--fabric", arguments->fabric, "tcp, shm, or all: both")
      .is_member({"tcp", "shm", "all"})
      .capture_default();
  add_sizes(command, arguments);
  add_results(command, arguments);
  add_examples(command,
               "  perdure bench mirror\n"
               "  perdure bench mirror --fabric shm --format json\n"
               "It exits with 1 if a target was missed or a question got no answer.\n");
}

}  // namespace perdure::app
