// Mirrors: memory of this program whose ranges are made durable on other machines when it says so.
// What librpmem was: the program stores into its own memory, says which bytes are to be safe, and
// has a copy of all of it elsewhere.
//
//   auto memory = perdure::MirrorMemory::file("/data/tree");
//   auto mirror = perdure::Mirror::open(std::move(*memory), {.peers = {"a:7470", "b:7470"},
//                                                            .pool = "tree"});
//   std::memcpy(mirror->memory().data() + 4096, bytes, 64);
//   auto done = mirror->persist(4096, 64);
//
// What may be concluded:
//
//   - What persist(), drain() or a wait was answered with success for is durable on every replica
//     that is in sync, of which there are `quorum` at least: it survives the power failure of all
//     of them but one, and the loss of the local memory.
//   - What the program stored and did not persist may be on a replica or not, as it may be in
//     persistent memory after an eviction.
//   - A page of a file's memory that is lost (truncated, or its medium failed) reads as zeros from
//     then on, and the mirror's calls fail. Whatever else the program does with such memory, such
//     as appending it to a log, is its own affair.
//   - A replica that is lost does not stop the program while the quorum stands. It comes back by
//     itself, with the pages that changed meanwhile; until it has them all it is marked incomplete
//     in its own pool: it counts for nothing, and nothing is read from it.
//   - Without the quorum, what is persisted waits. It is made durable when the replicas are back.
//   - Of a mirror whose writer died, the next open() brings all replicas to equal.
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

/// Where the bytes are that count when a mirror is opened.
enum class MirrorStart {
  New,       // here, and the pools hold nothing yet: AlreadyExists if they do
  Local,     // here: replicas are brought to equal. Pools that hold nothing become the mirror's
  Replicas,  // there: the newest replica is copied over the local memory, then as Local
};

std::string_view to_string(MirrorStart start);

struct MirrorOptions {
  /// Control plane addresses of the peers, "host:port". Always all of the mirror's.
  std::vector<std::string> peers;
  /// Name of the pool on every peer, 12 KiB larger than the local memory at least.
  std::string pool;
  /// Replicas that must be in sync for anything to be durable. It belongs to the mirror: asked for
  /// when one is created (0: all peers), and checked when it is opened (0: not).
  std::size_t quorum = 0;
  MirrorStart start = MirrorStart::Local;
  /// How the bytes travel; shm on the same host only. Nothing: each peer's fastest that works.
  std::optional<Transport> transport;
  RnicOptions rnic;
  /// Nothing: what is cheapest on each connection. Where WRITE is forced no ranges go together in a
  /// message.
  std::optional<Primary> primary;
  /// Memory for small ranges in flight, registered with every RNIC. Large ones are sent from where
  /// they are.
  std::uint64_t staging_bytes = 4 * 1024 * 1024;
  /// Time each connection when it is made, and use the methods that are cheapest by that.
  bool measure_costs = true;
  /// End the session of a writer that still has one (it is fenced), instead of answering Busy.
  bool take_over = false;
  /// Also with fewer replicas than it takes to be sure that none of those that are away, or whose
  /// pool holds nothing any more, is newer or has another writer: the operator knows that.
  bool without_missing = false;
  /// Only replicas, or the local memory, are brought to equal: no update is begun
  /// (InvalidArgument), and a local file that another memory was copied from or to stays what
  /// counts.
  bool only_copies = false;
  /// Shown to others who want to write: program and host. Empty: host name and process id.
  std::string writer_name;
  /// A peer that owes an answer for this long is lost.
  std::chrono::milliseconds peer_timeout{5000};
  /// How long after it was lost a replica is first tried again; then up to 16 times as long. 0:
  /// never.
  std::chrono::milliseconds reconnect{50};
  /// How long waiting polls before it sleeps.
  std::chrono::microseconds spin{200};
};

