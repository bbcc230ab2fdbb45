// Durable ranges: bytes of a pool written in order, durable on other machines when it says so, and
// read back. What a log or a mirror is built on; what librpma was used for.
//
//   auto region = perdure::Region::open({.peers = {"127.0.0.1:7470"}, .pool = "index"});
//   auto ticket = region->write(4096, bytes);
//   auto done = region->wait(*ticket, perdure::Level::Committed);
//
// Every peer holds a replica in a pool of its own, and every update goes to all that are up. A peer
// that goes down misses what is written meanwhile, until it is brought back
// (RegionOptions::reconnect) or the region is opened again. Opening brings no replicas to equal.
// What may be concluded after that, and after a writer that ended without close():
//
//   - An update that was reported Durable survives the power failure of at least one peer, one that
//     was reported Committed that of `quorum` of them: of all, unless fewer were asked for.
//   - A replica that RegionStatus calls whole has every update that was ever reported, of all
//     sessions (but for what a writer that was just being fenced was told of another replica
//     alone). When all are, they are equal wherever anything was written. With a quorum of half
//     the peers or fewer none is called so: two writers may have met different ones.
//   - If none is, the last writer ended without close() or wrote at Level::Visible, or all replicas
//     have missed something.
//     With the quorum of all, each still has every update that was reported Committed. What was
//     not may be on some, on each as far as it came: whole epochs, and any part of the next. But
//     one that RegionStatus calls mixed was just being brought back: each place has what was
//     reported of that replica or something later, and epochs may be there without earlier ones.
//   - Bring them to equal: read what matters from the replica of your choice, write it again, wait
//     until it is committed, then call note_equal().
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

struct RegionOptions {
  /// Control plane addresses of the peers, "host:port". Always all of the region's: opening it with
  /// another number is InvalidArgument.
  std::vector<std::string> peers;
  /// Name of the pool on every peer. Created beforehand, with `perdure pool create` for example.
  std::string pool;
  /// Peers on which an update must be durable to be committed, and that must be up to write at all.
  /// It belongs to the region: asked for when one is created (0: all peers), and checked when it is
  /// opened (0: not).
  std::size_t quorum = 0;
  /// Make pools that hold nothing the region's when none holds it. All peers must answer then. A
  /// pool that holds anything else, a log for example, is never written to.
  bool create = true;
  /// How the bytes travel; shm on the same host only. Nothing: each peer's fastest that works.
  std::optional<Transport> transport;
  RnicOptions rnic;
  /// Nothing: what is cheapest on each connection.
  std::optional<Primary> primary;
  /// Durable, or Visible, which accepts peers whose memory does not survive a power failure; then
  /// no update is ever durable, waiting for that is Unsupported, and once something was written no
  /// replica is whole when the region is opened again.
  Level level = Level::Durable;
  /// Memory for the bytes of updates in flight, registered with every RNIC. One update has at most
  /// this many bytes.
  std::uint64_t staging_bytes = 16 * 1024 * 1024;
  /// Time each connection when it is made, and use the methods that are cheapest by that.
  bool measure_costs = true;
  /// End the session of a writer that still has one (it is fenced), instead of answering Busy.
  bool take_over = false;
  /// Shown to others who want to write: program and host. Empty: host name and process id.
  std::string writer_name;
  /// A peer that owes an answer for this long is down. The calls notice it: waiting does, and so
  /// does who polls at least every eighth of it, in time; who polls every half of it, within twice
  /// that; who polls more seldom, at the third poll. After a pause a peer gets half of it to
  /// answer.
  std::chrono::milliseconds peer_timeout{5000};
  /// Bring back replicas that are down: first this long after the loss, after each failure twice as
  /// long, up to 16 times that. wait, and poll with a timeout, do it, and may take as long as that
  /// allows; wait does not end because the quorum is lost then. What was missed is sent again from
  /// staging memory, and when that is full copied from another replica, beside what is written. A
  /// replica that was not there when the region was opened, or whose pool was replaced by a blank
  /// one or by a copy of an earlier opening, is copied as a whole from one that is whole; and one
  /// that missed very many ranges with what lies between them. A copy that was made while this
  /// writer was there passes for the pool itself. 0: none comes back. Only with Level::Durable.
  std::chrono::milliseconds reconnect{0};
  /// How long waiting polls before it sleeps.
  std::chrono::microseconds spin{200};
};

/// Sets one option from words: see set_option of log.h. There are quorum, transport, rnic,
/// rnic_ack_timeout, rnic_traffic_class, primary, staging_bytes, measure_costs, take_over,
/// writer_name, peer_timeout_ms, reconnect_ms, spin_us, and create and level.
/// Errors: InvalidArgument, naming what there is.
Result<void> set_option(RegionOptions& options, std::string_view name, std::string_view value);
/// All options in one string, as parse_log_options takes it. Errors: InvalidArgument.
Result<RegionOptions> parse_region_options(std::string_view connection);
/// All options from a TOML file, as read_log_options takes it.
/// Errors: NotFound, PermissionDenied, SystemError (the file); InvalidArgument, with the line.
Result<RegionOptions> read_region_options(const std::string& path);

