// Reading on with another replica: see failover_reader.h.
#include "log/failover_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/backoff.h"
#include "core/try.h"

namespace perdure::log {
namespace {

// How often, at the end of one replica, the others are asked whether they have more.
constexpr Nanoseconds kLookAroundEvery = std::chrono::milliseconds(100);
// A replica that failed is left alone for this long; while another one can be read, for several
// times what the try took: one that is silent must not hold up what can be read.
constexpr Nanoseconds kTryAgainAfter = std::chrono::milliseconds(50);

// The others are asked which log they hold before one is read: of one that is silent so long it is
// found out later.
constexpr Nanoseconds kOneLogWithin = std::chrono::milliseconds(250);

// Of what several replicas say, what is most likely to pass comes first.
constexpr std::array kByHope{ErrorCode::Busy,      ErrorCode::Disconnected, ErrorCode::TimedOut,
                             ErrorCode::QueueFull, ErrorCode::Corrupt,      ErrorCode::NotFound};

}  // namespace

Result<FailoverReader> FailoverReader::open(std::vector<std::unique_ptr<client::Peer>> peers,
                                            Options options, const Clock& clock) {
  if (peers.empty()) return Error{ErrorCode::InvalidArgument, "a reader needs a peer"};
  if (options.reading.uncommitted && peers.size() > 1) {
    return Error{ErrorCode::InvalidArgument,
                 "what is not committed differs between replicas: name the one to read it from"};
  }
  FailoverReader opened(std::move(options), clock);
  for (auto& peer : peers) opened.replicas_.push_back({std::move(peer), nullptr, {}, {}});
  for (std::size_t index = 0; index < opened.replicas_.size(); ++index) {
    Replica& replica = opened.replicas_[index];
    const Nanoseconds since = clock.now();
    if (auto entered = opened.enter(replica); !entered.ok()) {
      opened.note_failure(replica, entered.error(), false, since);
      continue;
    }
    opened.current_ = index;
    opened.place_ = replica.reader->place();
    PERDURE_TRY_VOID(opened.require_one_log());
    return opened;
  }
  return opened.none_readable();
}

/// That the others that answer hold the log that is read. The one that is left of a deleted log
/// reads like any other.
Result<void> FailoverReader::require_one_log() {
  if (options_.log_id) return {};
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    Replica& replica = replicas_[index];
    const auto& failure = replica.failure;
    const bool away = failure && (failure->error.code == ErrorCode::Disconnected ||
                                  failure->error.code == ErrorCode::TimedOut);
    if (index == current_ || away) continue;
    auto bytes = client::RemoteBytes::open(*replica.peer, options_.pool,
                                           std::min(options_.timeout, kOneLogWithin), *clock_);
    const auto start = bytes.ok() ? read_start(**bytes) : Result<LogStart>(bytes.error());
    if (!start.ok() || !start->anchor || start->state().marks.creating) continue;
    if (start->anchor->log_id != place_->log_id) return different_logs(replica);
  }
  return {};
}

Error FailoverReader::different_logs(const Replica& other) const {
  return {
      ErrorCode::InvalidArgument,
      fmt::format("pool '{}' on {} holds another log than on {}; name the peers of one log, and "
                  "where a pool is left of a log that was deleted, delete it too",
                  options_.pool, other.peer->name(), replicas_[current_].peer->name())};
}

/// Opens a session if there is none, and begins at the place.
Result<void> FailoverReader::enter(Replica& replica) {
  if (replica.bytes == nullptr) {
    PERDURE_TRY(bytes,
                client::RemoteBytes::open(*replica.peer, options_.pool, options_.timeout, *clock_));
    replica.bytes = std::move(bytes);
  }
  CommittedReader::Options reading = options_.reading;
  reading.name = fmt::format("pool '{}' on {}", options_.pool, replica.peer->name());
  PERDURE_TRY(reader, place_ ? CommittedReader::resume(*replica.bytes, reading, *place_)
                             : CommittedReader::open(*replica.bytes, reading));
  if (options_.log_id && reader.place().log_id != *options_.log_id) {
    return Error{ErrorCode::Fenced, fmt::format("{} holds another log now", reading.name)};
  }
  replica.reader.emplace(std::move(reader));
  return {};
}

