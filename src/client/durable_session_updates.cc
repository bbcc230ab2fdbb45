// Updates of any shape, and READs: what one request takes is posted as it is, small ones that wait
// go together in a message, anything else goes in pieces, in the order that was asked for.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "client/durable_session.h"
#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"
#include "persist/ordered.h"

namespace perdure::client {
namespace {

constexpr std::uint64_t kNotPosted = std::numeric_limits<std::uint64_t>::max();
// A connection that loses packets, as RoCE does, gets through what is short.
constexpr std::uint64_t kReadPieceBytes = 64 * 1024;

}  // namespace

/// Whether another update can be begun.
Result<void> DurableSession::check_turn() const {
  if (!up()) return Error{ErrorCode::Disconnected, "the session is down"};
  if (begun_ - resolved_ < kUpdatesMax) return {};
  return Error{ErrorCode::QueueFull, "too many updates in flight"};
}

Result<void> DurableSession::check(std::span<const Ranges> epochs) const {
  PERDURE_TRY_VOID(check_turn());
  if (epochs.empty()) return Error{ErrorCode::InvalidArgument, "an update without an epoch"};
  const std::uint64_t pool = connection_->remote.length;
  for (const Ranges epoch : epochs) {
    if (epoch.empty()) return Error{ErrorCode::InvalidArgument, "an epoch without a range"};
    for (const persist::UpdateItem& item : epoch) {
      if (item.data.length == 0 || item.data.length > kRangeBytesMax) {
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("a range of {} bytes; an update takes 1 to {}", item.data.length,
                                 kRangeBytesMax)};
      }
      if (item.data.length > pool || item.at > pool - item.data.length) {
        return Error{ErrorCode::OutOfRange, fmt::format("bytes {}+{} lie outside the pool's {}",
                                                        item.at, item.data.length, pool)};
      }
    }
  }
  return {};
}

/// Whether it is a range and a word behind it that one request of a method keeps in order, and
/// words whole if a message would.
bool DurableSession::is_pair(std::span<const Ranges> epochs) const {
  if (!tail_word_ || epochs.size() != 2 || epochs[0].size() != 1 || epochs[1].size() != 1) {
    return false;
  }
  const std::uint64_t length = epochs[0][0].data.length;
  const std::uint64_t one_request = std::min(range_bytes_max_, plan::kBatchBytesMax);
  if (!persist::is_word(epochs[1][0]) || length > one_request) return false;
  const auto both = persist::OrderedSize{}.with(length).with(sizeof(std::uint64_t));
  const std::size_t method = method_for(length);
  const bool kept =
      keeps_words_[method] && (keeps_first_words_[method] || !persist::is_word(epochs[0][0]));
  return kept || !both.fits(gather_bytes_max_);
}

/// Whether its method would have the RNIC store what is promised in whole words, and a message can
/// take it instead: a word, or with `any_words` any range.
bool DurableSession::tears_words(std::span<const Ranges> epochs, bool any_words) const {
  if (epochs.size() != 1 || epochs[0].size() != 1) return false;
  const persist::UpdateItem& item = epochs[0][0];
  if (!any_words && !persist::is_word(item)) return false;
  return !keeps_words(item.data.length) && item.data.length <= whole_words_bytes_max();
}

std::uint64_t DurableSession::whole_words_bytes_max() const {
  const std::uint64_t head = persist::OrderedSize{}.with(0).bytes();
  return gather_bytes_max_ <= head ? 0 : round_down(gather_bytes_max_ - head, kCacheLineBytes);
}

/// What is one request and waits for nothing goes at once, and costs no list. 0: it is not that.
std::uint64_t DurableSession::begin_single(std::span<const Ranges> epochs) {
  if (tail_word_ || epochs.size() != 1 || epochs[0].size() != 1) return 0;
  const persist::UpdateItem& item = epochs[0][0];
  if (item.data.length > std::min(range_bytes_max_, plan::kBatchBytesMax)) return 0;
  if (window_full(persist::OrderedSize{}.with(item.data.length).fits(gather_bytes_max_))) return 0;
  if (overlaps_in_flight(item.at, item.data.length)) return 0;
  return begin_common_place(item);
}

