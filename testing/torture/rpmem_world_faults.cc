// What goes wrong with a program on librpmem and its target: see rpmem_world.h.
#include <memory>
#include <utility>

#include "testing/torture/rpmem_world.h"

namespace perdure::test {

using fabric::emu::LinkState;

void RpmemWorld::add_strike(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                            std::function<void(Random&)> strike) {
  const auto strikes = [this, name, strike = std::move(strike)](Random& choices) {
    tell("     {}{}", name, calls_ ? ", in a call" : "");
    struck_ = true;
    strike(choices);
  };
  faults_.push_back(strike_fault(world_, armed_,
                                 {std::move(name),
                                  weight,
                                  lasts_max,
                                  strikes,
                                  [this] {
                                    if (!target_->machine().powered()) target_->start_again();
                                  },
                                  {}}));
}

void RpmemWorld::add_lasting(std::string name, std::uint32_t lasts_max,
                             std::function<bool(Random&)> begin, std::function<void()> end) {
  Fault fault;
  fault.name = std::move(name);
  fault.lasts_max = lasts_max;
  fault.begin = [this, name = fault.name, begin = std::move(begin)](Random& choices) {
    if (!begin(choices)) return false;
    tell("     {} from here on", name);
    ++lasting_;
    troubled_ = true;
    return true;
  };
  fault.met = [] { return true; };
  fault.end = [this, end = std::move(end)] {
    --lasting_;
    end();
  };
  faults_.push_back(std::move(fault));
}

void RpmemWorld::add_faults() {
  add_strike("power-cut", 6, 4, [this](Random&) {
    if (!target_->machine().powered()) return;
    troubled_ = true;
    counts_["power_cuts_counted"] += calls_ ? 1 : 0;
    target_->lose_power();
  });
  add_strike("rpmemd-killed", 4, 3, [this](Random&) {
    if (!target_->machine().powered()) return;
    troubled_ = true;
    ++counts_["kills"];
    target_->kill();
  });
  add_strike("connections-drop", 3, 1, [this](Random&) {
    dropped_ = true;
    for (const Place& place : places_) {
      world_.drop_connections(*place.machine, target_->machine());
    }
  });
  add_strike("rnic-reset", 2, 3, [this](Random&) {
    // What a battery is to keep, a reset takes: docs/hardware.md says when not to declare one.
    const bool battery = target_->region().domain() == PersistenceDomain::Wsp;
    if (battery || !target_->machine().powered()) return;
    troubled_ = true;
    target_->machine().reset_rnic();
  });
  Fault dies;
  dies.name = "program-killed";
  dies.begin = [this](Random& choices) {
    if (here().pool == nullptr || armed_) return false;
    end_life(choices, choices.chance(1, 4));
    return true;
  };
  dies.met = [] { return true; };
  dies.end = [] {};
  faults_.push_back(std::move(dies));
  add_links();
  add_media();
}

void RpmemWorld::add_links() {
  struct Kind {
    const char* name;
    LinkState state;
  };
  for (const Kind kind : {Kind{"slow-link", LinkState::Slow}, Kind{"lossy-link", LinkState::Lossy},
                          Kind{"partition", LinkState::Cut}}) {
    const auto set = [this](std::size_t place, LinkState state) {
      world_.set_link(*places_[place].machine, target_->machine(), state);
    };
    const auto victim = std::make_shared<std::size_t>(0);
    add_lasting(
        kind.name, 8,
        [this, set, kind, victim](Random& choices) {
          *victim = choices.chance(3, 4) ? here_ : 1 - here_;
          set(*victim, kind.state);
          return true;
        },
        [set, victim] { set(*victim, LinkState::Up); });
  }
  add_lasting(
      "starvation", 4,
      [this](Random&) {
        target_->machine().starve(true);
        return true;
      },
      [this] { target_->machine().starve(false); });
  add_lasting(
      "clock-jumps", 10,
      [this](Random&) {
        clock_.jumps = true;
        return true;
      },
      [this] { clock_.jumps = false; });
}

/// The rpmemd that meets it believes nothing of its parts any more; the next one finds the medium
/// as it is.
void RpmemWorld::add_media() {
  struct Kind {
    const char* name;
    ErrorCode code;
  };
  for (const Kind kind :
       {Kind{"sync-error", ErrorCode::SystemError}, Kind{"full-disk", ErrorCode::NoSpace}}) {
    add_lasting(
        kind.name, 8,
        [this, kind](Random& choices) {
          if (!target_->machine().powered()) return false;
          refused_ = true;
          target_->refuse_flushes(kind.code, 1 + choices.below(3), random_);
          return true;
        },
        [this] { target_->refuse_flushes(ErrorCode::SystemError, 0, random_); });
  }
}

}  // namespace perdure::test
