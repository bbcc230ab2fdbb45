// `perdure sim record`: what an unmodified program makes durable, as a trace; and what it would
// gain from hardware that is not here.
#include "commands.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/printable.h"
#include "core/try.h"
#include "interpose/journal.h"
#include "interposed_program.h"
#include "output.h"
#include "recorded_journal.h"
#include "sim_commands.h"
#include "sim_files.h"
#include "sim_record_runs.h"
#include "testing/temporary_directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <fstream>
#include <memory>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;

constexpr const char* kInlineFlushes =
    "Flushes that a program has inline (CLWB, CLFLUSHOPT, non-temporal stores of its own) are not "
    "seen.";
constexpr std::size_t kThreadsShown = 16;

struct RecordCommandOptions {
  std::vector<std::string> program;
  std::string trace;
  std::string scratch = "/var/tmp";
  GainOptions gains;
  Format output = Format::Text;
};

/// What the command tells of a run.
struct Report {
  Recording recording;
  test::ChildEnd end;
  Gains gains;
};

ordered_json json_of(const RecordedThread& thread) {
  return {{"flushes", thread.flushes},
          {"flushed_lines", thread.flushed_lines},
          {"changed_lines", thread.changed_lines},
          {"drains", thread.drains},
          {"epochs", thread.epochs}};
}

ordered_json json_of(const Gains& gains) {
  auto devices = ordered_json::array();
  for (const DeviceGain& device : gains.devices) {
    auto orders = ordered_json::array();
    for (const OrderGain& each : device.orders) {
      orders.push_back(
          {{"order", memsys::to_string(each.order)}, {"ns", each.ns}, {"over_sync", each.gain}});
    }
    devices.push_back({{"device", device.device},
                       {"over_first_device", device.gain},
                       {"orders", std::move(orders)}});
  }
  const NetworkGain& network = gains.network;
  return {{"label", "simulated"},
          {"buffer_entries", gains.buffer_entries},
          {"devices", std::move(devices)},
          {"network",
           {{"hardware", network.hardware},
            {"epochs", network.epochs},
            {"epoch_bytes", network.epoch_bytes},
            {"sync_us", network.sync_us},
            {"bsp_us", network.bsp_us},
            {"bsp_over_sync", network.gain}}}};
}

ordered_json json_of(const Report& report, const RecordCommandOptions& options) {
  const Recording& recording = report.recording;
  auto files = ordered_json::array();
  for (const RecordedFile& file : recording.files) {
    ordered_json row = {{"path", file.path}, {"mapped_bytes", file.bytes}, {"base", file.base}};
    row["unflushed_lines"] =
        file.unflushed_lines ? ordered_json(*file.unflushed_lines) : ordered_json(nullptr);
    files.push_back(std::move(row));
  }
  auto threads = ordered_json::array();
  for (const RecordedThread& thread : recording.threads) {
    ordered_json row = {{"thread", thread.number}, {"process", thread.process}};
    row.update(json_of(thread));
    threads.push_back(std::move(row));
  }
  return {{"format", 1},
          {"label", "measured"},
          {"program", options.program},
          {"exit_status", report.end.status},
          {"signal", report.end.signal},
          {"trace", options.trace},
          {"processes", recording.processes},
          {"files", std::move(files)},
          {"threads", std::move(threads)},
          {"all", json_of(recording.all)},
          {"barriers", recording.ordered},
          {"fences", recording.durable},
          {"unflushed_lines", recording.unflushed_lines},
          {"lost_events", recording.lost()},
          {"unseen_files", recording.refused_files},
          {"gains", json_of(report.gains)}};
}

std::string row_of(const RecordedFile& file) {
  std::string text =
      fmt::format("  {:#x} {} B of {}", file.base, file.bytes, printable_name(file.path));
  if (!file.unflushed_lines) {
    text += ": gone, or renamed, in the end, so not compared with what was flushed";
  } else if (*file.unflushed_lines > 0) {
    text +=
        fmt::format(": in the end {} of it not as flushed", counted(*file.unflushed_lines, "line"));
  }
  return text + "\n";
}

std::string row_of(const std::string& name, const RecordedThread& thread) {
  return fmt::format("  {:<16} {:>10} {:>10} {:>10} {:>10} {:>10}\n", name, thread.flushes,
                     thread.flushed_lines, thread.changed_lines, thread.drains, thread.epochs);
}