/// What is one message and waits for nothing goes at once, too. 0: it is not that, or there is no
/// room for it now.
Result<std::uint64_t> DurableSession::begin_message(std::span<const Ranges> epochs) {
  if (!waiting_.empty() || window_full(true)) return std::uint64_t{0};
  persist::OrderedSize size;
  for (const Ranges epoch : epochs) {
    for (const persist::UpdateItem& item : epoch) size = size.with(item.data.length);
  }
  if (!size.fits(gather_bytes_max_)) return std::uint64_t{0};
  const auto posted = post_ordered(begun_ + 1, epochs);
  if (!posted.ok() && posted.code() == ErrorCode::QueueFull) return std::uint64_t{0};
  if (!posted.ok()) {
    mark_down(posted.error());
    return Error{ErrorCode::OutcomeUnknown, posted.error().message};
  }
  if (++begun_ == resolved_ + 1) note_progress();
  return begun_;
}

Result<std::uint64_t> DurableSession::update(std::span<const Ranges> epochs, bool whole_words) {
  PERDURE_ASSERT(options_.ranges_again);
  PERDURE_TRY_VOID(check(epochs));
  const bool by_message = tears_words(epochs, whole_words);
  if (!by_message) {
    if (const std::uint64_t number = begin_single(epochs)) return number;
  }
  const bool pair = is_pair(epochs);
  if (!pair && (by_message || epochs.size() > 1 || epochs[0].size() > 1)) {
    PERDURE_TRY(number, begin_message(epochs));
    if (number != 0) return number;
  }
  Waiting update;
  update.by_message = by_message;
  update.pair = pair;
  for (const Ranges epoch : epochs) {
    update.items.insert(update.items.end(), epoch.begin(), epoch.end());
    update.epoch_ends.push_back(update.items.size());
  }
  return queue(std::move(update));
}

/// Of a payload, on this connection.
std::size_t DurableSession::request_bytes_max() const {
  const std::size_t room = connection_->message_bytes_max - persist::kRequestHeaderBytes;
  return std::max(std::min(options_.request_bytes_max, room), persist::kAtomicPayloadBytes);
}

Result<std::uint64_t> DurableSession::read(std::uint64_t at, const fabric::Segment& into) {
  const persist::UpdateItem item{at, into};
  const Ranges epoch(&item, 1);
  PERDURE_TRY_VOID(check({&epoch, 1}));
  Waiting wanted;
  wanted.reads = true;
  wanted.items.push_back(item);
  wanted.epoch_ends.push_back(1);
  return queue(std::move(wanted));
}

Result<std::uint64_t> DurableSession::atomic(const persist::Atomic& what) {
  PERDURE_ASSERT(options_.ranges_again);
  PERDURE_TRY_VOID(check_turn());
  PERDURE_TRY_VOID(persist::check_atomic(what, connection_->remote.length));
  const persist::AtomicPayload payload = persist::encode_atomic(what);
  return queue_request({persist::MessageKind::Atomic,
                        payload,
                        asked_[(begun_ + 1) % kUpdatesMax].before,
                        {what.at, what.at + persist::kAtomicBytes}});
}

Result<std::uint64_t> DurableSession::value_before(std::uint64_t number) const {
  PERDURE_TRY(bytes, reply_bytes(number));
  if (bytes == persist::kAtomicBytes) {
    return load<std::uint64_t>(asked_[number % kUpdatesMax].before.data());
  }
  return Error{ErrorCode::ProtocolError,
               fmt::format("{} answered an atomic with {} bytes", peer_->name(), bytes)};
}

Result<std::uint64_t> DurableSession::request(persist::MessageKind kind,
                                              std::span<const std::byte> payload,
                                              std::span<std::byte> reply, bool changes) {
  PERDURE_ASSERT(options_.ranges_again);
  PERDURE_TRY_VOID(check_turn());
  if (payload.size() > request_bytes_max() || reply.size() > options_.reply_bytes_max) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("a request of {} bytes with {} for its reply; its options allow {} "
                    "and {}",
                    payload.size(), reply.size(), request_bytes_max(), options_.reply_bytes_max)};
  }
  return queue_request({kind, payload, reply, changes ? Extent{0, kNotPosted} : Extent{}});
}

/// Posts it at once if nothing waits before it.
Result<std::uint64_t> DurableSession::queue_request(const Question& question) {
  if (waiting_.empty() && !window_full(false)) {
    const auto posted = post_request(begun_ + 1, question);
    if (posted.ok()) {
      if (++begun_ == resolved_ + 1) note_progress();
      return begun_;
    }
    if (posted.code() != ErrorCode::QueueFull) {
      mark_down(posted.error());
      return Error{ErrorCode::OutcomeUnknown, posted.error().message};
    }
  }
  Waiting wanted;
  wanted.asks = Asking{question, {question.payload.begin(), question.payload.end()}};
  return queue(std::move(wanted));
}

