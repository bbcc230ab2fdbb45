// Requests of clients: see rpc_requests.h.
#include "rpc/rpc_requests.h"

#include <algorithm>

#include "core/bytes.h"
#include "core/try.h"

namespace perdure::rpc {
namespace {

constexpr std::size_t kReplyAlignment = 8;

Error nonsense(const char* what) { return {ErrorCode::ProtocolError, what}; }

}  // namespace

std::array<std::byte, kWelcomeBytes> encode_welcome(const WelcomeReply& reply) {
  std::array<std::byte, kWelcomeBytes> bytes{};
  store(bytes.data(), reply.welcome.client);
  store(bytes.data() + 8, reply.welcome.applied);
  store(bytes.data() + 16, reply.welcome.position);
  store(bytes.data() + 24, reply.welcome.durable);
  store(bytes.data() + 32, reply.welcome.end);
  store(bytes.data() + 40, reply.ring_bytes);
  store(bytes.data() + 48, reply.replies);
  store(bytes.data() + 52, reply.reply_bytes_max);
  store(bytes.data() + 56, kRpcVersion);
  return bytes;
}

Result<WelcomeReply> decode_welcome(std::span<const std::byte> bytes) {
  if (bytes.size() != kWelcomeBytes) return nonsense("a welcome of another size");
  if (load<std::uint32_t>(bytes.data() + 56) != kRpcVersion) {
    return Error{ErrorCode::VersionMismatch, "the server speaks another version of durable RPC"};
  }
  WelcomeReply reply;
  reply.welcome.client = load<std::uint64_t>(bytes.data());
  reply.welcome.applied = load<std::uint64_t>(bytes.data() + 8);
  reply.welcome.position = load<std::uint64_t>(bytes.data() + 16);
  reply.welcome.durable = load<std::uint64_t>(bytes.data() + 24);
  reply.welcome.end = load<std::uint64_t>(bytes.data() + 32);
  reply.ring_bytes = load<std::uint64_t>(bytes.data() + 40);
  reply.replies = load<std::uint32_t>(bytes.data() + 48);
  reply.reply_bytes_max = load<std::uint32_t>(bytes.data() + 52);
  const Welcome& at = reply.welcome;
  const bool makes_sense = at.client != 0 && at.applied <= at.durable && at.position <= at.end &&
                           reply.ring_bytes != 0 && reply.ring_bytes % kEntryAlignment == 0 &&
                           reply.ring_bytes <= kAreaBytesMax && reply.replies != 0 &&
                           reply.replies <= kRepliesMax && reply.reply_bytes_max <= kReplyBytesMax;
  if (!makes_sense) return nonsense("a welcome that makes no sense");
  return reply;
}

Result<Collected> decode_collected(std::span<const std::byte> bytes) {
  if (bytes.size() < kCollectHeadBytes) return nonsense("replies that are too short");
  Collected collected;
  collected.applied = {load<std::uint64_t>(bytes.data()), load<std::uint64_t>(bytes.data() + 8),
                       load<std::uint32_t>(bytes.data() + 20) != 0};
  const auto count = load<std::uint32_t>(bytes.data() + 16);
  bytes = bytes.subspan(kCollectHeadBytes);
  for (std::uint32_t index = 0; index < count; ++index) {
    if (bytes.size() < kReplyHeadBytes) return nonsense("replies that are cut short");
    CollectedReply reply;
    reply.head = decode_reply_head(bytes.data());
    const std::uint64_t taken =
        kReplyHeadBytes + round_up(std::uint64_t{reply.head.bytes}, kReplyAlignment);
    if (taken > bytes.size()) return nonsense("replies that are cut short");
    reply.bytes = bytes.subspan(kReplyHeadBytes, reply.head.bytes);
    collected.replies.push_back(reply);
    bytes = bytes.subspan(taken);
  }
  return collected;
}

ClientRequests::ClientRequests(Executor& executor, std::size_t place, Nanoseconds wait,
                               const std::function<void()>& wake)
    : executor_(executor), place_(place), wait_(wait), wake_(wake) {}

persist::RequestHandlers ClientRequests::handlers() {
  persist::RequestHandlers handlers = persist::built_in_handlers();
  handlers[static_cast<std::size_t>(kWelcomeKind)] = &welcome_;
  handlers[static_cast<std::size_t>(kCollectKind)] = &collect_;
  handlers[static_cast<std::size_t>(kQueryKind)] = &query_;
  return handlers;
}

Result<std::size_t> ClientRequests::welcome(persist::Request& request) {
  if (request.payload().size() != 8 || request.reply().size() < kWelcomeBytes) {
    return nonsense("a welcome is asked for with 8 bytes");
  }
  PERDURE_TRY(welcome, executor_.welcome(place_, load<std::uint64_t>(request.payload().data())));
  WelcomeReply reply;
  reply.welcome = welcome;
  reply.ring_bytes = executor_.shape().ring_bytes;
  reply.replies = executor_.shape().replies;
  reply.reply_bytes_max = executor_.shape().reply_bytes_max;
  const auto bytes = encode_welcome(reply);
  std::copy(bytes.begin(), bytes.end(), request.reply().begin());
  return bytes.size();
}

Result<std::size_t> ClientRequests::collect(persist::Request& request) {
  const std::span<std::byte> to = request.reply();
  if (request.payload().size() != kCollectRequestBytes || to.size() < kCollectHeadBytes) {
    return nonsense("replies are asked for with 16 bytes");
  }
  const auto client = load<std::uint64_t>(request.payload().data());
  const auto from = load<std::uint64_t>(request.payload().data() + 8);
  if (executor_.applied(place_) < from) {
    wake_();
    if (wait_ > Nanoseconds{0}) executor_.await_applied(place_, from, wait_);
  }
  std::size_t used = kCollectHeadBytes;
  std::uint32_t count = 0;
  const auto put = [&](const ReplyHead& head, std::span<const std::byte> bytes) {
    const std::size_t taken = kReplyHeadBytes + round_up(bytes.size(), kReplyAlignment);
    if (taken > to.size() - used) return false;
    std::fill_n(to.begin() + static_cast<std::ptrdiff_t>(used), taken, std::byte{});
    encode_reply_head(head, to.data() + used);
    std::copy(bytes.begin(), bytes.end(), to.subspan(used + kReplyHeadBytes).begin());
    used += taken;
    ++count;
    return true;
  };
  PERDURE_TRY(applied, executor_.collect(place_, client, from, put));
  store(to.data(), applied.sequence);
  store(to.data() + 8, applied.position);
  store(to.data() + 16, count);
  store(to.data() + 20, std::uint32_t{applied.held});
  return used;
}

Result<std::size_t> ClientRequests::query(persist::Request& request) {
  const std::span<std::byte> to = request.reply();
  const auto payload = request.payload();
  if (payload.size() < kQueryHeadBytes || to.size() < kQueryReplyHeadBytes) {
    return nonsense("a query that is too short");
  }
  const auto after = load<std::uint64_t>(payload.data() + 8);
  if (executor_.applied(place_) < after) wake_();
  PERDURE_TRY(answered,
              executor_.query(place_, load<std::uint64_t>(payload.data()), after,
                              load<std::uint32_t>(payload.data() + 16),
                              payload.subspan(kQueryHeadBytes), to.subspan(kQueryReplyHeadBytes)));
  std::uint32_t status = kNotYet;
  std::size_t bytes = 0;
  if (answered) {
    status = answered->ok() ? 0 : 1 + static_cast<std::uint32_t>(answered->code());
    bytes = answered->ok() ? **answered : 0;
  }
  store(to.data(), status);
  store(to.data() + 4, static_cast<std::uint32_t>(bytes));
  return kQueryReplyHeadBytes + bytes;
}

}  // namespace perdure::rpc
