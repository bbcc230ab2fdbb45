// See domain.h.
#ifdef PERDURE_WITH_VERBS
#include "fabric/verbs/domain.h"

#include <sys/resource.h>

#include "core/log_message.h"
#include "fabric/verbs/extended.h"
#include "fabric/verbs/on_demand.h"

namespace perdure::fabric::verbs {
namespace {

// The enumerators, without their sign.
constexpr unsigned kLocal = IBV_ACCESS_LOCAL_WRITE;
constexpr unsigned kRemoteRead = IBV_ACCESS_REMOTE_READ;
constexpr unsigned kRemoteWrite = IBV_ACCESS_REMOTE_WRITE;
constexpr unsigned kRemoteAtomic = IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kOnDemand = IBV_ACCESS_ON_DEMAND;
constexpr unsigned kBindWindows = IBV_ACCESS_MW_BIND;

/// Rights without FLUSH.
unsigned rights(const Rnic& rnic, Access access) {
  switch (access) {
    case Access::Local: return kLocal | (rnic.read_sink_needs_remote_write() ? kRemoteWrite : 0U);
    case Access::Windows: return kLocal | (rnic.has_windows() ? kBindWindows : 0U);
    case Access::RemoteRead: return kLocal | kRemoteRead;
    case Access::RemoteReadWrite: break;
  }
  const bool atomics = rnic.limits().atomic_cap != IBV_ATOMIC_NONE;
  return kLocal | kRemoteRead | kRemoteWrite | (atomics ? kRemoteAtomic : 0U);
}

Error refused(std::size_t bytes, int reason) {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  std::string advice;
  if ((reason == ENOMEM || reason == EAGAIN) && limit.rlim_cur < bytes) {
    advice = fmt::format(
        "; at most {} B of memory may be locked here: raise `ulimit -l` (LimitMEMLOCK= in a "
        "systemd unit)",
        limit.rlim_cur);
  } else if (reason == EOPNOTSUPP || reason == EFAULT) {
    advice =
        "; memory of this kind can not be pinned (a file on a DAX file system or without DAX): "
        "use a DAX device, or an RNIC that pages on demand";
  }
  errno = reason;
  Error error =
      errno_error(ErrorCode::SystemError, fmt::format("registering {} B with the RNIC", bytes));
  error.message += advice;
  return error;
}

struct Attempt {
  FlushPlacement flush;
  unsigned access;
};

}  // namespace

Result<std::shared_ptr<Domain>> open_domain(Rnic& rnic) {
  auto domain = std::make_shared<Domain>();
  domain->rnic = &rnic;
  domain->protection.reset(::ibv_alloc_pd(rnic.context()));
  if (!domain->protection) {
    return errno_error(ErrorCode::SystemError, "RNIC " + rnic.name() + ": protection domain");
  }
  return domain;
}

Error not_revoked(const Rnic& rnic, int reason, const std::string& what) {
  const std::string refused = fmt::format("RNIC {} does not {}", rnic.name(), what);
  if (!rnic.is_dead()) {
    errno = reason == 0 ? EIO : reason;  // 0: it says so, and answers nothing else
    return errno_error(ErrorCode::SystemError, refused);
  }
  return Error{ErrorCode::SystemError,
               refused +
                   ": it failed or was removed, and before it was reset and is back nobody "
                   "knows what it still writes. See `rdma link`; reset it, or end this "
                   "process"};
}

Result<void> VerbsMemory::deregister() {
  const int reason = region_.revoke(*domain_->rnic, ::ibv_dereg_mr);
  if (reason == 0) return {};
  return not_revoked(*domain_->rnic, reason, fmt::format("deregister {} B", range_.size()));
}

Result<std::unique_ptr<VerbsWindow>> open_bound_window(std::shared_ptr<Domain> domain,
                                                       std::shared_ptr<Memory> over,
                                                       Access access) {
  const auto* region = dynamic_cast<const VerbsMemory*>(over.get());
  if (region == nullptr || &region->domain() != domain.get() || region->region() == nullptr) {
    return Error{ErrorCode::InvalidArgument, "open_window: not registered on this device"};
  }
  Owned<ibv_mw> window(::ibv_alloc_mw(domain->protection.get(), IBV_MW_TYPE_2));
  if (!window) {
    return errno_error(ErrorCode::SystemError,
                       fmt::format("RNIC {}: a memory window", domain->rnic->name()));
  }
  // The kernel has looked at the memory, when it was registered, before it promised a FLUSH to
  // persistence; a window is not looked at again.
  unsigned allowed = rights(*domain->rnic, access) & ~kLocal;
  const FlushPlacement flush = region->flush_placement();
  if (flush != FlushPlacement::None) allowed |= kAccessFlushGlobal;
  if (flush == FlushPlacement::Persistence) allowed |= kAccessFlushPersistent;
  return std::make_unique<VerbsWindow>(std::make_shared<BoundWindow>(
      std::move(domain), std::move(over), allowed, std::move(window)));
}

int BoundWindow::post_bind(ibv_qp* qp, std::uint64_t tag) {
  if (window_.get() == nullptr) return EINVAL;
  ibv_send_wr work{};
  work.wr_id = tag;
  work.opcode = IBV_WR_BIND_MW;
  work.send_flags = IBV_SEND_SIGNALED;
  work.bind_mw.mw = window_.get();
  work.bind_mw.rkey = key_;
  work.bind_mw.bind_info.mr = static_cast<const VerbsMemory&>(*over_).region();
  work.bind_mw.bind_info.addr = over_->base();
  work.bind_mw.bind_info.length = over_->bytes().size();
  work.bind_mw.bind_info.mw_access_flags = access_;
  ibv_send_wr* refused = nullptr;
  return ::ibv_post_send(qp, &work, &refused);
}

Result<void> BoundWindow::deallocate() {
  const int reason = window_.revoke(*domain_->rnic, ::ibv_dealloc_mw);
  if (reason == 0) return {};
  return not_revoked(*domain_->rnic, reason,
                     fmt::format("deallocate a memory window over {} B", over_->bytes().size()));
}

Result<std::unique_ptr<VerbsMemory>> register_range(std::shared_ptr<Domain> domain,
                                                    std::span<std::byte> range, Access access) {
  if (range.empty()) return Error{ErrorCode::InvalidArgument, "register_memory: empty range"};
  const Rnic& rnic = *domain->rnic;
  const unsigned basic = rights(rnic, access);
  std::vector<Attempt> attempts;
  if (access != Access::Local && rnic.flushes_persistently()) {
    attempts.push_back(
        {FlushPlacement::Persistence, basic | kAccessFlushGlobal | kAccessFlushPersistent});
  }
  if (access != Access::Local && rnic.flushes()) {
    attempts.push_back({FlushPlacement::Visibility, basic | kAccessFlushGlobal});
  }
  attempts.push_back({FlushPlacement::None, basic});
  int reason = 0;
  for (const Attempt& attempt : attempts) {
    Owned<ibv_mr> region(
        ::ibv_reg_mr(domain->protection.get(), range.data(), range.size(), attempt.access));
    if (region) {
      return std::make_unique<VerbsMemory>(std::move(domain), range, std::move(region),
                                           attempt.flush, DmaDirties::No);
    }
    reason = errno;
  }
  // Paged on demand the kernel does not look at the memory, so it would promise a flush to
  // persistence for anything: there only what is visible is asked for. Of a page that it writes
  // back the kernel takes the RNIC's mapping first, and marks it dirty when the RNIC faults again
  // (Linux, mm/hmm.c and drivers/infiniband/core/umem_odp.c): read, and proved by nobody, so it
  // counts only where an operator declares it.
  if (!falls_back_on_demand(reason, rnic.pages_on_demand(), access)) {
    return refused(range.size(), reason);
  }
  Owned<ibv_mr> region(
      ::ibv_reg_mr(domain->protection.get(), range.data(), range.size(), basic | kOnDemand));
  if (!region) return refused(range.size(), reason);
  log_message(
      Severity::Warning,
      fmt::format("{} B can not be pinned for RNIC {}, which pages them on demand: the first "
                  "access to each page waits for the kernel",
                  range.size(), rnic.name()));
  return std::make_unique<VerbsMemory>(std::move(domain), range, std::move(region),
                                       FlushPlacement::None, DmaDirties::Yes);
}

}  // namespace perdure::fabric::verbs
#endif
