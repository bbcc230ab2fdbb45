// MappedRegion: a Region over a file or a device. What its flush does follows from the medium:
//   page         msync or fdatasync
//   dmp          cache line write-backs and one fence
//   mhp, wsp     one store fence
//   none         nothing, and it promises nothing
// libpmem2 maps DAX and files; memory file systems are mapped directly, since their pages may be
// huge. libpmem2's own flush of files is not used: it has no way to report that msync failed.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/mutex.h"
#include "pmem/cache_flush.h"
#include "pmem/direct_map.h"
#include "pmem/file.h"
#include "pmem/mapping_guard.h"
#include "pmem/medium.h"
#include "pmem/medium_watch.h"
#include "pmem/page_sync.h"
#include "pmem/read_ahead.h"
#include "pmem/region.h"

namespace perdure::pmem {

struct MapOptions {
  /// What survives, as the operator knows it. Set it when memory has a battery, or to use a
  /// medium as less than it is. Not set: what the evidence shows.
  std::optional<PersistenceDomain> declared;
  /// How pages reach the medium. Tests put a failing one here; it must outlive the region.
  SyncCalls* sync_calls = nullptr;
  /// What was declared when the pool there was made; counts as still_declared() says.
  std::optional<PersistenceDomain> declared_once = std::nullopt;
  /// Looks at the medium: at the opening, and with check() from then on.
  MediumWatchOptions watch = {};
};

class MappedRegion final : public Region {
 public:
  /// Maps an existing file or device whole. What it now holds in the page cache is made durable
  /// first and then dropped from the cache, so that the reader sees what the medium has; bytes in
  /// processor caches (dmp) are left to the reader, which must flush what it decides to keep.
  ///
  /// Requires  the file is locked. When it is made shorter all the same, or a page of it can not be
  ///           read any more, the region has failed (see check and MappingGuard) and the process
  ///           goes on.
  /// Errors    Unsupported: the declared domain contradicts the evidence, or there is no flush
  ///           instruction. InvalidArgument: empty, or not a multiple of the page size.
  ///           NoSpace: a sparse file whose holes find no room. QueueFull: as many regions as can
  ///           be guarded (MappingGuard::kGuardedMax) are open. SystemError.
  static Result<std::unique_ptr<MappedRegion>> map(File file, const MapOptions& options);

  /// The file opened, locked and mapped. Errors: those of open_file, lock_exclusively and map.
  static Result<std::unique_ptr<MappedRegion>> open(const std::string& path,
                                                    const MapOptions& options);

  /// A new file of `bytes` zeros, rounded up to what the medium maps. Never replaces a file.
  /// Errors: those of NewFile and map; on any of them nothing is left behind.
  static Result<std::unique_ptr<MappedRegion>> create(const std::string& path, std::uint64_t bytes,
                                                      const MapOptions& options);

  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;
  ~MappedRegion() override;

  std::span<std::byte> bytes() override { return mapping_.bytes; }
  PersistenceDomain domain() const override { return domain_; }
  using Region::flush;
  Result<void> flush(std::span<const Range> ranges) override;
  /// By msync on a DAX file system, by flush_device on a DAX device.
  Result<void> deep_flush(const Range& range) override;
  void dirty_pages(const Range& range) override;
  /// Also whether the medium still promises what it did when it was mapped (MediumWatch).
  Result<void> check() override;
  bool is_lost() const override { return guard_->failed(); }
  /// Who connects to a page-cache file may read all of it: from the first one on it is read ahead.
  std::unique_ptr<FailureTie> cut_on_failure(const CutSwitch& connection) override;
  void give_up() override;
  std::string evidence() const override;

  const Medium& medium() const { return medium_; }
  const File& file() const { return file_; }

 private:
  MappedRegion() = default;
  Result<void> map_bytes(std::uint64_t bytes);
  void note_how_mapped(Medium& medium) const;
  Result<void> choose_domain();
  Result<void> look_at_medium();
  Result<void> prepare_flush();
  Result<void> flush_by_domain(std::span<const Range> ranges);
  void flush_lines(std::span<const Range> ranges);

  File file_;
  MapOptions options_;
  Medium medium_;
  PersistenceDomain domain_ = PersistenceDomain::None;
  bool declared_ = false;
  Mapping mapping_;
  std::unique_ptr<MappingGuard> guard_;
  std::optional<CacheFlush> cache_flush_;  // Dmp only
  std::unique_ptr<PageSync> page_sync_;    // Page only
  std::unique_ptr<MediumWatch> watch_;
  Mutex mutex_;
  std::unique_ptr<ReadAhead> read_ahead_
      PERDURE_GUARDED_BY(mutex_);  // Page only, once connected to
};

/// The unit in which the medium below a file or directory maps memory: the huge page on hugetlbfs,
/// else the page. The size of a new file is rounded up to it.
Result<std::uint64_t> mapping_unit(const std::string& path);

}  // namespace perdure::pmem
