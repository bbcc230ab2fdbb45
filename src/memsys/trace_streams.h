// TraceStreams: the events of each thread in its own order, out of one trace that is read once,
// front to back, in bounded memory.
#pragma once

#include "memsys/block_queue.h"
#include "memsys/trace.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perdure::memsys {

/// A queue in a ring that grows to what is needed.
template <typename T>
class Ring {
 public:
  bool empty() const { return head_ == tail_; }
  std::size_t size() const { return static_cast<std::size_t>(tail_ - head_); }
  T& front() { return items_[head_ & mask_]; }
  T& back() { return items_[(tail_ - 1) & mask_]; }
  T& operator[](std::size_t i) { return items_[(head_ + i) & mask_]; }
  const T& operator[](std::size_t i) const { return items_[(head_ + i) & mask_]; }
  void pop() { ++head_; }
  void push(const T& item) {
    if (size() > mask_) grow();
    items_[tail_++ & mask_] = item;
  }

 private:
  void grow() {
    std::vector<T> bigger(items_.size() * 2);
    const std::size_t count = size();
    for (std::size_t i = 0; i < count; ++i) bigger[i] = (*this)[i];
    items_.swap(bigger);
    mask_ = items_.size() - 1;
    head_ = 0;
    tail_ = count;
  }

  std::vector<T> items_ = std::vector<T>(8);
  std::uint64_t mask_ = 7;  // places, less one
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
};

/// Hears of every event but reads when it comes from the trace, in the order of that.
class TraceListener {
 public:
  virtual ~TraceListener() = default;
  virtual void on_read(const TraceEvent& event) = 0;
};

class TraceStreams {
 public:
  /// How many events are held at most because other threads are behind. A thread that is farther
  /// ahead in the trace waits; `lookahead_reached` says that it happened.
  static constexpr std::uint64_t kHeldMax = std::uint64_t{1} << 20;

  TraceStreams(TraceReader& reader, const TraceSummary& summary, TraceListener& listener,
               std::uint64_t held_max = kHeldMax);

  std::uint32_t threads() const { return static_cast<std::uint32_t>(streams_.size()); }
  /// The k-th event of the thread that was not taken; null: there is none, or it is too far away.
  const TraceEvent* peek(std::uint32_t thread, std::size_t k = 0) {
    Stream& stream = streams_[thread];
    if (stream.held.size() <= k && !read_until(thread, k)) return nullptr;
    return &stream.held[k];
  }
  /// Takes the first. Requires  peek(thread) != nullptr.
  void pop(std::uint32_t thread) {
    Stream& stream = streams_[thread];
    if (stream.held.front().kind == EventKind::Write) --stream.writes_left;
    stream.held.pop();
    --stream.left;
    --held_;
  }
  /// Events of the thread that were not taken.
  std::uint64_t left(std::uint32_t thread) const { return streams_[thread].left; }
  std::uint64_t writes_left(std::uint32_t thread) const { return streams_[thread].writes_left; }

  /// The trace is not the one of the survey any more: somebody has written to it meanwhile.
  bool ended_early() const { return ended_early_; }
  bool lookahead_reached() const { return lookahead_reached_; }
  /// The most events that were held at once.
  std::uint64_t held_most() const { return held_most_; }
  /// For how many events there is memory.
  std::size_t room() const;
  /// Errors: as TraceReader::outcome; the streams then end early.
  Result<void> outcome() const { return reader_.outcome(); }

 private:
  struct Stream {
    BlockQueue<TraceEvent> held;
    std::uint64_t left = 0;
    std::uint64_t writes_left = 0;
  };

  bool read_until(std::uint32_t thread, std::size_t k);

  TraceReader& reader_;
  TraceListener& listener_;
  const std::uint64_t held_max_;
  std::vector<Stream> streams_;
  std::uint64_t held_ = 0;
  std::uint64_t held_most_ = 0;
  bool lookahead_reached_ = false;
  bool ended_early_ = false;
};

}  // namespace perdure::memsys
