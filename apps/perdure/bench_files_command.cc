// `perdure bench files`.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "bench/file_sync.h"
#include "bench_commands.h"
#include "core/text_file.h"
#include "output.h"
#include "report/progress.h"
#include "testing/process.h"

namespace perdure::app {
namespace {

struct FilesArguments {
  bench::FileSyncOptions options;
  std::uint64_t file_mib = options.file_bytes >> 20;
  Format format = Format::Text;
  std::string output;
};

ExitStatus files(const FilesArguments& arguments) {
  const test::InterruptGuard guard;
  report::Setup setup = report::machine_setup();
  setup.add("Directory", arguments.options.directory);
  setup.add("File", fmt::format("{} MiB for each way", arguments.options.file_bytes >> 20));
  setup.add("Pages", arguments.options.single_pages ? "read one by one" : "read ahead");
  setup.add("n", fmt::format("{} rounds of {} samples at most; ways take turns",
                             arguments.options.rounds, arguments.options.samples));
  std::optional<report::ProgressBar> bar;
  const auto findings = bench::measure_file_sync(
      arguments.options, [&](std::uint64_t done, std::uint64_t of, const std::string& what) {
        if (!bar) bar.emplace(of);
        bar->show(done, what);
      });
  if (bar) bar->clear();
  if (!findings.ok()) return fail(findings.error());
  const std::string text = arguments.format == Format::Json
                               ? bench::file_sync_json(*findings, setup)
                               : setup.text() + "\n" + bench::file_sync_text(*findings);
  if (arguments.output.empty()) {
    print(text);
  } else if (const auto written = write_file(arguments.output, text); !written.ok()) {
    return fail(written.error());
  }
  return ExitStatus::Ok;
}

}  // namespace

void add_bench_files(Command bench) {
  const Command command = bench.add_subcommand(
      "files", "Ways to make records of a file durable: latency, and what the drive is sent");
  auto arguments = std::make_shared<FilesArguments>();
  command.add_option("directory", arguments->options.directory, "Where a file is made and removed")
      .required()
      .option_text("DIRECTORY");
  command.add_option("--rounds", arguments->options.rounds, "Rounds; the ways take turns")
      .range(std::size_t{1}, std::size_t{1000})
      .capture_default();
  command.add_option("--samples", arguments->options.samples, "Records per round, way and size")
      .range(std::uint64_t{1}, std::uint64_t{1'000'000})
      .capture_default();
  command.add_option("--file-mib", arguments->file_mib, "Size of the file of each way")
      .range(std::uint64_t{1}, std::uint64_t{1} << 20)
      .capture_default();
  command.add_flag(
      "--single-pages", arguments->options.single_pages,
      "Read the file's pages one by one, not ahead: no large folios in the page cache");
  add_format_option(command, arguments->format);
  add_result_file_option(command, "--output", arguments->output, "Write the result there");
  add_examples(command,
               "  perdure bench files /var/lib/perdure\n"
               "  perdure bench files /var/lib/perdure --rounds 20 --format json\n");
  run_with(command, [arguments] {
    arguments->options.file_bytes = arguments->file_mib << 20;
    return files(*arguments);
  });
}

}  // namespace perdure::app
