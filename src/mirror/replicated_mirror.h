// ReplicatedMirror: local memory and its replicas, each behind a connection that comes and goes.
// What include/perdure/mirror.h promises, with memory, peers and clock given, so that it runs in
// one process with emulated ones.
//
// How a replica gets on (docs/decisions/0030-mirrors.md has the reasons):
//
//   Lost -> Comparing -> Waiting -> Copying -> InSync
//             |   `--------------------------^   |
//             `---- pages known --> Waiting      `--> Lost, and with it the generation ends
//
// A mirror tells nobody that anything is durable while a generation is over and the next one is not
// durable at all replicas that are in sync. A replica is marked incomplete before its first byte is
// changed, and complete, of the generation that is, when it has everything.
#pragma once

#include <perdure/mirror.h>
#include <perdure/result.h>

#include "client/peer.h"
#include "client/staging_ring.h"
#include "core/backoff.h"
#include "core/clock.h"
#include "core/siphash.h"
#include "core/stoppable_clock.h"
#include "mirror/connection.h"
#include "mirror/dirty_pages.h"
#include "mirror/local_state.h"
#include "mirror/mirror_format.h"
#include "persist/ordered.h"
#include "persist/page_digests.h"
#include "pmem/region.h"

#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::mirror {

inline constexpr std::size_t kReplicasMax = 16;
inline constexpr std::size_t kRangesMax = 65536;  // of one update
inline constexpr std::uint64_t kMirrorBytesMax = std::uint64_t{1} << 40;
/// From here on a range is sent from where it is; shorter ones are copied first.
inline constexpr std::uint64_t kDirectBytes = 8 * 1024;

/// Threads: one caller at a time, but for connect.
class ReplicatedMirror {
 public:
  /// `local` is as it is in the region; of the options, peers, transport and rnic are not looked
  /// at. `local_state`: of that memory. Errors: those of Mirror::open.
  static Result<std::unique_ptr<ReplicatedMirror>> open(
      pmem::Region& local, std::vector<std::shared_ptr<client::Peer>> peers,
      const MirrorOptions& options, const Clock& clock, const LocalStateFile& local_state = {});
  ~ReplicatedMirror();
  ReplicatedMirror(const ReplicatedMirror&) = delete;
  ReplicatedMirror& operator=(const ReplicatedMirror&) = delete;

  /// From now on what begins an update returns QueueFull, instead of waiting, while replicas take
  /// nothing more: it was not begun, and what was gathered stays so.
  void never_wait_for_room() { waits_for_room_ = false; }
  /// Until when a call waits for a replica at most, besides what each says of itself. A clock that
  /// is stopped ends it.
  void set_deadline(const Deadline& deadline);

  // As in Mirror. What waits returns QuorumLost when nothing can come by itself.
  std::uint64_t bytes() const { return bytes_; }
  Result<MirrorTicket> begin(std::span<const MirrorEpoch> epochs);
  /// A short range is gathered, and goes with others in one update, as it is then: by
  /// begin_gathered(), or ahead of what is begun next.
  Result<MirrorTicket> flush(const MirrorRange& range);
  /// What was gathered. Errors: those of begin; SystemError also of what was begun before.
  Result<void> begin_gathered();
  /// A range, and behind it, as an update of its own, that it is to be beyond the memory
  /// controllers. Errors: as for begin.
  Result<MirrorTicket> begin_deep(const MirrorRange& range);
  /// Whether such a ticket that is reached was so at all replicas that are in sync by now; else it
  /// is to be begun again. Errors: Unsupported: of one of them, or of the local medium.
  Result<bool> is_deep(const MirrorTicket& ticket) const;
  Result<MirrorTicket> write(std::span<const MirrorWriteEpoch> epochs);
  Result<MirrorTicket> store_word(std::uint64_t at, std::uint64_t value);
  bool reached(const MirrorTicket& ticket) const {
    return ticket.number <= committed_ && ticket.number < not_here_from_;
  }
  /// That the local medium refused something: nothing that was not reached before ever is.
  const std::optional<Error>& local_failure() const { return local_failure_; }
  /// The last ticket that was given out.
  std::uint64_t begun() const { return begun_ + (gathered_.empty() ? 0 : 1); }
  std::uint64_t committed() const { return committed_; }
  Result<void> wait(const MirrorTicket& ticket, Nanoseconds timeout);
  Result<void> read(std::uint64_t at, std::span<std::byte> into, std::size_t replica);
  MirrorStatus status() const;
  Result<void> close(Nanoseconds timeout);

  /// Takes answers, posts what waits, compares, copies and marks. Blocks for a round trip where a
  /// replica is marked. Says whether something came of it.
  bool progress();
  /// After nothing has come since then: polls for a while, then sleeps.
  void rest(Nanoseconds since, Nanoseconds slice);
  /// Why nothing can be durable just now: Fenced, QuorumLost. Nothing: it can.
  std::optional<Error> trouble() const;
  bool all_in_sync() const { return in_sync() == replicas_.size(); }
  /// Whether a replica is being compared or copied to, or something is in flight.
  bool busy() const;

  // Coming back, in three steps, so that the second need not keep others out.

  /// A lost replica whose time has come.
  std::optional<std::size_t> due() const;
  /// Until `steps` is stopped. Threads: any, one at a time for each replica.
  Result<std::unique_ptr<Connection>> connect(std::size_t replica,
                                              const StoppableClock& steps) const;
  void adopt(std::size_t replica, Result<std::unique_ptr<Connection>> connection);
  /// All three, for all that are due; no longer than to the deadline.
  void bring_back(const std::optional<Deadline>& until = std::nullopt);

 private:
  static constexpr Nanoseconds kRestSlice = std::chrono::milliseconds(10);

  struct Flight {
    enum class Kind { Update, Word, Deep, Copy, Digests } kind = Kind::Update;
    std::uint64_t number = 0;            // of the session
    std::uint64_t update = 0;            // of the mirror
    MirrorRange range;                   // updated, copied or compared
    std::vector<MirrorRange> more = {};  // of an update: the others
    bool direct = false;                 // some of it is sent from where it is
  };
  struct Replica {
    explicit Replica(std::uint64_t bytes, const MirrorOptions& options, std::uint64_t seed)
        : dirty(bytes), backoff(options.reconnect, seed) {}

    std::shared_ptr<client::Peer> peer;
    std::unique_ptr<Connection> connection;
    std::string uuid;
    std::optional<Error> down_reason;
    MirrorReplicaState state = MirrorReplicaState::Lost;
    DirtyPages dirty;
    bool is_source = false;    // while the mirror is opened: it has everything of earlier writers
    bool knows_dirty = false;  // all that it may not have is marked
    bool live = false;         // updates are sent to it
    bool current = false;      // its state may say that it is complete, of this generation
    std::optional<ReplicaState> on_medium;  // its state, as it was written last
    std::uint64_t compared = 0;             // bytes asked for
    SipKey key;
    std::deque<Flight> flights;
    std::uint64_t resolved = 0;     // the last update that has, or that its pages were copied after
    std::uint64_t deep = 0;         // the last update that was Deep
    std::uint64_t deep_from = 0;    // earlier ones it has got in a copy, which is not deep
    std::optional<Error> not_deep;  // why there can be none
    std::uint64_t copied_bytes = 0;
    std::uint64_t returned = 0;
    Backoff backoff;
  };

  struct NotDeep {
    std::uint64_t last = 0;  // of the updates that were refused
    Error why;
  };

  /// By replica: what its pool says; nothing: it was not read.
  using Starts = std::vector<std::optional<ReplicaStart>>;
  /// By replica: what its pool holds; nothing: it can not be read.
  using Contents = std::vector<std::unique_ptr<client::RemoteBytes>>;

  ReplicatedMirror(pmem::Region& local, const MirrorOptions& options, const Clock& clock,
                   const LocalStateFile& local_state);
  Result<void> validate(std::size_t peers) const;
  Result<void> ask_pools();
  Result<void> look_before_fencing();
  Result<void> connect_all();
  Result<bool> find_header(const Starts& starts, std::size_t unread);
  std::optional<Error> who_came_meanwhile();
  Result<Sources> find_newest(const Starts& starts, std::size_t unread) const;
  static std::uint32_t last_written(const Starts& starts);
  Result<void> find_mirror();
  Result<void> create();
  Result<void> check_created() const;
  Result<void> check_room(const Replica& replica, std::uint64_t room) const;
  Result<void> check_members(const Starts& starts);
  Result<void> restore();
  Result<void> come_in_sync();
  bool is_local_lost() const;
  Error local_is_lost() const;
  Result<void> read_local_state();
  bool is_local_older() const;
  Error local_is_older() const;
  Result<void> check_local_counts() const;
  Result<void> check_local_before(const Contents& contents) const;
  Result<void> note_local(bool whole) const;
  Error too_few(const std::string& doing) const;
  Error below_quorum() const;
  Error of_pool(const Replica& replica, const Error& why) const;
  bool claim(Replica& replica);
  void refuse(Replica& replica, Error why);
  control::SessionRequest session_request() const;

