// Opening a log: fence earlier writers, find out what is committed, bring replicas to equal. And
// repair, which does the same for one replica while the log is open.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/log_message.h"
#include "core/random.h"
#include "core/try.h"
#include "log/replicated_log.h"

namespace perdure::log {
namespace {

constexpr std::size_t kReplicasMax = 15;
constexpr std::uint64_t kStagingBytesMin = 4 * 1024 * 1024;

std::size_t quorum_for(std::size_t asked, std::size_t replicas) {
  return asked == 0 ? replicas / 2 + 1 : asked;
}

std::string this_writer() {
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}:{}", host.data(), ::getpid());
}

}  // namespace

ReplicatedLog::ReplicatedLog(const WriterOptions& options, const Clock& clock)
    : options_(options),
      clock_(clock),
      staging_(std::max(kStagingBytesMin, 5 * record_bytes(options.record_bytes_max) / 2)) {}

Result<std::unique_ptr<ReplicatedLog>> ReplicatedLog::open(
    std::vector<std::unique_ptr<client::Peer>> peers, const WriterOptions& options,
    const Clock& clock) {
  const std::size_t quorum = quorum_for(options.quorum, peers.size());
  if (peers.empty() || peers.size() > kReplicasMax || quorum > peers.size()) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("a quorum of {} with {} peers; there must be 1 to {} peers and no more "
                    "needed than there are",
                    quorum, peers.size(), kReplicasMax)};
  }
  if (options.record_bytes_max == 0 || options.record_bytes_max > kPayloadBytesMax ||
      options.batches_in_flight < 1 || options.batches_in_flight > kBatchesMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("records have 1 to {} bytes, and 1 to {} batches are in flight",
                             kPayloadBytesMax, kBatchesMax)};
  }
  std::unique_ptr<ReplicatedLog> log(new ReplicatedLog(options, clock));
  log->quorum_ = quorum;
  log->writer_ = options.writer != 0 ? options.writer : random_secret();
  ReplicaOptions each;
  each.pool = options.pool;
  each.primary = options.primary;
  each.level = options.level;
  each.batches_in_flight = options.batches_in_flight;
  each.measure_costs = options.measure_costs;
  each.stall = options.stall;
  each.reconnect = options.reconnect;
  each.clock = &clock;
  for (auto& peer : peers) log->replicas_.emplace_back(std::move(peer), each);
  log->durable_scratch_.resize(log->replicas_.size());
  PERDURE_TRY_VOID(log->choose_epoch());
  PERDURE_TRY_VOID(log->open_sessions());
  PERDURE_TRY_VOID(log->open_history());
  log->payload_max_ =
      std::min(log->options_.record_bytes_max, payload_bytes_max(log->anchor_.ring_bytes));
  PERDURE_TRY_VOID(log->begin_epoch());
  return log;
}

/// Replicas that must answer: enough to append, and enough that every committed record is on one.
std::size_t ReplicatedLog::needed_to_open() const {
  return std::max(quorum_, replicas_.size() - quorum_ + 1);
}

/// The error when too few replicas came along: the first that names a cause to act on, if any.
Error ReplicatedLog::too_few(std::string_view doing) {
  std::string reasons;
  ErrorCode code = ErrorCode::QuorumLost;
  for (const Replica& replica : replicas_) {
    if (!replica.down_reason()) continue;
    reasons += fmt::format("; {}: {}", replica.peer().name(), replica.down_reason()->message);
    const ErrorCode why = replica.down_reason()->code;
    const bool transient = why == ErrorCode::Disconnected || why == ErrorCode::TimedOut;
    if (code == ErrorCode::QuorumLost && !transient) code = why;
  }
  return Error{code, fmt::format("{}: fewer than {} of {} replicas can be used{}", doing,
                                 needed_to_open(), replicas_.size(), reasons)};
}

Result<void> ReplicatedLog::choose_epoch() {
  std::size_t answered = 0;
  for (Replica& replica : replicas_) {
    const auto pool = replica.peer().describe(options_.pool, Deadline(clock_, options_.stall));
    if (!pool.ok()) {
      replica.mark_down(pool.error());
      continue;
    }
    ++answered;
    epoch_ = std::max(epoch_, pool->epoch);
  }
  if (answered < needed_to_open()) {
    return too_few(fmt::format("opening log '{}'", options_.pool));
  }
  ++epoch_.value;
  return {};
}

control::SessionRequest ReplicatedLog::session_request() const {
  control::SessionRequest request;
  request.pool = options_.pool;
  request.write = true;
  request.epoch = epoch_;
  request.writer = writer_;
  request.writer_name = options_.writer_name.empty() ? this_writer() : options_.writer_name;
  request.take_over = options_.take_over;
  return request;
}

