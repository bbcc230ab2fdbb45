// The requester's side of the data plane: see requester.h.
//
// An update is posted strictly after all posts of the update before it: a later update may never
// pass an earlier one, which is what keeps a pipeline of compound updates in order.
#include "persist/requester.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/assert.h"
#include "core/try.h"
#include "persist/connection_requester.h"
#include "persist/probe_methods.h"
#include "persist/wire.h"

namespace perdure::persist {
namespace {

// At least every so many requests one is signalled, so that providers can reclaim their queue.
constexpr std::size_t kSignalEvery = 16;

}  // namespace

Result<void> ConnectionRequester::check_items(const CompiledMethod& method,
                                              std::span<const UpdateItem> items) const {
  if (items.size() != method.source.shape.items()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("method '{}' takes {} items, not {}", method.source.name,
                             method.source.shape.items(), items.size())};
  }
  std::uint64_t copied = 0;
  for (std::size_t index = 0; index < items.size(); ++index) {
    const UpdateItem& item = items[index];
    const std::uint64_t length = item.data.length;
    if (length == 0 || length > options_.remote.length ||
        item.at > options_.remote.length - length) {
      return Error{ErrorCode::OutOfRange, fmt::format("bytes {}+{} lie outside the pool's {} bytes",
                                                      item.at, length, options_.remote.length)};
    }
    const bool word_only =
        method.source.shape.epoch_of(static_cast<Item>(index)) > 0 && !method.source.later_any_size;
    if (word_only && (length != 8 || item.at % 8 != 0)) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("method '{}' takes only an aligned 8-byte word as item {}",
                               method.source.name, item_name(static_cast<Item>(index)))};
    }
    if (method.sends_item[index]) copied += length;
    if (method.uses_immediates && item.at + length > kImmediateReach) {
      return Error{ErrorCode::OutOfRange, "an immediate does not reach beyond 128 GiB"};
    }
  }
  if (copied > options_.queue.message_bytes_max - method.message_header_bytes_max) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} bytes do not fit into one message of {}", copied,
                             options_.queue.message_bytes_max)};
  }
  return {};
}

Result<std::uint64_t> ConnectionRequester::begin(std::size_t method,
                                                 std::span<const UpdateItem> items) {
  PERDURE_ASSERT(method < methods_.size());
  if (failure_) return Error{ErrorCode::Disconnected, failure_->message};
  if (begun_ - resolved_ == updates_.size()) {
    return Error{ErrorCode::QueueFull, "too many updates in flight"};
  }
  if (auto valid = check_items(methods_[method], items); !valid) return valid.error();
  const std::uint64_t number = ++begun_;
  Update& started = update(number);
  started.method = method;
  started.step = 0;
  started.posted_in_step = 0;
  started.message = 0;
  started.awaited_message = 0;
  started.completed_steps = 0;
  started.items.assign(items.begin(), items.end());
  if (posting_ == number) {
    // An error while posting surfaces at the next poll: from here on the outcome is unknown.
    if (auto advanced = advance(); !advanced) failure_ = advanced.error();
  }
  return number;
}

Result<std::uint64_t> ConnectionRequester::begin_probe(Probe probe) {
  PERDURE_ASSERT(options_.probes);
  const bool writes = probe == Probe::Write || probe == Probe::WriteMessage;
  if (writes) PERDURE_ASSERT(options_.probe_line.has_value());
  UpdateItem item;
  if (writes) item.at = *options_.probe_line;
  item.data = {padding_.data(), writes ? kProbeLineBytes : 1, padding_memory_.get()};
  const std::size_t method = first_probe_ + static_cast<std::size_t>(probe);
  return begin(method, std::span(&item, methods_[method].source.shape.items()));
}

/// Takes every step that can be taken now, update by update, in order.
Result<void> ConnectionRequester::advance() {
  while (posting_ <= begun_) {
    Update& current = update(posting_);
    const CompiledMethod& method = methods_[current.method];
    while (current.step < method.posts_end) {
      PERDURE_TRY(progress, take_step(posting_, current));
      if (progress == Progress::Blocked) return {};
    }
    ++posting_;
  }
  return {};
}

Result<ConnectionRequester::Progress> ConnectionRequester::take_step(std::uint64_t number,
                                                                     Update& current) {
  const CompiledStep& step = methods_[current.method].steps[current.step];
  if (step.source.kind != RequesterStep::Kind::Post) {
    if (!wait_is_over(current, step.source)) return Progress::Blocked;
    ++current.step;
    return Progress::Advanced;
  }
  return post_step(number, current, step);
}

bool ConnectionRequester::wait_is_over(const Update& current, const RequesterStep& step) const {
  if (step.kind == RequesterStep::Kind::WaitAck) {
    return messages_acknowledged_ >= current.awaited_message;
  }
  return (current.completed_steps >> step.of & 1) != 0;
}

