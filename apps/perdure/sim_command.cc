// `perdure sim`: what persistence costs on hardware that is not here. Simulated, and says so.
#include "commands.h"
#include "core/counted.h"
#include "core/try.h"
#include "memsys/memory_run.h"
#include "output.h"
#include "profile_options.h"
#include "sim_commands.h"
#include "sim_files.h"

#include <fmt/format.h>

#include <memory>
#include "core/json.h"

namespace perdure::app {
namespace {

using memsys::Latencies;
using memsys::MemoryResult;
using nlohmann::ordered_json;

struct MemoryCommandOptions {
  std::string device;
  std::string trace;
  std::string commands;
  memsys::TraceFormat format = memsys::TraceFormat::Auto;
  memsys::Order order = memsys::Order::Thread;
  memsys::PersistPoint persist_point = memsys::PersistPoint::Array;
  Format output = Format::Text;
};

ordered_json json_of(const memsys::Latencies& latencies) {
  return {{"count", latencies.count()},
          {"mean", latencies.mean()},
          {"p50", latencies.quantile(0.5)},
          {"p99", latencies.quantile(0.99)},
          {"max", latencies.max()}};
}

ordered_json json_of(const memsys::Device& device, const MemoryResult& result,
                     const MemoryCommandOptions& options) {
  const memsys::ChannelCounts& c = result.commands;
  return {{"format", 1},
          {"label", "simulated"},
          {"device", device.name},
          {"clock_ns", device.clock_ns},
          {"trace_format", memsys::to_string(result.trace.format)},
          {"order", memsys::to_string(options.order)},
          {"persist_point", memsys::to_string(options.persist_point)},
          {"threads", result.trace.threads.size()},
          {"requests", result.requests},
          {"reads", result.trace.reads},
          {"writes", result.trace.writes},
          {"barriers", result.trace.barriers},
          {"fences", result.trace.fences},
          {"finish_cycle", result.finish_cycle},
          {"persisted_cycle", result.persisted_cycle},
          {"lower_bound_cycle", result.lower_bound},
          {"commands",
           {{"activate", c.activates},
            {"precharge", c.precharges},
            {"column_hits", c.column_hits},
            {"read", c.reads},
            {"write", c.writes},
            {"refresh", c.refreshes}}},
          {"bank_stalled", c.bank_stalled},
          {"bank_busy", c.bank_busy},
          {"latency",
           {{"unit", "cycles"},
            {"read", json_of(result.read)},
            {"write", json_of(result.write)},
            {"persist", json_of(result.persist)},
            {"wait", json_of(result.wait)}}},
          {"law", {{"holds", true}, {"writes_checked", result.law_checked}}},
          {"held_events", result.held_most},
          {"lookahead_reached", result.lookahead_reached},
          {"last_line_open", result.trace.last_line_open}};
}

std::string latency_line(std::string_view name, const memsys::Latencies& latencies) {
  if (latencies.count() == 0) return "";
  return fmt::format("  {:<10} {:>12.1f} {:>10} {:>10} {:>10}\n", name, latencies.mean(),
                     latencies.quantile(0.5), latencies.quantile(0.99), latencies.max());
}

std::string text_of(const memsys::Device& device, const MemoryResult& result,
                    const MemoryCommandOptions& options) {
  const memsys::ChannelCounts& c = result.commands;
  const double ns = device.clock_ns;
  const auto microseconds = [&](memsys::Cycle cycle) {
    return static_cast<double>(cycle) * ns / 1e3;
  };
  std::string text = fmt::format(
      "simulated: {}, order {}, persisted at {}\n"
      "  {} requests of {}: {} reads, {} writes, {} barriers, {} fences\n"
      "  last burst ends in cycle {} ({:.3f} us); banks and bus need {} at least\n",
      device.name, memsys::to_string(options.order), memsys::to_string(options.persist_point),
      result.requests, counted(result.trace.threads.size(), "thread"), result.trace.reads,
      result.trace.writes, result.trace.barriers, result.trace.fences, result.finish_cycle,
      microseconds(result.finish_cycle), result.lower_bound);
  if (result.trace.writes > 0) {
    text += fmt::format("  last write persisted in cycle {} ({:.3f} us); order kept by {} writes\n",
                        result.persisted_cycle, microseconds(result.persisted_cycle),
                        result.law_checked);
  }
  if (result.finish_cycle > 0) {
    const double bytes =
        static_cast<double>(result.requests) * static_cast<double>(device.geometry.line_bytes);
    text += fmt::format("  {:.3f} GB/s on the bus\n",
                        bytes / (static_cast<double>(result.finish_cycle) * ns));
  }
  text += fmt::format(
      "  commands: {} activate, {} precharge, {} read, {} write, {} refresh; {} column hits\n"
      "  {} requests found another row open in their bank or awaited; {} while it was at work\n"
      "  cycles             mean        p50        p99        max\n",
      c.activates, c.precharges, c.reads, c.writes, c.refreshes, c.column_hits, c.bank_stalled,
      c.bank_busy);
  text += latency_line("read", result.read) + latency_line("write", result.write) +
          latency_line("persist", result.persist) + latency_line("wait", result.wait);
  return text;
}

Result<MemoryResult> simulate(const memsys::Device& device, const MemoryCommandOptions& options) {
  PERDURE_TRY(bytes, memsys::open_trace(options.trace));
  const memsys::AddressMap map(device);
  memsys::TraceReader reader(*bytes, options.trace, {map.lines(), map.line_bytes()});
  // The trace is read whole before anything is simulated, and before a file is written.
  StatusLine status;
  status.show(options.trace + ": checking each line");
  PERDURE_TRY(summary, reader.survey(options.format));
  status.clear();
  std::unique_ptr<memsys::CommandFile> commands;
  if (!options.commands.empty()) {
    PERDURE_TRY(file, memsys::CommandFile::create(options.commands, device.geometry));
    commands = std::move(file);
  }
  memsys::MemoryOptions run;
  run.order = options.order;
  run.persist_point = options.persist_point;
  run.commands = commands.get();
  const std::uint64_t requests = summary.reads + summary.writes;
  report::ProgressBar bar(requests);
  run.progress = [&](std::uint64_t left) { bar.show(requests - left, "of the requests served"); };
  auto result = memsys::run_memory(device, reader, std::move(summary), run);
  // A full one ended the run, and says so. Of a run that failed no commands are left.
  if (commands && (result.ok() || commands->full())) PERDURE_TRY_VOID(commands->close());
  return result;
}

ExitStatus run_sim_memory(const MemoryCommandOptions& options) {
  const auto free = check_no_input(options.commands, {options.device, options.trace});
  if (!free.ok()) {
    print_error(free.error());
    return ExitStatus::Usage;
  }
  const auto device = memsys::read_device(options.device);
  if (!device.ok()) return fail(device.error());
  const auto result = simulate(*device, options);
  if (!result.ok()) {
    print_error(result.error());
    return ExitStatus::Failed;
  }
  if (result->trace.last_line_open) {
    print_warning(fmt::format(
        "{}:{}: the last line ends without a newline; if the trace was cut there, that line may "
        "be another one, and lines behind it are missing",
        options.trace, result->trace.text_lines));
  }
  if (result->requests == 0) print_warning(options.trace + ": there is no request in it");
  if (result->lookahead_reached) {
    print_warning(
        "threads of the trace are very far apart: one that was ahead waited for the trace to be "
        "read");
  }
  if (options.output == Format::Json) {
    print(json_text(json_of(*device, *result, options), 2) + "\n");
  } else {
    print(text_of(*device, *result, options));
  }
  return ExitStatus::Ok;
}

void add_memory_command(Command sim) {
  const auto options = std::make_shared<MemoryCommandOptions>();
  const Command command = sim.add_subcommand(
      "memory", "A trace of memory requests on a device: bursts, persists, commands");
  command.add_option("--device", options->device, "Device and controller, TOML")
      .required()
      .option_text("FILE")
      .each(check_file_name);
  command.add_option("--trace", options->trace, "Requests, text, one a line; - is standard input")
      .required()
      .option_text("FILE")
      .each(check_input_name);
  add_word_option(command, "--trace-format", options->format, memsys::parse_trace_format,
                  "How the trace is written (auto)", "auto|perdure|dramsim3|ramulator|whisper");
  add_word_option(command, "--order", options->order, memsys::parse_order,
                  "How epochs are kept apart (thread)", memsys::order_names());
  add_word_option(command, "--persist-point", options->persist_point, memsys::parse_persist_point,
                  "When a write counts as persisted (array)", "accept|bus|array");
  command.add_option("--commands", options->commands, "Write every command of the device there")
      .option_text("FILE")
      .each(check_file_name);
  add_format_option(command, options->output);
  add_examples(command,
               "  perdure sim memory --device configs/hardware/nvm-a.toml --trace writes.txt\n"
               "  perdure sim memory --device configs/hardware/ddr4-2400.toml --trace t.txt \\\n"
               "      --order global --persist-point bus --commands commands.txt --format json\n"
               "docs/simulator.md describes both files. Exit status: 0 simulated, 1 an input is "
               "wrong, a deadlock, or the order of persistence was broken, 2 wrong command line.");
  run_with(command, [options] { return run_sim_memory(*options); });
}

}  // namespace

void add_sim_command(Command app) {
  const Command sim =
      app.add_subcommand("sim", "What persistence costs on hardware that is not here (simulated)");
  sim.require_subcommand();
  add_memory_command(sim);
  add_sim_server_command(sim);
  add_sim_method_command(sim);
  add_sim_network_command(sim);
  add_sim_remotelog_command(sim);
  add_sim_figure_commands(sim);
  add_sim_record_command(sim);
}

}  // namespace perdure::app
