// What changes the replicas of a log that is open: bringing one back, and other members or another
// quorum. docs/log-protocol.md has the order of each step.
#include <fmt/format.h>

#include <algorithm>

#include "core/log_message.h"
#include "core/try.h"
#include "log/patience.h"
#include "log/replicated_log.h"

namespace perdure::log {
namespace {

// What was read of a replica is not read again by the next call, if that does not come later than
// this: what its medium loses meanwhile is not found.
constexpr int kKeptTimeouts = 12;   // of replica_timeout
constexpr int kKeptReconnects = 2;  // of reconnect
// A call with less time than this leaves a connection that was made to one that has more: to bring
// a replica up takes a connection to another one, and what runs out of time is made anew.
constexpr Nanoseconds kBringUpWithin = std::chrono::milliseconds(10);

}  // namespace

std::vector<RepairReport> ReplicatedLog::repair(Nanoseconds timeout) {
  const Deadline deadline(clock_, timeout);
  std::vector<RepairReport> reports;
  // A source that turns out to be damaged goes down in the course of it, and gets its turn.
  for (std::size_t round = 0; round < 2; ++round) {
    for (Replica& replica : replicas_) {
      if (replica.sending() || !is_member(replica)) continue;
      const auto tried = std::find_if(
          reports.begin(), reports.end(),
          [&](const RepairReport& each) { return each.peer == replica.peer().name(); });
      if (tried != reports.end()) continue;
      // What was connected to before may be gone by now.
      const bool begun = replica.connecting() != nullptr;
      RepairReport report = bring_back(replica, deadline);
      if (begun && !report.repaired && !deadline.passed()) report = bring_back(replica, deadline);
      reports.push_back(std::move(report));
    }
  }
  return reports;
}

RepairReport ReplicatedLog::bring_back(Replica& replica, const Deadline& deadline) {
  look_at_everything();
  const Nanoseconds begun = clock_.now();
  RepairReport report;
  report.peer = replica.peer().name();
  replica.session().set_deadline(deadline);
  BroughtSoFar& so_far = replica.brought_so_far();
  const Nanoseconds kept_for =
      std::max(kKeptTimeouts * options_.replica_timeout, kKeptReconnects * options_.reconnect);
  // Nor does what opening the log has read stay: nobody knows how long ago that was.
  if (!so_far.last_there || clock_.now() - *so_far.last_there > kept_for) {
    so_far.forget_what_was_read();
  }
  const auto repaired = repair_replica(replica, report, deadline);
  replica.session().set_deadline(std::nullopt);
  report.repaired = repaired.ok();
  if (report.repaired) {
    ask_again_at_.reset();
    log_message(
        Severity::Info,
        fmt::format("replica {} is back: {}; {} bytes were copied", report.peer,
                    report.found.empty() ? "it was equal" : report.found, report.copied_bytes));
  }
  if (!repaired.ok()) {
    report.error = repaired.error().message;
    if (replica.up()) so_far.last_there = clock_.now();
    const bool further = so_far.note_further();
    if (further) replica.session().got_on();
    replica.mark_down(repaired.error());
    // Whoever waits for a commit had to wait for it, too.
    if (!further) replica.session().put_off(begun, clock_.now());
    const bool fenced = repaired.code() == ErrorCode::Fenced && !quorum_stands();
    if (fenced && !lost_) lost_ = repaired.error();
  }
  return report;
}

/// Tries what is down, once its time has come. Nobody waits for a peer to be connected to: that
/// begins in one call, and a later one goes on when it has ended.
void ReplicatedLog::reconnect(Nanoseconds now, const Deadline& deadline) {
  if (!may_come_back()) return;
  // Each in turn is the first: one that gets on a little in each call may take all of its time.
  const bool urgent = !quorum_stands();
  const std::size_t first = first_to_reconnect_;
  for (std::size_t count = 0; count < replicas_.size(); ++count) {
    const std::size_t index = (first + count) % replicas_.size();
    Replica& replica = replicas_[index];
    if (!is_member(replica)) {
      if (replica.connecting() && replica.connecting()->ended()) replica.forget_connecting();
      continue;
    }
    if (replica.sending() || !is_due(replica, now, urgent, deadline)) continue;
    if (deadline.passed()) return;
    first_to_reconnect_ = index + 1;
    RepairReport report = bring_back(replica, deadline);
    if (report.repaired) repairs_.push_back(std::move(report));
  }
}

/// Whether bringing it back waits for no connection. By threads it is connected to first.
bool ReplicatedLog::is_due(Replica& replica, Nanoseconds now, bool urgent,
                           const Deadline& deadline) {
  if (const Reconnection* begun = replica.connecting()) {
    return begun->ended() && deadline.left() >= kBringUpWithin;
  }
  if (!replica.session().retry_due(now, urgent)) return false;
  if (!options_.threads) return true;
  replica.begin_connecting(connect_options(replica), staging_);
  return false;
}

KnownReplicas ReplicatedLog::known_beside(const Replica& replica) const {
  KnownReplicas known{configuration_, epoch_, {}};
  for (const Replica& other : replicas_) {
    if (&other != &replica && other.pool()) {
      known.others.emplace_back(other.peer().name(), *other.pool());
    }
  }
  return known;
}

ConnectOptions ReplicatedLog::connect_options(const Replica& replica) const {
  ConnectOptions options;
  options.request = session_request();
  options.known = known_beside(replica);
  options.shape = anchor_.shape;
  options.timeout = options_.replica_timeout;
  options.clock = &clock_;
  return options;
}

/// The connection that was begun, or one that is made now.
Result<Connected> ReplicatedLog::connection_to(Replica& replica, const Deadline& deadline) {
  Reconnection* const begun = replica.connecting();
  if (begun != nullptr && !begun->has_thread()) {
    replica.forget_connecting();
    const Deadline within = deadline.within(options_.replica_timeout);
    return replica.connect_now(connect_options(replica), staging_, within);
  }
  if (begun == nullptr) return replica.connect_now(connect_options(replica), staging_, deadline);
  if (!begun->wait(deadline)) {
    return Error{ErrorCode::TimedOut, "it is still being connected to"};
  }
  auto connected = begun->take();
  replica.forget_connecting();
  return connected;
}

Result<void> ReplicatedLog::repair_replica(Replica& replica, RepairReport& report,
                                           const Deadline& deadline) {
  if (lost_) return *lost_;
  PERDURE_TRY(connected, connection_to(replica, deadline));
  // Others may have become replicas while it was connected to, or have come back with its pool.
  PERDURE_TRY(pool, check_pool(connected.pool, known_beside(replica)));
  if (!replica.pool()) {
    replica.set_pool(pool);
    follow_rule({configuration_});
  }
  // Its acknowledgements count as those of the pool that it had.
  if (*replica.pool() != pool) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("its pool is that of another replica now ({}), and was {}; open the "
                             "log again with its peers as they are",
                             pmem::to_string(pool), pmem::to_string(*replica.pool()))};
  }
  const auto bytes = replica.go_on_over(std::move(connected), anchor_.shape, deadline);
  // Reading it may take longer than whoever calls has time: the next call goes on. The session has
  // made durable what is read, and nobody else may write there.
  BroughtSoFar& so_far = replica.brought_so_far();
  so_far.last_there = clock_.now();
  PERDURE_TRY(found, survey_on(*bytes, so_far.scan, tail_));
  return bring_up(replica, *bytes, std::move(found), report, deadline);
}

