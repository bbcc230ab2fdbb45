// Staging: the writer's copy of the records that are not durable everywhere yet, in memory that
// the devices can read. A ring of bytes, and a short list of extents that say which LSNs are where.
#pragma once

#include <perdure/types.h>

#include "core/assert.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace perdure::log {

/// Threads: one caller at a time.
class Staging {
 public:
  explicit Staging(std::size_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// All of it, for registration.
  std::span<std::byte> memory() { return {memory_, bytes_}; }

  /// Room for `length` bytes in one piece, or null when there is none: release first.
  std::byte* reserve(std::size_t length) {
    std::byte* const room = room_for(length);
    return room != nullptr ? room : reserve_anew(length);
  }
  /// The same, and null also where it takes a longer look.
  std::byte* room_for(std::size_t length) const {
    return length <= room() ? memory_ + write_at_ : nullptr;
  }
  /// Whether so many records, of so many bytes together, would find room.
  bool has_room(std::size_t length, std::uint64_t records) {
    return kSlots - (next_slot_ - first_slot_) >= records && reserve(length) != nullptr;
  }
  /// How much reserve gives without a longer look, and where. What is committed takes as much of it
  /// as it has bytes; nothing else makes it less.
  std::size_t room() const { return room_end_ - write_at_; }
  std::byte* place() const { return memory_ + write_at_; }
  /// commit of what is there, at most room() bytes, and reaches to the next record.
  void commit_in_room(Lsn lsn, std::size_t length) {
    end_ = Lsn{lsn.value + length};
    slots_[next_slot_ & kSlotMask] = {lsn.value, static_cast<std::uint32_t>(write_at_ / kUnitBytes),
                                      static_cast<std::uint32_t>(length)};
    ++next_slot_;
    write_at_ += length;
  }
  /// Makes the reserved bytes the record at `lsn`. Records come in order of LSN; the next one
  /// begins at `next`, which of a pad, of whose payload nothing is sent, is far behind its bytes.
  void commit(Lsn lsn, std::size_t length, Lsn next) {
    PERDURE_ASSERT(length % kUnitBytes == 0);
    end_ = next;
    slots_[next_slot_ & kSlotMask] = {lsn.value, static_cast<std::uint32_t>(write_at_ / kUnitBytes),
                                      static_cast<std::uint32_t>(length)};
    ++next_slot_;
    write_at_ += length;
    room_end_ = std::max(room_end_, write_at_);
  }

  /// A run of bytes of the log.
  struct Run {
    Lsn lsn;
    std::byte* data = nullptr;
    std::uint64_t length = 0;
    Lsn end;  // where the record behind it begins
  };
  /// The longest run of whole records that begins with the first one at or after `lsn`, at most
  /// `length_max` long unless that record alone is longer, and within one lap of a ring of
  /// `ring_bytes`. Requires such a record.
  Run run_at(Lsn lsn, std::uint64_t length_max, std::uint64_t ring_bytes) const {
    const std::optional<Run> last = last_from(lsn);
    return last ? *last : longest_run_at(lsn, length_max, ring_bytes);
  }
  /// The last record that was staged, if it is at `lsn`: mostly it is.
  std::optional<Run> last_from(Lsn lsn) const {
    const Slot& last = slot(next_slot_ - 1);
    if (next_slot_ == first_slot_ || last.lsn != lsn.value) return std::nullopt;
    return Run{lsn, memory_ + std::size_t{last.offset} * kUnitBytes, last.length, end_};
  }

  /// Of the last record that was staged; 0 before the first one.
  std::uint64_t last_bytes() const {
    return next_slot_ == 0 ? 0 : slots_[(next_slot_ - 1) & kSlotMask].length;
  }

  /// The record that was staged with this LSN; null when there is none.
  const std::byte* record_at(Lsn lsn) const;

  /// Forgets everything below `lsn`, which is a boundary of records.
  void release(Lsn lsn);

  /// The lowest LSN that is staged; nothing when it is empty.
  std::optional<Lsn> first() const;

 private:
  // One record, or a pad: where it is.
  struct Slot {
    std::uint64_t lsn;
    std::uint32_t offset;  // in memory_, in units of 8 bytes
    std::uint32_t length;  // bytes
  };
  // Records staged at a time: enough for 10,000 open tickets and their pads.
  static constexpr std::size_t kSlots = 16 * 1024;
  static constexpr std::size_t kSlotMask = kSlots - 1;
  static_assert((kSlots & kSlotMask) == 0);
  static constexpr std::size_t kUnitBytes = 8;

  const Slot& slot(std::uint64_t number) const { return slots_[number & kSlotMask]; }
  std::size_t room_of_all() const { return std::min(bytes_, kSlots * kUnitBytes); }
  Run longest_run_at(Lsn lsn, std::uint64_t length_max, std::uint64_t ring_bytes) const;
  std::uint64_t find(Lsn lsn) const;
  std::byte* reserve_anew(std::size_t length);

  std::byte* memory_;
  std::size_t bytes_;
  std::unique_ptr<Slot[]> slots_;  // a ring of kSlots
  std::uint64_t first_slot_ = 0;   // number of the oldest staged record
  std::uint64_t next_slot_ = 0;    // number that the next record gets
  std::size_t write_at_ = 0;       // where the next record goes
  /// Up to where bytes from there are free, as far as was looked, and for which there are slots.
  std::size_t room_end_;
  Lsn end_;  // behind the last record that was staged
};

}  // namespace perdure::log
