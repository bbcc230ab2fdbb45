// MappingGuard: a fault in one mapping is that mapping's failure, and not the end of the process.
//
// A load or store in a mapped file raises SIGBUS when the page is not there any more: the file was
// truncated, the disk under a page cache can not be read, memory is poisoned. By default that ends
// the process and with it every other pool; worse, some libraries that libfabric links (the PSM
// family) install a handler when they are loaded that prints a line and calls exit(1).
//
// How it works. Mappings are entered in a table that the signal handler can read. When a fault lies
// in one of them, the handler marks the mapping as failed, ends the connections that are tied to it
// (core/cut_switch.h), puts anonymous zeros in the place of the page that faulted (where the kernel
// splits a mapping no finer than by units of 2 MiB or 1 GiB, device DAX and hugetlbfs: of a unit),
// writes to its notice descriptor, and returns: the access is repeated and goes into the void. The
// order is the point: nobody can be told of a byte that went into the void, or came from it, for
// the connections were cut before it existed. From then on flush() of that region is an error, too;
// whoever holds the region ends its sessions. Why not a longjmp out of a guarded piece of code: the
// accesses are made by other libraries too (libfabric copies into the mapping with its locks held),
// which nobody can jump out of.
//
// Memory that failed before anybody touched it. The kernel gives such a page up when it hears of
// it, and tells of that those who asked for it (ask_for_lost_pages): with a SIGBUS for no access,
// which fails the mapping in the same way, so that no RNIC goes on writing into it. One that tells
// of other memory is dropped: whoever touches that gets a fault of its own.
//
// Other handlers. A fault that is not ours is passed to whatever handler was there before ours, or
// came since: guard_faults() looks again and puts ours in front. If there was none, or it
// comes back to us, the default is restored and the fault repeats: a core, as without us.
//
// What it does not see: a write that an RNIC makes into pages that it has pinned (they stay, and
// are nobody's file any more), and an access by a system call, which fails with EFAULT instead.
// Both end in check(), which compares the file's length with the mapping's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/cut_switch.h"
#include "pmem/region.h"

namespace perdure::pmem {

/// Installs the handler, or puts it back in front of one that a library has installed since. Cheap
/// enough to be called every second. Threads: any.
void guard_faults();

/// From now on, and as long as the calling thread lives, it is told of pages of this process that
/// the kernel gives up (PR_MCE_KILL_EARLY), so that a mapping fails when its memory does. Without
/// effect where the kernel does not recover from lost memory.
void ask_for_lost_pages();

/// Faults that were turned into failures of a mapping, since the process began.
std::uint64_t faults_caught();

/// Readable (an eventfd) once any guarded mapping has failed since it was last read; -1: none could
/// be made.
int fault_notice();

/// While it lives, faults in `mapping` do not end the process. At most kGuardedMax at a time; a
/// mapping beyond that is not guarded. Threads: any.
class MappingGuard {
 public:
  static constexpr std::size_t kGuardedMax = 4096;

  MappingGuard() = default;
  explicit MappingGuard(std::span<std::byte> mapping);
  ~MappingGuard();
  MappingGuard(const MappingGuard&) = delete;
  MappingGuard& operator=(const MappingGuard&) = delete;

  /// Whether there was room for it.
  bool guards() const { return slot_ != kGuardedMax; }

  /// Whether a page of it has been lost. Never becomes false again.
  bool failed() const;

  /// The mapping has failed for another reason: as if a page of it were lost, but that its bytes
  /// stay.
  void fail() const;

  /// See Region::cut_on_failure. Nothing when kTiesMax live already, or the mapping is not guarded.
  std::unique_ptr<FailureTie> tie(const CutSwitch& connection) const;
  static constexpr std::size_t kTiesMax = 4096;

 private:
  std::size_t slot_ = kGuardedMax;  // kGuardedMax: none
};

}  // namespace perdure::pmem
