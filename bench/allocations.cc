// operator new and delete, with a counter for each thread. Costs one increment.
#include "bench/allocations.h"

#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PERDURE_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define PERDURE_COUNTS_ALLOCATIONS 0
#else
#define PERDURE_COUNTS_ALLOCATIONS 1
#endif
#else
#define PERDURE_COUNTS_ALLOCATIONS 1
#endif

namespace perdure::bench {
namespace {

constinit thread_local std::uint64_t t_allocations = 0;

}  // namespace

std::uint64_t allocations() { return t_allocations; }
bool allocations_counted() { return PERDURE_COUNTS_ALLOCATIONS != 0; }

#if PERDURE_COUNTS_ALLOCATIONS
static void* take(std::size_t bytes, std::size_t alignment) {
  ++t_allocations;
  const std::size_t wanted = bytes == 0 ? 1 : bytes;
  // aligned_alloc wants a multiple of the alignment.
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(wanted)
          : std::aligned_alloc(alignment, (wanted + alignment - 1) / alignment * alignment);
  return memory;
}

static void* take_or_throw(std::size_t bytes, std::size_t alignment) {
  void* memory = take(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
#endif

}  // namespace perdure::bench

#if PERDURE_COUNTS_ALLOCATIONS
void* operator new(std::size_t bytes) { return perdure::bench::take_or_throw(bytes, 0); }
void* operator new[](std::size_t bytes) { return perdure::bench::take_or_throw(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return perdure::bench::take_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return perdure::bench::take_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return perdure::bench::take(bytes, 0);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return perdure::bench::take(bytes, 0);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return perdure::bench::take(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return perdure::bench::take(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif
