// See shm_endpoint.h.
#include "fabric/shm/shm_endpoint.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log_message.h"

namespace perdure::fabric::shm {
namespace {

constexpr std::size_t kDepthMax = 4096;
// The end of the socket costs a system call to see, an empty look at the shared memory some
// nanoseconds. So one of those comes so often, by a clock that is read once in so many of these:
// who polls a thousand ends comes by each of them seldom.
constexpr Nanoseconds kLookEvery = std::chrono::milliseconds(1);
constexpr std::uint32_t kEmptyPollsPerClock = 64;
// What a dead peer has left in the stream, executed a bounded amount at a time.
constexpr int kLastAdvancesMax = 1024;

std::size_t depth_of(std::size_t asked) { return std::clamp(asked, std::size_t{1}, kDepthMax); }

}  // namespace

ShmEndpoint::ShmEndpoint(std::size_t side, Descriptor socket, Mapping memory,
                         std::shared_ptr<KeyTable> keys, const EndpointOptions& options)
    : socket_(std::move(socket)),
      memory_(std::move(memory)),
      limits_{kTransferBytesMax, depth_of(options.send_depth), depth_of(options.receive_depth)},
      own_sleeping_(memory_->sleepers[side].sleeping),
      peer_sleeping_(memory_->sleepers[1 - side].sleeping),
      initiator_(limits_.send_depth, memory_->requests[side], memory_->answers[1 - side],
                 memory_->published[side], memory_->published[1 - side]),
      target_(limits_.receive_depth, std::move(keys), memory_->requests[1 - side],
              memory_->answers[side], memory_->published[side], memory_->published[1 - side]) {
  initiator_.obey(cut_);
  target_.obey(cut_);
}

ShmEndpoint::~ShmEndpoint() {
  // A child of fork() may have the socket, too: the peer is to see the end all the same.
  if (!lost_ && made_in_ == forks_so_far()) ::shutdown(socket_.number(), SHUT_RDWR);
}

Result<std::size_t> ShmEndpoint::post(std::span<const WorkRequest> requests) {
  if (lost_) return Error{ErrorCode::Disconnected, "post: the connection is down"};
  std::size_t taken = 0;
  for (const WorkRequest& request : requests) {
    if (initiator_.full()) break;
    if (auto checked = check_request(request, limits_, capabilities(), true); !checked.ok()) {
      if (taken == 0) return checked.error();
      break;
    }
    initiator_.post(request);
    ++taken;
  }
  if (taken > 0) {
    target_.publish();
    wake_peer();
  }
  return taken;
}

Result<void> ShmEndpoint::post_receive(const Segment& buffer, std::uint64_t context) {
  if (lost_) return Error{ErrorCode::Disconnected, "post_receive: the connection is down"};
  if (!target_.post_receive(buffer, context)) {
    return Error{ErrorCode::QueueFull, "post_receive: receive_depth buffers are posted"};
  }
  return {};
}

std::size_t ShmEndpoint::poll(std::span<Completion> completions) {
  if (armed_) {
    armed_ = false;
    own_sleeping_.exchange(0, std::memory_order_acquire);
    if (!lost_) look_at_socket();
  }
  std::size_t count = report(completions);
  if (count == completions.size() || lost_) return count;
  if (advance()) {
    wake_peer();
  } else if (!lost_ && ++empty_polls_ % kEmptyPollsPerClock == 0) {
    look_when_due();
  }
  return count + report(completions.subspan(count));
}

std::size_t ShmEndpoint::report(std::span<Completion> completions) {
  std::size_t count = 0;
  while (count < completions.size() && target_.report(completions[count])) ++count;
  while (count < completions.size() && initiator_.report(completions[count], lost_)) ++count;
  return count;
}

/// Serves the peer and goes on with our own requests. True: something moved.
bool ShmEndpoint::advance() {
  bool broken = false;
  const bool served = target_.advance();
  const bool asked = initiator_.advance(broken);
  if (cut_.load(std::memory_order_relaxed)) {
    lose("what it reaches can not be trusted any more");
  } else if (initiator_.refused()) {
    initiator_.take_last(broken);  // it may have gone on since it was looked at
    lose("the peer refused an address");
  } else if (target_.state() == Target::State::Refused) {
    wake_peer();
    lose("a request named memory that the peer may not reach: refused");
  } else if (broken || target_.state() == Target::State::Broken) {
    lose("the peer sent what makes no sense here, or a message longer than the buffer for it");
  }
  return served || asked;
}

void ShmEndpoint::look_when_due() {
  const Nanoseconds now = Clock::monotonic().now();
  if (now - looked_ < kLookEvery) return;
  looked_ = now;
  look_at_socket();
}

/// Takes wake-ups, and notices the end of the connection.
void ShmEndpoint::look_at_socket() {
  if (drain_rings(socket_)) return;
  // What the peer wrote before it went is executed, as it would be on a wire.
  for (int i = 0; i < kLastAdvancesMax && !lost_ && advance(); ++i) {
  }
  if (!lost_) lose("the peer has gone");
}

void ShmEndpoint::wake_peer() {
  // Pairs with arm() by exchanges of one flag (no plain stores), of which one comes first: either
  // we see that the peer sleeps, or it sees what we published. Not a fence: the thread sanitizer
  // knows none.
  if (peer_sleeping_.exchange(0, std::memory_order_acq_rel) != 0) ring(socket_);
}

bool ShmEndpoint::arm() {
  if (lost_ || target_.reportable() || initiator_.reportable(false)) return false;
  target_.publish();
  wake_peer();
  own_sleeping_.exchange(1, std::memory_order_acq_rel);
  armed_ = true;
  if (!target_.anything() && !initiator_.anything()) return true;
  own_sleeping_.exchange(0, std::memory_order_acquire);
  return false;
}

void ShmEndpoint::disconnect() {
  if (!lost_) lose("");
}

/// The connection is down: the peer sees the end of the socket, nothing is executed for it any
/// more, and what is in flight fails.
void ShmEndpoint::lose(const std::string& reason) {
  PERDURE_ASSERT(!lost_);
  lost_ = true;
  lost_reason_ = reason;
  if (!reason.empty()) {
    log_message(Severity::Debug, fmt::format("connection over shared memory lost: {}", reason));
  }
  target_.publish();
  ::shutdown(socket_.number(), SHUT_RDWR);
  target_.fail_receives();
}

}  // namespace perdure::fabric::shm
