// PendingWrites: writes of a trace that are not yet persisted, by the line that they write. There
// may be a million of them, where threads are far apart, and nearly as many lines.
#pragma once

#include "memsys/trace.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace perdure::memsys {

class PendingWrites {
 public:
  struct Write {
    std::uint64_t line = 0;
    std::uint64_t index = 0;  // of the event in the trace
    Cycle persists = kNever;  // the owner's
    std::uint32_t thread = 0;

   private:
    friend class PendingWrites;
    std::uint32_t next = 0;       // of the same line
    std::uint32_t next_line = 0;  // of the first of a line: the first of another one
    std::uint32_t last = 0;       // of the first of a line: its last
  };

  PendingWrites() : heads_(kHeads, kNone) {}

  /// Requires  the writes of a line come in the order of the trace.
  void add(const TraceEvent& write);
  /// The oldest of the line; null: there is none. Valid until something is removed.
  Write* first(std::uint64_t line) { return at(head(line)); }
  const Write* first(std::uint64_t line) const { return at(head(line)); }
  Write* next(const Write& write) { return at(write.next); }
  const Write* next(const Write& write) const { return at(write.next); }
  /// Requires  it is there.
  void remove(const TraceEvent& write);

  std::size_t size() const { return size_; }
  /// For how many writes there is memory: it is kept.
  std::size_t room() const { return blocks_.size() * kBlock; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::size_t kHeads = 64;    // to begin with
  static constexpr std::size_t kBlock = 1024;  // writes

  Write* at(std::uint32_t number) {
    return number == kNone ? nullptr : &blocks_[number / kBlock][number % kBlock];
  }
  const Write* at(std::uint32_t number) const {
    return number == kNone ? nullptr : &blocks_[number / kBlock][number % kBlock];
  }
  std::uint32_t head(std::uint64_t line) const;
  std::uint32_t& bucket(std::uint64_t line);
  std::uint32_t take_place();
  void grow();

  std::vector<std::unique_ptr<Write[]>> blocks_;
  std::vector<std::uint32_t> heads_;  // by a hash of the line; a power of two
  std::uint32_t free_ = kNone;
  std::size_t size_ = 0;
};

}  // namespace perdure::memsys
