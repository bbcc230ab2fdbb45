#include "fabric/emu/memory_table.h"

#include "core/assert.h"
#include "core/bytes.h"
#include "pmem/hardware_copy.h"

#include <sys/mman.h>
#include <unistd.h>

#include <functional>

namespace perdure::fabric::emu {

bool RegisteredRange::write(std::uint64_t at, std::span<const std::byte> data) {
  PERDURE_ASSERT(at + data.size() <= bytes_.size());
  const MutexLock lock(mutex_);
  if (!registered_) return false;
  pmem::hardware_copy(bytes_.data() + at, data.data(), data.size());
  return true;
}

bool RegisteredRange::read(std::uint64_t at, std::span<std::byte> data) {
  PERDURE_ASSERT(at + data.size() <= bytes_.size());
  const MutexLock lock(mutex_);
  if (!registered_) return false;
  pmem::hardware_copy(data.data(), bytes_.data() + at, data.size());
  return true;
}

bool RegisteredRange::place(std::uint64_t at, std::span<const std::byte> data, bool dirties) {
  if (region == nullptr) return write(at, data);
  const pmem::Range written{region_at + at, data.size()};
  if (!dirties) region->begin_unnoticed(written);
  const bool placed = write(at, data);
  if (!dirties) region->end_unnoticed(written);
  if (placed) region->note_written(written);
  return placed;
}

namespace {

/// Until its registration is gone an RNIC may reach it, so nobody may have unmapped it before.
bool is_mapped(std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t begin = first - first % page;
  // Does nothing but look.
  return ::msync(reinterpret_cast<void*>(begin), first + bytes.size() - begin, MS_ASYNC) == 0;
}

}  // namespace

bool RegisteredRange::registered() {
  const MutexLock lock(mutex_);
  return registered_;
}

void RegisteredRange::deregister() {
  const MutexLock lock(mutex_);
  PERDURE_ASSERT(!registered_ || is_mapped(bytes_));
  registered_ = false;
}

/// What register_memory gives out.
class RegisteredMemory final : public Memory {
 public:
  RegisteredMemory(MemoryTable& table, std::shared_ptr<RegisteredRange> range)
      : table_(table), range_(std::move(range)) {}
  // Even where revocations are refused: the bytes may go now, and here nothing keeps them.
  ~RegisteredMemory() override { revoke(); }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  std::span<std::byte> bytes() const override { return range_->bytes(); }
  std::uint64_t key() const override { return range_->key(); }
  std::uint64_t base() const override { return range_->base(); }
  DmaDirties dma_dirties() const override { return table_.dma_dirties(); }
  FlushPlacement flush_placement() const override {
    return range_->access() <= Access::Windows ? FlushPlacement::None : FlushPlacement::Persistence;
  }
  bool is_lost() const override { return !range_->registered(); }
  Result<void> deregister() override {
    if (table_.refuses_revocations()) return revocation_refused();
    revoke();
    return {};
  }

 private:
  void revoke() {
    // Late: nobody finds it any more, and what is on its way arrives. A region is there still.
    if (!table_.places_late() || range_->region == nullptr) range_->deregister();
    table_.forget(range_->key());
  }

