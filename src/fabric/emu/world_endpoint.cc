// An end of a connection in the world: every poll lets the world go on.
#include "core/assert.h"
#include "fabric/emu/world.h"
#include "fabric/emu/world_connection.h"

namespace perdure::fabric::emu {

namespace {

/// Steps of the world that one poll makes at most.
constexpr std::uint64_t kStepsPerPoll = 32;

}  // namespace

WorldEndpoint::WorldEndpoint(World& world, std::shared_ptr<WorldConnection> connection, int side)
    : world_(world), connection_(std::move(connection)), side_(side) {}

WorldEndpoint::~WorldEndpoint() {
  disconnect();
  side().gone = true;
}

Result<std::size_t> WorldEndpoint::post(std::span<const WorkRequest> requests) {
  if (side().down) return is_down();
  world_.cpu_event(*side().machine, Nanoseconds{0});
  if (side().down) return is_down();
  return side().send.post(requests, side().completions.sends(),
                          world_.clock_.now() + world_.times_.post());
}

Result<void> WorldEndpoint::post_receive(const Segment& buffer, std::uint64_t context) {
  if (side().down) return is_down();
  WorldSide& own = side();
  if (own.inbound.receives_posted() + own.completions.receives() >= own.limits.receive_depth) {
    return Error{ErrorCode::QueueFull, "as many receive buffers are posted as the queue holds"};
  }
  auto place = own.machine->memory_.find_local(buffer);
  if (!place && buffer.length > 0) {
    return Error{ErrorCode::InvalidArgument,
                 "a receive buffer outside of memory registered with this device"};
  }
  if (!place) place = nowhere();
  world_.cpu_event(*own.machine, Nanoseconds{0});
  if (own.down) return is_down();
  own.inbound.post_receive(std::move(*place), context);
  return {};
}

std::size_t WorldEndpoint::poll(std::span<Completion> completions) {
  std::size_t taken = side().completions.take(completions);
  if (completions.empty() || side().gone) return taken;
  if (!world_.in_actor_) world_.wake_actors();
  // A few steps even when there was something, so that what happens between polls varies.
  std::uint64_t steps = taken == 0 ? kStepsPerPoll : world_.random_.below(3);
  // In time, nothing that comes later may happen inside of a program that finds nothing to do.
  if (world_.in_actor_ && world_.options_.order == World::Options::Order::InTime) steps = 0;
  const bool down_before = side().down;
  for (; steps > 0; --steps) {
    // Only a program that nobody called can be said to wait.
    if (!(world_.in_actor_ ? world_.step() : world_.wait_step())) break;
    if (!side().completions.empty() || side().down != down_before) break;
  }
  taken += side().completions.take(completions.subspan(taken));
  return taken;
}

bool WorldEndpoint::connected() const { return !side().down; }

void WorldEndpoint::disconnect() {
  if (side().down) return;
  world_.send_last(*connection_, side_);
  world_.break_connection(*connection_);
  world_.go_down(*connection_, side_);
}

Result<void> WorldEndpoint::sever() {
  if (side().machine->memory_.refuses_revocations()) return revocation_refused();
  disconnect();
  return {};
}

}  // namespace perdure::fabric::emu
