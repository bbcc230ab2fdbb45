// ReplicatedLog: the writer. Encodes records into staging, drives its replicas, and knows what is
// committed. include/perdure/log.h is its public face; here peers are passed in, so that tests
// can run it on the emulated fabric. docs/log-protocol.md is what it follows.
#pragma once

#include <perdure/log.h>

#include "client/remote_bytes.h"
#include "core/clock.h"
#include "log/log_scan.h"
#include "log/recovery.h"
#include "log/replica.h"
#include "log/replica_set.h"
#include "log/staging.h"

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace perdure::log {

/// What is spent at most on asking who has fenced a writer, by calls without a deadline.
inline constexpr Nanoseconds kAskWithin = std::chrono::seconds(1);

struct WriterOptions {
  std::string pool;
  std::size_t quorum = 0;         // 0: the log's; of a new log a majority
  std::optional<LogShape> shape;  // nothing: what is there; for a new log Singleton, which
                                  // costs what Compound costs without its second item
  std::optional<Primary> primary;
  Level level = Level::Durable;
  std::uint64_t record_bytes_max = kPayloadBytesMax;
  std::size_t batches_in_flight = 4;
  bool measure_costs = true;
  bool take_over = false;
  bool accept_loss = false;
  bool create = true;    // a log that is not there yet
  bool partial = false;  // the peers may be fewer than the log has: to change its replicas
  std::string writer_name;
  std::uint64_t writer = 0;  // 0: drawn at random
  Nanoseconds replica_timeout = std::chrono::seconds(5);
  Nanoseconds reconnect{0};  // 0: never
  Nanoseconds spin = std::chrono::microseconds(200);
  /// Lets time pass while no replica has a connection to wait for. Nothing: the thread sleeps. An
  /// emulated world goes on meanwhile.
  std::function<void(Nanoseconds)> pause;
  /// Opening reads all replicas at once, all but one of them by threads of their own, which end
  /// before it does; and to connect to one that comes back another one waits. Not for peers of an
  /// emulated world: that has one thread. Others are called by several.
  bool threads = false;
};

/// Threads: one caller at a time.
class ReplicatedLog {
 public:
  /// `clock` must outlive it. See Log::open for the errors.
  static Result<std::unique_ptr<ReplicatedLog>> open(
      std::vector<std::unique_ptr<client::Peer>> peers, const WriterOptions& options,
      const Clock& clock);

  Result<Ticket> append(std::span<const std::byte> record);  // inline, below
  /// Whether append of so many bytes would wait for replicas to take what is staged, or, with the
  /// quorum lost, for those that it asks who took over.
  bool append_would_block(std::uint64_t payload_bytes);
  Result<Ticket> append_pieces(std::span<const std::span<const std::byte>> pieces);
  Result<std::span<std::byte>> claim(std::uint64_t bytes);
  Result<Ticket> append_claimed(std::uint64_t bytes);
  Result<void> wait(const Ticket& ticket, Level level, Nanoseconds timeout);
  /// Does not wait, unless `timeout` leaves time to bring back a replica that can be reached, or to
  /// ask who took over.
  Result<void> poll(Nanoseconds timeout = Nanoseconds{0});
  Result<void> trim(Lsn lsn);
  std::vector<RepairReport> repair(Nanoseconds timeout = std::chrono::hours(24));
  std::vector<RepairReport> take_repairs() { return std::exchange(repairs_, {}); }
  Result<void> close(Nanoseconds timeout);
  /// Ends its sessions, and waits at most `timeout` until the peers say so: whoever opens the log
  /// next finds no writer there. Afterwards only destruction, which leaves that to the peers to
  /// notice, as after a crash.
  void end_sessions(Nanoseconds timeout);
  /// Whose tickets these are: random, of this opening.
  std::uint64_t writer() const { return writer_; }
  std::uint64_t log_id() const { return anchor_.log_id; }
  LogStatus status() const;

  // One change at a time: see Log.
  Result<void> add_replica(std::unique_ptr<client::Peer> peer, std::size_t quorum);
  Result<void> remove_replica(const std::string& which, std::size_t quorum);
  Result<void> replace_replica(const std::string& which, std::unique_ptr<client::Peer> peer);
  Result<void> change_quorum(std::size_t quorum);
  const Configuration& configuration() const { return configuration_; }
  /// How far bringing back a replica has come, in the order in which the peers were named.
  const BroughtSoFar& brought_so_far(std::size_t replica) const {
    return replicas_[replica].brought_so_far();
  }

  /// Whether calls that wait bring back replicas that are down.
  bool may_come_back() const { return options_.reconnect > Nanoseconds{0} && !lost_; }
  /// Whether everything before the ticket's end is at `level`, as far as was learned by now. Of a
  /// log that was opened for less, Durable and Committed are that less.
  bool reached(const Ticket& ticket, Level level) const;
  /// Whether records ever come so far.
  bool can_reach(Level level) const {
    return level <= options_.level || options_.level >= Level::Durable;
  }
  Lsn committed() const { return committed_; }

 private:
  using Surveys = std::vector<std::optional<Survey>>;  // by replica
  /// What opening has found, by replica.
  struct Opening {
    std::vector<std::unique_ptr<client::RemoteBytes>> bytes;
    std::vector<std::optional<LogStart>> starts;
    Surveys surveys;                       // of who has a session: nobody else writes there
    std::optional<std::uint64_t> log_id;   // nothing: there is no log
    LogShape shape = LogShape::Singleton;  // its own, or that of a new one
    Configuration configuration;           // the newest that is known to be committed
    std::vector<std::string> differences;  // from the history that was chosen, in words
  };
  /// The history that was chosen.
  struct History {
    std::size_t at = 0;
    ScanReport report;
    Configurations in_play;
    Lsn claimed;
    std::optional<std::string> accepted_loss;  // what is given up, in words
  };

  ReplicatedLog(const WriterOptions& options, const Clock& clock);

  // Opening, in the order of work.
  Result<void> begin();
  Result<void> ask_pools();
  Result<void> look(Opening& opening);
  Result<bool> find_log(Opening& opening);
  void find_unfit(const Opening& opening);
  Result<void> check_begun(const Opening& opening) const;
  Result<void> check_named(Opening& opening);
  Result<void> check_named_of(const Configuration& stated, const Configurations& in_play) const;
  bool states_are_enough(const Configuration& stated, const Opening& opening) const;
  Result<void> check_reachable_of(const Configurations& in_play);
  std::string named_wrongly(const Configurations& any_of) const;
  std::string named_wrongly(const Configuration& configuration) const;
  Result<void> open_sessions(const Opening& opening);
  Result<void> require_uncreated(Opening& opening);
  std::vector<std::optional<Result<Survey>>> survey_those(
      const Opening& opening, const std::function<bool(std::size_t)>& which) const;
  void survey_all(Opening& opening);
  Result<History> choose_history(const Opening& opening);
  Result<History> accept_history(const Opening& opening, const std::vector<Candidate>& candidates,
                                 const Choice& choice);
  std::string losses_of(const Surveys& surveys) const;
  Error may_be_lost(const Choice& choice, std::string_view losses) const;
  std::vector<Candidate> candidates_of(const Opening& opening, const Surveys& surveys) const;
  Statements statements_of(const Opening& opening, const Surveys& surveys,
                           std::optional<std::size_t> history) const;
  static Configurations in_play_of(const Configuration& known, const Surveys& surveys,
                                   std::optional<std::size_t> history);
  std::size_t reachable_of(const Configuration& configuration) const;
  std::size_t fit_of(const Configuration& configuration) const;
  Result<void> require_all_read(const Opening& opening, const Configurations& in_play);
  Result<void> accept_head(const Opening& opening, History& history, Lsn head);
  Result<void> choose_head(Opening& opening, History& history);
  Result<void> adopt(Opening& opening, const History& history);
  template <typename Needs>
  const Configuration* lacking_of(const Configurations& in_play, Needs needs) const;
  Result<void> require_votes_kept(const Opening& opening, const Configurations& in_play);
  Result<void> adopt_what_is_left(Opening& opening, const History& history, const Target& target);
  void correct_repairs();
  void note_differences(Opening& opening, const History& history) const;
  void adopt_on_others(Opening& opening, const History& history, const Target& target);
  std::optional<Error> adopt_on(std::size_t index, std::size_t from, Opening& opening,
                                const History& history, const Target& target);
  void warn_of_new_log(const Opening& opening) const;
  Result<void> start_log(Opening& opening);
  void begin_on(std::size_t index, const Opening& opening, const Target& target);
  Result<void> begin_epoch(const Configurations& in_play);
  Error too_few(std::string_view doing, const Configuration& configuration);
  Error too_few_of(const Configurations& in_play, const Configuration& lacking);

  // Running.
  [[gnu::noinline]] Result<Ticket> append_sent(std::span<const std::byte> record,
                                               std::uint64_t bytes);
  Result<Ticket> append_gathered(std::span<const std::byte> record, std::uint64_t bytes);
  void encode_plain(std::span<const std::byte> record, std::byte* to);
  Ticket note_plain(Lsn at, std::uint64_t bytes);
  Result<Ticket> append_any(std::span<const std::byte> record);
  template <typename Encode>
  Result<Ticket> append_record(RecordType type, std::uint64_t payload_bytes, const Encode& encode);
  Result<Ticket> append_configuration(std::span<const std::byte> configuration);
  Result<std::byte*> place_for(RecordType type, std::uint64_t payload_bytes);
  template <typename Encode>
  Ticket put_record(RecordType type, std::uint64_t payload_bytes, std::byte* to,
                    const Encode& encode);
  Result<std::byte*> make_room(std::uint64_t bytes);
  RecordHeader header_of_next(RecordType type, std::uint64_t payload_bytes) const {
    return {0,         type,        static_cast<std::uint32_t>(payload_bytes),
            tail_,     next_index_, epoch_,
            last_crc_, committed_};
  }
  Lsn plain_from_here() const;
  /// The next append does.
  void look_at_everything() { plain_until_ = gather_until_ = Lsn{}; }
  /// Whether a record, of so many bytes with its header, is to be appended plainly.
  bool is_plain(std::uint64_t payload_bytes, std::uint64_t bytes) const {
    return payload_bytes - 1 < plain_bytes_max_ && tail_.value + bytes <= plain_until_.value;
  }
  /// Whether the next record fits before the end of the ring, and into what is free of it.
  bool fits_here(std::uint64_t needed, std::uint64_t kept_free) const {
    const std::uint64_t ring = anchor_.ring_bytes;
    return needed <= ring - tail_.value % ring &&
           tail_.value + needed + kept_free <= head_.lsn.value + ring && below_last(needed);
  }
  /// What a pad takes of the ring where a record does not fit before its end.
  std::uint64_t padding_before(std::uint64_t needed) const {
    const std::uint64_t room = anchor_.ring_bytes - tail_.value % anchor_.ring_bytes;
    return needed <= room ? 0 : room;
  }
  bool ring_is_full(std::uint64_t needed, std::uint64_t kept_free) const {
    return tail_.value + padding_before(needed) + needed + kept_free >
           head_.lsn.value + anchor_.ring_bytes;
  }
  /// Whether the record behind one of `needed` bytes still has an LSN.
  bool below_last(std::uint64_t needed) const {
    return tail_.value + needed + kRecordHeaderBytes <= kLsnMax;
  }
  Result<void> pad_to_lap(std::uint64_t needed, std::uint64_t kept_free);
  Result<void> drain(Replica& replica, const std::optional<Deadline>& until = std::nullopt);
  Result<Boundary> boundary_at(Lsn lsn, const std::optional<Deadline>& until = std::nullopt);
  Result<Boundary> known_head(Lsn lsn, const Deadline& deadline);
  Result<void> write_head(const Boundary& head, const std::optional<Deadline>& until);
  void move_head(const Boundary& head);
  bool gathers() const;
  void offer();
  void offer_now();
  void offer_to(Replica& replica, bool look);
  /// What it sends is noted by its caller behind it, so nothing may be thrown past that.
  bool send_at_once(Lsn at, std::byte* data, std::uint64_t bytes) noexcept;
  bool drifted() const;
  void pump(const std::optional<Deadline>& until = std::nullopt);
  void look_at_connections(Nanoseconds sleep);
  void note_committed();
  void update_committed();
  void follow_rule(const Configurations& in_play);
  /// Whether enough members are up, by every configuration that is in play.
  bool quorum_stands() const {
    return rule_.enough([this](std::size_t index) { return replicas_[index].sending(); });
  }
  Error quorum_lost(const Deadline& deadline);
  Error no_quorum(Nanoseconds time = kAskWithin);
  /// Whether that asks.
  bool asks_who_took_over() const { return !ask_again_at_ || clock_.now() >= *ask_again_at_; }
  Error quorum_lost_words() const;
  /// Of all replicas together.
  std::uint64_t answered() const {
    std::uint64_t count = 0;
    for (const Replica& replica : replicas_) count += replica.answered();
    return count;
  }
  std::size_t up_count() const {
    std::size_t count = 0;
    for (const Replica& replica : replicas_) {
      count += replica.sending() && is_member(replica) ? 1 : 0;
    }
    return count;
  }

  // Repair and change.
  RepairReport bring_back(Replica& replica, const Deadline& deadline);
  void reconnect(Nanoseconds now, const Deadline& deadline);
  bool is_member(const Replica& replica) const {
    return replica.pool() ? configuration_.has(*replica.pool()) : has_unseen_member();
  }
  bool has_unseen_member() const;
  bool is_due(Replica& replica, Nanoseconds now, bool urgent, const Deadline& deadline);
  KnownReplicas known_beside(const Replica& replica) const;
  ConnectOptions connect_options(const Replica& replica) const;
  Result<Connected> connection_to(Replica& replica, const Deadline& deadline);
  Result<void> repair_replica(Replica& replica, RepairReport& report, const Deadline& deadline);
  Result<void> bring_up(Replica& replica, ByteSource& bytes, Survey found, RepairReport& report,
                        const Deadline& deadline);
  Result<void> go_on_from_staging(Replica& replica, ByteSource& bytes, const Survey& found);
  Replica* choose_source(const std::vector<const Replica*>& others, const Deadline& deadline);
  Target target_here(const Boundary& to) const;
  Result<void> admit(std::unique_ptr<client::Peer> peer, Configuration next,
                     std::optional<std::size_t> instead_of);
  Result<Survey> survey_newcomer(Replica& replica, ByteSource& bytes);
  bool is_own(const Survey& found) const;
  Result<void> bring_newcomer(Replica& replica);
  static Error too_few_up(const Configuration& next);
  static void leave_incomplete(Replica& replica);
  void spread_configuration();
  Result<void> change(Configuration next);
  Result<std::size_t> find_member(const std::string& which) const;
  Configuration next_configuration(std::size_t members, std::size_t quorum) const;

  ReplicaOptions replica_options() const;
  control::SessionRequest session_request() const;
  Boundary tail_boundary() const { return {tail_, next_index_, last_epoch_, last_crc_}; }

  const WriterOptions options_;
  const Clock& clock_;
  Nanoseconds last_look_{0};
  std::size_t first_to_reconnect_ = 0;
  std::optional<Nanoseconds> ask_again_at_;  // who has fenced this writer; not set: at once
  Nanoseconds last_offer_look_{0};
  Lsn committed_at_look_;  // at the last look
  Staging staging_;        // before the replicas: what is registered goes after the registration
  std::vector<Replica> replicas_;
  Configuration configuration_;
  std::size_t quorum_ = 0;  // of the configuration
  CommitRule rule_;
  Anchor anchor_;
  std::uint64_t payload_max_ = 0;  // of one record
  Epoch epoch_;
  std::string newest_peer_;  // on which it was found when this opened
  Lsn begin_ = kFirstLsn;    // of the epoch
  std::uint64_t writer_ = 0;
  bool writer_seen_ = false;  // another one, when opening looked
  std::string had_writers_;   // pools that were written or fenced before this opening, in words
  Boundary head_;
  static constexpr std::size_t kTriedHeadsMax = 16;
  std::vector<Boundary> tried_heads_;  // of trims, beyond head_; the latest last
  BoundaryIndex boundaries_;
  Lsn tail_ = kFirstLsn;
  /// Data records that end by here need no look at anything: see plain_from_here. Lowered, to 0,
  /// whenever a replica goes down, the head moves or the rule changes.
  Lsn plain_until_;
  std::uint64_t plain_bytes_max_ = 0;  // and have no longer payload
  /// While the tail is below, no replica sends: each has an answer due. Lowered, to 0, when one may
  /// have come.
  Lsn gather_until_;
  Lsn committed_ = kFirstLsn;
  Lsn noted_ = kFirstLsn;             // up to which the committed words were last brought
  Lsn durable_anywhere_ = kFirstLsn;  // on at least one replica
  std::uint64_t next_index_ = 0;
  std::uint32_t last_crc_ = 0;
  Epoch last_epoch_;  // of the last record
  struct Claim {
    std::span<std::byte> room;
    Lsn at;  // the tail then
  };
  Claim claimed_;                      // for append_claimed
  std::vector<Lsn> durable_scratch_;   // update_committed
  std::optional<Error> lost_;          // why the quorum is lost, once asked
  std::string accepted_loss_;          // what opening gave up
  std::vector<RepairReport> repairs_;  // that nobody has asked for yet
};

/// What is behind a payload that ends in the midst of a word is zero. Before the payload is there.
inline void clear_last_word(std::uint64_t payload_bytes, std::byte* to) {
  if (payload_bytes % kRecordAlignment == 0) return;
  store(to + record_bytes(payload_bytes) - sizeof(std::uint64_t), std::uint64_t{0});
}

/// A plain record, one that plain_until_ and plain_bytes_max_ allow, where it is staged next. The
/// one before was of this epoch.
[[gnu::always_inline]] inline void ReplicatedLog::encode_plain(std::span<const std::byte> record,
                                                               std::byte* to) {
  clear_last_word(record.size(), to);
  last_crc_ = encode_short_record(header_of_next(RecordType::Data, record.size()), anchor_.seed,
                                  record, to);
}

[[gnu::always_inline]] inline Ticket ReplicatedLog::note_plain(Lsn at, std::uint64_t bytes) {
  staging_.commit_in_room(at, bytes);
  tail_ = Lsn{at.value + bytes};
  return {at, tail_, next_index_++, writer_};
}

/// A plain record that waits for what follows.
[[gnu::always_inline]] inline Result<Ticket> ReplicatedLog::append_gathered(
    std::span<const std::byte> record, std::uint64_t bytes) {
  encode_plain(record, staging_.place());
  return note_plain(tail_, bytes);
}

/// The commonest appends go straight through: what gathers in one function, Log::append, and what
/// goes out at once in that and append_sent.
[[gnu::always_inline]] inline Result<Ticket> ReplicatedLog::append(
    std::span<const std::byte> record) {
  const std::uint64_t bytes = record_bytes(record.size());
  if (!is_plain(record.size(), bytes)) [[unlikely]]
    return append_any(record);
  if (tail_.value + bytes < gather_until_.value) return append_gathered(record, bytes);
  return append_sent(record, bytes);
}

}  // namespace perdure::log
