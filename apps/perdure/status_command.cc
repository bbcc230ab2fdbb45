// `perdure status`: every log on the peers in one table, a line for each replica. Reads no record
// and changes nothing; `perdure log status` has all that the replicas of one log say.
#include "client/http_peer.h"
#include "commands.h"
#include "core/byte_text.h"
#include "core/json.h"
#include "log/log_report.h"
#include "log_commands.h"
#include "missing_pool.h"
#include "output.h"
#include "plan/cost.h"
#include "plan/method_set.h"
#include "replica_survey.h"
#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;

struct OverviewCommand {
  PeerOptions peers;
  Format format = Format::Text;
};

/// What is shown of one replica, or of a member of a log that is none of the peers.
struct ReplicaLine {
  std::string peer;
  std::string state;  // one word, or two
  std::optional<control::LogReport> log;
  std::uint64_t behind = 0;  // bytes, of the replica of this log that has most
  std::string writer;        // who has a session; empty: nobody
  std::string planned;       // for a small record to be durable, by the costs that are usual
  std::string problem;       // empty: nothing is wrong
};

struct LogOverview {
  std::string pool;
  std::vector<ReplicaLine> lines;
  std::vector<std::string> unclaimed;  // members that a peer may be which does not answer
  bool any_log() const {
    return std::any_of(lines.begin(), lines.end(), [](const auto& line) { return !!line.log; });
  }
};

/// What a peer answered when it was asked for its pools.
struct AskedPeer {
  std::string address;
  Result<std::vector<control::PoolDescription>> pools;
};

std::vector<AskedPeer> ask_peers(const PeerOptions& options) {
  std::vector<AskedPeer> asked;
  for (const std::string& address : options.peers) {
    auto peer = client::HttpPeer::open(address, nullptr);
    if (!peer.ok()) {
      asked.push_back({address, peer.error()});
      continue;
    }
    asked.push_back({address, (*peer)->list(Deadline::after(options.timeout()))});
  }
  return asked;
}

bool has_pool(const AskedPeer& peer, const std::string& pool) {
  return peer.pools.ok() && std::any_of(peer.pools->begin(), peer.pools->end(),
                                        [&](const auto& each) { return each.name == pool; });
}

/// A writer may use another one: by costs that it has measured, or at another level.
std::string planned_for_durable(const SurveyedReplica& replica, LogShape shape) {
  plan::SetOptions wanted;
  wanted.tail_word = shape == LogShape::Compound;
  wanted.message_bytes_max = replica.message_bytes_max;
  const auto set = plan::choose_methods(*replica.profile, wanted,
                                        plan::default_costs(replica.profile->transport));
  return set.ok() ? set->batches.small.name : "none is right";
}

std::string state_word(const log::LogStart& start) {
  const log::Marks& marks = start.state().marks;
  if (marks.removed) return "removed";
  if (marks.creating) return "being made";
  return marks.incomplete ? "incomplete" : "whole";
}

/// The replica of a pool on a peer that has it.
ReplicaLine line_of(const SurveyedReplica& replica, std::vector<log::Member>& members,
                    std::uint32_t& generation) {
  ReplicaLine line{replica.name, "unreadable", {}, 0, "", "", ""};
  const auto start =
      replica.bytes ? log::read_start(*replica.bytes) : Result<log::LogStart>(*replica.error);
  if (replica.writer_present) line.writer = replica.writer_name;
  if (!start.ok()) {
    // A pool that is too small for a log, for example, is for something else.
    const bool other = start.code() == ErrorCode::InvalidArgument;
    line.state = other ? "no log" : "unreadable";
    if (!other) line.problem = start.error().message;
    return line;
  }
  if (!start->anchor) {
    line.state = "no log";
    return line;
  }
  line.log = log::report_of(*start);
  line.state = state_word(*start);
  line.planned = planned_for_durable(replica, start->anchor->shape);
  line.problem = problem_of(*start);
  const log::Configuration& configuration = start->state().configuration;
  if (configuration.generation >= generation) {
    generation = configuration.generation;
    members = configuration.members;
  }
  return line;
}

bool is_member(const std::vector<log::Member>& members, const std::string& address) {
  return std::any_of(members.begin(), members.end(),
                     [&](const log::Member& each) { return each.name == address; });
}

/// Members of the log that no peer which answers is, and that no peer has the name of.
std::vector<std::string> members_not_met(const ReplicaSurvey& survey,
                                         const std::vector<log::Member>& members,
                                         const std::vector<AskedPeer>& asked) {
  std::vector<std::string> names;
  for (const log::Member& member : members) {
    const std::string uuid = pmem::to_string(member.pool);
    const auto& read = survey.replicas();
    const bool seen = std::any_of(read.begin(), read.end(), [&](const SurveyedReplica& each) {
      return each.pool_uuid == uuid;
    });
    const bool named = std::any_of(asked.begin(), asked.end(), [&](const AskedPeer& each) {
      return each.address == member.name;
    });
    if (!seen && !named) names.push_back(member.name);
  }
  return names;
}

