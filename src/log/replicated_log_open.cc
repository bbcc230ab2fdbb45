// Opening a log: find out what is there, fence earlier writers, and in the end begin the epoch.
// What lies between is in replicated_log_history.cc. docs/log-protocol.md numbers the steps.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "client/writer_name.h"
#include "core/epoch.h"
#include "core/log_message.h"
#include "core/random.h"
#include "core/try.h"
#include "log/replicated_log.h"

namespace perdure::log {
namespace {

constexpr std::uint64_t kStagingBytesMin = 4 * 1024 * 1024;
constexpr Nanoseconds kEndWithin = std::chrono::seconds(1);

// Why a replica can not be used, for somebody to act on: the first of them is said. What passes by
// itself (Disconnected, TimedOut) is none.
constexpr std::array kCauses = {ErrorCode::Fenced,          ErrorCode::Busy,
                                ErrorCode::Corrupt,         ErrorCode::VersionMismatch,
                                ErrorCode::InvalidArgument, ErrorCode::PermissionDenied,
                                ErrorCode::NotFound,        ErrorCode::Unsupported,
                                ErrorCode::ProtocolError,   ErrorCode::NoSpace,
                                ErrorCode::QueueFull,       ErrorCode::SystemError,
                                ErrorCode::AlreadyExists,   ErrorCode::OutOfRange,
                                ErrorCode::LogFull,         ErrorCode::QuorumLost,
                                ErrorCode::OutcomeUnknown};

Result<void> validate(const WriterOptions& options, std::size_t peers) {
  if (peers == 0 || peers > kMembersMax || options.quorum > peers) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("a quorum of {} with {} peers; there must be 1 to {} peers and no more "
                    "needed than there are",
                    options.quorum, peers, kMembersMax)};
  }
  if (options.record_bytes_max == 0 || options.record_bytes_max > kPayloadBytesMax ||
      options.batches_in_flight < 1 || options.batches_in_flight > kBatchesMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("records have 1 to {} bytes, and 1 to {} batches are in flight",
                             kPayloadBytesMax, kBatchesMax)};
  }
  // Readers read what is said to be committed: it must be there to be read.
  if (options.level < Level::Visible) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("level '{}'; a log is opened for visible or durable",
                             to_string(options.level))};
  }
  return {};
}

}  // namespace

ReplicatedLog::ReplicatedLog(const WriterOptions& options, const Clock& clock)
    : options_(options),
      clock_(clock),
      staging_(std::max(kStagingBytesMin, 5 * record_bytes(options.record_bytes_max) / 2)) {}

ReplicaOptions ReplicatedLog::replica_options() const {
  ReplicaOptions each;
  each.batches_in_flight = options_.batches_in_flight;
  each.session.primary = options_.primary;
  each.session.level = options_.level;
  each.session.measure_costs = options_.measure_costs;
  each.session.probe_line = kProbeLineAt;
  each.session.timeout = options_.replica_timeout;
  each.session.reconnect = options_.reconnect;
  each.session.clock = &clock_;
  return each;
}

Result<std::unique_ptr<ReplicatedLog>> ReplicatedLog::open(
    std::vector<std::unique_ptr<client::Peer>> peers, const WriterOptions& options,
    const Clock& clock) {
  PERDURE_TRY_VOID(validate(options, peers.size()));
  std::unique_ptr<ReplicatedLog> log(new ReplicatedLog(options, clock));
  log->writer_ = options.writer != 0 ? options.writer : random_secret();
  log->replicas_.reserve(2 * kMembersMax + 1);  // a replica does not move once it is connected
  for (auto& peer : peers) log->replicas_.emplace_back(std::move(peer), log->replica_options());
  auto begun = log->begin();
  if (begun.ok()) return log;
  // Whoever is told why may open it again at once.
  log->end_sessions(std::min(kEndWithin, options.replica_timeout));
  return begun.error();
}