Result<std::optional<Record>> FailoverReader::next() {
  Replica& replica = replicas_[current_];
  if (!replica.reader) return read_another();
  const Nanoseconds since = clock_->now();
  auto record = replica.reader->next();
  if (!record.ok()) {
    // That what was returned is not in the log any more is true on every replica.
    if (replica.reader->replaced()) return record;
    const bool undecided = replica.reader->undecided();
    if (undecided && record.code() == ErrorCode::Fenced) return read_later(record.error());
    leave(replica);
    note_failure(replica, record.error(), record.code() == ErrorCode::NotFound, since);
    return read_another();
  }
  return *record ? record : look_around();
}

/// Whether a loss was accepted, as the current one says, only one of a later epoch knows: those
/// that were left behind have what was given up.
Result<std::optional<Record>> FailoverReader::read_later(Error undecided) {
  place_ = replicas_[current_].reader->place();
  const Epoch said_by = not_before_ = replicas_[current_].reader->epoch();
  for (std::size_t count = 1; count < replicas_.size(); ++count) {
    const std::size_t index = (current_ + count) % replicas_.size();
    Replica& replica = replicas_[index];
    if (replica.failure && clock_->now() - replica.failure->at < kTryAgainAfter) continue;
    auto record = try_next(replica);
    if (replica.reader && replica.reader->epoch() > said_by) {
      take(index);
      return record;
    }
    replica.reader.reset();
  }
  return undecided;
}

/// The next record of a replica that may not have been entered; notes why not. Where what was
/// returned was replaced, the replica stays entered.
Result<std::optional<Record>> FailoverReader::try_next(Replica& replica) {
  const Nanoseconds since = clock_->now();
  auto entered = enter(replica);
  const bool connected = replica.bytes != nullptr;
  // What of a later writer replaces records is said by a reader that was entered.
  const bool other_log = !entered.ok() && connected && entered.code() == ErrorCode::Fenced;
  if (entered.ok() && replica.reader->epoch() < not_before_) {
    Error behind{ErrorCode::Fenced,
                 fmt::format("it was left behind at epoch {}, and a loss was accepted in epoch {}",
                             replica.reader->epoch().value, not_before_.value)};
    const Nanoseconds now = clock_->now();
    replica.failure = Failure{behind, false, false, now, now - since};  // its session is well
    replica.reader.reset();
    return behind;
  }
  auto record = entered.ok() ? replica.reader->next()
                             : Result<std::optional<Record>>(std::move(entered).error());
  if (record.ok()) {
    replica.failure.reset();
    return record;
  }
  if (replica.says_replaced()) return record;
  if (!connected && record.code() == ErrorCode::NotFound) {
    // Its pool is closed, or gone: it may be there again, which a record that was trimmed is not.
    record = Error{ErrorCode::Disconnected, record.error().message};
  }
  note_failure(replica, record.error(), connected && record.code() == ErrorCode::NotFound, since);
  replica.failure->other_log = other_log;
  return record;
}

/// Nothing can be read where it was read last. Tries all, that one last; the first that has more is
/// read, else the first that can be.
Result<std::optional<Record>> FailoverReader::read_another() {
  std::optional<std::size_t> readable;
  const std::size_t first = current_ + 1;
  for (std::size_t count = 0; count < replicas_.size(); ++count) {
    const std::size_t index = (first + count) % replicas_.size();
    Replica& replica = replicas_[index];
    const auto& failure = replica.failure;
    if (failure && clock_->now() - failure->at < kTryAgainAfter) continue;
    auto record = try_next(replica);
    const bool replaced = replica.says_replaced();
    if (!record.ok() && !replaced) continue;
    const bool undecided = replaced && replica.reader->undecided();
    if (undecided && replica.reader->epoch() < left_) {
      const Nanoseconds now = clock_->now();  // who read one of a later epoch is not told
      replica.failure = Failure{record.error(), false, false, now, Nanoseconds{0}};
      replica.reader.reset();
      continue;
    }
    if (replaced || *record) {
      take(index);
      return undecided ? read_later(record.error()) : record;
    }
    if (!readable) readable = index;
  }
  if (!readable) return none_readable();
  take(*readable);
  return std::optional<Record>{};
}