/// Peers that have no such pool or do not answer, and members that were not asked. A peer may have
/// got another address since the log noted it: one that does not answer and is no member by name
/// may be one that nobody else is, so that it is no further replica.
void add_the_others(const std::vector<AskedPeer>& asked, const std::vector<log::Member>& members,
                    std::vector<std::string> not_met, bool pool_was_named, LogOverview& overview) {
  for (const AskedPeer& peer : asked) {
    if (has_pool(peer, overview.pool)) continue;
    if (peer.pools.ok()) {
      if (!pool_was_named) continue;
      overview.lines.push_back({peer.address, "no pool", {}, 0, "", "", "it has no such pool"});
      continue;
    }
    const bool member = is_member(members, peer.address);
    if (!member && not_met.empty() && !pool_was_named) continue;
    overview.lines.push_back({peer.address, "unreachable", {}, 0, "", "", ""});
    if (member || not_met.empty()) continue;
    overview.unclaimed.push_back(not_met.front());
    not_met.erase(not_met.begin());
  }
  for (const std::string& name : not_met) {
    overview.lines.push_back({name, "not asked", {}, 0, "", "", ""});
  }
}

void compare(LogOverview& overview) {
  std::map<std::uint64_t, Lsn> tails;
  for (const ReplicaLine& line : overview.lines) {
    if (line.log) tails[line.log->log_id] = std::max(tails[line.log->log_id], line.log->tail);
  }
  for (ReplicaLine& line : overview.lines) {
    if (line.log) line.behind = tails[line.log->log_id].value - line.log->tail.value;
    if (line.log && tails.size() > 1 && line.problem.empty()) {
      line.problem = fmt::format("pools of this name hold {} different logs", tails.size());
    }
  }
}

LogOverview look_at(const std::string& pool, const OverviewCommand& command,
                    const std::vector<AskedPeer>& asked) {
  LogOverview overview{pool, {}, {}};
  PeerOptions having = command.peers;
  having.pool = pool;
  having.peers.clear();
  for (const AskedPeer& peer : asked) {
    if (has_pool(peer, pool)) having.peers.push_back(peer.address);
  }
  ReplicaSurvey survey;
  survey.open_peers(having);
  std::vector<log::Member> members;
  std::uint32_t generation = 0;
  for (const SurveyedReplica& replica : survey.replicas()) {
    overview.lines.push_back(line_of(replica, members, generation));
  }
  add_the_others(asked, members, members_not_met(survey, members, asked),
                 !command.peers.pool.empty(), overview);
  compare(overview);
  return overview;
}

