// The data path of the writer: append, wait, and what they need. Opening is in
// replicated_log_open.cc, who may be named in replicated_log_naming.cc, trimming in
// replicated_log_trim.cc, repair and changes of the replicas in replicated_log_repair.cc.
#include "log/replicated_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/bytes.h"
#include "core/try.h"
#include "log/patience.h"

namespace perdure::log {
namespace {

constexpr Nanoseconds kSleepSlice = std::chrono::milliseconds(10);
constexpr std::uint64_t kSpinRoundsPerLook = 64;
// A look at the connections, for whoever polls now and then: as often as that at most.
constexpr Nanoseconds kLookEvery = std::chrono::milliseconds(1);
/// Reading the clock costs as much as an append: so many of the size of the last one share it,
/// unless more waits than a batch.
constexpr std::uint64_t kAppendsPerClock = 4;
// Appends that follow one another more closely share a look at the completion queues.
constexpr Nanoseconds kOfferLookEvery = std::chrono::microseconds(5);
// For how long append and trim take the answer to who has fenced this writer as it was, while no
// replica comes back.
constexpr Nanoseconds kAskEvery = std::chrono::seconds(1);
// The committed word follows at least that often: what is lost before it is always noticed, and
// what is behind it an opener finds (log_scan.cc looks further ahead).
constexpr std::uint64_t kNoteEvery = 1024 * 1024;

/// Where the clock is read next when the log ends at `end` with a record of so many bytes.
Lsn clock_from(Lsn end, std::uint64_t bytes) { return {end.value + kAppendsPerClock * bytes}; }

}  // namespace

/// Whether the record that was appended gathers with the next one: each replica has an answer due.
inline bool ReplicatedLog::gathers() const { return tail_ < gather_until_; }

/// After an append: sends unless it is worth gathering more.
inline void ReplicatedLog::offer() {
  if (!gathers()) offer_now();
}

/// Sends unless it is worth gathering more. Polling costs a system call on some fabrics, so many
/// appends share one.
void ReplicatedLog::offer_now() {
  bool look = false;
  const bool due = std::any_of(replicas_.begin(), replicas_.end(),
                               [](const Replica& replica) { return replica.answer_due(); });
  if (due) {
    const Nanoseconds now = clock_.now();
    look = now - last_offer_look_ >= kOfferLookEvery;
    if (look) last_offer_look_ = now;
  }
  gather_until_ = Lsn{kLsnMax};
  for (Replica& replica : replicas_) offer_to(replica, look);
  gather_until_ = std::min(gather_until_, clock_from(tail_, staging_.last_bytes()));
  if (look) update_committed();
}

/// The same as offer_now for a plain record that is staged next. Mostly nothing is in flight, and
/// it is all that any replica lacks. False: it is not so everywhere, and offer_now does the rest.
[[gnu::always_inline]] inline bool ReplicatedLog::send_at_once(Lsn at, std::byte* data,
                                                               std::uint64_t bytes) noexcept {
  const Staging::Run record{at, data, bytes, Lsn{at.value + bytes}};
  bool all = true;
  for (Replica& replica : replicas_) {
    all = replica.takes_alone(at) && replica.send_alone(record, anchor_.ring_bytes) && all;
  }
  gather_until_ = std::min(Lsn{record.end.value + kGatherBytes}, clock_from(record.end, bytes));
  return all;
}

/// A plain record that goes out at once. What can be noted behind its post is.
Result<Ticket> ReplicatedLog::append_sent(std::span<const std::byte> record, std::uint64_t bytes) {
  const Lsn at = tail_;
  std::byte* const to = staging_.place();
  encode_plain(record, to);
  const bool gone = send_at_once(at, to, bytes);
  const Ticket ticket = note_plain(at, bytes);
  if (!gone) [[unlikely]]
    offer_now();
  return ticket;
}

void ReplicatedLog::offer_to(Replica& replica, bool look) {
  replica.offer(staging_, tail_, anchor_.ring_bytes, look);
  if (!replica.sending()) plain_until_ = Lsn{};
  gather_until_ = std::min(gather_until_, replica.gathers_until());
}

/// How far data records are plain from here on: nothing has to be looked at but their end.
Lsn ReplicatedLog::plain_from_here() const {
  if (lost_ || !quorum_stands()) return Lsn{};
  const std::uint64_t ring = anchor_.ring_bytes;
  const std::uint64_t lap_end = tail_.value - tail_.value % ring + ring;
  return std::min({Lsn{tail_.value + staging_.room()},
                   Lsn{lap_end - kRecordHeaderBytes},             // next_place: right behind it
                   Lsn{head_.lsn.value + ring - kKeptFreeBytes},  // what is free of the ring
                   Lsn{kLsnMax - kRecordHeaderBytes},             // below_last
                   Lsn{committed_.value + kLagMax * kRecordAlignment},  // encode_short_record
                   boundaries_.keeps_nothing_up_to()});
}

/// Makes the next record, in the room that it was given. `encode` writes it and returns its
/// checksum.
template <typename Encode>
Ticket ReplicatedLog::put_record(RecordType type, std::uint64_t payload_bytes, std::byte* to,
                                 const Encode& encode) {
  const std::uint64_t bytes = record_bytes(payload_bytes);
  const Ticket ticket{tail_, Lsn{tail_.value + bytes}, next_index_, writer_};
  last_crc_ = encode(header_of_next(type, payload_bytes), to);
  last_epoch_ = epoch_;
  const Lsn next = next_place(ticket.end, anchor_.ring_bytes);
  staging_.commit(tail_, bytes, next);
  tail_ = next;
  if (type == RecordType::Data) ++next_index_;
  boundaries_.note(tail_boundary());
  return ticket;
}

Result<Ticket> ReplicatedLog::append_any(std::span<const std::byte> record) {
  return append_record(RecordType::Data, record.size(),
                       [&](const RecordHeader& header, std::byte* to) {
                         clear_last_word(record.size(), to);
                         return encode_record(header, anchor_.seed, record, to);
                       });
}

Result<Ticket> ReplicatedLog::append_pieces(std::span<const std::span<const std::byte>> pieces) {
  std::uint64_t bytes = 0;
  for (const auto piece : pieces) bytes += piece.size();
  return append_record(RecordType::Data, bytes, [&](const RecordHeader& header, std::byte* to) {
    clear_last_word(bytes, to);
    std::uint32_t crc = encode_record_header(header, anchor_.seed, to);
    std::byte* at = to + kRecordHeaderBytes;
    for (const auto piece : pieces) {
      crc = crc32c_copy(crc, at, piece);
      at += piece.size();
    }
    store(to, crc);
    return crc;
  });
}

Result<std::span<std::byte>> ReplicatedLog::claim(std::uint64_t bytes) {
  claimed_ = {};
  PERDURE_TRY(to, place_for(RecordType::Data, bytes));
  claimed_ = {{to + kRecordHeaderBytes, static_cast<std::size_t>(bytes)}, tail_};
  return claimed_.room;
}

Result<Ticket> ReplicatedLog::append_claimed(std::uint64_t bytes) {
  const Claim claimed = std::exchange(claimed_, {});
  if (bytes == 0 || bytes > claimed.room.size()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} bytes are claimed; a record of {} was asked for",
                             claimed.room.size(), bytes)};
  }
  PERDURE_TRY(to, place_for(RecordType::Data, claimed.room.size()));
  if (tail_ != claimed.at || to + kRecordHeaderBytes != claimed.room.data()) {
    return Error{ErrorCode::InvalidArgument, "another call came between claim and append_claimed"};
  }
  const auto encode = [&](const RecordHeader& header, std::byte* at) {
    const std::uint64_t padding = record_bytes(bytes) - kRecordHeaderBytes - bytes;
    std::memset(claimed.room.data() + bytes, 0, padding);
    const std::uint32_t crc =
        crc32c(claimed.room.first(bytes), encode_record_header(header, anchor_.seed, at));
    store(at, crc);
    return crc;
  };
  const Ticket ticket = put_record(RecordType::Data, bytes, to, encode);
  plain_until_ = plain_from_here();
  offer();
  return ticket;
}

