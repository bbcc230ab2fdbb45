// `perdure mirror status` and `perdure mirror verify`: what the replicas say of themselves, and
// whether they hold the same bytes. Neither changes anything or disturbs who writes.
#include "core/byte_text.h"
#include "core/counted.h"
#include "core/json.h"
#include "mirror_commands.h"
#include "mirror_run_command.h"
#include "missing_pool.h"
#include "output.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace perdure::app {
namespace {

using mirror::Difference;
using mirror::MirrorSurvey;
using mirror::ReplicaVerdict;
using Surveyed = mirror::SurveyedReplica;
using nlohmann::ordered_json;

struct SurveyCommand {
  PeerOptions peers;
  Format format = Format::Text;
};

std::string generation_text(const mirror::Generation& generation) {
  return fmt::format("{}.{}", generation.epoch, generation.count);
}

std::string reason_of(const Surveyed& replica, const MirrorSurvey& survey) {
  if (replica.error) return replica.error->message;
  switch (replica.verdict) {
    case ReplicaVerdict::Newest: return "";
    case ReplicaVerdict::Behind:
      return fmt::format("it is of generation {}, and has missed what was persisted since {} began",
                         generation_text(replica.start.state->generation),
                         generation_text(survey.newest));
    case ReplicaVerdict::Incomplete:
      return replica.writer_name.empty()
                 ? "it was being brought up to date, and that was cut off; resync it"
                 : "it is being brought up to date";
    case ReplicaVerdict::Blank: return "its pool holds nothing; resync makes it a replica again";
    case ReplicaVerdict::Damaged:
      return "both copies of what it says of itself are damaged; resync writes all of it again";
    case ReplicaVerdict::Unreachable: return "it was not heard";
  }
  return "";
}

/// Of a replica that was compared; nothing: it was not.
const Difference* difference_of(const std::vector<Difference>& found, std::size_t replica) {
  const auto same = [&](const Difference& each) { return each.replica == replica; };
  const auto at = std::find_if(found.begin(), found.end(), same);
  return at == found.end() ? nullptr : &*at;
}

std::string replica_text(const MirrorSurvey& survey, std::size_t index,
                         const std::vector<Difference>& found) {
  const Surveyed& replica = survey.replicas[index];
  const std::string reason = reason_of(replica, survey);
  std::string text = fmt::format("{}: {}{}{}\n", replica.peer, to_string(replica.verdict),
                                 reason.empty() ? "" : ": ", reason);
  if (const Difference* each = difference_of(found, index); each != nullptr && each->pages != 0) {
    text += fmt::format("  {} {} from the first newest replica, the first at byte {}\n",
                        counted(each->pages, "page"), each->pages == 1 ? "differs" : "differ",
                        each->first_at);
  }
  if (!replica.writer_name.empty()) {
    text += fmt::format("  writer    '{}' has a session\n", replica.writer_name);
  }
  return text;
}

ordered_json replica_json(const MirrorSurvey& survey, std::size_t index,
                          const std::vector<Difference>& found) {
  const Surveyed& replica = survey.replicas[index];
  ordered_json json{{"replica", replica.peer},
                    {"pool_uuid", replica.pool_uuid},
                    {"verdict", to_string(replica.verdict)},
                    {"reason", reason_of(replica, survey)},
                    {"writer", replica.writer_name}};
  if (!replica.error && replica.start.header && replica.start.state) {
    json["generation"] = generation_text(replica.start.state->newest());
    json["closed"] = replica.start.state->closed;
  }
  if (const Difference* each = difference_of(found, index)) {
    json["pages_different"] = each->pages;
    if (each->pages != 0) json["first_different_at"] = each->first_at;
  }
  return json;
}

ordered_json mirror_json(const MirrorSurvey& survey, const std::vector<Difference>& found) {
  ordered_json json{{"format", 1},
                    {"mirror", fmt::format("{:016x}", survey.header->id)},
                    {"bytes", survey.header->bytes},
                    {"quorum", survey.header->quorum},
                    {"of", survey.header->replicas},
                    {"generation", generation_text(survey.newest)},
                    {"newest", survey.count(ReplicaVerdict::Newest)},
                    {"can_be_restored", survey.can_be_restored()}};
  json["replicas"] = ordered_json::array();
  for (std::size_t index = 0; index < survey.replicas.size(); ++index) {
    json["replicas"].push_back(replica_json(survey, index, found));
  }
  return json;
}

std::string mirror_text(const MirrorSurvey& survey, const std::vector<Difference>& found) {
  std::string text =
      fmt::format("mirror {:016x}: {} on {}, quorum {}, generation {}\n", survey.header->id,
                  format_bytes(survey.header->bytes), counted(survey.header->replicas, "replica"),
                  survey.header->quorum, generation_text(survey.newest));
  for (std::size_t index = 0; index < survey.replicas.size(); ++index) {
    text += replica_text(survey, index, found);
  }
  return text;
}

/// By what the replicas say; one that is wrong counts before one that was not heard.
ExitStatus status_of(const MirrorSurvey& survey) {
  if (survey.count(ReplicaVerdict::Newest) == survey.header->replicas) return ExitStatus::Ok;
  const std::size_t silent = survey.count(ReplicaVerdict::Unreachable);
  const std::size_t good = survey.count(ReplicaVerdict::Newest);
  return good + silent == survey.replicas.size() ? ExitStatus::Failed : ExitStatus::Damaged;
}

ExitStatus run_status(const SurveyCommand& command) {
  auto heard = hear_mirror(command.peers);
  if (!heard.ok()) return refuse(heard.error(), command.format);
  const MirrorSurvey& survey = (*heard)->survey;
  if (command.format == Format::Json) {
    print(json_text(mirror_json(survey, {}), 2) + "\n");
  } else {
    print(mirror_text(survey, {}) +
          fmt::format("{} of {} replicas have everything; {}\n",
                      survey.count(ReplicaVerdict::Newest), survey.header->replicas,
                      survey.can_be_restored()
                          ? "the memory can be restored from them"
                          : "too few to be sure of what is newest, or none has everything"));
  }
  return status_of(survey);
}

ExitStatus run_verify(const SurveyCommand& command) {
  auto heard = hear_mirror(command.peers);
  if (!heard.ok()) return refuse(heard.error(), command.format);
  MirrorSurvey& survey = (*heard)->survey;
  std::vector<Difference> found;
  if (survey.count(ReplicaVerdict::Newest) != 0) {
    StatusLine line;
    auto compared = mirror::compare_newest(survey, [&](std::uint64_t bytes) {
      line.show(fmt::format("compared {} of {}", format_bytes(bytes),
                            format_bytes(survey.header->bytes)));
    });
    line.clear();
    if (!compared.ok()) return refuse(compared.error(), command.format);
    found = std::move(*compared);
  }
  const auto equal = static_cast<std::size_t>(std::count_if(
      found.begin(), found.end(), [](const Difference& each) { return each.pages == 0; }));
  const bool written = std::any_of(survey.replicas.begin(), survey.replicas.end(),
                                   [](const auto& each) { return !each.writer_name.empty(); });
  const ExitStatus said = status_of(survey);
  if (command.format == Format::Json) {
    ordered_json json = mirror_json(survey, found);
    json["equal"] = equal;
    json["ok"] = said == ExitStatus::Ok && equal == found.size();
    print(json_text(json, 2) + "\n");
  } else {
    print(mirror_text(survey, found) +
          fmt::format("{} of {} replicas have everything and are equal\n", equal,
                      survey.header->replicas));
  }
  if (equal == found.size()) return said;
  print_warning(written ? "what the writer is just persisting makes replicas differ; verify again "
                          "when it has ended"
                        : "the last writer did not end well: the next one, or `perdure mirror "
                          "resync`, brings the replicas to equal");
  return ExitStatus::Damaged;
}

void add_survey(Command command, const std::shared_ptr<SurveyCommand>& options) {
  add_peers_option(command, options->peers);
  add_pool_option(command, options->peers);
  add_transport_option(command, options->peers);
  add_timeout_option(command, options->peers);
  add_format_option(command, options->format);
}

}  // namespace

