#include "log/staging.h"

#include <sys/mman.h>

#include <algorithm>

namespace perdure::log {

Staging::Staging(std::size_t bytes)
    : bytes_(bytes),
      slots_(std::make_unique_for_overwrite<Slot[]>(kSlots)),
      room_end_(room_of_all()) {
  PERDURE_ASSERT(bytes / kUnitBytes <= UINT32_MAX);
  // Pages come when they are first used, so a large ring costs nothing while little is in flight.
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  PERDURE_ASSERT(mapped != MAP_FAILED);
  memory_ = static_cast<std::byte*>(mapped);
}

Staging::~Staging() { ::munmap(memory_, bytes_); }

/// Behind what is staged, or before it.
std::byte* Staging::reserve_anew(std::size_t length) {
  const std::uint64_t slots = kSlots - (next_slot_ - first_slot_);
  std::size_t end = bytes_;  // of what is free behind write_at_
  if (slots < kSlots) {
    const std::size_t oldest = std::size_t{slot(first_slot_).offset} * kUnitBytes;
    const bool before = write_at_ <= oldest;  // what is staged goes on behind it
    if (!before && write_at_ + length > bytes_ && length < oldest) write_at_ = 0;
    // Were they to meet, it would look empty.
    if (before || write_at_ == 0) end = oldest - std::min(oldest, kUnitBytes);
  }
  const std::size_t free = end - std::min(end, write_at_);
  // A record takes a unit at least, so there is a slot for each that finds room without a look.
  room_end_ = write_at_ + std::min<std::size_t>(free, slots * kUnitBytes);
  return slots != 0 && length <= free ? memory_ + write_at_ : nullptr;
}

/// The number of the first staged record at or after `lsn`.
std::uint64_t Staging::find(Lsn lsn) const {
  std::uint64_t low = first_slot_;
  std::uint64_t high = next_slot_;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (slot(middle).lsn < lsn.value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  PERDURE_ASSERT(low < next_slot_);
  return low;
}

Staging::Run Staging::longest_run_at(Lsn lsn, std::uint64_t length_max,
                                     std::uint64_t ring_bytes) const {
  std::uint64_t number = find(lsn);
  const Slot& first = slot(number);
  Run run{Lsn{first.lsn}, memory_ + std::size_t{first.offset} * kUnitBytes, first.length, end_};
  length_max = std::min(length_max, ring_bytes - first.lsn % ring_bytes);
  for (++number; number < next_slot_; ++number) {
    const Slot& next = slot(number);
    const bool adjacent = next.lsn == first.lsn + run.length &&
                          memory_ + std::size_t{next.offset} * kUnitBytes == run.data + run.length;
    if (!adjacent || run.length + next.length > length_max) break;
    run.length += next.length;
  }
  if (number < next_slot_) run.end = Lsn{slot(number).lsn};
  return run;
}

const std::byte* Staging::record_at(Lsn lsn) const {
  if (next_slot_ == first_slot_ || slot(next_slot_ - 1).lsn < lsn.value) return nullptr;
  const Slot& found = slot(find(lsn));
  return found.lsn == lsn.value ? memory_ + std::size_t{found.offset} * kUnitBytes : nullptr;
}

void Staging::release(Lsn lsn) {
  while (first_slot_ < next_slot_ && slot(first_slot_).lsn < lsn.value) ++first_slot_;
  if (first_slot_ != next_slot_ || write_at_ == 0) return;
  write_at_ = 0;  // empty: start over, so that one record in flight stays in the cache
  room_end_ = room_of_all();
}

std::optional<Lsn> Staging::first() const {
  if (first_slot_ == next_slot_) return std::nullopt;
  return Lsn{slot(first_slot_).lsn};
}

}  // namespace perdure::log
