// `perdure log verify`: reads every replica, record by record and checksum by checksum, and
// compares them. Changes nothing.
#include "core/assert.h"
#include "core/byte_text.h"
#include "log_commands.h"
#include "missing_pool.h"
#include "output.h"
#include "replica_survey.h"

#include <fmt/format.h>

#include <memory>

namespace perdure::app {
namespace {

using log::ScanReport;
using nlohmann::ordered_json;

struct VerifyCommand {
  PeerOptions peers;
  std::vector<std::string> files;
  Format format = Format::Text;
};

enum class Verdict { Equal, Different, Damaged, Unclear, Unreachable };

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::Equal: return "equal";
    case Verdict::Different: return "different";
    case Verdict::Damaged: return "damaged";
    case Verdict::Unclear: return "unclear";
    case Verdict::Unreachable: return "unreachable";
  }
  return "unknown";
}

struct Judgement {
  Verdict verdict = Verdict::Equal;
  std::string reason;
};

/// A record that must be there is not whole: its tail pointer says that it was, or whole records
/// come after it and another replica has it. Records behind a hole alone say nothing: with several
/// batches in flight a power failure may keep a later one and tear an earlier one, as long as
/// nothing of it was acknowledged either.
bool has_damage(const ScanReport& report, const ScanReport& history) {
  const bool missed = report.next_index < history.next_index;
  return report.damaged() || (report.records_after_hole != 0 && missed);
}

/// Whether replicas with the same tail hold the same records: one log, and a chain of checksums
/// over all that ends in the same value.
bool same_log(const ScanReport& one, const ScanReport& other) {
  return one.start.anchor->log_id == other.start.anchor->log_id;
}

/// Of a pool that has no log, what that means.
std::string blank_reason(const SurveyedReplica& replica, const ScanReport* history, bool member) {
  if (history != nullptr) {
    return member ? log::describe_difference(*replica.survey, *history) + "; repair copies them"
                  : "it holds nothing, and is no replica of this log";
  }
  if (replica.epoch == Epoch{}) return "no log there; the first append creates it";
  return fmt::format(
      "it holds nothing, although it was written or fenced in epoch {}: what it held "
      "is gone, or creating a log was cut short; the first append creates a new one",
      replica.epoch.value);
}

Judgement judge(const ReplicaSurvey& survey, const SurveyedReplica& replica,
                const ScanReport* history) {
  const bool alone = survey.replicas().size() == 1;
  const bool member = survey.is_member(replica);
  if (!replica.survey) {
    const bool answers = replica.error->code == ErrorCode::VersionMismatch;
    return {answers ? Verdict::Unclear : Verdict::Unreachable, replica.error->message};
  }
  if (replica.survey->damage) return {Verdict::Damaged, replica.survey->damage->message};
  if (!replica.survey->report) {
    return {Verdict::Different, blank_reason(replica, history, member)};
  }
  const ScanReport& report = *replica.survey->report;
  PERDURE_ASSERT(history != nullptr);  // at least this replica has a log
  if (!same_log(report, *history)) return {Verdict::Different, "it holds another log"};
  if (!member) return {Verdict::Different, "it is no replica of this log"};
  if (has_damage(report, *history)) {
    return {Verdict::Damaged,
            fmt::format("the record at LSN {} (index {}) is damaged here, or was never whole, and "
                        "there is evidence of records up to LSN {}; repair brings them from "
                        "another replica",
                        report.tail.value, report.next_index, report.extent.value)};
  }
  const std::string difference = log::describe_difference(*replica.survey, *history);
  if (!difference.empty()) return {Verdict::Different, difference};
  if (report.records_after_hole != 0) {
    return {
        Verdict::Unclear,
        fmt::format(
            "the bytes at LSN {} (index {}) are no whole record, and whole ones come after them "
            "({}): damage, or a power failure that tore what nobody had an acknowledgement of",
            report.tail.value, report.next_index, report.records_after_hole)};
  }
  if (alone && report.end == LogEnd::Torn) {
    return {Verdict::Unclear,
            fmt::format("the bytes at LSN {} are no whole record: a crash cut one off, which is "
                        "harmless, or the last record is damaged; compare with other replicas",
                        report.tail.value)};
  }
  return {};
}

std::string report_text(const ScanReport& report) {
  const std::uint64_t first = report.next_index - report.records;
  const std::string indices =
      report.records == 0 ? "" : fmt::format(" (index {} to {})", first, report.next_index - 1);
  const bool compound = report.start.anchor->shape == LogShape::Compound;
  std::string text = fmt::format("  records   {}{}, {}\n", report.records, indices,
                                 format_bytes(report.payload_bytes));
  text +=
      fmt::format("  lsn       {} to {}, {}, then: {}\n", report.start.head.value,
                  report.tail.value, compound ? "compound" : "singleton", to_string(report.end));
  // Not the last record's checksum: of a record that is known it gives the log's seed away.
  text += fmt::format("  log       {:016x}, epoch {}\n", report.start.anchor->log_id,
                      report.last_epoch.value);
  if (report.start.tail_word) {
    text += fmt::format("  tail word {}\n", report.start.tail_word->value);
  }
  return text;
}

