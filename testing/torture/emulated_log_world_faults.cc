// What goes wrong with programs, machines, links, media and clocks: see log_world.h.
#include <algorithm>
#include <array>

#include "core/assert.h"
#include "pmem/pool_format.h"
#include "testing/torture/log_world.h"

namespace perdure::test {
namespace {

using fabric::emu::LinkState;

/// A strike comes within so many events of an operation, as a power of two at most.
constexpr std::uint64_t kStrikeWithinLog = 12;

}  // namespace

void LogWorld::add_faults() {
  add_crashes();
  add_links();
  add_media();
}

/// A fault that comes at an instant, in the middle of an operation; if that is over before, then
/// right after it, or not at all. While it lasts, every operation meets what it has left.
void LogWorld::add_strike(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                          std::function<void(Random&)> strike, std::function<void()> end) {
  struct State {
    Random choices{0};
    bool waits = false;
    bool struck = false;
    bool strikes_late = false;
  };
  const auto state = std::make_shared<State>();
  Fault fault;
  fault.name = std::move(name);
  fault.weight = weight;
  fault.lasts_max = lasts_max;
  fault.begin = [this, state, strike](Random& choices) {
    if (armed_) return false;
    *state = State{choices, true, false, choices.chance(1, 2)};
    armed_ = true;
    const std::uint64_t within = std::uint64_t{1} << choices.below(kStrikeWithinLog + 1);
    world_.after(1 + choices.below(within), [this, state, strike] {
      armed_ = false;
      state->waits = false;
      state->struck = true;
      strike(state->choices);
    });
    return true;
  };
  fault.met = [this, state, strike] {
    if (!state->waits) return state->struck;
    world_.cancel_after();
    armed_ = false;
    state->waits = false;
    if (!state->strikes_late) return false;
    state->struck = true;
    strike(state->choices);
    bury_dead_programs();
    return false;
  };
  fault.end = [this, state, end] {
    if (state->waits) {
      world_.cancel_after();
      armed_ = false;
    }
    if (state->struck && end) end();
    *state = State{};
  };
  faults_.push_back(std::move(fault));
}

/// A fault that is there from the beginning of an operation on.
void LogWorld::add_lasting(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                           std::function<bool(Random&)> begin, std::function<void()> end) {
  faults_.push_back(
      {std::move(name), weight, lasts_max, std::move(begin), [] { return true; }, std::move(end)});
}

void LogWorld::cut_power(std::size_t replica) {
  fabric::emu::Machine& machine = replicas_[replica].server->machine();
  if (!machine.powered()) return;
  tell("the power of {} fails{}", machine.name(), unacknowledged() ? "" : ", nothing in flight");
  ++cuts_;
  if (unacknowledged()) ++cuts_counted_;
  replicas_[replica].off = true;
  machine.power_cut();
}

void LogWorld::start_what_is_off() {
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (replicas_[index].off) start(index);
  }
}

void LogWorld::add_crashes() {
  add_strike("writer-crash", 3, 1,
             [this](Random&) {
               fabric::emu::Machine& machine = *newest().machine;
               if (!machine.powered()) return;
               tell("{} crashes", machine.name());
               machine.kill();
             },
             {});
  add_strike(
      "server-crash", 3, 20,
      [this](Random& choices) {
        Replica& replica = replicas_[choices.below(replicas_.size())];
        fabric::emu::Machine& machine = replica.server->machine();
        if (!machine.powered()) return;
        tell("{} crashes", machine.name());
        replica.off = true;
        machine.kill();
      },
      [this] { start_what_is_off(); });
  add_strike(
      "power-cut", 6, 20, [this](Random& choices) { cut_power(choices.below(replicas_.size())); },
      [this] { start_what_is_off(); });
  add_strike(
      "power-cut-all", 3, 2,
      [this](Random& choices) {
        for (std::size_t index = 0; index < replicas_.size(); ++index) cut_power(index);
        for (Program& program : programs_) {
          if (program.machine->powered() && choices.chance(1, 2)) program.machine->kill();
        }
      },
      [this] { start_what_is_off(); });
  add_strike("connections-drop", 3, 1,
             [this](Random& choices) {
               const std::size_t only = choices.below(2 * replicas_.size());
               tell("connections of {} drop",
                    only < replicas_.size() ? fmt::format("replica{}", only) : "all replicas");
               for (std::size_t index = 0; index < replicas_.size(); ++index) {
                 if (only < replicas_.size() && index != only) continue;
                 for (Program& program : programs_) {
                   world_.drop_connections(*program.machine, replicas_[index].server->machine());
                 }
               }
             },
             {});
}

/// Whether every request of a program is answered, unless something stops in the midst of it.
bool LogWorld::links_whole() const {
  for (const Replica& replica : replicas_) {
    const fabric::emu::Machine& machine = replica.server->machine();
    if (replica.off || machine.starved()) return false;
    for (const Program& program : programs_) {
      if (world_.link(*program.machine, machine) != LinkState::Up) return false;
    }
  }
  return !armed_;
}

