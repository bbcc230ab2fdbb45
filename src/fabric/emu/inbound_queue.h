// InboundQueue: the responder's side of one connection, from its RNIC's buffer (stage 1) to what a
// load returns (stage 2) and, by FLUSH or READ, the memory controller (stage 3); design section 4.
// A state machine without time or threads of its own: World and LiveDevice drive it.
//
// The damage it can do: units of one operation become visible in any order; a posted operation
// overtakes an earlier non-posted one, and where the profile knows no order of WRITEs any other
// posted one, receive completions staying in order; a page of a file that it writes stays clean;
// nothing in the buffer survives unless the domain is Wsp. More of it on demand: rnic_switches.h.
//
// PWRITEs drain in order: it places one when those before it are in the memory controller. So two
// are never visible and undrained at once, which the checker's machine allows; what a power failure
// can leave of them is the same.
#pragma once

#include "core/random.h"
#include "fabric/emu/completion_queue.h"
#include "fabric/emu/memory_table.h"
#include "fabric/emu/operation.h"
#include "fabric/emu/rnic_switches.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace perdure::fabric::emu {

/// Operations that one RNIC buffers of one connection; the others wait on the wire.
inline constexpr std::size_t kRnicOperationsMax = 1024;
/// Bytes of them after which no more are taken.
inline constexpr std::uint64_t kRnicBytesMax = 64ULL << 20;

/// What one machine's RNIC counts.
struct RnicCounters {
  std::uint64_t operations = 0;     // taken from the wire
  std::uint64_t refused = 0;        // unknown key, missing right, outside of the range
  std::uint64_t windows_bound = 0;  // to connections that a machine of a World accepted
};

/// A receive completion on its way to the responder's CPU.
struct Received {
  CompletionEntry entry;
  Nanoseconds ready_at{0};
};

/// Threads: one caller at a time.
class InboundQueue {
 public:
  InboundQueue(MemoryTable& memory, const RnicBehaviour& behaviour, RnicCounters& counters)
      : memory_(memory),
        connection_(memory.next_connection()),
        behaviour_(behaviour),
        counters_(counters) {}

  /// What windows are bound to.
  std::uint64_t connection() const { return connection_; }

  void post_receive(Place place, std::uint64_t context);
  std::size_t receives_posted() const { return receives_.size(); }

  /// Whether the RNIC takes an operation of this kind from the wire now: it has room, a receive
  /// buffer if one is needed, and has refused nothing.
  bool can_take(Opcode opcode) const;
  /// Stage 0 to 1. An operation that must be refused is answered with an error instead.
  /// Requires can_take.
  void take(Operation operation, Random& random);

  /// The two things that can happen next, and since when; nothing if there is no such operation.
  /// Posted: a unit of the first posted operation becomes visible.
  std::optional<Nanoseconds> posted_ready() const;
  /// Non-posted: the first one takes effect, all that was before it being visible; or the first
  /// PWRITE without its persist ACK gets it.
  std::optional<Nanoseconds> non_posted_ready() const;
  /// Without order among them, what is ready by `now` goes before what is not.
  void step_posted(Random& random, Nanoseconds now = Nanoseconds::max());
  void step_non_posted(Random& random, Nanoseconds now = Nanoseconds::max());

  /// Every operation up to this one is here whole, and may be acknowledged.
  std::uint64_t acknowledged() const;
  bool keeps_write_order() const { return behaviour_.keeps_write_order; }

  std::optional<Response> next_response();
  /// Receive completions, in the order of the messages.
  std::optional<Nanoseconds> receive_ready() const;
  CompletionEntry next_receive();

  /// Nothing is in the RNIC and no receive completion waits.
  bool idle() const { return slots_.empty() && received_.empty() && persisting_.empty(); }

  /// The queue pair goes into the error state. What the RNIC has acknowledged it places: a
  /// requester may have been told so, and counts on it where that is enough (Wsp). Of a message
  /// that did not arrive whole, any lines. Afterwards nothing becomes visible any more.
  void close(Random& random);
  /// The same of a device that places what it buffers afterwards, when it comes to it: see
  /// RnicSwitches::places_late. Messages and what would be answered are forgotten.
  void close_late();
  /// The device is reset: what is buffered is lost, acknowledged or not, whatever survives a power
  /// failure.
  void reset(Random& random);
  /// The power fails: what is buffered is lost, but for lines of the first operation that got
  /// through; what goes to a Wsp region becomes visible whole and in order.
  /// Call it before the regions lose power.
  void power_cut(Random& random);

 private:
  struct Unit {
    std::size_t at = 0;
    std::size_t length = 0;
  };
  struct Receive {
    Place place;
    std::uint64_t context = 0;
  };
  struct Slot {
    Operation operation;
    Place place;
    std::vector<Unit> units;  // posted: not visible yet
    std::uint64_t receive_context = 0;
    bool finished = false;
    bool arrived = true;             // all its packets are here
    bool announced = false;          // its receive completion, if it has one, is on its way
    std::optional<Place> looked_up;  // SFLUSH: where the message before it went
  };
  /// A PWRITE that is visible and perhaps not in the memory controller.
  struct Persisting {
    std::uint64_t sequence = 0;
    Place place;
    Nanoseconds ready_at{0};
  };
  struct Unflushed {
    std::uint64_t sequence = 0;
    pmem::CrashableRegion* region = nullptr;
    pmem::Range range;
  };

  std::optional<Place> find_place(const Operation& operation);
  bool waits_for_persist(Opcode opcode) const;
  void refuse(std::uint64_t sequence);
  bool show(Slot& slot, Unit unit);
  bool stays_in_completion(const Slot& slot) const;
  Slot& choose_posted(Random& random, Nanoseconds now);
  void finish_posted(Slot& slot);
  std::uint64_t length_told(std::uint64_t length) const;
  void announce();
  std::optional<Response> execute(Slot& slot);
  void push_to_controller(const Slot& slot);
  std::optional<Nanoseconds> first_executable() const;
  void persist_next();
  void note_persisting(const Slot& slot);
  void note_unflushed(const Slot& slot);
  void show_some_lines(Slot& slot, Random& random);
  void drop_all();
  Slot* first_posted();
  const Slot* first_posted() const;
  void pop_finished();

  MemoryTable& memory_;
  const std::uint64_t connection_;
  const RnicBehaviour behaviour_;
  RnicCounters& counters_;
  std::deque<Receive> receives_;
  std::deque<Slot> slots_;
  std::uint64_t buffered_bytes_ = 0;  // of the slots
  std::deque<Unflushed> unflushed_;   // visible, perhaps not in the memory controller
  std::deque<Persisting> persisting_;
  std::optional<Place> last_message_;  // the receive buffer of the last SEND
  std::deque<Response> responses_;
  std::deque<Received> received_;
  std::uint64_t last_taken_ = 0;  // sequence, of those that were not cut off
  bool refusing_ = false;         // after a refusal nothing more is taken
};

}  // namespace perdure::fabric::emu
