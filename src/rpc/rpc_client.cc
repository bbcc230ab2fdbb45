// The public face of a client of durable RPC: a server by address, and who may call.
#include <perdure/rpc.h>

#include "client/dial.h"
#include "core/bounded_time.h"
#include "core/forks.h"
#include "core/sampled_times.h"
#include "core/try.h"
#include "rpc/caller.h"

namespace perdure {
namespace {

Error client_not_usable() {
  return {ErrorCode::InvalidArgument,
          "this client was moved from, or belongs to the parent process: open one"};
}

}  // namespace

std::string_view to_string(RpcLevel level) {
  switch (level) {
    case RpcLevel::Durable: return "durable";
    case RpcLevel::Applied: return "applied";
  }
  return "unknown";
}

class RpcClient::State {
 public:
  /// What is sampled of calls: see SampledTimes. Applied comes last.
  struct CallCounts {
    TimeCounts durable;
    TimeCounts committed;
  };
  struct CallReach {
    const rpc::Caller& caller;
    bool reached(const RpcHandle& handle, Level level) const {
      return caller.reached(handle,
                            level == Level::Committed ? RpcLevel::Applied : RpcLevel::Durable);
    }
  };

  client::Dialer dialer;  // owns the devices: outlives the connection
  std::unique_ptr<rpc::Caller> caller;
  SampledTimes<CallReach, RpcHandle, CallCounts> times;
  TimeCounts queries;
  const std::uint32_t process = forks_so_far();
};

void RpcClient::Delete::operator()(State* state) const {
  // In a child its connection is the parent's: whatever would end it stays.
  if (state->process == forks_so_far()) delete state;
}

Result<RpcClient> RpcClient::open(RpcClientOptions options) {
  std::unique_ptr<State, Delete> state(new State);
  PERDURE_TRY_VOID(state->dialer.use_rnic(options.rnic));
  PERDURE_TRY(peer, state->dialer.dial(options.server, options.transport));
  options.server_timeout = bounded(options.server_timeout);
  options.reconnect = bounded(options.reconnect);
  options.spin = bounded(options.spin);
  PERDURE_TRY(caller, rpc::Caller::open(std::move(peer), options, Clock::monotonic()));
  state->caller = std::move(caller);
  return RpcClient(std::move(state));
}

RpcClient::RpcClient(std::unique_ptr<State, Delete> state) : state_(std::move(state)) {}
RpcClient::RpcClient(RpcClient&&) noexcept = default;
RpcClient& RpcClient::operator=(RpcClient&&) noexcept = default;
RpcClient::~RpcClient() = default;

bool RpcClient::usable() const { return state_ != nullptr && state_->process == forks_so_far(); }

Result<RpcHandle> RpcClient::call(std::uint32_t operation, std::span<const std::byte> payload,
                                  std::uint64_t order_key) {
  if (!usable()) return client_not_usable();
  const State::CallReach reach{*state_->caller};
  const auto since = state_->times.due() ? state_->times.begin(reach) : std::nullopt;
  auto called = state_->caller->call(operation, payload, order_key);
  state_->times.end(called, since);
  return called;
}

Result<void> RpcClient::wait(const RpcHandle& handle, RpcLevel level,
                             std::chrono::milliseconds timeout) {
  if (!usable()) return client_not_usable();
  auto waited = state_->caller->wait(handle, level, bounded(timeout));
  state_->times.note({*state_->caller});
  return waited;
}

Result<RpcReply> RpcClient::reply(const RpcHandle& handle, std::chrono::milliseconds timeout) {
  if (!usable()) return client_not_usable();
  auto reply = state_->caller->reply(handle, bounded(timeout));
  state_->times.note({*state_->caller});
  return reply;
}

Result<void> RpcClient::cancel(const RpcHandle& handle) {
  if (!usable()) return client_not_usable();
  auto cancelled = state_->caller->cancel(handle);
  const auto& timed = state_->times.timed();
  if (cancelled.ok() && timed && timed->sequence == handle.sequence) state_->times.drop();
  return cancelled;
}

Result<std::vector<std::byte>> RpcClient::query(std::uint32_t operation,
                                                std::span<const std::byte> payload, bool own_calls,
                                                std::chrono::milliseconds timeout) {
  if (!usable()) return client_not_usable();
  const Nanoseconds since = Clock::monotonic().now();
  auto answer = state_->caller->query(operation, payload, own_calls, bounded(timeout));
  if (answer.ok()) state_->queries.add(Clock::monotonic().now() - since);
  return answer;
}

Result<void> RpcClient::poll() {
  if (!usable()) return client_not_usable();
  auto polled = state_->caller->poll();
  state_->times.note({*state_->caller});
  return polled;
}

std::uint64_t RpcClient::payload_bytes_max() const {
  return usable() ? state_->caller->payload_bytes_max() : 0;
}

RpcHandle RpcClient::handle_of(std::uint64_t sequence) const {
  return usable() ? state_->caller->handle_of(sequence) : RpcHandle{};
}

RpcClientStatus RpcClient::status() const {
  return usable() ? state_->caller->status() : RpcClientStatus{};
}

RpcTimes RpcClient::times() const {
  if (!usable()) return {};
  const State::CallCounts& calls = state_->times.times();
  return {calls.durable, calls.committed, state_->queries};
}

}  // namespace perdure
