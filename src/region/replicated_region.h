// ReplicatedRegion: a region on peers, each driven through a durable session. What include/perdure/
// region.h promises, with peers and clock given, so that it runs in one process with emulated ones.
#pragma once

#include <perdure/region.h>
#include <perdure/result.h>

#include "client/durable_session.h"
#include "client/staging_ring.h"
#include "core/background.h"
#include "core/clock.h"
#include "region/missed_ranges.h"
#include "region/region_format.h"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace perdure::region {

/// Replicas of one region.
inline constexpr std::size_t kReplicasMax = 16;
inline constexpr std::size_t kRangesMax = 65536;         // of one update
inline constexpr std::size_t kLandingBytes = 64 * 1024;  // of one READ
inline constexpr std::size_t kKeptUpdatesMax = 4096;     // for replicas that do not have them yet
/// Of waiting: how long until it is looked around again.
inline constexpr Nanoseconds kRestSlice = std::chrono::milliseconds(10);
static_assert(kKeptUpdatesMax > client::kUpdatesMax);
static_assert(kLandingBytes >= kDataAt);

/// Threads: one caller at a time.
class ReplicatedRegion {
 public:
  /// Of the options, peers, transport and rnic are not looked at. `threads`: replicas are connected
  /// to again by threads of their own, and nobody who writes waits for a peer that is silent.
  /// Errors: those of Region::open.
  static Result<std::unique_ptr<ReplicatedRegion>> open(
      std::vector<std::unique_ptr<client::Peer>> peers, const RegionOptions& options,
      const Clock& clock, bool threads = false);
  ~ReplicatedRegion();
  ReplicatedRegion(const ReplicatedRegion&) = delete;
  ReplicatedRegion& operator=(const ReplicatedRegion&) = delete;

  // As in Region.
  std::uint64_t bytes() const { return bytes_; }
  Result<RegionTicket> write(std::span<const RangeEpoch> epochs);
  Result<void> wait(const RegionTicket& ticket, Level level, Nanoseconds timeout);
  Result<void> flush(Level level, Nanoseconds timeout) {
    return wait({begun_, writer_}, level, timeout);
  }
  bool reached(const RegionTicket& ticket, Level level) const;
  Result<void> poll(Nanoseconds timeout = Nanoseconds{0});
  Result<std::uint64_t> atomic(persist::Atomic what);
  Result<void> read(std::uint64_t at, std::span<std::byte> into, std::size_t replica);
  Result<int> completion_fd();
  bool arm();
  Result<void> note_equal();
  RegionStatus status() const;
  Result<void> close(Nanoseconds timeout);

 private:
  struct Flight {
    std::uint64_t update = 0;  // of the region
    std::uint64_t number = 0;  // of the session
  };
  /// An update that not every replica has, whose bytes are still staged.
  struct KeptUpdate {
    std::uint64_t number = 0;
    std::byte* staged = nullptr;
    std::vector<Extent> ranges;
    std::vector<std::size_t> epoch_ends;  // in ranges
  };
  /// What is known of the pools of the replicas when one of them is connected to.
  struct Known {
    std::string own;                                          // its UUID, or nothing
    bool seen = false;                                        // it holds this region
    std::vector<std::pair<std::string, std::string>> others;  // their peers, and UUIDs
  };
  /// Bytes that are on their way to a replica that lacks them: from another one, or from staging.
  struct Copy {
    std::size_t source = 0;  // of staging the target itself
    std::size_t target = 0;
    Extent piece;
    std::uint64_t staged = 0;    // the update whose bytes they are; 0: they are READ
    std::byte* bytes = nullptr;  // where they are staged
    std::uint64_t number = 0;    // of the session that has it now
    bool writing = false;        // else it is READ
    bool overtaken = false;      // what is READ is not wanted any more: the target was sent an
                                 // update of these bytes, or has gone
  };
  /// A connection that updates can be sent over. Its deadlines are those of making it.
  struct Connected {
    std::string uuid;  // of the pool
    // Registered: these go after the session.
    std::unique_ptr<fabric::Memory> staging;
    std::unique_ptr<fabric::Memory> landing;
    std::unique_ptr<fabric::Memory> copying;
    client::DurableSession session;
  };
  struct Replica {
    Replica(std::unique_ptr<client::Peer> peer,
            const client::DurableSessionOptions& session_options)
        : session(std::move(peer), session_options) {}

