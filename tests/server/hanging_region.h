// A region of a test whose medium can hang: its flushes end when it does not any more.
#pragma once

#include <condition_variable>
#include <memory>
#include <span>
#include <utility>

#include "core/mutex.h"
#include "pmem/lent_region.h"

namespace perdure::server {

/// Whether a medium hangs. Apart from its region, which ends when its pool is closed.
class Hang {
 public:
  static constexpr std::uint64_t kPage = 4096;
  void hang(bool yes) {
    const MutexLock lock(mutex_);
    hangs_ = yes;
    waits_ = false;
    changed_.notify_all();
  }
  bool waits() const {
    const MutexLock lock(mutex_);
    return waits_;
  }
  /// It does not hang: it is gone, as looks at it find.
  void lose() {
    const MutexLock lock(mutex_);
    lost_ = true;
  }
  bool is_lost() const {
    const MutexLock lock(mutex_);
    return lost_;
  }
  /// Only flushes of more than so many bytes hang.
  void hang_long(std::uint64_t bytes) {
    {
      const MutexLock lock(mutex_);
      short_bytes_ = bytes;
    }
    hang(true);
  }
  /// Flushes of more than a page that have come.
  int long_flushes() const {
    const MutexLock lock(mutex_);
    return long_flushes_;
  }
  /// Returns when it does not hang any more.
  void wait(std::uint64_t bytes = 0) {
    MutexLock lock(mutex_);
    if (bytes > kPage) ++long_flushes_;
    while (hangs_ && (bytes > short_bytes_ || short_bytes_ == 0)) {
      waits_ = true;
      lock.wait_for(changed_, std::chrono::milliseconds{100});
    }
  }

 private:
  mutable Mutex mutex_;
  std::condition_variable changed_;
  bool hangs_ PERDURE_GUARDED_BY(mutex_) = false;
  bool waits_ PERDURE_GUARDED_BY(mutex_) = false;
  bool lost_ PERDURE_GUARDED_BY(mutex_) = false;
  std::uint64_t short_bytes_ PERDURE_GUARDED_BY(mutex_) = 0;
  int long_flushes_ PERDURE_GUARDED_BY(mutex_) = 0;
};

/// A region whose flushes wait for as long as its medium hangs; and looks at it, if they are to.
class HangingRegion final : public pmem::LentRegion {
 public:
  HangingRegion(pmem::Region& region, std::shared_ptr<Hang> hang,
                std::shared_ptr<Hang> looks = nullptr)
      : LentRegion(region), hang_(std::move(hang)), looks_(std::move(looks)) {}
  using Region::flush;
  Result<void> flush(std::span<const pmem::Range> ranges) override {
    std::uint64_t bytes = 0;
    for (const pmem::Range& range : ranges) bytes += range.length;
    hang_->wait(bytes);
    return LentRegion::flush(ranges);
  }
  Result<void> check() override {
    if (looks_ != nullptr) {
      looks_->wait();
      if (looks_->is_lost()) return Error{ErrorCode::SystemError, "the medium is lost"};
    }
    return LentRegion::check();
  }

 private:
  std::shared_ptr<Hang> hang_;
  std::shared_ptr<Hang> looks_;  // or none
};

}  // namespace perdure::server