Result<std::unique_ptr<HeardMirror>> hear_mirror(const PeerOptions& options) {
  auto heard = std::make_unique<HeardMirror>();
  (void)heard->dialer.use_rnic({.name = options.rnic});  // a name alone is always taken
  auto peers = heard->dialer.dial_replicas(options.peers, options.transport);
  if (!peers.ok()) return peers.error();
  heard->peers = std::move(*peers);
  heard->survey = mirror::survey(heard->peers, options.pool, options.timeout(), Clock::monotonic());
  if (heard->survey.header) return heard;
  for (const Surveyed& replica : heard->survey.replicas) {
    if (!replica.error) continue;
    const Error named{replica.error->code,
                      fmt::format("{}: {}", replica.peer, replica.error->message)};
    return explain_missing_pool(named, options);
  }
  return Error{ErrorCode::NotFound,
               fmt::format("pool '{}' holds no mirror on any of the peers; a program creates one "
                           "when it opens it (docs/mirror.md)",
                           options.pool)};
}

void add_mirror_survey(Command mirror) {
  const auto status = std::make_shared<SurveyCommand>();
  const Command showing = mirror.add_subcommand(
      "status", "What each replica says of itself; changes nothing, also while it is written");
  add_survey(showing, status);
  add_examples(showing,
               "  perdure mirror status --peers a:7470,b:7470 --pool tree\n"
               "Exit status: 0 every replica has everything, 1 one could not be asked, 4 one has\n"
               "missed something, is incomplete, blank or damaged.");
  run_with(showing, [status] { return run_status(*status); });

  const auto verify = std::make_shared<SurveyCommand>();
  const Command verifying = mirror.add_subcommand(
      "verify", "Compare the replicas that have everything, page by page; changes nothing");
  add_survey(verifying, verify);
  add_examples(verifying,
               "  perdure mirror verify --peers a:7470,b:7470 --pool tree\n"
               "Exit status: 0 all have everything and are equal, 1 one could not be asked and\n"
               "the others are equal, 4 some differ, or as for status.");
  run_with(verifying, [verify] { return run_verify(*verify); });
}

void add_mirror_commands(Command app) {
  const Command mirror =
      app.add_subcommand("mirror", "Look at a mirror of memory, verify it, and bring it back");
  mirror.require_subcommand();
  add_mirror_survey(mirror);
  add_mirror_resync(mirror);
  add_mirror_run(mirror);
}

}  // namespace perdure::app
