// The start of a log, as a report.
#include "log/log_report.h"

#include <algorithm>

#include "core/try.h"

namespace perdure::log {

control::LogReport report_of(const LogStart& start) {
  const LogState& state = start.state();
  control::LogReport report;
  report.log_id = state.anchor.log_id;
  report.epoch = state.epoch;
  report.head = start.head;
  report.committed = std::max(start.committed_word.value_or(Lsn{}), start.head);
  report.tail = std::max(start.tail_word.value_or(Lsn{}), report.committed);
  report.ring_bytes = state.anchor.ring_bytes;
  report.replicas = state.configuration.members.size();
  report.quorum = state.configuration.quorum;
  report.whole = !state.marks.any();
  report.removed = state.marks.removed;
  // An epoch begins where what came before is durable; a replica that is being brought to equal
  // has the epoch first and the records later.
  if (report.whole) report.tail = std::max(report.tail, state.begin);
  return report;
}

Result<std::optional<control::LogReport>> report_log(ByteSource& bytes) {
  using Report = std::optional<control::LogReport>;
  if (bytes.size() < kLogBytesMin) return Report{};
  PERDURE_TRY(start, read_start(bytes));
  return start.anchor ? Report{report_of(start)} : Report{};
}

}  // namespace perdure::log