/// Room for the next record, wherever it falls.
Result<std::byte*> ReplicatedLog::place_for(RecordType type, std::uint64_t payload_bytes) {
  const bool data = type == RecordType::Data;
  if (data && (payload_bytes == 0 || payload_bytes > payload_max_)) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("a record of {} bytes; this log takes 1 to {}", payload_bytes, payload_max_)};
  }
  if (!quorum_stands() || lost_) return no_quorum();
  const std::uint64_t bytes = record_bytes(payload_bytes);
  const std::uint64_t kept_free = data ? kKeptFreeBytes : 0;
  if (!fits_here(bytes, kept_free)) PERDURE_TRY_VOID(pad_to_lap(bytes, kept_free));
  return make_room(bytes);
}

template <typename Encode>
Result<Ticket> ReplicatedLog::append_record(RecordType type, std::uint64_t payload_bytes,
                                            const Encode& encode) {
  PERDURE_TRY(to, place_for(type, payload_bytes));
  const Ticket ticket = put_record(type, payload_bytes, to, encode);
  if (type == RecordType::Data) plain_until_ = plain_from_here();
  offer();
  return ticket;
}

Result<Ticket> ReplicatedLog::append_configuration(std::span<const std::byte> configuration) {
  return append_record(RecordType::Configuration, configuration.size(),
                       [&](const RecordHeader& header, std::byte* to) {
                         clear_last_word(configuration.size(), to);
                         return encode_record(header, anchor_.seed, configuration, to);
                       });
}

