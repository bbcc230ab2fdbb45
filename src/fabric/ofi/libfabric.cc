// See libfabric.h.
#ifdef PERDURE_WITH_LIBFABRIC
#include "fabric/ofi/libfabric.h"

#include "core/assert.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace perdure::fabric::ofi {
namespace {

// The soname of libfabric 1.x and 2.x; it versions its symbols, and these are the newest of each.
constexpr const char* kLibrary = "libfabric.so.1";

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

Result<Libfabric> open_libfabric() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed
  Libfabric found;
  const bool whole =
      library != nullptr && find(library, "fi_getinfo", found.getinfo) &&
      find(library, "fi_dupinfo", found.dupinfo) && find(library, "fi_freeinfo", found.freeinfo) &&
      find(library, "fi_fabric", found.fabric) && find(library, "fi_strerror", found.strerror) &&
      find(library, "fi_version", found.version);
  if (whole) return found;
  const char* reason = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one per thread
  return Error{ErrorCode::Unsupported,
               fmt::format("libfabric can not be loaded: {}; install it (Debian: libfabric1)",
                           reason == nullptr ? kLibrary : reason)};
}

const Result<Libfabric>& opened() {
  static const Result<Libfabric> kept = open_libfabric();
  return kept;
}

}  // namespace

Result<void> load_libfabric() {
  if (!opened()) return opened().error();
  const std::uint32_t version = libfabric().version();
  if (FI_VERSION_GE(version, kApiVersion)) return {};
  return Error{
      ErrorCode::Unsupported,
      fmt::format("libfabric {}.{} is older than {}.{}; install a newer one", FI_MAJOR(version),
                  FI_MINOR(version), FI_MAJOR(kApiVersion), FI_MINOR(kApiVersion))};
}

const Libfabric& libfabric() {
  PERDURE_ASSERT(opened());
  return *opened();
}

}  // namespace perdure::fabric::ofi
#endif