/// Brings a replica to what this writer has written, and lets it count.
Result<void> ReplicatedLog::bring_up(Replica& replica, ByteSource& bytes, Survey found,
                                     RepairReport& report, const Deadline& deadline) {
  if (found.report) {
    const LogState& state = found.state();
    if (state.anchor.log_id != anchor_.log_id && !state.marks.creating) {
      return Error{ErrorCode::InvalidArgument, "its pool holds another log"};
    }
    if (state.anchor.log_id == anchor_.log_id && state.epoch > epoch_) {
      return Error{ErrorCode::Fenced, fmt::format("it is part of epoch {}; ours was {}",
                                                  state.epoch.value, epoch_.value)};
    }
    if (state.anchor.log_id == anchor_.log_id && state.epoch == epoch_ &&
        state.head.lsn > head_.lsn) {
      // A trim of ours that reached it and was never acknowledged.
      if (state.head.lsn > committed_) {
        return Error{ErrorCode::Corrupt, "it was trimmed beyond what is committed"};
      }
      PERDURE_TRY(head, known_head(state.head.lsn, deadline));
      if (head.index != state.head.index || head.crc != state.head.crc) {
        return Error{ErrorCode::Corrupt, "it was trimmed to a place that is none of this log"};
      }
      // Needs no quorum, which this very replica may be missing from.
      PERDURE_TRY_VOID(write_head(head, deadline));
      move_head(head);
    }
  }
  ScanReport here;
  here.start.head = head_.lsn;
  std::vector<const Replica*> refusing = {&replica};
  std::optional<Error> refused;
  while (Replica* source = choose_source(refusing, deadline)) {
    here.tail = tail_;
    here.next_index = next_index_;
    here.records = next_index_ - head_.index;
    here.last_crc = last_crc_;
    if (report.found.empty()) report.found = describe_difference(found, here);
    auto remote = client::RemoteBytes::open_for_writer(source->peer(), options_.pool,
                                                       options_.replica_timeout, clock_, deadline);
    if (!remote.ok()) {
      // That a session is refused or takes too long says nothing about what it has and sends.
      refused = remote.error();
      if (deadline.passed()) return *refused;
      refusing.push_back(source);
      continue;
    }
    Source from{*source->pool(), **remote, *source->state()};
    bool source_failed = false;
    const auto brought =
        bring_equal(&from, target_here(tail_boundary()), replica, bytes, found, source_failed);
    if (brought.ok()) {
      report.copied_bytes = brought->copied_bytes;
      replica.resume_at(tail_);
      return {};
    }
    // Time that has run out says nothing about the source; what was read there does.
    const bool no_time = deadline.passed() && brought.code() != ErrorCode::Corrupt;
    if (!source_failed || no_time) return brought.error();
    source->mark_down(brought.error());
    PERDURE_TRY(again, survey_on(bytes, replica.brought_so_far().scan, tail_));
    found = std::move(again);
  }
  if (deadline.passed()) return Error{ErrorCode::TimedOut, "there was no time left for it"};
  auto gone_on = go_on_from_staging(replica, bytes, found);
  return gone_on.ok() || !refused ? gone_on : *refused;
}

