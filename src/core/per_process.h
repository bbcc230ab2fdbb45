// PerProcess: something of which each process has one: a child made by fork() begins with its own.
#pragma once

#include "core/forks.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace perdure {

/// A static variable: it is never destroyed, since threads may outlive what is.
/// Threads: any.
template <typename T>
class PerProcess {
 public:
  T& here() {
    Kept* kept = kept_.load();
    while (kept == nullptr || kept->process != forks_so_far()) {
      auto fresh = std::make_unique<Kept>(kept);
      if (kept_.compare_exchange_strong(kept, fresh.get())) kept = fresh.release();
    }
    return kept->value;
  }

 private:
  struct Kept {
    explicit Kept(const Kept* parents) : of_parent(parents) {}

    const std::uint32_t process = forks_so_far();
    const Kept* const of_parent;  // stays, for its locks may be held by no thread of ours
    T value;
  };
  std::atomic<Kept*> kept_{nullptr};
};

}  // namespace perdure