Result<void> ReplicatedLog::begin() {
  Opening opening;
  PERDURE_TRY_VOID(ask_pools());
  PERDURE_TRY_VOID(look(opening));
  PERDURE_TRY(exists, find_log(opening));
  find_unfit(opening);
  if (exists) PERDURE_TRY_VOID(check_named(opening));
  PERDURE_TRY_VOID(open_sessions(opening));
  if (exists) {
    survey_all(opening);
    PERDURE_TRY(history, choose_history(opening));
    PERDURE_TRY_VOID(choose_head(opening, history));
    PERDURE_TRY_VOID(adopt(opening, history));
  } else {
    configuration_ = opening.configuration;
    PERDURE_TRY_VOID(require_uncreated(opening));
    PERDURE_TRY_VOID(start_log(opening));
    warn_of_new_log(opening);
  }
  payload_max_ = std::min(options_.record_bytes_max, payload_bytes_max(anchor_.ring_bytes));
  plain_bytes_max_ = std::min<std::uint64_t>(payload_max_, short_crc_bytes_max());
  return {};
}

/// The error when too few replicas came along: of the causes that there are, the one that waiting
/// helps least.
Error ReplicatedLog::too_few(std::string_view doing, const Configuration& configuration) {
  std::vector<std::pair<std::string, std::string>> down;  // what is said, and of whom
  const ErrorCode* cause = kCauses.end();
  for (const Replica& replica : replicas_) {
    const auto& reason = replica.down_reason() ? replica.down_reason() : replica.unfit();
    if (!reason) continue;
    const auto& [code, message] = *reason;
    cause = std::min(cause, std::find(kCauses.begin(), kCauses.end(), code));
    const std::string& name = replica.peer().name();
    const std::string begin = "peer " + name + ": ";
    std::string words = message.starts_with(begin) ? message.substr(begin.size()) : message;
    const auto same = std::find_if(down.begin(), down.end(),
                                   [&](const auto& each) { return each.first == words; });
    if (same == down.end()) {
      down.emplace_back(std::move(words), name);
    } else {
      same->second += ", " + name;
    }
  }
  std::string reasons;
  for (const auto& [words, names] : down) reasons += fmt::format("; {}: {}", names, words);
  const ErrorCode code = cause == kCauses.end() ? ErrorCode::QuorumLost : *cause;
  const std::size_t members = configuration.members.size();
  return Error{code, fmt::format("{}: fewer than {} of {} replicas can be used{}", doing,
                                 members == 0 ? replicas_.size() : configuration.sessions_needed(),
                                 members == 0 ? replicas_.size() : members, reasons)};
}

/// The same where one of those in play needs more of them.
Error ReplicatedLog::too_few_of(const Configurations& in_play, const Configuration& lacking) {
  if (in_play.size() == 1)
    return too_few(fmt::format("recovering log '{}'", options_.pool), lacking);
  return too_few(fmt::format("a change of log '{}' was begun and is not decided: it has {}, or {}, "
                             "and takes a quorum of both (name the replicas of both); deciding it",
                             options_.pool, describe(in_play.front()), describe(in_play.back())),
                 lacking);
}

