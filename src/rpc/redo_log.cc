// All or nothing: see redo_log.h.
#include "rpc/redo_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/try.h"

namespace perdure::rpc {
namespace {

constexpr std::uint64_t kChangeAlignment = 8;

std::uint32_t record_crc(std::span<const std::byte> record) {
  const std::uint32_t head = crc32c(record.first(12));
  return crc32c(record.subspan(kRedoHeadBytes), head);
}

}  // namespace

RedoLog::RedoLog(pmem::Region& region, const Options& options)
    : region_(region), options_(options), record_(kRedoHeadBytes) {
  record_.reserve(options.area_bytes);
}

RedoLog::RedoLog(const RedoLog& under, std::nullptr_t)
    : region_(under.region_), options_(under.options_), under_(&under), record_(kRedoHeadBytes) {
  record_.reserve(options_.area_bytes);
}

bool RedoLog::take(RedoLog& part, std::uint64_t more) {
  const std::size_t bytes = part.record_.size() - kRedoHeadBytes;
  if (room() < bytes + more) return false;
  record_.insert(record_.end(), part.record_.begin() + static_cast<std::ptrdiff_t>(kRedoHeadBytes),
                 part.record_.end());
  part.roll_back(kRedoHeadBytes);
  return true;
}

std::span<std::byte> RedoLog::area(std::size_t which) const {
  return region_.bytes().subspan(options_.base + options_.areas[which], options_.area_bytes);
}

/// False: the changes make no sense.
template <typename Visit>
bool RedoLog::for_each_change(std::span<const std::byte> changes, Visit visit) {
  while (!changes.empty()) {
    if (changes.size() < kChangeHeadBytes) return false;
    const auto at = load<std::uint64_t>(changes.data());
    const std::uint64_t length = load<std::uint32_t>(changes.data() + 8);
    const std::uint64_t taken = kChangeHeadBytes + round_up(length, kChangeAlignment);
    if (taken > changes.size()) return false;
    if (!visit(Change{at, changes.subspan(kChangeHeadBytes, length)})) return false;
    changes = changes.subspan(taken);
  }
  return true;
}

bool RedoLog::is_whole(std::span<const std::byte> area) const {
  const std::uint64_t bytes = load<std::uint32_t>(area.data() + 8);
  if (load<std::uint64_t>(area.data()) == 0 || bytes > area.size() - kRedoHeadBytes) return false;
  return load<std::uint32_t>(area.data() + 12) == record_crc(area.first(kRedoHeadBytes + bytes));
}

Result<void> RedoLog::recover() {
  // A process that died may have left a record that is visible and not durable: what is stored by
  // it must not outlive it.
  std::array<pmem::Range, 2> both;
  for (std::size_t which = 0; which < 2; ++which) {
    both[which] = {options_.base + options_.areas[which], options_.area_bytes};
  }
  PERDURE_TRY_VOID(region_.flush(both));
  std::array<std::uint64_t, 2> numbers{};
  for (std::size_t which = 0; which < 2; ++which) {
    if (is_whole(area(which))) numbers[which] = load<std::uint64_t>(area(which).data());
  }
  const std::size_t newest = numbers[1] > numbers[0] ? 1 : 0;
  const std::size_t older = 1 - newest;
  const bool misplaced = numbers[0] % 2 != 0 || (numbers[1] != 0 && numbers[1] % 2 != 1);
  if (misplaced || (numbers[older] != 0 && numbers[newest] != numbers[older] + 1)) {
    return Error{
        ErrorCode::Corrupt,
        fmt::format("the pool's redo records are of transactions {} and {}, which no crash "
                    "can leave",
                    numbers[0], numbers[1])};
  }
  number_ = numbers[newest];
  unflushed_.clear();
  for (const std::size_t which : {older, newest}) {
    if (numbers[which] != 0) PERDURE_TRY_VOID(replay(area(which)));
  }
  PERDURE_TRY_VOID(region_.flush(unflushed_));
  unflushed_.clear();
  roll_back(kRedoHeadBytes);
  return {};
}

Result<void> RedoLog::replay(std::span<const std::byte> area) {
  const auto changes = area.subspan(kRedoHeadBytes, load<std::uint32_t>(area.data() + 8));
  const auto fits = [&](const Change& change) {
    return pmem::inside({change.at, change.bytes.size()}, options_.bytes);
  };
  if (!for_each_change(changes, fits)) {
    return Error{ErrorCode::Corrupt, "a redo record of the pool makes no sense"};
  }
  for_each_change(changes, [&](const Change& change) {
    std::memcpy(region_.bytes().data() + options_.base + change.at, change.bytes.data(),
                change.bytes.size());
    unflushed_.push_back({options_.base + change.at, change.bytes.size()});
    return true;
  });
  return {};
}

std::uint64_t RedoLog::room() const {
  const std::uint64_t left = options_.area_bytes - record_.size();
  return left < kChangeHeadBytes ? 0 : round_down(left - kChangeHeadBytes, kChangeAlignment);
}

Result<void> RedoLog::write(std::uint64_t at, std::span<const std::byte> bytes) {
  if (!pmem::inside({at, bytes.size()}, options_.bytes)) {
    return Error{ErrorCode::OutOfRange,
                 fmt::format("bytes {}+{} lie outside of what may be changed", at, bytes.size())};
  }
  if (bytes.size() > room()) {
    return Error{ErrorCode::NoSpace,
                 fmt::format("a transaction changes at most {} bytes in all",
                             options_.area_bytes - kRedoHeadBytes - kChangeHeadBytes)};
  }
  const std::size_t begin = record_.size();
  record_.resize(begin + kChangeHeadBytes + round_up(bytes.size(), kChangeAlignment));
  std::byte* const to = record_.data() + begin;
  perdure::store(to, at);
  perdure::store(to + 8, static_cast<std::uint32_t>(bytes.size()));
  std::copy(bytes.begin(), bytes.end(), to + kChangeHeadBytes);
  return {};
}

void RedoLog::read(std::uint64_t at, std::span<std::byte> into) const {
  PERDURE_ASSERT(pmem::inside({at, into.size()}, options_.bytes));
  if (under_ != nullptr) {
    under_->read(at, into);
  } else {
    const std::byte* const from = region_.bytes().data() + options_.base + at;
    std::copy(from, from + into.size(), into.begin());
  }
  for_each_change(std::span(record_).subspan(kRedoHeadBytes), [&](const Change& change) {
    const std::uint64_t begin = std::max(at, change.at);
    const std::uint64_t end = std::min(at + into.size(), change.at + change.bytes.size());
    if (begin < end) {
      std::memcpy(into.data() + (begin - at), change.bytes.data() + (begin - change.at),
                  end - begin);
    }
    return true;
  });
}

void RedoLog::roll_back(std::size_t mark) {
  PERDURE_ASSERT(mark >= kRedoHeadBytes && mark <= record_.size());
  record_.resize(mark);
}

Result<void> RedoLog::commit() {
  // What the record says may come from zeros that stand for a page that was lost. Whole in its area
  // it would count, whatever becomes of the flush.
  if (region_.is_lost()) return region_.check();
  const std::uint64_t next = number_ + 1;
  perdure::store(record_.data(), next);
  perdure::store(record_.data() + 8, static_cast<std::uint32_t>(record_.size() - kRedoHeadBytes));
  perdure::store(record_.data() + 12, record_crc(record_));
  const std::size_t which = next % 2;
  std::copy(record_.begin(), record_.end(), area(which).begin());
  unflushed_.push_back({options_.base + options_.areas[which], record_.size()});
  PERDURE_TRY_VOID(region_.flush(unflushed_));
  unflushed_.clear();
  number_ = next;
  return {};
}

void RedoLog::store() {
  for_each_change(std::span(record_).subspan(kRedoHeadBytes), [&](const Change& change) {
    std::memcpy(region_.bytes().data() + options_.base + change.at, change.bytes.data(),
                change.bytes.size());
    unflushed_.push_back({options_.base + change.at, change.bytes.size()});
    return true;
  });
  roll_back(kRedoHeadBytes);
}

}  // namespace perdure::rpc