/// Bytes to be written at `at`, counted from the start of the region.
struct RangeWrite {
  std::uint64_t at = 0;
  std::span<const std::byte> bytes;
};
/// Ranges without an order among themselves, which do not overlap.
using RangeEpoch = std::span<const RangeWrite>;

/// An update that was begun.
struct RegionTicket {
  std::uint64_t number = 0;  // from 1, in the order of beginning
  std::uint64_t writer = 0;  // whose update it is: of this opening of the region
};

struct RegionReplicaStatus {
  std::string peer;
  std::string pool_uuid;       // empty while its peer never answered
  bool up = false;             // false: it misses what is written from then on
  std::string down_reason;     // empty when up
  bool whole = false;          // up to `resolved` it has everything that was ever reported
  std::uint64_t resolved = 0;  // the last update that has reached the level there
  bool catching_up = false;    // it came back, and does not have everything yet
  bool mixed = false;          // until it has: see above; or the last writer ended before it had
  std::uint64_t missed_bytes = 0;  // that are still to be copied to it
  ServerProfile profile;           // meaningful when up
  std::string small_method;
  std::string large_method;
  std::uint64_t small_bytes_max = 0;  // the largest range that small_method carries
  std::uint64_t coalesced = 0;        // updates that went there together with others
};

struct RegionStatus {
  Epoch epoch;
  std::uint64_t bytes = 0;
  std::size_t quorum = 0;
  std::uint64_t begun = 0;      // the last update
  std::uint64_t committed = 0;  // it and all before it are
  /// Not every replica answered when it was opened, or not every one was whole, or one has gone
  /// down since.
  bool may_differ = false;
  std::vector<RegionReplicaStatus> replicas;
};

/// How long updates took, of a sample (see LogTimes): from write until calls learned that they had
/// come so far; and every read and atomic that succeeded, from its beginning to its end.
struct RegionTimes {
  TimeCounts durable;    // on at least one replica; or the less that the region was opened for
  TimeCounts committed;  // on the quorum
  TimeCounts reads;
  TimeCounts atomics;
};

/// A region with one writer at a time: this one.
/// Threads: one caller at a time; progress is made in the calls. It has no threads of its own,
/// but while a peer is connected to again (RegionOptions::reconnect).
/// Processes: a child made by fork() is refused with InvalidArgument, and ends nothing of its
/// parent's. So is who uses a region that was closed or moved from.
class Region {
 public:
  /// Fences earlier writers of the pools. Changes no byte of the region. See above for what
  /// replicas hold afterwards, and look at RegionStatus::may_differ.
  ///
  /// Errors   Busy (another writer holds it; take_over), Fenced (one is taking over right now),
  ///          QuorumLost (too few peers), InvalidArgument (a pool holds something else, or another
  ///          region, or one pool is named twice), NotFound (no such pool, or no region and not to
  ///          be created), Corrupt (what a pool says of its region is damaged), Unsupported (too
  ///          few peers have a method for `level` and `primary`: nobody was fenced).
  static Result<Region> open(RegionOptions options);

  Region(Region&&) noexcept;
  Region& operator=(Region&&) noexcept;
  ~Region();

  /// Bytes that can be written and read, at 0 and up: of the smallest pool when the region was
  /// created, less 12 KiB, for ever. A pool that comes back smaller is not used.
  std::uint64_t bytes() const;

  /// Begins an update: nothing of an epoch is at the level before all of the earlier epochs are.
  /// The bytes are copied. Updates that overlap take effect in the order in which they were begun;
  /// else, between updates, there is no order until one is waited for. A range of 8 bytes at a
  /// multiple of 8 is never torn: a message takes it, unless RegionOptions::primary forces WRITE,
  /// the level is Visible, its update is longer than one, or the replica is catching up. Small
  /// updates that are begun while several are in flight are coalesced: they go together in one
  /// message, unless RegionOptions::primary forces WRITE.
  ///
  /// Requires    1 B to 16 MiB a range, at most staging_bytes in all.
  /// Durability  none yet: wait for a level.
  /// Errors      InvalidArgument, OutOfRange, QuorumLost, Fenced: nothing of it was begun.
  ///             Blocks while too much is in flight, at most until silent peers are down.
  Result<RegionTicket> write(std::span<const RangeEpoch> epochs);
  Result<RegionTicket> write(std::uint64_t at, std::span<const std::byte> bytes);

