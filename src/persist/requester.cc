// The requester's side of the data plane: see requester.h.
//
// An update is posted strictly after all posts of the update before it: a later update may never
// pass an earlier one, which is what keeps a pipeline of compound updates in order.
#include "persist/requester.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"
#include "persist/connection_requester.h"
#include "persist/probe_methods.h"
#include "persist/wire.h"

namespace perdure::persist {
namespace {

// At least every so many requests one is signalled, so that providers can reclaim their queue.
constexpr std::size_t kSignalEvery = 16;

bool is_word(const UpdateItem& item) { return item.data.length == 8 && item.at % 8 == 0; }

}  // namespace

/// Keeps the items, unless something is wrong with them: see refusal.
bool ConnectionRequester::take_items(const CompiledMethod& method,
                                     std::span<const UpdateItem> items, Update& started) const {
  if (items.size() != method.items.size()) return false;
  std::uint64_t copied = 0;
  for (std::size_t index = 0; index < items.size(); ++index) {
    const UpdateItem& item = items[index];
    const std::uint64_t length = item.data.length;
    const ItemUse use = method.items[index];
    if (!inside_pool(item)) return false;
    if (use.word && !is_word(item)) return false;
    if (use.immediate && item.at + length > kImmediateReach) return false;
    if (use.sent) copied += length;
    started.items[index] = item;
  }
  return copied <= options_.queue.message_bytes_max - method.message_header_bytes_max;
}

/// What is wrong with items that take_items did not take.
Error ConnectionRequester::refusal(const CompiledMethod& method,
                                   std::span<const UpdateItem> items) const {
  if (items.size() != method.items.size()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("method '{}' takes {} items, not {}", method.source.name,
                             method.items.size(), items.size())};
  }
  for (std::size_t index = 0; index < items.size(); ++index) {
    const UpdateItem& item = items[index];
    if (!inside_pool(item)) {
      return Error{ErrorCode::OutOfRange,
                   fmt::format("bytes {}+{} lie outside the pool's {} bytes", item.at,
                               item.data.length, options_.remote.length)};
    }
    if (method.items[index].word && !is_word(item)) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("method '{}' takes only an aligned 8-byte word as item {}",
                               method.source.name, item_name(static_cast<Item>(index)))};
    }
    if (method.items[index].immediate && item.at + item.data.length > kImmediateReach) {
      return Error{ErrorCode::OutOfRange, "an immediate does not reach beyond 128 GiB"};
    }
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("the items do not fit into one message of {} bytes",
                           options_.queue.message_bytes_max)};
}

Result<std::uint64_t> ConnectionRequester::begin(std::size_t method,
                                                 std::span<const UpdateItem> items) {
  PERDURE_ASSERT(method < methods_.size());
  if (failure_) return Error{ErrorCode::Disconnected, failure_->message};
  if (begun_ - resolved_ == options_.updates_max) {
    return Error{ErrorCode::QueueFull, "too many updates in flight"};
  }
  const std::uint64_t number = begun_ + 1;
  Update& started = update(number);
  if (!take_items(methods_[method], items, started)) return refusal(methods_[method], items);
  begun_ = number;
  started.method = method;
  started.step = 0;
  started.gathered_in_step = 0;
  started.message = 0;
  started.awaited_message = 0;
  started.completed_steps = 0;
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

/// Takes every step that can be taken now. What they post is handed over together.
Result<void> ConnectionRequester::advance() {
  while (true) {
    gather();
    if (gathered_count_ == 0) return {};
    PERDURE_TRY(taken, endpoint_.post(std::span(gathered_).first(gathered_count_)));
    if (taken != 0) ++counters_.doorbells;
    counters_.requests += taken;
    gathered_count_ -= taken;
    if (gathered_count_ != 0) {
      std::copy_n(gathered_.begin() + static_cast<std::ptrdiff_t>(taken), gathered_count_,
                  gathered_.begin());
      return {};
    }
    if (posting_ > begun_) return {};
  }
}

/// Update by update, in order, until one has to wait or there is room for no more.
void ConnectionRequester::gather() {
  for (; posting_ <= begun_; ++posting_) {
    Update& current = update(posting_);
    const CompiledMethod& method = methods_[current.method];
    for (; current.step < method.posts_end; ++current.step) {
      const CompiledStep& step = method.steps[current.step];
      const bool taken = step.source.kind == RequesterStep::Kind::Post
                             ? gather_step(posting_, current, step)
                             : wait_is_over(current, step.source);
      if (!taken) return;
    }
  }
}

/// Request `current.gathered_in_step` of a step. `request` may hold what an earlier one left there.
inline void ConnectionRequester::build(std::uint64_t number, Update& current,
                                       const CompiledStep& step, fabric::WorkRequest& request) {
  request.opcode = step.opcode;
  request.fenced = step.source.fenced;
  if (step.opcode == fabric::Opcode::Send) {
    build_message(number, current, step, request);
    return;
  }
  const UpdateItem& item = current.items[step.targets[current.gathered_in_step]];
  request.remote_offset = item.at;
  request.segment_count = 1;
  switch (step.opcode) {
    case fabric::Opcode::Read:
      // One byte inside the written range: its answer pushes every earlier write before it.
      request.remote_offset = item.at + item.data.length - 1;
      request.segments[0] = {scratch_.data(), 1, scratch_memory_.get()};
      break;
    case fabric::Opcode::Flush:
      request.flush_length = item.data.length;
      request.placement = step.placement;
      request.segment_count = 0;
      break;
    case fabric::Opcode::AtomicWrite:
      request.operand = load<std::uint64_t>(item.data.data);
      request.segment_count = 0;
      break;
    default:
      request.segments[0] = item.data;
      request.immediate = encode_immediate(item.at, step.wants_ack);
      break;
  }
}

/// Whether all requests of the step are gathered.
bool ConnectionRequester::gather_step(std::uint64_t number, Update& current,
                                      const CompiledStep& step) {
  for (; current.gathered_in_step < step.requests; ++current.gathered_in_step) {
    if (gathered_count_ == gathered_.size()) return false;
    const std::uint64_t unacknowledged = messages_posted_ - messages_acknowledged_;
    if (step.carries_message && unacknowledged >= options_.queue.depth - kResponderBurst) {
      return false;
    }
    fabric::WorkRequest& request = gathered_[gathered_count_++];
    build(number, current, step, request);
    const bool awaited = step.awaited && current.gathered_in_step + 1 == step.requests;
    request.signalled = awaited || unsignalled_ + 1 >= kSignalEvery;
    request.context = awaited ? slot_of(number) << 8 | current.step : kReclaimContext;
    unsignalled_ = request.signalled ? 0 : unsignalled_ + 1;
    if (step.carries_message) {
      ++messages_posted_;
      ++counters_.messages;
      current.message = messages_posted_;
      if (step.wants_ack) current.awaited_message = messages_posted_;
    }
  }
  current.gathered_in_step = 0;
  return true;
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
  if (count != 0 || gathered_count_ != 0 || posting_ <= begun_) {
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
