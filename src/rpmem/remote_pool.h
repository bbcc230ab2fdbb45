// RemotePool: a program's memory and its replica on a target, which an rpmemd serves: what the
// functions of librpmem do, in C++. The bytes travel through one durable session, which all lanes
// share; a lane is what drain() waits for.
#pragma once

#include <perdure/result.h>

#include "client/durable_session.h"
#include "core/clock.h"
#include "core/leader_mutex.h"
#include "persist/ordered.h"
#include "rpmem/command_peer.h"
#include "rpmem/control.h"
#include "rpmem/remote_command.h"
#include "rpmem/target_peer.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::rpmem {

inline constexpr std::size_t kLanesMax = 1024;
inline constexpr std::size_t kLandingBytes = 1024 * 1024;  // of one READ

struct RemotePoolOptions {
  RemoteShell shell;
  Target target;
  CommandPeer::Choice choice;
  std::string set;
  std::size_t lanes = 1;  // 1..kLanesMax
  /// How long a call tries to come back after the connection was lost, before it fails. 0: not.
  Nanoseconds reconnect = std::chrono::seconds(10);
  Nanoseconds connect_within = std::chrono::seconds(30);  // all of an opening
  Nanoseconds timeout = std::chrono::seconds(5);  // a target that is silent for this long is lost
  Nanoseconds spin = std::chrono::microseconds(100);  // then a call that waits sleeps
  bool measure_costs = true;
  // In an emulated world:
  StartTarget start;  // empty: a CommandPeer, by shell, target and choice
  const Clock* clock = &Clock::monotonic();
  std::function<void(Nanoseconds)> pause;  // between two tries to come back; empty: sleeps
};

/// Threads: any; calls of several are in flight together. A child made by fork() is refused with
/// InvalidArgument, and ends nothing of its parent's.
class RemotePool {
 public:
  /// Makes the replica; or opens it. `memory` stays until it is closed.
  /// Errors: those of CommandPeer::start, of PoolHost and of DurableSession.
  static Result<std::unique_ptr<RemotePool>> create(const RemotePoolOptions& options,
                                                    std::span<std::byte> memory,
                                                    const PoolAttributes& attributes);
  static Result<std::unique_ptr<RemotePool>> open(const RemotePoolOptions& options,
                                                  std::span<std::byte> memory);
  ~RemotePool();
  RemotePool(const RemotePool&) = delete;
  RemotePool& operator=(const RemotePool&) = delete;

  /// Of the replica, as it was opened or they were set last. Empty: its set has no headers.
  /// Threads: not beside set_attributes.
  const PoolAttributes& attributes() const { return attributes_; }
  /// Whether its first bytes are a header, which nobody writes but set_attributes.
  bool has_headers() const { return has_headers_; }
  std::size_t lanes() const { return lanes_.size(); }
  /// The method that small updates take, for people.
  std::string method() const;

  /// Whether a word of 8 bytes at a multiple of 8 may be torn by a crash in the midst of a call.
  enum class Words { Whole, MayTear };

  /// The bytes at `at` of the memory are durable at the target when this returns.
  /// Errors: InvalidArgument (no such lane), OutOfRange: that call only. After any other one every
  /// later call fails in the same way, and what was not answered may be durable there or not:
  /// Disconnected: the target was lost. SystemError, NoSpace: its medium refused. InvalidArgument:
  /// it came back, and another client has had the pool since. Those of PoolHost: what else it says
  /// of its files when it comes back.
  Result<void> persist(std::uint64_t at, std::uint64_t length, std::size_t lane,
                       Words words = Words::Whole);
  /// The same, and beyond the target's memory controller. Errors: also Unsupported: its medium can
  /// not be asked for that; that call only, and it is durable as persist makes it.
  Result<void> deep_persist(std::uint64_t at, std::uint64_t length, std::size_t lane);
  /// Begins that, for the lane: drain() waits for all that was begun. Short ranges are gathered,
  /// and go with the lane's drain in one message, as they are then. Errors: those of persist.
  Result<void> flush(std::uint64_t at, std::uint64_t length, std::size_t lane,
                     Words words = Words::Whole);
  Result<void> drain(std::size_t lane);
  /// What the target has. Errors: those of persist.
  Result<void> read(std::uint64_t at, std::span<std::byte> into, std::size_t lane);

  /// Errors: InvalidArgument, of the attributes: that call only. TimedOut: nothing was changed; ask
  /// again. Those of persist.
  Result<void> set_attributes(const PoolAttributes& attributes);
  /// Errors: those of persist; TimedOut: the target has not answered. It is closed all the same;
  /// what was flushed and not drained may be durable or not.
  Result<void> close();
  /// Errors: InvalidArgument: this is a child. What is here of the pool is a copy of whatever state
  /// it was in when the parent forked, locks included: it is to be left as it is, for good.
  Result<void> require_own_process() const;

