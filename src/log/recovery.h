// Recovery: which of the histories that replicas hold is the log, and making the others equal.
#pragma once

#include <perdure/result.h>

#include "log/log_scan.h"
#include "log/replica.h"

#include <optional>
#include <vector>

namespace perdure::log {

/// What was found on one replica.
struct Survey {
  std::optional<ScanReport> report;  // nothing: no log there, or its start is damaged
  std::optional<Error> damage;       // Corrupt: the anchor or a word fails its checksum
};

/// Reads one replica whole. Errors: those of reading, VersionMismatch.
Result<Survey> survey(ByteSource& bytes);

/// The replica whose log holds every committed record: of the highest last epoch, and of those
/// the longest. Nothing when no replica has a log. Requires surveys of at least as many replicas
/// as must answer for every committed record to be on one of them.
std::optional<std::size_t> choose_history(const std::vector<std::optional<Survey>>& surveys);

/// What differs between a replica and the history, in a person's words; empty when nothing does.
std::string describe_difference(const Survey& replica, const ScanReport& history);

/// Writes to `target` what it lacks of the history in `source`: records, then the tail word, then
/// the head word and the anchor. Returns how many bytes of records it copied.
/// Errors: those of reading and writing.
Result<std::uint64_t> bring_equal(ByteSource& source, const ScanReport& history, Replica& target,
                                  const Survey& found);

/// Creates an empty log on a replica: words first, the anchor last.
Result<void> create_log(Replica& target, const Anchor& anchor);

}  // namespace perdure::log
