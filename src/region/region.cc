// The public face of regions: peers by address, and who may call.
#include <perdure/region.h>

#include <algorithm>

#include "client/dial.h"
#include "core/bounded_time.h"
#include "core/forks.h"
#include "core/sampled_times.h"
#include "core/try.h"
#include "region/replicated_region.h"

namespace perdure {
namespace {

/// How long the end of a region waits for replicas that lag.
constexpr Nanoseconds kEndWithin = std::chrono::seconds(1);

using Sampled = SampledTimes<region::ReplicatedRegion, RegionTicket, RegionTimes>;

}  // namespace

class Region::State {
 public:
  client::Dialer dialer;  // owns the devices: outlives the region's connections
  std::unique_ptr<region::ReplicatedRegion> region;
  Sampled times;  // of updates
  TimeCounts reads;
  TimeCounts atomics;
  bool closed = false;
  const std::uint32_t process = forks_so_far();

  /// Counts how long a call took that succeeded.
  template <typename Call>
  auto timed(TimeCounts& counts, const Call& call) {
    const Nanoseconds since = Clock::monotonic().now();
    auto result = call();
    if (result.ok()) counts.add(Clock::monotonic().now() - since);
    times.note(*region);
    return result;
  }
  Result<std::uint64_t> atomic(const persist::Atomic& what) {
    return timed(atomics, [&] { return region->atomic(what); });
  }

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// A program that ends without close() leaves replicas that are known to be whole all the same.
  ~State() {
    if (region != nullptr && !closed) (void)region->close(kEndWithin);
  }
};

void Region::Delete::operator()(State* state) const {
  // In a child its connections are the parent's: whatever would end them stays.
  if (state->process == forks_so_far()) delete state;
}

Result<Region> Region::open(RegionOptions options) {
  std::unique_ptr<State, Delete> state(new State);
  PERDURE_TRY_VOID(state->dialer.use_rnic(options.rnic));
  if (options.reconnect > std::chrono::milliseconds(0)) state->dialer.keep_apart();
  PERDURE_TRY(peers, state->dialer.dial_replicas(options.peers, options.transport));
  options.peer_timeout = bounded(options.peer_timeout);
  options.spin = bounded(options.spin);
  options.reconnect = bounded(options.reconnect);
  state->times = Sampled(std::min(options.level, Level::Durable));
  PERDURE_TRY(region, region::ReplicatedRegion::open(std::move(peers), options, Clock::monotonic(),
                                                     /*threads=*/true));
  state->region = std::move(region);
  return Region(std::move(state));
}

Region::Region(std::unique_ptr<State, Delete> state) : state_(std::move(state)) {}
Region::Region(Region&&) noexcept = default;
Region& Region::operator=(Region&&) noexcept = default;
Region::~Region() = default;

bool Region::readable() const { return state_ != nullptr && state_->process == forks_so_far(); }
bool Region::usable() const { return readable() && !state_->closed; }

Error Region::why_not() const {
  if (state_ == nullptr) return {ErrorCode::InvalidArgument, "this region was moved from"};
  if (state_->process != forks_so_far()) {
    return {ErrorCode::InvalidArgument,
            "this region belongs to the parent process: after fork() the child opens one of its "
            "own"};
  }
  return {ErrorCode::InvalidArgument, "this region is closed: open it again"};
}

std::uint64_t Region::bytes() const { return readable() ? state_->region->bytes() : 0; }

Result<RegionTicket> Region::write(std::span<const RangeEpoch> epochs) {
  if (!usable()) return why_not();
  Sampled& times = state_->times;
  const auto since = times.due() ? times.begin(*state_->region) : std::nullopt;
  auto begun = state_->region->write(epochs);
  times.end(begun, since);
  return begun;
}

Result<RegionTicket> Region::write(std::uint64_t at, std::span<const std::byte> bytes) {
  const RangeWrite range{at, bytes};
  const RangeEpoch epoch(&range, 1);
  return write({&epoch, 1});
}

Result<void> Region::wait(const RegionTicket& ticket, Level level,
                          std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  auto waited = state_->region->wait(ticket, level, bounded(timeout));
  state_->times.note(*state_->region);
  return waited;
}

Result<void> Region::flush(Level level, std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  auto flushed = state_->region->flush(level, bounded(timeout));
  state_->times.note(*state_->region);
  return flushed;
}

bool Region::reached(const RegionTicket& ticket, Level level) const {
  return readable() && state_->region->reached(ticket, level);
}

Result<void> Region::poll(std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  auto polled = state_->region->poll(bounded(timeout));
  state_->times.note(*state_->region);
  return polled;
}

Result<std::uint64_t> Region::fetch_add(std::uint64_t at, std::uint64_t addend) {
  if (!usable()) return why_not();
  return state_->atomic({persist::AtomicOperation::FetchAdd, at, addend, 0});
}

Result<std::uint64_t> Region::compare_swap(std::uint64_t at, std::uint64_t expected,
                                           std::uint64_t value) {
  if (!usable()) return why_not();
  return state_->atomic({persist::AtomicOperation::CompareSwap, at, value, expected});
}

Result<std::uint64_t> Region::store(std::uint64_t at, std::uint64_t value) {
  if (!usable()) return why_not();
  return state_->atomic({persist::AtomicOperation::Store, at, value, 0});
}

Result<void> Region::read(std::uint64_t at, std::span<std::byte> into, std::size_t replica) {
  if (!usable()) return why_not();
  return state_->timed(state_->reads, [&] { return state_->region->read(at, into, replica); });
}

Result<int> Region::completion_fd() {
  if (!usable()) return why_not();
  return state_->region->completion_fd();
}

bool Region::arm() { return usable() && state_->region->arm(); }

Result<void> Region::note_equal() {
  if (!usable()) return why_not();
  return state_->region->note_equal();
}

RegionStatus Region::status() const {
  if (!readable()) return {};
  return state_->region->status();
}

RegionTimes Region::times() const {
  if (!readable()) return {};
  RegionTimes times = state_->times.times();
  times.reads = state_->reads;
  times.atomics = state_->atomics;
  return times;
}

Result<void> Region::close(std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  state_->closed = true;
  return state_->region->close(bounded(timeout));
}

}  // namespace perdure
