// StagingRing: where the bytes of updates in flight are, in the order of the updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

namespace perdure::client {

/// Threads: one caller at a time.
class StagingRing {
 public:
  explicit StagingRing(std::size_t bytes)
      : bytes_(bytes), memory_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}

  std::span<std::byte> memory() { return {memory_.get(), bytes_}; }

  /// Room for the bytes of update `number`, in one piece; empty: not now. Requires 1 to
  /// memory().size() bytes, and a higher number than before. Where nothing is taken there is room.
  std::span<std::byte> take(std::uint64_t number, std::size_t bytes) {
    std::size_t begin = 0;
    if (!pieces_.empty()) {
      const std::size_t head = pieces_.front().begin;
      const std::size_t tail = pieces_.back().end;
      const bool wrapped = tail <= head;
      begin = tail;
      if (!wrapped && bytes > bytes_ - tail) begin = 0;
      const std::size_t end = wrapped || begin == 0 ? head : bytes_;
      if (bytes > end - begin) return {};
    }
    pieces_.push_back({number, begin, begin + bytes});
    return {memory_.get() + begin, bytes};
  }

  /// Updates up to `number` need their bytes no longer.
  void release(std::uint64_t number) {
    while (!pieces_.empty() && pieces_.front().number <= number) pieces_.pop_front();
  }

 private:
  struct Piece {
    std::uint64_t number = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  std::size_t bytes_;
  std::unique_ptr<std::byte[]> memory_;
  std::deque<Piece> pieces_;
};

}  // namespace perdure::client