 private:
  /// The connection: made anew when it was lost.
  struct Link {
    TargetPeer* peer = nullptr;  // the session's
    std::unique_ptr<client::DurableSession> session;
    std::unique_ptr<fabric::Memory> memory;
    std::unique_ptr<fabric::Memory> landing;
    std::unique_ptr<fabric::Memory> staging;
  };
  /// An update by its connection and its number on it.
  struct Begun {
    std::uint64_t link = 0;
    std::uint64_t number = 0;
  };
  struct Range {
    std::uint64_t at = 0;
    std::uint64_t length = 0;
    Words words = Words::Whole;
  };
  struct Lane {
    std::vector<Range> pending;  // flushed since it was last drained
    std::size_t begun = 0;       // of them; those behind are gathered
    persist::OrderedSize gathered;
    Begun last;
  };

  RemotePool(RemotePoolOptions options, std::span<std::byte> memory);
  Result<void> start(FrameKind kind, const PoolAttributes& attributes);
  Result<std::unique_ptr<TargetPeer>> start_target(const Deadline& deadline) const;
  Deadline deadline_after(Nanoseconds within) const { return {*options_.clock, within}; }
  Result<PoolAnswer> connect(FrameKind kind, const PoolAttributes& attributes,
                             const Deadline& deadline) PERDURE_REQUIRES(mutex_);
  Result<void> open_session(const Deadline& deadline) PERDURE_REQUIRES(mutex_);
  Result<void> register_program_memory() PERDURE_REQUIRES(mutex_);
  Result<void> require_ordered(const Deadline& deadline) PERDURE_REQUIRES(mutex_);
  Result<void> check(std::uint64_t at, std::uint64_t length, std::size_t lane) const;

  Result<Begun> begin(std::span<const Range> ranges) PERDURE_REQUIRES(mutex_);
  fabric::Segment stage(const Range& range) PERDURE_REQUIRES(mutex_);
  /// False: it was lost sight of, and is to be begun again; the connection is there.
  Result<bool> await(const Begun& begun) PERDURE_REQUIRES(mutex_);
  void lead(const Begun& begun) PERDURE_REQUIRES(mutex_);
  void follow(std::uint64_t number) PERDURE_REQUIRES(mutex_);
  void sleep_for_answer() PERDURE_REQUIRES(mutex_);
  bool is_settled(const Begun& begun) const PERDURE_REQUIRES(mutex_);
  void note_poll() PERDURE_REQUIRES(mutex_);
  bool goes_whole(const Range& range) const PERDURE_REQUIRES(mutex_) {
    return range.words == Words::Whole || !registers_;
  }
  Range first_piece(const Range& range) const PERDURE_REQUIRES(mutex_);
  Result<void> make_durable(const Range& range) PERDURE_REQUIRES(mutex_);
  Result<void> flush_in(Lane& lane, const Range& range) PERDURE_REQUIRES(mutex_);
  Result<void> flush_piece(Lane& lane, const Range& piece) PERDURE_REQUIRES(mutex_);
  Result<void> begin_gathered(Lane& lane) PERDURE_REQUIRES(mutex_);
  Result<void> drain_lane(Lane& lane) PERDURE_REQUIRES(mutex_);
  Result<void> deep_flush(const Range& range) PERDURE_REQUIRES(mutex_);
  Result<void> reply_of(std::uint64_t number) PERDURE_REQUIRES(mutex_);
  bool settle(std::uint64_t number) PERDURE_REQUIRES(mutex_);
  Result<void> read_piece(std::uint64_t at, std::span<std::byte> into) PERDURE_REQUIRES(mutex_);

  Result<void> come_back() PERDURE_REQUIRES(mutex_);
  Result<void> try_to_come_back(const Deadline& deadline) PERDURE_REQUIRES(mutex_);
  void pause(Nanoseconds time) const;
  void drop_link() PERDURE_REQUIRES(mutex_);

  const RemotePoolOptions options_;
  const std::span<std::byte> memory_;
  const std::unique_ptr<std::byte[]> landing_;  // of READs
  const std::uint32_t made_in_;                 // see core/forks.h
  const std::uint64_t writer_;
  PoolAttributes attributes_;
  bool has_headers_ = false;  // since it was opened
  int wake_ = -1;             // an eventfd: wakes who sleeps for an answer

  mutable LeaderMutex mutex_{*options_.clock};  // a number is reached when its update resolved
  std::optional<Link> link_ PERDURE_GUARDED_BY(mutex_);
  std::uint64_t links_ PERDURE_GUARDED_BY(mutex_) = 0;  // that there were
  /// Of one range in a message: on every connection.
  std::uint64_t whole_bytes_max_ PERDURE_GUARDED_BY(mutex_) = 0;
  /// Whether ranges go from where they are in the program's memory. Else each goes in messages, as
  /// those do whose words are to stay whole. As the first connection found it.
  bool registers_ PERDURE_GUARDED_BY(mutex_) = true;
  std::optional<Error> lost_ PERDURE_GUARDED_BY(mutex_);
  bool sleeps_ PERDURE_GUARDED_BY(mutex_) = false;  // who leads does, for an answer, unwoken
  std::vector<Lane> lanes_;                         // each its caller's, under mutex_
  std::vector<persist::UpdateItem> items_ PERDURE_GUARDED_BY(mutex_);  // scratch
  /// Of every update in flight whose words are to stay whole, as they were when it was begun: the
  /// program may store to them meanwhile, and whoever carries them reads them byte by byte.
  std::vector<std::byte> staging_ PERDURE_GUARDED_BY(mutex_);
};

}  // namespace perdure::rpmem