/// Makes the next record begin where it fits before the end of the ring.
Result<void> ReplicatedLog::pad_to_lap(std::uint64_t needed, std::uint64_t kept_free) {
  const std::uint64_t skipped = padding_before(needed);
  if (!below_last(skipped + needed)) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("the log has come to LSN {}, and they end at {}: go on in a new log",
                             tail_.value, kLsnMax)};
  }
  if (ring_is_full(needed, kept_free)) {
    return Error{ErrorCode::LogFull,
                 fmt::format("the log's ring of {} bytes is full: {} bytes are kept, {} more do "
                             "not fit; trim it",
                             anchor_.ring_bytes, tail_.value - head_.lsn.value, needed)};
  }
  if (skipped == 0) return {};
  // Only the pad's header is sent: its payload is never read.
  PERDURE_TRY(to, make_room(kRecordHeaderBytes));
  last_crc_ = encode_record(header_of_next(RecordType::Pad, skipped - kRecordHeaderBytes),
                            anchor_.seed, {}, to);
  last_epoch_ = epoch_;
  const Lsn next{tail_.value + skipped};
  staging_.commit(tail_, kRecordHeaderBytes, next);
  tail_ = next;
  return {};
}

bool ReplicatedLog::append_would_block(std::uint64_t payload_bytes) {
  const std::uint64_t bytes = record_bytes(payload_bytes);
  if (is_plain(payload_bytes, bytes)) return false;
  // What is refused is so at once, unless it asks before.
  if (payload_bytes == 0 || payload_bytes > payload_max_ || lost_) return false;
  if (!quorum_stands()) return asks_who_took_over();
  // Room for a pad, too: mostly there is.
  if (staging_.room_for(bytes + kRecordHeaderBytes) != nullptr) return false;
  if (!below_last(padding_before(bytes) + bytes) || ring_is_full(bytes, kKeptFreeBytes)) {
    return false;
  }
  return padding_before(bytes) == 0 ? !staging_.has_room(bytes, 1)
                                    : !staging_.has_room(bytes + kRecordHeaderBytes, 2);
}

/// Room in staging, after waiting for replicas to take what is there, for as long as they get on.
Result<std::byte*> ReplicatedLog::make_room(std::uint64_t bytes) {
  if (std::byte* room = staging_.reserve(bytes)) return room;
  Patience patience(clock_, 2 * options_.replica_timeout);
  while (true) {
    pump();
    if (std::byte* room = staging_.reserve(bytes)) return room;
    if (!quorum_stands()) return no_quorum();
    if (patience.over(answered())) {
      return Error{ErrorCode::TimedOut, "replicas take records too slowly; nothing was appended"};
    }
  }
}