  MemoryTable& table_;
  std::shared_ptr<RegisteredRange> range_;
};

std::uint64_t MemoryTable::touch(const Place& place) {
  if (place.range->region == nullptr || place.length == 0) return 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(place.range->bytes().data()) + place.at;
  const MutexLock lock(mutex_);
  std::uint64_t untouched = 0;
  for (auto page = begin / pmem::kPageBytes; page * pmem::kPageBytes < begin + place.length;
       ++page) {
    untouched += touched_.insert(page).second ? 1U : 0U;
  }
  return untouched;
}

void MemoryTable::add_region(pmem::CrashableRegion& region) {
  const MutexLock lock(mutex_);
  regions_.push_back(&region);
}

bool MemoryTable::bind(std::uint64_t key, std::uint64_t connection) {
  const auto range = find(key);
  if (range == nullptr || !range->is_window()) return false;
  range->bind(connection);
  return true;
}

bool MemoryTable::may_bind(std::uint64_t key) {
  const auto range = find(key);
  if (range == nullptr || !range->is_window()) return true;
  if (range->bytes().size() <= window_bytes_max_) return true;
  window_limit_.note_refused(range->bytes().size());
  return false;
}

void MemoryTable::use_windows(const RnicSwitches& switches) {
  binds_windows_ = switches.binds_windows;
  window_bytes_max_ = switches.window_bytes_max;
  if (switches.says_window_limit) window_limit_.lower(window_bytes_max_);
}

WindowKind MemoryTable::window_kind(std::uint64_t bytes) const {
  if (!binds_windows_) return WindowKind::Key;
  return window_limit_.allows(bytes) ? WindowKind::Bound : WindowKind::Registration;
}

std::uint64_t MemoryTable::pinned_bytes() const {
  const MutexLock lock(mutex_);
  std::uint64_t bytes = 0;
  for (const auto& [key, range] : ranges_) bytes += range->is_window() ? 0 : range->bytes().size();
  return bytes;
}

std::unique_ptr<Memory> MemoryTable::add(std::span<std::byte> bytes, Access access,
                                         bool is_window) {
  const MutexLock lock(mutex_);
  std::uint64_t key = random_.next();
  while (key == 0 || ranges_.contains(key)) key = random_.next();
  // Not zero and not the address: who forgets to add the base, or adds his own, is found out.
  constexpr std::uint64_t kBasesFrom = 1ULL << 40;
  constexpr std::uint64_t kBasePages = 1ULL << 20;
  const std::uint64_t base = kBasesFrom + random_.below(kBasePages) * pmem::kPageBytes;

  // Offsets in a region and addresses that peers see must agree on where lines begin.
  const auto misaligned = reinterpret_cast<std::uintptr_t>(bytes.data()) % pmem::kPageBytes;
  auto range = std::make_shared<RegisteredRange>(bytes, key, base + misaligned, access, is_window);
  for (pmem::CrashableRegion* region : regions_) {
    const std::span<std::byte> whole = region->bytes();
    const std::less_equal<const std::byte*> not_after;
    if (not_after(whole.data(), bytes.data()) &&
        not_after(bytes.data() + bytes.size(), whole.data() + whole.size())) {
      range->region = region;
      range->region_at = static_cast<std::uint64_t>(bytes.data() - whole.data());
    }
  }
  ranges_.emplace(key, range);
  return std::make_unique<RegisteredMemory>(*this, std::move(range));
}

void MemoryTable::revoke_all() {
  refuses_.store(false);
  const MutexLock lock(mutex_);
  for (auto& [key, range] : ranges_) range->deregister();
  ranges_.clear();
}

std::optional<Place> MemoryTable::find_remote(std::uint64_t key, std::uint64_t address,
                                              std::uint64_t length, Ask ask) {
  const auto range = find(key);
  if (range == nullptr || range->access() < ask.needed) return std::nullopt;
  if (!range->is_open_to(ask.connection)) return std::nullopt;
  if (address < range->base()) return std::nullopt;
  const std::uint64_t at = address - range->base();
  if (at > range->bytes().size() || length > range->bytes().size() - at) return std::nullopt;
  return Place{range, at, length};
}

std::optional<Place> MemoryTable::find_local(const Segment& segment) {
  if (segment.memory == nullptr) return std::nullopt;
  const auto range = find(segment.memory->key());
  if (range == nullptr) return std::nullopt;
  const std::byte* begin = range->bytes().data();
  const std::byte* end = begin + range->bytes().size();
  const std::less<const std::byte*> before;
  if (before(segment.data, begin) || before(end, segment.data)) return std::nullopt;
  if (segment.length > static_cast<std::size_t>(end - segment.data)) return std::nullopt;
  return Place{range, static_cast<std::uint64_t>(segment.data - begin), segment.length};
}

void MemoryTable::forget(std::uint64_t key) {
  const MutexLock lock(mutex_);
  ranges_.erase(key);
}

std::shared_ptr<RegisteredRange> MemoryTable::find(std::uint64_t key) {
  const MutexLock lock(mutex_);
  const auto found = ranges_.find(key);
  return found == ranges_.end() ? nullptr : found->second;
}

}  // namespace perdure::fabric::emu