Result<void> ReplicatedLog::open_sessions() {
  std::size_t opened = 0;
  for (Replica& replica : replicas_) {
    if (replica.down_reason()) continue;
    const auto session = replica.open_session(session_request());
    if (session.ok()) {
      ++opened;
      continue;
    }
    // Another writer is there: do not go on to disturb it elsewhere.
    if (session.code() == ErrorCode::Busy || session.code() == ErrorCode::Fenced) {
      return session.error();
    }
    replica.mark_down(session.error());
  }
  if (opened < needed_to_open()) return too_few(fmt::format("opening log '{}'", options_.pool));
  return {};
}

/// Reads every replica that has a session; what can not be read is marked down.
Result<void> ReplicatedLog::open_history() {
  std::vector<std::optional<Survey>> surveys(replicas_.size());
  std::vector<std::unique_ptr<client::RemoteBytes>> bytes(replicas_.size());
  std::size_t surveyed = 0;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    Replica& replica = replicas_[index];
    if (!replica.has_session()) continue;
    auto remote = client::RemoteBytes::open(replica.peer(), options_.pool, options_.stall, clock_);
    auto found = remote.ok() ? survey(**remote) : Result<Survey>(remote.error());
    if (!found.ok()) {
      replica.mark_down(found.error());
      continue;
    }
    surveys[index] = std::move(found).value();
    bytes[index] = std::move(remote).value();
    ++surveyed;
  }
  if (surveyed < needed_to_open()) return too_few(fmt::format("reading log '{}'", options_.pool));
  PERDURE_TRY_VOID(check_same_log(surveys));
  if (!choose_history(surveys)) {
    const auto damaged = std::find_if(surveys.begin(), surveys.end(),
                                      [](const auto& each) { return each && each->damage; });
    if (damaged != surveys.end() && !options_.accept_loss) return *(*damaged)->damage;
    return start_log();
  }
  return adopt_history(surveys, bytes);
}

Result<void> ReplicatedLog::check_same_log(const std::vector<std::optional<Survey>>& surveys) {
  std::optional<Anchor> first;
  for (std::size_t index = 0; index < surveys.size(); ++index) {
    if (!surveys[index] || !surveys[index]->report) continue;
    const Anchor& anchor = *surveys[index]->report->start.anchor;
    if (first && *first != anchor) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("pool '{}' on {} holds another log than on the other peers; name "
                               "the peers of one log",
                               options_.pool, replicas_[index].peer().name())};
    }
    first = anchor;
  }
  if (first && options_.shape && first->shape != *options_.shape) {
    return Error{ErrorCode::InvalidArgument,
                 "the log exists with the other shape; leave the shape to what is there"};
  }
  return {};
}

Result<void> ReplicatedLog::start_log() {
  anchor_.shape = options_.shape.value_or(LogShape::Singleton);
  anchor_.log_id = random_secret();
  anchor_.ring_bytes = UINT64_MAX;
  for (const Replica& replica : replicas_) {
    if (!replica.has_session()) continue;
    anchor_.ring_bytes =
        std::min(anchor_.ring_bytes, ring_bytes_for(replica.session().remote.length));
  }
  for (Replica& replica : replicas_) {
    if (!replica.has_session()) continue;
    auto ready = replica.prepare(anchor_.shape, staging_);
    if (ready.ok()) ready = create_log(replica, anchor_);
    if (ready.ok()) {
      replica.resume_at(kFirstLsn);
    } else {
      replica.mark_down(ready.error());
    }
  }
  if (up_count() < needed_to_open())
    return too_few(fmt::format("creating log '{}'", options_.pool));
  return {};
}

Result<void> ReplicatedLog::adopt_history(
    std::vector<std::optional<Survey>>& surveys,
    std::vector<std::unique_ptr<client::RemoteBytes>>& bytes) {
  std::size_t best = *choose_history(surveys);
  anchor_ = *surveys[best]->report->start.anchor;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (!surveys[index]) continue;
    const auto ready = replicas_[index].prepare(anchor_.shape, staging_);
    if (!ready.ok()) {
      replicas_[index].mark_down(ready.error());
      surveys[index].reset();
    }
  }
  if (!surveys[best]) return too_few(fmt::format("recovering log '{}'", options_.pool));
  // A replica damaged early may hold more once the damage is mended: then it leads from there.
  for (std::size_t round = 0; round <= replicas_.size(); ++round) {
    if (!make_equal(best, surveys, bytes)) break;
    best = *choose_history(surveys);
  }
  const ScanReport& history = *surveys[best]->report;
  if (history.damaged() && !options_.accept_loss) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("records from index {} on (LSN {}) were durable once and are damaged "
                             "on every reachable replica; bring another replica back, or open "
                             "with accept_loss to go on without them",
                             history.next_index, history.tail.value)};
  }
  head_ = history.start.head;
  tail_ = history.tail;
  committed_ = history.tail;
  durable_anywhere_ = history.tail;
  next_index_ = history.next_index;
  last_crc_ = history.last_crc;
  for (Replica& replica : replicas_) {
    if (replica.up()) replica.resume_at(tail_);
  }
  if (up_count() < needed_to_open()) {
    return too_few(fmt::format("recovering log '{}'", options_.pool));
  }
  return {};
}

