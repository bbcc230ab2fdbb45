// Model: the abstract machine on which a method runs. Its states, its actions, the next state;
// what is right or wrong about a state is for properties.h, which states exist for explorer.h.
//
// A unit of data (a cache line; every item has two, a small item one) is on the wire, in the RNIC,
// visible, or inside the domain (memory controller under dmp, medium under page).
//   - Each connection has an order of its own; between two connections there is none. One requester
//     posts on both. Two requesters who wait for nothing of each other are two separate checks.
//   - The wire delivers in posting order. Posted operations (SEND, WRITE, WRITE_WITH_IMM) become
//     visible in order among themselves, the units of one operation in any order.
//   - Where the order of WRITEs is not known (ServerProfile::write_order), the units of any posted
//     operation that has left the requester become visible in any order among all of them, packets
//     of a later one before an earlier one is whole in the RNIC. Completions stay in order, on both
//     sides, and come when everything before is in the RNIC or visible, as always (ibv_reg_mr(3),
//     IBV_ACCESS_RELAXED_ORDERING). PWRITEs, whose order is what they are for, keep it.
//   - Non-posted operations (READ, FLUSH, ATOMIC WRITE, SFLUSH) take effect after everything before
//     them; a later posted operation may become visible before an earlier non-posted one takes
//     effect.
//   - What is visible drains into the domain at any time, in any order.
//   - Under page, a store by the CPU makes its page dirty; what an RNIC writes does not, unless
//     ServerProfile::dma_dirties says so. A clean page may be written back all the same, for what
//     else is in it, but no flush makes it so.
//   - FLUSH takes effect when everything before it is visible and, under dmp with DDIO off, has
//     drained. A READ does the same if it lies in something that was written before it on its
//     connection; a receive buffer is out of its reach. Where the profile has no native FLUSH, a
//     READ of the last item named stands in for it.
//   - PWRITE (BROI paper, section V) is a WRITE that becomes visible when all earlier PWRITEs
//   of
//     its connection have drained, under dmp, with DDIO on or off: the persist buffers keep the
//     order. It completes when it has drained (the persist ACK). The hardware knows the memory
//     controller and no page cache; on other domains than dmp the ACK says that the units are
//     visible.
//   - SFLUSH (durable RPC paper, 4.1.1) takes effect when everything before it is visible and,
//     under dmp, with DDIO on or off, the receive buffer of the SEND before it on its connection
//     and what it names of what was written before it have drained.
//   - Another posted operation completes when the RNIC has it; on iWARP and TCP at any time.
//   - The responder handles the messages of a connection in order, each when it and all before it
//     is visible; the two connections independently. Copies are stores: visible unit by unit in
//     program order. A message that it finds by polling it handles as soon as the mark of it is
//     visible, or, checked, all of it, and of nothing else that was posted before; what it takes
//     from a message that is not all visible is not what was sent. A flush waits until the item has
//     drained. When it is through with a message that it reacts to, the receive buffer is used
//     again.
//   - What the responder READs from the requester's memory its RNIC writes: the units become
//   visible
//     in any order, among those of other READs too, once the READ is posted; its completion comes
//     when all of them are. They stop where the RNIC's other writes stop: nothing of them has
//     drained, and a page that they are in is clean.
//   - An acknowledgement that the responder writes to where the requester polls says what one that
//     it sends says: it leaves when the actions before it are over.
//   - Over a queue pair that is not reliable (ServerProfile::qp_type) there is no wire with its
//     order: a posted operation becomes visible at any time after it was posted, or never, in part
//     or whole, and completes at once. Over UC nothing of it comes once something posted behind it
//     is visible, or where WRITEs keep no order, once the responder has begun with a message
//     behind it; over UD in any order. The responder takes a message that has a number in its turn:
//     when it is whole, and all before it on its connection are. A WRITE_WITH_IMM has no number, so
//     it is taken when it comes, and acknowledged as the first that is not. So an acknowledgement
//     is known by its place among them (src/persist counts in the same way).
//   - Items of updates that are mixed may share a place: see model_state.h.
//   - Power fails in any state, the responder's process restarts in any: see model_recovery.h.
//
// Reductions, all exact because every guard stays true once it is true: the requester moves on as
// soon as it may (an early acknowledgement is the worst case); a stage that the level asked about
// can not tell from its neighbour is merged with it; the units of an item take each step in their
// order, since which of them is the first is only a name (symmetry); and draining is no action of
// its own: a visible unit may have drained or not, properties assume the worse, and what waits for
// it to have drained settles it (partial order).
#pragma once

#include "check/script.h"

#include <perdure/profile.h>
#include <perdure/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace perdure::check {

