// The memory of one device that peers may reach, by key.
#pragma once

#include <perdure/result.h>

#include "fabric/fabric.h"

#include <optional>
#include <shared_mutex>
#include <span>
#include <unordered_map>

namespace perdure::fabric::shm {

/// Threads: any.
class KeyTable {
 public:
  /// Returns the new key.
  std::uint64_t add(std::span<std::byte> range, bool writable);
  /// When it returns, nothing is copied to or from the range any more.
  void remove(std::uint64_t key);

  /// Calls `act` with `length` bytes at `offset` of the range with this key, and keeps the range
  /// registered meanwhile. False: no such key, not writable, or outside; nothing was called.
  template <typename Act>
  bool with(std::uint64_t key, std::uint64_t offset, std::uint64_t length, bool to_write,
            Act&& act) const {
    // core's Mutex knows no shared holders, and endpoints must not wait for each other's copying.
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return false;
    const Entry& entry = found->second;
    if (to_write && !entry.writable) return false;
    if (offset > entry.range.size() || length > entry.range.size() - offset) return false;
    act(entry.range.subspan(offset, length));
    return true;
  }

 private:
  struct Entry {
    std::span<std::byte> range;
    bool writable = false;
  };
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace perdure::fabric::shm
