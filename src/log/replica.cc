#include "log/replica.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "core/try.h"
#include "plan/method_set.h"

namespace perdure::log {

Replica::Replica(std::unique_ptr<client::Peer> peer, ReplicaOptions options)
    : batches_in_flight_(options.batches_in_flight), session_(std::move(peer), options.session) {
  PERDURE_ASSERT(batches_in_flight_ >= 1 && batches_in_flight_ <= kBatchesMax);
  PERDURE_ASSERT(!options.session.ranges_again);  // see send_alone
}

Replica::~Replica() {
  connecting_.reset();
  session_.close();
  words_memory_.reset();
  staging_memory_.reset();
}

Result<void> Replica::open_session(const control::SessionRequest& request) {
  sending_ = false;
  note_next();
  PERDURE_TRY_VOID(session_.open(request));
  const std::string& uuid = session_.connection().pool.uuid;
  if (!pool_ || parse_uuid(uuid) == pool_) return {};
  session_.close();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{} has another pool '{}' now ({}) than a moment ago", peer().name(),
                           request.pool, uuid)};
}

Result<void> Replica::prepare(LogShape shape, Staging& staging) {
  shape_ = shape;
  PERDURE_TRY(staged, session_.register_memory(staging.memory()));
  PERDURE_TRY(words, session_.register_memory(std::as_writable_bytes(std::span(words_))));
  staging_memory_ = std::move(staged);
  words_memory_ = std::move(words);
  return session_.prepare(shape == LogShape::Compound);
}

ConnectOptions Replica::filled(ConnectOptions options, Staging& staging) {
  options.staging = staging.memory();
  options.words = std::as_writable_bytes(std::span(words_));
  return options;
}

void Replica::begin_connecting(ConnectOptions options, Staging& staging) {
  PERDURE_ASSERT(!connecting_);
  session_.close();
  connecting_ = log::begin_connecting(filled(std::move(options), staging), session_.successor());
}

Result<Connected> Replica::connect_now(ConnectOptions options, Staging& staging,
                                       const Deadline& deadline) {
  session_.close();
  return connect(filled(std::move(options), staging), session_.successor(),
                 [&] { return deadline; });
}

std::unique_ptr<client::RemoteBytes> Replica::go_on_over(Connected connected, LogShape shape,
                                                         const Deadline& deadline) {
  PERDURE_ASSERT(!up());
  sending_ = false;
  note_next();
  shape_ = shape;
  session_.go_on_as(std::move(connected.session));
  session_.set_deadline(deadline);
  connected.bytes->set_until(deadline);
  staging_memory_ = std::move(connected.staging);
  words_memory_ = std::move(connected.words);
  return std::move(connected.bytes);
}

void Replica::resume_at(Lsn lsn) {
  PERDURE_ASSERT(up());
  next_ = lsn;
  durable_ = lsn;
  committed_word_ = Lsn{};
  word_number_ = 0;
  batches_begun_ = batches_answered_ = 0;
  sending_ = true;
  piece_sent_ = 0;
  note_next();
  brought_so_far_ = {};
  session_.got_on();
}

Result<std::uint64_t> Replica::begin_batch(const Staging::Run& run, std::uint64_t ring_bytes) {
  std::array<persist::UpdateItem, 2> items;
  items[0].at = kRingAt + run.lsn.value % ring_bytes;
  items[0].data = {run.data, run.length, staging_memory_.get()};
  if (shape_ == LogShape::Singleton) return session_.begin(std::span(items).first(1));
  std::uint64_t& word = words_[(session_.begun() + 1) % client::kUpdatesMax];
  word = encode_word(run.end);
  items[1].at = kTailWordAt;
  items[1].data = {reinterpret_cast<std::byte*>(&word), sizeof word, words_memory_.get()};
  return session_.begin(items);
}

