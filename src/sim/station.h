// Station: a part of the way that serves one message after the other. It may send on the first byte
// before the last has come (cut through).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace perdure::sim {

/// Picoseconds since the start.
using Time = std::uint64_t;
inline constexpr Time kTimeNever = ~Time{0};

inline Time picoseconds(double ns) { return static_cast<Time>(std::llround(ns * 1e3)); }

/// When the first and the last byte of a message are somewhere.
struct Span {
  Time head = 0;
  Time tail = 0;
};

class Station {
 public:
  /// Takes `busy` for the whole message; each byte comes out `latency` later.
  /// Requires  calls in the order of `in.head`: first come, first served.
  Span pass(Span in, Time latency, Time busy) {
    const Time start = std::max(in.head, free_);
    free_ = start + busy;
    busy_ += busy;
    return {start + latency, std::max(in.tail, free_) + latency};
  }

  /// In all.
  Time busy() const { return busy_; }

 private:
  Time free_ = 0;
  Time busy_ = 0;
};

}  // namespace perdure::sim
