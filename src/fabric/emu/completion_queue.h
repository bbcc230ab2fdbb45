// The completion queue of one emulated endpoint, and how many entries its two work queues hold.
#pragma once

#include "fabric/fabric.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>

namespace perdure::fabric::emu {

/// Threads: one caller at a time.
class CompletionQueue {
 public:
  void push(const Completion& completion) {
    ++(completion.opcode == Opcode::Receive ? receives_ : sends_);
    entries_.push_back(completion);
  }

  std::size_t take(std::span<Completion> to) {
    const std::size_t count = std::min(to.size(), entries_.size());
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = entries_.front();
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
  std::deque<Completion> entries_;
  std::size_t sends_ = 0;
  std::size_t receives_ = 0;
};

}  // namespace perdure::fabric::emu
