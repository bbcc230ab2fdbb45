// `perdure log append`: records from standard input or files, until each is committed.
#include "append_run.h"
#include "client/named_options.h"
#include "core/byte_text.h"
#include "core/counted.h"
#include "core/json.h"
#include "log/log_options.h"
#include "log_commands.h"
#include "output.h"
#include "signals.h"

#include <fmt/format.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;

struct AppendCommand {
  WriterOptions writer;
  RecordSourceOptions input;
  AppendRunOptions run;
  std::uint64_t commit_timeout_ms = 30000;
  double auto_repair_s = 0;
  Format format = Format::Text;
};

double microseconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1000; }

double per_second(std::uint64_t count, Nanoseconds time) {
  return time.count() <= 0 ? 0.0
                           : static_cast<double>(count) * 1e9 / static_cast<double>(time.count());
}

/// A line for each step of a record: on one replica, then on the quorum.
std::string latencies_text(const AppendOutcome& outcome, const AppendRunOptions& run) {
  std::string text = fmt::format(
      "latency from append to knowing, window {} (measured)\n  {:<19}{:>13}{:>13}{:>13}{:>13}\n",
      run.window, "", "p50", "p99", "p99.9", "max");
  const auto line = [&](std::string_view step, const report::Histogram& latency) {
    text += fmt::format("  {:<19}{:>10.1f} us{:>10.1f} us{:>10.1f} us{:>10.1f} us\n", step,
                        microseconds(latency.quantile(0.5)), microseconds(latency.quantile(0.99)),
                        microseconds(latency.quantile(0.999)), microseconds(latency.max()));
  };
  line(to_string(run.level), outcome.durable);
  line(fmt::format("{}{}", word_on_quorum(run.level),
                   run.level < Level::Durable ? " on quorum" : ""),
       outcome.committed_latency);
  return text;
}

/// How records become durable on a replica, and why that is right there.
std::string methods_text(const ReplicaStatus& replica, const LogStatus& status, Level level) {
  std::string text = fmt::format("{}\n", describe(replica.profile));
  const auto line = [&](const std::string& method, const std::string& sizes) {
    text += fmt::format("  {}: {}\n    {}\n", sizes, method,
                        method_reason(replica, status.shape, level, method));
  };
  if (replica.small_method == replica.large_method) {
    line(replica.small_method, "every size");
  } else {
    line(replica.small_method, fmt::format("up to {} bytes", replica.small_bytes_max));
    line(replica.large_method, "larger");
  }
  return text;
}

/// Replicas that are alike stand together.
std::string replicas_text(const LogStatus& status, Level level) {
  std::vector<std::pair<std::string, std::string>> groups;  // text, peers
  for (const ReplicaStatus& replica : status.replicas) {
    const std::string text =
        replica.up ? methods_text(replica, status, level) : "down, " + replica.down_reason + "\n";
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.first == text; });
    if (same != groups.end()) {
      same->second += ", " + replica.peer;
    } else {
      groups.emplace_back(text, replica.peer);
    }
  }
  std::string all;
  for (const auto& [text, peers] : groups) all += fmt::format("{}: {}", peers, text);
  return all;
}

std::string open_text(const AppendOutcome& outcome, const RecordSource& source, Level level) {
  const RecordRange& open = outcome.open;
  return fmt::format(
      "NOT known to be {}: {}, index {} to {} (LSN {} to {}), {} to {}; they may or "
      "may not be {}, and the next writer finds out: read the log, then append what lacks\n",
      word_on_quorum(level), counted(open.count, "record"), open.first.index, open.last.index,
      open.first.lsn.value, open.last.lsn.value, source.describe(open.first_place),
      source.describe(open.last_place), to_string(level));
}

std::string unread_text(const Unread& unread, const RecordSource& source) {
  const std::string place = source.describe(unread.place);
  return unread.after ? fmt::format("NOT read: what comes after {}\n", place)
                      : fmt::format("NOT appended: {} and everything after it\n", place);
}

std::string summary_text(const AppendOutcome& outcome, const RecordSource& source,
                         const AppendCommand& command) {
  const LogStatus& status = outcome.status;
  const Level level = command.run.level;
  std::string text = fmt::format(
      "appended {}, {}, in {:.2f} s: {:.0f} records/s, {}/s (measured)\n",
      counted(outcome.appended, "record"), format_bytes(outcome.payload_bytes),
      to_seconds(outcome.elapsed), per_second(outcome.appended, outcome.elapsed),
      format_bytes(static_cast<std::uint64_t>(per_second(outcome.payload_bytes, outcome.elapsed))));
  text += fmt::format("{} {} of them, on {} of {} replicas\n", word_on_quorum(level),
                      outcome.committed, status.quorum, status.replicas.size());
  if (outcome.empty_lines > 0) {
    text += fmt::format(
        "left out {}: a record has at least one byte; --keep-newline "
        "keeps them\n",
        counted(outcome.empty_lines, "empty line"));
  }
  if (outcome.committed > 0) text += latencies_text(outcome, command.run);
  text += fmt::format(
      "log '{}': epoch {}, {}, LSN {} to {}, {} of {} used\n", command.writer.peers.pool,
      status.epoch.value, to_string(status.shape), status.head.value, status.tail.value,
      format_bytes(status.tail.value - status.head.value), format_bytes(status.ring_bytes));
  text += replicas_text(status, level);
  if (outcome.open.count > 0) text += open_text(outcome, source, level);
  if (outcome.unread) text += unread_text(*outcome.unread, source);
  return text;
}