    std::unique_ptr<fabric::Memory> staging;
    std::unique_ptr<fabric::Memory> landing;
    std::unique_ptr<fabric::Memory> copying;
    client::DurableSession session;
    std::unique_ptr<Background<Connected>> connection;  // that is being made anew
    std::string uuid;                                   // of its pool
    std::optional<Error> unfit;                         // it has no method for what was asked for
    std::uint64_t bytes = 0;             // of it, behind what a region says of itself
    std::vector<std::byte> start_bytes;  // of its pool, as they were before anything was changed
    RegionStart start;
    bool whole = false;
    std::deque<Flight> flights;
    std::uint64_t sent = 0;              // the last update that its session was given
    std::uint64_t sent_most = 0;         // over any connection
    std::uint64_t landed = 0;            // that has resolved on its session, or is in `missed`
    std::uint64_t resolved = 0;          // the same, where nothing is missed
    bool joined = false;                 // it has, or misses, every update of this opening
    bool taken_up = false;               // it is being brought back, and is given nothing yet
    bool catching_up = false;            // it came back, and has not had all that it had missed
    bool mixed = false;                  // its return word is set
    bool mixed_before = false;           // and was when the region was opened
    bool all_copied = false;             // what it misses is everything
    std::uint64_t behind = 0;            // what it has to have before its return is over
    std::uint64_t missed_until = 0;      // what a replica must have to be copied from
    std::optional<MissedRanges> missed;  // what is not staged any more; nothing: it all is
    std::optional<Deadline> ask_again;   // while it is down: who writes

    bool to_be_asked() const { return !session.up() && (!ask_again || ask_again->passed()); }
  };

  /// Pieces that a replica lacks, kept apart from each other though that takes memory.
  static constexpr std::size_t kApartMax = 1 << 20;

  ReplicatedRegion(const RegionOptions& options, const Clock& clock, bool threads);
  client::DurableSessionOptions session_options() const;
  Result<void> ask_pools();
  Result<void> look();
  Result<bool> find_region();
  Result<void> check_members();
  Result<void> open_sessions(std::size_t needed);
  Result<void> open_session(Replica& replica);
  Result<void> claim(Replica& replica);
  Result<void> begin_session();
  Result<void> check_opened();
  Result<void> write_own(Replica& replica, std::uint64_t at, std::span<const std::byte> bytes);
  Result<void> write_state(Replica& replica, bool closed);
  Result<void> drain(const Deadline& deadline);
  Result<std::uint64_t> read_and_write(const persist::Atomic& what);
  Result<std::size_t> best_to_read();

  Error taken_over(const control::PoolDescription& pool) const;
  Error too_few(const std::string& doing) const;
  Error lost(const std::optional<Deadline>& until = std::nullopt);
  bool find_newer_writer(const std::optional<Deadline>& until = std::nullopt);
  bool asks_for_writer() const;
  std::size_t up() const;
  std::size_t reachable() const;
  /// Whether two sessions meet at a replica, whichever they could reach.
  bool may_know() const { return 2 * quorum_ > replicas_.size(); }
  std::uint64_t reached_by(std::size_t replicas) const;
  std::optional<Error> refuses_level(Level level) const;
  bool can_reach(const RegionTicket& ticket, Level level) const;
  Result<std::size_t> check(std::span<const RangeEpoch> epochs) const;
  Result<std::span<std::byte>> make_room(std::size_t bytes);
  bool has_turn() const;
  void keep(std::span<const RangeEpoch> epochs, std::byte* staged);
  void begin_everywhere();
  void send(Replica& replica, const KeptUpdate& update);
  void send_what_waits(Replica& replica);
  void take_answers(Replica& replica);
  void progress(const std::optional<Deadline>& until = std::nullopt);
  Result<void> await(Replica& replica, std::uint64_t number,
                     const std::optional<Deadline>& until = std::nullopt);
  void check_timeouts();

