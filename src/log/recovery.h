// Recovery: what one replica holds, and making another equal to it. Which history is taken is
// replica_set.h's.
#pragma once

#include <perdure/result.h>

#include "log/log_scan.h"
#include "log/replica.h"
#include "log/replica_set.h"

#include <optional>
#include <vector>

namespace perdure::log {

/// What was found on one replica.
struct Survey {
  std::optional<ScanReport> report;  // nothing: no log there, or its start is damaged
  std::optional<Error> damage;       // Corrupt: neither anchor nor state can be read

  /// Neither a log nor what is left of one.
  bool blank() const { return !report && !damage; }
  const LogState& state() const { return report->start.state(); }
};

/// Reads one replica whole. Errors: those of reading, VersionMismatch.
Result<Survey> survey(ByteSource& bytes);

/// The same, in as many calls as it takes: see scan_log_on().
Result<Survey> survey_on(ByteSource& bytes, std::optional<ScanSoFar>& so_far, Lsn until);

/// What the survey of the pool means for a decision. `log_id`: of the log in question; a replica of
/// another one, or of none, is Unknown.
Candidate candidate_of(const pmem::Uuid& pool, const Survey& survey, std::uint64_t log_id);

/// What the replica says of the configuration; `survey.report` must be there, and outlive it.
Statement statement_of(const Survey& survey);

/// The replica that has most, for readers and for comparison: nothing is decided by it.
std::optional<std::size_t> choose_history(const std::vector<std::optional<Survey>>& surveys);

/// What differs between a replica and the history, in a person's words; empty when nothing does. Of
/// the history: head, tail, records, what is behind them and their last checksum.
std::string describe_difference(const Survey& replica, const ScanReport& history);

/// Where a replica is brought to.
struct Target {
  LogState state;       // what it is to say at the end
  Boundary to;          // the end of its records
  Lsn committed;        // everything before is known to be committed
  bool chosen = false;  // this replica's own history was chosen: what it lacks is given up
  /// Nothing of the new epoch is decided: what is brought to equal stays incomplete and says what
  /// it said before, until its words and its state are written.
  bool undecided = false;
};

/// What can be copied from.
struct Source {
  pmem::Uuid pool;
  ByteSource& bytes;
  LogState state;  // as it was surveyed, or as the writer wrote it
};

struct Brought {
  std::uint64_t copied_bytes = 0;  // also by earlier calls
  ScanReport report;               // afterwards: start and end
};

/// Brings `target`, of which `found` was surveyed, to equal, and looks whether it is: records that
/// are missing, each verified through the chain, and read back when they are durable; then the
/// words, then the state. It is marked incomplete before anything that makes it differ from a
/// prefix is written. What it has done is left in target.brought_so_far(), also when it fails, and
/// the next call goes on from there, if that is what is there.
/// Errors: those of reading and writing; Corrupt with `source_failed` set when the source does not
/// hold what it must, and nothing after that was written.
Result<Brought> bring_equal(Source* source, const Target& to, Replica& target,
                            ByteSource& target_bytes, const Survey& found, bool& source_failed);

/// Whether the replica is what its writer has written. Errors: Corrupt, saying what differs.
Result<void> require_equal(const ScanReport& report, const Target& to);

/// The survey again, of a replica whose records up to the end of `to` were read since the last of
/// them was written: reads its start until that is what was written, or should have been visible.
/// Errors: those of reading and of require_equal.
Result<ScanReport> survey_again(ByteSource& bytes, const Target& to, const Replica& target);

Result<void> write_word(Replica& target, std::uint64_t at, Lsn lsn);
Result<void> write_words(Replica& target, const Target& to);
Result<void> write_anchor(Replica& target, const Anchor& anchor);

}  // namespace perdure::log
