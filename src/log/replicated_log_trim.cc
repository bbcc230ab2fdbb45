// Trimming a log: where a head may be, and what makes it durable before what is below it is used
// again.
#include <fmt/format.h>

#include <algorithm>

#include "client/remote_bytes.h"
#include "core/try.h"
#include "log/replicated_log.h"

namespace perdure::log {

/// What precedes the record at `lsn`: found by walking there from a boundary that is known, since
/// bytes that look like a record may lie anywhere, in a payload or in what a pad has covered.
Result<Boundary> ReplicatedLog::boundary_at(Lsn lsn, const std::optional<Deadline>& until) {
  if (lsn == tail_) return tail_boundary();
  const Boundary known = boundaries_.before(lsn, head_);
  if (lsn == known.lsn) return known;
  Error unread = {ErrorCode::QuorumLost, "no replica holds it"};
  for (Replica& replica : replicas_) {
    if (!replica.sending() || replica.durable_below() < lsn) continue;
    auto bytes = client::RemoteBytes::open_for_writer(replica.peer(), options_.pool,
                                                      options_.replica_timeout, clock_, until);
    if (!bytes.ok()) {
      unread.message = bytes.error().message;
      continue;
    }
    LogCursor cursor(**bytes, *replica.state(), known);
    const Deadline visible = replica.session().visible_within();
    auto walked = walk_to(cursor, lsn, until && until->left() < visible.left() ? *until : visible);
    if (walked.ok() || walked.code() == ErrorCode::InvalidArgument) return walked;
    unread.message = walked.error().message;
  }
  return unread;
}

Result<void> ReplicatedLog::trim(Lsn lsn) {
  pump();
  if (!quorum_stands() || lost_) return no_quorum();
  if (lsn < head_.lsn || lsn > committed_) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("can not trim to {}: the log keeps {} to {} (committed)", lsn.value,
                             head_.lsn.value, committed_.value)};
  }
  if (lsn == head_.lsn) return {};
  PERDURE_TRY(head, boundary_at(lsn));
  // Where it is durable and that is not answered, it will have to be found again: see known_head.
  if (tried_heads_.size() == kTriedHeadsMax) tried_heads_.erase(tried_heads_.begin());
  tried_heads_.push_back(head);
  PERDURE_TRY_VOID(write_head(head, std::nullopt));
  if (!quorum_stands()) {
    return Error{ErrorCode::OutcomeUnknown,
                 fmt::format("it is not known whether the log will be found to begin at {}: {}",
                             lsn.value, quorum_lost(Deadline(clock_, kAskWithin)).message)};
  }
  move_head(head);
  return {};
}

/// Makes the head durable on every replica that counts: then it may be moved, and later what was
/// before it overwritten, for no other replica counts before it has been brought to this head.
/// `until`, if given, ends the waiting, and says nothing about the replica that was waited for: the
/// head is what it was, and a replica that has the new one all the same is asked for it again.
Result<void> ReplicatedLog::write_head(const Boundary& head, const std::optional<Deadline>& until) {
  look_at_everything();
  for (Replica& replica : replicas_) {
    if (!replica.sending()) continue;
    auto written = drain(replica, until);
    // One that has a newer head, of a trim that was cut short, keeps it.
    if (written.ok() && replica.state()->head.lsn < head.lsn) {
      LogState state = *replica.state();
      state.head = head;
      replica.session().set_deadline(until);
      written = replica.write_state(state);
      replica.session().set_deadline(std::nullopt);
    }
    if (written.ok()) continue;
    const bool no_time = written.code() == ErrorCode::TimedOut && until && until->passed();
    if (no_time && replica.sending()) return written;
    if (replica.up()) replica.mark_down(written.error());
  }
  return {};
}

void ReplicatedLog::move_head(const Boundary& head) {
  head_ = head;
  boundaries_.forget_below(head.lsn);
  std::erase_if(tried_heads_, [&](const Boundary& tried) { return tried.lsn <= head.lsn; });
}

/// The place of a head that a trim of this writer has brought to a replica and nobody acknowledged.
Result<Boundary> ReplicatedLog::known_head(Lsn lsn, const Deadline& deadline) {
  for (const Boundary& tried : tried_heads_) {
    if (tried.lsn == lsn) return tried;
  }
  return boundary_at(lsn, deadline);
}

}  // namespace perdure::log