// State layout. Word 0: bits 0-7 requester step; for each connection 24 bits (9 units delivered,
// 8 responder action, 7 non-posted operations executed); then cells, 16 of them with one
// connection and 4 with two. Words 1..: 32 cells each.
// A cell: 00 not visible, 01 visible, perhaps inside the domain, 11 inside the domain.
// After a crash the units delivered of connection 0 are kPowerLost or kRestarted instead, and its
// other 15 bits count recovery's steps.
inline constexpr std::size_t kWordsMax = 8;
inline constexpr std::size_t kCellsMax = 16 + 32 * (kWordsMax - 1);
inline constexpr std::size_t kCellsPerConnection = 12;  // whose place the counters take
inline constexpr std::size_t kConnectionsMax = 2;
inline constexpr std::size_t kStepsMax = 255;
inline constexpr std::size_t kSlotsMax = 509;
inline constexpr std::size_t kReactionsMax = 255;
inline constexpr std::size_t kNonPostedMax = 127;

using Mask = std::array<std::uint64_t, kWordsMax>;

template <std::size_t words>
using State = std::array<std::uint64_t, words>;

constexpr std::size_t word_of(std::size_t cell) { return (cell + 16) / 32; }
constexpr std::size_t shift_of(std::size_t cell) { return 2 * ((cell + 16) % 32); }
constexpr std::uint64_t bit_of(std::size_t cell) { return std::uint64_t{1} << shift_of(cell); }

constexpr std::size_t pc_of(std::uint64_t word) { return word & 0xff; }
constexpr std::size_t delivered_of(std::uint64_t word, std::size_t connection) {
  return (word >> (8 + 24 * connection)) & 0x1ff;
}
constexpr std::size_t responder_of(std::uint64_t word, std::size_t connection) {
  return (word >> (17 + 24 * connection)) & 0xff;
}
constexpr std::size_t executed_of(std::uint64_t word, std::size_t connection) {
  return (word >> (25 + 24 * connection)) & 0x7f;
}
inline constexpr std::size_t kPowerLost = 0x1ff;
inline constexpr std::size_t kRestarted = 0x1fe;
inline constexpr std::size_t kRecoveryMax = 0x7fff;
constexpr bool recovering(std::uint64_t word) { return delivered_of(word, 0) >= kRestarted; }
constexpr std::size_t recovery_of(std::uint64_t word) { return (word >> 17) & kRecoveryMax; }
inline constexpr std::uint64_t kOneRecovery = std::uint64_t{1} << 17;
inline constexpr std::uint64_t kOnePc = 1;
constexpr std::uint64_t one_delivered(std::size_t connection) {
  return std::uint64_t{1} << (8 + 24 * (connection % kConnectionsMax));
}
constexpr std::uint64_t one_responder(std::size_t connection) {
  return std::uint64_t{1} << (17 + 24 * (connection % kConnectionsMax));
}
constexpr std::uint64_t one_executed(std::size_t connection) {
  return std::uint64_t{1} << (25 + 24 * (connection % kConnectionsMax));
}

/// What a power failure leaves.
enum class Keeps { Nothing, Domain, Visible, Delivered };

/// One posted work request.
struct Operation {
  Verb verb = Verb::Write;
  bool posted = true;
  bool fenced = false;
  bool pushes = true;    // Read, Flush: everything before it is visible afterwards
  std::size_t step = 0;  // in Script::steps
  std::size_t connection = 0;
  std::vector<std::uint8_t> cells;       // the units it delivers
  std::vector<std::uint8_t> group_ends;  // in cells: units up to here are of one item
  std::size_t slot_first = 0;            // on the wire
  std::size_t slot_end = 0;
  std::size_t rank = 0;  // among the non-posted, or how many of them come before it
  std::optional<std::size_t> message;
  std::size_t taken_cell = 0;  // a message that may be lost: set when the responder takes it
  Mask cell_mask{};
  Mask lost_when{};  // that may be lost: if any of these is set, what is not here will not come
  std::size_t answers_before = 0;  // non-posted ones that a fence up to here waits for
  Mask visible_before{};           // cells that must be visible before it
  Mask drains_before{};            // PWRITE: its own cells and those of PWRITEs before it;
                                   // flushes, Read: cells that have drained when it takes effect
};

/// One micro-step of the responder's CPU.
struct Reaction {
  enum class Kind { Store, Read, Await, Flush, Ack, Release };
  Kind kind = Kind::Store;
  std::size_t message = 0;
  Item item = 0;
  std::uint8_t cell = 0;     // Store
  Mask flushes{};            // Flush: these cells, if visible, have drained afterwards
  bool written = false;      // Ack
  bool finds_clean = false;  // Flush: pages in which an RNIC's writes went unnoticed
  Mask reads{};              // of a polled message: without these it has no effect
  Mask fetched{};            // Read, Await: the units of the item
};

/// One received message.
struct Message {
  std::size_t operation = 0;
  Mask complete_when{};   // the receive completion
  Mask cells{};           // its buffer
  Mask items{};           // what a replay of it restores
  bool replayed = false;  // recovery may apply it
  bool vouches = false;   // its items depend on others that it does not carry
  // Of messages that may be lost:
  Mask taken{};                     // the responder has begun with it
  bool numbered = true;             // it is taken in its turn
  std::size_t reactions_first = 0;  // its own
  std::size_t reactions_end = 0;
  std::optional<std::size_t> released_at;  // Reaction index from which the buffer is reused
};

