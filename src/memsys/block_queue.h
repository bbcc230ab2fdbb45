// BlockQueue: a queue whose memory goes back as it is emptied. A ring keeps the room that it once
// needed, and each thread of a trace may need much of it, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

namespace perdure::memsys {

template <typename T>
class BlockQueue {
 public:
  static constexpr std::size_t kBlock = 32;  // items

  bool empty() const { return head_ == tail_; }
  std::size_t size() const { return tail_ - head_; }
  T& front() { return blocks_.front()[head_]; }
  T& back() { return (*this)[size() - 1]; }
  T& operator[](std::size_t i) { return blocks_[(head_ + i) / kBlock][(head_ + i) % kBlock]; }
  void push(const T& item) {
    if (tail_ == blocks_.size() * kBlock) blocks_.push_back(std::make_unique<T[]>(kBlock));
    blocks_[tail_ / kBlock][tail_ % kBlock] = item;
    ++tail_;
  }
  void pop() {
    if (++head_ == tail_) {  // the one block that is left is used again
      head_ = tail_ = 0;
    } else if (head_ == kBlock) {
      blocks_.pop_front();
      head_ = 0;
      tail_ -= kBlock;
    }
  }
  /// For how many items there is room: what is in the queue, and two blocks at most.
  std::size_t room() const { return blocks_.size() * kBlock; }

 private:
  std::deque<std::unique_ptr<T[]>> blocks_;
  std::size_t head_ = 0;  // in the first block
  std::size_t tail_ = 0;  // counted from its begin
};

}  // namespace perdure::memsys
