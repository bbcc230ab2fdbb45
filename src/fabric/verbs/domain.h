// One set of keys: a protection domain on an RNIC, and the memory registered in it.
#pragma once

#include "fabric/verbs/rnic.h"

#include <memory>
#include <span>

namespace perdure::fabric::verbs {

struct Domain {
  Rnic* rnic = nullptr;  // of the process
  Owned<ibv_pd> protection;
};

Result<std::shared_ptr<Domain>> open_domain(Rnic& rnic);

class VerbsMemory final : public Memory {
 public:
  VerbsMemory(std::shared_ptr<Domain> domain, std::span<std::byte> range, Owned<ibv_mr> region,
              FlushPlacement flush, DmaDirties dirties)
      : domain_(std::move(domain)),
        range_(range),
        region_(std::move(region)),
        rkey_(region_->rkey),
        lkey_(region_->lkey),
        flush_(flush),
        dirties_(dirties) {}

  std::span<std::byte> bytes() const override { return range_; }
  std::uint64_t key() const override { return rkey_; }
  std::uint64_t base() const override { return reinterpret_cast<std::uintptr_t>(range_.data()); }
  DmaDirties dma_dirties() const override { return dirties_; }
  FlushPlacement flush_placement() const override { return flush_; }
  Result<void> deregister() override;
  std::uint32_t lkey() const { return lkey_; }

 private:
  std::shared_ptr<Domain> domain_;
  std::span<std::byte> range_;
  Owned<ibv_mr> region_;  // empty: deregistered
  std::uint32_t rkey_;
  std::uint32_t lkey_;
  FlushPlacement flush_;
  DmaDirties dirties_;
};

/// Registers a range with no more rights than `access` needs. Of FLUSH it takes what the memory
/// allows: to persistence where the kernel knows it for persistent memory, else to visibility.
/// Memory that can not be pinned (a file on ext4 with DAX) is registered as paged on demand, where
/// the RNIC can do that. Errors: SystemError, with the remedy for a limit on locked memory.
Result<std::unique_ptr<VerbsMemory>> register_range(std::shared_ptr<Domain> domain,
                                                    std::span<std::byte> range, Access access);

}  // namespace perdure::fabric::verbs