Result<std::size_t> DurableSession::reply_bytes(std::uint64_t number) const {
  const Asked& asked = asked_[number % kUpdatesMax];
  PERDURE_ASSERT(has_resolved(number) && asked.number == number);
  if (!asked.reply.refused) return asked.reply.bytes;
  return Error{*asked.reply.refused, fmt::format("{} refused a request: {}", peer_->name(),
                                                 to_string(*asked.reply.refused))};
}

Result<std::uint64_t> DurableSession::queue(Waiting update) {
  update.number = ++begun_;
  last_request_[begun_ % kUpdatesMax] = kNotPosted;
  if (begun_ == resolved_ + 1) note_progress();
  for (const persist::UpdateItem& item : update.items) {
    update.size = update.size.with(item.data.length);
  }
  waiting_.push_back(std::move(update));
  const std::uint64_t number = begun_;
  post_waiting();
  if (!up()) return Error{ErrorCode::OutcomeUnknown, down_reason_->message};
  return number;
}

/// Posts as much as may go: in order, since updates resolve in order.
void DurableSession::post_waiting() {
  while (up() && !waiting_.empty()) {
    const auto posted = post_next();
    if (!posted.ok() && posted.code() != ErrorCode::QueueFull) return mark_down(posted.error());
    if (!posted.ok() || !*posted) return;
  }
}

/// What waits first, alone or with what waits behind it; says whether it, or a piece of it, went.
Result<bool> DurableSession::post_next() {
  Waiting& next = waiting_.front();
  const bool small = may_gather(next);
  if (window_full(small)) return false;
  if (small) {
    const persist::UpdateItem& first = next.items.front();
    const bool alone = waiting_.size() == 1 && next.items.size() == 1 && !next.by_message;
    if (!alone || overlaps_in_flight(first.at, first.data.length)) return post_gathered(gather());
  }
  PERDURE_TRY(posted, post_piece(next));
  if (posted && next.item == next.items.size()) waiting_.pop_front();
  return posted;
}

/// Whether one message takes it, and nothing of it has gone.
bool DurableSession::may_gather(const Waiting& update) const {
  const bool whole = update.item == 0 && update.sent == 0;
  return whole && !update.reads && !update.pair && !update.asks &&
         update.size.fits(gather_bytes_max_);
}

/// Puts an update behind others, if the message has room for it. Its first epoch shares the last
/// one of those before it, which saves a flush: between them there is no order but that of storing.
bool DurableSession::adds(const Waiting& update, Gathered& to) const {
  persist::OrderedSize together = to.size;
  together += update.size;
  if (!together.fits(gather_bytes_max_)) return false;
  const std::size_t before = to.items.size();
  if (before != 0) to.epoch_ends.pop_back();
  to.items.insert(to.items.end(), update.items.begin(), update.items.end());
  for (const std::size_t end : update.epoch_ends) to.epoch_ends.push_back(before + end);
  to.size = together;
  ++to.updates;
  return true;
}

/// As many as a message takes. Requires may_gather of the first.
DurableSession::Gathered DurableSession::gather() const {
  Gathered gathered;
  for (const Waiting& next : waiting_) {
    if (!may_gather(next) || !adds(next, gathered)) break;
  }
  return gathered;
}

Result<bool> DurableSession::post_gathered(const Gathered& gathered) {
  std::vector<Ranges> epochs;
  std::size_t first = 0;
  for (const std::size_t end : gathered.epoch_ends) {
    epochs.push_back(Ranges(gathered.items).subspan(first, end - first));
    first = end;
  }
  const std::uint64_t number = waiting_.front().number;
  PERDURE_TRY_VOID(post_ordered(number, epochs));
  const std::uint64_t request = last_request_[number % kUpdatesMax];
  for (std::size_t each = 0; each < gathered.updates; ++each) {
    last_request_[(number + each) % kUpdatesMax] = request;
    waiting_.pop_front();
  }
  if (gathered.updates > 1) coalesced_ += gathered.updates;
  return true;
}

/// As one message, from `number` on.
Result<void> DurableSession::post_ordered(std::uint64_t number, std::span<const Ranges> epochs) {
  Extent changes{kNotPosted, 0};
  for (const Ranges epoch : epochs) {
    for (const persist::UpdateItem& item : epoch) {
      changes.begin = std::min(changes.begin, item.at);
      changes.end = std::max(changes.end, item.at + item.data.length);
    }
  }
  const auto payload = persist::encode_ordered(epochs, ordered_payload_);
  PERDURE_TRY_VOID(post_request(number, {persist::MessageKind::Ordered, payload, {}, changes}));
  asked_[number % kUpdatesMax].updates = true;
  return {};
}

