// CrashableRegion: the region that loses power on demand. It keeps what its persistence domain
// keeps (design section 4), and of what was on its way any part, torn as real media tear.
//
// The damage a power cut does, by domain:
//   Wsp, Mhp  none to what is visible;
//   Dmp       every line not flushed or drained is old, new, or a mixture of aligned 8-byte words;
//   Page      every page not synced is old, new, or a mixture of 512-byte sectors; a page that was
//             written unnoticed is old, synced or not, unless a CPU has stored in it, too;
//   None      everything is garbage.
// Other damage, on demand: a flipped bit, another medium in its place, flushes that are refused, a
// domain that does not keep what it promises.
#pragma once

#include <perdure/result.h>

#include "core/bytes.h"
#include "core/mutex.h"
#include "core/random.h"
#include "pmem/region.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace perdure::pmem {

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kSectorBytes = 512;
/// What a byte of a region without a persistence domain holds after a power cut.
inline constexpr std::byte kGarbage{0xa5};

/// Threads: any for flush and the hardware's calls; power_cut and power_on one at a time.
class CrashableRegion final : public Region {
 public:
  struct Options {
    std::uint64_t bytes = 0;  // rounded up to whole pages
    PersistenceDomain domain = PersistenceDomain::None;
    std::span<const std::byte> initial = {};  // what it holds at first; the rest is zero
  };

  /// Errors: InvalidArgument (no bytes, or more initial bytes than bytes), SystemError.
  static Result<std::unique_ptr<CrashableRegion>> open(const Options& options);
  ~CrashableRegion() override;
  CrashableRegion(const CrashableRegion&) = delete;
  CrashableRegion& operator=(const CrashableRegion&) = delete;

  /// What CPU and RNIC see. Stores made while the power is off are lost with power_on.
  std::span<std::byte> bytes() override { return {view_, bytes_}; }
  PersistenceDomain domain() const override { return domain_; }
  using Region::flush;
  /// As Region::flush; SystemError also while the power is off.
  Result<void> flush(std::span<const Range> ranges) override;
  /// A flush to the medium; Unsupported while that is refused.
  Result<void> deep_flush(const Range& range) override;
  void dirty_pages(const Range& range) override;
  std::string evidence() const override;

  /// What survives a power cut in the worst case: the durable bytes. Empty for None.
  std::vector<std::byte> durable() const;
  /// Whether every byte of the range survives a power cut as it is visible now.
  bool is_durable(Range range) const;

  /// Hardware: the lines of the range leave the caches for the memory controller. Only for Dmp
  /// does that make them durable.
  void drain(Range range);
  /// Hardware: by its own choice evicts a dirty line (Dmp) or writes a dirty page back (Page).
  /// Looks at a bounded part of the region; returns how many lines or pages it moved.
  std::size_t drain_some(Random& random);
  /// Hardware: the RNIC has written there. A hint for drain_some.
  void note_written(Range range);

  /// Hardware, Page: around a write of an RNIC that has pinned the pages. A clean page stays clean:
  /// nothing writes it back until something is stored there that the kernel notices.
  void begin_unnoticed(Range range);
  void end_unnoticed(Range range);

  /// The programs of its machine die, and the power stays: what is visible stays visible, and what
  /// is durable stays so. Until power_on, flush fails and stores are lost.
  void stop();
  /// The medium decays: one bit is the other, for all who look and after every power cut.
  void flip_bit(std::uint64_t at, unsigned bit);
  /// Another medium is put in its place, of the same size, holding `bytes`, and zeros behind them.
  /// Requires that the power is off.
  void replace(std::span<const std::byte> bytes);
  /// The next `count` flushes fail with `code`, having moved any part of what they were to move.
  void refuse_flushes(ErrorCode code, std::uint64_t count, Random& random);
  /// Whether the durable bytes at `at` are `bytes`. Always false for None.
  bool durable_at(std::uint64_t at, std::span<const std::byte> bytes) const;

  void refuse_deep_flushes(bool refuse) { deep_flushes_refused_ = refuse; }
  /// What power failures are to flush is flushed by none from now on (ADR fails, the battery is
  /// empty): they keep what is visible now and what is flushed deep until then, and nothing else.
  void break_flush_on_failure();

  /// The power fails. Afterwards the visible bytes are those that survived, and flush fails.
  void power_cut(Random& random);
  /// The visible bytes are what survived the last power cut, whatever was stored since then.
  void power_on();
  bool powered() const { return powered_.load(std::memory_order_acquire); }

  /// Called at the start of every flush with the number of lines (Page: pages) it will move; the
  /// world lets the power fail there. Set it before the region is used.
  void watch_flushes(std::function<void(std::uint64_t units)> watch) { watch_ = std::move(watch); }

 private:
  CrashableRegion(std::byte* view, std::byte* image, std::size_t bytes, PersistenceDomain domain);

  std::size_t unit_bytes() const {
    return domain_ == PersistenceDomain::Page ? kPageBytes : kCacheLineBytes;
  }
  bool keeps_visible() const { return domain_ >= PersistenceDomain::Mhp; }
  void persist_units(Range range) PERDURE_REQUIRES(mutex_);
  bool page_is_clean(std::uint64_t page) PERDURE_REQUIRES(mutex_);
  bool persist_if_dirty(std::uint64_t at) PERDURE_REQUIRES(mutex_);
  void cut_unit(std::uint64_t at, bool torn, Random& random) PERDURE_REQUIRES(mutex_);
  void cut_dirty(Random& random) PERDURE_REQUIRES(mutex_);
  template <typename Visit>
  void for_each_dirty(Visit visit) PERDURE_REQUIRES(mutex_);
  void show_image() PERDURE_REQUIRES(mutex_);

  static constexpr std::size_t kHints = 64;

  std::byte* const view_;
  std::byte* const image_;
  const std::size_t bytes_;
  const PersistenceDomain domain_;
  std::function<void(std::uint64_t)> watch_;
  std::atomic<bool> powered_{true};
  std::atomic<bool> deep_flushes_refused_{false};
  mutable Mutex mutex_;  // guards the image and the hints
  std::array<Range, kHints> hints_ PERDURE_GUARDED_BY(mutex_);
  /// By page that the kernel takes for clean: what it would hold if nothing but RNICs wrote.
  std::map<std::uint64_t, std::vector<std::byte>> unnoticed_ PERDURE_GUARDED_BY(mutex_);
  std::size_t hint_count_ PERDURE_GUARDED_BY(mutex_) = 0;
  std::vector<std::byte> stopped_view_ PERDURE_GUARDED_BY(mutex_);  // after stop
  std::vector<std::byte> medium_ PERDURE_GUARDED_BY(mutex_);        // after break_flush_on_failure
  ErrorCode refusal_ PERDURE_GUARDED_BY(mutex_) = ErrorCode::SystemError;
  std::uint64_t refusals_left_ PERDURE_GUARDED_BY(mutex_) = 0;
  Random* refusal_random_ PERDURE_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace perdure::pmem
