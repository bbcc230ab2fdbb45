// A region that lives elsewhere, for a pool that wants to own one: memory outlives a daemon.
#pragma once

#include "pmem/region.h"

namespace perdure::pmem {

class LentRegion : public Region {
 public:
  explicit LentRegion(Region& region) : region_(region) {}
  std::span<std::byte> bytes() override { return region_.bytes(); }
  PersistenceDomain domain() const override { return region_.domain(); }
  using Region::flush;
  Result<void> flush(std::span<const Range> ranges) override { return region_.flush(ranges); }
  Result<void> deep_flush(const Range& range) override { return region_.deep_flush(range); }
  void dirty_pages(const Range& range) override { region_.dirty_pages(range); }
  Result<void> check() override { return region_.check(); }
  bool is_lost() const override { return region_.is_lost(); }
  std::unique_ptr<FailureTie> cut_on_failure(const CutSwitch& connection) override {
    return region_.cut_on_failure(connection);
  }
  void give_up() override { region_.give_up(); }
  std::string evidence() const override { return region_.evidence(); }

 private:
  Region& region_;
};

}  // namespace perdure::pmem
