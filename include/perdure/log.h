// The replicated log: append records, wait until they are durable on other machines, read them
// back after any crash.
//
//   auto log = perdure::Log::open({.peers = {"127.0.0.1:7470"}, .pool = "orders"});
//   auto ticket = log->append(bytes);
//   auto done = log->wait(*ticket, perdure::Level::Committed);
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/rnic.h>
#include <perdure/time_counts.h>
#include <perdure/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure {

struct LogOptions {
  /// Control plane addresses of the peers, "host:port". Every peer holds one replica.
  std::vector<std::string> peers;
  /// Name of the pool on every peer. Created beforehand, with `perdure pool create` for example.
  std::string pool;
  /// Replicas on which a record must be durable to be committed. It belongs to the log: asked for
  /// when one is created (0: a majority of the peers), and checked when it is opened (0: not).
  std::size_t quorum = 0;
  /// Create the log when no peer has it. All its peers must answer then.
  bool create = true;
  /// The peers may be fewer than the log has, as far as they can vote: to change its replicas.
  bool partial = false;
  /// How the bytes travel; shm on the same host only. Nothing: each peer's fastest that works.
  std::optional<Transport> transport;
  RnicOptions rnic;
  /// Only a log that is created asks for it. Nothing: what its peers' methods make cheaper.
  std::optional<LogShape> shape;
  /// Nothing: what is cheapest on each connection.
  std::optional<Primary> primary;
  /// Durable, or Visible, which accepts peers whose memory does not survive a power failure; then
  /// no record of this log is ever durable or committed: Log::reached says no, and waiting for that
  /// is Unsupported. Received is refused, with InvalidArgument: readers must find what it counts.
  /// Trimming, status, times and readers take what has this level for durable, and on the quorum
  /// for committed.
  Level level = Level::Durable;
  /// Records larger than this are refused. Staging takes two and a half times as much memory.
  std::uint64_t record_bytes_max = 16 * 1024 * 1024;
  /// Batches in flight to one replica. More helps long round trips; fewer coalesces more.
  std::size_t batches_in_flight = 4;
  /// Time each connection when it is made, and again when it has changed, and use the methods
  /// that are cheapest by that. Each takes some milliseconds. Off: by what such connections usually
  /// cost, so that every run uses the same methods.
  bool measure_costs = true;
  /// End the session of a writer that still has one (it is fenced), instead of answering Busy.
  bool take_over = false;
  /// Open although records that were once reported durable are damaged on every reachable replica:
  /// the log goes on without them, and LogStatus::accepted_loss says which. For as long as this log
  /// is open, add_replica and replace_replica also give up what a new pool holds of another log.
  bool accept_loss = false;
  /// Shown to others who want to write: program and host. Empty: host name and process id.
  std::string writer_name;
  /// A replica that does not answer for this long is marked down; the log goes on without it.
  std::chrono::milliseconds replica_timeout{5000};
  /// Bring back replicas that are down: first this long after the loss, after each failure twice as
  /// long, up to 16 times that. A thread connects to each; wait, and poll with a timeout, then copy
  /// what it lacks. wait does not end because the quorum is lost. 0: only repair() does.
  std::chrono::milliseconds reconnect{0};
  /// How long wait() polls before it sleeps. Waking an idle core costs 45 to 55 us on the machines
  /// this was measured on, so spin at least that long where cores are free; 0 where they are not.
  std::chrono::microseconds spin{200};
};