  /// Waits until the update, and all before it, have reached `level`: Visible or Durable on at
  /// least one peer, Committed on the quorum.
  /// Errors   TimedOut (it may still get there: wait again; with RegionOptions::reconnect also
  ///          while the quorum is lost), OutcomeUnknown (it can not any more, and may be there or
  ///          not; if another writer has the region, the next write says so), Unsupported (a level
  ///          that this region does not tell apart), InvalidArgument (not a ticket of this region).
  Result<void> wait(const RegionTicket& ticket, Level level,
                    std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// The same for everything that was begun.
  Result<void> flush(Level level, std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// Whether it has got there, as far as the calls have learned by now. Cost: compares numbers.
  bool reached(const RegionTicket& ticket, Level level) const;

  /// Makes progress without waiting, and notices peers that are gone or silent: whoever has
  /// nothing to wait for calls it now and then. With a timeout it also brings back replicas that
  /// are due (RegionOptions::reconnect) and, when the quorum is lost, asks those that are down
  /// whether a newer writer has the region, another one first each time; that may take this long,
  /// half of it for each of the two. A peer is connected to by a thread: while the quorum stands
  /// nobody waits for that, and a later call goes on with it. Errors: QuorumLost; Fenced (a newer
  /// writer has the region, as a peer has said: then no other error is told; whoever never gives a
  /// timeout learns that by what it writes or waits for next).
  Result<void> poll(std::chrono::milliseconds timeout = std::chrono::milliseconds(0));

  /// 8-byte atomics at a multiple of 8; they return what was there before. What it was, and what it
  /// is, survives a power failure then. In order with updates that overlap. Of one peer by the
  /// responder's processor. Of several, each of which would answer with a value of its own, the
  /// word is read behind all that was written, and the new one written, Committed: a region has one
  /// writer, so nobody else changes it in between.
  ///
  /// Errors   Unsupported: memory that is volatile; of several peers, replicas that may differ (see
  ///          note_equal; with a quorum of half of them they always may), and
  ///          RegionOptions::primary that forces WRITE, which may tear the word. InvalidArgument,
  ///          OutOfRange, Disconnected, Fenced; of several peers QuorumLost, TimedOut, of what was
  ///          written before: nothing was changed. OutcomeUnknown: it was done once or not at all.
  /// Cost     one round trip, waited for; with reconnect behind all that is in flight. Of several
  ///          peers two, behind all that is in flight; each waits for peer_timeout at most.
  Result<std::uint64_t> fetch_add(std::uint64_t at, std::uint64_t addend);
  /// Changes the word to `value` if it was `expected`.
  Result<std::uint64_t> compare_swap(std::uint64_t at, std::uint64_t expected, std::uint64_t value);
  Result<std::uint64_t> store(std::uint64_t at, std::uint64_t value);

  /// Reads from the replica of peer number `replica` (as in RegionOptions::peers), or, kAny, from
  /// one that is up and not just coming back, of these a whole one if there is. Has every update in
  /// it that was reached there.
  /// Errors: OutOfRange, Disconnected (that peer is down).
  static constexpr std::size_t kAny = SIZE_MAX;
  Result<void> read(std::uint64_t at, std::span<std::byte> into, std::size_t replica = kAny);

  /// For an event loop: a descriptor that becomes readable when an answer may have come. There is
  /// nothing behind it that moves on without you, so the order is: poll() until there is nothing to
  /// do; arm(); if that is true, sleep on the descriptor; then poll() again, and at the latest
  /// after half of peer_timeout, for peers that are silent. It belongs to the region.
  /// Errors: Unsupported (emulated devices have none), SystemError.
  Result<int> completion_fd();
  /// False: something has come meanwhile, poll() first.
  bool arm();

  /// The caller has seen to it that all replicas that are up hold the same: from now on they are
  /// whole. Those that are down, or just coming back, are not: they get everything from one that
  /// is. (With a quorum of half the peers or fewer none is whole, and they are left as they are.)
  /// Errors: QuorumLost, Fenced.
  Result<void> note_equal();

  RegionStatus status() const;
  /// Since it was opened. Cost: for each write that is not timed, a decrement.
  RegionTimes times() const;

  /// Waits until everything is at the level on every peer that is up, and notes there that it is;
  /// afterwards only destruction, which does the same for at most a second if this was not called.
  /// The peers have ended its sessions then, unless time ran out: whoever opens it next is not
  /// Busy. Errors: TimedOut, QuorumLost, Fenced: it is closed, and the replicas may differ.
  Result<void> close(std::chrono::milliseconds timeout = std::chrono::seconds(5));

 private:
  class State;
  struct Delete {
    void operator()(State* state) const;
  };
  explicit Region(std::unique_ptr<State, Delete> state);
  bool readable() const;
  bool usable() const;
  Error why_not() const;
  std::unique_ptr<State, Delete> state_;
};

}  // namespace perdure
