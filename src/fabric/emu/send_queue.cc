#include "fabric/emu/send_queue.h"

#include "core/assert.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::fabric::emu {

namespace {

Error invalid(const WorkRequest& work, std::string_view why) {
  return {ErrorCode::InvalidArgument, fmt::format("{}: {}", to_string(work.opcode), why)};
}

/// Bytes that the responder reads, writes or flushes.
std::uint64_t remote_length(const WorkRequest& work, std::uint64_t local_length) {
  switch (work.opcode) {
    case Opcode::Flush:
    case Opcode::SendFlush: return work.flush_length;
    case Opcode::AtomicWrite:
    case Opcode::CompareSwap:
    case Opcode::FetchAdd: return kAtomicOperandBytes;
    default: return local_length;
  }
}

}  // namespace

Result<SendQueue::Request> SendQueue::make_request(const WorkRequest& work) {
  if (work.opcode == Opcode::Receive) return invalid(work, "can not be posted as a request");
  if (!carries(qp_type_, work.opcode)) {
    return invalid(work, fmt::format("is not carried over {}", to_string(qp_type_)));
  }
  const bool persists = work.placement == FlushPlacement::Persistence;
  if (work.opcode == Opcode::Flush &&
      !(persists ? capabilities_.persistent_flush : capabilities_.native_flush)) {
    return invalid(work, "the responder's RNIC lacks it");
  }
  const bool lacks = (work.opcode == Opcode::AtomicWrite && !capabilities_.atomic_write) ||
                     (work.opcode == Opcode::WritePersist && !capabilities_.ordered_persist) ||
                     (work.opcode == Opcode::SendFlush && !capabilities_.send_flush);
  if (lacks) return invalid(work, "the responder's RNIC lacks it");
  if (work.segment_count > kSegmentsMax) return invalid(work, "too many segments");

  Request request;
  request.work = work;
  if (work.opcode == Opcode::Flush && work.whole_region) {
    request.work.remote_offset = 0;
    request.work.flush_length = work.remote.length;
  }
  for (std::size_t i = 0; i < work.segment_count; ++i) {
    const Segment& segment = work.segments[i];
    request.length += segment.length;
    if (segment.length > limits_.transfer_bytes_max) return invalid(work, "too long a transfer");
    if (segment.length == 0) continue;
    auto place = memory_.find_local(segment);
    if (!place) return invalid(work, "a segment outside of memory registered with this device");
    request.places[i] = std::move(*place);
  }
  if (request.length > limits_.transfer_bytes_max) return invalid(work, "too long a transfer");
  if (qp_type_ == QpType::Ud && request.length > kDatagramBytesMax) {
    return invalid(work,
                   fmt::format("{} bytes; one packet takes {}", request.length, kDatagramBytesMax));
  }
  const bool answers_word = work.opcode == Opcode::CompareSwap || work.opcode == Opcode::FetchAdd;
  if (answers_word && request.length != 0 && request.length != kAtomicOperandBytes) {
    return invalid(work, "the old value takes 8 bytes");
  }
  const bool atomic = answers_word || work.opcode == Opcode::AtomicWrite;
  if (atomic && (work.remote.base + work.remote_offset) % kAtomicOperandBytes != 0) {
    return invalid(work, "its address is not a multiple of 8");
  }
  return request;
}

Result<std::size_t> SendQueue::post(std::span<const WorkRequest> requests, std::size_t in_queue,
                                    Nanoseconds now) {
  std::size_t taken = 0;
  for (const WorkRequest& work : requests) {
    if (requests_.size() + in_queue >= limits_.send_depth) break;
    auto request = make_request(work);
    if (!request.ok()) {
      // What stands before it in the batch is posted all the same, so the caller learns of it.
      if (taken > 0) break;
      return request.error();
    }
    request->sequence = next_sequence_++;
    request->posted_at = now;
    requests_.push_back(std::move(*request));
    ++taken;
  }
  return taken;
}

std::optional<Opcode> SendQueue::sendable() const {
  if (next_to_send_ == requests_.size()) return std::nullopt;
  const Request& request = requests_[next_to_send_];
  if (request.work.fenced && unanswered_non_posted_ > 0) return std::nullopt;
  return request.work.opcode;
}

Nanoseconds SendQueue::sendable_at() const {
  PERDURE_ASSERT(sendable().has_value());
  const Request& request = requests_[next_to_send_];
  return request.work.fenced ? std::max(request.posted_at, last_answer_at_) : request.posted_at;
}

bool SendQueue::gather(Request& request) {
  if (request.gathered || !is_posted(request.work.opcode)) return true;
  request.gathered = true;
  request.data.resize(request.length);
  std::size_t at = 0;
  for (std::size_t i = 0; i < request.work.segment_count; ++i) {
    const Place& place = request.places[i];
    if (place.length == 0) continue;
    if (!place.range->read(place.at, std::span(request.data).subspan(at, place.length))) {
      return false;
    }
    at += place.length;
  }
  return true;
}

