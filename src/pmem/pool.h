// Pool: a region with a name, an identity and a writer's epoch, of which the rest is exported. The
// bytes of its first pages are those of pool_format.h; what lies in the exported part is the
// business of whoever uses it (the log, a mirror).
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "pmem/mapped_region.h"
#include "pmem/owner_lease.h"
#include "pmem/pool_format.h"
#include "pmem/region.h"
#include "pmem/sticky_region.h"

namespace perdure::pmem {

struct PoolOptions {
  /// Exported bytes. 0: all there is, on a device or a given region; not allowed for a file.
  std::uint64_t data_bytes = 0;
  /// What will be in it, at most 16 bytes, for example "log". Checked by nobody here.
  std::string kind;
  /// For people, at most 128 bytes.
  std::string name;
  /// The domain as the operator knows it: see MapOptions. Kept in the pool and used at every open.
  std::optional<PersistenceDomain> declared;
  /// The weakest domain that will do; none: any. Where it would be less nothing is made. Not kept.
  PersistenceDomain required = PersistenceDomain::None;
  /// The upper layers' own part of its first state.
  std::vector<std::byte> opaque;
  /// So many bytes of a new file are written with zeros, and those behind only reserved. A reserved
  /// block is marked as written in the file system's journal when it is first written back, which
  /// makes the first flush of each page dearer: 3 requests and 8 KiB to the drive instead of 2 and
  /// 4 (measured, ext4). Making the pool takes as long as writing that much.
  std::uint64_t zeroed_bytes_max = 0;
  /// No more than this much time is spent on that.
  Nanoseconds zeroed_within = std::chrono::seconds(1);
  /// Its identity; nothing: drawn at random. For worlds that are the same under the same seed.
  std::optional<Uuid> uuid;
};

struct OpenOptions {
  /// What the operator declares today. Overrides what was declared when the pool was made, which
  /// counts by itself only as far as the evidence goes: the battery may be gone since, or the file
  /// be on another machine.
  std::optional<PersistenceDomain> declared;
  /// See MapOptions.
  SyncCalls* sync_calls = nullptr;
  /// See OwnerLease, which devices have.
  bool take_over_lease = false;
  /// For who recovers what is in it, and would flush it too weakly: see Pool::require_declared.
  bool must_be_declared = false;
};

/// What a pool says of itself.
struct PoolInfo {
  std::string path;  // empty: a pool over a region that was given
  PoolHeader header;
  PoolState state;
  std::uint64_t state_generation = 0;
  bool state_copies_agree = false;  // false: one copy was torn by a crash or is damaged
  /// What is or would be worked by, with the reasons. Not set: see `evidence`.
  std::optional<PersistenceDomain> domain;
  std::string evidence;
};

/// Several lines, "word: value" each.
std::string to_string(const PoolInfo& info);

/// Who has a pool, as far as it shows to who neither takes nor watches anything.
struct PoolHolder {
  enum class State {
    Nobody,
    Held,       // its lock, or the lease of a device, is
    Ending,     // by a process that gave up the lock and has not ended
    Elsewhere,  // the lease of a device names somebody of whom nothing tells whether it lives
  };
  State state = State::Nobody;
  std::string who{};  // for a person; empty: nobody
  /// A device is held, and its lock is not: from another node of the device, in another container.
  bool by_lease_alone = false;
};

/// Threads  one caller at a time, except region(), whose bytes and flush are for any thread.
class Pool {
 public:
  /// Makes a pool: a new file, or on a DAX device that holds none yet. The file appears whole,
  /// with every block reserved and durable, or not at all; one that exists is never touched.
  ///
  /// Errors  AlreadyExists, Busy, NoSpace, NotFound (no such directory), PermissionDenied.
  ///         InvalidArgument: a field that does not fit. Unsupported: the declared domain
  ///         contradicts the evidence, or the domain is less than is required. SystemError.
  static Result<std::unique_ptr<Pool>> create(const std::string& path, const PoolOptions& options);

