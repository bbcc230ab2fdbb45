// What of a log is lost: which records no replica that answers can return, although there is
// evidence that they were durable.
#pragma once

#include <perdure/types.h>

#include "core/json.h"
#include "peer_options.h"
#include "replica_survey.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace perdure::app {

struct LogLoss {
  Lsn first_lsn;  // where the best replica ends
  std::uint64_t first_index = 0;
  Lsn end_lsn;                              // up to which something was durable
  std::optional<std::uint64_t> last_index;  // of a record that is whole behind what is damaged;
                                            // nothing: there is none, and so nobody knows
};

/// Nothing: all that is known to have been durable can be returned, or no replica can be read.
std::optional<LogLoss> loss_among(std::span<const SurveyedReplica> replicas);

/// The same of these peers. Cost: each replica is read whole.
std::optional<LogLoss> survey_loss(const PeerOptions& peers);

std::string loss_text(const LogLoss& loss);
nlohmann::ordered_json loss_json(const LogLoss& loss);

}  // namespace perdure::app
