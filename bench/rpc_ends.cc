#include "bench/rpc_ends.h"

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace perdure::bench {
namespace {

Nanoseconds nanoseconds(double value) { return Nanoseconds(static_cast<std::int64_t>(value)); }

}  // namespace

bool RpcProcessor::work(const void* who, Nanoseconds now, Nanoseconds takes,
                        const RpcEmulatedTimes* emulated) {
  if (takes == Nanoseconds{0}) return true;
  if (at_ == nullptr) {
    at_ = who;
    until_ = now + takes;
  }
  if (at_ == who && now >= until_) {
    at_ = nullptr;
    return true;
  }
  if (emulated != nullptr) emulated->wake_at(until_);
  return false;
}

RpcServerState::RpcServerState(const RpcPoint& asked, const Clock& by)
    : point(asked), clock(by), confounders(asked.effective()), objects(asked.load) {}

void RpcObjectHandler::flush(std::span<const std::byte> bytes) {
  if (!state_.flush) return;
  state_.flush->lines(bytes);
  pmem::store_fence();
}

std::size_t RpcObjectHandler::handle(std::span<const std::byte> request,
                                     std::span<std::byte> reply) {
  ++state_.executed;
  std::size_t at = 0;
  std::size_t bytes = 0;
  const bool leaves_payload =
      state_.confounders.leaves_payload && state_.point.design == &rpc::models::kSRflush;
  while (at + kRpcRequestHeader <= request.size()) {
    const auto word = load<std::uint32_t>(request.data() + at);
    const auto length = load<std::uint32_t>(request.data() + at + 4);
    at += kRpcRequestHeader;
    const std::span<std::byte> object = state_.objects.object(word & ~kRpcWriteBit);
    PERDURE_ASSERT(length == object.size());
    if ((word & kRpcWriteBit) == 0) {
      PERDURE_ASSERT(bytes + length <= reply.size());
      std::memcpy(reply.data() + bytes, object.data(), length);
      bytes += length;
      continue;
    }
    PERDURE_ASSERT(at + length <= request.size());
    if (!leaves_payload) {
      std::memcpy(object.data(), request.data() + at, length);
      const std::size_t first = std::min<std::size_t>(length, kCacheLineBytes);
      flush(object.first(state_.confounders.flushes_first_line ? first : length));
    }
    at += length;
  }
  return bytes;
}

/// What executing it takes that is not done here: the injected work, and where time is emulated all
/// of it.
Nanoseconds RpcObjectHandler::time_of(std::span<const std::byte> request) const {
  const bool is_write = (load<std::uint32_t>(request.data()) & kRpcWriteBit) != 0;
  const bool is_durable = state_.point.design->is_durable;
  Nanoseconds takes = state_.point.load.processing;
  if (is_write && is_durable && state_.confounders.skips_processing) takes = Nanoseconds{0};
  if (!state_.emulated) return takes;
  const ServerHardware& server = *state_.emulated->hardware;
  const RpcLoad& load = state_.point.load;
  const auto bytes = static_cast<double>(load.object_bytes * load.batch);
  takes += nanoseconds(server.handle);
  if (is_write && state_.confounders.leaves_payload &&
      state_.point.design == &rpc::models::kSRflush) {
    return takes;
  }
  takes += nanoseconds(bytes * server.copy_per_byte);
  if (!is_write) return takes;
  const double lines = state_.confounders.flushes_first_line ? static_cast<double>(load.batch)
                                                             : bytes / server.line_bytes;
  return takes + nanoseconds(std::max(lines, 1.0) * server.flush_line);
}

bool RpcObjectHandler::is_ready(std::uint64_t, std::span<const std::byte> request) {
  return state_.worker.work(this, state_.clock.now(), time_of(request),
                            state_.emulated ? &*state_.emulated : nullptr);
}

bool RpcObjectHandler::persist(std::uint64_t, std::span<const std::byte> received) {
  if (!state_.emulated) {
    flush(received);
    return true;
  }
  const ServerHardware& server = *state_.emulated->hardware;
  const double lines = static_cast<double>(received.size()) / server.line_bytes;
  const Nanoseconds takes = nanoseconds(server.handle + std::max(lines, 1.0) * server.flush_line);
  return state_.receiver.work(this, state_.clock.now(), takes, &*state_.emulated);
}

RpcCaller::RpcCaller(const RpcPoint& point, std::uint64_t number, rpc::models::Client& end,
                     const Clock& clock)
    : point_(point),
      confounders_(point.effective()),
      unfinished_max_(point.unfinished()),
      end_(end),
      clock_(clock),
      plan_(plan_rpc_calls(point.load, number)),
      request_(rpc_payload_bytes(point.load), std::byte{0x5a}) {
  if (point.load.graph) ranks_.emplace(point.load.graph->graph.vertices());
}

bool RpcCaller::is_over(const Flight& flight) const {
  const RpcCallPlan& plan = plan_[flight.call];
  const std::uint64_t sequence = flight.call + 1;
  const rpc::models::Design* design = point_.design;
  if (confounders_.ends_when_sent) {
    const bool all = design == &rpc::models::kFarm || design == &rpc::models::kWRflush;
    const bool reads = design == &rpc::models::kSflush || design == &rpc::models::kWflush;
    if (all || (reads && !plan.is_write)) return end_.has_left(sequence);
  }
  return plan.is_write && design->is_durable && end_.is_durable(sequence);
}

void RpcCaller::note_over(Flight& flight) {
  flight.over = true;
  ++over_;
  ended_ = clock_.now();
  if (flight.call >= point_.load.warm_up) latencies_.add(ended_ - flight.since);
}

Result<bool> RpcCaller::begin_calls() {
  bool did = false;
  while (begun_ < plan_.size() && begun_ - over_ < unfinished_max_) {
    const Nanoseconds now = clock_.now();
    if (!wanted_) wanted_ = now;
    if (begun_ == point_.load.warm_up && began_ == Nanoseconds{0}) began_ = *wanted_;
    const RpcCallPlan& plan = plan_[begun_];
    const std::size_t bytes = encode_rpc_call(point_.load, plan, request_);
    const std::size_t reply = plan.is_write ? 0 : point_.load.batch * point_.load.object_bytes;
    const auto begun =
        end_.begin(std::span<const std::byte>(request_).first(bytes), {plan.is_write, reply});
    if (!begun.ok()) {
      if (begun.error().code == ErrorCode::QueueFull) return did;
      return begun.error();
    }
    if (begun_ >= point_.load.warm_up) software_ += clock_.now() - now;
    flights_.push_back({begun_, *wanted_, false});
    wanted_.reset();
    ++begun_;
    did = true;
  }
  return did;
}

bool RpcCaller::find_over() {
  bool did = false;
  for (Flight& flight : flights_) {
    if (flight.over || !is_over(flight)) continue;
    note_over(flight);
    did = true;
  }
  return did;
}

/// With the next block of the graph. Errors: Corrupt: it is none, or after the last one the ranks
/// are not those of the graph.
Result<void> RpcCaller::compute(std::span<const std::byte> block) {
  PERDURE_TRY_VOID(ranks_->add_block(block));
  if ((answered_ + 1) % point_.load.objects == 0) ranks_->end_iteration();
  if (answered_ + 1 != plan_.size()) return {};
  ended_ = std::max(ended_, clock_.now());
  const std::vector<double>& right = point_.load.graph->ranks;
  const bool equal = std::equal(
      ranks_->ranks().begin(), ranks_->ranks().end(), right.begin(), right.end(),
      [](double found, double wanted) { return std::abs(found - wanted) <= 1e-9 * wanted; });
  if (equal) return {};
  return Error{ErrorCode::Corrupt, fmt::format("{}: the ranks of {} are not those of the graph",
                                               point_.design->title, point_.load.graph->name)};
}

Result<bool> RpcCaller::take_replies() {
  bool did = false;
  while (!flights_.empty()) {
    const Nanoseconds now = clock_.now();
    PERDURE_TRY(taken, end_.take(reply_));
    if (!taken) break;
    Flight& flight = flights_.front();
    if (flight.call >= point_.load.warm_up) software_ += clock_.now() - now;
    if (!is_rpc_reply(point_.load, plan_[flight.call], reply_)) {
      return Error{ErrorCode::Corrupt, fmt::format("{}: the reply of call {} is not its own",
                                                   point_.design->title, flight.call + 1)};
    }
    if (!flight.over) note_over(flight);
    if (ranks_) PERDURE_TRY_VOID(compute(reply_));
    flights_.pop_front();
    ++answered_;
    did = true;
  }
  return did;
}

Result<bool> RpcCaller::pump() {
  PERDURE_TRY_VOID(end_.pump());
  const bool over = find_over();
  PERDURE_TRY(took, take_replies());
  // Last, since all of these make room.
  PERDURE_TRY(began, begin_calls());
  return began || over || took;
}

RpcSample sample_of(const RpcLoad& load, const std::vector<const RpcCaller*>& callers) {
  report::Histogram latencies;
  Nanoseconds began = Nanoseconds::max();
  Nanoseconds ended{0};
  Nanoseconds software{0};
  for (const RpcCaller* caller : callers) {
    latencies.add(caller->latencies());
    began = std::min(began, caller->began());
    ended = std::max(ended, caller->ended());
    software += caller->software();
  }
  const auto us = [](Nanoseconds time) { return static_cast<double>(time.count()) / 1e3; };
  RpcSample found;
  found.calls = load.calls * load.clients;
  found.seconds = us(ended - began) / 1e6;
  found.mean_us = us(latencies.mean());
  found.p50_us = us(latencies.quantile(0.5));
  found.p99_us = us(latencies.quantile(0.99));
  found.client_us = us(software) / static_cast<double>(std::max<std::uint64_t>(found.calls, 1));
  return found;
}

rpc::models::EndOptions rpc_end_options(const RpcPoint& point) {
  rpc::models::EndOptions options;
  options.window = point.in_flight();
  options.payload_bytes_max = rpc_payload_bytes(point.load);
  options.confounders = point.effective();
  return options;
}

}  // namespace perdure::bench