/// Step 1: which pools the peers have. Changes nothing there. That one of them is named twice is
/// said first: waiting for another writer does not help there.
Result<void> ReplicatedLog::ask_pools() {
  std::optional<Error> busy;
  Epoch busy_epoch;
  for (Replica& replica : replicas_) {
    const auto pool =
        replica.peer().describe(options_.pool, Deadline(clock_, options_.replica_timeout));
    if (!pool.ok()) {
      replica.mark_down(pool.error());
      continue;
    }
    const auto uuid = parse_uuid(pool->uuid);
    if (!uuid && pool->state == control::PoolStatus::Closed) {
      replica.mark_down({ErrorCode::Busy,
                         fmt::format("its pool '{}' is still being made there; open the log when "
                                     "that has ended",
                                     options_.pool)});
      continue;
    }
    if (!uuid) {
      replica.mark_down({ErrorCode::ProtocolError,
                         fmt::format("its pool '{}' has no UUID ({})", pool->name, pool->reason)});
      continue;
    }
    for (const Replica& other : replicas_) {
      if (other.pool() != uuid) continue;
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} and {} are one pool ({}); a replica counts once",
                               other.peer().name(), replica.peer().name(), pool->uuid)};
    }
    replica.set_pool(*uuid);
    if (pool->epoch > epoch_) newest_peer_ = replica.peer().name();
    epoch_ = std::max(epoch_, pool->epoch);
    if (pool->epoch > Epoch{}) {
      had_writers_ += fmt::format("; {}: epoch {}{}", replica.peer().name(), pool->epoch.value,
                                  pool->writer_name.empty() ? "" : ", " + pool->writer_name);
    }
    if (!pool->writer_present || pool->writer == writer_) continue;
    writer_seen_ = true;
    if (options_.take_over) continue;
    if (busy && pool->epoch <= busy_epoch) continue;
    busy_epoch = pool->epoch;
    busy = Error{
        ErrorCode::Busy,
        fmt::format("pool '{}' on {} is being written by '{}' of epoch {}; wait for it to "
                    "end, or ask to take over",
                    options_.pool, replica.peer().name(), pool->writer_name, pool->epoch.value)};
  }
  if (busy) return *busy;
  return {};
}

/// Reads what every pool says of its log.
Result<void> ReplicatedLog::look(Opening& opening) {
  opening.bytes.resize(replicas_.size());
  opening.starts.resize(replicas_.size());
  opening.surveys.resize(replicas_.size());
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    Replica& replica = replicas_[index];
    if (!replica.pool() || replica.down_reason()) continue;
    auto bytes = client::RemoteBytes::open_for_writer(replica.peer(), options_.pool,
                                                      options_.replica_timeout, clock_);
    auto start = bytes.ok() ? read_start(**bytes) : Result<LogStart>(bytes.error());
    if (!start.ok() && start.code() == ErrorCode::VersionMismatch) {
      return Error{start.code(), fmt::format("pool '{}' on {}: {}", options_.pool,
                                             replica.peer().name(), start.error().message)};
    }
    // Damage that is read is something to rely on; a peer that lets nobody read is not.
    if (!bytes.ok() || (!start.ok() && start.code() != ErrorCode::Corrupt)) {
      replica.mark_down(start.error());
      continue;
    }
    opening.bytes[index] = std::move(bytes).value();
    if (start.ok()) opening.starts[index] = std::move(start).value();
  }
  return {};
}

/// Whether there is a log, and which. Without one, the configuration is that of a new one.
Result<bool> ReplicatedLog::find_log(Opening& opening) {
  bool all_answer = true;
  bool damaged = false;
  std::string words;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    all_answer = all_answer && opening.bytes[index] != nullptr;
    damaged = damaged || (opening.bytes[index] != nullptr && !opening.starts[index]);
    if (!opening.starts[index] || !opening.starts[index]->anchor) continue;
    const LogStart& start = *opening.starts[index];
    if (start.state().epoch > epoch_) newest_peer_ = replicas_[index].peer().name();
    epoch_ = std::max(epoch_, start.state().epoch);
    if (start.state().marks.creating) continue;
    if (opening.log_id && *opening.log_id != start.anchor->log_id) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("pool '{}' on {} holds another log than on the other peers; name "
                               "the peers of one log",
                               options_.pool, replicas_[index].peer().name())};
    }
    if (options_.shape && start.anchor->shape != *options_.shape) {
      return Error{ErrorCode::InvalidArgument,
                   "the log exists with the other shape; leave the shape to what is there"};
    }
    opening.log_id = start.anchor->log_id;
    opening.shape = start.anchor->shape;
  }
  if (opening.log_id) return true;
  opening.shape = options_.shape.value_or(LogShape::Singleton);
  if (!all_answer) {
    return too_few(fmt::format("no log '{}' was found, and to create one all its peers are needed",
                               options_.pool),
                   {});
  }
  if (damaged) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("what pool '{}' says of its log is damaged on every peer that has "
                             "something",
                             options_.pool)};
  }
  if (!options_.create) {
    return Error{ErrorCode::NotFound,
                 fmt::format("no log was ever created in pool '{}' on any of the peers, or "
                             "everything it held is gone; the first append creates one",
                             options_.pool)};
  }
  PERDURE_TRY_VOID(check_begun(opening));
  opening.configuration = next_configuration(replicas_.size(), options_.quorum);
  for (const Replica& replica : replicas_) {
    opening.configuration.members.push_back(
        {*replica.pool(), replica.peer().name().substr(0, kMemberNameMax)});
  }
  return false;
}

