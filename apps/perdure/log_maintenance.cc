// `perdure log repair` and `perdure log trim`: what only the writer of a log may do.
#include "core/byte_text.h"
#include "core/counted.h"
#include "log_commands.h"
#include "output.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;

struct MaintenanceCommand {
  WriterOptions writer;
  Format format = Format::Text;
  std::uint64_t to = 0;
  bool to_given = false;
  std::uint64_t keep_records = 0;
};

std::string status_text(const LogStatus& status) {
  std::string text = fmt::format(
      "epoch {}, {} so far, LSN {} to {}, {} of {} used\n", status.epoch.value,
      counted(status.next_index, "record"), status.head.value, status.tail.value,
      format_bytes(status.tail.value - status.head.value), format_bytes(status.ring_bytes));
  for (const ReplicaStatus& each : status.replicas) {
    const bool whole = each.durable_below >= status.tail;
    text += each.up ? fmt::format("{}: {}, up to LSN {}\n", each.peer, whole ? "whole" : "behind",
                                  each.durable_below.value)
                    : fmt::format("{}: down, {}\n", each.peer, each.down_reason);
  }
  return text;
}

ordered_json status_json(const LogStatus& status, const std::optional<LogLoss>& lost,
                         const Result<void>& closed) {
  ordered_json json{{"format", 1},
                    {"epoch", status.epoch.value},
                    {"next_index", status.next_index},
                    {"head", status.head.value},
                    {"tail", status.tail.value},
                    {"ring_bytes", status.ring_bytes}};
  json["quorum"] = status.quorum;
  json["accepted_loss"] = status.accepted_loss;
  if (lost) json["lost"] = loss_json(*lost);
  if (!closed.ok()) {
    json["error"] = {{"code", to_string(closed.code())}, {"message", closed.error().message}};
  }
  json["replicas"] = ordered_json::array();
  for (const ReplicaStatus& each : status.replicas) {
    json["replicas"].push_back({{"peer", each.peer},
                                {"pool_uuid", each.pool_uuid},
                                {"up", each.up},
                                {"down_reason", each.down_reason},
                                {"durable_below", each.durable_below.value}});
  }
  return json;
}

ExitStatus run_repair(const MaintenanceCommand& command) {
  LogOptions opening = log_options(command.writer);
  opening.create = false;
  auto opened = open_log(opening, command.writer.peers);
  if (!opened.ok()) return refuse_log(opened.error(), command.writer.peers, command.format);
  Log& log = opened->log;
  std::vector<RepairReport> repairs = log.take_repairs();
  auto repaired = log.repair();
  if (!repaired.ok()) return refuse_change(*opened, repaired.error(), command.format);
  for (RepairReport& report : *repaired) repairs.push_back(std::move(report));
  const auto closed = log.close();  // not ok: a replica lacks something, or may
  const LogStatus status = log.status();
  if (command.format == Format::Json) {
    ordered_json json = status_json(status, opened->lost, closed);
    json["repairs"] = repairs_json(repairs);
    print(json_text(json, 2) + "\n");
  } else {
    const std::string done = repairs_text(repairs);
    const bool lost = !status.accepted_loss.empty();
    print((done.empty() && !lost ? "nothing had to be repaired\n" : done) + status_text(status));
  }
  const bool all_up = std::all_of(status.replicas.begin(), status.replicas.end(),
                                  [](const ReplicaStatus& replica) { return replica.up; });
  if (!closed.ok()) print_error(closed.error());
  if (!all_up || !closed.ok()) return ExitStatus::Failed;
  return status.accepted_loss.empty() ? ExitStatus::Ok : ExitStatus::LossAccepted;
}