  Result<std::size_t> check(std::span<const MirrorEpoch> epochs) const;
  Result<void> check_goes_on() const;
  bool has_turn(std::size_t updates) const;
  /// For an update that is to be posted.
  struct Room {
    std::byte* to = nullptr;  // for the bytes that are sent from copies
    bool anybody = false;     // takes updates
  };
  Result<Room> make_room(std::size_t staged, std::size_t updates = 1);
  Result<MirrorTicket> post(std::span<const MirrorEpoch> epochs, Room room);
  Result<MirrorTicket> post_staged(std::span<const MirrorEpoch> epochs);
  void begin_staging();
  void stage(MirrorEpoch epoch, Room& room);
  bool is_being_sent(std::span<const MirrorEpoch> epochs) const;
  Result<void> await_sent(std::span<const MirrorEpoch> epochs);
  void send(Replica& replica, std::span<const MirrorEpoch> epochs);
  void send_word(Replica& replica, std::uint64_t at, std::uint64_t value);
  void send_deep(Replica& replica, const MirrorRange& range);
  void note_sent(Replica& replica, Flight flight, const Result<std::uint64_t>& number);
  Result<std::uint64_t> send_copied(Connection& connection);
  static void note_ranges(std::span<const MirrorEpoch> epochs, Flight& flight);
  Result<void> flush_local(std::span<const MirrorEpoch> epochs, std::uint64_t update);
  Error refused_here(Error why, std::uint64_t update);
  Result<void> check_local();

  std::size_t in_sync() const;
  Generation generation() const { return {epoch_.value, generation_count_}; }
  bool harvest(Replica& replica);
  Result<void> resolve(Replica& replica, const Flight& flight);
  void lose(Replica& replica, Error why);
  bool advance(Replica& replica);
  bool compare(Replica& replica);
  Result<void> note_digests(Replica& replica, const Flight& flight);
  bool begin_copying(Replica& replica);
  bool copy(Replica& replica);
  void finish(Replica& replica);
  bool take_all_answers(Replica& replica);
  bool write_state(Replica& replica, bool complete, bool closed = false);
  void next_generation();
  void note_committed();
  std::uint64_t page_bytes(std::uint64_t page, std::uint64_t pages) const;
  std::string name() const { return "mirror '" + options_.pool + "'"; }

  pmem::Region& local_;
  const LocalStateFile local_state_;
  const MirrorOptions options_;
  const Clock& clock_;
  const std::uint64_t bytes_;
  client::StagingRing staging_;
  std::vector<std::byte> copies_;
  std::vector<std::byte> landing_;
  const Buffers buffers_;
  std::vector<Replica> replicas_;
  std::optional<MirrorHeader> header_;
  std::size_t quorum_ = 0;
  Epoch epoch_;
  std::uint64_t writer_ = 0;
  bool writer_seen_ = false;             // another one, when opening asked
  Generation found_;                     // the newest of earlier writers
  std::uint32_t written_in_ = 0;         // the last epoch of them in which an update could begin
  std::uint64_t file_bytes_ = 0;         // of the local file, as the newest replicas tell of it
  std::optional<LocalState> local_was_;  // when it got its sessions
  std::uint32_t generation_count_ = 0;
  bool generation_over_ = false;  // a replica of it was lost: the next has to be durable
  bool established_ = false;      // this writer's first generation was in sync
  bool may_copy_ = false;
  bool waits_for_room_ = true;
  std::optional<Deadline> deadline_;  // of each session
  std::uint64_t begun_ = 0;
  std::uint64_t committed_ = 0;
  std::vector<MirrorRange> gathered_;  // for update begun_ + 1
  persist::OrderedSize gathered_size_;
  std::optional<NotDeep> local_not_deep_;
  std::optional<Error> local_failure_;
  std::uint64_t not_here_from_ =
      std::numeric_limits<std::uint64_t>::max();  // the update it refused
  std::vector<persist::UpdateItem> items_;        // scratch
  std::vector<std::size_t> epoch_items_;          // of each epoch, how many
  std::vector<client::Ranges> ranges_;
};

}  // namespace perdure::mirror
