// Whether what a peer acknowledges is there after its power was cut, tried in two phases. arm()
// writes a pattern again and again, each update acknowledged as durable, until the peer goes away;
// how far it came is kept on this side, which keeps its power. check() looks, once the peer is
// back, whether every acknowledged update is there.
//
// Update n, from 1, fills the first bytes of slot (n - 1) % slots of the pool, and its words can be
// told from those of any other update: they follow from the seed, n and their place. After a cut a
// slot holds, word by word, its last acknowledged update or the one in flight that came after it.
//
//   slot      4096 bytes; its update has lengths[slot % 3] of them: several methods are tried
//   word i    SipHash(seed, n, i)
//
// What a cut may leave behind: of an update in flight any of its words, in any mixture with those
// of the update before it in that slot.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include "client/certify.h"
#include "client/peer.h"
#include "control/service_types.h"
#include "core/clock.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace perdure::client {

inline constexpr std::uint64_t kPowerCutSlotBytes = 4096;
inline constexpr std::uint64_t kPowerCutSlotsMin = 32;  // more than updates can be in flight
inline constexpr std::uint64_t kPowerCutSlotsMax = 1024;

/// Which start of a peer's kernel it is, as far as can be told from here.
struct PeerStart {
  std::string boot;                      // ServiceDescription::host of the peer
  std::optional<std::uint64_t> up_s;     // ServiceDescription::kernel_up_s of it
  std::string asked_on;                  // host_identity() of this machine,
  std::optional<std::uint64_t> asked_s;  // and its kernel_up_s(), when the peer was asked
  bool operator==(const PeerStart&) const = default;
};

/// Of a peer that has just answered. Before the cut: `asked_s` from after the answer; after the
/// cut: from before the question. So the time between them is rather too short than too long.
PeerStart peer_start(const control::ServiceDescription& service,
                     std::optional<std::uint64_t> asked_s);

/// Whether the peer's kernel was started anew between two answers. A container that is started anew
/// may have another boot id, and has the kernel of before. Nothing of it depends on what the clock
/// says, here or there.
struct StartedAnew {
  enum class Answer { Yes, No, NotKnown };
  Answer answer = Answer::Yes;
  std::string why{};  // of No and NotKnown, to come after "for"
};
StartedAnew started_anew(const PeerStart& before, const PeerStart& now);

/// What is known of one run of writes. A file keeps it between the phases: write_state().
struct PowerCutRun {
  std::string peer;  // as it was dialled
  std::string pool;
  std::string uuid;  // of the pool
  PeerStart start;   // of the peer that was written to
  std::uint64_t epoch = 0;
  std::uint64_t seed = 0;
  std::uint64_t slots = 0;
  std::array<std::uint64_t, 3> lengths{};
  std::string methods;             // in words
  std::uint64_t acknowledged = 0;  // updates 1 to this one are durable, said the peer
  std::uint64_t begun = 0;         // the last one that was begun
  /// Nothing was begun after `begun`. False: the run itself may have been cut off after this was
  /// noted, so newer updates may be found.
  bool ended = false;
  /// From the last answer of the peer until its loss was noticed, if it was.
  std::optional<std::uint64_t> noticed_ns;
  std::string lost_reason;
  /// The peer went away, or was silent, while it was written to.
  bool gone = false;
  /// From then until a newer start of its kernel answered somebody asked, and no older one did.
  bool watched = false;
  bool checked = false;            // check() has gone through it
  bool counted = false;            // as one of those that follow
  std::uint64_t cuts_checked = 0;  // in a row, of this pool by these methods, that lost nothing
  bool operator==(const PowerCutRun&) const = default;
};

/// As JSON. read_state() takes nothing else. Errors: InvalidArgument, naming the field.
std::string write_state(const PowerCutRun& run);
Result<PowerCutRun> read_state(std::string_view text);

struct PowerCutOptions {
  std::string pool;                               // what it holds is overwritten
  PeerStart start;                                // of the peer, now
  std::optional<PowerCutRun> before;              // whose power cuts count with those of this run
  std::optional<Primary> primary;                 // nothing: the planner chooses
  Nanoseconds timeout = std::chrono::seconds(5);  // for what is asked of a peer that is there
  /// A peer that does not answer for this long has gone, though the transport does not say so.
  Nanoseconds silent_within = std::chrono::seconds(120);
  Nanoseconds write_for = std::chrono::minutes(10);  // at most
  const Clock* clock = &Clock::monotonic();
  std::uint64_t writer = 1;  // id of the writer that it is
  std::uint64_t seed = 1;    // another one for each run
  /// Called before anything is written, then several times a second, and at the end. Its errors end
  /// the run.
  std::function<Result<void>(const PowerCutRun&)> save;
  std::function<bool()> stop;  // whether to end; asked often
  /// Which start of the peer's kernel answers just now; nothing: nobody does. It may take a second.
  /// Asked once the session has ended or the peer is silent, until somebody answers: a daemon that
  /// is started anew lost no power, and no machine has whose link broke. Nothing: nobody is asked,
  /// and nothing proved.
  std::function<std::optional<PeerStart>()> boot_now;
  Nanoseconds watch_for = std::chrono::hours(1);  // at most, until it answers
};

/// Writes until the peer goes away, or until it is told to end; then waits until it is back, which
/// the end of that wait need not be for the state to be used. Takes the pool over from nobody.
/// Returns the state that was saved last.
///
/// Requires  nobody wants what the pool holds; `save` and `stop`.
/// Errors    those of Peer::open_session and DurableSession::prepare; InvalidArgument (the pool is
///           too small); those of `save`.
Result<PowerCutRun> arm_power_cut(std::unique_ptr<Peer> peer, const PowerCutOptions& options);

/// Looks whether what was acknowledged is there, and says what is not: the checks "power-cut" and
/// "dead-peer-time". Notes in `run` that it was checked.
///
/// Errors    those of RemoteBytes::open and RemoteBytes::read; nothing is known then.
Result<Certificate> check_power_cut(Peer& peer, PowerCutRun& run, const PowerCutOptions& options);

}  // namespace perdure::client