/// Sets one option from words, as a file of settings has them: "transport" "tcp", "quorum" "2",
/// "replica_timeout_ms" "500", "record_bytes_max" "1MiB". Durations end in their unit; shape,
/// primary and transport have the word for nothing too ("planned", "auto"); of the RNIC there are
/// rnic, rnic_ack_timeout and rnic_traffic_class; peers and pool are not among them.
/// Errors: InvalidArgument, naming what there is.
Result<void> set_option(LogOptions& options, std::string_view name, std::string_view value);
/// All options in one string: "perdure://HOST:PORT[,HOST:PORT...]/POOL[?NAME=VALUE[&...]]", for
/// example "perdure://10.0.0.1:7470,10.0.0.2:7470,10.0.0.3:7470/orders?quorum=2&reconnect_ms=100".
/// Errors: InvalidArgument.
Result<LogOptions> parse_log_options(std::string_view connection);
/// All options from a TOML file: peers (a list of "host:port") and pool, and the names of
/// set_option, whose values may also be numbers, true and false.
/// Errors: NotFound, PermissionDenied, SystemError (the file); InvalidArgument, with the line.
Result<LogOptions> read_log_options(const std::string& path);

/// One record that was appended.
struct Ticket {
  Lsn lsn;                   // where it begins
  Lsn end;                   // where it ends: committed once everything before that is
  std::uint64_t index = 0;   // how many records the log had before it
  std::uint64_t writer = 0;  // whose record it is: of this opening of the log
};

struct ReplicaStatus {
  std::string peer;
  std::string pool_uuid;  // of the pool that is the replica; empty while its peer never answered
  bool up = false;
  std::string down_reason;   // empty when up
  Lsn durable_below;         // everything before is durable there
  ServerProfile profile;     // meaningful when up
  std::string small_method;  // how records and small batches are made durable there
  std::string large_method;
  std::uint64_t small_bytes_max = 0;  // the largest batch that small_method carries
  bool costs_measured = false;        // they were chosen by costs measured on this connection
  std::uint64_t replans = 0;          // how often the connection's drift has changed them
  // Since the connection was made, probes of its costs included.
  std::uint64_t requests = 0;  // work requests
  std::uint64_t messages = 0;  // of which messages: SEND, WRITE_WITH_IMM
  std::uint64_t posts = 0;     // times that the transport was handed some
};

struct LogStatus {
  Epoch epoch;
  Lsn head;       // the oldest record that is kept
  Lsn tail;       // where the next record will begin
  Lsn committed;  // everything before is durable on a quorum
  std::uint64_t next_index = 0;
  std::uint64_t ring_bytes = 0;
  LogShape shape = LogShape::Singleton;
  std::size_t quorum = 0;
  std::string configuration;  // for people: generation, quorum, and every replica's pool
  std::string accepted_loss;  // what was given up when it was opened; empty: nothing
  std::vector<ReplicaStatus> replicas;
};

/// How long records took from append until calls learned that they had come so far: of a sample.
/// The first record is timed, then one of 64, and none while one that is timed has not got there.
struct LogTimes {
  TimeCounts durable;    // on at least one replica; or the less that the log was opened for
  TimeCounts committed;  // the same on the quorum
};

/// What bringing one replica back took.
struct RepairReport {
  std::string peer;
  bool repaired = false;
  std::string error;               // why not
  std::uint64_t copied_bytes = 0;  // from another replica
  std::string found;               // what was wrong: "12 records behind", "torn record at ..."
};

/// A record as it is read back.
struct Record {
  Lsn lsn;
  std::uint64_t index = 0;
  Epoch epoch;
  std::span<const std::byte> bytes;  // valid until the next call of the reader
};

struct LogReaderOptions {
  /// Control plane addresses of replicas, "host:port": any number of the log's. The first that
  /// answers is read, and another one when that fails.
  std::vector<std::string> peers;
  std::string pool;
  std::optional<Transport> transport;  // nothing: each peer's fastest that works
  RnicOptions rnic;
  Lsn from;                      // a record begins there; 0: from the oldest record
  std::uint64_t from_index = 0;  // records before this one are left out
  /// Return records before they are known to be committed: a new writer may replace those. Of one
  /// peer only.
  bool uncommitted = false;
  /// A peer that is silent for this long is lost.
  std::chrono::milliseconds timeout{5000};
};