ordered_json latency_json(const report::Histogram& latency) {
  return {{"count", latency.count()},
          {"p50_ns", latency.quantile(0.5).count()},
          {"p99_ns", latency.quantile(0.99).count()},
          {"p999_ns", latency.quantile(0.999).count()},
          {"max_ns", latency.max().count()}};
}

ordered_json replica_json(const ReplicaStatus& replica, const LogStatus& status, Level level) {
  ordered_json json{{"peer", replica.peer}, {"up", replica.up}};
  if (!replica.up) {
    json["down_reason"] = replica.down_reason;
    return json;
  }
  json[fmt::format("{}_below", to_string(level))] = replica.durable_below.value;
  json["profile"] = describe(replica.profile);
  json["small_method"] = replica.small_method;
  json["small_reason"] = method_reason(replica, status.shape, level, replica.small_method);
  json["small_bytes_max"] = replica.small_bytes_max;
  json["large_method"] = replica.large_method;
  json["costs"] = replica.costs_measured ? "measured" : "default";
  json["replans"] = replica.replans;
  json["large_reason"] = method_reason(replica, status.shape, level, replica.large_method);
  return json;
}

ordered_json place_json(const InputPlace& place, const RecordSource& source) {
  return {{"number", place.number}, {"text", source.describe(place)}};
}

std::string summary_json(const AppendOutcome& outcome, const RecordSource& source,
                         const AppendCommand& command, const std::optional<LogLoss>& lost) {
  const LogStatus& status = outcome.status;
  const std::string level(to_string(command.run.level));
  const std::string all(word_on_quorum(command.run.level));
  const std::string latency_all = all == level ? all + "_on_quorum" : all;
  ordered_json json{{"format", 1},
                    {"label", "measured"},
                    {"pool", command.writer.peers.pool},
                    {"appended", outcome.appended},
                    {all, outcome.committed},
                    {"payload_bytes", outcome.payload_bytes},
                    {"empty_lines", outcome.empty_lines},
                    {"seconds", to_seconds(outcome.elapsed)},
                    {"records_per_second", per_second(outcome.appended, outcome.elapsed)},
                    {"window", command.run.window},
                    {"level", level},
                    {"latency_" + level, latency_json(outcome.durable)},
                    {"latency_" + latency_all, latency_json(outcome.committed_latency)}};
  json["log"] = {{"epoch", status.epoch.value},     {"shape", to_string(status.shape)},
                 {"quorum", status.quorum},         {"head", status.head.value},
                 {"tail", status.tail.value},       {all, status.committed.value},
                 {"next_index", status.next_index}, {"ring_bytes", status.ring_bytes}};
  json["replicas"] = ordered_json::array();
  for (const ReplicaStatus& each : status.replicas) {
    json["replicas"].push_back(replica_json(each, status, command.run.level));
  }
  json["repairs"] = repairs_json(outcome.repairs);
  if (!status.accepted_loss.empty()) json["accepted_loss"] = status.accepted_loss;
  if (lost) json["lost"] = loss_json(*lost);
  if (outcome.open.count > 0) {
    const RecordRange& open = outcome.open;
    json["not_" + all] = {{"count", open.count},
                          {"outcome", "unknown"},
                          {"first_index", open.first.index},
                          {"last_index", open.last.index},
                          {"first_lsn", open.first.lsn.value},
                          {"last_lsn", open.last.lsn.value},
                          {"first_input", place_json(open.first_place, source)},
                          {"last_input", place_json(open.last_place, source)}};
  }
  if (outcome.unread) {
    const bool after = outcome.unread->after;
    json[after ? "not_read_after" : "not_appended_from"] =
        place_json(outcome.unread->place, source);
  }
  if (outcome.error) {
    json["error"] = {{"code", to_string(outcome.error->code)}, {"message", outcome.error->message}};
  }
  return json_text(json, 2) + "\n";
}

/// Why the file can not be read, as far as can be told without opening it: a pipe's writer would
/// take a reader that leaves again for the end.
int reason_unreadable(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return errno;
  if (S_ISDIR(file.st_mode)) return EISDIR;
  return ::access(path.c_str(), R_OK) == 0 ? 0 : errno;
}

/// That every file can be read.
Result<void> require_readable(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const int error = file == "-" ? 0 : reason_unreadable(file);
    if (error == 0) continue;
    return Error{error == ENOENT ? ErrorCode::NotFound : ErrorCode::SystemError,
                 fmt::format("can not read '{}': {}; nothing was done", file,
                             std::generic_category().message(error))};
  }
  return {};
}

