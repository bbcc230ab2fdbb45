// See domain.h.
#ifdef PERDURE_WITH_VERBS
#include "fabric/verbs/domain.h"

#include <sys/resource.h>

#include "fabric/verbs/extended.h"

namespace perdure::fabric::verbs {
namespace {

/// Rights without FLUSH.
int rights(const Rnic& rnic, Access access) {
  switch (access) {
    case Access::Local:
      return IBV_ACCESS_LOCAL_WRITE |
             (rnic.read_sink_needs_remote_write() ? IBV_ACCESS_REMOTE_WRITE : 0);
    case Access::RemoteRead: return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    case Access::RemoteReadWrite: break;
  }
  const bool atomics = rnic.limits().atomic_cap != IBV_ATOMIC_NONE;
  return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
         (atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

Error refused(std::size_t bytes, int reason) {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  std::string way_out;
  if ((reason == ENOMEM || reason == EAGAIN) && limit.rlim_cur < bytes) {
    way_out = fmt::format(
        "; at most {} B of memory may be locked here: raise `ulimit -l` (LimitMEMLOCK= in a "
        "systemd unit)",
        limit.rlim_cur);
  } else if (reason == EOPNOTSUPP || reason == EFAULT) {
    way_out =
        "; memory of this kind can not be pinned (a file on a DAX file system or without DAX): "
        "use a DAX device, or an RNIC that pages on demand";
  }
  errno = reason;
  Error error =
      errno_error(ErrorCode::SystemError, fmt::format("registering {} B with the RNIC", bytes));
  error.message += way_out;
  return error;
}

struct Attempt {
  FlushPlacement flush;
  int access;
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

Result<std::unique_ptr<VerbsMemory>> register_range(std::shared_ptr<Domain> domain,
                                                    std::span<std::byte> range, Access access) {
  if (range.empty()) return Error{ErrorCode::InvalidArgument, "register_memory: empty range"};
  const Rnic& rnic = *domain->rnic;
  const int basic = rights(rnic, access);
  std::vector<Attempt> attempts;
  if (access != Access::Local && rnic.flushes_persistently()) {
    attempts.push_back(
        {FlushPlacement::Persistence, basic | kAccessFlushGlobal | kAccessFlushPersistent});
  }
  if (access != Access::Local && rnic.flushes()) {
    attempts.push_back({FlushPlacement::Visibility, basic | kAccessFlushGlobal});
  }
  attempts.push_back({FlushPlacement::None, basic});
  // Paged on demand the kernel does not look at the memory, so it would promise a flush to
  // persistence for anything: there only what is visible is asked for.
  if (rnic.pages_on_demand()) {
    attempts.push_back({FlushPlacement::None, basic | IBV_ACCESS_ON_DEMAND});
  }
  for (const Attempt& attempt : attempts) {
    Owned<ibv_mr> region(
        ::ibv_reg_mr(domain->protection.get(), range.data(), range.size(), attempt.access));
    if (region) {
      return std::make_unique<VerbsMemory>(std::move(domain), range, std::move(region),
                                           attempt.flush);
    }
  }
  return refused(range.size(), errno);
}

}  // namespace perdure::fabric::verbs
#endif
