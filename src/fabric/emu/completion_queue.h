// The completion queue of one emulated endpoint, and how many entries its two work queues hold.
#pragma once

#include "fabric/emu/memory_table.h"
#include "fabric/fabric.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace perdure::fabric::emu {

/// A completion, and the message that is in the entry and not in its buffer yet
/// (RnicSwitches::cqe_payload_bytes).
struct CompletionEntry {
  Completion completion;
  std::vector<std::byte> payload;
  Place buffer;
};

/// Threads: one caller at a time.
class CompletionQueue {
 public:
  void push(CompletionEntry entry) {
    ++(entry.completion.opcode == Opcode::Receive ? receives_ : sends_);
    entries_.push_back(std::move(entry));
  }
  void push(const Completion& completion) { push(CompletionEntry{completion, {}, {}}); }

  std::size_t take(std::span<Completion> to) {
    const std::size_t count = std::min(to.size(), entries_.size());
    for (std::size_t i = 0; i < count; ++i) {
      const CompletionEntry& entry = entries_.front();
      to[i] = entry.completion;
      // What polls copies the payload out of the entry, as a library does. Memory that is not
      // registered any more is not touched.
      if (!entry.payload.empty()) (void)entry.buffer.range->write(entry.buffer.at, entry.payload);
      --(to[i].opcode == Opcode::Receive ? receives_ : sends_);
      entries_.pop_front();
    }
    return count;
  }

  bool empty() const { return entries_.empty(); }
  /// Entries that still hold a place of the send and of the receive queue.
  std::size_t sends() const { return sends_; }
  std::size_t receives() const { return receives_; }

 private:
  std::deque<CompletionEntry> entries_;
  std::size_t sends_ = 0;
  std::size_t receives_ = 0;
};

}  // namespace perdure::fabric::emu