/// The replica that is read has no more. It may have been left behind, and what it lacks may have
/// been trimmed: then no other one will ever return it.
Result<std::optional<Record>> FailoverReader::look_around() {
  const Nanoseconds now = clock_->now();
  if (replicas_.size() == 1 || now - looked_around_ < kLookAroundEvery) {
    return std::optional<Record>{};
  }
  looked_around_ = now;
  place_ = replicas_[current_].reader->place();
  const Epoch here = replicas_[current_].reader->epoch();
  std::optional<Error> trimmed;
  std::optional<Error> other_log;
  bool has_more = false;  // one of which it is not known yet that it is committed
  for (std::size_t count = 1; count < replicas_.size(); ++count) {
    const std::size_t index = (current_ + count) % replicas_.size();
    Replica& replica = replicas_[index];
    const auto& failure = replica.failure;
    if (failure &&
        now - failure->at < std::max(kTryAgainAfter, Backoff::kTimesWhatATryTook * failure->took)) {
      has_more = has_more || !(failure->trimmed || failure->other_log);  // it may have
      continue;
    }
    auto record = try_next(replica);
    const bool undecided = replica.reader && replica.reader->undecided();
    // Not where one of a later epoch is read, which has what was returned.
    const bool decides = !undecided || replica.reader->epoch() > here;
    if (decides && (replica.says_replaced() || (record.ok() && *record))) {
      take(index);
      return undecided ? read_later(record.error()) : record;
    }
    if (record.ok()) has_more = has_more || replica.reader->holds_back();
    if (replica.failure && replica.failure->trimmed) trimmed = replica.failure->error;
    if (replica.failure && replica.failure->other_log) other_log = different_logs(replica);
    replica.reader.reset();
  }
  if (other_log && !options_.log_id) return *other_log;
  if (!trimmed) return std::optional<Record>{};
  // It may have come here meanwhile; what is wrong here is for the next call.
  auto record = replicas_[current_].reader->next();
  if (!record.ok()) return std::optional<Record>{};
  if (*record) return record;
  // A trim by a writer that was fenced can have reached a replica, and counts nowhere else.
  if (has_more || replicas_[current_].reader->holds_back()) return std::optional<Record>{};
  return Error{trimmed->code, fmt::format("{}; {} does not have it", trimmed->message,
                                          replicas_[current_].peer->name())};
}

/// Keeps what it had come to.
void FailoverReader::leave(Replica& replica) {
  left_ = replica.reader->epoch();
  if (replica.reader->undecided()) not_before_ = replica.reader->epoch();
  place_ = replica.reader->place();
  committed_ = std::max(committed_, replica.reader->committed());
  replica.reader.reset();
}

/// From now on this one is read, which was entered at the place.
void FailoverReader::take(std::size_t index) {
  for (std::size_t other = 0; other < replicas_.size(); ++other) {
    if (other == index || !replicas_[other].reader) continue;
    committed_ = std::max(committed_, replicas_[other].reader->committed());
    replicas_[other].reader.reset();
  }
  current_ = index;
}

void FailoverReader::note_failure(Replica& replica, Error why, bool trimmed, Nanoseconds since) {
  const Nanoseconds now = clock_->now();
  replica.failure = Failure{std::move(why), trimmed, false, now, now - since};
  replica.reader.reset();
  replica.bytes.reset();
}

Error FailoverReader::none_readable() const {
  if (replicas_.size() == 1) return replicas_.front().failure->error;
  const auto rank = [](const Replica& replica) {
    const Failure& failure = *replica.failure;
    return std::find(kByHope.begin(), kByHope.end(), failure.error.code) - kByHope.begin();
  };
  const auto best = std::min_element(
      replicas_.begin(), replicas_.end(),
      [&](const Replica& one, const Replica& other) { return rank(one) < rank(other); });
  Error error{best->failure->error.code, "no replica can be read"};
  for (const Replica& replica : replicas_) {
    error.message += fmt::format("; {}: {}", replica.peer->name(), replica.failure->error.message);
  }
  return error;
}

}  // namespace perdure::log
