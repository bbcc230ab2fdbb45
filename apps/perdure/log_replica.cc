// `perdure log status` and `perdure log replica`: what a log has, and changing which replicas it is
// on, one at a time.
#include "log/log_scan.h"
#include "log_commands.h"
#include "missing_pool.h"
#include "output.h"
#include "replica_survey.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

namespace perdure::app {
namespace {

std::string marks_text(const log::Marks& marks) {
  std::string text;
  if (marks.creating) text += ", being created";
  if (marks.incomplete) text += ", incomplete until it is repaired";
  if (marks.removed) text += ", removed from the log";
  return text;
}

}  // namespace

std::string problem_of(const log::LogStart& start) {
  if (!start.anchor) return "it holds no log";
  if (start.state().marks.any()) return "it is no whole replica" + marks_text(start.state().marks);
  if (start.anchor_damaged || !start.stored->copies_agree) {
    return "a copy of what it says of its log is damaged; repair writes it again";
  }
  if (start.tail_word_damaged || start.committed_word_damaged) {
    return "the word that says how much it holds is damaged; repair it";
  }
  return "";
}

namespace {

using nlohmann::ordered_json;

struct StatusCommand {
  PeerOptions peers;
  Format format = Format::Text;
};

std::string start_text(const log::LogStart& start) {
  if (!start.anchor) return "";  // problem_of says it
  const log::LogState& state = start.state();
  std::string text = fmt::format("  log {:016x}, epoch {} since LSN {}, head LSN {} (index {}){}\n",
                                 state.anchor.log_id, state.epoch.value, state.begin.value,
                                 state.head.lsn.value, state.head.index, marks_text(state.marks));
  if (start.committed_word) {
    text += fmt::format("  committed up to LSN {} at least\n", start.committed_word->value);
  }
  text += fmt::format("  configuration {}, {}\n", state.configuration.generation,
                      log::describe(state.configuration));
  return text;
}

ordered_json start_json(const log::LogStart& start) {
  if (!start.anchor) return {{"log", nullptr}};
  const log::LogState& state = start.state();
  ordered_json json{{"log", fmt::format("{:016x}", state.anchor.log_id)},
                    {"epoch", state.epoch.value},
                    {"begin", state.begin.value},
                    {"head", state.head.lsn.value},
                    {"head_index", state.head.index},
                    {"creating", state.marks.creating},
                    {"incomplete", state.marks.incomplete},
                    {"removed", state.marks.removed},
                    {"generation", state.configuration.generation},
                    {"quorum", state.configuration.quorum}};
  json["committed"] = start.committed_word ? start.committed_word->value : 0;
  json["members"] = ordered_json::array();
  for (const log::Member& member : state.configuration.members) {
    json["members"].push_back({{"pool_uuid", pmem::to_string(member.pool)}, {"name", member.name}});
  }
  return json;
}

ExitStatus run_status(const StatusCommand& command) {
  ReplicaSurvey survey;
  survey.open_peers(command.peers);
  if (const auto missing = survey.missing_pool()) {
    return fail(explain_missing_pool(*missing, command.peers));
  }
  std::string text;
  ordered_json replicas = ordered_json::array();
  ExitStatus status = ExitStatus::Ok;
  std::optional<std::uint64_t> log_id;
  for (const SurveyedReplica& replica : survey.replicas()) {
    ordered_json json{{"replica", replica.name}};
    const auto start =
        replica.bytes ? log::read_start(*replica.bytes) : Result<log::LogStart>(*replica.error);
    if (start.ok()) {
      text += fmt::format("{}{}\n{}", replica.name,
                          replica.writer_present ? ": written by " + replica.writer_name : ":",
                          start_text(*start));
      json.update(start_json(*start));
      json["writer"] = replica.writer_present ? replica.writer_name : "";
      std::string problem = problem_of(*start);
      const std::uint64_t id = start->anchor ? start->anchor->log_id : 0;
      if (problem.empty() && log_id && *log_id != id) problem = "it holds another log";
      if (!log_id && id != 0) log_id = id;
      json["problem"] = problem;
      if (!problem.empty()) {
        text += fmt::format("  {}\n", problem);
        status = ExitStatus::Damaged;
      }
    } else {
      text += fmt::format("{}: {}\n", replica.name, start.error().message);
      json["error"] = {{"code", to_string(start.code())}, {"message", start.error().message}};
      if (start.code() == ErrorCode::Corrupt) {
        status = ExitStatus::Damaged;
      } else if (status == ExitStatus::Ok) {
        status = ExitStatus::Failed;
      }
    }
    replicas.push_back(std::move(json));
  }
  print(command.format == Format::Json
            ? json_text(ordered_json{{"format", 1}, {"replicas", std::move(replicas)}}, 2) + "\n"
            : text);
  return status;
}

enum class Change { Add, Remove, Replace, Quorum };

struct ChangeCommand {
  WriterOptions writer;
  std::string which;
  std::string peer;
  std::size_t quorum = 0;
  Format format = Format::Text;
};

Result<void> change(Log& log, Change what, const ChangeCommand& command) {
  switch (what) {
    case Change::Add: return log.add_replica(command.peer, command.quorum);
    case Change::Remove: return log.remove_replica(command.which, command.quorum);
    case Change::Replace: return log.replace_replica(command.which, command.peer);
    case Change::Quorum: return log.change_quorum(command.quorum);
  }
  return {};
}

ExitStatus run_change(const ChangeCommand& command, Change what) {
  LogOptions options = log_options(command.writer);
  options.create = false;
  options.partial = true;
  auto opened = open_log(options, command.writer.peers);
  if (!opened.ok()) return refuse_log(opened.error(), command.writer.peers, command.format);
  Log& log = opened->log;
  const auto changed = change(log, what, command);
  if (!changed.ok()) return refuse_change(*opened, changed.error(), command.format);
  (void)log.close();
  const LogStatus status = log.status();
  if (command.format == Format::Json) {
    ordered_json json{
        {"format", 1}, {"quorum", status.quorum}, {"accepted_loss", status.accepted_loss}};
    if (opened->lost) json["lost"] = loss_json(*opened->lost);
    json["replicas"] = ordered_json::array();
    for (const ReplicaStatus& each : status.replicas) {
      json["replicas"].push_back(
          {{"peer", each.peer}, {"pool_uuid", each.pool_uuid}, {"up", each.up}});
    }
    print(json_text(json, 2) + "\n");
  } else {
    print(fmt::format("the log has {}\n", status.configuration));
  }
  return status.accepted_loss.empty() ? ExitStatus::Ok : ExitStatus::LossAccepted;
}

void add_change(Command parent, Change what, const std::string& name, const std::string& help) {
  const auto options = std::make_shared<ChangeCommand>();
  const Command command = parent.add_subcommand(name, help);
  add_writer_options(command, options->writer)
      .description("The peers that the log has now, as far as they live");
  if (what == Change::Remove || what == Change::Replace) {
    command.add_option("replica", options->which, "Its address, or the UUID of its pool")
        .required();
  }
  if (what == Change::Add || what == Change::Replace) {
    command.add_option("peer", options->peer, "The peer whose pool becomes a replica")
        .required()
        .option_text("HOST:PORT");
  }
  if (what != Change::Replace) {
    const Option quorum = command.add_option("--new-quorum", options->quorum,
                                             "The quorum from then on (a majority if it was one)");
    if (what == Change::Quorum) quorum.required();
  }
  add_format_option(command, options->format);
  run_with(command, [options, what] { return run_change(*options, what); });
}

}  // namespace

void add_log_replica(Command log) {
  const auto status = std::make_shared<StatusCommand>();
  const Command showing = log.add_subcommand(
      "status", "What each replica says of the log; reads no record, changes nothing");
  add_peers_option(showing, status->peers);
  add_pool_option(showing, status->peers);
  add_transport_option(showing, status->peers);
  add_timeout_option(showing, status->peers);
  add_format_option(showing, status->format);
  add_examples(showing,
               "  perdure log status --peers a:7470,b:7470,c:7470 --pool orders\n"
               "Exit status: 0 all are usable, 1 one can not be read, 4 one is damaged or "
               "incomplete.");
  run_with(showing, [status] { return run_status(*status); });

  const Command replica =
      log.add_subcommand("replica", "Change which replicas a log has, one at a time");
  replica.require_subcommand();
  add_change(replica, Change::Add, "add", "Make a peer's pool a replica");
  add_change(replica, Change::Remove, "remove", "Take a replica away; it may be dead");
  add_change(replica, Change::Replace, "replace", "One replica for another, at once");
  add_change(replica, Change::Quorum, "quorum", "Change how many replicas a record needs");
}

}  // namespace perdure::app
