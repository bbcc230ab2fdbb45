// MemoryTable: what the emulated RNIC of one machine knows of registered memory, by key; and which
// of it lies in a region that can lose power. Every access goes through a check of key and address.
#pragma once

#include "core/bytes.h"
#include "core/mutex.h"
#include "core/random.h"
#include "fabric/emu/rnic_switches.h"
#include "fabric/fabric.h"
#include "pmem/crashable_region.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace perdure::fabric::emu {

/// One registered range. It outlives its registration; accesses then fail.
/// Threads: any.
class RegisteredRange {
 public:
  RegisteredRange(std::span<std::byte> bytes, std::uint64_t key, std::uint64_t base, Access access,
                  bool is_window = false)
      : bytes_(bytes), key_(key), base_(base), access_(access), is_window_(is_window) {}

  std::span<std::byte> bytes() const { return bytes_; }
  std::uint64_t key() const { return key_; }
  std::uint64_t base() const { return base_; }
  Access access() const { return access_; }
  /// A window is good on the connection that it is bound to, anything else on all.
  bool is_window() const { return is_window_; }
  void bind(std::uint64_t connection) { bound_to_.store(connection); }
  bool is_open_to(std::uint64_t connection) const {
    return !is_window_ || bound_to_.load() == connection;
  }

  /// DMA. False when the range is no longer registered; nothing is touched then.
  /// Requires the part lies inside the range.
  bool write(std::uint64_t at, std::span<const std::byte> data);
  bool read(std::uint64_t at, std::span<std::byte> data);
  /// The same as write. In a region the bytes are where an RNIC's writes stop; without `dirties`
  /// pages of a file that are clean stay so.
  bool place(std::uint64_t at, std::span<const std::byte> data, bool dirties);
  /// Adds or replaces the aligned 8-byte word at `at`; `change` maps the old value to the new.
  template <typename Change>
  bool update_word(std::uint64_t at, Change change);
  bool registered();
  /// Returns only when no access is in flight.
  void deregister();

  /// How far into a cache line byte `at` lies. What is in no region begins with a line, wherever
  /// the allocator has put it (but for the 8 bytes of a word): a seed gives the same steps in any
  /// build.
  std::size_t into_line(std::uint64_t at) const {
    const std::uint64_t begin =
        region != nullptr ? region_at
                          : reinterpret_cast<std::uintptr_t>(bytes_.data()) % sizeof(std::uint64_t);
    return (begin + at) % kCacheLineBytes;
  }

  /// The region it lies in, if any, and the range's offset there.
  pmem::CrashableRegion* region = nullptr;
  std::uint64_t region_at = 0;

 private:
  const std::span<std::byte> bytes_;
  const std::uint64_t key_;
  const std::uint64_t base_;
  const Access access_;
  const bool is_window_;
  std::atomic<std::uint64_t> bound_to_{0};  // nothing
  Mutex mutex_;
  bool registered_ PERDURE_GUARDED_BY(mutex_) = true;
};

/// What a device says that takes no rights away: see MemoryTable::refuse_revocations.
inline Error revocation_refused() {
  return {ErrorCode::SystemError, "the emulated RNIC takes no rights away"};
}

/// What it says when a window is too large for it.
inline Error window_refused(std::uint64_t bytes) {
  return {ErrorCode::SystemError,
          "the emulated RNIC binds no memory window of " + std::to_string(bytes) + " B"};
}

/// Part of a registered range, checked.
struct Place {
  std::shared_ptr<RegisteredRange> range;
  std::uint64_t at = 0;
  std::uint64_t length = 0;
};

/// The place of a buffer without bytes.
inline Place nowhere() {
  return {std::make_shared<RegisteredRange>(std::span<std::byte>{}, 0, 0, Access::Local), 0, 0};
}

