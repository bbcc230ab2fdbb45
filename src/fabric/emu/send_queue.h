// SendQueue: the requester's side of one connection: work requests from posting to completion.
// A state machine without time or threads of its own: World and LiveDevice drive it.
//
// What it may do to a careless caller: memory is read as late as the contract of fabric.h allows,
// and a completion over iWARP or TCP comes before anything was sent.
#pragma once

#include "fabric/emu/completion_queue.h"
#include "fabric/emu/memory_table.h"
#include "fabric/emu/operation.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>

namespace perdure::fabric::emu {

/// What an endpoint answers once its connection has ended.
inline Error is_down() { return {ErrorCode::Disconnected, "the connection is down"}; }

/// Threads: one caller at a time.
class SendQueue {
 public:
  SendQueue(MemoryTable& memory, const Limits& limits, Transport transport,
            Capabilities capabilities, QpType qp_type = QpType::Rc)
      : memory_(memory),
        limits_(limits),
        transport_(transport),
        capabilities_(capabilities),
        qp_type_(qp_type) {}

  /// Endpoint::post; `in_queue` is how many completed requests still hold a place.
  Result<std::size_t> post(std::span<const WorkRequest> requests, std::size_t in_queue,
                           Nanoseconds now);

  /// The next operation to go on the wire, or nothing: none, or held back by its fence.
  std::optional<Opcode> sendable() const;
  /// Since when that operation may go: its posting, or what its fence waited for.
  Nanoseconds sendable_at() const;
  /// Takes it, with its data. Nothing if its memory was deregistered meanwhile: it then completes
  /// with InvalidArgument and the connection is to be broken. Requires sendable.
  std::optional<Operation> take_next();

  /// The responder's RNIC has the posted operation; known here from `at` on.
  void accepted(std::uint64_t sequence, Nanoseconds at);
  /// The same for every posted operation up to this one.
  void accepted_up_to(std::uint64_t sequence, Nanoseconds at);
  /// The responder answers. False: the connection is to be broken, since it refuses an operation
  /// that has completed already, so that no completion can say it, or answers one not sent yet.
  /// What a READ brings is placed now, or `late`: when it completes.
  bool respond(Response response, Nanoseconds at, bool late = false);
  /// Whether the answer to this operation is placed in memory that may lose power.
  bool brings_into_region(std::uint64_t sequence);

  /// Since when the oldest request that is not completed may complete, or nothing. Requests
  /// complete in the order they were posted (InfiniBand specification volume 1, section 10.8.5).
  std::optional<Nanoseconds> completable() const;
  /// Completes it. True: with an error, so the connection is to be broken. Requires completable.
  bool complete_next(CompletionQueue& completions);
  /// The connection is lost: all that has not completed completes with OutcomeUnknown.
  void break_all(CompletionQueue& completions);

  /// Requests that hold a place of the queue, those in the completion queue not counted.
  std::size_t in_flight() const { return requests_.size(); }

 private:
  struct Request {
    WorkRequest work;
    std::uint64_t sequence = 0;
    std::uint64_t length = 0;
    std::array<Place, kSegmentsMax> places;
    std::vector<std::byte> data;  // gathered before sending, if it had to complete early; of a READ
                                  // what it has brought, until it is placed
    Nanoseconds posted_at{0};
    Nanoseconds answered_at{0};
    bool gathered = false;
    bool sent = false;
    bool answered = false;  // accepted, responded to, or refused
    bool completed = false;
    std::optional<ErrorCode> error;
  };

  Result<Request> make_request(const WorkRequest& work);
  bool gather(Request& request);
  void scatter(Request& request, std::span<const std::byte> data);
  Request* find(std::uint64_t sequence);
  void pop_completed();

  MemoryTable& memory_;
  const Limits limits_;
  const Transport transport_;
  const Capabilities capabilities_;
  const QpType qp_type_;
  std::deque<Request> requests_;  // posted; gone once both sent and completed
  std::size_t next_to_send_ = 0;
  std::size_t next_to_complete_ = 0;
  std::size_t unanswered_non_posted_ = 0;  // sent and not answered
  Nanoseconds last_answer_at_{0};
  std::uint64_t next_sequence_ = 1;
};

}  // namespace perdure::fabric::emu
