// OwnerLease: who has a device DAX pool. The lock on a file belongs to its inode, and two
// containers may have nodes of their own for one device: then only what is on the device itself
// tells each of the other.
//
//   offset   size  field
//   0        8     magic      the characters "PERDLEAS"
//   8        4     version    1
//   12       4     flags      bit 0: the kernel marks the owner's death
//   16       4     tag        that of the claim which this describes
//   20       4     zero
//   24       40    boot id    of the owner's kernel (/proc/sys/kernel/random/boot_id), as text
//   64       128   owner      for people
//   192      8     place      Options::place, as that kernel numbers the device; 0: not said
//   200      52    zero
//   252      4     checksum   CRC32C of the 252 bytes before it
//   256      8     claim      0: nobody's; else tag (high half), thread of the owner (low half).
//                             The tag's lowest bit, 1 in the description, changes with each beat
//   264      56    zero
//   320      8     beat       counts up twice a second for as long as it is held
//
// How an owner is known to be dead:
//   - Of this boot: the low half of the claim is a robust futex (Linux, robust-futex-ABI): the
//     kernel marks it when the owner's thread ends, however it ends, and in whatever container.
//     Until then it is held, also by a process that is stopped or hung.
//   - Of this boot, and of another device: this is a copy of what its owner had, whose end nobody
//     marks here. As of another boot. Of which device only a number of the same boot says.
//   - Of another boot: if the machine was restarted, nobody counts the beat any more; if it is
//     another machine or a virtual one beside this one, which shares the device, the beat goes on.
//     That is watched for a while. So after a power failure nobody has to do anything.
//   - Where the boot id can not be read (/proc/sys is hidden): as of another boot. Such an owner
//     that is stopped or hung for as long as it is watched counts as dead.
// Everything else is decided by an operator (take_over).
//
// How an owner knows that it still has it: the claim names it. A beat replaces the claim by another
// one, in one atomic step, and so does whoever takes it after having watched: so of an owner that
// wakes and one that is about to take its place exactly one gets it, and needs no clock for that.
// Who only watches measures by a clock that stands still while its machine is suspended
// (CLOCK_MONOTONIC): then the other one may have had no turn either.
// It is looked at behind every flush (StickyRegion), and at every beat; once it is lost, the region
// is given up (Region::give_up) and the lease is left alone, also by the kernel's mark.
//
// What a crash leaves: any of the claims that ever were, of an earlier boot; a description that
// does not fit the claim or is torn, which then describes nobody.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/clock.h"
#include "pmem/region.h"

namespace perdure::pmem {

inline constexpr std::uint64_t kOwnerLeaseBytes = 4096;

class OwnerLease {
 public:
  struct Options {
    std::string owner;    // for people; empty: host name and process
    std::string boot_id;  // empty: this kernel's
    /// Tells the device from another one of this kernel, in whatever container; 0: it is not said.
    std::uint64_t place = 0;
    /// How long an owner of another boot is watched; several beats.
    Nanoseconds watch = std::chrono::seconds{3};
    /// The operator says that the owner is dead, or will be cut off.
    bool take_over = false;
  };

  /// Whether it is still held: what was durable before this succeeded was so before anybody else
  /// had the device. Errors  SystemError: another owner has it; the region was given up. Threads:
  /// any.
  virtual Result<void> check() = 0;

  /// Takes the lease whose bytes begin at `at`, aligned to a cache line.
  /// Requires  the region outlives the lease, is shared with whoever else might take it, and was
  ///           read from a medium that processes and machines see alike.
  /// Errors    Busy: somebody has it, or may have it; says who, and what an operator can do.
  ///           SystemError.
  static Result<std::unique_ptr<OwnerLease>> take(Region& region, std::uint64_t at,
                                                  const Options& options);

  /// Gives it back.
  virtual ~OwnerLease() = default;
};

/// What a lease says of its owner, to who neither takes nor watches it.
struct LeaseSeen {
  enum class State {
    Free,       // nobody has it, or who had it has ended
    Held,       // its owner, of this boot, has not ended
    Elsewhere,  // its owner is of another boot, or of another device, of which this is a copy: only
                // watching its beat tells whether it lives
    Unmarked,   // of this boot, and the kernel would not tell of its end: as Elsewhere
  };
  State state = State::Free;
  std::string owner;  // for people; empty: Free, or it could not be read
};

/// Requires  kOwnerLeaseBytes. `place`: as in Options. Pure.
LeaseSeen look_at_lease(std::span<const std::byte> lease, const std::string& boot_id,
                        std::uint64_t place = 0);

}  // namespace perdure::pmem
