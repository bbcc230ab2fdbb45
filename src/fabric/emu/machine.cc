// A machine of the world: registration, listening and connecting, and its power switch.
#include "core/assert.h"
#include "core/try.h"
#include "fabric/emu/world.h"
#include "fabric/emu/world_connection.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::fabric::emu {

namespace {

Error no_power(const std::string& name) {
  return {ErrorCode::Disconnected, fmt::format("{} has lost its power: turn it on first", name)};
}

std::unique_ptr<Endpoint> endpoint_of(World& world,
                                      const std::shared_ptr<WorldConnection>& connection,
                                      int side) {
  return std::make_unique<WorldEndpoint>(world, connection, side);
}

}  // namespace

Machine::Machine(World& world, std::string name, const ServerProfile& profile,
                 const RnicSwitches& switches)
    : world_(world),
      name_(std::move(name)),
      profile_(profile),
      switches_(switches),
      memory_(world.random_.next(), profile.dma_dirties) {
  memory_.place_late(switches.places_late);
  memory_.use_windows(switches);
}

Machine::~Machine() = default;

pmem::CrashableRegion& Machine::add_region(std::uint64_t bytes) {
  auto region = pmem::CrashableRegion::open({.bytes = bytes, .domain = profile_.domain});
  PERDURE_ASSERT(region.ok());
  own_regions_.push_back(std::move(*region));
  attach(*own_regions_.back());
  return *own_regions_.back();
}

void Machine::attach(pmem::CrashableRegion& region) {
  const bool pages = region.domain() == PersistenceDomain::Page;
  region.watch_flushes([this, pages](std::uint64_t units) {
    const Times& times = world_.times();
    world_.cpu_event(*this, pages ? times.flush_pages() : times.flush_lines(units));
  });
  regions_.push_back(&region);
  memory_.add_region(region);
}

void Machine::add_actor(std::function<bool()> actor) {
  PERDURE_ASSERT(powered_);
  auto added = std::make_shared<World::Actor>();
  serves_ = true;
  added->machine = this;
  added->run = std::move(actor);
  world_.actors_.push_back(std::move(added));
}

void Machine::power_cut() {
  PERDURE_ASSERT(powered_);
  world_.lose_power(*this);
}

void Machine::kill() {
  PERDURE_ASSERT(powered_);
  world_.halt(*this, false);
}

void Machine::reset_rnic() {
  PERDURE_ASSERT(powered_);
  world_.reset_rnic(*this);
}

void Machine::starve(bool starved) {
  starved_ = starved;
  world_.wake_actors();
}

void World::lose_power(Machine& machine) { halt(machine, true); }

/// The ends of a connection that are on a machine which stops: its power is lost, or its programs.
void World::lose_ends(WorldConnection& connection, const Machine& machine, bool power) {
  for (WorldSide& side : connection.sides) {
    if (side.machine != &machine || side.gone) continue;
    if (power) {
      side.inbound.power_cut(random_);
    } else {
      side.inbound.close(random_);
    }
    CompletionQueue lost;
    side.send.break_all(lost);
    side.completions = CompletionQueue{};
    side.down = true;
    side.gone = true;
  }
}

void World::halt(Machine& machine, bool power) {
  if (cut_machine_ == &machine) cut_machine_ = nullptr;
  // In this order: what was in flight may still arrive, then the RNIC stops, then the medium.
  for (const auto& connection : connections_) {
    const bool concerned = std::ranges::any_of(
        connection->sides, [&](const WorldSide& side) { return side.machine == &machine; });
    if (!concerned) continue;
    send_last(*connection, 0);
    send_last(*connection, 1);
    break_connection(*connection);
    lose_ends(*connection, machine, power);
  }
  machine.powered_ = false;
  machine.starved_ = false;
  for (pmem::CrashableRegion* region : machine.regions_) {
    if (!region->powered()) continue;
    if (power) {
      region->power_cut(random_);
    } else {
      region->stop();
    }
  }
  machine.memory_.revoke_all();
  for (auto& actor : actors_) actor->stopped = actor->stopped || actor->machine == &machine;
  if (!in_actor_) std::erase_if(actors_, [](const auto& actor) { return actor->stopped; });
  close_listeners(machine);
  ++progress_;
}

void World::close_listeners(const Machine& machine) {
  std::erase_if(listeners_, [&](auto& named) {
    if (named.second->machine != &machine) return false;
    named.second->closed = true;
    for (auto& knock : named.second->knocks) knock->state = Knock::State::Rejected;
    return true;
  });
}

void World::reset_rnic(Machine& machine) {
  for (const auto& connection : connections_) {
    for (std::size_t index = 0; index < connection->sides.size(); ++index) {
      WorldSide& side = connection->sides[index];
      if (side.machine != &machine || side.gone) continue;
      send_last(*connection, 0);
      send_last(*connection, 1);
      break_connection(*connection);
      side.inbound.reset(random_);
      go_down(*connection, static_cast<int>(index));
    }
  }
  machine.memory_.revoke_all();
  for (auto& [address, listener] : listeners_) listener->reset |= listener->machine == &machine;
  close_listeners(machine);
  ++progress_;
}

void Machine::power_on() {
  PERDURE_ASSERT(!powered_);
  for (pmem::CrashableRegion* region : regions_) region->power_on();
  powered_ = true;
}

Result<std::unique_ptr<Memory>> Machine::register_memory(std::span<std::byte> range,
                                                         Access access) {
  if (!powered_) return no_power(name_);
  return memory_.register_memory(range, access);
}

