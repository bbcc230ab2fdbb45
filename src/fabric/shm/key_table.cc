// See key_table.h.
#include "fabric/shm/key_table.h"

#include "core/random.h"

#include <mutex>

namespace perdure::fabric::shm {

std::uint64_t KeyTable::add(std::span<std::byte> range, bool writable) {
  const std::unique_lock lock(mutex_);
  for (;;) {
    const std::uint64_t key = random_secret();
    if (entries_.try_emplace(key, Entry{range, writable}).second) return key;
  }
}

void KeyTable::remove(std::uint64_t key) {
  const std::unique_lock lock(mutex_);
  entries_.erase(key);
}

}  // namespace perdure::fabric::shm