/// `until`: see Replica::pump.
void ReplicatedLog::pump(const std::optional<Deadline>& until) {
  gather_until_ = Lsn{};
  for (Replica& replica : replicas_) replica.pump(staging_, tail_, anchor_.ring_bytes, until);
  update_committed();
}

/// Notices connections that are gone and replicas that are silent, however seldom it is called:
/// the queues alone show the former only to those who poll them without pause.
void ReplicatedLog::look_at_connections(Nanoseconds sleep) {
  look_at_everything();
  std::array<fabric::Endpoint*, 64> endpoints;
  std::size_t count = 0;
  for (Replica& replica : replicas_) {
    replica.check_timeout();
    if (replica.session().endpoint() != nullptr && count < endpoints.size()) {
      endpoints[count++] = replica.session().endpoint();
    }
  }
  if (count == 0 && options_.pause) return options_.pause(sleep);
  fabric::wait_any(std::span(endpoints).first(count), sleep);
}

void ReplicatedLog::update_committed() {
  Lsn everywhere = tail_;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    durable_scratch_[index] = replicas_[index].durable_below();
    if (replicas_[index].sending()) {
      everywhere = std::min(everywhere, durable_scratch_[index]);
    } else {
      plain_until_ = Lsn{};
    }
    durable_anywhere_ = std::max(durable_anywhere_, durable_scratch_[index]);
  }
  committed_ = std::max(committed_, rule_.committed(durable_scratch_));
  if (committed_.value - noted_.value >= kNoteEvery) {
    noted_ = committed_;
    note_committed();
  }
  // Kept until it is committed, so that a replica that comes back can still be given it.
  staging_.release(std::min(everywhere, committed_));
}

bool ReplicatedLog::drifted() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](const Replica& replica) { return replica.session().drifted(); });
}

bool ReplicatedLog::reached(const Ticket& ticket, Level level) const {
  return ticket.end <= (level == Level::Committed ? committed_ : durable_anywhere_);
}

Result<void> ReplicatedLog::wait(const Ticket& ticket, Level level, Nanoseconds timeout) {
  if (!can_reach(level)) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("this log was opened for '{}': its peers' memory does not survive a "
                             "power failure",
                             to_string(options_.level))};
  }
  if (reached(ticket, level)) return {};
  pump();
  if (reached(ticket, level)) return {};
  // The clock is first read when the answer has not come at once, or a connection has drifted.
  std::optional<Nanoseconds> begun;
  std::optional<Deadline> until;
  if (drifted()) {
    begun = clock_.now();
    until.emplace(clock_, timeout);
  }
  bool sleep = options_.spin == Nanoseconds{0};
  for (std::uint64_t round = 1;; ++round) {
    pump(until);
    if (reached(ticket, level)) return {};
    const bool lost = level == Level::Committed ? !quorum_stands() : up_count() == 0;
    if (!sleep && !lost && round % kSpinRoundsPerLook != 0) continue;
    const Nanoseconds now = clock_.now();
    if (!begun) begun = now;
    const Nanoseconds left = std::max(Nanoseconds{0}, timeout - (now - *begun));
    if (lost && (!may_come_back() || left == Nanoseconds{0})) {
      return quorum_lost(Deadline(clock_, std::min(left, options_.replica_timeout)));
    }
    if (left == Nanoseconds{0}) {
      return Error{ErrorCode::TimedOut,
                   fmt::format("record {} is not {} yet; it may still get there", ticket.index,
                               to_string(level))};
    }
    sleep = sleep || now - *begun >= options_.spin;
    reconnect(now, Deadline(clock_, left));
    if (!sleep) continue;
    const Nanoseconds spent = clock_.now() - now;  // on bringing replicas back
    look_at_connections(std::min(kSleepSlice, left - std::min(left, spent)));
  }
}

Result<void> ReplicatedLog::poll(Nanoseconds timeout) {
  std::optional<Deadline> until;
  if (timeout > Nanoseconds{0}) until.emplace(clock_, timeout);
  pump(until);
  const Nanoseconds now = clock_.now();
  const bool look = now - last_look_ >= kLookEvery;
  if (look) {
    last_look_ = now;
    look_at_connections(Nanoseconds{0});
  }
  if (until) reconnect(now, *until);
  if (look) {
    pump();
    // Readers wait for it; but only where no record comes that says it anyway.
    if (committed_at_look_ == committed_) note_committed();
    committed_at_look_ = committed_;
  }
  if (lost_) return *lost_;
  if (quorum_stands()) return {};
  return until ? no_quorum(until->left()) : quorum_lost_words();
}