/// Sets one option of a reader from words: see set_option above. There are transport, rnic,
/// rnic_ack_timeout, rnic_traffic_class, from (an LSN), from_index, uncommitted and timeout_ms.
/// Errors: InvalidArgument, naming what there is.
Result<void> set_option(LogReaderOptions& options, std::string_view name, std::string_view value);
/// All options in one string, as parse_log_options takes it. Errors: InvalidArgument.
Result<LogReaderOptions> parse_reader_options(std::string_view connection);
/// All options from a TOML file, as read_log_options takes it.
/// Errors: NotFound, PermissionDenied, SystemError (the file); InvalidArgument, with the line.
Result<LogReaderOptions> read_reader_options(const std::string& path);

class LogReader;

/// A log with one writer at a time: this one.
/// Threads: one caller at a time; progress is made in the calls. It has threads of its own only
/// while open reads the replicas, all of them at once.
/// Processes: it belongs to the one that opened it. In a child made by fork() every call is
/// InvalidArgument, and its destruction leaves the parent's connections alone.
/// A log that was closed or moved from refuses every call, with InvalidArgument; what only looks
/// (status, reached, committed, take_repairs) goes on after close, and returns nothing of one that
/// was moved.
class Log {
 public:
  /// Fences earlier writers, recovers what is committed, brings reachable replicas to equal.
  ///
  /// Errors   Busy (another writer holds it; take_over), Fenced (one is taking over right now),
  ///          QuorumLost (too few peers answer to know what is committed), Corrupt (committed
  ///          records are damaged everywhere; accept_loss), NotFound (no such pool),
  ///          Unsupported (a peer's memory can not do `level`), InvalidArgument; with accept_loss
  ///          OutcomeUnknown (whether the loss is accepted: who opens it next finds out).
  /// Cost     reads the whole log once from every replica.
  static Result<Log> open(LogOptions options);

  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;
  ~Log();

  /// Copies the record, sends it on its way, and returns at once. The bytes are the caller's again.
  /// While earlier records are in flight it may gather with the next ones, up to 4 KiB, and leaves
  /// when one of the calls finds an answer; wait and poll send at once what has gathered.
  ///
  /// Requires    1 .. record_bytes_max bytes.
  /// Durability  none yet: wait for a level.
  /// Errors      LogFull (trim), InvalidArgument (size), QuorumLost (also after a change of the
  ///             replicas whose outcome is unknown: open the log again), Fenced, Unsupported (the
  ///             log has come to the last LSN), TimedOut (replicas take nothing more, and are not
  ///             silent long enough to be marked down): nothing was appended.
  ///             Blocks while the staging memory is full, for as long as replicas get on: silent
  ///             ones are marked down, and over a slow link a long record may take long; with the
  ///             quorum lost, once a second, for 1 s while it asks who took over.
  /// Cost        one copy and one checksum; no allocation; at most one post per replica.
  Result<Ticket> append(std::span<const std::byte> record);
  /// Whether append of a record of so many bytes would block just now: until replicas take what is
  /// there, or, with the quorum lost, to ask who took over. Who must not block polls meanwhile;
  /// poll tells of a lost quorum, and asks if it is given time.
  bool append_would_block(std::uint64_t bytes);

  /// As append, for a record whose bytes lie in several places.
  Result<Ticket> append_pieces(std::span<const std::span<const std::byte>> pieces);

  /// Room for the next record, to be written in place: no copy is made of it. It is good until the
  /// next call of this log, which must not be given bytes in it; append_claimed makes its first
  /// bytes the record. To claim and not append is harmless. Errors: those of append.
  Result<std::span<std::byte>> claim(std::uint64_t bytes);
  /// Errors: those of append; InvalidArgument (more than was claimed, or another call came
  /// between).
  Result<Ticket> append_claimed(std::uint64_t bytes);