/// A replica that holds everything, and is none of those; nothing when there is none.
Replica* ReplicatedLog::choose_source(const std::vector<const Replica*>& others,
                                      const Deadline& deadline) {
  for (Replica& each : replicas_) {
    const bool other = std::find(others.begin(), others.end(), &each) != others.end();
    if (other || !each.sending() || !is_member(each)) continue;
    auto drained = drain(each, deadline);
    if (drained.ok()) return &each;
    if (each.sending() && !deadline.passed()) each.mark_down(drained.error());
  }
  return nullptr;
}

/// With no other replica up, all that is missing must still be staged.
Result<void> ReplicatedLog::go_on_from_staging(Replica& replica, ByteSource& bytes,
                                               const Survey& found) {
  const Error lacking{
      ErrorCode::QuorumLost,
      "it does not hold what can be sent on from; bring another replica back first"};
  if (!found.report || found.report->damaged() || found.state().marks.any()) return lacking;
  if (found.state().epoch != epoch_) return lacking;
  const Boundary at = found.report->boundary();
  bool follows = at.lsn == tail_ && at.crc == last_crc_ && at.index == next_index_;
  if (const std::byte* staged = staging_.record_at(at.lsn); staged != nullptr) {
    const RecordHeader next = decode_record_header(
        std::span<const std::byte, kRecordHeaderBytes>(staged, kRecordHeaderBytes));
    follows = next.previous_crc == at.crc && next.index == at.index;
  }
  if (!follows || at.lsn < replica.durable_below()) return lacking;
  Target target = target_here(at);
  bool source_failed = false;
  PERDURE_TRY(brought, bring_equal(nullptr, target, replica, bytes, found, source_failed));
  replica.resume_at(brought.report.tail);
  return {};
}