/// Threads: any.
class MemoryTable {
 public:
  /// Keys and bases come from `seed`, so that a seeded world hands out the same every time.
  explicit MemoryTable(std::uint64_t seed, DmaDirties dirties = DmaDirties::No)
      : random_(seed), dma_dirties_(dirties) {}

  DmaDirties dma_dirties() const { return dma_dirties_; }

  /// Memory inside `region` loses power with it. It must outlive what is registered in it.
  void add_region(pmem::CrashableRegion& region);

  std::unique_ptr<Memory> register_memory(std::span<std::byte> bytes, Access access) {
    return add(bytes, access, false);
  }
  /// A key to `over` that is good on the connection it is bound to.
  std::unique_ptr<Memory> open_window(const Memory& over, Access access) {
    return add(over.bytes(), access, true);
  }
  /// What this RNIC's windows are. Before any is opened.
  void use_windows(const RnicSwitches& switches);
  WindowKind window_kind(std::uint64_t bytes) const;
  /// The number of one more connection; never 0.
  std::uint64_t next_connection() { return ++connections_; }
  /// False: a window that is too large for this RNIC; from now on window_kind() knows.
  bool may_bind(std::uint64_t key);
  /// False: `key` is no window of this machine.
  bool bind(std::uint64_t key, std::uint64_t connection);
  /// Bytes that an RNIC would have pinned: of all registrations, windows left out.
  std::uint64_t pinned_bytes() const;

  /// The machine loses power: nothing is registered any more.
  void revoke_all();

  /// From here on taking rights away fails and leaves them (true), or works (false): an RNIC that
  /// does not answer its driver and goes on serving its peers.
  void refuse_revocations(bool refused) { refuses_.store(refused); }
  bool refuses_revocations() const { return refuses_.load(); }

  /// What the peer of a connection asks for.
  struct Ask {
    std::uint64_t connection = 0;
    Access needed = Access::RemoteRead;
  };
  /// See RnicSwitches::places_late.
  void place_late(bool late) { late_.store(late); }
  bool places_late() const { return late_.load(); }
  /// How many pages of a region in that place no peer has touched yet; from now on they are.
  std::uint64_t touch(const Place& place);

  /// The place a peer names, or nothing: unknown key, no such right, or outside of the range.
  std::optional<Place> find_remote(std::uint64_t key, std::uint64_t address, std::uint64_t length,
                                   Ask ask);
  /// The place a segment names, or nothing: not registered here, or outside of the range.
  std::optional<Place> find_local(const Segment& segment);

 private:
  friend class RegisteredMemory;
  std::unique_ptr<Memory> add(std::span<std::byte> bytes, Access access, bool is_window);
  void forget(std::uint64_t key);
  std::shared_ptr<RegisteredRange> find(std::uint64_t key);

  std::atomic<bool> refuses_{false};
  std::atomic<bool> late_{false};
  bool binds_windows_ = false;
  std::uint64_t window_bytes_max_ = WindowLimit::kNone;
  WindowLimit window_limit_;  // as far as this RNIC has said
  std::atomic<std::uint64_t> connections_{0};
  mutable Mutex mutex_;
  Random random_ PERDURE_GUARDED_BY(mutex_);
  const DmaDirties dma_dirties_;
  std::vector<pmem::CrashableRegion*> regions_ PERDURE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::shared_ptr<RegisteredRange>> ranges_ PERDURE_GUARDED_BY(mutex_);
  std::set<std::uintptr_t> touched_ PERDURE_GUARDED_BY(mutex_);  // numbers of pages
};

template <typename Change>
bool RegisteredRange::update_word(std::uint64_t at, Change change) {
  const MutexLock lock(mutex_);
  if (!registered_) return false;
  auto* word = reinterpret_cast<std::uint64_t*>(bytes_.data() + at);
  std::uint64_t old_value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
  // Bounded: every failure means that some CPU store went through, and those are few.
  while (!__atomic_compare_exchange_n(word, &old_value, change(old_value), false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE)) {
  }
  return true;
}

}  // namespace perdure::fabric::emu