std::string text_of(const Gains& gains) {
  std::string text = fmt::format(
      "simulated: the trace as fast as memory takes it, without the time between its events;\n"
      "  persist buffers of {} entries a thread, under sync too. No bound of what the program "
      "gains:\n"
      "  a buffered order also hides what is computed meanwhile, which is not in the trace\n",
      gains.buffer_entries);
  for (const DeviceGain& device : gains.devices) {
    text += fmt::format("  {}\n", device.device);
    for (const OrderGain& each : device.orders) {
      text += fmt::format("    {:<10} {:>14.3f} us {:>8.2f} x sync\n",
                          memsys::to_string(each.order), each.ns / 1e3, each.gain);
    }
    if (&device != &gains.devices.front()) {
      text += fmt::format("    its sync is {:.2f} x that of the first device\n", device.gain);
    }
  }
  const NetworkGain& network = gains.network;
  return text + fmt::format(
                    "  {}: a copy on another machine, {} of {} B a transaction\n"
                    "    {:<10} {:>14.3f} us\n    {:<10} {:>14.3f} us {:>8.2f} x sync\n",
                    network.hardware, counted(network.epochs, "epoch"), network.epoch_bytes, "sync",
                    network.sync_us, "BSP", network.bsp_us, network.gain);
}

std::string text_of(const Report& report, const RecordCommandOptions& options) {
  const Recording& recording = report.recording;
  std::string text = fmt::format(
      "measured: {}, {}\n", printable_name(fmt::format("{}", fmt::join(options.program, " "))),
      recording.processes == 1 ? "1 process" : fmt::format("{} processes", recording.processes));
  for (const RecordedFile& file : recording.files) text += row_of(file);
  text += fmt::format("  {:<16} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "thread", "flushes", "lines",
                      "changed", "drains", "epochs");
  for (std::size_t i = 0; i < std::min(recording.threads.size(), kThreadsShown); ++i) {
    const RecordedThread& thread = recording.threads[i];
    text += row_of(fmt::format("T{} of {}", thread.number, thread.process), thread);
  }
  if (recording.threads.size() > kThreadsShown) {
    text += fmt::format("  and {} more\n", recording.threads.size() - kThreadsShown);
  }
  text += row_of("all", recording.all);
  return text + text_of(report.gains) + "  " + kInlineFlushes + "\n";
}

/// Whether there is anything to simulate.
Result<void> check_recorded(const Recording& recording, const std::string& program) {
  if (recording.files.empty()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' mapped no file that it could write to (shared, opened for "
                             "writing): nothing of it is persistent, and no trace was written",
                             program)};
  }
  if (recording.lines == 0 && recording.lost() > 0) {
    return Error{ErrorCode::NoSpace,
                 "nothing of what the program wrote is in the recording, so no "
                 "trace was written"};
  }
  if (recording.lines == 0) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("'{}' mapped '{}' and made nothing new durable in it by libpmem, libpmem2, "
                    "libpmemobj or msync, so no trace was written; {} changed otherwise. {}",
                    program, recording.files.front().path,
                    counted(recording.unflushed_lines, "line"), kInlineFlushes)};
  }
  return {};
}

void warn_of_gaps(const Recording& recording) {
  if (recording.lost_places > 0) {
    print_warning(
        fmt::format("{} events are missing in the trace, and in what was simulated from it: the "
                    "place for recordings was full (--scratch names another)",
                    recording.lost_places));
  }
  if (recording.lost_threads > 0) {
    print_warning(fmt::format(
        "{} events are missing in the trace, and in what was simulated from it: a trace can name "
        "{} threads, and there were more",
        recording.lost_threads, interpose::kThreadsMax));
  }
  if (recording.unflushed_lines > 0 && recording.lines > 0) {
    print_warning(fmt::format(
        "{} of mapped files changed without a flush that was seen, beside {} that are in the "
        "trace: what is flushed inline (CLWB, CLFLUSH) is not seen, and the trace, and what was "
        "simulated from it, lack it. libpmemobj leaves some ten lines of a pool so by itself",
        counted(recording.unflushed_lines, "line"), recording.lines));
  }
  if (recording.refused_files > 0) {
    print_warning("files were mapped that could not be watched: they are not in the trace");
  }
}

