// Model: the abstract machine on which a method runs. Its states, its actions, the next state;
// what is right or wrong about a state is for properties.h, which states exist for explorer.h.
//
// A unit of data (a cache line; every item has two, a small item one) is on the wire, in the RNIC,
// visible, or inside the domain (memory controller under dmp, medium under page).
//   - The wire delivers in posting order. Posted operations (SEND, WRITE, WRITE_WITH_IMM) become
//     visible in order among themselves, the units of one operation in any order.
//   - Non-posted operations (READ, FLUSH, ATOMIC WRITE) take effect after everything before them;
//     a later posted operation may become visible before an earlier non-posted one takes effect.
//   - What is visible drains into the domain at any time, in any order.
//   - FLUSH takes effect when everything before it is visible and, under dmp with DDIO off, has
//     drained. A READ does the same if it covers something that was written before it.
//   - A posted operation completes when the RNIC has it; on iWARP and TCP at any time.
//   - The responder handles messages in order, each when it and all before it is visible. Copies
//     are stores: visible unit by unit in program order. A flush waits until the item has drained.
//     When it is through with a message that it reacts to, the receive buffer is used again.
//
// Two reductions, both exact because every guard stays true once it is true: the requester moves on
// as soon as it may (being told early is the worst case), and a stage that the level asked about
// can not tell from its neighbour is merged with it.
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

// State layout. Word 0: bits 0-7 requester step, 8-16 units delivered, 17-24 responder action,
// 25-31 non-posted operations executed, then 16 cells. Words 1..: 32 cells each.
// A cell: 00 not visible, 01 visible, 11 inside the domain.
inline constexpr std::size_t kWordsMax = 8;
inline constexpr std::size_t kCellsMax = 16 + 32 * (kWordsMax - 1);
inline constexpr std::size_t kStepsMax = 255;
inline constexpr std::size_t kSlotsMax = 511;
inline constexpr std::size_t kReactionsMax = 255;
inline constexpr std::size_t kNonPostedMax = 127;

using Mask = std::array<std::uint64_t, kWordsMax>;

template <std::size_t words>
using State = std::array<std::uint64_t, words>;

constexpr std::size_t word_of(std::size_t cell) { return (cell + 16) / 32; }
constexpr std::size_t shift_of(std::size_t cell) { return 2 * ((cell + 16) % 32); }
constexpr std::uint64_t bit_of(std::size_t cell) { return std::uint64_t{1} << shift_of(cell); }

constexpr std::size_t pc_of(std::uint64_t word) { return word & 0xff; }
constexpr std::size_t delivered_of(std::uint64_t word) { return (word >> 8) & 0x1ff; }
constexpr std::size_t responder_of(std::uint64_t word) { return (word >> 17) & 0xff; }
constexpr std::size_t executed_of(std::uint64_t word) { return (word >> 25) & 0x7f; }
inline constexpr std::uint64_t kOnePc = 1;
inline constexpr std::uint64_t kOneDelivered = std::uint64_t{1} << 8;
inline constexpr std::uint64_t kOneResponder = std::uint64_t{1} << 17;
inline constexpr std::uint64_t kOneExecuted = std::uint64_t{1} << 25;

/// What a power failure leaves.
enum class Keeps { Nothing, Domain, Visible, Delivered };

/// One posted work request.
struct Operation {
  Verb verb = Verb::Write;
  bool posted = true;
  bool fenced = false;
  bool pushes = true;               // Read, Flush: everything before it is visible afterwards
  std::size_t step = 0;             // in Script::steps
  std::vector<std::uint8_t> cells;  // the units it delivers
  std::size_t slot_first = 0;       // on the wire
  std::size_t slot_end = 0;
  std::size_t rank = 0;  // among the non-posted, or how many of them come before it
  std::optional<std::size_t> message;
  Mask cell_mask{};
  Mask visible_before{};  // posted cells that must be visible before it
  Mask drained_before{};  // Flush: cells that must have drained
};

/// One micro-step of the responder's CPU.
struct Reaction {
  enum class Kind { Store, Flush, Ack };
  Kind kind = Kind::Store;
  std::size_t message = 0;
  Item item = 0;
  std::uint8_t cell = 0;  // Store
  Mask waits_for{};       // Flush: these cells must not be visible-but-not-drained
};

/// One received message.
struct Message {
  std::size_t operation = 0;
  Mask complete_when{};                    // the receive completion
  Mask cells{};                            // its buffer
  Mask items{};                            // what a replay of it restores
  bool replayed = false;                   // recovery may apply it
  std::optional<std::size_t> released_at;  // Reaction index from which the buffer is reused
};

/// A script, compiled: everything that the next-state function needs.
struct Program {
  Script script;
  Keeps keeps = Keeps::Nothing;
  bool early_completion = false;
  std::size_t cells = 0;
  std::size_t words = 1;
  std::vector<Operation> operations;
  std::vector<std::size_t> operation_of_slot;
  std::vector<std::size_t> posted;             // operations, in order
  std::vector<std::size_t> non_posted;         // operations, in order
  std::vector<std::size_t> operation_of_step;  // valid for posts
  std::vector<Message> messages;
  std::vector<Reaction> reactions;
  std::vector<std::size_t> acks_sent;     // by responder action reached
  std::vector<std::size_t> acks_awaited;  // by requester step
  std::vector<std::size_t> posts_before;  // by requester step: wire slots posted
  std::vector<Mask> delivered;            // by units delivered: cells in the RNIC or beyond
  std::vector<Mask> item_cells;
  std::vector<Mask> epoch_cells;
  std::vector<Mask> later_cells;  // by epoch: the epochs that depend on it
  Mask drains{};                  // cells for which draining makes a difference
};

struct CompileOptions {
  Level level = Level::Durable;
  std::size_t units_per_item = 2;
};

/// Errors: InvalidArgument when the script asks for what the machine does not have (an item that
/// travels by two different ways, more cells than fit).
Result<Program> compile(const Script& script, const ServerProfile& profile,
                        const CompileOptions& options);

struct Action {
  enum class Kind { Deliver, Show, Execute, Drain, Respond };
  Kind kind = Kind::Deliver;
  std::size_t index = 0;  // Deliver: slot; Show, Drain: cell; Execute: operation; Respond: reaction
};

template <std::size_t words>
State<words> initial_state(const Program& program);

/// Calls `visit(next, action)` for every possible next state.
template <std::size_t words, typename Visit>
void for_each_next(const Program& program, const State<words>& state, Visit&& visit);

}  // namespace perdure::check

#include "check/model_next.h"
