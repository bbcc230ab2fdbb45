// See responder.h.
#include "fabric/shm/target.h"

#include "core/assert.h"
#include "core/unordered_reads.h"

#include <atomic>

namespace perdure::fabric::shm {
namespace {

// One poll executes at most this much for the peer, so that it returns in bounded time.
constexpr int kStepsMax = 64;

}  // namespace

Target::Target(std::size_t receive_depth, std::shared_ptr<KeyTable> keys,
               std::span<const std::byte> request_stream, std::span<std::byte> answer_stream,
               Published& own, const Published& peer)
    : keys_(std::move(keys)),
      requests_(request_stream, peer.requests_written, own.requests_read),
      answers_(answer_stream, own.answers_written, peer.answers_read),
      own_(own),
      receives_(receive_depth) {}

bool Target::post_receive(const Segment& buffer, std::uint64_t context) {
  if (posted_ - reported_ == receives_.size()) return false;
  receives_[posted_++ % receives_.size()] = Receive{buffer, context, {}};
  return true;
}

bool Target::advance() {
  const bool told = untold_;
  publish();
  const std::uint64_t read_before = requests_.position();
  const std::uint64_t executed_before = executed_;
  const std::uint64_t put_before = answers_.position();
  const std::uint64_t completed_before = completed_;
  for (int i = 0; i < kStepsMax && state_ == State::Serving; ++i) {
    if (!step()) break;
  }
  untold_ = requests_.position() != read_before || executed_ != executed_before ||
            answers_.position() != put_before;
  const bool moved = untold_;
  if (completed_ == completed_before || state_ != State::Serving) publish();
  if (state_ == State::Refused) own_.refused.store(1, std::memory_order_release);
  return moved || told;
}

void Target::publish() {
  if (!untold_) return;
  untold_ = false;
  if (answers_.cut()) return;
  answers_.publish();
  requests_.release();
  // After the answers: whoever sees that a request was executed finds its answer.
  own_.executed.store(executed_, std::memory_order_release);
}

bool Target::anything() {
  if (state_ != State::Serving) return false;
  if (has_frame_) {
    if (waits_for_receive()) return false;
    if (answer_bytes(frame_.opcode, frame_.length) > 0) {
      return answers_.room() >= (is_atomic(frame_.opcode) ? kFrameAlignment : 1);
    }
    if (moved_ == frame_.length) return true;
  }
  return requests_.anything();
}

/// One move: a frame, or a piece of its payload or answer. False: nothing can move now.
bool Target::step() {
  if (!has_frame_ && !begin()) return false;
  if (!has_frame_) return true;  // it said where the next one is
  if (carries_payload(frame_.opcode)) return place();
  return answer();
}

bool Target::begin() {
  const std::uint64_t available = requests_.available();
  if (available > requests_.size()) state_ = State::Broken;
  if (available < sizeof(RequestFrame) || state_ == State::Broken) return false;
  requests_.take({reinterpret_cast<std::byte*>(&frame_), sizeof frame_});
  if (frame_.rewind != 0) {
    requests_.rewind();
    return true;
  }
  moved_ = 0;
  has_frame_ = true;
  if (frame_.length > kTransferBytesMax || (is_atomic(frame_.opcode) && frame_.length != 8) ||
      (!carries_payload(frame_.opcode) && !is_atomic(frame_.opcode) &&
       frame_.opcode != Opcode::Read)) {
    state_ = State::Broken;
    return false;
  }
  if (frame_.opcode == Opcode::Send) return true;
  // Refused before the first byte: the range as a whole must be reachable.
  const bool to_write = frame_.opcode != Opcode::Read;
  if (!keys_->with(frame_.key, frame_.offset, frame_.length, to_write, [](auto) {})) {
    return refuse();
  }
  return true;
}

bool Target::refuse() {
  state_ = State::Refused;
  return false;
}

bool Target::waits_for_receive() const {
  if (completed_ != posted_) return false;
  return frame_.opcode == Opcode::Send ||
         (frame_.opcode == Opcode::WriteImm && moved_ == frame_.length);
}

/// Payload to its place, one piece.
bool Target::place() {
  if (waits_for_receive()) return false;
  if (frame_.opcode == Opcode::Send &&
      frame_.length > receives_[completed_ % receives_.size()].buffer.length) {
    state_ = State::Broken;
    return false;
  }
  if (moved_ < frame_.length) {
    std::uint64_t available = requests_.available();
    if (available == 0) available = requests_.refresh();
    if (available > requests_.size()) state_ = State::Broken;
    if (available == 0 || state_ == State::Broken) return false;
    if (!place_piece(std::min({available, frame_.length - moved_, kPieceBytes}))) return refuse();
    if (moved_ < frame_.length) return true;
  }
  return finish_payload();
}

bool Target::place_piece(std::uint64_t length) {
  const auto copy = [this](std::span<std::byte> to) { requests_.take(to); };
  bool placed = true;
  if (frame_.opcode == Opcode::Send) {
    copy({receives_[completed_ % receives_.size()].buffer.data + moved_, length});
  } else {
    placed = keys_->with(frame_.key, frame_.offset + moved_, length, true, copy);
  }
  moved_ += length;
  if (moved_ < frame_.length) requests_.release();  // room for the next piece while we go on
  return placed;
}

bool Target::finish_payload() {
  if (waits_for_receive()) return false;
  requests_.align(kFrameAlignment);
  if (frame_.opcode != Opcode::Write) complete_receive(frame_.length);
  executed();
  return true;
}

void Target::complete_receive(std::uint64_t length) {
  PERDURE_ASSERT(completed_ < posted_);
  Receive& receive = receives_[completed_++ % receives_.size()];
  receive.completion.context = receive.context;
  receive.completion.opcode = Opcode::Receive;
  receive.completion.length = length;
  receive.completion.has_immediate = frame_.opcode == Opcode::WriteImm;
  receive.completion.immediate = receive.completion.has_immediate ? frame_.immediate : 0;
}

/// A Read or an atomic: everything before it has been executed.
bool Target::answer() { return is_atomic(frame_.opcode) ? answer_atomic() : answer_read(); }

bool Target::answer_atomic() {
  const bool tells = answer_bytes(frame_.opcode, frame_.length) > 0;
  if (tells && answers_.room() < kFrameAlignment) return false;
  std::uint64_t old_value = 0;
  if (!execute_atomic(old_value)) return refuse();
  if (tells) {
    answers_.put(bytes_of(old_value));
    answers_.align(kFrameAlignment);
  }
  executed();
  return true;
}

bool Target::answer_read() {
  if (moved_ < frame_.length) {
    const std::uint64_t now = std::min({answers_.room(), frame_.length - moved_, kPieceBytes});
    if (now == 0) return false;
    const bool reached = keys_->with(frame_.key, frame_.offset + moved_, now, false,
                                     [this](std::span<const std::byte> from) {
                                       // Stores of other sessions have no order with a READ, by an
                                       // RNIC or here. Readers recognise what they caught
                                       // half-written by its checksum.
                                       const UnorderedReads unordered;
                                       answers_.put(from);
                                     });
    if (!reached) return refuse();
    moved_ += now;
    if (moved_ < frame_.length) {
      answers_.publish();
      return true;
    }
    answers_.align(kFrameAlignment);
  }
  executed();
  return true;
}

bool Target::execute_atomic(std::uint64_t& old_value) {
  bool aligned = true;
  const bool reached = keys_->with(frame_.key, frame_.offset, 8, true, [&](auto range) {
    aligned = reinterpret_cast<std::uintptr_t>(range.data()) % 8 == 0;
    if (!aligned) return;
    std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(range.data()));
    switch (frame_.opcode) {
      case Opcode::AtomicWrite: word.store(frame_.operand); break;
      case Opcode::FetchAdd: old_value = word.fetch_add(frame_.operand); break;
      default:
        old_value = frame_.operand;
        word.compare_exchange_strong(old_value, frame_.swap);
        break;
    }
  });
  return reached && aligned;
}

void Target::executed() {
  has_frame_ = false;
  ++executed_;
}

bool Target::report(Completion& completion) {
  if (!reportable()) return false;
  completion = receives_[reported_++ % receives_.size()].completion;
  return true;
}

void Target::fail_receives() {
  for (; completed_ < posted_; ++completed_) {
    Receive& receive = receives_[completed_ % receives_.size()];
    receive.completion.context = receive.context;
    receive.completion.opcode = Opcode::Receive;
    receive.completion.error = ErrorCode::OutcomeUnknown;
  }
}

}  // namespace perdure::fabric::shm