/// Which replicas have no method that does what was asked for. One that has an older history is
/// read all the same, and votes.
void ReplicatedLog::find_unfit(const Opening& opening) {
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (opening.bytes[index] == nullptr) continue;
    const auto can = replicas_[index].session().check_methods(opening.bytes[index]->session(),
                                                              opening.shape == LogShape::Compound);
    if (!can.ok()) replicas_[index].note_unfit(can.error());
  }
}

control::SessionRequest ReplicatedLog::session_request() const {
  control::SessionRequest request;
  request.pool = options_.pool;
  request.write = true;
  request.epoch = epoch_;
  request.writer = writer_;
  request.writer_name = options_.writer_name.empty() ? client::this_writer() : options_.writer_name;
  request.take_over = options_.take_over;
  return request;
}

/// Steps 2 and 3: in the order of UUIDs, so that two who open at once meet at the first.
Result<void> ReplicatedLog::open_sessions(const Opening& opening) {
  const Configuration& configuration = opening.configuration;
  if (epoch_ >= kEpochMax) {
    return Error{
        ErrorCode::Unsupported,
        fmt::format("pool '{}' on {} has come to epoch {}, and they end there: replace or remove "
                    "that replica, or copy the log into a new one if all are there",
                    options_.pool, newest_peer_, epoch_.value)};
  }
  const std::uint32_t step = options_.accept_loss ? kAcceptedLossStep : 1;
  epoch_ = std::min(kEpochMax, Epoch{epoch_.value + step});
  // Whoever can not succeed fences nobody. A new log needs all of its replicas.
  const std::size_t fit = fit_of(configuration);
  const bool enough =
      opening.log_id ? fit >= configuration.quorum : fit == configuration.members.size();
  if (reachable_of(configuration) < configuration.sessions_needed() || !enough) {
    return too_few(fmt::format("opening log '{}'", options_.pool), configuration);
  }
  std::vector<std::size_t> order(replicas_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    const auto& a = replicas_[one].pool();
    const auto& b = replicas_[other].pool();
    if (!a || !b) return a.has_value() && !b.has_value();
    return a->bytes < b->bytes;
  });
  std::size_t opened = 0;
  for (const std::size_t index : order) {
    Replica& replica = replicas_[index];
    if (replica.down_reason()) continue;
    const auto session = replica.open_session(session_request());
    if (session.ok()) {
      opened += configuration.has(*replica.pool()) ? 1 : 0;
      continue;
    }
    // Another writer is there: do not go on to disturb it elsewhere.
    if (session.code() == ErrorCode::Busy || session.code() == ErrorCode::Fenced) {
      return session.error();
    }
    replica.mark_down(session.error());
  }
  if (opened < configuration.sessions_needed()) {
    return too_few(fmt::format("opening log '{}'", options_.pool), configuration);
  }
  return {};
}

/// Before anything is written: that everybody is fenced, and no log was created since it was looked
/// for. Whoever is not reached may be the only one that still says whose creation it was.
Result<void> ReplicatedLog::require_uncreated(Opening& opening) {
  for (const Replica& replica : replicas_) {
    if (replica.has_session()) continue;
    return too_few(fmt::format("creating log '{}'", options_.pool), {});
  }
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    PERDURE_TRY(start, read_start(*opening.bytes[index]));
    opening.starts[index] = start;
    if (!start.anchor || start.state().marks.creating) continue;
    return Error{ErrorCode::Busy,
                 fmt::format("log '{}' was created by another writer just now; open it again",
                             options_.pool)};
  }
  return {};
}