Configuration ReplicatedLog::next_configuration(std::size_t members, std::size_t quorum) const {
  Configuration next;
  next.generation = configuration_.generation + 1;
  next.loss = configuration_.loss;
  const std::size_t majority = members / 2 + 1;
  const bool was_majority =
      configuration_.members.empty() || quorum_ == configuration_.members.size() / 2 + 1;
  const std::size_t wanted = quorum != 0    ? quorum
                             : was_majority ? majority
                                            : std::min(quorum_, members);
  // What is too large stays so, and is refused.
  next.quorum = static_cast<std::uint32_t>(std::min<std::size_t>(wanted, UINT32_MAX));
  return next;
}

Result<std::size_t> ReplicatedLog::find_member(const std::string& which) const {
  const auto uuid = parse_uuid(which);
  const auto& members = configuration_.members;
  const auto find = [&](const auto& is) {
    const auto found = std::find_if(members.begin(), members.end(), is);
    return found == members.end()
               ? std::nullopt
               : std::optional(static_cast<std::size_t>(found - members.begin()));
  };
  if (uuid) {
    if (const auto found = find([&](const Member& each) { return each.pool == *uuid; })) {
      return *found;
    }
  }
  // An address is that of the pool which is there now; only for one that nobody reached it is what
  // was noted when the pool was admitted.
  for (const Replica& replica : replicas_) {
    if (!replica.pool() || replica.peer().name() != which) continue;
    const auto found = find([&](const Member& each) { return each.pool == *replica.pool(); });
    if (found) return *found;
  }
  const auto reached = [&](const Member& each) {
    return std::any_of(replicas_.begin(), replicas_.end(),
                       [&](const Replica& replica) { return replica.pool() == each.pool; });
  };
  if (const auto found =
          find([&](const Member& each) { return each.name == which && !reached(each); })) {
    return *found;
  }
  return Error{ErrorCode::NotFound, fmt::format("'{}' is no replica of this log, which has {}",
                                                which, describe(configuration_))};
}

/// Makes the pool of a peer a replica: of `next`, to which it is added, or put in the place of
/// another. It is brought to equal first, and does not count before the change is committed.
Result<void> ReplicatedLog::admit(std::unique_ptr<client::Peer> peer, Configuration next,
                                  std::optional<std::size_t> instead_of) {
  look_at_everything();
  if (!quorum_stands() || lost_) return quorum_lost(Deadline(clock_, options_.replica_timeout));
  PERDURE_TRY(pool, peer->describe(options_.pool, Deadline(clock_, options_.replica_timeout)));
  if (auto is_open = require_open(pool); !is_open.ok()) {
    return Error{is_open.code(), fmt::format("{}: {}", peer->name(), is_open.error().message)};
  }
  const auto uuid = parse_uuid(pool.uuid);
  if (!uuid) return Error{ErrorCode::ProtocolError, "the peer's pool has no UUID"};
  if (configuration_.has(*uuid)) {
    return Error{ErrorCode::AlreadyExists,
                 fmt::format("pool {} on {} is a replica already", pool.uuid, peer->name())};
  }
  for (const Replica& each : replicas_) {
    if (each.pool() != uuid) continue;
    return Error{ErrorCode::Busy, fmt::format("pool {} on {} was removed while the log was open; "
                                              "open the log again to add it",
                                              pool.uuid, peer->name())};
  }
  if (pool.epoch > epoch_) {
    return Error{ErrorCode::Fenced,
                 fmt::format("pool {} on {} was written in epoch {}, and the log is in epoch {}: "
                             "give it a pool that was never used",
                             pool.uuid, peer->name(), pool.epoch.value, epoch_.value)};
  }
  if (replicas_.size() == replicas_.capacity()) {
    return Error{ErrorCode::QueueFull, "too many changes of one writer; open the log again"};
  }
  const Member member{*uuid, peer->name().substr(0, kMemberNameMax)};
  if (instead_of) {
    next.members[*instead_of] = member;
  } else {
    next.members.push_back(member);
  }
  PERDURE_TRY_VOID(validate(next));
  // Before anything is given up of what its pool holds.
  const auto up = std::count_if(replicas_.begin(), replicas_.end(), [&](const Replica& each) {
    return each.sending() && each.pool() && next.has(*each.pool());
  });
  if (static_cast<std::uint32_t>(up) + 1 < next.quorum) return too_few_up(next);
  Replica& replica = replicas_.emplace_back(std::move(peer), replica_options());
  replica.set_pool(*uuid);
  follow_rule({configuration_});
  auto admitted = bring_newcomer(replica);
  if (admitted.ok()) admitted = change(std::move(next));
  if (!admitted.ok() && !lost_ && !configuration_.has(*uuid)) {
    leave_incomplete(replica);
    replica.mark_down(admitted.error());
    replicas_.pop_back();
    follow_rule({configuration_});
  }
  return admitted;
}

