// Requests of clients: see rpc_requests.h.
#include "rpc/rpc_requests.h"

#include <algorithm>

#include "core/bytes.h"
#include "core/try.h"
#include "core/whole_words.h"

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
  store(bytes.data() + 56, kRpcProtocol);
  store(bytes.data() + 60, reply.slow_from_percent);
  return bytes;
}

Result<WelcomeReply> decode_welcome(std::span<const std::byte> bytes) {
  if (bytes.size() != kWelcomeBytes) return nonsense("a welcome of another size");
  if (load<std::uint32_t>(bytes.data() + 56) != kRpcProtocol) {
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
  reply.slow_from_percent = load<std::uint32_t>(bytes.data() + 60);
  const Welcome& at = reply.welcome;
  const bool makes_sense =
      at.client != 0 && at.applied <= at.durable && at.durable - at.applied <= reply.replies &&
      at.position <= at.end && at.end - at.position <= reply.ring_bytes && reply.ring_bytes != 0 &&
      reply.ring_bytes % kEntryAlignment == 0 && reply.ring_bytes <= kAreaBytesMax &&
      reply.replies != 0 && reply.replies <= kRepliesMax &&
      reply.reply_bytes_max <= kReplyBytesMax && reply.slow_from_percent <= 100;
  if (!makes_sense) return nonsense("a welcome that makes no sense");
  return reply;
}

Result<void> decode_collected(std::span<const std::byte> bytes, Collected& into) {
  into.replies.clear();
  into.cut = false;
  if (bytes.size() < kCollectHeadBytes) return nonsense("replies that are too short");
  const auto count = load<std::uint32_t>(bytes.data() + 16);
  const auto flags = load<std::uint32_t>(bytes.data() + 20);
  into.applied = {load<std::uint64_t>(bytes.data()), load<std::uint64_t>(bytes.data() + 8),
                  (flags & kCollectHeld) != 0};
  bytes = bytes.subspan(kCollectHeadBytes);
  for (std::uint32_t index = 0; index < count; ++index) {
    if (bytes.size() < kReplyHeadBytes) return nonsense("replies that are cut short");
    CollectedReply reply;
    reply.head = decode_reply_head(bytes.data());
    bytes = bytes.subspan(kReplyHeadBytes);
    const bool cut = index + 1 == count && (flags & kCollectCut) != 0;
    if (cut != (reply.head.bytes > bytes.size())) {
      return nonsense("replies that are cut short, or not as they say");
    }
    reply.bytes = cut ? bytes : bytes.first(reply.head.bytes);
    into.replies.push_back(reply);
    into.cut = cut;
    const std::uint64_t taken = round_up(std::uint64_t{reply.head.bytes}, kReplyAlignment);
    bytes = bytes.subspan(std::min<std::uint64_t>(taken, bytes.size()));
  }
  return {};
}

std::array<std::byte, kPieceRequestBytes> encode_piece_question(const PieceQuestion& question) {
  std::array<std::byte, kPieceRequestBytes> bytes{};
  store(bytes.data(), question.client);
  store(bytes.data() + 8, question.number);
  store(bytes.data() + 16, question.offset);
  store(bytes.data() + 24, static_cast<std::uint32_t>(question.of));
  return bytes;
}

Result<PieceQuestion> decode_piece_question(std::span<const std::byte> bytes) {
  if (bytes.size() != kPieceRequestBytes) return nonsense("a piece is asked for with 32 bytes");
  const auto of = load<std::uint32_t>(bytes.data() + 24);
  if (of > static_cast<std::uint32_t>(PieceQuestion::Of::Answer)) {
    return nonsense("a piece of what nobody has");
  }
  return PieceQuestion{load<std::uint64_t>(bytes.data()), load<std::uint64_t>(bytes.data() + 8),
                       load<std::uint64_t>(bytes.data() + 16), static_cast<PieceQuestion::Of>(of)};
}

Result<QueryReplyHead> decode_query_reply(std::span<const std::byte> bytes) {
  if (bytes.size() < kQueryReplyHeadBytes) return nonsense("an answer that is too short");
  const QueryReplyHead head{load<std::uint32_t>(bytes.data()),
                            load<std::uint32_t>(bytes.data() + 4),
                            load<std::uint64_t>(bytes.data() + 8)};
  const std::size_t here = bytes.size() - kQueryReplyHeadBytes;
  if (head.bytes > kAnswerBytesMax || head.bytes < here) return nonsense("an answer that is cut");
  return head;
}

ClientRequests::ClientRequests(Executor& executor, std::size_t place,
                               const ClientRequestOptions& options,
                               const std::function<void(std::size_t)>& look)
    : executor_(executor), place_(place), options_(options), look_(look) {}

persist::RequestHandlers ClientRequests::handlers() {
  persist::RequestHandlers handlers = persist::built_in_handlers();
  handlers[static_cast<std::size_t>(kWelcomeKind)] = &welcome_;
  handlers[static_cast<std::size_t>(kCollectKind)] = &collect_;
  handlers[static_cast<std::size_t>(kCallKind)] = &call_;
  handlers[static_cast<std::size_t>(kQueryKind)] = &query_;
  handlers[static_cast<std::size_t>(kPieceKind)] = &piece_;
  return handlers;
}

const ClientRequests* ClientRequests::of(const persist::RequestHandlers& handlers) {
  const auto* const welcome = handlers[static_cast<std::size_t>(kWelcomeKind)];
  return welcome == nullptr ? nullptr : &static_cast<const Handler*>(welcome)->requests();
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
  reply.slow_from_percent = options_.slow_from_percent;
  const auto bytes = encode_welcome(reply);
  std::copy(bytes.begin(), bytes.end(), request.reply().begin());
  return bytes.size();
}

Result<std::size_t> ClientRequests::collect(persist::Request& request) {
  const auto payload = request.payload();
  if (payload.size() != kCollectRequestBytes || request.reply().size() < kCollectHeadBytes) {
    return nonsense("replies are asked for with 16 bytes");
  }
  return answer_replies(load<std::uint64_t>(payload.data()),
                        load<std::uint64_t>(payload.data() + 8), request.reply());
}

/// Its commit word last: whoever executes may be looking at the ring.
Result<std::size_t> ClientRequests::call(persist::Request& request) {
  const auto payload = request.payload();
  if (payload.size() < kCallHeadBytes + kEntryHeadBytes ||
      request.reply().size() < kCollectHeadBytes) {
    return nonsense("a call that is too short");
  }
  const auto client = load<std::uint64_t>(payload.data());
  const auto offset = load<std::uint64_t>(payload.data() + 16);
  const auto entry = payload.subspan(kCallHeadBytes);
  const std::uint64_t ring_bytes = executor_.shape().ring_bytes;
  const bool fits = offset % kEntryAlignment == 0 && entry.size() % kEntryAlignment == 0 &&
                    offset < ring_bytes && entry.size() <= ring_bytes - offset;
  if (!fits || !request.inside_pool(kRingAt + offset, entry.size())) {
    return nonsense("a call that has no place in its ring");
  }
  PERDURE_TRY_VOID(executor_.require_client(place_, client));
  std::byte* const to = request.pool().data() + kRingAt + offset;
  copy_whole_words(to + kCommitWordBytes, entry.subspan(kCommitWordBytes));
  copy_whole_words(to, entry.first(kCommitWordBytes));
  request.make_durable(kRingAt + offset, entry.size());
  PERDURE_TRY_VOID(request.flush_now());
  return answer_replies(client, load<std::uint64_t>(payload.data() + 8), request.reply());
}

/// How far the calls are, and the replies from `from` on, once that is there or was waited for.
Result<std::size_t> ClientRequests::answer_replies(std::uint64_t client, std::uint64_t from,
                                                   std::span<std::byte> to) {
  if (executor_.applied(place_) < from) {
    look_(place_);
    if (options_.wait > Nanoseconds{0}) executor_.await_applied(place_, from, options_.wait);
  }
  std::size_t used = kCollectHeadBytes;
  std::uint32_t count = 0;
  bool cut = false;
  const auto put = [&](const ReplyHead& head, std::span<const std::byte> bytes) {
    const std::size_t room = to.size() - used;
    if (kReplyHeadBytes + bytes.size() > room) {
      // The next question begins with it, unless it is larger than any message.
      cut = count == 0 && room > kReplyHeadBytes;
      if (!cut) return false;
      encode_reply_head(head, to.data() + used);
      const auto here = to.subspan(used + kReplyHeadBytes);
      std::copy_n(bytes.begin(), here.size(), here.begin());
      used = to.size();
      ++count;
      return false;
    }
    const std::size_t taken =
        std::min(room, kReplyHeadBytes + round_up(bytes.size(), kReplyAlignment));
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
  store(to.data() + 20, (applied.held ? kCollectHeld : 0) | (cut ? kCollectCut : 0));
  return used;
}

Result<std::size_t> ClientRequests::query(persist::Request& request) {
  const std::span<std::byte> to = request.reply();
  const auto payload = request.payload();
  if (payload.size() < kQueryHeadBytes || to.size() < kQueryReplyHeadBytes) {
    return nonsense("a query that is too short");
  }
  const auto after = load<std::uint64_t>(payload.data() + 8);
  if (executor_.applied(place_) < after) look_(place_);
  const std::span<std::byte> room = to.subspan(kQueryReplyHeadBytes);
  QueryReplyHead head;
  head.status = kNotYet;
  {
    const MutexLock lock(answer_mutex_);
    std::vector<std::byte>().swap(answer_);  // one that its client has not taken whole
    PERDURE_TRY(answered,
                executor_.query(place_, load<std::uint64_t>(payload.data()), after,
                                load<std::uint32_t>(payload.data() + 16),
                                payload.subspan(kQueryHeadBytes), {room, answer_}, options_.wait));
    if (answered) {
      head.status = answered->ok() ? 0 : 1 + static_cast<std::uint32_t>(answered->code());
      head.bytes = answered->ok() ? static_cast<std::uint32_t>(**answered) : 0;
    }
    head.number = ++answer_number_;
  }
  store(to.data(), head.status);
  store(to.data() + 4, head.bytes);
  store(to.data() + 8, head.number);
  return kQueryReplyHeadBytes + std::min<std::size_t>(head.bytes, room.size());
}

void ClientRequests::forget_answer() {
  const MutexLock lock(answer_mutex_);
  std::vector<std::byte>().swap(answer_);
}

Result<std::size_t> ClientRequests::piece(persist::Request& request) {
  PERDURE_TRY(question, decode_piece_question(request.payload()));
  const std::span<std::byte> to = request.reply();
  if (question.of == PieceQuestion::Of::Reply) {
    return executor_.reply_piece(place_, question.client, question.number, question.offset, to);
  }
  const MutexLock lock(answer_mutex_);
  if (question.number != answer_number_ || question.offset >= answer_.size()) {
    return Error{ErrorCode::NotFound, "the answer is not kept any more"};
  }
  const std::size_t bytes = std::min<std::size_t>(to.size(), answer_.size() - question.offset);
  std::copy_n(answer_.begin() + static_cast<std::ptrdiff_t>(question.offset), bytes, to.begin());
  if (question.offset + bytes == answer_.size()) std::vector<std::byte>().swap(answer_);
  return bytes;
}

}  // namespace perdure::rpc