  /// Opens a pool for this process alone.
  ///
  /// Durability  the newest state that was ever acknowledged is read, and all copies of it and of
  ///             the header are whole again on return. The clean-shutdown mark is durably taken
  ///             away. Where it was last opened by another domain or in another place, or that is
  ///             not known, all that is visible of it is durable by today's on return.
  /// Cost        then a flush of the whole pool: up to minutes for a terabyte in cache lines.
  /// Errors  NotFound, PermissionDenied, Busy (names the holder, also one that was killed and has
  ///         not ended yet; of a device one in another container, too: see OwnerLease).
  ///         InvalidArgument: not a pool. VersionMismatch. Corrupt: truncated, another size, or
  ///         damaged. Unsupported: the declared domain contradicts what this machine shows, or is
  ///         missing (OpenOptions::must_be_declared). SystemError.
  static Result<std::unique_ptr<Pool>> open(const std::string& path, const OpenOptions& options);

  /// Describes a pool without opening it: takes no lock and writes nothing. The state may be
  /// changing at that moment; the answer is then the one before or after.
  /// Errors  those of open, except Busy and Unsupported.
  static Result<PoolInfo> inspect(const std::string& path);

  /// The UUID in the header of what is at `path`, also of a pool that is truncated or whose state
  /// is damaged. As inspect. Requires that this process has not got it open: that would not be
  /// named as the pool's holder any more.
  static Result<Uuid> uuid_of(const std::string& path);

  /// Whether `path` is, or links to, a DAX device whose front is zero: one that a pool may be made
  /// on. Takes no lock.
  static bool is_blank_device(const std::string& path);

  /// Whether somebody has the lock of the pool at `path` just now, or had it and has not ended yet.
  /// A device may be in use without one, by another machine or container: open finds that out.
  static bool is_locked(const std::string& path);

  /// Who has the pool at `path`. Takes no lock, and writes nothing.
  /// Errors  NotFound, PermissionDenied, InvalidArgument, SystemError.
  static Result<PoolHolder> holder(const std::string& path);

  /// Deletes the file of a pool that nobody has open, whatever is in it, if it is the pool of this
  /// UUID, as uuid_of says it; empty: what has no header that can be read. Durable on return.
  /// Errors  NotFound (also: it is another pool), PermissionDenied, Busy (names the holder),
  ///         Unsupported (a device, or a link), SystemError.
  static Result<void> remove(const std::string& path, const std::string& uuid);
  /// Errors: Unsupported, as of remove. Opens nothing.
  static Result<void> check_removable(const std::string& path);

  /// Makes a pool in a region, whatever kind it is. Overwrites what is there. A crash before it
  /// returns leaves a region that attach refuses, or the whole pool. The exported bytes are left
  /// as they are.
  /// Errors  InvalidArgument: a field that does not fit, or the region is too small.
  ///         Unsupported: its domain is less than is required. SystemError.
  static Result<std::unique_ptr<Pool>> format(std::unique_ptr<Region> region,
                                              const PoolOptions& options);

  /// Makes a pool on a device that holds none, which others may be opening at the same time: only
  /// with its lease is it certain what is there. `place`: of that lease.
  /// Errors  AlreadyExists; those of OwnerLease::take, and of format.
  static Result<std::unique_ptr<Pool>> format_device(std::unique_ptr<Region> region,
                                                     const PoolOptions& options,
                                                     const std::string& path,
                                                     std::uint64_t place = 0);

  /// Opens the pool on a device, in a region over it. Errors: those of OwnerLease::take, and of
  /// attach. `path`: for messages. `place`: as for attach.
  static Result<std::unique_ptr<Pool>> attach_device(std::unique_ptr<Region> region,
                                                     const std::string& path, std::uint64_t place,
                                                     const OpenOptions& options = {});

  /// Opens the pool in a region, whatever kind it is, and whoever had it before: what is visible is
  /// taken for durable. Durability and errors otherwise: those of open.
  /// `place`: where the region is, another number for another place (see was_settled).
  static Result<std::unique_ptr<Pool>> attach(std::unique_ptr<Region> region,
                                              std::uint64_t place = 0);

  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  /// Lets go of the file and its lock. Without close(), the pool counts as not shut down.
  ~Pool();

  /// Keeps its first failure until the pool is opened again: see StickyRegion.
  Region& region() { return *region_; }
  const Region& region() const { return *region_; }
  /// Where the exported bytes begin in region().bytes(), and how many they are.
  std::uint64_t data_offset() const { return kPoolDataOffset; }
  std::uint64_t data_bytes() const { return header_.data_bytes; }
  std::span<std::byte> data() { return region_->bytes().subspan(data_offset(), data_bytes()); }

