// `perdure demo`: the main job on an embedded default. What ./run shows.
#include "commands.h"
#include "control/service_types.h"
#include "core/byte_text.h"
#include "core/log_message.h"
#include "core/random.h"
#include "core/try.h"
#include "demo/report.h"
#include "output.h"
#include "pmem/medium.h"
#include "testing/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>

namespace perdure::app {
namespace {

constexpr const char* kMemoryDirectory = "/dev/shm";

struct DemoOptions {
  std::string report;
  std::string peers_directory = "/var/tmp";
  std::string text_directory;
  std::uint64_t records = 100'000;
  std::size_t window = 256;
  std::uint64_t seed = 0;  // 0: drawn
  std::uint64_t power_cuts = 24;
  bool no_memory = false;
  std::string transport = "tcp";
};

Result<demo::RecordText> open_text(const DemoOptions& options) {
  if (options.text_directory.empty()) return demo::RecordText::orders();
  return demo::RecordText::from_directory(options.text_directory);
}

demo::JobOptions job_on(const DemoOptions& options, std::string name, std::string directory) {
  demo::JobOptions job;
  job.name = std::move(name);
  job.directory = std::move(directory);
  job.records = options.records;
  job.window = options.window;
  const auto choice = control::parse_transport_choice(options.transport);
  if (choice.ok()) job.transport = *choice;
  return job;
}

/// The media that this machine has for it: a disk, and memory that is declared to have a battery.
std::vector<demo::JobOptions> media(const DemoOptions& options,
                                    std::vector<std::string>& left_out) {
  std::vector<demo::JobOptions> jobs;
  const auto place = pmem::examine_file_system(options.peers_directory);
  if (place.ok() && place->found == PersistenceDomain::None) {
    left_out.push_back(
        fmt::format("pools on disk: '{}' is {}, which does not survive a power "
                    "failure; name another place with --peers-dir",
                    options.peers_directory, place->file_system));
  } else {
    const std::string name =
        place.ok() ? fmt::format("files on {}", place->file_system) : std::string("files on disk");
    jobs.push_back(job_on(options, name, options.peers_directory));
  }
  if (options.no_memory) return jobs;
  if (::access(kMemoryDirectory, W_OK) != 0) {
    left_out.push_back(fmt::format("pools in memory: there is no {}", kMemoryDirectory));
    return jobs;
  }
  demo::JobOptions memory = job_on(options, "memory declared as dmp", kMemoryDirectory);
  memory.declared = PersistenceDomain::Dmp;
  jobs.push_back(std::move(memory));
  return jobs;
}

Result<demo::DemoResult> run_demo(const DemoOptions& options) {
  const Nanoseconds begun = Clock::monotonic().now();
  PERDURE_TRY(text, open_text(options));
  demo::DemoResult result;
  result.text_origin = text.origin();
  result.records = options.records;
  result.text_bytes = text.bytes(options.records);
  print(fmt::format("Appending {} records ({}, {}) to a log on three peers, quorum 2.\n",
                    report::grouped(result.records), format_bytes(result.text_bytes),
                    text.origin()));
  for (const demo::JobOptions& job : media(options, result.left_out)) {
    print(fmt::format("\nPools: {} [measured]\n", job.name));
    flush_output();
    PERDURE_TRY(done, demo::run_job(job, text));
    print(demo::job_text(done));
    flush_output();
    result.jobs.push_back(std::move(done));
  }
  for (const std::string& reason : result.left_out) print(fmt::format("\nLeft out: {}\n", reason));
  if (options.power_cuts > 0) {
    demo::PowerOptions power;
    power.seed = options.seed != 0 ? options.seed : random_secret() >> 32;
    power.cuts_max = options.power_cuts;
    print(
        fmt::format("\nPower cuts on the emulated fabric, --seed={:#x} [emulated]\n", power.seed));
    flush_output();
    PERDURE_TRY(cuts, demo::run_power_cuts(power, text));
    print(demo::power_text(cuts));
    result.power = std::move(cuts);
  }
  result.seconds = to_seconds(Clock::monotonic().now() - begun);
  return result;
}

ExitStatus demo(const DemoOptions& options) {
  const test::InterruptGuard guard;
  set_message_callback({});  // that replicas go down is what is shown here, and said there
  const auto result = run_demo(options);
  if (!result.ok()) return fail(result.error());
  print(result->good() ? "\n" + result->verdict() + ".\n"
                       : "\nSOMETHING DIFFERS from what was appended: see above.\n");
  if (!options.report.empty()) {
    const auto written = demo::demo_page(*result).write(options.report);
    if (!written.ok()) return fail(written.error());
  }
  return result->good() ? ExitStatus::Ok : ExitStatus::Damaged;
}

}  // namespace

void add_demo_command(Command app) {
  const Command command = app.add_subcommand(
      "demo", "Append a text to three peers, kill one, cut the power, and compare");
  auto options = std::make_shared<DemoOptions>();
  add_result_file_option(command, "--report", options->report, "Write an HTML report to this file");
  command.add_option("--peers-dir", options->peers_directory, "Where the pools on disk are kept")
      .type_name("DIR")
      .capture_default();
  command.add_option("--records", options->records, "How many records, one line of text each")
      .range(std::uint64_t{100}, std::uint64_t{10'000'000})
      .capture_default();
  command
      .add_option("--text", options->text_directory,
                  "Append the .txt and .md files of this directory instead of the own text")
      .type_name("DIR");
  command.add_option("--window", options->window, "Records in flight at a time")
      .range(std::size_t{1}, demo::Appender::kWindowMax)
      .capture_default();
  command.add_option("--seed", options->seed, "Of the emulated power cuts; 0: drawn and printed")
      .capture_default();
  command.add_option("--power-cuts", options->power_cuts, "How many; 0: none").capture_default();
  command
      .add_option("--transport", options->transport, "Between writer and peers: tcp, shm, or auto")
      .is_member({"tcp", "shm", "auto"})
      .capture_default();
  command.add_flag("--no-memory", options->no_memory, "Leave out the pools in memory");
  add_examples(command,
               "  perdure demo --report report.html\n"
               "  perdure demo --text papers/ --records 500000\n"
               "  perdure demo --seed 0x5eed --power-cuts 200\n");
  run_with(command, [options] { return demo(*options); });
}

}  // namespace perdure::app
