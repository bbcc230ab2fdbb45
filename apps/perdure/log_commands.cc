// `perdure log`: what its parts share.
#include "log_commands.h"

#include "core/byte_text.h"
#include "core/json.h"
#include "missing_pool.h"
#include "output.h"

#include "plan/catalog.h"

#include <fmt/format.h>

namespace perdure::app {

void add_log_commands(Command app) {
  const Command log =
      app.add_subcommand("log", "Append to a replicated log, read it, verify and repair it");
  log.require_subcommand();
  add_log_append(log);
  add_log_read(log);
  add_log_verify(log);
  add_log_maintenance(log);
  add_log_replica(log);
}

Option add_writer_options(Command command, WriterOptions& options) {
  const Option peers = add_peers_option(command, options.peers);
  add_pool_option(command, options.peers);
  add_transport_option(command, options.peers);
  const std::string group = "Writer";
  command
      .add_option("--quorum", options.log.quorum,
                  "Replicas that must have a record for it to be committed: of a new log (a "
                  "majority); an existing one is refused if it has another")
      .option_text("N")
      .group(group);
  command
      .add_flag("--take-over", options.log.take_over,
                "End the session of another writer that is still there")
      .group(group);
  command
      .add_flag("--accept-loss", options.log.accept_loss,
                "Open although committed records are damaged on every reachable replica")
      .group(group);
  command
      .add_option("--writer-name", options.log.writer_name,
                  "Shown to others who want to write (host and process id)")
      .option_text("NAME")
      .group(group);
  command
      .add_option("--replica-timeout-ms", options.replica_timeout_ms,
                  "A replica that is silent for this long is left out (5000)")
      .range(1, 3'600'000)
      .option_text("MS")
      .group(group);
  return peers;
}

LogOptions log_options(const WriterOptions& options) {
  LogOptions log = options.log;
  log.peers = options.peers.peers;
  log.pool = options.peers.pool;
  log.transport = options.peers.transport;
  log.rnic.name = options.peers.rnic;
  log.replica_timeout = std::chrono::milliseconds(options.replica_timeout_ms);
  log.spin = std::chrono::microseconds(options.spin_us);
  return log;
}

Result<OpenedLog> open_log(const LogOptions& options, const PeerOptions& peers) {
  std::optional<LogLoss> lost;
  if (options.accept_loss) lost = survey_loss(peers);
  HeldMessages messages;
  auto log = Log::open(options);
  if (!log.ok()) {
    messages.drop();
    return explain_missing_pool(log.error(), peers);
  }
  const std::string accepted = log->status().accepted_loss;
  if (accepted.empty()) return OpenedLog{std::move(log).value(), {}};
  print_warning("loss accepted: " + accepted);
  return OpenedLog{std::move(log).value(), lost};
}

ExitStatus refuse_log(const Error& error, const PeerOptions& peers, Format format) {
  std::optional<LogLoss> lost;
  if (error.code == ErrorCode::Corrupt) lost = survey_loss(peers);
  if (format == Format::Json) {
    nlohmann::ordered_json json{
        {"format", 1}, {"refused", {{"code", to_string(error.code)}, {"message", error.message}}}};
    if (lost) json["lost"] = loss_json(*lost);
    print(json_text(json, 2) + "\n");
  }
  print_error(error);
  if (lost) print_warning(loss_text(*lost));
  return error.code == ErrorCode::Corrupt ? ExitStatus::Damaged : ExitStatus::Failed;
}

ExitStatus refuse_change(const OpenedLog& opened, const Error& error, Format format) {
  const std::string given_up = opened.log.status().accepted_loss;
  if (format == Format::Json) {
    nlohmann::ordered_json json{
        {"format", 1}, {"refused", {{"code", to_string(error.code)}, {"message", error.message}}}};
    json["accepted_loss"] = given_up;
    if (opened.lost) json["lost"] = loss_json(*opened.lost);
    print(json_text(json, 2) + "\n");
  }
  print_error(error);
  return given_up.empty() ? ExitStatus::Failed : ExitStatus::LossAccepted;
}

std::string repairs_text(const std::vector<RepairReport>& repairs) {
  std::string text;
  for (const RepairReport& each : repairs) {
    const std::string found = each.found.empty() ? "it lacked nothing" : each.found;
    text += each.repaired ? fmt::format("repaired {}: {}, {} copied\n", each.peer, found,
                                        format_bytes(each.copied_bytes))
                          : fmt::format("not repaired {}: {}\n", each.peer, each.error);
  }
  return text;
}

nlohmann::ordered_json repairs_json(const std::vector<RepairReport>& repairs) {
  auto json = nlohmann::ordered_json::array();
  for (const RepairReport& each : repairs) {
    json.push_back({{"peer", each.peer},
                    {"repaired", each.repaired},
                    {"found", each.found},
                    {"copied_bytes", each.copied_bytes},
                    {"error", each.error}});
  }
  return json;
}

std::string method_reason(const ReplicaStatus& replica, LogShape shape, Level level,
                          const std::string& method) {
  const UpdateShape update = shape == LogShape::Compound ? compound() : singleton();
  for (const bool later_small : {true, false}) {
    for (const auto& known : plan::known_methods(replica.profile, {update, level, later_small})) {
      if (known.method.name == method) return known.reason;
    }
  }
  return "";
}

}  // namespace perdure::app
