// A region that keeps its first failure. A medium that refused one flush is not trusted again by
// whoever has it open: what it accepts later may rest on what it lost (see PageSync::sync), and
// whoever asks check() must hear of a flush that failed elsewhere. Opening the pool again makes a
// new one of these, and begins with what the medium then holds. Of a device the loss of its lease
// is such a failure, too: it is looked at behind each flush, so that what a flush called durable
// was so before somebody else had the device.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "core/mutex.h"
#include "pmem/owner_lease.h"
#include "pmem/region.h"

namespace perdure::pmem {

class StickyRegion final : public Region {
 public:
  /// The lease, if any, outlives every call.
  explicit StickyRegion(std::unique_ptr<Region> region, OwnerLease* lease = nullptr)
      : region_(std::move(region)), lease_(lease) {}

  std::span<std::byte> bytes() override { return region_->bytes(); }
  PersistenceDomain domain() const override { return region_->domain(); }
  using Region::flush;
  Result<void> flush(std::span<const Range> ranges) override {
    if (failed_.load(std::memory_order_acquire)) return failure();
    return keep(region_->flush(ranges));
  }
  Result<void> deep_flush(const Range& range) override {
    if (failed_.load(std::memory_order_acquire)) return failure();
    auto flushed = region_->deep_flush(range);
    if (!flushed.ok() && flushed.code() == ErrorCode::Unsupported) return flushed;
    return keep(std::move(flushed));
  }
  void dirty_pages(const Range& range) override { region_->dirty_pages(range); }
  /// Never waits for a flush that the medium does not answer.
  bool is_lost() const override { return region_->is_lost(); }
  Result<void> check() override {
    if (failed_.load(std::memory_order_acquire)) return failure();
    return keep(region_->check());
  }
  std::unique_ptr<FailureTie> cut_on_failure(const CutSwitch& connection) override {
    return region_->cut_on_failure(connection);
  }
  std::string evidence() const override { return region_->evidence(); }

 private:
  Error failure() const {
    const MutexLock lock(mutex_);
    return *failure_;
  }
  Result<void> keep(Result<void> outcome) {
    if (lease_ != nullptr) {
      if (auto held = lease_->check(); !held.ok()) outcome = std::move(held);
    }
    if (outcome.ok()) return outcome;
    const MutexLock lock(mutex_);
    if (!failure_) failure_ = outcome.error();
    failed_.store(true, std::memory_order_release);
    return outcome;
  }

  const std::unique_ptr<Region> region_;
  OwnerLease* const lease_;
  mutable Mutex mutex_;  // never held while the medium is asked
  std::optional<Error> failure_ PERDURE_GUARDED_BY(mutex_);
  std::atomic<bool> failed_{false};
};

}  // namespace perdure::pmem