/// Sets one option from words: see set_option of log.h. There are quorum, transport, rnic,
/// rnic_ack_timeout, rnic_traffic_class, primary, staging_bytes, measure_costs, take_over,
/// writer_name, peer_timeout_ms, reconnect_ms, spin_us, and start, without_missing and only_copies.
/// Errors: InvalidArgument, naming what there is.
Result<void> set_option(MirrorOptions& options, std::string_view name, std::string_view value);
/// All options in one string, as parse_log_options takes it. Errors: InvalidArgument.
Result<MirrorOptions> parse_mirror_options(std::string_view connection);
/// All options from a TOML file, as read_log_options takes it.
/// Errors: NotFound, PermissionDenied, SystemError (the file); InvalidArgument, with the line.
Result<MirrorOptions> read_mirror_options(const std::string& path);

/// A part of the local memory.
struct MirrorRange {
  std::uint64_t at = 0;
  std::uint64_t length = 0;
};
/// Ranges without an order among themselves.
using MirrorEpoch = std::span<const MirrorRange>;

/// Bytes to be stored at `at` and made durable.
struct MirrorWrite {
  std::uint64_t at = 0;
  std::span<const std::byte> bytes;
};
using MirrorWriteEpoch = std::span<const MirrorWrite>;

/// What was begun.
struct MirrorTicket {
  std::uint64_t number = 0;  // from 1, in the order of beginning; some begin together
};

enum class MirrorReplicaState {
  Lost,       // no connection: pages that change are noted
  Comparing,  // its pages are compared with the local ones
  Waiting,    // for its turn to be copied to
  Copying,    // incomplete: pages are copied to it
  InSync,     // it has everything
};

std::string_view to_string(MirrorReplicaState state);

struct MirrorReplicaStatus {
  std::string peer;
  std::string pool_uuid;  // empty while its peer never answered
  MirrorReplicaState state = MirrorReplicaState::Lost;
  std::string down_reason;         // why it was lost last
  std::uint64_t compared = 0;      // bytes, while it is compared
  std::uint64_t dirty_bytes = 0;   // still to be copied
  std::uint64_t copied_bytes = 0;  // since the mirror was opened
  std::uint64_t returned = 0;      // how often it came back
  ServerProfile profile;           // meaningful unless it is lost
  std::string small_method;
  std::string large_method;
  /// In the words of the rpmem papers: "ARRM" (appliance remote replication method: one-sided),
  /// "GPRRM" (general purpose: the responder's processor evicts), for small and for large ranges.
  std::string small_family;
  std::string large_family;
};

struct MirrorStatus {
  Epoch epoch;                   // of this writer
  std::uint32_t generation = 0;  // counts replicas that were lost, within the epoch
  std::uint64_t bytes = 0;
  std::size_t quorum = 0;
  std::size_t in_sync = 0;
  std::uint64_t begun = 0;
  std::uint64_t committed = 0;  // it and all before it are durable on the quorum
  std::vector<MirrorReplicaStatus> replicas;
};

/// The memory that is mirrored. Beside a file FILE.mirror is kept (mode 0644, some 60 bytes): whose
/// memory it is, since which writer, and whether it is whole. By that MirrorStart::Local refuses a
/// file that another memory has taken the place of (and that differs from the newest replica), or
/// over which a replica was half copied when the program or the power ended. Of memory without a
/// file its program has to know both.
class MirrorMemory {
 public:
  /// A file, or a DAX device, which exists: mapped and locked. What is persisted is made durable in
  /// it too, by what its medium needs. Errors: NotFound, Busy (locked), SystemError, Unsupported.
  static Result<MirrorMemory> file(const std::string& path);
  /// The same, made new with so many zeros. Errors: AlreadyExists, NoSpace, SystemError.
  static Result<MirrorMemory> create_file(const std::string& path, std::uint64_t bytes);
  /// Plain memory, which outlives the mirror: after the end of the program only the replicas have
  /// it, and MirrorStart::Replicas brings it back. `domain`: persistent memory that the caller has
  /// mapped (libpmem2, a DAX file): what is persisted is flushed by the processor. Page is msync;
  /// that says nothing where the file system has become read-only, which bytes_of() asks.
  static MirrorMemory bytes(std::span<std::byte> memory,
                            PersistenceDomain domain = PersistenceDomain::None);
  /// The same, of `file`, which the caller has mapped: FILE.mirror is kept for it, too. `domain`:
  /// Page is msync; None where the caller makes the file durable.
  static MirrorMemory bytes_of(const std::string& file, std::span<std::byte> memory,
                               PersistenceDomain domain = PersistenceDomain::Page);