void ReplicatedLog::note_committed() {
  for (Replica& replica : replicas_) replica.note_committed(committed_);
}

/// Waits until every replica that is up has everything, and knows what is committed.
Result<void> ReplicatedLog::close(Nanoseconds timeout) {
  const Deadline deadline(clock_, timeout);
  while (true) {
    pump();
    bool behind = false;
    for (const Replica& replica : replicas_) {
      behind = behind || (replica.sending() && replica.durable_below() < tail_);
    }
    if (!behind || deadline.passed()) break;
    look_at_connections(std::min(kLookEvery, deadline.left()));
  }
  note_committed();
  const auto owed = [&] {
    return std::any_of(replicas_.begin(), replicas_.end(), [&](const Replica& replica) {
      return replica.answer_due() || !replica.was_told(committed_);
    });
  };
  while (owed() && !deadline.passed()) {
    note_committed();  // of a replica that had an earlier word in flight
    pump();
    look_at_connections(std::min(kLookEvery, deadline.left()));
  }
  std::string words;
  for (const Replica& replica : replicas_) {
    if (!is_member(replica) || replica.durable_below() >= tail_) continue;
    words += fmt::format("; {} has it up to {}{}", replica.peer().name(),
                         replica.durable_below().value, replica.sending() ? "" : " and is down");
  }
  for (const Replica& replica : replicas_) {
    if (!is_member(replica) || replica.was_told(committed_)) continue;
    words += fmt::format("; {} may not know what is committed", replica.peer().name());
  }
  if (words.empty()) return {};
  return Error{ErrorCode::TimedOut, fmt::format("the log ends at {}, committed up to {}{}",
                                                tail_.value, committed_.value, words)};
}

void ReplicatedLog::end_sessions(Nanoseconds timeout) {
  const Deadline deadline(clock_, timeout);
  for (Replica& replica : replicas_) {
    if (Reconnection* begun = replica.connecting()) begun->stop();
  }
  auto to_ask = static_cast<Nanoseconds::rep>(replicas_.size());
  for (Replica& replica : replicas_) {
    // One that is silent takes none of the others' time.
    const Deadline share(clock_, deadline.left() / to_ask--);
    if (Reconnection* begun = replica.connecting(); begun != nullptr && begun->wait(share)) {
      if (auto unused = begun->take(); unused.ok()) unused->session.give_back(share);
    }
    replica.forget_connecting();
    replica.session().give_back(share);
  }
}

Error ReplicatedLog::quorum_lost_words() const {
  std::string reasons;
  for (const Replica& replica : replicas_) {
    if (replica.sending() || !is_member(replica)) continue;
    reasons += fmt::format("; {}: {}", replica.peer().name(),
                           replica.down_reason() ? replica.down_reason()->message : "not in use");
  }
  return Error{ErrorCode::QuorumLost,
               fmt::format("{} of {} replicas are up and {} are needed{}; repair them and call "
                           "repair",
                           up_count(), configuration_.members.size(), quorum_, reasons)};
}

/// Whether there is a member whose pool no replica is known to have: any that was never reached may
/// be it.
bool ReplicatedLog::has_unseen_member() const {
  std::vector<pmem::Uuid> seen;
  for (const Replica& replica : replicas_) {
    if (replica.pool()) seen.push_back(*replica.pool());
  }
  return count_members(configuration_, seen) < configuration_.members.size();
}

/// For calls without a deadline, and those that have `time`. Asking takes some where peers are
/// silent: the first call spends it, and the others fail at once until it is worth asking again.
Error ReplicatedLog::no_quorum(Nanoseconds time) {
  if (lost_) return *lost_;
  if (!asks_who_took_over() || time <= Nanoseconds{0}) return quorum_lost_words();
  Error why = quorum_lost(Deadline(clock_, std::min(time, kAskWithin)));
  ask_again_at_ = clock_.now() + kAskEvery;
  return why;
}