  const Uuid& uuid() const { return header_.uuid; }
  const PoolHeader& header() const { return header_; }
  Epoch epoch() const { return slot_.state.epoch; }
  const PoolState& state() const { return slot_.state; }
  /// Whether the last opener had closed it. False after a crash and for a new pool.
  bool was_shut_down() const { return was_shut_down_; }
  /// Whether all that is visible of the data is durable, since the last opener closed it so
  /// (Contents::Settled), nobody has opened it in between, and it is still where it was and worked
  /// by the same domain: what a battery kept is not in the memory controller, and what was copied
  /// may be in the caches. Of dmp only: elsewhere flushing all of it costs little, and a file that
  /// somebody wrote over in its place may be in the page cache.
  bool was_settled() const { return was_settled_; }
  /// Tells a file or device from a copy of it. 0: it was not said.
  std::uint64_t place() const { return place_; }

  /// Replaces epoch, holder and opaque bytes. The marks of close() in `state` are ignored, and
  /// taken away.
  ///
  /// Durability  on success the new state is durable in both copies. A crash in between leaves the
  ///             old state or the new one, whole.
  /// Errors  InvalidArgument: a field that does not fit, or an epoch below the present one;
  ///         nothing was changed. SystemError, NoSpace: the medium refused, the old state or the
  ///         new one will be read after a crash, and the region is not to be trusted any more.
  /// Cost    three flushes of one page each.
  Result<void> set_state(const PoolState& state);

  /// What the closer of a pool says of its data: Settled, all that is visible is durable, whoever
  /// wrote it, and nobody can write to it any more.
  enum class Contents { NotKnown, Settled };

  /// Marks the pool as shut down, durably. What the user of the pool wrote must be durable before.
  /// Afterwards only destruction, or set_state, which takes the mark away again.
  Result<void> close(Contents contents = Contents::NotKnown);

  /// Whether it may be recovered: where nothing is known to last, and something was relied on
  /// (PoolState::relied_on), that has to be declared. Else messages and calls that were durable
  /// would be written to their places, and counted as done, by flushes that do nothing.
  /// Errors  Unsupported.
  Result<void> require_declared() const;

  /// What the region's domain rests on, and what was relied on and is not declared now.
  std::string evidence() const;
  PoolInfo info() const;
  std::string describe() const { return to_string(info()); }

 private:
  /// A region that nobody else has. The lease goes before it.
  struct Held {
    std::unique_ptr<Region> region;
    std::unique_ptr<OwnerLease> lease;  // of a device
  };

  Pool(Held held, PoolHeader header, std::string path)
      : region_(std::make_unique<StickyRegion>(std::move(held.region), held.lease.get())),
        lease_(std::move(held.lease)),
        header_(std::move(header)),
        path_(std::move(path)) {}

  static Result<std::unique_ptr<Pool>> format_at(Held held, const PoolOptions& options,
                                                 std::string path, std::uint64_t place);
  static Result<std::unique_ptr<Pool>> attach_at(Held held, std::string path, std::uint64_t place,
                                                 const OpenOptions* options);
  static Result<std::unique_ptr<Pool>> create_on_device(const std::string& path,
                                                        const PoolOptions& options);
  std::optional<PersistenceDomain> relied_on() const;
  Result<void> take_up(PoolState& state);
  std::span<std::byte> owner_page();
  void own(std::uint64_t place);
  Result<void> write_page(std::uint64_t at, const PoolPage& page);
  Result<void> repair_headers();
  Result<void> write_state(PoolState state);

  std::unique_ptr<Region> region_;
  std::unique_ptr<OwnerLease> lease_;
  PoolHeader header_;
  std::string path_;
  StateSlot slot_;
  std::size_t newest_index_ = 0;
  bool was_shut_down_ = false;
  bool was_settled_ = false;
  bool declared_ = false;  // a domain is, today
  std::uint64_t place_ = 0;
  int owner_noted_ = 0;  // the process that wrote itself down
};

}  // namespace perdure::pmem
