#include "pmem/crashable_region.h"

#include "core/assert.h"
#include "pmem/hardware_copy.h"

#include <sanitizer/asan_interface.h>  // of the compiler; without the sanitizer nothing is called
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace perdure::pmem {

namespace {

/// How much of the region one drain_some looks at for a dirty unit.
constexpr std::uint64_t kDrainScanBytes = 16 * 1024;

/// Zeroed mappings. Short ones are kept and used again: worlds that live for microseconds would
/// wait longer for the kernel, which maps, fills and unmaps their pages, than for anything else.
class Mappings {
 public:
  /// Null, with errno, if there is no room.
  std::byte* take(std::size_t bytes) {
    if (std::byte* const kept = take_kept(bytes)) {
      ASAN_UNPOISON_MEMORY_REGION(kept, bytes);
      std::memset(kept, 0, bytes);
      return kept;
    }
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
  }

  void give_back(std::byte* mapped, std::size_t bytes) {
    if (!keep(mapped, bytes)) ::munmap(mapped, bytes);
  }

 private:
  static constexpr std::size_t kKeptBytesMax = 2 << 20;  // of each
  static constexpr std::size_t kKeptMax = 16;

  std::byte* take_kept(std::size_t bytes) {
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find(kept_, bytes, &std::span<std::byte>::size);
    if (found == kept_.end()) return nullptr;
    std::byte* const mapped = found->data();
    *found = kept_.back();
    kept_.pop_back();
    return mapped;
  }

  bool keep(std::byte* mapped, std::size_t bytes) {
    const MutexLock lock(mutex_);
    if (bytes > kKeptBytesMax || kept_.size() == kKeptMax) return false;
    ASAN_POISON_MEMORY_REGION(mapped, bytes);  // as if it were unmapped
    kept_.emplace_back(mapped, bytes);
    return true;
  }

  Mutex mutex_;
  std::vector<std::span<std::byte>> kept_ PERDURE_GUARDED_BY(mutex_);
};

/// Never destroyed: regions may outlive whatever else is static.
Mappings& mappings() {
  static auto* const all = new Mappings;
  return *all;
}

Error map_failed() {
  return {ErrorCode::SystemError, std::string("the crashable region can not be mapped: ") +
                                      std::generic_category().message(errno)};
}

std::uint64_t units_of(Range range, std::uint64_t unit) {
  if (range.length == 0) return 0;
  const std::uint64_t first = round_down(range.at, unit);
  return (round_up(range.at + range.length, unit) - first) / unit;
}

}  // namespace

Result<std::unique_ptr<CrashableRegion>> CrashableRegion::open(const Options& options) {
  if (options.bytes == 0 || options.initial.size() > options.bytes) {
    return Error{ErrorCode::InvalidArgument,
                 "a crashable region needs at least one byte, and room for its initial bytes"};
  }
  const std::size_t bytes = round_up(options.bytes, kPageBytes);
  std::byte* const view = mappings().take(2 * bytes);
  if (view == nullptr) return map_failed();
  std::byte* const image = view + bytes;
  if (!options.initial.empty()) {
    std::memcpy(view, options.initial.data(), options.initial.size());
    std::memcpy(image, options.initial.data(), options.initial.size());
  }
  return std::unique_ptr<CrashableRegion>(new CrashableRegion(view, image, bytes, options.domain));
}

CrashableRegion::CrashableRegion(std::byte* view, std::byte* image, std::size_t bytes,
                                 PersistenceDomain domain)
    : view_(view), image_(image), bytes_(bytes), domain_(domain) {}

CrashableRegion::~CrashableRegion() {
  mappings().give_back(view_, 2 * bytes_);  // the image is behind the view
}

Result<void> CrashableRegion::flush(std::span<const Range> ranges) {
  if (watch_ && !ranges.empty()) {
    std::uint64_t units = 0;
    for (const Range& range : ranges) units += units_of(range, unit_bytes());
    watch_(units);
  }
  const MutexLock lock(mutex_);
  if (!powered()) return Error{ErrorCode::SystemError, "the region's machine has lost its power"};
  if (refusals_left_ > 0) {
    --refusals_left_;
    for (const Range& range : ranges) {
      if (refusal_random_->chance(1, 2)) persist_units({range.at, range.length / 2});
    }
    return Error{refusal_, "the medium refuses"};
  }
  for (const Range& range : ranges) {
    PERDURE_ASSERT(inside(range, bytes_));
    if (domain_ == PersistenceDomain::Dmp || domain_ == PersistenceDomain::Page) {
      persist_units(range);
    }
  }
  return {};
}

std::string CrashableRegion::evidence() const {
  return "emulated memory whose power fails on demand, declared " + std::string(to_string(domain_));
}

std::vector<std::byte> CrashableRegion::durable() const {
  if (domain_ == PersistenceDomain::None) return {};
  const MutexLock lock(mutex_);
  std::vector<std::byte> copy(bytes_);
  hardware_copy(copy.data(), keeps_visible() ? view_ : image_, bytes_);
  return copy;
}

bool CrashableRegion::is_durable(Range range) const {
  PERDURE_ASSERT(inside(range, bytes_));
  if (domain_ == PersistenceDomain::None) return false;
  if (keeps_visible()) return true;
  const MutexLock lock(mutex_);
  return hardware_equal(view_ + range.at, image_ + range.at, range.length);
}

void CrashableRegion::drain(Range range) {
  PERDURE_ASSERT(inside(range, bytes_));
  if (domain_ != PersistenceDomain::Dmp) return;
  const MutexLock lock(mutex_);
  if (powered()) persist_units(range);
}

void CrashableRegion::persist_units(Range range) {
  if (range.length == 0) return;
  const std::uint64_t first = round_down(range.at, unit_bytes());
  const std::uint64_t last = round_up(range.at + range.length, unit_bytes());
  if (unnoticed_.empty()) return hardware_copy(image_ + first, view_ + first, last - first);
  for (std::uint64_t page = first; page < last; page += kPageBytes) {
    if (!page_is_clean(page)) hardware_copy(image_ + page, view_ + page, kPageBytes);
  }
}

/// Whether the kernel thinks so. A page in which more has changed than an RNIC wrote is dirty, as a
/// whole.
bool CrashableRegion::page_is_clean(std::uint64_t page) {
  const auto found = unnoticed_.find(page);
  if (found == unnoticed_.end()) return false;
  if (hardware_equal(view_ + page, found->second.data(), kPageBytes)) return true;
  unnoticed_.erase(found);
  return false;
}

bool CrashableRegion::persist_if_dirty(std::uint64_t at) {
  const std::uint64_t unit = unit_bytes();
  if (page_is_clean(at)) return false;
  if (hardware_equal(view_ + at, image_ + at, unit)) return false;
  hardware_copy(image_ + at, view_ + at, unit);
  return true;
}

std::size_t CrashableRegion::drain_some(Random& random) {
  if (domain_ != PersistenceDomain::Dmp && domain_ != PersistenceDomain::Page) return 0;
  const MutexLock lock(mutex_);
  if (!powered()) return 0;
  const std::uint64_t unit = unit_bytes();
  if (hint_count_ > 0 && random.chance(1, 2)) {
    const Range hint = hints_[random.below(std::min(hint_count_, kHints))];
    const std::uint64_t within = hint.at + random.below(hint.length);
    return persist_if_dirty(round_down(within, unit)) ? 1 : 0;
  }
  const std::uint64_t start = random.below(bytes_ / unit) * unit;
  const std::uint64_t length = std::min<std::uint64_t>(bytes_ - start, kDrainScanBytes);
  if (hardware_equal(view_ + start, image_ + start, length)) return 0;
  std::uint64_t at = start;
  for (; at < start + length; at += unit) {
    if (persist_if_dirty(at)) return 1;
  }
  return 0;  // what differs there was written unnoticed
}

void CrashableRegion::note_written(Range range) {
  PERDURE_ASSERT(inside(range, bytes_));
  if (range.length == 0) return;
  const MutexLock lock(mutex_);
  hints_[hint_count_++ % kHints] = range;
}

void CrashableRegion::begin_unnoticed(Range range) {
  PERDURE_ASSERT(inside(range, bytes_));
  if (domain_ != PersistenceDomain::Page || range.length == 0) return;
  const MutexLock lock(mutex_);
  for (std::uint64_t page = round_down(range.at, kPageBytes); page < range.at + range.length;
       page += kPageBytes) {
    if (page_is_clean(page) || !hardware_equal(view_ + page, image_ + page, kPageBytes)) continue;
    std::vector<std::byte> held(kPageBytes);
    hardware_copy(held.data(), image_ + page, kPageBytes);
    unnoticed_.emplace(page, std::move(held));
  }
}

void CrashableRegion::dirty_pages(const Range& range) {
  const MutexLock lock(mutex_);
  unnoticed_.erase(unnoticed_.lower_bound(round_down(range.at, kPageBytes)),
                   unnoticed_.lower_bound(range.at + range.length));
}

void CrashableRegion::end_unnoticed(Range range) {
  if (domain_ != PersistenceDomain::Page || range.length == 0) return;
  const MutexLock lock(mutex_);
  for (std::uint64_t at = range.at; at < range.at + range.length;) {
    const std::uint64_t page = round_down(at, kPageBytes);
    const std::uint64_t end = std::min(range.at + range.length, page + kPageBytes);
    const auto found = unnoticed_.find(page);
    if (found != unnoticed_.end()) {
      hardware_copy(found->second.data() + (at - page), view_ + at, end - at);
    }
    at = end;
  }
}

void CrashableRegion::stop() {
  const MutexLock lock(mutex_);
  PERDURE_ASSERT(powered());
  powered_.store(false, std::memory_order_release);
  hint_count_ = 0;
  stopped_view_.assign(view_, view_ + bytes_);
}

void CrashableRegion::flip_bit(std::uint64_t at, unsigned bit) {
  const MutexLock lock(mutex_);
  PERDURE_ASSERT(at < bytes_ && bit < 8);
  const std::byte mask{static_cast<unsigned char>(1u << bit)};
  view_[at] ^= mask;
  image_[at] ^= mask;
  if (!stopped_view_.empty()) stopped_view_[at] ^= mask;
}

void CrashableRegion::replace(std::span<const std::byte> bytes) {
  const MutexLock lock(mutex_);
  PERDURE_ASSERT(!powered());
  PERDURE_ASSERT(bytes.size() <= bytes_);
  stopped_view_.clear();
  unnoticed_.clear();
  std::copy(bytes.begin(), bytes.end(), image_);
  std::fill(image_ + bytes.size(), image_ + bytes_, std::byte{0});
  show_image();
}

Result<void> CrashableRegion::deep_flush(const Range& range) {
  if (deep_flushes_refused_) return Error{ErrorCode::Unsupported, "no deep flushes here"};
  auto flushed = flush(std::span<const Range>(&range, 1));
  const MutexLock lock(mutex_);
  if (!flushed.ok() || medium_.empty()) return flushed;
  const std::uint64_t first = round_down(range.at, unit_bytes());
  const std::uint64_t last = round_up(range.at + range.length, unit_bytes());
  hardware_copy(medium_.data() + first, (keeps_visible() ? view_ : image_) + first, last - first);
  return {};
}

void CrashableRegion::break_flush_on_failure() {
  const MutexLock lock(mutex_);
  PERDURE_ASSERT(powered());
  medium_.resize(bytes_);
  hardware_copy(medium_.data(), view_, bytes_);
}

void CrashableRegion::refuse_flushes(ErrorCode code, std::uint64_t count, Random& random) {
  const MutexLock lock(mutex_);
  refusal_ = code;
  refusals_left_ = count;
  refusal_random_ = &random;
}

bool CrashableRegion::durable_at(std::uint64_t at, std::span<const std::byte> bytes) const {
  PERDURE_ASSERT(inside({at, bytes.size()}, bytes_));
  if (domain_ == PersistenceDomain::None) return false;
  const MutexLock lock(mutex_);
  const std::byte* visible = stopped_view_.empty() ? view_ : stopped_view_.data();
  const std::byte* kept = keeps_visible() ? visible : image_;
  return std::equal(bytes.begin(), bytes.end(), kept + at);
}

void CrashableRegion::power_cut(Random& random) {
  const MutexLock lock(mutex_);
  PERDURE_ASSERT(powered());
  powered_.store(false, std::memory_order_release);
  hint_count_ = 0;
  if (!medium_.empty()) {
    std::copy(medium_.begin(), medium_.end(), image_);
    unnoticed_.clear();
    return show_image();
  }
  switch (domain_) {
    case PersistenceDomain::Wsp:
    case PersistenceDomain::Mhp:
      for (std::uint64_t at = 0; at < bytes_; at += kPageBytes) {
        if (!hardware_equal(view_ + at, image_ + at, kPageBytes)) {
          hardware_copy(image_ + at, view_ + at, kPageBytes);
        }
      }
      break;
    case PersistenceDomain::Dmp:
    case PersistenceDomain::Page: cut_dirty(random); break;
    case PersistenceDomain::None: std::fill_n(image_, bytes_, kGarbage); break;
  }
  unnoticed_.clear();
  show_image();
}

template <typename Visit>
void CrashableRegion::for_each_dirty(Visit visit) {
  const std::uint64_t unit = unit_bytes();
  for (std::uint64_t page = 0; page < bytes_; page += kPageBytes) {
    if (page_is_clean(page) || hardware_equal(view_ + page, image_ + page, kPageBytes)) continue;
    for (std::uint64_t at = page; at < page + kPageBytes; at += unit) {
      if (!hardware_equal(view_ + at, image_ + at, unit)) visit(at);
    }
  }
}

void CrashableRegion::cut_dirty(Random& random) {
  // One way to choose for the whole cut, so that "all lost", "all kept" and "only what lies behind
  // some address" are as likely as mixtures.
  constexpr std::uint64_t kShares = 4;
  const std::uint64_t kept_share = random.below(kShares + 1);
  const std::uint64_t torn_share = random.below(2);
  const bool split = random.chance(1, 2);
  const bool first_kept = random.chance(1, 2);
  std::uint64_t dirty = 0;
  for_each_dirty([&](std::uint64_t) { ++dirty; });
  const std::uint64_t pivot = random.below(dirty + 1);
  std::uint64_t seen = 0;
  for_each_dirty([&](std::uint64_t at) PERDURE_REQUIRES(mutex_) {
    const bool kept = split ? (seen < pivot) == first_kept : random.chance(kept_share, kShares);
    ++seen;
    if (kept) cut_unit(at, random.chance(torn_share, kShares), random);
  });
}

void CrashableRegion::cut_unit(std::uint64_t at, bool torn, Random& random) {
  const std::uint64_t unit = unit_bytes();
  const std::uint64_t piece = domain_ == PersistenceDomain::Page ? kSectorBytes : kAtomicBytes;
  for (std::uint64_t part = at; part < at + unit; part += piece) {
    if (!torn || random.chance(1, 2)) hardware_copy(image_ + part, view_ + part, piece);
  }
}

void CrashableRegion::show_image() {
  for (std::uint64_t at = 0; at < bytes_; at += kPageBytes) {
    if (!hardware_equal(view_ + at, image_ + at, kPageBytes)) {
      hardware_copy(view_ + at, image_ + at, kPageBytes);
    }
  }
}

void CrashableRegion::power_on() {
  const MutexLock lock(mutex_);
  if (powered()) return;
  if (stopped_view_.empty()) {
    show_image();
  } else {
    std::copy(stopped_view_.begin(), stopped_view_.end(), view_);
    stopped_view_.clear();
  }
  powered_.store(true, std::memory_order_release);
}

}  // namespace perdure::pmem