  MirrorMemory(MirrorMemory&&) noexcept;
  MirrorMemory& operator=(MirrorMemory&&) noexcept;
  ~MirrorMemory();

  class State;

 private:
  friend class Mirror;
  explicit MirrorMemory(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// How long updates took, deep ones too, of a sample (see LogTimes): from when there was room for
/// them until it was learned that they were durable on the quorum; and every read that succeeded.
struct MirrorTimes {
  TimeCounts durable;
  TimeCounts reads;
};

class MirrorLane;

/// A mirror with one writer at a time: this one.
/// Threads: any number of callers; waiting threads share the work. One thread of its own brings
/// replicas back. A replica that stops answering just when it is marked as incomplete, or as
/// complete, holds up every call for up to `peer_timeout`, beyond the call's own time-out.
/// Processes: a child made by fork() is refused with InvalidArgument.
class Mirror {
 public:
  /// Fences earlier writers, brings as many replicas to equal as the quorum needs, and the others
  /// in the background. Cost: compares all pages by hashes, 0.5 % of the memory's size each.
  ///
  /// Errors   Busy (another writer holds it; take_over), Fenced (one is taking over right now),
  ///          QuorumLost (too few peers to be sure of what is newest, or to write),
  ///          InvalidArgument (a pool holds something else, or the memory has another size, or it
  ///          holds only zeros while the replicas hold something, or is older or half
  ///          copied: see MirrorMemory), NotFound (no such pool; or no mirror, for
  ///          MirrorStart::Replicas), AlreadyExists (MirrorStart::New), Corrupt (a pool, or
  ///          FILE.mirror), Unsupported (too few have a method: none is fenced), PermissionDenied,
  ///          NoSpace, SystemError (FILE.mirror can not be written).
  static Result<Mirror> open(MirrorMemory memory, MirrorOptions options);

  Mirror(Mirror&&) noexcept;
  Mirror& operator=(Mirror&&) noexcept;
  ~Mirror();

  std::span<std::byte> memory() const;

  /// Makes a range durable: here, by what the medium needs, and on the quorum.
  ///
  /// Requires    1 B or more.
  /// Durability  on success it is durable on every replica that is in sync.
  /// Errors      OutOfRange, InvalidArgument, Fenced, SystemError (the local medium has refused
  ///             something), TimedOut (a replica that is silent has no room left): nothing was
  ///             begun. OutcomeUnknown: it was begun, or what earlier calls had gathered was
  ///             refused just now; it may be durable or not. It gets there
  ///             once enough replicas are back: drain() waits for it, and to persist it again is
  ///             safe. But if another writer has taken over, or the local medium refused, it may
  ///             never, and the next call that begins something says so.
  /// Cost        one round trip.
  Result<void> persist(std::uint64_t at, std::uint64_t length,
                       std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// The same, and on to the medium itself, here and on every replica that is in sync: it is there
  /// also if what a power failure is to flush fails (ADR, the caches of eADR, a battery). What that
  /// takes, and gives, on which medium is in docs/mirror.md. Errors: as for persist; Unsupported:
  /// a medium that has no such thing, or an older daemon; the range is persisted then all the same.
  Result<void> deep_persist(std::uint64_t at, std::uint64_t length,
                            std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// Begins it. Until it is durable, what is stored into the range may or may not be what arrives.
  /// Short ranges are gathered and go together, in one message where they fit: with the next call
  /// that waits or begins something else, or, if there is none, some milliseconds later. They share
  /// a ticket. While a replica that is silent has no room left it waits.
  /// Errors: OutOfRange, InvalidArgument, Fenced, SystemError: as for persist, nothing was begun.
  /// OutcomeUnknown: the local medium has just refused it, and replicas may have it.
  Result<MirrorTicket> flush(std::uint64_t at, std::uint64_t length);
  /// Waits until what was begun, by a ticket or all of it, is durable.
  /// Errors   TimedOut, QuorumLost: not by now, and it may still get there: wait again.
  ///          OutcomeUnknown: another writer has taken over, or the local medium refused: it may
  ///          be durable or not, and the next call that begins something says which of the two.
  ///          InvalidArgument (a ticket of another mirror; or it was closed meanwhile).
  Result<void> wait(const MirrorTicket& ticket,
                    std::chrono::milliseconds timeout = std::chrono::seconds(30));
  Result<void> drain(std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// By what the calls have learned so far.
  bool reached(const MirrorTicket& ticket) const;

  /// Makes ranges durable in order: nothing of an epoch is on a replica that is in sync before all
  /// of the earlier ones is durable there. (What was stored before and is on a page that is just
  /// being copied to a replica that comes back may be there early: write() has not even that.)
  /// Cost: one round trip, whatever the number of epochs, where all fits in one message; where
  /// MirrorOptions::primary forces WRITE, one for each. Errors: as for flush, and for persist.
  Result<MirrorTicket> flush_ordered(std::span<const MirrorEpoch> epochs);
  Result<void> persist_ordered(std::span<const MirrorEpoch> epochs,
                               std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// Stores and flushes epochs in order, here and there: a transaction's log entry, data and commit
  /// mark in one call. The bytes are copied. Epochs may store to the same bytes, as to a mark that
  /// goes from one state to the next; but not where one of the two ranges has 8 KiB or more
  /// (InvalidArgument). Errors: as for flush; OutcomeUnknown: some of it may be stored here, too.
  Result<MirrorTicket> write(std::span<const MirrorWriteEpoch> epochs);

  /// Stores a word at a multiple of 8 and makes it durable: everywhere the old one is there, or the
  /// new one, and no mixture. Errors: as for persist; it is not stored here if nothing was begun.
  Result<void> write_atomic(std::uint64_t at, std::uint64_t value,
                            std::chrono::milliseconds timeout = std::chrono::seconds(30));

  /// A lane orders nothing against other lanes, and drains what it began itself: it waits for what
  /// was begun before that by others too, since updates resolve in order, and for nothing later.
  MirrorLane lane();

  /// Reads from the replica of peer number `replica`, or, kAny, from one that is in sync.
  /// Errors: OutOfRange, InvalidArgument, Disconnected (it is not in sync).
  static constexpr std::size_t kAny = SIZE_MAX;
  Result<void> read(std::uint64_t at, std::span<std::byte> into, std::size_t replica = kAny);

  /// Waits until every replica is in sync. Errors: TimedOut; QuorumLost (not by then, and too few
  /// have a connection); Fenced; SystemError (the local medium refused).
  Result<void> wait_in_sync(std::chrono::milliseconds timeout);

  MirrorStatus status() const;
  /// Since it was opened. Cost: for each update that is not timed, a decrement.
  MirrorTimes times() const;

  /// Drains, and notes at the replicas that it ended well. Whoever waits meanwhile is told that it
  /// is closed; what he had begun is drained, too. Errors: TimedOut, QuorumLost, Fenced,
  /// SystemError (the local medium refused): it is closed, and the last of it may not be
  /// everywhere.
  Result<void> close(std::chrono::milliseconds timeout = std::chrono::seconds(5));

 private:
  friend class MirrorLane;
  class State;
  struct Delete {
    void operator()(State* state) const;
  };
  explicit Mirror(std::unique_ptr<State, Delete> state);
  bool usable() const;
  Error why_not() const;
  std::unique_ptr<State, Delete> state_;
};

/// What one thread has begun, and waits for: see Mirror::lane. The mirror outlives it.
/// Threads: one caller at a time per lane.
/// Errors: those of the mirror's calls; drain as Mirror::wait.
class MirrorLane {
 public:
  Result<void> persist(std::uint64_t at, std::uint64_t length,
                       std::chrono::milliseconds timeout = std::chrono::seconds(30));
  Result<void> flush(std::uint64_t at, std::uint64_t length);
  Result<void> drain(std::chrono::milliseconds timeout = std::chrono::seconds(30));

 private:
  friend class Mirror;
  explicit MirrorLane(Mirror& mirror) : mirror_(&mirror) {}
  Mirror* mirror_;
  MirrorTicket last_;
};

}  // namespace perdure