void LogWorld::set_links(std::size_t replica, LinkState state, bool all_programs) {
  fabric::emu::Machine& machine = replicas_[replica].server->machine();
  for (Program& program : programs_) {
    if (!all_programs && &program != &newest()) continue;
    world_.set_link(*program.machine, machine, state);
  }
  if (all_programs) world_.set_link(*reader_machine_, machine, state);
}

void LogWorld::add_links() {
  struct Kind {
    const char* name;
    LinkState state;
  };
  for (const Kind kind : {Kind{"slow-link", LinkState::Slow}, Kind{"lossy-link", LinkState::Lossy},
                          Kind{"partition", LinkState::Cut}}) {
    const auto victim = std::make_shared<std::size_t>(0);
    add_lasting(
        kind.name, 2, 12,
        [this, kind, victim](Random& choices) {
          *victim = choices.below(replicas_.size());
          tell("{} to replica{}", kind.name, *victim);
          set_links(*victim, kind.state, choices.chance(1, 2));
          return true;
        },
        [this, victim] { set_links(*victim, LinkState::Up, true); });
  }
  const auto victim = std::make_shared<std::size_t>(0);
  add_lasting(
      "starvation", 2, 6,
      [this, victim](Random& choices) {
        *victim = choices.below(replicas_.size());
        fabric::emu::Machine& machine = replicas_[*victim].server->machine();
        if (!machine.powered()) return false;
        tell("{} gets no processor", machine.name());
        machine.starve(true);
        return true;
      },
      [this, victim] { replicas_[*victim].server->machine().starve(false); });
  add_lasting(
      "clock-jumps", 2, 20,
      [this](Random&) {
        clock_.jumps = true;
        return true;
      },
      [this] { clock_.jumps = false; });
}

/// A bit of what a replica keeps. Not of the last record: of that nobody can say whether it was
/// ever whole, when the other replicas do not answer.
bool LogWorld::flip_somewhere(Random& choices) {
  const std::size_t index = choices.below(replicas_.size());
  const bool member = std::ranges::any_of(
      known_, [&](const Members& each) { return has(each, replicas_[index].pool()); });
  if (!member || !may_spoil(index)) return false;
  const std::uint64_t last = judge_.committed_below();
  const std::optional<Lsn> place = last > 0 ? judge_.place_of(last - 1) : std::optional<Lsn>{};
  if (!place || last <= judge_.trimmed_below() + 1) return false;
  const std::optional<Lsn> first = judge_.place_of(judge_.trimmed_below());
  if (!first || *first >= *place) return false;
  const std::uint64_t ring = ring_bytes();
  if (ring == 0) return false;
  std::uint64_t at = pmem::kPoolDataOffset;
  if (choices.chance(1, 6)) {
    // Where a log says what it is: anchor, words, and the two copies of its state.
    constexpr std::array<std::uint64_t, 5> kWhere = {0, log::kCommittedWordAt, log::kTailWordAt,
                                                     log::kStateAt,
                                                     log::kStateAt + log::kStateEvery};
    const std::uint64_t where = kWhere[choices.below(kWhere.size())];
    at += where + choices.below(where < log::kStateAt ? 8 : 200);
  } else {
    at += log::kRingAt + (first->value + choices.below(place->value - first->value)) % ring;
  }
  tell("a bit flips on replica{} at {}", index, at - pmem::kPoolDataOffset);
  spoil(index);
  replicas_[index].server->region().flip_bit(at, static_cast<unsigned>(choices.below(8)));
  return true;
}

void LogWorld::add_media() {
  add_lasting(
      "bit-flip", 2, 10, [this](Random& choices) { return flip_somewhere(choices); }, [] {});
  struct Kind {
    const char* name;
    ErrorCode code;
  };
  for (const Kind kind :
       {Kind{"sync-error", ErrorCode::SystemError}, Kind{"full-disk", ErrorCode::NoSpace}}) {
    const auto victim = std::make_shared<std::size_t>(0);
    add_lasting(
        kind.name, 2, 10,
        [this, kind, victim](Random& choices) {
          *victim = choices.below(replicas_.size());
          Replica& replica = replicas_[*victim];
          if (replica.off) return false;
          tell("the medium of replica{} refuses to sync: {}", *victim, kind.name);
          replica.server->region().refuse_flushes(kind.code, 1 + choices.below(3), random_);
          return true;
        },
        [this, victim] {
          // The operator has seen to it, and starts the daemon anew.
          Replica& replica = replicas_[*victim];
          replica.server->region().refuse_flushes(ErrorCode::SystemError, 0, random_);
          if (replica.off) return;
          replica.server->kill();
          start(*victim);
        });
  }
}

}  // namespace perdure::test
