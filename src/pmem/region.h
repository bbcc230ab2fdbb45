// Region: memory that keeps what is flushed to it, whatever the medium is. One kind loses power
// on demand (crashable_region.h); the others are mapped files and DAX devices (mapped_region.h).
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/types.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/cut_switch.h"

namespace perdure::pmem {

/// A part of a region, in bytes.
struct Range {
  std::uint64_t at = 0;
  std::uint64_t length = 0;
};

/// Whether `range` lies within a region of so many bytes.
inline bool inside(const Range& range, std::uint64_t bytes) {
  return range.at <= bytes && range.length <= bytes - range.at;
}

/// See Region::cut_on_failure; the connection outlives it.
class FailureTie {
 public:
  virtual ~FailureTie() = default;
};

/// Threads: the bytes are plain memory; flush may be called from any thread.
class Region {
 public:
  virtual ~Region() = default;

  virtual std::span<std::byte> bytes() = 0;

  /// What of this region's machine survives a power failure.
  virtual PersistenceDomain domain() const = 0;

  /// Makes the bytes now visible in every range durable, by what the medium needs: cache line
  /// flushes and one fence, msync, or nothing. One call for a batch shares the fence or the sync.
  ///
  /// Of no ranges it makes durable what was stored where visible means durable (Mhp, Wsp).
  ///
  /// Requires    the ranges lie inside the region.
  /// Durability  on success every byte is inside the persistence domain (domain None: it never is;
  ///             flush succeeds and promises nothing).
  /// Errors      SystemError when the medium refused (EIO, ENOSPC): the bytes may or may not be
  ///             durable, and the region must not be trusted any more.
  virtual Result<void> flush(std::span<const Range> ranges) = 0;

  Result<void> flush(std::uint64_t at, std::uint64_t length) {
    const Range range{at, length};
    return flush(std::span<const Range>(&range, 1));
  }

  /// The same for one range, and on to the medium itself where the domain ends before it: out of
  /// the caches (Mhp, Wsp) and the queues of the memory controllers (Dmp), so that it is there also
  /// if what a power failure is to flush fails. A page that is synced is on the medium already.
  /// Errors: as for flush; Unsupported: nothing on this medium does that.
  virtual Result<void> deep_flush(const Range& range) { return flush(range.at, range.length); }

  /// Page: the next flush of the range writes its pages back whatever the kernel thinks of them.
  /// Those that an RNIC wrote into it may take for clean (hardware.md), and would write nothing.
  /// Of what is visible by now, whoever writes meanwhile. Cost: an atomic operation that changes
  /// nothing, for each page in memory.
  virtual void dirty_pages(const Range& range) { (void)range; }

  /// Whether the medium is still there: a mapped file may have been cut short, or lost a page. Of
  /// a pool's region also whether any flush since it was opened has failed. It is this that tells a
  /// failing medium from other trouble, whatever code an error has.
  /// Errors: what the medium said, from then on and from every flush; nothing of the region may be
  /// trusted.
  virtual Result<void> check() { return {}; }

  /// Whether bytes of it are not its own any more: a page was lost, and what is read there may be
  /// zeros. Of what was read before, it says so in time: read first, then ask. check() is an error
  /// then, too. Cost: a load.
  virtual bool is_lost() const { return false; }

  /// While the result lives: turns `connection` before any access, by whatever thread, finds
  /// something else than the region's own bytes; at once, if that has happened. Nothing: this
  /// region does not notice it, or the switch is empty.
  virtual std::unique_ptr<FailureTie> cut_on_failure(const CutSwitch& connection) {
    (void)connection;
    return nullptr;
  }

  /// For a person: what the domain was concluded from.
  virtual std::string evidence() const = 0;

  /// Somebody else has it now: before this returns every connection of cut_on_failure is turned,
  /// and from then on check and flush are errors. Nothing where nobody else can have it. Threads:
  /// any.
  virtual void give_up() {}
};

}  // namespace perdure::pmem
