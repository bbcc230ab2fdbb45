// What goes wrong with programs, machines, links, media and clocks: see emulated_log_world.h.
#include <algorithm>
#include <array>

#include "core/assert.h"
#include "pmem/pool_format.h"
#include "testing/torture/emulated_log_world.h"
#include "testing/torture/strike.h"

namespace perdure::test {
namespace {

using fabric::emu::LinkState;

}  // namespace

void EmulatedLogWorld::add_faults() {
  add_crashes();
  add_links();
  add_media();
  add_rnics();
}

void EmulatedLogWorld::add_strike(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                                  std::function<void(Random&)> strike, std::function<void()> end) {
  faults_.push_back(strike_fault(world_, armed_,
                                 {std::move(name), weight, lasts_max, std::move(strike),
                                  std::move(end), [this] { bury_dead_programs(); }}));
}

void EmulatedLogWorld::cut_power(std::size_t index) {
  if (!runs(index)) return;
  tell("the power of {} fails{}", name_of(index), unacknowledged() ? "" : ", nothing in flight");
  ++cuts_;
  if (unacknowledged()) ++cuts_counted_;
  replicas_[index].off = true;
  machine(index).power_cut();
}

void EmulatedLogWorld::add_crashes() {
  add_strike("writer-crash", 3, 1,
             [this](Random&) {
               fabric::emu::Machine& writer = *program_machines_[index_of(newest())];
               if (!writer.powered()) return;
               tell("{} crashes", writer.name());
               writer.kill();
             },
             {});
  add_strike(
      "server-crash", 3, 20,
      [this](Random& choices) {
        const std::size_t index = choices.below(replicas_.size());
        if (!runs(index)) return;
        tell("{} crashes", name_of(index));
        replicas_[index].off = true;
        machine(index).kill();
      },
      [this] { start_what_is_off(); });
  add_strike(
      "power-cut", 6, 20, [this](Random& choices) { cut_power(choices.below(replicas_.size())); },
      [this] { start_what_is_off(); });
  add_strike(
      "power-cut-all", 3, 2,
      [this](Random& choices) {
        for (std::size_t index = 0; index < replicas_.size(); ++index) cut_power(index);
        for (fabric::emu::Machine* program : program_machines_) {
          if (program->powered() && choices.chance(1, 2)) program->kill();
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
                 for (fabric::emu::Machine* program : program_machines_) {
                   world_.drop_connections(*program, machine(index));
                 }
               }
             },
             {});
}

bool EmulatedLogWorld::undisturbed() const {
  if (rnic_troubles_ != 0) return false;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (replicas_[index].off || machine(index).starved()) return false;
    for (const fabric::emu::Machine* program : program_machines_) {
      if (world_.link(*program, machine(index)) != LinkState::Up) return false;
    }
  }
  return !armed_;
}

void EmulatedLogWorld::set_links(std::size_t index, LinkState state, bool all_programs) {
  for (std::size_t program = 0; program < program_machines_.size(); ++program) {
    if (!all_programs && program != newest_) continue;
    world_.set_link(*program_machines_[program], machine(index), state);
  }
  if (all_programs) world_.set_link(*reader_machine_, machine(index), state);
}

void EmulatedLogWorld::add_links() {
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
        if (!runs(*victim)) return false;
        tell("{} gets no processor", name_of(*victim));
        machine(*victim).starve(true);
        return true;
      },
      [this, victim] { machine(*victim).starve(false); });
  add_lasting(
      "clock-jumps", 2, 20,
      [this](Random&) {
        clock_.jumps = true;
        return true;
      },
      [this] { clock_.jumps = false; });
}

void EmulatedLogWorld::add_media() {
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
          if (replicas_[*victim].off) return false;
          tell("the medium of replica{} refuses to sync: {}", *victim, kind.name);
          servers_[*victim]->region().refuse_flushes(kind.code, 1 + choices.below(3), random_);
          return true;
        },
        [this, victim] {
          // The operator has seen to it, and starts the daemon anew.
          servers_[*victim]->region().refuse_flushes(ErrorCode::SystemError, 0, random_);
          if (replicas_[*victim].off) return;
          servers_[*victim]->kill();
          start(*victim);
        });
  }
}

/// What RNICs do to those who count on them: they start anew, or keep a key that was taken away.
void EmulatedLogWorld::add_rnics() {
  const auto was_reset = std::make_shared<std::optional<std::size_t>>();
  add_strike(
      "rnic-reset", 2, 4,
      [this, was_reset](Random& choices) {
        const std::size_t index = choices.below(replicas_.size());
        // With a battery behind it, what the RNIC has acknowledged counts as kept, and a reset
        // takes it: that is why docs/hardware.md says when not to declare one.
        if (!runs(index) || servers_[index]->region().domain() == PersistenceDomain::Wsp) return;
        tell("the RNIC of {} is reset", name_of(index));
        *was_reset = index;
        ++rnic_troubles_;
        machine(index).reset_rnic();
      },
      [this, was_reset] {
        if (!was_reset->has_value()) return;
        const std::size_t index = **was_reset;
        was_reset->reset();
        --rnic_troubles_;
        if (replicas_[index].off) return;
        servers_[index]->kill();  // the operator starts its daemon anew
        start(index);
      });
  const auto victim = std::make_shared<std::size_t>(0);
  add_lasting(
      "keys-kept", 2, 8,
      [this, victim](Random& choices) {
        *victim = choices.below(replicas_.size());
        if (!runs(*victim)) return false;
        tell("the RNIC of {} takes no key away", name_of(*victim));
        ++rnic_troubles_;
        machine(*victim).refuse_revocations(true);
        return true;
      },
      [this, victim] {
        --rnic_troubles_;
        machine(*victim).refuse_revocations(false);
      });
}

}  // namespace perdure::test