/// The LSN from which on `keep` records remain.
Result<Lsn> place_to_keep(const MaintenanceCommand& command, const LogStatus& status) {
  if (command.keep_records == 0) return status.committed;
  if (command.keep_records >= status.next_index) return status.head;
  const std::uint64_t first = status.next_index - command.keep_records;
  const auto up = std::find_if(status.replicas.begin(), status.replicas.end(),
                               [](const ReplicaStatus& replica) { return replica.up; });
  if (up == status.replicas.end()) return Error{ErrorCode::QuorumLost, "no replica is up"};
  LogReaderOptions options;
  options.peers = {up->peer};
  options.pool = command.writer.peers.pool;
  options.transport = command.writer.peers.transport;
  options.rnic.name = command.writer.peers.rnic;
  auto reader = LogReader::open(options);
  if (!reader.ok()) return reader.error();
  while (true) {
    const auto record = reader->next();
    if (!record.ok()) return record.error();
    if (!record->has_value()) return status.head;  // so few are left that all are kept
    if ((*record)->index >= first) return (*record)->lsn;
  }
}

ExitStatus run_trim(const MaintenanceCommand& command) {
  LogOptions opening = log_options(command.writer);
  opening.create = false;
  auto opened = open_log(opening, command.writer.peers);
  if (!opened.ok()) return refuse_log(opened.error(), command.writer.peers, command.format);
  Log& log = opened->log;
  const LogStatus before = log.status();
  const auto place =
      command.to_given ? Result<Lsn>(Lsn{command.to}) : place_to_keep(command, before);
  if (!place.ok()) return refuse_change(*opened, place.error(), command.format);
  if (const auto trimmed = log.trim(*place); !trimmed.ok()) {
    return refuse_change(*opened, trimmed.error(), command.format);
  }
  const auto closed = log.close();  // not ok: a replica lacks something, or may
  const LogStatus status = log.status();
  if (command.format == Format::Json) {
    print(json_text(status_json(status, opened->lost, closed), 2) + "\n");
  } else {
    const std::uint64_t freed = status.head.value - before.head.value;
    print((freed == 0 ? "nothing had to be trimmed\n"
                      : fmt::format("trimmed from LSN {} to {}: {} free again\n", before.head.value,
                                    status.head.value, format_bytes(freed))) +
          status_text(status));
  }
  // One that is down can not have it: that is said above. One that is up should.
  if (!closed.ok()) print_warning(closed.error().message);
  const bool behind = std::any_of(
      status.replicas.begin(), status.replicas.end(),
      [&](const ReplicaStatus& each) { return each.up && each.durable_below < status.tail; });
  if (behind) return ExitStatus::Failed;
  return status.accepted_loss.empty() ? ExitStatus::Ok : ExitStatus::LossAccepted;
}

}  // namespace

void add_log_maintenance(Command log) {
  const auto repair = std::make_shared<MaintenanceCommand>();
  const Command repairing = log.add_subcommand(
      "repair", "Become the log's writer, and bring every replica back to equal");
  add_writer_options(repairing, repair->writer);
  add_format_option(repairing, repair->format);
  add_examples(repairing,
               "  perdure log repair --peers a:7470,b:7470,c:7470 --pool orders\n"
               "Exit status: 0 all replicas are whole, 1 one is still down or behind, 4 committed\n"
               "records are lost and nothing was changed, 5 they were given up (--accept-loss).");
  run_with(repairing, [repair] { return run_repair(*repair); });

  const auto trim = std::make_shared<MaintenanceCommand>();
  const Command trimming =
      log.add_subcommand("trim", "Become the log's writer, and forget old records");
  add_writer_options(trimming, trim->writer);
  const Command what = trimming.add_choice("What to keep");
  what.add_option("--to", trim->to, "All records from the one with this LSN on").option_text("LSN");
  what.add_option("--keep-records", trim->keep_records, "The last so many records; 0 forgets all")
      .option_text("N");
  add_format_option(trimming, trim->format);
  add_examples(trimming,
               "  perdure log trim --peers a:7470,b:7470,c:7470 --pool orders --keep-records 1000");
  run_with(trimming, [trim, trimming] {
    trim->to_given = trimming.count("--to") > 0;
    return run_trim(*trim);
  });
}

}  // namespace perdure::app