/// What the pool of a new replica holds, if the log may have it.
/// Errors: those of reading; AlreadyExists, InvalidArgument (it is too small).
Result<Survey> ReplicatedLog::survey_newcomer(Replica& replica, ByteSource& bytes) {
  if (ring_bytes_for(bytes.size()) < anchor_.ring_bytes) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("its pool is too small: the log's ring has {} bytes", anchor_.ring_bytes)};
  }
  auto found = survey_on(bytes, replica.brought_so_far().scan, tail_);
  if (!found.ok() && found.code() == ErrorCode::InvalidArgument) {
    return Error{ErrorCode::AlreadyExists, found.error().message};  // it holds no log
  }
  if (!found.ok()) return found;
  const bool creating = found->report && found->state().marks.creating;
  const bool other = found->damage || (found->report && !is_own(*found) && !creating);
  if (other && !options_.accept_loss) {
    return Error{ErrorCode::AlreadyExists,
                 "its pool holds another log, or what is left of one; with accept_loss that is "
                 "given up"};
  }
  return found;
}

bool ReplicatedLog::is_own(const Survey& found) const {
  return found.report && found.state().anchor.log_id == anchor_.log_id;
}

Result<void> ReplicatedLog::bring_newcomer(Replica& replica) {
  control::SessionRequest request = session_request();
  {  // Before whoever writes there is fenced, which only an earlier writer of this log is.
    PERDURE_TRY(bytes, client::RemoteBytes::open_for_writer(replica.peer(), options_.pool,
                                                            options_.replica_timeout, clock_));
    PERDURE_TRY(found, survey_newcomer(replica, *bytes));
    request.take_over = request.take_over && is_own(found);
  }
  PERDURE_TRY_VOID(replica.open_session(request));
  PERDURE_TRY_VOID(replica.prepare(anchor_.shape, staging_));
  PERDURE_TRY(bytes, client::RemoteBytes::open_for_writer(replica.peer(), options_.pool,
                                                          options_.replica_timeout, clock_));
  PERDURE_TRY(found, survey_newcomer(replica, *bytes));
  if (!is_own(found) || found.state().marks.removed) found = Survey{};
  RepairReport report;
  return bring_up(replica, *bytes, std::move(found), report,
                  Deadline(clock_, std::chrono::hours(24)));
}

/// Writes the configuration, which is committed, to the replicas that it has, and only when enough
/// of them know it lets those go that it does not have: until then, what these hold may be needed
/// to know that it is committed.
void ReplicatedLog::spread_configuration() {
  for (const bool members : {true, false}) {
    for (Replica& replica : replicas_) {
      if (!replica.sending() || is_member(replica) != members) continue;
      LogState state = *replica.state();
      state.configuration = configuration_;
      state.marks.removed = !members;
      auto written = Result<void>();
      const bool known = state == *replica.state();
      if (!known && (members || quorum_stands())) written = replica.write_state(state);
      if (written.ok() && !members) {
        written = Error{ErrorCode::NotFound, "it was removed from the log"};
      }
      if (!written.ok()) replica.mark_down(written.error());
    }
  }
}

