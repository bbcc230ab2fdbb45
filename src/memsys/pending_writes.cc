// A hash table of lines, whose writes are lists in one arena: see pending_writes.h.
#include "memsys/pending_writes.h"

namespace perdure::memsys {
namespace {

/// Fibonacci hashing: lines of a stream, and of a stride, go to buckets of their own.
std::size_t hash(std::uint64_t line) {
  return static_cast<std::size_t>((line * 0x9e37'79b9'7f4a'7c15U) >> 32);
}

}  // namespace

std::uint32_t& PendingWrites::bucket(std::uint64_t line) {
  return heads_[hash(line) & (heads_.size() - 1)];
}

std::uint32_t PendingWrites::head(std::uint64_t line) const {
  std::uint32_t number = heads_[hash(line) & (heads_.size() - 1)];
  while (number != kNone && at(number)->line != line) number = at(number)->next_line;
  return number;
}

std::uint32_t PendingWrites::take_place() {
  if (free_ == kNone) {
    const auto first = static_cast<std::uint32_t>(room());
    blocks_.push_back(std::make_unique<Write[]>(kBlock));
    for (std::uint32_t i = kBlock; i > 0; --i) {
      at(first + i - 1)->next = free_;
      free_ = first + i - 1;
    }
  }
  const std::uint32_t place = free_;
  free_ = at(place)->next;
  return place;
}

void PendingWrites::add(const TraceEvent& write) {
  if (size_ == heads_.size()) grow();
  ++size_;
  const std::uint32_t place = take_place();
  Write& added = *at(place);
  added.line = write.line;
  added.index = write.index;
  added.persists = kNever;
  added.thread = write.thread;
  added.next = kNone;
  if (Write* const first = this->first(write.line); first != nullptr) {
    at(first->last)->next = place;
    first->last = place;
    return;
  }
  std::uint32_t& head = bucket(write.line);
  added.next_line = head;
  added.last = place;
  head = place;
}

void PendingWrites::remove(const TraceEvent& write) {
  std::uint32_t* to_first = &bucket(write.line);
  while (at(*to_first)->line != write.line) to_first = &at(*to_first)->next_line;
  Write& first = *at(*to_first);
  std::uint32_t gone = *to_first;
  if (first.index == write.index) {
    *to_first = first.next == kNone ? first.next_line : first.next;
    if (Write* const second = at(first.next); second != nullptr) {
      second->next_line = first.next_line;
      second->last = first.last;
    }
  } else {
    std::uint32_t before = gone;
    while (at(at(before)->next)->index != write.index) before = at(before)->next;
    gone = at(before)->next;
    at(before)->next = at(gone)->next;
    if (first.last == gone) first.last = before;
  }
  at(gone)->next = free_;
  free_ = gone;
  --size_;
}

void PendingWrites::grow() {
  std::vector<std::uint32_t> old(heads_.size() * 2, kNone);
  old.swap(heads_);
  for (std::uint32_t number : old) {
    while (number != kNone) {
      Write& first = *at(number);
      const std::uint32_t next = first.next_line;
      std::uint32_t& head = bucket(first.line);
      first.next_line = head;
      head = number;
      number = next;
    }
  }
}

}  // namespace perdure::memsys