/// Says why, once: a newer writer (asked of the peers that still answer), or the reasons for which
/// replicas are down.
Error ReplicatedLog::quorum_lost(const Deadline& deadline) {
  if (lost_) return *lost_;
  look_at_everything();
  std::vector<Replica*> down;
  for (Replica& replica : replicas_) {
    if (!replica.sending() && is_member(replica)) down.push_back(&replica);
  }
  // Each gets its share of the time that is left: one that is silent leaves some for the others.
  for (std::size_t asked = 0; asked < down.size() && !deadline.passed(); ++asked) {
    Replica& replica = *down[asked];
    const auto sharers = static_cast<std::int64_t>(down.size() - asked);
    const Deadline share(clock_, deadline.left() / sharers);
    const auto pool = replica.peer().describe(options_.pool, share);
    if (!pool.ok() || pool->epoch <= epoch_) continue;
    // Another pool that has come to its place says nothing of this log.
    const auto uuid = parse_uuid(pool->uuid);
    if (!uuid || !configuration_.has(*uuid)) continue;
    lost_ =
        Error{ErrorCode::Fenced, fmt::format("writer '{}' took over with epoch {}; ours was {}",
                                             pool->writer_name, pool->epoch.value, epoch_.value)};
    return *lost_;
  }
  return quorum_lost_words();
}

/// Waits until nothing is in flight to a replica: for as long as it gets on, since what is staged
/// may take long over a slow link, and says nothing against it. Not beyond `until`, if given.
Result<void> ReplicatedLog::drain(Replica& replica, const std::optional<Deadline>& until) {
  Patience patience(clock_, 2 * options_.replica_timeout);
  const auto waits = [&] {
    return replica.sending() && (replica.durable_below() < tail_ || replica.answer_due());
  };
  const auto over = [&] { return patience.over(replica.answered()) || (until && until->passed()); };
  while (waits()) {
    pump();
    if (!over()) continue;
    pump();  // what came while this process had no processor is an answer, too
    if (waits() && over()) {
      return Error{ErrorCode::TimedOut, "no answer: what was sent is not known to be durable"};
    }
  }
  if (replica.sending()) return {};
  return replica.down_reason().value_or(Error{ErrorCode::Disconnected, "the replica went down"});
}

void ReplicatedLog::follow_rule(const Configurations& in_play) {
  look_at_everything();
  std::vector<pmem::Uuid> pools;
  for (const Replica& replica : replicas_) pools.push_back(replica.pool().value_or(pmem::Uuid{}));
  rule_ = CommitRule(in_play, pools);
  durable_scratch_.resize(replicas_.size());
}

LogStatus ReplicatedLog::status() const {
  LogStatus status;
  status.epoch = epoch_;
  status.head = head_.lsn;
  status.tail = tail_;
  status.committed = committed_;
  status.next_index = next_index_;
  status.ring_bytes = anchor_.ring_bytes;
  status.shape = anchor_.shape;
  status.quorum = quorum_;
  status.configuration = describe(configuration_);
  status.accepted_loss = accepted_loss_;
  for (const Replica& replica : replicas_) {
    if (!is_member(replica)) continue;
    ReplicaStatus each;
    each.peer = replica.peer().name();
    if (replica.pool()) each.pool_uuid = pmem::to_string(*replica.pool());
    each.up = replica.sending();
    if (replica.down_reason()) each.down_reason = replica.down_reason()->message;
    each.durable_below = replica.durable_below();
    if (replica.up()) {
      const client::DurableSession& session = replica.session();
      each.profile = session.connection().pool.profile;
      each.small_method = session.small_method().name;
      each.large_method = session.large_method().name;
      each.small_bytes_max = session.small_bytes_max();
      each.costs_measured = session.costs().measured;
      each.replans = session.replans();
      const persist::RequesterCounters counters = session.counters();
      each.requests = counters.requests;
      each.messages = counters.messages;
      each.posts = counters.posts;
    }
    status.replicas.push_back(std::move(each));
  }
  return status;
}

}  // namespace perdure::log
