// Weighing what replicas can return against what they say was there.
#include "log_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace perdure::app {

std::optional<LogLoss> loss_among(std::span<const SurveyedReplica> replicas) {
  std::vector<std::optional<log::Survey>> surveys;
  for (const SurveyedReplica& replica : replicas) surveys.push_back(replica.survey);
  const auto any = log::choose_history(surveys);
  if (!any) return std::nullopt;
  const std::uint64_t log_id = surveys[*any]->report->start.anchor->log_id;
  std::vector<log::Candidate> candidates;
  for (const auto& survey : surveys) {
    candidates.push_back(survey ? log::candidate_of({}, *survey, log_id) : log::Candidate{});
  }
  // As opening does that accepts a loss.
  const auto best = log::best_of(candidates, true);
  if (!best) return std::nullopt;
  const log::Rank history = candidates[*best].readable;
  LogLoss loss;
  loss.first_lsn = history.end;
  loss.first_index = surveys[*best]->report->next_index;
  loss.end_lsn = log::claimed_beside(candidates, history);
  for (std::size_t index = 0; index < candidates.size(); ++index) {
    const bool counts = candidates[index].standing != log::Standing::Unknown &&
                        candidates[index].extent.epoch >= history.epoch;
    if (!counts || !surveys[index]->report) continue;
    const log::ScanReport& report = *surveys[index]->report;
    loss.end_lsn = std::max(loss.end_lsn, report.extent);
    const std::uint64_t next = std::max(report.next_index, report.index_after_hole);
    if (next <= loss.first_index) continue;
    loss.last_index = std::max(loss.last_index.value_or(0), next - 1);
  }
  if (loss.end_lsn <= loss.first_lsn) return std::nullopt;
  return loss;
}

std::optional<LogLoss> survey_loss(const PeerOptions& peers) {
  ReplicaSurvey survey;
  survey.open_peers(peers);
  survey.read_all();
  return loss_among(survey.replicas());
}

std::string loss_text(const LogLoss& loss) {
  const std::string last = loss.last_index ? fmt::format("{} at least", *loss.last_index)
                                           : "one that nobody knows any more";
  return fmt::format("lost: index {} to {} (LSN {} to {})", loss.first_index, last,
                     loss.first_lsn.value, loss.end_lsn.value);
}

nlohmann::ordered_json loss_json(const LogLoss& loss) {
  nlohmann::ordered_json json{{"first_lsn", loss.first_lsn.value},
                              {"end_lsn", loss.end_lsn.value},
                              {"first_index", loss.first_index}};
  if (loss.last_index) json["last_index"] = *loss.last_index;
  return json;
}

}  // namespace perdure::app