/// The next piece of an update, if nothing stands before it; says whether it went.
Result<bool> DurableSession::post_piece(Waiting& update) {
  if (update.asks) {
    Question question = update.asks->question;
    question.payload = update.asks->payload;
    PERDURE_TRY_VOID(post_request(update.number, question));
    return true;
  }
  const bool first_of_epoch =
      update.sent == 0 &&
      std::count(update.epoch_ends.begin(), update.epoch_ends.end(), update.item) != 0;
  if (first_of_epoch && requester_->resolved() < update.request) return false;
  persist::UpdateItem piece = update.items[update.item];
  const std::uint64_t left = piece.data.length - update.sent;
  piece.at += update.sent;
  piece.data.data += update.sent;
  piece.data.length = std::min(
      {left, update.reads ? kReadPieceBytes : std::min(range_bytes_max_, plan::kBatchBytesMax)});
  const bool may_overlap = update.reads && asked_in_flight_ == 0;
  if (!may_overlap && overlaps_in_flight(piece.at, piece.data.length)) return false;
  if (update.pair) {
    const persist::UpdateItem& word = update.items[1];
    if (overlaps_in_flight(word.at, word.data.length)) return false;
    const std::size_t method = piece.data.length <= small_bytes_max_ ? kSmall : kLarge;
    PERDURE_TRY(request, requester_->begin(method, update.items));
    note_extents(request, update.items);
    update.request = request;
    update.item = 2;
  } else {
    const std::span<const persist::UpdateItem> one(&piece, 1);
    auto begun = update.reads ? requester_->begin_read(piece)
                              : requester_->begin(place_method(piece.data.length), one);
    if (!begun.ok()) return begun.error();
    note_extents(*begun, one.first(update.reads ? 0 : 1));
    update.request = *begun;
    update.sent += piece.data.length;
    if (piece.data.length == left) {
      update.sent = 0;
      ++update.item;
    }
  }
  if (update.item == update.items.size()) {
    last_request_[update.number % kUpdatesMax] = update.request;
  }
  return true;
}

Result<void> DurableSession::post_request(std::uint64_t number, const Question& question) {
  // What was posted before it is there when it is handled (fabric.h: a receive completion comes
  // after all earlier posted operations); what overlaps and comes later waits for it.
  Asked& asked = asked_[number % kUpdatesMax];
  PERDURE_TRY(request, requester_->begin_request(question.kind, question.payload, question.reply));
  asked.number = number;
  asked.request = request;
  asked.updates = false;
  asked.reply = {};
  ++asked_in_flight_;
  extents_[request % kUpdatesMax] = {question.changes, {}};
  last_request_[number % kUpdatesMax] = request;
  return {};
}

/// Requests behind `before` have resolved: how, the requester knows until it begins others.
/// Errors: updates were refused, and none from the first of them on has resolved.
Result<void> DurableSession::note_answers(std::uint64_t before) {
  for (std::uint64_t number = before + 1; number <= resolved_; ++number) {
    Asked& asked = asked_[number % kUpdatesMax];
    if (asked.number != number) continue;
    asked.reply = requester_->reply(asked.request);
    --asked_in_flight_;
    if (!asked.updates || !asked.reply.refused) continue;
    resolved_ = number - 1;
    return Error{*asked.reply.refused, fmt::format("{} refused an update: {}", peer_->name(),
                                                   to_string(*asked.reply.refused))};
  }
  return {};
}

/// What a request writes: one range or two; a READ none.
void DurableSession::note_extents(std::uint64_t request,
                                  std::span<const persist::UpdateItem> items) {
  std::array<Extent, 2>& writes = extents_[request % kUpdatesMax];
  writes = {};
  for (std::size_t index = 0; index < items.size(); ++index) {
    writes[index] = {items[index].at, items[index].at + items[index].data.length};
  }
}

/// Whether something that was posted and has not resolved writes there. Two ways of writing one
/// place may pass each other: a message is stored by the CPU when a WRITE has long been placed.
bool DurableSession::overlaps_in_flight(std::uint64_t at, std::uint64_t length) const {
  for (std::uint64_t request = requester_->resolved() + 1; request <= requester_->begun();
       ++request) {
    for (const Extent& extent : extents_[request % kUpdatesMax]) {
      if (at < extent.end && extent.begin < at + length) return true;
    }
  }
  return false;
}

}  // namespace perdure::client