std::string replica_text(const SurveyedReplica& replica, const Judgement& judgement) {
  std::string text = fmt::format("{}: {}{}{}\n", replica.name, to_string(judgement.verdict),
                                 judgement.reason.empty() ? "" : ": ", judgement.reason);
  if (replica.survey && replica.survey->report) text += report_text(*replica.survey->report);
  if (replica.writer_present) {
    text += fmt::format(
        "  writer    '{}' has a session: what it appends while this reads makes "
        "replicas differ at their tails\n",
        replica.writer_name);
  }
  return text;
}

ordered_json replica_json(const SurveyedReplica& replica, const Judgement& judgement) {
  ordered_json json{{"replica", replica.name},
                    {"verdict", to_string(judgement.verdict)},
                    {"reason", judgement.reason},
                    {"writer_present", replica.writer_present}};
  if (!replica.survey || !replica.survey->report) return json;
  const ScanReport& report = *replica.survey->report;
  json["records"] = report.records;
  json["payload_bytes"] = report.payload_bytes;
  json["next_index"] = report.next_index;
  json["head"] = report.start.head.value;
  json["tail"] = report.tail.value;
  json["end"] = to_string(report.end);
  json["epoch"] = report.last_epoch.value;
  json["log_id"] = fmt::format("{:016x}", report.start.anchor->log_id);
  json["records_after_hole"] = report.records_after_hole;
  json["tail_word_beyond"] = report.tail_word_beyond;
  json["extent"] = report.extent.value;
  json["begin"] = report.start.state().begin.value;
  json["state_epoch"] = report.start.state().epoch.value;
  json["incomplete"] = report.start.state().marks.incomplete;
  json["configuration"] = log::describe(report.start.state().configuration);
  return json;
}

/// What is to be verified: files alone, unless the command line names peers too; without a file,
/// the environment and the profile may name them.
Result<VerifyCommand> what_is_meant(VerifyCommand given, Command command) {
  if (!given.files.empty() && !command.is_written("--peers")) given.peers.peers.clear();
  if (given.peers.peers.empty() && command.is_written("--pool")) {
    return Error{ErrorCode::InvalidArgument, "--pool is of no use without --peers"};
  }
  if (!given.peers.peers.empty() && given.peers.pool.empty()) {
    return Error{ErrorCode::InvalidArgument, "which pool of these peers? give --pool"};
  }
  if (!given.peers.peers.empty() || !given.files.empty()) return given;
  return Error{ErrorCode::InvalidArgument, "nothing to verify: give --peers and --pool, or --file"};
}

ExitStatus run_verify(const VerifyCommand& command) {
  ReplicaSurvey survey;
  if (!command.peers.peers.empty()) survey.open_peers(command.peers);
  if (const auto missing = survey.missing_pool()) {
    return fail(explain_missing_pool(*missing, command.peers));
  }
  for (const std::string& path : command.files) survey.open_file(path);
  survey.read_all();
  const auto best = survey.best();
  const ScanReport* history = best ? &*survey.replicas()[*best].survey->report : nullptr;

  std::size_t equal = 0;
  bool wrong = false;
  std::string text;
  ordered_json replicas = ordered_json::array();
  for (const SurveyedReplica& replica : survey.replicas()) {
    const Judgement judgement = judge(survey, replica, history);
    equal += judgement.verdict == Verdict::Equal ? 1 : 0;
    wrong =
        wrong || (judgement.verdict != Verdict::Equal && judgement.verdict != Verdict::Unreachable);
    text += replica_text(replica, judgement);
    replicas.push_back(replica_json(replica, judgement));
  }
  const std::size_t count = survey.replicas().size();
  const std::vector<std::string> not_asked = survey.not_asked();
  for (const std::string& name : not_asked) text += fmt::format("{}: not asked\n", name);
  if (command.format == Format::Json) {
    print(json_text(ordered_json{{"format", 1},
                                 {"replicas", std::move(replicas)},
                                 {"equal", equal},
                                 {"of", count},
                                 {"not_asked", not_asked},
                                 {"ok", equal == count && not_asked.empty()}},
                    2) +
          "\n");
  } else {
    print(fmt::format("{}{} of {} replicas are whole and hold the same records\n", text, equal,
                      count + not_asked.size()));
  }
  // Of a file the daemons of the others may be down, and nobody said where they are.
  const bool all = not_asked.empty() || command.peers.peers.empty();
  if (equal == count && all) return ExitStatus::Ok;
  return wrong ? ExitStatus::Damaged : ExitStatus::Failed;
}

}  // namespace

void add_log_verify(Command log) {
  const auto options = std::make_shared<VerifyCommand>();
  const Command command =
      log.add_subcommand("verify", "Read every replica whole and compare them; changes nothing");
  add_peers_option(command, options->peers, Needed::No);
  add_pool_option(command, options->peers, Needed::No);
  command
      .add_option("--file", options->files,
                  "The file of a pool whose daemon does not run, instead of or beside --peers")
      .option_text("POOLFILE...");
  add_transport_option(command, options->peers);
  add_timeout_option(command, options->peers);
  add_format_option(command, options->format);
  add_examples(
      command,
      "  perdure log verify --peers a:7470,b:7470,c:7470 --pool orders\n"
      "  perdure log verify --file /var/lib/perdure/orders.pool\n"
      "Exit status: 0 all are whole and equal, 1 one can not be read, or --peers does not\n"
      "name it, and the others are equal, 4 some differ or are damaged.");
  run_with(command, [options, command] {
    const auto meant = what_is_meant(*options, command);
    if (meant.ok()) return run_verify(*meant);
    print_error(meant.error());
    return ExitStatus::Usage;
  });
}

}  // namespace perdure::app