std::optional<Operation> SendQueue::take_next() {
  PERDURE_ASSERT(sendable().has_value());
  Request& request = requests_[next_to_send_++];
  request.sent = true;
  if (!gather(request)) {
    request.answered = true;
    request.error = ErrorCode::InvalidArgument;
    return std::nullopt;
  }
  const WorkRequest& work = request.work;
  if (!is_posted(work.opcode)) ++unanswered_non_posted_;

  Operation operation;
  operation.sequence = request.sequence;
  operation.opcode = work.opcode;
  operation.immediate = work.immediate;
  operation.key = work.remote.key;
  operation.address = work.remote.base + work.remote_offset;
  operation.length = remote_length(work, request.length);
  operation.operand = work.operand;
  if (work.opcode == Opcode::Flush) {
    operation.operand = work.placement == FlushPlacement::Persistence ? 1 : 0;
  }
  operation.swap = work.swap;
  operation.data = std::move(request.data);
  pop_completed();
  return operation;
}

SendQueue::Request* SendQueue::find(std::uint64_t sequence) {
  if (requests_.empty() || sequence < requests_.front().sequence) return nullptr;
  const std::uint64_t index = sequence - requests_.front().sequence;
  return index < requests_.size() ? &requests_[index] : nullptr;
}

void SendQueue::accepted(std::uint64_t sequence, Nanoseconds at) {
  Request* request = find(sequence);
  if (request == nullptr || request->answered) return;
  if (!completes_on_arrival(request->work.opcode)) return;
  request->answered = true;
  request->answered_at = at;
}

void SendQueue::accepted_up_to(std::uint64_t sequence, Nanoseconds at) {
  for (Request& request : requests_) {
    if (request.sequence > sequence || !request.sent) break;
    if (request.answered || !completes_on_arrival(request.work.opcode)) continue;
    request.answered = true;
    request.answered_at = at;
  }
}

bool SendQueue::respond(Response response, Nanoseconds at, bool late) {
  Request* request = find(response.sequence);
  if (request == nullptr || request->completed) return !response.error.has_value();
  if (!request->sent) return false;  // an answer to what was not asked
  if (!is_posted(request->work.opcode) && !request->answered) --unanswered_non_posted_;
  request->answered = true;
  request->answered_at = at;
  last_answer_at_ = std::max(last_answer_at_, at);
  if (response.error) {
    request->error = response.error;
  } else if (late) {
    request->data = std::move(response.data);
  } else {
    scatter(*request, response.data);
  }
  return true;
}

bool SendQueue::brings_into_region(std::uint64_t sequence) {
  const Request* request = find(sequence);
  if (request == nullptr || request->work.opcode != Opcode::Read) return false;
  return std::ranges::any_of(request->places, [](const Place& place) {
    return place.range != nullptr && place.range->region != nullptr;
  });
}

void SendQueue::scatter(Request& request, std::span<const std::byte> data) {
  const bool dirties = placed_by_cpu(transport_) || memory_.dma_dirties() == DmaDirties::Yes;
  for (std::size_t i = 0; i < request.work.segment_count; ++i) {
    const Place& place = request.places[i];
    if (place.length == 0) continue;
    const std::size_t length = std::min<std::size_t>(place.length, data.size());
    if (!place.range->place(place.at, data.first(length), dirties)) {
      request.error = ErrorCode::InvalidArgument;
      return;
    }
    data = data.subspan(length);
  }
}

std::optional<Nanoseconds> SendQueue::completable() const {
  if (next_to_complete_ == requests_.size()) return std::nullopt;
  const Request& request = requests_[next_to_complete_];
  if (request.answered) return request.answered_at;
  const bool early = completes_on_arrival(request.work.opcode) && completes_early(transport_);
  if (early) return request.posted_at;
  return std::nullopt;
}

bool SendQueue::complete_next(CompletionQueue& completions) {
  PERDURE_ASSERT(completable().has_value());
  Request& request = requests_[next_to_complete_++];
  request.completed = true;
  if (!request.sent && !gather(request)) request.error = ErrorCode::InvalidArgument;
  const bool brought = request.work.opcode == Opcode::Read && !request.error;
  if (brought && !request.data.empty()) scatter(request, request.data);
  const std::optional<ErrorCode> error = request.error;
  if (request.work.signalled || error) {
    Completion completion;
    completion.context = request.work.context;
    completion.opcode = request.work.opcode;
    completion.error = error;
    completions.push(completion);
  }
  pop_completed();
  return error.has_value();
}

void SendQueue::pop_completed() {
  while (!requests_.empty() && requests_.front().completed && requests_.front().sent) {
    requests_.pop_front();
    --next_to_send_;
    --next_to_complete_;
  }
}

void SendQueue::break_all(CompletionQueue& completions) {
  for (std::size_t i = next_to_complete_; i < requests_.size(); ++i) {
    const Request& request = requests_[i];
    Completion completion;
    completion.context = request.work.context;
    completion.opcode = request.work.opcode;
    completion.error = request.error ? request.error : ErrorCode::OutcomeUnknown;
    completions.push(completion);
  }
  requests_.clear();
  next_to_send_ = 0;
  next_to_complete_ = 0;
  unanswered_non_posted_ = 0;
}

}  // namespace perdure::fabric::emu