  /// Waits until the record has reached `level`: Durable (or less, if the log was opened for less)
  /// on at least one replica, Committed on the quorum.
  ///
  /// Errors   TimedOut (it may still get there: wait again; with LogOptions::reconnect also while
  ///          the quorum is lost), OutcomeUnknown (the quorum is lost, or another writer has taken
  ///          over: it may or may not be durable, and recovery decides; append says which),
  ///          Unsupported (a level that this log does not tell apart), InvalidArgument (a ticket of
  ///          another log, or of an earlier opening).
  Result<void> wait(const Ticket& ticket, Level level,
                    std::chrono::milliseconds timeout = std::chrono::seconds(30));

  /// Makes progress without waiting, and notices peers that are gone or silent: whoever has
  /// nothing to wait for calls it now and then. After a pause it lets readers know what is
  /// committed. With a timeout it also brings on replicas that are back (LogOptions::reconnect),
  /// measures connections again whose times have long been others, or, with the quorum lost, asks
  /// who took over, as append does; it may take this long. Less than 10 ms bring no replica back,
  /// neither here nor in wait.
  /// Errors: QuorumLost, Fenced (as for append).
  Result<void> poll(std::chrono::milliseconds timeout = std::chrono::milliseconds(0));

  /// Whether the record has reached `level`, as far as append, wait and poll have learned by now.
  /// Never a level above the one that the log was opened for, if that is less than Durable:
  /// committed() says what has that one on the quorum.
  /// Cost     compares two numbers.
  bool reached(const Ticket& ticket, Level level) const;
  /// Everything before is durable on the quorum, as far as the calls have learned by now; in a log
  /// that was opened for less, it has that level there. 0 of one that was moved from.
  Lsn committed() const;

  /// Forgets all records before `lsn`, which must be the place of a committed record or the tail.
  /// Errors: InvalidArgument (no record begins there), QuorumLost, Fenced: nothing was trimmed.
  /// OutcomeUnknown: the log may begin there for who opens it next; here it keeps them, and to trim
  /// again is safe.
  Result<void> trim(Lsn lsn);

  /// Tries to bring every replica that is down back to equal, until `timeout` is over. Appending
  /// pauses meanwhile. One report for each that was down; why one is still down is in its report.
  /// One that nobody has found to be down yet is left out: poll() looks.
  /// Errors: InvalidArgument (a log that refuses every call).
  Result<std::vector<RepairReport>> repair(
      std::chrono::milliseconds timeout = std::chrono::hours(24));
  /// What open had to repair, and what wait and poll have brought back (LogOptions::reconnect),
  /// since the last call of this.
  std::vector<RepairReport> take_repairs();

  LogStatus status() const;
  /// Since it was opened. Cost: for each append that is not timed, a decrement.
  LogTimes times() const;

  /// A reader of this log over connections of its own: `options` says where it begins; the peers
  /// are the present replicas if it names none, and the pool, transport and RNIC are this log's.
  /// It may be used by another thread, and outlive the log. Errors: those of LogReader::open.
  Result<LogReader> reader(LogReaderOptions options = {}) const;

  /// Waits until every replica has everything and readers know what is committed; afterwards only
  /// destruction, which does the same for at most a second if this was not called, and ends the
  /// sessions: whoever opens the log next is not Busy, unless a peer took longer than a second to
  /// say that it had ended its own. What is not waited for is as after a crash: what was committed
  /// stays. Errors: TimedOut (the message says how far each replica is).
  Result<void> close(std::chrono::milliseconds timeout = std::chrono::seconds(5));