std::string percent_of(std::uint64_t part, std::uint64_t whole) {
  return fmt::format(
      "{:.1f}", whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string overview_text(const std::vector<LogOverview>& logs) {
  report::Table table{{{"log", false},
                       {"peer", false},
                       {"state", false},
                       {"epoch"},
                       {"full, %"},
                       {"of"},
                       {"behind"},
                       {"writer", false},
                       {"planned for durable", false}},
                      {}};
  std::string below;
  for (const LogOverview& log : logs) {
    std::size_t whole = 0;
    const control::LogReport* newest = nullptr;
    for (const ReplicaLine& line : log.lines) {
      std::vector<std::string> row{log.pool, line.peer, line.state};
      if (line.log) {
        const std::uint64_t used = line.log->tail.value - line.log->head.value;
        row.insert(row.end(),
                   {std::to_string(line.log->epoch.value), percent_of(used, line.log->ring_bytes),
                    format_bytes(line.log->ring_bytes), format_bytes(line.behind)});
        whole += line.log->whole ? 1 : 0;
        if (newest == nullptr || line.log->epoch > newest->epoch) newest = &*line.log;
      } else {
        row.insert(row.end(), {"", "", "", ""});
      }
      row.push_back(line.writer.empty() ? "-" : line.writer);
      row.push_back(line.planned);
      table.rows.push_back(std::move(row));
      if (!line.problem.empty()) {
        below += fmt::format("{} on {}: {}\n", log.pool, line.peer, line.problem);
      }
    }
    for (const std::string& name : log.unclaimed) {
      below += fmt::format("{}: {}, as the log has it, may be a peer that does not answer\n",
                           log.pool, name);
    }
    if (newest == nullptr) continue;
    below += fmt::format("{}: quorum {} of {} replicas, {} of them whole here\n", log.pool,
                         newest->quorum, newest->replicas, whole);
  }
  return table.text() + "\n" + below;
}

ordered_json line_json(const ReplicaLine& line) {
  ordered_json json{{"peer", line.peer},
                    {"state", line.state},
                    {"writer", line.writer},
                    {"problem", line.problem}};
  if (!line.log) return json;
  json["log"] = fmt::format("{:016x}", line.log->log_id);
  json["epoch"] = line.log->epoch.value;
  json["head"] = line.log->head.value;
  json["tail"] = line.log->tail.value;
  json["committed"] = line.log->committed.value;
  json["ring_bytes"] = line.log->ring_bytes;
  json["used_bytes"] = line.log->tail.value - line.log->head.value;
  json["behind_bytes"] = line.behind;
  json["replicas"] = line.log->replicas;
  json["quorum"] = line.log->quorum;
  json["method"] = line.planned;
  return json;
}

ordered_json overview_json(const std::vector<LogOverview>& logs,
                           const std::vector<AskedPeer>& asked) {
  ordered_json json{{"format", 1}, {"pools", ordered_json::array()}};
  for (const LogOverview& log : logs) {
    ordered_json replicas = ordered_json::array();
    for (const ReplicaLine& line : log.lines) replicas.push_back(line_json(line));
    json["pools"].push_back(
        {{"pool", log.pool}, {"replicas", std::move(replicas)}, {"unclaimed", log.unclaimed}});
  }
  json["unreachable"] = ordered_json::array();
  for (const AskedPeer& peer : asked) {
    if (peer.pools.ok()) continue;
    json["unreachable"].push_back({{"peer", peer.address},
                                   {"code", to_string(peer.pools.code())},
                                   {"message", peer.pools.error().message}});
  }
  return json;
}

ExitStatus status_of(const std::vector<LogOverview>& logs, const std::vector<AskedPeer>& asked) {
  for (const LogOverview& log : logs) {
    for (const ReplicaLine& line : log.lines) {
      // Beside replicas of a log, a pool without one is a replica that is missing.
      const bool lacking = line.state == "no log" && log.any_log();
      if (!line.problem.empty() || lacking) return ExitStatus::Damaged;
    }
  }
  const bool all = std::all_of(asked.begin(), asked.end(),
                               [](const AskedPeer& peer) { return peer.pools.ok(); });
  return all ? ExitStatus::Ok : ExitStatus::Failed;
}

ExitStatus run_overview(const OverviewCommand& command) {
  const std::vector<AskedPeer> asked = ask_peers(command.peers);
  std::set<std::string> names;
  bool any_answer = false;
  for (const AskedPeer& peer : asked) {
    if (!peer.pools.ok()) {
      if (command.format == Format::Text) print_error(peer.pools.error());
      continue;
    }
    any_answer = true;
    for (const control::PoolDescription& pool : *peer.pools) names.insert(pool.name);
  }
  const std::string& wanted = command.peers.pool;
  if (any_answer && !wanted.empty() && !names.contains(wanted)) {
    return fail(explain_missing_pool({ErrorCode::NotFound, wanted}, command.peers));
  }
  if (!wanted.empty()) names = {wanted};
  std::vector<LogOverview> logs;
  if (any_answer) {
    for (const std::string& pool : names) logs.push_back(look_at(pool, command, asked));
  }
  if (command.format == Format::Json) {
    print(json_text(overview_json(logs, asked), 2) + "\n");
  } else if (any_answer) {
    print(logs.empty() ? "no pools\n" : overview_text(logs));
  }
  return status_of(logs, asked);
}

}  // namespace

void add_status_command(Command app) {
  const auto options = std::make_shared<OverviewCommand>();
  const Command command = app.add_subcommand(
      "status", "Every log on the peers in one table: replicas, epoch, fill, lag, writer");
  add_peers_option(command, options->peers);
  add_pool_option(command, options->peers, Needed::No)
      .description("Only this one; PERDURE_POOL is as good (all)");
  add_transport_option(command, options->peers);
  add_timeout_option(command, options->peers);
  add_format_option(command, options->format);
  add_examples(command,
               "  perdure status --peers a:7470,b:7470,c:7470\n"
               "How far a replica is behind, and how full it is, is as of the last committed or "
               "tail word that its pool has; no record is read.\n"
               "Planned for durable is the method by which a small record would become durable "
               "there, by what such connections usually cost. A writer may use another one: "
               "`perdure log append` says which, and why.\n"
               "Exit status: 0 all is well, 1 a peer does not answer, 4 a replica is damaged, "
               "incomplete or missing.");
  run_with(command, [options] { return run_overview(*options); });
}

}  // namespace perdure::app
