// Flights: the calls of a client that somebody may still ask about, by sequence. Their memory is
// used again, so a call that is made when as many were made before takes none.
#pragma once

#include "core/assert.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace perdure::rpc {

/// Replies that a client keeps for those who ask late, and bytes of them in all.
inline constexpr std::size_t kRepliesRemembered = 4096;
inline constexpr std::size_t kRememberedBytesMax = 64 * 1024 * 1024;

/// A call, from its beginning until its reply is forgotten.
struct Flight {
  std::uint64_t position = 0;
  std::uint64_t bytes = 0;  // of its entry; 0: an earlier process's
  std::uint32_t status = 0;
  bool answered = false;
  bool cancelled = false;
  std::vector<std::byte> reply;
};

/// Threads: one caller at a time.
class Flights {
 public:
  /// Forgets all; the next one is `first`.
  void restart(std::uint64_t first) {
    first_ = first;
    count_ = 0;
  }
  std::uint64_t first() const { return first_; }
  bool holds(std::uint64_t sequence) const {
    return sequence >= first_ && sequence - first_ < count_;
  }
  Flight& at(std::uint64_t sequence) {
    PERDURE_ASSERT(holds(sequence));
    return slots_[sequence & (slots_.size() - 1)];
  }
  const Flight& at(std::uint64_t sequence) const {
    PERDURE_ASSERT(holds(sequence));
    return slots_[sequence & (slots_.size() - 1)];
  }
  /// The next call.
  Flight& add() {
    if (count_ == slots_.size()) grow();
    Flight& flight = slots_[(first_ + count_++) & (slots_.size() - 1)];
    flight.position = flight.bytes = 0;
    flight.answered = flight.cancelled = false;
    flight.reply.clear();
    return flight;
  }
  void answer(std::uint64_t sequence, std::uint32_t status, std::span<const std::byte> reply) {
    Flight& flight = at(sequence);
    flight.status = status;
    flight.answered = true;
    flight.reply.assign(reply.begin(), reply.end());
    remembered_bytes_ += reply.size();
  }
  /// Forgets replies up to `last` that are too many, or too large in all.
  void trim(std::uint64_t last) {
    while (count_ != 0 && first_ <= last &&
           (count_ > kRepliesRemembered || remembered_bytes_ > kRememberedBytesMax)) {
      Flight& oldest = at(first_);
      if (oldest.answered) remembered_bytes_ -= oldest.reply.size();
      if (oldest.reply.capacity() > kKeptCapacity) std::vector<std::byte>().swap(oldest.reply);
      ++first_;
      --count_;
    }
  }

 private:
  static constexpr std::size_t kKeptCapacity = 1024;  // of a reply's memory
  static constexpr std::size_t kSlotsMin = 64;

  void grow() {
    std::vector<Flight> more(std::max(kSlotsMin, 2 * slots_.size()));
    for (std::uint64_t sequence = first_; sequence != first_ + count_; ++sequence) {
      more[sequence & (more.size() - 1)] = std::move(at(sequence));
    }
    slots_ = std::move(more);
  }

  std::vector<Flight> slots_;  // a power of two
  std::uint64_t first_ = 1;
  std::uint64_t count_ = 0;
  std::size_t remembered_bytes_ = 0;
};

}  // namespace perdure::rpc
