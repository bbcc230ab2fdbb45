// SharedMemory: one T that this process and those that it forks from then on all see.
#pragma once

#include <perdure/result.h>

#include <sys/mman.h>

#include <new>
#include <type_traits>
#include <utility>

namespace perdure::bench {

/// T is made of zeros and its initializers, and never destroyed.
template <typename T>
class SharedMemory {
 public:
  /// Errors: SystemError.
  static Result<SharedMemory> make() {
    static_assert(std::is_trivially_destructible_v<T>);
    void* at =
        ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return Error{ErrorCode::SystemError, "there is no memory to share"};
    return SharedMemory(new (at) T);
  }
  SharedMemory(SharedMemory&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory() {
    if (shared_ != nullptr) ::munmap(shared_, sizeof(T));
  }
  T& operator*() const { return *shared_; }

 private:
  explicit SharedMemory(T* shared) : shared_(shared) {}
  T* shared_;
};

}  // namespace perdure::bench
