// What is looked up by handle: see lookups.h. dlvsym() is not caught: the real dlsym() is found by
// it. Nothing here waits for a constructor, or allocates: dlsym() may be what an allocator calls.
#include "interpose/lookups.h"

#include "interpose/backend.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace perdure::interpose {
namespace {

// The first version of the architecture, which later C libraries have too: a lookup that fails
// allocates its message.
#if defined(__x86_64__)
constexpr char kFirstVersion[] = "GLIBC_2.2.5";
#else
constexpr char kFirstVersion[] = "GLIBC_2.17";  // aarch64
#endif
constexpr char kLaterVersion[] = "GLIBC_2.34";  // of architectures that are younger

/// A function of interpose.map, and the library's own, where the program has found that by handle.
struct Caught {
  const char* name = nullptr;
  std::atomic<void*> looked_up = nullptr;
};

constinit Caught caught[] = {
    {"pmem_persist"},
    {"pmem_flush"},
    {"pmem_drain"},
    {"pmem_msync"},
    {"pmem_deep_flush"},
    {"pmem_deep_drain"},
    {"pmem_deep_persist"},
    {"pmem_memmove_persist"},
    {"pmem_memcpy_persist"},
    {"pmem_memset_persist"},
    {"pmem_memmove_nodrain"},
    {"pmem_memcpy_nodrain"},
    {"pmem_memset_nodrain"},
    {"pmem_memmove"},
    {"pmem_memcpy"},
    {"pmem_memset"},
    {"pmem2_get_persist_fn"},
    {"pmem2_get_flush_fn"},
    {"pmem2_get_drain_fn"},
    {"pmem2_get_memmove_fn"},
    {"pmem2_get_memcpy_fn"},
    {"pmem2_get_memset_fn"},
    {"pmem2_deep_flush"},
    {"mmap"},
    {"mmap64"},
    {"munmap"},
    {"mremap"},
    {"msync"},
    {"madvise"},
    {"ftruncate"},
    {"ftruncate64"},
    {"truncate"},
    {"truncate64"},
    {"fallocate"},
    {"fallocate64"},
};

Caught* find_caught(const char* name) {
  for (Caught& each : caught) {
    if (std::strcmp(each.name, name) == 0) return &each;
  }
  return nullptr;
}

std::atomic<Lookup*> real_lookup = nullptr;

[[gnu::noinline]] Lookup* find_real_lookup() {
  void* symbol = ::dlvsym(RTLD_NEXT, "dlsym", kFirstVersion);
  if (symbol == nullptr) symbol = ::dlvsym(RTLD_NEXT, "dlsym", kLaterVersion);
  if (symbol == nullptr) {
    say("the C library of this program has no dlsym() that is known here");
    std::abort();
  }
  auto* const lookup = reinterpret_cast<Lookup*>(symbol);
  real_lookup.store(lookup, std::memory_order_release);
  return lookup;
}

/// Whether both are of one object.
bool are_together(const void* one, const void* other) {
  Dl_info of_one = {};
  Dl_info of_other = {};
  return one != nullptr && other != nullptr && ::dladdr(one, &of_one) != 0 &&
         ::dladdr(other, &of_other) != 0 && of_one.dli_fbase == of_other.dli_fbase;
}

bool is_of_pmdk(const Caught& what) { return std::strncmp(what.name, "pmem", 4) == 0; }

/// A plug-in, say, may have a function of its own of such a name.
bool is_of_c_library(const void* symbol) {
  return are_together(symbol, real_dlsym()(RTLD_NEXT, "gnu_get_libc_version"));
}

/// Of this library, whatever stands before it; null where that can not be told. Whoever stands
/// before it and has the name as well would be called by himself, if he got the first of all.
void* find_ours(const Caught& what) {
  static const char here = 0;
  Lookup* const lookup = real_dlsym();
  void* const first = lookup(RTLD_DEFAULT, what.name);
  if (are_together(&here, first) || !is_of_pmdk(what)) {
    return are_together(&here, first) ? first : nullptr;  // no allocator looks beyond this
  }
  Dl_info own = {};
  if (::dladdr(&here, &own) == 0) return nullptr;
  void* const handle = ::dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void* const ours = handle == nullptr ? nullptr : lookup(handle, what.name);
  if (handle != nullptr) ::dlclose(handle);
  return are_together(&here, ours) ? ours : nullptr;
}

/// The first one that is found of PMDK's stays, and its library does: ours may call it.
void keep(Caught& what, void* symbol) {
  void* nothing = nullptr;
  if (!is_of_pmdk(what) || !what.looked_up.compare_exchange_strong(nothing, symbol)) return;
  Dl_info of_symbol = {};
  if (::dladdr(symbol, &of_symbol) == 0) return;
  ::dlopen(of_symbol.dli_fname, RTLD_LAZY | RTLD_NOLOAD);  // never closed
}

[[gnu::noinline]] void* look_up_caught(void* handle, Caught& what, const void* caller) {
  Lookup* const lookup = real_dlsym();
  void* const symbol = lookup(handle, what.name);
  if (symbol == nullptr) return nullptr;  // dlerror() says why
  void* const ours = find_ours(what);
  // Another library that stands before it, behind this one: ours calls it, and it wants the next.
  const bool next = are_together(caller, lookup(RTLD_NEXT, what.name));
  const bool another = !is_of_pmdk(what) && !is_of_c_library(symbol);
  const bool as_asked = ours == nullptr || ours == symbol || next || another;
  if (!as_asked) keep(what, symbol);
  // Of what the program has not asked for; glibc keeps one for each thread.
  ::dlerror();  // NOLINT(concurrency-mt-unsafe)
  return as_asked ? symbol : ours;
}

}  // namespace

Lookup* real_dlsym() {
  Lookup* const lookup = real_lookup.load(std::memory_order_acquire);
  return lookup != nullptr ? lookup : find_real_lookup();
}

void* looked_up(const char* name) {
  const Caught* const what = find_caught(name);
  return what == nullptr ? nullptr : what->looked_up.load(std::memory_order_acquire);
}

}  // namespace perdure::interpose

using namespace perdure::interpose;  // the function below has a C name

extern "C" void* dlsym(void* handle, const char* name) noexcept {
  // Whoever asks for RTLD_DEFAULT or RTLD_NEXT finds ours by itself.
  const bool by_handle = handle != RTLD_DEFAULT && handle != RTLD_NEXT;
  Caught* const what = by_handle ? find_caught(name) : nullptr;
  if (what != nullptr) return look_up_caught(handle, *what, __builtin_return_address(0));
  // By a jump (CMakeLists.txt): for these two it matters who calls the C library.
  return real_dlsym()(handle, name);
}