/// Pools of which nothing is left may have held a log. It is created all the same, for a creation
/// that was cut short before its first write leaves no other trace; but nobody is to learn of it
/// from indices that begin again.
void ReplicatedLog::warn_of_new_log(const Opening& opening) const {
  const bool begun = std::any_of(opening.starts.begin(), opening.starts.end(),
                                 [](const auto& start) { return start && start->anchor; });
  if (begun || had_writers_.empty()) return;
  log_message(
      Severity::Warning,
      fmt::format("log '{}' is new, and begins at index 0: its pools held nothing, although "
                  "they had writers{}; if they had a log, it is gone (what may have left "
                  "them empty, too: creating it was cut short, or somebody fenced them)",
                  options_.pool, had_writers_));
}

/// A log that nobody has: its first state on every replica, marked until all have it.
Result<void> ReplicatedLog::start_log(Opening& opening) {
  anchor_.shape = opening.shape;
  anchor_.log_id = random_secret();
  anchor_.seed = static_cast<std::uint32_t>(random_secret());
  anchor_.ring_bytes = UINT64_MAX;
  for (const Replica& replica : replicas_) {
    anchor_.ring_bytes =
        std::min(anchor_.ring_bytes, ring_bytes_for(replica.session().connection().remote.length));
  }
  if (anchor_.ring_bytes < kRingBytesMin) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("creating log '{}': a pool is too small for a log; it takes {} bytes "
                             "at least",
                             options_.pool, kLogBytesMin)};
  }
  Target target = target_here(head_);
  LogState first = target.state;
  first.marks.creating = true;
  first.epoch = Epoch{};
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    Replica& replica = replicas_[index];
    PERDURE_TRY_VOID(replica.prepare(anchor_.shape, staging_));
    // Of a creation that was cut short one copy may be whole: it is written last.
    replica.note_state(opening.starts[index]->stored);
    PERDURE_TRY_VOID(write_word(replica, kCommittedWordAt, kFirstLsn));
    if (anchor_.shape == LogShape::Compound) {
      PERDURE_TRY_VOID(write_word(replica, kTailWordAt, kFirstLsn));
    }
    PERDURE_TRY_VOID(replica.write_state(first));
    PERDURE_TRY_VOID(write_anchor(replica, anchor_));
  }
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    begin_on(index, opening, target);
    if (replicas_[index].up()) replicas_[index].resume_at(kFirstLsn);
  }
  return begin_epoch({configuration_});
}

/// Makes a replica that is equal a full part of the epoch, or marks it down.
void ReplicatedLog::begin_on(std::size_t index, const Opening& opening, const Target& target) {
  Replica& replica = replicas_[index];
  auto begun = replica.write_state(target.state);
  if (begun.ok()) {
    const auto again = survey_again(*opening.bytes[index], target, replica);
    if (!again.ok()) begun = again.error();
  }
  if (!begun.ok()) replica.mark_down(begun.error());
}

/// Enough replicas are full parts of the epoch: all of the history is committed with it.
Result<void> ReplicatedLog::begin_epoch(const Configurations& in_play) {
  follow_rule(in_play);
  quorum_ = in_play.back().quorum;
  if (!quorum_stands()) return too_few_of(in_play, in_play.back());
  committed_ = tail_;
  noted_ = tail_;
  boundaries_.reserve(anchor_.ring_bytes);
  durable_anywhere_ = tail_;
  configuration_ = in_play.back();
  follow_rule({configuration_});
  for (Replica& replica : replicas_) {
    if (!replica.sending()) continue;
    auto written = write_word(replica, kCommittedWordAt, committed_);
    if (!written.ok()) replica.mark_down(written.error());
  }
  spread_configuration();
  if (!quorum_stands()) {
    return too_few(fmt::format("recovering log '{}'", options_.pool), configuration_);
  }
  return {};
}

}  // namespace perdure::log