/// What a step of the requester waits for; Nothing for a post.
struct Wait {
  enum class Kind { Nothing, Delivered, Executed, Acks, Cells, Never };
  Kind kind = Kind::Nothing;
  std::size_t connection = 0;
  std::size_t count = 0;  // of units delivered, operations executed or acknowledgements
  Mask cells{};           // bits of the state that are set
};

/// What has an order of its own. The tables are in that order.
struct Connection {
  std::vector<std::size_t> operation_of_slot;
  std::vector<std::size_t> posted;      // operations
  std::vector<std::size_t> non_posted;  // operations
  std::vector<std::size_t> persists;    // operations that drain in order
  std::vector<Reaction> reactions;
  std::vector<std::size_t> acks_sent;     // by responder action reached
  std::vector<std::size_t> posts_before;  // by requester step: wire slots posted
  std::vector<Mask> delivered;            // by units delivered: cells in the RNIC or beyond
};

/// One micro-step of recovery.
struct RecoveryStep {
  enum class Kind { Judge, Store, Flush, Release };
  Kind kind = Kind::Judge;
  std::size_t message = 0;
  std::size_t end = 0;    // Judge: where the next message begins
  std::uint8_t cell = 0;  // Store
  Item item = 0;          // Flush
};

/// How recovery replays. All but the first are wrong, and there to be caught.
enum class Recovery {
  Careful,
  ReleasesBeforeFlush,  // gives the buffer back before its last item is durable
  FlushesLast,          // stores all items of a message before it flushes the first
};

/// Nothing of `later` may be recovered without all of `epoch`.
struct Order {
  Mask epoch{};
  Mask later{};
};

/// A unit of memory that several updates write. Its versions have a cell each, from `first_cell`
/// on: see model_state.h.
struct SharedPlace {
  std::size_t first_cell = 0;
  std::vector<std::size_t> cells;  // of the items, an older one first: versions 1, 2, ...
  Mask items{};                    // the same cells
};

struct Version {
  std::size_t place = 0;
  std::size_t version = 0;
};

/// When an update has resolved, among mixed ones: what it still waits for after its last post.
struct End {
  std::size_t step = 0;  // that comes after the last post
  std::vector<Wait> waits;
};

/// A script, compiled: everything that the next-state function needs.
struct Program {
  Script script;
  Keeps keeps = Keeps::Nothing;
  bool write_order = true;  // posted operations become visible in order
  bool loses = false;       // or perhaps not at all
  std::size_t cells = 0;    // the first one in use is first_cell
  std::size_t first_cell = 0;
  std::size_t words = 1;
  std::vector<Operation> operations;
  std::vector<std::size_t> operation_of_step;  // valid for posts
  std::vector<Connection> connections;
  std::vector<Message> messages;
  std::vector<Wait> waits;         // by requester step
  std::vector<Mask> acknowledged;  // by requester step (see progress()): cells that are promised
  std::vector<Mask> item_cells;
  std::vector<Order> orders;
  std::vector<RecoveryStep> recovery;    // empty if no message is replayed
  std::vector<std::uint64_t> promised;   // by requester step: the first one that promises as much
  Mask lasting{};                        // cells that outlive the process: items, kept messages
  Mask all_cells{};                      // but for those of versions
  std::vector<End> ends;                 // by promise; only of mixed updates
  std::vector<SharedPlace> places;       // that several items share
  std::vector<Version> version_of_cell;  // by cell, if it is in `shared`
  Mask shared{};                         // cells of items with such a place
};

struct CompileOptions {
  Level level = Level::Durable;
  std::size_t units_per_item = 2;
  Recovery recovery = Recovery::Careful;
};

/// Errors: InvalidArgument when the script asks for what the machine does not have (an item that
/// travels by two different ways, more cells than fit).
Result<Program> compile(const Script& script, const ServerProfile& profile,
                        const CompileOptions& options);

/// The message in the midst of which the responder is. Only where messages may be lost.
inline const Message* message_in_work(const Program& program, std::size_t connection,
                                      std::size_t position) {
  for (const Message& message : program.messages) {
    if (program.operations[message.operation].connection != connection) continue;
    if (message.reactions_first < position && position < message.reactions_end) return &message;
  }
  return nullptr;
}

/// Fills in what recovery does, after everything else has been compiled.
void add_recovery(Program& program, Recovery recovery);

struct Action {
  enum class Kind {
    Deliver,
    Show,
    Execute,
    Persist,
    Respond,
    Fetch,
    PowerFails,
    Restarts,
    Recover,
    Ignore
  };
  Kind kind = Kind::Deliver;
  std::size_t connection = 0;
  // Deliver: slot; Show, Fetch: cell; Execute, Persist: operation; Respond: reaction; Recover:
  // recovery's step; Ignore: the same, that judges a message and finds it torn
  std::size_t index = 0;
  bool crashes() const { return kind == Kind::PowerFails || kind == Kind::Restarts; }
  bool operator==(const Action&) const = default;
};

template <std::size_t words>
State<words> initial_state(const Program& program);

/// Calls `visit(next, action)` for every possible next state.
template <std::size_t words, typename Visit>
void for_each_next(const Program& program, const State<words>& state, Visit&& visit);

}  // namespace perdure::check

#include "check/model_next.h"  // which includes model_state.h and model_recovery.h
