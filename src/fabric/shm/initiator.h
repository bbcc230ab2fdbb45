// The half of an endpoint that asks: requests into the stream, answers and completions out.
#pragma once

#include "fabric/fabric.h"
#include "fabric/shm/frame.h"
#include "fabric/shm/shared_rings.h"

#include <vector>

namespace perdure::fabric::shm {

class Initiator {
 public:
  /// `own` is what this side publishes, `peer` what the other one does.
  Initiator(std::size_t depth, std::span<std::byte> request_stream,
            std::span<const std::byte> answer_stream, Published& own, const Published& peer);

  bool full() const { return next_ - reported_ >= depth_; }
  /// Takes a request in and sends as much as there is room for. Requires !full().
  void post(const WorkRequest& request);
  /// Once `cut` is set, the peer sees no more requests. It outlives this.
  void obey(const std::atomic<bool>& cut) { requests_.obey(cut); }
  /// Sends what waits and takes answers. True: something moved. Sets `broken` when the peer said
  /// what makes no sense.
  bool advance(bool& broken);
  /// What was executed and answered before the peer refused one: once refused() is true there comes
  /// no more.
  void take_last(bool& broken) {
    take_answers(broken);
    finish();
  }
  /// Whether advance would do something, as far as one look tells.
  bool anything();

  /// The next completion to report. With `lost`, everything unfinished fails.
  bool report(Completion& completion, bool lost);
  bool reportable(bool lost) const { return reported_ < (lost ? next_ : finished_); }
  /// Whether the peer has refused a request: the first unexecuted one.
  bool refused() const { return peer_.refused.load(std::memory_order_acquire) != 0; }

 private:
  struct Slot {
    std::uint64_t context = 0;
    Opcode opcode = Opcode::Send;
    bool signalled = false;
    bool answered = false;  // the whole answer is there, or there is none
  };
  /// Where an answer goes.
  struct Expected {
    std::uint64_t index = 0;
    std::uint64_t length = 0;
    std::uint64_t taken = 0;
    std::uint8_t segment_count = 0;
    std::array<Segment, kSegmentsMax> segments;
  };

  bool send(const WorkRequest& request);
  bool send_payload(const WorkRequest& request);
  bool must_wait(const WorkRequest& request) const {
    return request.fenced && finished_ < non_posted_end_;
  }
  bool take_answers(bool& broken);
  void finish();

  std::size_t depth_;
  std::uint64_t mask_;
  std::vector<Slot> slots_;
  std::vector<WorkRequest> held_;
  std::vector<Expected> expected_;
  StreamWriter requests_;
  StreamReader answers_;
  const Published& peer_;

  std::uint64_t reported_ = 0;          // all before are reported, or wanted no report
  std::uint64_t finished_ = 0;          // all before are executed and answered
  std::uint64_t sent_ = 0;              // all before are wholly in the stream
  std::uint64_t next_ = 0;              // all before were taken in
  std::uint64_t non_posted_end_ = 0;    // one past the last Read or atomic that was sent
  bool frame_sent_ = false;             // of request number sent_
  std::uint64_t payload_sent_ = 0;      // of request number sent_
  std::uint64_t answers_expected_ = 0;  // numbers in expected_
  std::uint64_t answers_taken_ = 0;
};

/// `length` bytes at `offset` of the concatenated segments, piece by piece.
template <typename Act>
void for_pieces(std::span<const Segment> segments, std::uint64_t offset, std::uint64_t length,
                Act&& act) {
  for (const Segment& segment : segments) {
    if (length == 0) return;
    if (offset >= segment.length) {
      offset -= segment.length;
      continue;
    }
    const std::uint64_t now = std::min<std::uint64_t>(segment.length - offset, length);
    act(std::span<std::byte>(segment.data + offset, now));
    length -= now;
    offset = 0;
  }
}

}  // namespace perdure::fabric::shm