Error ReplicatedLog::too_few_up(const Configuration& next) {
  return {ErrorCode::QuorumLost,
          fmt::format("fewer of the log's replicas are up than before and after the change are "
                      "needed ({} of {} after it); nothing was changed",
                      next.quorum, next.members.size())};
}

/// It was brought, and is no member: a reader must not take it for one.
void ReplicatedLog::leave_incomplete(Replica& replica) {
  if (!replica.sending() || !replica.state()) return;
  LogState state = *replica.state();
  state.marks.incomplete = true;
  (void)replica.write_state(state);  // or it is silent, and may stay as it is
}

/// Appends the configuration and uses both until it is committed.
Result<void> ReplicatedLog::change(Configuration next) {
  look_at_everything();
  PERDURE_TRY_VOID(validate(next));
  pump();
  if (!quorum_stands() || lost_) return quorum_lost(Deadline(clock_, options_.replica_timeout));
  follow_rule({configuration_, next});
  if (!quorum_stands()) {
    // Once its record is out, nobody could open the log before more of them are back.
    follow_rule({configuration_});
    return too_few_up(next);
  }
  const auto appended = append_configuration(encode_configuration(next));
  if (!appended.ok()) {
    follow_rule({configuration_});
    return appended.error();
  }
  // Before it goes what is staged, for which a slow link may take long.
  Patience patience(clock_, 2 * options_.replica_timeout);
  while (committed_ < appended->end) {
    pump();
    if (committed_ >= appended->end) break;
    look_at_connections(Nanoseconds{0});
    if (!patience.over(answered()) && quorum_stands()) continue;
    lost_ = Error{ErrorCode::QuorumLost,
                  "a change of the log's replicas may or may not be committed; open the log again "
                  "to find out"};
    return Error{ErrorCode::OutcomeUnknown, lost_->message};
  }
  const Configuration before = std::exchange(configuration_, std::move(next));
  quorum_ = configuration_.quorum;
  follow_rule({configuration_});
  for (Replica& replica : replicas_) {
    if (!replica.sending()) continue;
    const auto drained = drain(replica);
    if (!drained.ok() && replica.sending()) replica.mark_down(drained.error());
  }
  spread_configuration();
  if (quorum_stands()) return {};
  // It is committed, and those that are left could not show it without the ones from before.
  return Error{ErrorCode::OutcomeUnknown,
               "the log's replicas went down while they were given the change: open the log "
               "again, with those from before it"};
}

Result<void> ReplicatedLog::add_replica(std::unique_ptr<client::Peer> peer, std::size_t quorum) {
  Configuration next = next_configuration(configuration_.members.size() + 1, quorum);
  next.members = configuration_.members;
  return admit(std::move(peer), std::move(next), std::nullopt);
}

Result<void> ReplicatedLog::remove_replica(const std::string& which, std::size_t quorum) {
  PERDURE_TRY(index, find_member(which));
  Configuration next = next_configuration(configuration_.members.size() - 1, quorum);
  next.members = configuration_.members;
  next.members.erase(next.members.begin() + static_cast<std::ptrdiff_t>(index));
  return change(std::move(next));
}

Result<void> ReplicatedLog::replace_replica(const std::string& which,
                                            std::unique_ptr<client::Peer> peer) {
  PERDURE_TRY(index, find_member(which));
  Configuration next = next_configuration(configuration_.members.size(), quorum_);
  next.members = configuration_.members;
  return admit(std::move(peer), std::move(next), index);
}

Result<void> ReplicatedLog::change_quorum(std::size_t quorum) {
  Configuration next = next_configuration(configuration_.members.size(), quorum);
  next.members = configuration_.members;
  return change(std::move(next));
}

}  // namespace perdure::log
