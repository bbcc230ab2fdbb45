// One set of keys: a protection domain on an RNIC, and the memory registered in it.
#pragma once

#include "fabric/verbs/revocable.h"
#include "fabric/verbs/rnic.h"

#include <memory>
#include <span>
#include <string>

namespace perdure::fabric::verbs {

struct Domain {
  Rnic* rnic = nullptr;  // of the process
  Owned<ibv_pd> protection;
};

Result<std::shared_ptr<Domain>> open_domain(Rnic& rnic);

/// SystemError: the RNIC does not `what`, so that a peer may be let in still. `reason`: its errno.
Error not_revoked(const Rnic& rnic, int reason, const std::string& what);

class VerbsMemory final : public Memory {
 public:
  VerbsMemory(std::shared_ptr<Domain> domain, std::span<std::byte> range, Owned<ibv_mr> region,
              FlushPlacement flush, DmaDirties dirties)
      : domain_(std::move(domain)),
        range_(range),
        region_(std::move(region)),
        rkey_(region_.get()->rkey),
        lkey_(region_.get()->lkey),
        flush_(flush),
        dirties_(dirties) {}

  std::span<std::byte> bytes() const override { return range_; }
  std::uint64_t key() const override { return rkey_; }
  std::uint64_t base() const override { return reinterpret_cast<std::uintptr_t>(range_.data()); }
  DmaDirties dma_dirties() const override { return dirties_; }
  FlushPlacement flush_placement() const override { return flush_; }
  bool is_lost() const override { return domain_->rnic->is_dead(); }
  Result<void> deregister() override;
  std::uint32_t lkey() const { return lkey_; }
  ibv_mr* region() const { return region_.get(); }
  const Domain& domain() const { return *domain_; }

 private:
  std::shared_ptr<Domain> domain_;
  std::span<std::byte> range_;
  Revocable<Owned<ibv_mr>> region_;
  std::uint32_t rkey_;
  std::uint32_t lkey_;
  FlushPlacement flush_;
  DmaDirties dirties_;
};

/// A memory window of type 2B. Its key is good on the one queue pair that it is bound to, and has
/// to be deallocated before that is destroyed: rxe counts it as a user of the queue pair. Threads:
/// one caller at a time.
class BoundWindow {
 public:
  BoundWindow(std::shared_ptr<Domain> domain, std::shared_ptr<Memory> over, unsigned access,
              Owned<ibv_mw> window)
      : domain_(std::move(domain)),
        over_(std::move(over)),
        access_(access),
        window_(std::move(window)),
        key_(::ibv_inc_rkey(window_.get()->rkey)) {}

  const Memory& over() const { return *over_; }
  const std::shared_ptr<Domain>& domain() const { return domain_; }
  /// That it has once it is bound.
  std::uint32_t key() const { return key_; }
  /// Posts the request that binds it. Returns 0 or an errno.
  int post_bind(ibv_qp* qp, std::uint64_t tag);
  /// The key is dead when this succeeds. Harmless when repeated. Errors: SystemError.
  Result<void> deallocate();

 private:
  std::shared_ptr<Domain> domain_;
  std::shared_ptr<Memory> over_;
  unsigned access_;
  Revocable<Owned<ibv_mw>> window_;
  std::uint32_t key_;
};

class VerbsWindow final : public Memory {
 public:
  explicit VerbsWindow(std::shared_ptr<BoundWindow> window) : window_(std::move(window)) {}

  std::span<std::byte> bytes() const override { return window_->over().bytes(); }
  std::uint64_t key() const override { return window_->key(); }
  std::uint64_t base() const override { return window_->over().base(); }
  DmaDirties dma_dirties() const override { return window_->over().dma_dirties(); }
  FlushPlacement flush_placement() const override { return window_->over().flush_placement(); }
  bool is_lost() const override { return window_->over().is_lost(); }
  Result<void> deregister() override { return window_->deallocate(); }
  const std::shared_ptr<BoundWindow>& window() const { return window_; }

 private:
  std::shared_ptr<BoundWindow> window_;
};

/// A window over what was registered in `domain` with Access::Windows, with the rights of `access`
/// and the FLUSH that was registered. Errors: InvalidArgument, SystemError.
Result<std::unique_ptr<VerbsWindow>> open_bound_window(std::shared_ptr<Domain> domain,
                                                       std::shared_ptr<Memory> over, Access access);

/// Registers a range with no more rights than `access` needs. Of FLUSH it takes what the memory
/// allows: to persistence where the kernel knows it for persistent memory, else to visibility.
/// Memory that can not be pinned (a file on ext4 with DAX) is registered as paged on demand, where
/// the RNIC can do that and no windows are wanted (mlx5 binds none to such memory). Errors:
/// SystemError, with the remedy for a limit on locked memory.
Result<std::unique_ptr<VerbsMemory>> register_range(std::shared_ptr<Domain> domain,
                                                    std::span<std::byte> range, Access access);

}  // namespace perdure::fabric::verbs
