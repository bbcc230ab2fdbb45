// What goes wrong with a server of durable RPC and its clients: see rpc_world.h.
#include <memory>

#include "testing/torture/rpc_world.h"

namespace perdure::test {

using fabric::emu::LinkState;

void RpcWorld::add_strike(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                          std::function<void(Random&)> strike, std::function<void()> end) {
  faults_.push_back(strike_fault(world_, armed_,
                                 {std::move(name), weight, lasts_max, std::move(strike),
                                  std::move(end), [this] { bury_the_dead(); }}));
}

/// `met`: empty if every operation meets it while it lasts.
void RpcWorld::add_lasting(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                           std::function<bool(Random&)> begin, std::function<bool()> met,
                           std::function<void()> end) {
  Fault fault;
  fault.name = std::move(name);
  fault.weight = weight;
  fault.lasts_max = lasts_max;
  fault.begin = [this, begin = std::move(begin), what = fault.name](Random& choices) {
    if (!begin(choices)) return false;
    tell("     {} from here on", what);
    return true;
  };
  fault.met = met ? std::move(met) : [] { return true; };
  fault.end = std::move(end);
  faults_.push_back(std::move(fault));
}

void RpcWorld::add_faults() {
  add_crashes();
  add_handlers();
  add_links();
  add_media();
}

void RpcWorld::end_server(bool power) {
  if (!serving()) return;
  const bool in_flight = judge_.in_flight();  // clients are in the midst of something
  tell("     {}{}", power ? "the power of the server fails" : "the server is killed",
       in_flight ? "" : ", nothing in flight");
  if (power && in_flight) ++counts_["power_cuts_counted"];
  if (!power) ++counts_["kills"];
  if (power) {
    machine_->power_cut();
  } else {
    machine_->kill();
  }
}

void RpcWorld::kill_client(Random& choices) {
  Person& person = persons_[choices.below(kPersons)];
  if (person.caller == nullptr || !person.machine->powered()) return;
  tell("     {} is killed", person.name);
  person.machine->kill();
}

void RpcWorld::add_crashes() {
  const auto back = [this] { start(); };
  add_strike(
      "power-cut", 6, 6, [this](Random&) { end_server(true); }, back);
  add_strike(
      "power-cut-again", 4, 3,
      [this](Random& choices) {
        end_server(true);
        recovery_cuts_ = 1 + choices.below(2);
      },
      back);
  add_strike(
      "server-kill", 4, 6, [this](Random&) { end_server(false); }, back);
  add_strike("client-kill", 4, 1, [this](Random& choices) { kill_client(choices); }, {});
  add_strike(
      "both-killed", 3, 3,
      [this](Random& choices) {
        end_server(choices.chance(1, 2));
        kill_client(choices);
      },
      back);
}

void RpcWorld::add_handlers() {
  add_lasting(
      "stuck-handler", 3, 6, [this](Random&) { return stuck_ = true; }, {},
      [this] { stuck_ = false; });
  add_lasting(
      "slow-handler", 2, 8, [this](Random&) { return slow_ = true; }, {},
      [this] { slow_ = false; });
  const auto thrown_before = std::make_shared<std::uint64_t>(0);
  add_lasting(
      "handler-throws", 4, 12,
      [this, thrown_before](Random& choices) {
        *thrown_before = thrown_;
        throws_for_ = static_cast<std::uint32_t>(choices.below(3));
        return true;
      },
      [this, thrown_before] { return thrown_ != *thrown_before; }, [this] { throws_for_.reset(); });
  const auto died_before = std::make_shared<std::uint64_t>(0);
  add_lasting(
      "handler-kills", 4, 12,
      [this, died_before](Random& choices) {
        *died_before = died_;
        dies_for_ = static_cast<std::uint32_t>(choices.below(3));
        return true;
      },
      [this, died_before] {
        const bool died = died_ != *died_before;
        // Its operator starts it again, and again.
        if (died && !machine_->powered()) start();
        return died;
      },
      [this] {
        dies_for_.reset();
        if (!machine_->powered()) start();
      });
}

void RpcWorld::add_links() {
  struct Kind {
    const char* name;
    LinkState state;
  };
  for (const Kind kind : {Kind{"slow-link", LinkState::Slow}, Kind{"lossy-link", LinkState::Lossy},
                          Kind{"partition", LinkState::Cut}}) {
    add_lasting(
        kind.name, 2, 8,
        [this, kind](Random& choices) {
          const std::uint64_t whose = choices.below(2 * kPersons);
          for (std::size_t person = 0; person < kPersons; ++person) {
            if (whose < kPersons && whose != person) continue;
            world_.set_link(*persons_[person].machine, *machine_, kind.state);
          }
          return true;
        },
        {},
        [this] {
          for (const Person& each : persons_) {
            world_.set_link(*each.machine, *machine_, LinkState::Up);
          }
        });
  }
  add_strike("connections-drop", 4, 1,
             [this](Random& choices) {
               const std::uint64_t whose = choices.below(2 * kPersons);
               tell("     connections drop");
               for (std::size_t person = 0; person < kPersons; ++person) {
                 if (whose < kPersons && whose != person) continue;
                 world_.drop_connections(*persons_[person].machine, *machine_);
               }
             },
             {});
  add_lasting(
      "starvation", 2, 6,
      [this](Random&) {
        machine_->starve(true);
        return true;
      },
      {}, [this] { machine_->starve(false); });
  add_lasting(
      "clock-jumps", 2, 12, [this](Random&) { return clock_.jumps = true; }, {},
      [this] { clock_.jumps = false; });
}

void RpcWorld::add_media() {
  struct Kind {
    const char* name;
    ErrorCode code;
  };
  for (const Kind kind :
       {Kind{"sync-error", ErrorCode::SystemError}, Kind{"full-disk", ErrorCode::NoSpace}}) {
    add_lasting(
        kind.name, 2, 8,
        [this, kind](Random& choices) {
          if (!serving()) return false;
          region_->refuse_flushes(kind.code, 1 + choices.below(3), random_);
          return true;
        },
        {},
        [this] {
          // Its operator has seen to it, and starts the server anew.
          region_->refuse_flushes(ErrorCode::SystemError, 0, random_);
          if (serving()) restart(Ends::Killed);
        });
  }
  add_strike(
      "rnic-reset", 2, 4,
      [this](Random&) {
        // What it has acknowledged counts as kept there: docs/hardware.md.
        if (!serving() || profile_.domain == PersistenceDomain::Wsp) return;
        tell("     the RNIC of the server is reset");
        machine_->reset_rnic();
      },
      [this] {
        if (serving()) restart(Ends::Killed);
      });
}

}  // namespace perdure::test