/// A part of a record that no update can take whole. Only the last part, which comes behind all
/// others on the connection, makes the record one that is answered for.
Result<std::uint64_t> Replica::begin_piece(const Staging::Run& run, std::uint64_t ring_bytes) {
  const std::uint64_t left = run.length - piece_sent_;
  Staging::Run piece = run;
  piece.lsn.value += piece_sent_;
  piece.data += piece_sent_;
  piece.length = std::min(left, session_.range_bytes_max());
  if (piece.length == left) {
    PERDURE_TRY(begun, begin_batch(piece, ring_bytes));
    piece_sent_ = 0;
    return begun;
  }
  PERDURE_TRY(begun, session_.begin_place({kRingAt + piece.lsn.value % ring_bytes,
                                           {piece.data, piece.length, staging_memory_.get()}}));
  piece_sent_ += piece.length;
  return begun;
}

void Replica::send(const Staging& staging, Lsn end, std::uint64_t ring_bytes) {
  while (next_ < end && batches_begun_ - batches_answered_ < batches_in_flight_) {
    const std::uint64_t range_bytes_max = session_.range_bytes_max();
    const std::uint64_t run_bytes_max = std::min(plan::kBatchBytesMax, range_bytes_max);
    const Staging::Run run = staging.run_at(next_, run_bytes_max, ring_bytes);
    const bool whole = piece_sent_ == 0 && run.length <= range_bytes_max;
    const auto begun = whole ? begin_batch(run, ring_bytes) : begin_piece(run, ring_bytes);
    if (!begun.ok()) {
      if (begun.code() != ErrorCode::QueueFull) mark_down(begun.error());
      return;
    }
    if (piece_sent_ == 0) next_ = run.end;
    note_next();
    batches_[batches_begun_++ % kBatchesMax] = {*begun, next_};
  }
}

void Replica::pump(const Staging& staging, Lsn end, std::uint64_t ring_bytes,
                   const std::optional<Deadline>& until) {
  if (!sending()) return;
  take_answers();
  if (until && up()) session_.follow_drift(*until);
  if (up()) send(staging, end, ring_bytes);
}

void Replica::take_answers() {
  session_.poll();
  if (!up()) return;
  while (batches_answered_ != batches_begun_) {
    const Batch& oldest = batches_[batches_answered_ % kBatchesMax];
    if (!session_.has_resolved(oldest.number)) return;
    durable_ = oldest.end;
    ++batches_answered_;
  }
}

void Replica::note_state(const std::optional<StoredState>& stored) {
  state_.reset();
  if (stored) state_ = stored->state;
  state_generation_ = stored ? stored->generation : 0;
  state_copy_ = stored ? stored->copy : 1;
}

Result<void> Replica::write_state(const LogState& state) {
  PERDURE_TRY_VOID(validate(state));             // or neither copy could be read again
  if (state.marks.incomplete) durable_ = Lsn{};  // what it had does not count any more
  const StateBytes bytes = encode_state(state, ++state_generation_);
  const std::size_t older = 1 - state_copy_;
  for (const std::size_t copy : {older, 1 - older}) {
    PERDURE_TRY_VOID(write_now(kStateAt + copy * kStateEvery, bytes));
  }
  state_copy_ = 1 - older;
  state_ = state;
  return {};
}

void Replica::note_committed(Lsn committed) {
  const Lsn word = std::min(committed, durable_);
  if (!sending() || word <= committed_word_) return;
  // One word at a time is in flight, since they share a place in memory.
  if (word_number_ != 0 && !session_.has_resolved(word_number_)) return;
  words_[client::kUpdatesMax] = encode_word(word);
  const auto number =
      session_.begin_place({kCommittedWordAt,
                            {reinterpret_cast<std::byte*>(&words_[client::kUpdatesMax]),
                             sizeof(std::uint64_t), words_memory_.get()}});
  if (!number.ok()) return;  // it is only late; what is wrong the next batch will say
  word_number_ = *number;
  committed_word_ = word;
}

}  // namespace perdure::log