/// Brings every replica to what `best` holds. True when one of them turned out to hold more.
bool ReplicatedLog::make_equal(std::size_t best, std::vector<std::optional<Survey>>& surveys,
                               std::vector<std::unique_ptr<client::RemoteBytes>>& bytes) {
  bool more = false;
  const ScanReport history = *surveys[best]->report;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (index == best || !surveys[index]) continue;
    const std::string difference = describe_difference(*surveys[index], history);
    if (difference.empty()) continue;
    RepairReport report;
    report.peer = replicas_[index].peer().name();
    report.found = difference;
    auto copied = bring_equal(*bytes[best], history, replicas_[index], *surveys[index]);
    auto again = copied.ok() ? survey(*bytes[index]) : Result<Survey>(copied.error());
    if (again.ok()) {
      report.repaired = true;
      report.copied_bytes = *copied;
      surveys[index] = std::move(again).value();
      more = more || (surveys[index]->report && surveys[index]->report->tail > history.tail &&
                      surveys[index]->report->last_epoch >= history.last_epoch);
    } else {
      report.error = again.error().message;
      replicas_[index].mark_down(again.error());
      surveys[index].reset();
    }
    repairs_.push_back(std::move(report));
  }
  return more;
}

/// The first record of an epoch: once it is committed, no other history can be chosen any more.
Result<void> ReplicatedLog::begin_epoch() {
  PERDURE_TRY(ticket, append_record(RecordType::Epoch, {}));
  const Deadline deadline(clock_, 2 * options_.stall);
  while (ticket.end > committed_) {
    pump();
    if (!quorum_stands()) return quorum_lost();
    if (deadline.passed()) {
      return Error{ErrorCode::TimedOut, "the replicas do not answer the first record of the epoch"};
    }
  }
  return {};
}

std::vector<RepairReport> ReplicatedLog::repair() {
  std::vector<RepairReport> reports;
  for (Replica& replica : replicas_) {
    if (!replica.sending()) reports.push_back(bring_back(replica));
  }
  return reports;
}

RepairReport ReplicatedLog::bring_back(Replica& replica) {
  RepairReport report;
  report.peer = replica.peer().name();
  const auto repaired = repair_replica(replica, report);
  report.repaired = repaired.ok();
  if (!repaired.ok()) {
    report.error = repaired.error().message;
    replica.mark_down(repaired.error());
    if (repaired.code() == ErrorCode::Fenced && !quorum_stands()) lost_ = repaired.error();
  } else if (quorum_stands()) {
    lost_.reset();
  }
  return report;
}

/// Tries what is down, once its time has come.
void ReplicatedLog::reconnect(Nanoseconds now) {
  if (!may_come_back()) return;
  for (Replica& replica : replicas_) {
    if (replica.sending() || !replica.retry_due(now)) continue;
    RepairReport report = bring_back(replica);
    if (report.repaired) repairs_.push_back(std::move(report));
  }
}

Result<void> ReplicatedLog::repair_replica(Replica& replica, RepairReport& report) {
  PERDURE_TRY_VOID(replica.open_session(session_request()));
  PERDURE_TRY_VOID(replica.prepare(anchor_.shape, staging_));
  PERDURE_TRY(target,
              client::RemoteBytes::open(replica.peer(), options_.pool, options_.stall, clock_));
  PERDURE_TRY(found, survey(*target));
  if (found.report && found.report->start.anchor != anchor_) {
    return Error{ErrorCode::InvalidArgument, "its pool holds another log"};
  }
  for (Replica& source : replicas_) {
    if (!source.sending()) continue;
    auto bytes = client::RemoteBytes::open(source.peer(), options_.pool, options_.stall, clock_);
    if (!bytes.ok()) continue;
    auto history = scan_log(**bytes);
    if (!history.ok()) continue;
    report.found = describe_difference(found, *history);
    PERDURE_TRY(copied, bring_equal(**bytes, *history, replica, found));
    report.copied_bytes = copied;
    replica.resume_at(history->tail);
    return {};
  }
  return catch_up(replica, found);
}

/// With no other replica up, all that is missing must still be staged.
Result<void> ReplicatedLog::catch_up(Replica& replica, const Survey& found) {
  if (!found.report) return Error{ErrorCode::Corrupt, "its log is damaged and no other is up"};
  const Lsn at = found.report->tail;
  const std::optional<Lsn> staged = staging_.first();
  if (at < replica.durable_below() || at > tail_ || (staged ? *staged > at : at < tail_)) {
    return Error{ErrorCode::QuorumLost,
                 fmt::format("it holds the log up to {}, which is neither what was durable there "
                             "nor what can be sent again; bring another replica back first",
                             at.value)};
  }
  replica.resume_at(at);
  return {};
}

}  // namespace perdure::log