Result<std::unique_ptr<Memory>> Machine::open_window(std::shared_ptr<Memory> over, Access access) {
  if (!powered_) return no_power(name_);
  if (window_kind(over->bytes().size()) != WindowKind::Bound) {
    return register_memory(over->bytes(), access);
  }
  if (over->is_lost()) {
    return Error{ErrorCode::SystemError, "a window over memory that is not registered any more"};
  }
  return memory_.open_window(*over, access);
}

Result<std::unique_ptr<Listener>> Machine::listen(const std::string& address,
                                                  const EndpointOptions& options) {
  if (!powered_) return no_power(name_);
  auto state = std::make_shared<ListenerState>();
  state->machine = this;
  state->options = options;
  state->address = address.empty() ? fmt::format("{}:{}", name_, world_.next_listener_++) : address;
  if (!world_.listeners_.emplace(state->address, state).second) {
    return Error{ErrorCode::Busy, fmt::format("{} is being listened on already", address)};
  }
  return std::unique_ptr<Listener>(std::make_unique<WorldListener>(world_, std::move(state)));
}

Result<std::unique_ptr<Endpoint>> Machine::connect(const std::string& address,
                                                   std::span<const std::byte> private_data,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) {
  if (!powered_) return no_power(name_);
  if (private_data.size() > kPrivateBytesMax) {
    return Error{ErrorCode::InvalidArgument, "too much private data to connect with"};
  }
  const auto found = world_.listeners_.find(address);
  if (found == world_.listeners_.end()) {
    return Error{ErrorCode::Disconnected, fmt::format("nothing listens at {}", address)};
  }
  constexpr std::uint64_t kOneInLost = 8;
  const LinkState link = world_.link(*this, *found->second->machine);
  if (link == LinkState::Cut ||
      (link == LinkState::Lossy && world_.random_.chance(1, kOneInLost))) {
    world_.pass(deadline.left());
    return Error{ErrorCode::TimedOut, fmt::format("{} did not answer in time", address)};
  }
  auto knock = std::make_shared<Knock>();
  knock->from = this;
  knock->options = options;
  knock->private_data.assign(private_data.begin(), private_data.end());
  found->second->knocks.push_back(knock);

  world_.wake_actors();
  for (std::uint64_t steps = 0; steps < kWaitStepsMax && !deadline.passed(); ++steps) {
    if (knock->state != Knock::State::Waiting) break;
    (void)world_.wait_step();
    world_.wake_actors();
  }
  if (knock->state == Knock::State::Accepted) {
    return endpoint_of(world_, knock->connection, 0);
  }
  if (knock->state == Knock::State::Rejected) {
    return Error{ErrorCode::Disconnected, fmt::format("{} refused the connection", address)};
  }
  knock->state = Knock::State::Rejected;
  return Error{ErrorCode::TimedOut, fmt::format("{} did not answer in time", address)};
}

std::string Machine::describe() const {
  return fmt::format("emu (software RNIC, seeded), machine {}: {}", name_,
                     perdure::describe(profile_));
}

WorldListener::~WorldListener() {
  state_->closed = true;
  for (auto& knock : state_->knocks) knock->state = Knock::State::Rejected;
  const auto found = world_.listeners_.find(state_->address);
  if (found != world_.listeners_.end() && found->second == state_) world_.listeners_.erase(found);
}

/// At the same address, as the verbs provider does it; not where somebody else does by now.
void WorldListener::listen_again() {
  state_->reset = false;
  state_->closed = !world_.listeners_.emplace(state_->address, state_).second;
}

Result<std::unique_ptr<Incoming>> WorldListener::next(Deadline deadline) {
  if (state_->reset && state_->machine->powered()) listen_again();
  // An actor that only looks, with a deadline that has passed, is no reason for others to look.
  if (!deadline.passed()) world_.wake_actors();
  for (std::uint64_t steps = 0; steps < kWaitStepsMax; ++steps) {
    if (state_->closed) return Error{ErrorCode::Disconnected, "the listener is closed"};
    if (!state_->knocks.empty()) {
      auto knock = state_->knocks.front();
      state_->knocks.pop_front();
      if (knock->state != Knock::State::Waiting) continue;
      return std::unique_ptr<Incoming>(
          std::make_unique<WorldIncoming>(world_, state_, std::move(knock)));
    }
    if (deadline.passed()) break;
    (void)world_.wait_step();
  }
  return Error{ErrorCode::TimedOut, "no peer asked for a connection in time"};
}

WorldIncoming::~WorldIncoming() {
  if (knock_->state == Knock::State::Waiting) knock_->state = Knock::State::Rejected;
}

Result<std::unique_ptr<Endpoint>> WorldIncoming::accept(Deadline) {
  const bool waiting = knock_->state == Knock::State::Waiting;
  if (!waiting || !knock_->from->powered() || !state_->machine->powered()) {
    return Error{ErrorCode::Disconnected, "the peer has gone"};
  }
  knock_->connection =
      world_.make_connection(*knock_->from, *state_->machine, knock_->options, state_->options);
  knock_->state = Knock::State::Accepted;
  return endpoint_of(world_, knock_->connection, 1);
}

Result<std::unique_ptr<Endpoint>> WorldIncoming::accept_through(Device&, Memory& window,
                                                                Deadline deadline) {
  Machine& machine = *state_->machine;
  if (!machine.memory_.may_bind(window.key())) {
    knock_->state = Knock::State::Rejected;
    return window_refused(window.bytes().size());
  }
  PERDURE_TRY(endpoint, accept(deadline));
  const std::uint64_t connection = knock_->connection->sides[1].inbound.connection();
  if (machine.memory_.bind(window.key(), connection)) ++machine.counters_.windows_bound;
  return endpoint;
}

}  // namespace perdure::fabric::emu