Result<ConnectionRequester::Progress> ConnectionRequester::post_step(std::uint64_t number,
                                                                     Update& current,
                                                                     const CompiledStep& step) {
  const std::size_t requests = step.requests;
  while (current.posted_in_step < requests) {
    const bool message = step.carries_message;
    const std::uint64_t unacknowledged = messages_posted_ - messages_acknowledged_;
    if (message && unacknowledged >= options_.queue.depth - kResponderBurst) {
      return Progress::Blocked;
    }
    fabric::WorkRequest request = build(number, current, step, current.posted_in_step);
    const bool last = current.posted_in_step + 1 == requests;
    const bool awaited = step.awaited && last;
    request.signalled = awaited || unsignalled_ + 1 >= kSignalEvery;
    if (!awaited) request.context = kReclaimContext;
    PERDURE_TRY(taken, endpoint_.post(std::span<const fabric::WorkRequest>(&request, 1)));
    if (taken == 0) return Progress::Blocked;
    unsignalled_ = request.signalled ? 0 : unsignalled_ + 1;
    ++counters_.requests;
    if (message) {
      ++messages_posted_;
      ++counters_.messages;
      current.message = messages_posted_;
      if (step.wants_ack) current.awaited_message = messages_posted_;
    }
    ++current.posted_in_step;
  }
  current.posted_in_step = 0;
  ++current.step;
  return Progress::Advanced;
}

Result<void> ConnectionRequester::poll() {
  if (failure_) return *failure_;
  const std::size_t count = endpoint_.poll(completions_);
  for (std::size_t index = 0; index < count; ++index) {
    if (auto taken = take(completions_[index]); !taken) {
      failure_ = taken.error();
      return *failure_;
    }
  }
  if (count != 0 || posting_ <= begun_) {
    if (auto advanced = advance(); !advanced) {
      failure_ = advanced.error();
      return *failure_;
    }
  }
  while (resolved_ + 1 < posting_) {
    Update& oldest = update(resolved_ + 1);
    const CompiledMethod& method = methods_[oldest.method];
    while (oldest.step < method.steps.size() &&
           wait_is_over(oldest, method.steps[oldest.step].source)) {
      ++oldest.step;
    }
    if (oldest.step < method.steps.size()) break;
    ++resolved_;
    ++counters_.updates;
  }
  if (count == 0 && acks_reposted_ < acks_taken_) (void)repost_ack();  // fails if lost: see below
  if (count == 0 && !endpoint_.connected()) {
    failure_ = Error{ErrorCode::OutcomeUnknown, "the connection to the peer was lost"};
    return *failure_;
  }
  return {};
}

Result<void> ConnectionRequester::take(const fabric::Completion& completion) {
  if (completion.error) {
    // A refusal that the responder sent may explain what the transport only sees as a lost peer.
    const bool refused = *completion.error == ErrorCode::OutOfRange;
    return Error{*completion.error, refused ? "the peer refused access to its memory"
                                            : "the connection to the peer was lost"};
  }
  if ((completion.context & kReceiveContext) != 0) return take_ack(completion);
  if ((completion.context & kReclaimContext) != 0) return {};
  Update& completed = updates_[completion.context >> 8];
  completed.completed_steps |= std::uint64_t{1} << (completion.context & 0xff);
  return {};
}

Result<void> ConnectionRequester::take_ack(const fabric::Completion& completion) {
  const std::size_t index = completion.context & ~kReceiveContext;
  const std::span<const std::byte> bytes(ack_bytes_.data() + index * kAckBytes,
                                         std::min<std::uint64_t>(completion.length, kAckBytes));
  PERDURE_TRY(ack, decode_ack(bytes));
  if (ack.session != options_.session || ack.sequence > messages_posted_ ||
      ack.sequence < messages_acknowledged_) {
    return Error{ErrorCode::ProtocolError, "the peer acknowledged what was never sent"};
  }
  messages_acknowledged_ = ack.sequence;
  if (ack.status != 0) {
    const auto code = static_cast<ErrorCode>(ack.status - 1);
    if (ack.status - 1 > static_cast<int>(ErrorCode::SystemError)) {
      return Error{ErrorCode::ProtocolError, "the peer answered with an unknown status"};
    }
    return Error{code,
                 fmt::format("the peer refused message {}: {}", ack.sequence + 1, to_string(code))};
  }
  // Buffers come back in the order in which they were posted.
  ++acks_taken_;
  return acks_taken_ - acks_reposted_ < options_.queue.depth / 2 ? Result<void>{} : repost_ack();
}

/// Posts the buffer of the oldest acknowledgement again: when there is nothing better to do.
Result<void> ConnectionRequester::repost_ack() {
  return post_ack_buffer(acks_reposted_++ % options_.queue.depth);
}

Result<std::unique_ptr<Requester>> Requester::open(fabric::Endpoint& endpoint,
                                                   fabric::Device& device,
                                                   const ServerProfile& profile,
                                                   std::vector<Method> methods,
                                                   const Options& options) {
  if ((methods.empty() && !options.probes) || options.updates_max == 0 ||
      options.queue.depth < 2 * kResponderBurst) {
    return Error{ErrorCode::InvalidArgument, "a requester needs a method, a window and a queue"};
  }
  auto requester = std::make_unique<ConnectionRequester>(endpoint, device, profile, options);
  PERDURE_TRY_VOID(requester->prepare(std::move(methods)));
  return std::unique_ptr<Requester>(std::move(requester));
}

}  // namespace perdure::persist