  /// Makes the pool on `peer` a replica: it is brought to equal, then admitted by a record that is
  /// committed before and after. `quorum` 0: a majority if it was one, else as before.
  /// Errors: AlreadyExists (it is one, or its pool holds something else), InvalidArgument (too
  /// small, or a quorum that can not be), Busy (its pool has a writer, which is left alone, or was
  /// removed while this was open), Fenced (its pool is of a later epoch), QueueFull (too many
  /// changes of one writer), NotFound, Disconnected, TimedOut, Unsupported and others of the peer,
  /// its pool and its transports, QuorumLost, LogFull (no room for the record: trim);
  /// OutcomeUnknown (open again to find out).
  Result<void> add_replica(const std::string& peer, std::size_t quorum = 0);
  /// Takes a replica away, named by its peer or the UUID of its pool. It may be dead.
  /// Errors: NotFound, InvalidArgument (a quorum is not left); QuorumLost, LogFull, Fenced,
  /// TimedOut (replicas take nothing more) and Unsupported (the last LSN) as of append;
  /// OutcomeUnknown.
  Result<void> remove_replica(const std::string& which, std::size_t quorum = 0);
  /// One for another at once, with the same quorum. Errors: those of both.
  Result<void> replace_replica(const std::string& which, const std::string& peer);
  /// Errors: InvalidArgument, QuorumLost, LogFull, Fenced, TimedOut, Unsupported, OutcomeUnknown:
  /// as for remove_replica.
  Result<void> change_quorum(std::size_t quorum);

 private:
  class State;
  struct Delete {
    void operator()(State* state) const;
  };
  explicit Log(std::unique_ptr<State, Delete> state);
  bool readable() const;
  bool usable() const;
  Error why_not() const;
  std::unique_ptr<State, Delete> state_;
};

/// Reads a log from one of its replicas, and follows a writer. It returns whole records in order,
/// each once, nothing torn, and nothing that is not committed. That the last ones are is known from
/// the next record, or when the writer pauses or closes.
///
/// When the replica that is read is lost, damaged, trimmed too early or being repaired, next() goes
/// on with another one, at the same place; also when it has no more, and another one has. A replica
/// that could not be read is tried again after a while. What a replica says is committed counts for
/// what it holds, never for another one.
/// Threads: one caller at a time. Processes: as for Log.
class LogReader {
 public:
  /// Reads from the first of the peers that can be. Errors: of the peers together, as next().
  /// NotFound also: no log in the pool, no such pool, no record begins at `from`. InvalidArgument
  /// also: the peers hold different logs (one was deleted on some of them and made anew).
  /// Cost     a session with each of the other peers, to see that: up to 250 ms with a silent one.
  static Result<LogReader> open(LogReaderOptions options);
  LogReader(LogReader&&) noexcept;
  LogReader& operator=(LogReader&&) noexcept;
  ~LogReader();

  /// The next record, or nothing at the end (call again to follow). An error means that no replica
  /// can be read at this place now, and says why of each; call again after all but NotFound and
  /// Fenced, and it goes on.
  ///
  /// Errors  NotFound (the record was trimmed, and no replica that can be read has it), Busy (a
  ///         replica is being repaired or added, or was left behind; one whose addition came to
  ///         nothing says so for ever: name it no more), Disconnected (also: its pool is closed, or
  ///         gone), TimedOut, QueueFull (the peer has no session left), Corrupt (more was durable
  ///         than can be read: repair), Fenced (records that were returned, uncommitted or
  ///         given up since by accept_loss, were replaced by a newer writer's; or the pools hold
  ///         another log now), InvalidArgument (the replica was removed from the log; a peer has
  ///         come back that holds another log; moved from, or in a child of fork). Of several that
  ///         apply, the one that is most likely to pass.
  /// Cost    no round trip for most records: they are read in pieces of up to 1 MiB. At the end,
  ///         some round trips, and every 100 ms some to each of the other replicas, with each of
  ///         which it keeps a session then. Where a peer is lost, up to `timeout`.
  Result<std::optional<Record>> next();

  /// Where the next record that is returned begins or will begin.
  Lsn position() const;
  /// Everything before is committed, as far as a replica that was read has said.
  Lsn committed() const;
  /// Why the last call found nothing.
  LogEnd end() const;
  /// The peer that is read; empty while none can be.
  std::string peer() const;

 private:
  class State;
  struct Delete {
    void operator()(State* state) const;
  };
  friend class Log;
  explicit LogReader(std::unique_ptr<State, Delete> state);
  Result<void> usable() const;
  std::unique_ptr<State, Delete> state_;
};

}  // namespace perdure
