// See domain.h.
#ifdef PERDURE_WITH_LIBFABRIC
#include "fabric/ofi/domain.h"

#include <rdma/fi_endpoint.h>

#include "core/mutex.h"
#include "core/try.h"
#include "fabric/ofi/ofi.h"

#include <cstring>

namespace perdure::fabric::ofi {
namespace {

struct Provider {
  Info info;
  fid_fabric* fabric = nullptr;
};

/// Asks for exactly one provider by its exact name, so that libfabric questions no other one. Its
/// own initialisation takes a while, once, whatever is asked for.
Result<Info> find_provider() {
  PERDURE_TRY_VOID(load_libfabric());
  const Info hints(libfabric().dupinfo(nullptr));
  if (!hints) return Error{ErrorCode::SystemError, "libfabric: out of memory"};
  hints->caps = FI_MSG | FI_RMA;
  hints->addr_format = FI_SOCKADDR_IN;
  hints->ep_attr->type = FI_EP_MSG;
  // An endpoint and its only queue are used by one thread at a time, different endpoints by any:
  // the provider may leave the queue unlocked, and still locks what the domain shares (keys).
  hints->domain_attr->threading = FI_THREAD_COMPLETION;
  hints->domain_attr->mr_mode = 0;  // offsets and keys of our choice; no registration to send
  hints->fabric_attr->prov_name = ::strdup("tcp");

  fi_info* found = nullptr;
  const int returned = libfabric().getinfo(kApiVersion, nullptr, nullptr, 0, hints.get(), &found);
  if (returned != 0) {
    return error_of(ErrorCode::Unsupported, "libfabric has no tcp provider here", returned);
  }
  return Info(found);
}

Result<Provider> discover() {
  Provider provider;
  PERDURE_TRY(found, find_provider());
  provider.info = std::move(found);
  const int opened = libfabric().fabric(provider.info->fabric_attr, &provider.fabric, nullptr);
  if (opened != 0) return error_of(ErrorCode::Unsupported, "libfabric tcp: fi_fabric", opened);
  return provider;
}

/// Discovered once and kept for the life of the process.
Result<const Provider*> provider() {
  static Mutex mutex;
  static const Provider* kept = nullptr;  // reachable until exit: libfabric closes after us
  const MutexLock lock(mutex);
  if (kept == nullptr) {
    PERDURE_TRY(discovered, discover());
    kept = new Provider(std::move(discovered));
  }
  return kept;
}

}  // namespace

Result<std::shared_ptr<Domain>> open_domain() {
  PERDURE_TRY(found, provider());
  fid_domain* opened = nullptr;
  const int returned = ::fi_domain(found->fabric, found->info.get(), &opened, nullptr);
  if (returned != 0) return error_of(ErrorCode::SystemError, "libfabric tcp: fi_domain", returned);
  auto domain = std::make_shared<Domain>();
  domain->fabric = found->fabric;
  domain->info = found->info.get();
  domain->domain.reset(opened);
  return domain;
}

void prepare_to_open() { (void)find_provider(); }

}  // namespace perdure::fabric::ofi
#endif
