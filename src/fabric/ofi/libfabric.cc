// See libfabric.h.
#ifdef PERDURE_WITH_LIBFABRIC
#include "fabric/ofi/libfabric.h"

#include "core/assert.h"
#include "fabric/ofi/failed_sends.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <vector>

namespace perdure::fabric::ofi {
namespace {

/// What signals do in this process before something is loaded that changes it.
class SignalHandlers {
 public:
  SignalHandlers() {
    for (int number = 1; number < NSIG; ++number) {
      (void)::sigaction(number, nullptr, &before_[static_cast<std::size_t>(number)]);
    }
    for_each_object([this](const dl_phdr_info& object) { loaded_.push_back(object.dlpi_addr); });
  }

  /// Puts back what handlers of objects that were loaded since have taken the place of. What the
  /// program itself has installed meanwhile, by another thread, stays.
  void restore() const {
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction now {};
      if (::sigaction(number, nullptr, &now) != 0) continue;
      // Both kinds of handler are in one place (sigaction(2)).
      if (!is_new(reinterpret_cast<ElfW(Addr)>(now.sa_handler))) continue;
      (void)::sigaction(number, &before_[static_cast<std::size_t>(number)], nullptr);
    }
  }

 private:
  template <typename Visit>
  static void for_each_object(Visit visit) {
    const auto pass_on = [](dl_phdr_info* object, std::size_t, void* to) {
      (*static_cast<Visit*>(to))(*object);
      return 0;
    };
    (void)::dl_iterate_phdr(pass_on, &visit);
  }

  /// Whether it is code of an object that was not there before.
  bool is_new(ElfW(Addr) code) const {
    bool found = false;
    for_each_object([&](const dl_phdr_info& object) {
      const auto known = std::find(loaded_.begin(), loaded_.end(), object.dlpi_addr);
      for (ElfW(Half) i = 0; known == loaded_.end() && i < object.dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = object.dlpi_phdr[i];
        const ElfW(Addr) begin = object.dlpi_addr + part.p_vaddr;
        found = found || (part.p_type == PT_LOAD && code - begin < part.p_memsz);
      }
    });
    return found;
  }

  std::array<struct sigaction, NSIG> before_{};
  std::vector<ElfW(Addr)> loaded_;  // where
};

// The soname of libfabric 1.x and 2.x; it versions its symbols, and these are the newest of each.
constexpr const char* kLibrary = "libfabric.so.1";

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

Result<Libfabric> open_libfabric() {
  // The PSM family installs handlers when it is loaded, whatever there is: at SIGTERM and SIGINT
  // its own end the process with status 1.
  const SignalHandlers handlers;
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed
  handlers.restore();
  Libfabric found;
  const bool whole =
      library != nullptr && find(library, "fi_getinfo", found.getinfo) &&
      find(library, "fi_dupinfo", found.dupinfo) && find(library, "fi_freeinfo", found.freeinfo) &&
      find(library, "fi_fabric", found.fabric) && find(library, "fi_open", found.open) &&
      find(library, "fi_strerror", found.strerror) && find(library, "fi_version", found.version);
  if (whole) {
    found.shows_failed_sends = watch_failed_sends(found);
    return found;
  }
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
