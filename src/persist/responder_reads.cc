// The responder's side of READs: a message that says where the requester has what is to be stored.
// Its entries are executed in order, and what comes behind it waits until they are over.
#include <utility>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"
#include "core/whole_words.h"
#include "persist/responder.h"

namespace perdure::persist {

Result<void> Responder::prepare_reading() {
  if (!options_.reads) return {};
  const auto exported = region_.bytes().subspan(options_.exported.at, options_.exported.length);
  PERDURE_TRY(memory, device_.register_memory(exported, fabric::Access::Local));
  read_memory_ = std::move(memory);
  waiting_.reserve(queue_.depth);
  return {};
}

/// Posts the first READs of a message, whose entries were checked.
Result<void> Responder::begin_reading(std::span<const std::byte> message,
                                      const MessageHeader& header) {
  if (!options_.reads) {
    return Error{ErrorCode::Unsupported, "this responder READs nothing of its requesters"};
  }
  PERDURE_ASSERT(!reading_);
  reading_.emplace(message, header);
  PERDURE_TRY_VOID(go_on_reading());  // which ends no sooner than in end_reading
  return {};
}

/// Executes entries up to one that has to wait for READs. Whether all were executed.
Result<bool> Responder::go_on_reading() {
  Reading& at = *reading_;
  std::byte* const pool = region_.bytes().data() + options_.exported.at;
  for (; at.entry < at.header.entries; ++at.entry) {
    const Entry entry = entry_at(at.message, at.entry);
    const bool copies = (entry.actions & kCopy) != 0;
    const bool reads = (entry.actions & kRead) != 0;
    const bool behind = copies || (!at.posted && (entry.actions & kAfterReads) != 0);
    if (behind && at.in_flight != 0) return false;
    if (at.flush_named && (copies || (reads && !at.posted))) {
      // As in execute: it must be durable before what it orders after it exists.
      PERDURE_TRY_VOID(flush_pending());
      at.flush_named = false;
    }
    if (copies) {
      copy_whole_words(pool + entry.offset, {at.message.data() + at.payload, entry.length});
      stored_ = true;
      at.payload += entry.length;
      counters_.copied_bytes += entry.length;
    }
    if (reads && !at.posted) {
      PERDURE_TRY(posted, post_read(entry));
      if (!posted) return false;
    }
    if ((entry.actions & kFlush) != 0) {
      if (at.in_flight != 0) return false;  // what has not arrived is not flushed
      pending_.push_back({options_.exported.at + entry.offset, entry.length});
      at.flush_named = true;
    }
    at.posted = false;
  }
  return at.in_flight == 0;
}

/// Posts the READ of the next entry. False: the send queue is full.
Result<bool> Responder::post_read(const Entry& entry) {
  Reading& at = *reading_;
  const std::byte* const source = at.message.data() + at.payload;
  fabric::WorkRequest read;
  read.opcode = fabric::Opcode::Read;
  read.context = kReadContext;
  read.remote = {load<std::uint64_t>(source), load<std::uint64_t>(source + sizeof(std::uint64_t)),
                 entry.length};
  read.segments[0] = {read_memory_->bytes().data() + entry.offset, entry.length,
                      read_memory_.get()};
  read.segment_count = 1;
  PERDURE_TRY(taken, endpoint_.post(std::span<const fabric::WorkRequest>(&read, 1)));
  if (taken == 0) return false;
  at.payload += kReadSourceBytes;
  at.posted = true;
  ++at.in_flight;
  return true;
}

/// Goes on with the message that is reading; returns how many messages ended: 0 or 1.
Result<std::size_t> Responder::end_reading() {
  PERDURE_TRY(ended, go_on_reading());
  if (!ended) return std::size_t{0};
  if ((reading_->header.flags & kAckWanted) != 0) ack_due_ = true;
  consumed_.push_back(reading_->buffer);
  reading_.reset();
  ++handled_;
  return std::size_t{1};
}

}  // namespace perdure::persist