ExitStatus run_append(AppendCommand& command) {
  command.run.level = command.writer.log.level;
  command.run.commit_timeout = std::chrono::milliseconds(command.commit_timeout_ms);
  command.run.reconnects = command.auto_repair_s > 0;
  command.writer.log.reconnect = std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(command.auto_repair_s));
  command.input.record_bytes_max = command.writer.log.record_bytes_max;
  if (const auto readable = require_readable(command.input.files); !readable.ok()) {
    return fail(readable.error());  // before anything of the log is touched
  }
  count_signals();
  auto opened = open_log(log_options(command.writer), command.writer.peers);
  if (!opened.ok()) return refuse_log(opened.error(), command.writer.peers, command.format);
  Log& log = opened->log;
  const std::string repaired = repairs_text(log.take_repairs());
  if (!repaired.empty()) print_warning(repaired.substr(0, repaired.size() - 1));
  RecordSource source(command.input);
  const AppendOutcome outcome = AppendRun(log, source, command.run).run();
  print(command.format == Format::Json ? summary_json(outcome, source, command, opened->lost)
                                       : summary_text(outcome, source, command));
  if (outcome.error) print_error(*outcome.error);
  if (!outcome.all_committed()) return ExitStatus::NotCommitted;
  if (!outcome.interrupted) {
    return outcome.status.accepted_loss.empty() ? ExitStatus::Ok : ExitStatus::LossAccepted;
  }
  print_warning(
      fmt::format("interrupted after {}: all records before are {}, what came "
                  "after was not read",
                  source.describe(source.place()), word_on_quorum(command.run.level)));
  return ExitStatus::Failed;
}

void add_input_options(Command command, AppendCommand& options) {
  command.add_option("files", options.input.files, "Files of records; - or none: standard input")
      .option_text("[FILE...]");
  command.add_flag("--framed", options.input.framed,
                   "Each record is a u32 little-endian length, then so many bytes");
  command.add_flag("--keep-newline", options.input.keep_newline,
                   "Each line's newline belongs to its record, so that any text comes back as it "
                   "was with read --raw");
  add_word_option(command, "--record-bytes-max", options.writer.log.record_bytes_max, parse_bytes,
                  "Refuse larger records; the client's memory grows with it (16MiB)", "SIZE");
}

void add_log_options(Command command, AppendCommand& options) {
  const std::string group = "How";
  LogOptions& log = options.writer.log;
  add_word_option(command, "--shape", log.shape, log::parse_shape_choice,
                  "singleton: tail found by scan; compound: tail pointer; for a new log (planned)",
                  "planned|singleton|compound")
      .group(group);
  add_word_option(command, "--primary", log.primary, client::parse_primary_choice,
                  "The operation by which records travel (planned)", "planned|write|write_imm|send")
      .group(group);
  add_word_option(command, "--level", log.level,
                  client::option_one_of<Level::Visible, Level::Durable>,
                  "visible accepts peers whose memory does not survive a power failure (durable)",
                  "visible|durable")
      .group(group);
  command.add_option("--window", options.run.window, "Records in flight at a time (1024)")
      .range(1, 1'000'000)
      .option_text("N")
      .group(group);
  command
      .add_option("--batches", log.batches_in_flight,
                  "Messages in flight to each replica; fewer coalesce more (4)")
      .range(1, 8)
      .option_text("N")
      .group(group);
  command
      .add_option("--spin-us", options.writer.spin_us,
                  "Poll for this long before sleeping; 0 where cores are scarce (200)")
      .range(0, 1'000'000)
      .option_text("US")
      .group(group);
  command
      .add_option("--auto-repair", options.auto_repair_s,
                  "Bring back replicas that are down: first this long after the loss, after each "
                  "failure twice as long, up to 16 times that (never)")
      .range(0.01, 86400.0)
      .option_text("SECONDS")
      .group(group);
  command
      .add_option("--commit-timeout-ms", options.commit_timeout_ms,
                  "Give up when nothing gets committed for this long (30000)")
      .range(1, 86'400'000)
      .option_text("MS")
      .group(group);
}

}  // namespace

void add_log_append(Command log) {
  const auto options = std::make_shared<AppendCommand>();
  const Command command =
      log.add_subcommand("append", "Append records, and wait until they are committed");
  add_input_options(command, *options);
  add_writer_options(command, options->writer);
  add_log_options(command, *options);
  add_format_option(command, options->format);
  add_examples(
      command,
      "  journalctl -o cat | perdure log append --peers a:7470,b:7470,c:7470 --pool audit\n"
      "  perdure log append --peers 127.0.0.1:7470 --pool orders --framed orders.bin\n"
      "  perdure log append --peers a:7470,b:7470,c:7470 --pool orders --quorum 2 \\\n"
      "      --auto-repair 1 --format json lines.txt\n"
      "Exit status: 0 all records are committed, 1 failed before, 3 some are not, and the\n"
      "output says which, 4 committed records are lost and nothing was changed, 5 they were\n"
      "given up (--accept-loss) and all of these are committed. With --level visible\n"
      "nothing is ever durable: the output, and its JSON, say that word for durable and for\n"
      "committed.");
  run_with(command, [options] { return run_append(*options); });
}

}  // namespace perdure::app
