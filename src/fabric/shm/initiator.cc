// See requester.h.
#include "fabric/shm/initiator.h"

#include "core/assert.h"

#include <bit>

namespace perdure::fabric::shm {

Initiator::Initiator(std::size_t depth, std::span<std::byte> request_stream,
                     std::span<const std::byte> answer_stream, Published& own,
                     const Published& peer)
    : depth_(depth),
      mask_(std::bit_ceil(depth) - 1),
      slots_(mask_ + 1),
      held_(mask_ + 1),
      expected_(mask_ + 1),
      requests_(request_stream, own.requests_written, peer.requests_read),
      answers_(answer_stream, peer.answers_written, own.answers_read),
      peer_(peer) {}

void Initiator::post(const WorkRequest& request) {
  PERDURE_ASSERT(!full());
  const bool no_answer = answer_bytes(request.opcode, total_length(request)) == 0;
  slots_[next_ & mask_] = Slot{request.context, request.opcode, request.signalled, no_answer};
  const bool first = sent_ == next_ && !must_wait(request);
  ++next_;
  if (first && send(request)) return;
  held_[(next_ - 1) & mask_] = request;
}

/// Puts request number sent_ into the stream as far as there is room. True: all of it is there.
bool Initiator::send(const WorkRequest& request) {
  if (!frame_sent_) {
    if (requests_.far_from_start()) {
      RequestFrame marker;
      marker.rewind = 1;
      requests_.put(bytes_of(marker));
      requests_.rewind();
    }
    if (requests_.room() < sizeof(RequestFrame)) return false;
    RequestFrame frame;
    frame.opcode = request.opcode;
    frame.immediate = request.immediate;
    frame.length = is_atomic(request.opcode) ? 8 : total_length(request);
    frame.key = request.remote.key;
    frame.offset = request.remote.base + request.remote_offset;
    frame.operand = request.operand;
    frame.swap = request.swap;
    requests_.put(bytes_of(frame));
    frame_sent_ = true;
    payload_sent_ = 0;
    if (!carries_payload(request.opcode)) non_posted_end_ = sent_ + 1;
    if (const auto length = answer_bytes(request.opcode, frame.length); length > 0) {
      expected_[answers_expected_++ & mask_] =
          Expected{sent_, length, 0, request.segment_count, request.segments};
    }
  }
  if (carries_payload(request.opcode) && !send_payload(request)) return false;
  requests_.align(kFrameAlignment);
  requests_.publish();
  frame_sent_ = false;
  ++sent_;
  return true;
}

bool Initiator::send_payload(const WorkRequest& request) {
  const std::uint64_t length = total_length(request);
  while (payload_sent_ < length) {
    const std::uint64_t left = length - payload_sent_;
    const std::uint64_t now = std::min({left, requests_.room(), kPieceBytes});
    if (now == 0) {
      requests_.publish();
      return false;
    }
    for_pieces({request.segments.data(), request.segment_count}, payload_sent_, now,
               [this](std::span<const std::byte> piece) { requests_.put(piece); });
    payload_sent_ += now;
    if (now < left) requests_.publish();
  }
  return true;
}

bool Initiator::advance(bool& broken) {
  const std::uint64_t sent_before = requests_.position();
  const std::uint64_t finished_before = finished_;
  bool moved = take_answers(broken);
  finish();
  while (sent_ != next_) {
    const WorkRequest& request = held_[sent_ & mask_];
    if (!frame_sent_ && must_wait(request)) break;
    if (!send(request)) break;
  }
  return moved || requests_.position() != sent_before || finished_ != finished_before;
}

bool Initiator::anything() {
  if (answers_.anything() || refused()) return true;
  if (peer_.executed.load(std::memory_order_acquire) > finished_) return true;
  if (sent_ == next_) return false;
  const bool waits = !frame_sent_ && must_wait(held_[sent_ & mask_]);
  return !waits && requests_.room() >= sizeof(RequestFrame);
}

/// Copies answers to where the requests want them. True: something came.
bool Initiator::take_answers(bool& broken) {
  if (answers_taken_ == answers_expected_) {
    broken = broken || answers_.anything();  // an answer to nothing
    return false;
  }
  bool moved = false;
  while (answers_taken_ != answers_expected_) {
    Expected& expected = expected_[answers_taken_ & mask_];
    const std::uint64_t available = answers_.available();
    if (available > answers_.size()) broken = true;
    if (available == 0 || broken) break;
    const std::uint64_t now = std::min(available, expected.length - expected.taken);
    std::uint64_t placed = 0;
    for_pieces({expected.segments.data(), expected.segment_count}, expected.taken, now,
               [&](std::span<std::byte> piece) {
                 answers_.take(piece);
                 placed += piece.size();
               });
    for (; placed < now; ++placed) {  // an old value that the request has no segment for
      std::byte unwanted;
      answers_.take({&unwanted, 1});
    }
    expected.taken += now;
    moved = true;
    if (expected.taken == expected.length) {
      answers_.align(kFrameAlignment);
      slots_[expected.index & mask_].answered = true;
      ++answers_taken_;
    }
  }
  if (moved) answers_.release();
  return moved;
}

/// Moves finished_ over everything that is executed and answered.
void Initiator::finish() {
  const std::uint64_t executed = std::min(peer_.executed.load(std::memory_order_acquire), sent_);
  while (finished_ < executed) {
    const Slot& slot = slots_[finished_ & mask_];
    if (!slot.answered) return;
    ++finished_;
  }
}

bool Initiator::report(Completion& completion, bool lost) {
  while (reportable(lost)) {
    const std::uint64_t index = reported_++;
    const Slot& slot = slots_[index & mask_];
    const bool done = index < finished_;
    if (done && !slot.signalled) continue;
    completion = Completion{};
    completion.context = slot.context;
    completion.opcode = slot.opcode;
    if (!done) {
      const bool refused_one = refused() && index == peer_.executed.load(std::memory_order_acquire);
      completion.error = refused_one ? ErrorCode::OutOfRange : ErrorCode::OutcomeUnknown;
    }
    return true;
  }
  return false;
}

}  // namespace perdure::fabric::shm
