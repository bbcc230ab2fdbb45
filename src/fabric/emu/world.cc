// The scheduler: which events are enabled, which one is next, what it does.
#include "fabric/emu/world.h"

#include "core/assert.h"
#include "fabric/emu/world_connection.h"

#include <algorithm>
#include <utility>

namespace perdure::fabric::emu {

namespace {

WorldSide& side_of(WorldConnection& connection, int side) {
  return connection.sides[static_cast<std::size_t>(side)];
}

/// Whether a datagram that is on the wire comes next, and no other is sent before.
bool datagram_comes(const WorldSide& sender, Random& random) {
  constexpr std::size_t kOnWireMax = 8;
  if (sender.on_wire.empty()) return false;
  return !sender.send.sendable() || sender.on_wire.size() >= kOnWireMax || random.chance(1, 2);
}

/// Whichever it is.
Operation take_datagram(WorldSide& sender, Random& random) {
  std::swap(sender.on_wire[random.below(sender.on_wire.size())], sender.on_wire.back());
  Operation operation = std::move(sender.on_wire.back());
  sender.on_wire.pop_back();
  return operation;
}

/// Whether any of an operation gets there over uc or ud, where nobody is told of what is lost. Of a
/// WRITE the first packets may have come; of a message nothing is left, since its receive buffer
/// waits for the next one.
bool survives(Operation& operation, const InboundQueue& inbound, bool lossy, Random& random) {
  constexpr std::uint64_t kOneInLost = 8;
  const bool lost = lossy && random.chance(1, kOneInLost);
  if (!lost && inbound.can_take(operation.opcode)) return true;
  const std::size_t lines = operation.data.size() / kCacheLineBytes;
  if (operation.opcode == Opcode::Send || lines == 0 || !inbound.can_take(Opcode::Write)) {
    return false;
  }
  operation.opcode = Opcode::Write;
  operation.data.resize(random.below(lines) * kCacheLineBytes);
  operation.truncated = true;
  return true;
}

}  // namespace

World::World(Random& random, const Options& options)
    : random_(random), options_(options), times_(*options.hardware) {}
World::~World() = default;

Machine& World::add_machine(std::string name, const ServerProfile& profile,
                            const RnicSwitches& switches) {
  machines_.push_back(std::make_unique<Machine>(*this, std::move(name), profile, switches));
  return *machines_.back();
}

std::shared_ptr<WorldConnection> World::make_connection(Machine& from, Machine& to,
                                                        const EndpointOptions& from_options,
                                                        const EndpointOptions& to_options) {
  PERDURE_ASSERT(from.powered());
  PERDURE_ASSERT(to.powered());
  connections_.push_back(std::make_shared<WorldConnection>(from, to, from_options, to_options));
  return connections_.back();
}

std::pair<std::unique_ptr<Endpoint>, std::unique_ptr<Endpoint>> World::connect(
    Machine& from, Machine& to, const EndpointOptions& options) {
  const auto connection = make_connection(from, to, options, options);
  return {std::make_unique<WorldEndpoint>(*this, connection, 0),
          std::make_unique<WorldEndpoint>(*this, connection, 1)};
}

void World::collect_events() {
  enabled_.clear();
  for (const auto& connection : connections_) {
    collect_side(*connection, 0);
    collect_side(*connection, 1);
  }
  if (in_actor_) return;
  if (wake_at_) enabled_.push_back({Kind::Wake, nullptr, 0, 0, std::max(*wake_at_, clock_.now())});
  for (std::size_t i = 0; i < actors_.size(); ++i) {
    if (actors_[i]->stopped || actors_[i]->idle_since == progress_) continue;
    if (actors_[i]->machine->starved()) continue;
    enabled_.push_back({Kind::Actor, nullptr, 0, i, clock_.now()});
  }
}

void World::collect_side(WorldConnection& connection, int index) {
  WorldSide& side = side_of(connection, index);
  WorldSide& peer = side_of(connection, 1 - index);
  if (side.gone && !side.machine->switches().places_late) return;
  // Most connections have nothing to do most of the time.
  if (!side.broken && side.send.in_flight() == 0 && side.on_wire.empty() && side.inbound.idle()) {
    return;
  }
  const auto add = [&](Kind kind, Nanoseconds at) {
    enabled_.push_back({kind, &connection, index, 0, at});
  };
  const auto opcode = side.send.sendable();
  // Over uc and ud nothing waits for a receive buffer: what finds none is lost.
  const bool taken = opcode && (side.qp_type != QpType::Rc || peer.inbound.can_take(*opcode));
  if ((taken || !side.on_wire.empty()) && !side.broken && may_move(connection)) {
    const Nanoseconds leaves =
        taken ? std::max(side.send.sendable_at(), side.wire_free_at) : clock_.now();
    add(Kind::Wire, leaves + times_.shortest_way());
  }
  if (const auto at = side.inbound.posted_ready()) add(Kind::Posted, *at);
  if (const auto at = side.inbound.non_posted_ready()) add(Kind::NonPosted, *at);
  if (side.down) return;
  if (const auto at = side.send.completable()) add(Kind::Complete, *at);
  if (const auto at = side.inbound.receive_ready()) {
    const Nanoseconds handle = side.machine->serves_ ? times_.handle() : Nanoseconds{0};
    add(Kind::Receive, *at + times_.notice() + handle);
  }
  if (side.broken && may_notice(connection) && side.inbound.idle()) add(Kind::Notice, clock_.now());
}

std::size_t World::choose() {
  if (options_.order == Options::Order::InTime) {
    const auto first = std::ranges::min_element(enabled_, {}, &Event::at);
    return static_cast<std::size_t>(first - enabled_.begin());
  }
  // Races that need one part of the machine to lag far behind are as rare under even odds as in
  // life. So for a while at a time one kind of event is held up, a different one each time.
  constexpr std::uint64_t kSlowEventsMax = 64;
  constexpr int kHoldsUp = 8;
  if (events_ >= slow_until_) {
    slow_ = static_cast<Kind>(random_.below(static_cast<std::uint64_t>(Kind::Actor) + 1));
    slow_until_ = events_ + 1 + random_.below(kSlowEventsMax);
  }
  std::size_t chosen = random_.below(enabled_.size());
  for (int i = 0; i < kHoldsUp && enabled_[chosen].kind == slow_; ++i) {
    chosen = random_.below(enabled_.size());
  }
  return chosen;
}

bool World::step() {
  // Bounded: every actor that finds nothing to do is not asked again before something happens.
  for (std::size_t tries = 0; tries <= actors_.size() + 1; ++tries) {
    collect_events();
    if (enabled_.empty()) return false;
    const Event event = enabled_[choose()];
    if (event.kind == Kind::Actor) {
      if (!run_actor(event.actor)) continue;
      count_event();
      return true;
    }
    if (clock_.now() < event.at) clock_.advance(event.at - clock_.now());
    run_event(event);
    ++progress_;
    drain_somewhere();
    count_event();
    forget_finished();
    return true;
  }
  return false;
}

void World::run_event(const Event& event) {
  if (event.kind == Kind::Wake) return wake_at_.reset();
  WorldConnection& connection = *event.connection;
  WorldSide& side = side_of(connection, event.side);
  switch (event.kind) {
    case Kind::Wire: return run_wire(connection, event.side);
    case Kind::Posted:
      side.inbound.step_posted(random_);
      if (!side.inbound.keeps_write_order()) {
        const Nanoseconds heard = times_.shortest_way() + times_.completion();
        acknowledge(connection, event.side, clock_.now() + heard);
      }
      return deliver_responses(connection, event.side);
    case Kind::NonPosted:
      side.inbound.step_non_posted(
          random_, options_.order == Options::Order::InTime ? clock_.now() : Nanoseconds::max());
      return deliver_responses(connection, event.side);
    case Kind::Complete: return run_complete(connection, event.side);
    case Kind::Receive: return side.completions.push(side.inbound.next_receive());
    case Kind::Notice: return go_down(connection, event.side);
    case Kind::Actor:
    case Kind::Wake: break;
  }
  PERDURE_ASSERT(event.kind != Kind::Actor);
}

void World::run_wire(WorldConnection& connection, int index) {
  constexpr std::uint64_t kOneInLost = 64;
  WorldSide& sender = side_of(connection, index);
  WorldSide& responder = side_of(connection, 1 - index);
  const bool reliable = sender.qp_type == QpType::Rc;
  const bool lossy = link(connection) == LinkState::Lossy;
  if (reliable && lossy && random_.chance(1, kOneInLost)) {
    send_last(connection, index);
    return break_connection(connection);
  }
  Nanoseconds leaves = clock_.now();
  std::optional<Operation> operation;
  if (datagram_comes(sender, random_)) {
    operation = take_datagram(sender, random_);
  } else {
    leaves = std::max(sender.send.sendable_at(), sender.wire_free_at);
    operation = sender.send.take_next();
    if (!operation) return;  // its memory is no longer registered: it completes with an error
    if (!reliable) sender.send.accepted(operation->sequence, leaves + times_.completion());
    if (sender.qp_type == QpType::Ud) return sender.on_wire.push_back(*std::move(operation));
  }
  if (!reliable && !survives(*operation, responder.inbound, lossy, random_)) return;
  leaves += times_.fetch(operation->data.size());
  sender.wire_free_at = leaves + times_.occupancy(operation->data.size());
  const Nanoseconds arrives = leaves + times_.way(operation->data.size());
  if (clock_.now() < arrives) clock_.advance(arrives - clock_.now());

  const std::uint64_t sequence = operation->sequence;
  const bool posted = is_posted(operation->opcode);
  operation->ready_at =
      arrives + (posted ? times_.visible()
                        : times_.effect(operation->opcode, operation->operand != 0,
                                        responder.machine->profile()));
  responder.inbound.take(std::move(*operation), random_);
  deliver_responses(connection, 1 - index);
  if (!posted || !reliable) return;
  const Nanoseconds heard = arrives + times_.shortest_way() + times_.completion();
  if (responder.inbound.keeps_write_order()) {
    sender.send.accepted(sequence, heard);
  } else {
    acknowledge(connection, 1 - index, heard);
  }
}

/// The requester hears of every operation up to the first that is not here whole.
void World::acknowledge(WorldConnection& connection, int responder, Nanoseconds at) {
  WorldSide& requester = side_of(connection, 1 - responder);
  if (requester.gone || requester.down) return;
  requester.send.accepted_up_to(side_of(connection, responder).inbound.acknowledged(), at);
}

void World::deliver_responses(WorldConnection& connection, int responder) {
  WorldSide& requester = side_of(connection, 1 - responder);
  while (auto response = side_of(connection, responder).inbound.next_response()) {
    if (requester.gone || requester.down) continue;
    const Nanoseconds at = clock_.now() + times_.way(response->data.size()) + times_.completion();
    // Nothing orders what several READs bring.
    const bool late = requester.send.brings_into_region(response->sequence) && random_.chance(1, 2);
    if (!requester.send.respond(*std::move(response), at, late)) break_connection(connection);
  }
}

void World::run_complete(WorldConnection& connection, int index) {
  WorldSide& side = side_of(connection, index);
  if (side.send.complete_next(side.completions)) {
    break_connection(connection);
    go_down(connection, index);
  }
}

bool World::run_actor(std::size_t index) {
  const std::shared_ptr<Actor> actor = actors_[index];
  const std::uint64_t progress_before = progress_;
  in_actor_ = true;
  const bool worked = actor->run();
  in_actor_ = false;
  if (worked) ++progress_;
  if (!worked && progress_ == progress_before) actor->idle_since = progress_;
  std::erase_if(actors_, [](const auto& each) { return each->stopped; });
  return worked;
}

void World::drain_somewhere() {
  if (options_.drain_one_in == 0 || !random_.chance(1, options_.drain_one_in)) return;
  const Machine& machine = *machines_[random_.below(machines_.size())];
  if (machine.regions_.empty()) return;
  (void)machine.regions_[random_.below(machine.regions_.size())]->drain_some(random_);
}

void World::forget_finished() {
  std::erase_if(connections_, [](const auto& connection) {
    return std::ranges::all_of(connection->sides, [](const WorldSide& side) {
      return (side.down || side.gone) && side.inbound.idle();
    });
  });
}

bool World::settle(std::uint64_t steps_max) {
  return run_until([] { return false; }, steps_max) || !step();
}

bool World::run_until(const std::function<bool()>& condition, std::uint64_t steps_max) {
  wake_actors();
  for (std::uint64_t steps = 0; steps < steps_max; ++steps) {
    if (condition()) return true;
    if (!step()) break;
  }
  return condition();
}

void World::cut_after(Machine& machine, std::uint64_t events) {
  PERDURE_ASSERT(events > 0);
  cut_machine_ = &machine;
  cut_at_ = events_ + events;
}

void World::after(std::uint64_t events, std::function<void()> happens) {
  PERDURE_ASSERT(events > 0);
  happens_ = std::move(happens);
  happens_at_ = events_ + events;
}

void World::set_link(const Machine& one, const Machine& other, LinkState state) {
  std::erase_if(links_, [&](const Link& link) {
    return (link.one == &one && link.other == &other) || (link.one == &other && link.other == &one);
  });
  if (state != LinkState::Up) links_.push_back({&one, &other, state});
  ++progress_;
}

LinkState World::link(const Machine& one, const Machine& other) const {
  for (const Link& link : links_) {
    const bool same =
        (link.one == &one && link.other == &other) || (link.one == &other && link.other == &one);
    if (same) return link.state;
  }
  return LinkState::Up;
}

LinkState World::link(const WorldConnection& connection) const {
  if (links_.empty()) return LinkState::Up;
  return link(*connection.sides[0].machine, *connection.sides[1].machine);
}

bool World::may_notice(const WorldConnection& connection) const {
  return link(connection) != LinkState::Cut;
}

bool World::may_move(const WorldConnection& connection) {
  constexpr std::uint64_t kSlowMovesOneIn = 16;
  const LinkState state = link(connection);
  return state != LinkState::Cut &&
         (state != LinkState::Slow || random_.chance(1, kSlowMovesOneIn));
}

void World::drop_connections(const Machine& one, const Machine& other) {
  for (const auto& connection : connections_) {
    const Machine* from = connection->sides[0].machine;
    const Machine* to = connection->sides[1].machine;
    if (!((from == &one && to == &other) || (from == &other && to == &one))) continue;
    send_last(*connection, 0);
    send_last(*connection, 1);
    break_connection(*connection);
  }
  ++progress_;
}

void World::pass(Nanoseconds time) {
  const Deadline deadline(clock_, time);
  wake_actors();
  for (std::uint64_t steps = 0; steps < kWaitStepsMax && !deadline.passed(); ++steps) {
    (void)wait_step();
  }
}

void World::count_event() {
  ++events_;
  if (happens_ && events_ >= happens_at_) std::exchange(happens_, nullptr)();
  if (cut_machine_ == nullptr || events_ < cut_at_) return;
  std::exchange(cut_machine_, nullptr)->power_cut();
}

void World::cpu_event(const Machine& machine, Nanoseconds takes) {
  if (!machine.powered()) return;
  clock_.advance(takes);
  count_event();
  if (machine.powered()) ++progress_;
}

bool World::wait_step() {
  if (step()) {
    idle_time_ = kIdlePollTime;
    return true;
  }
  clock_.advance(idle_time_);
  idle_time_ = std::min(2 * idle_time_, kIdlePollTimeMax);
  return false;
}

void World::break_connection(WorldConnection& connection) {
  for (WorldSide& side : connection.sides) side.broken = true;
}

void World::go_down(WorldConnection& connection, int index) {
  WorldSide& side = side_of(connection, index);
  if (side.machine->switches().places_late)
    side.inbound.close_late();
  else
    side.inbound.close(random_);
  side.send.break_all(side.completions);
  side.broken = true;
  side.down = true;
}

void World::send_last(WorldConnection& connection, int index) {
  if (link(connection) == LinkState::Cut) return;
  WorldSide& side = side_of(connection, index);
  WorldSide& peer = side_of(connection, 1 - index);
  while (!side.broken && !side.down && random_.chance(1, 2)) {
    const auto opcode = side.send.sendable();
    if (!opcode || !peer.inbound.can_take(*opcode)) break;
    auto operation = side.send.take_next();
    if (!operation) break;
    operation->ready_at = clock_.now() + times_.shortest_way();
    const bool whole = !is_posted(operation->opcode) || random_.chance(1, 2);
    if (!whole && !operation->data.empty()) {
      const std::size_t lines = operation->data.size() / kCacheLineBytes + 1;
      const std::size_t arrived = random_.below(lines) * kCacheLineBytes;
      operation->data.resize(std::min(arrived, operation->data.size()));
      operation->truncated = true;
    }
    peer.inbound.take(std::move(*operation), random_);
    if (!whole) break;
  }
}

}  // namespace perdure::fabric::emu