  // Replicas that come back, and what they have missed.
  bool comes_back(const Replica& replica) const {
    return options_.reconnect > std::chrono::milliseconds(0) && replica.joined;
  }
  bool in_flight_at(const Replica& replica) const { return replica.sent != replica.landed; }
  const KeptUpdate& kept(std::uint64_t number) const {
    return kept_[number - kept_.front().number];
  }
  std::uint64_t needed_from() const;
  bool is_held(const KeptUpdate& update) const;
  bool forget_for_one();
  std::size_t pieces_max_for(const Replica& target) const;
  void note_missed(Replica& replica, const KeptUpdate& update);
  void note_sent(std::size_t index, const KeptUpdate& update);
  void note_lost(Replica& replica);
  bool overlaps_itself(std::uint64_t after, std::uint64_t until) const;
  void bring_back(const Deadline& deadline);
  bool may_go_on(Replica& replica, bool urgent);
  Result<void> come_back(Replica& replica, const Deadline& deadline);
  void forget(Replica& replica);
  static Result<void> check_apart(const std::string& uuid, const Known& known);
  bool was_seen(const Replica& replica) const;
  Known known_beside(const Replica& replica, bool seen) const;
  Result<bool> check_content(client::Peer& peer, const Deadline& within) const;
  Result<Connected> connect(client::DurableSession successor, const Known& known,
                            const std::function<Deadline()>& until);
  void begin_connecting(Replica& replica);
  Result<Connected> connection_to(Replica& replica, const Deadline& deadline);
  void go_on_over(Replica& replica, Connected connected);
  bool connects() const;
  Result<void> take_up(Replica& replica, const Deadline& deadline);
  Result<void> adopt(Replica& replica, const RegionStart& start);
  bool excludes_newer_writer(const Replica& blank) const;
  Result<void> mark_mixed(Replica& replica, bool mixed);
  void end_return(Replica& replica, const Deadline& deadline);
  Result<void> say_returned(Replica& replica);
  bool has_all_for(const Replica& source, const Replica& target) const;
  std::optional<Copy> next_copy(std::size_t target) const;
  std::optional<Copy> next_staged(std::size_t target) const;
  bool returns(const Replica& replica) const;
  static bool is_returning(const Replica& replica) {
    return replica.missed.has_value() || replica.catching_up;
  }
  void copy_on();
  void begin_copy();
  void write_copy();
  void give_up_copy();
  void put_back_copy();
  Result<void> watch(int all, Replica& replica);
  void rest(Nanoseconds since, Nanoseconds slice);
  bool answer_due(const Replica& replica) const {
    return replica.session.up() && !replica.session.idle();
  }
  std::string name() const { return "region '" + options_.pool + "'"; }

  const RegionOptions options_;
  const Clock& clock_;
  const bool threads_;
  client::StagingRing staging_;
  std::unique_ptr<std::byte[]> landing_;  // of READs
  std::unique_ptr<std::byte[]> copying_;  // of what is copied from one replica to another
  std::vector<Replica> replicas_;         // connections go before the memory that they name
  std::size_t ask_next_ = 0;              // of them, for a newer writer
  std::size_t quorum_ = 0;
  std::uint64_t bytes_ = 0;
  Epoch epoch_;
  std::uint64_t writer_ = 0;
  RegionHeader header_;
  std::uint64_t begun_ = 0;
  std::deque<KeptUpdate> kept_;  // up to begun_, one after the other
  std::optional<Copy> copy_;
  std::optional<Error> fenced_;  // by a newer writer
  bool ending_ = false;          // it is being closed, and nothing is copied any more
  std::optional<int> completion_fd_;
  std::vector<persist::UpdateItem> items_;  // scratch of write
  std::vector<client::Ranges> ranges_;
};

}  // namespace perdure::region