Result<Report> record(const RecordCommandOptions& options) {
  PERDURE_TRY(program, find_interposable(options.program.front()));
  PERDURE_TRY_VOID(check_no_input(options.trace, {program}));
  PERDURE_TRY(directory, test::TemporaryDirectory::make(options.scratch));
  PERDURE_TRY_VOID(create_journal(directory.path()));
  InterposedRun run;
  run.command = options.program;
  run.command.front() = program;
  run.backend = "record:" + directory.path();
  run.output_to_error = options.output == Format::Json;
  Report report;
  PERDURE_TRY(end, run_interposed(run));
  report.end = end;
  PERDURE_TRY(recording, read_recording(directory.path()));
  report.recording = std::move(recording);
  warn_of_gaps(report.recording);
  PERDURE_TRY_VOID(check_recorded(report.recording, options.program.front()));
  std::vector<std::string> mapped;
  for (const RecordedFile& file : report.recording.files) mapped.push_back(file.path);
  PERDURE_TRY_VOID(check_no_input(options.trace, mapped));
  const std::string name = fmt::format("{}", fmt::join(options.program, " "));
  PERDURE_TRY_VOID(write_trace(directory.path(), report.recording, name, options.trace));
  PERDURE_TRY(gains, simulate_gains(options.trace, report.recording, options.gains));
  report.gains = std::move(gains);
  return report;
}

ExitStatus run_sim_record(const RecordCommandOptions& options) {
  std::vector<std::string> inputs = options.gains.devices;
  inputs.push_back(options.gains.hardware);
  // A program's arguments are mostly files of its own.
  inputs.insert(inputs.end(), options.program.begin(), options.program.end());
  if (const auto free = check_no_input(options.trace, inputs); !free.ok()) {
    print_error(free.error());
    return ExitStatus::Usage;
  }
  const auto report = record(options);
  if (!report.ok()) return fail(report.error());
  if (options.output == Format::Json) {
    print(json_text(json_of(*report, options), 2) + "\n");
  } else {
    print(text_of(*report, options));
  }
  if (report->end.status == 0) return ExitStatus::Ok;
  print_error(
      {ErrorCode::SystemError, fmt::format("'{}' ended {}; what it did until then is recorded",
                                           options.program.front(), describe(report->end))});
  return ExitStatus::Failed;
}

}  // namespace

void add_sim_record_command(Command sim) {
  const auto options = std::make_shared<RecordCommandOptions>();
  const Command command = sim.add_subcommand(
      "record", "A program on libpmem, libpmem2 or libpmemobj: its trace, and what it would gain");
  command.add_option("program", options->program, "The program and its arguments, after --")
      .required()
      .option_text("PROGRAM ARGUMENTS");
  add_result_file_option(command, "--output", options->trace,
                         "Its trace, for perdure sim memory, goes there")
      .required();
  command
      .add_option("--device", options->gains.devices,
                  "A device to simulate it on, TOML; again for more; the first is compared with "
                  "(the built-in NVM, and one with faster cells)")
      .one_word_each()
      .option_text("FILE")
      .each(check_file_name);
  command
      .add_option("--hardware", options->gains.hardware,
                  "Network to another machine's memory, TOML (two machines on EDR)")
      .option_text("FILE")
      .each(check_file_name);
  add_word_option(command, "--persist-point", options->gains.persist_point,
                  memsys::parse_persist_point, "When a write counts as persisted (array)",
                  "accept|bus|array");
  command
      .add_option("--epochs-per-transaction", options->gains.epochs_per_transaction,
                  "For the network (those between two fences, or 6 where there are none)")
      .option_text("N")
      .range(std::uint64_t{1}, std::uint64_t{10'000});
  command.add_option("--scratch", options->scratch, "Where the recording is kept meanwhile")
      .option_text("DIR")
      .capture_default();
  add_format_option(command, options->output);
  add_examples(command,
               "  perdure sim record --output trace.txt -- ./tree --inserts 1000 /mnt/pmem/tree\n"
               "  perdure sim memory --device configs/hardware/nvm-a.toml --trace trace.txt\n"
               "The program is not changed and not compiled again. docs/simulator.md says what is "
               "seen of it.\nExit status: 0 recorded, 1 the program failed, or nothing persistent "
               "was seen, 2 wrong command line.");
  run_with(command, [options] { return run_sim_record(*options); });
}

}  // namespace perdure::app
