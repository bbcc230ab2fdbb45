// MappedRegion: a Region over a file or a device.
#include "pmem/mapped_region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/errno_error.h"
#include "core/try.h"
#include "pmem/bad_blocks.h"

namespace perdure::pmem {
namespace {

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

// A process that was killed leaves bytes in the page cache that are visible but not durable, and
// after a failed write-back (see PageSync::sync) even clean pages can differ from the medium. What
// recovery reads must be what a power failure would leave: so write back, then forget the cache.
// That is advice only: a page that somebody has mapped or locked stays, and may be one that is
// clean and differs from the medium. So what is still there is written again.
Result<void> settle_page_cache(const File& file, std::span<std::byte> mapping, SyncCalls& calls) {
  int failed = calls.sync_file(file.descriptor());
  if (failed == 0) {
    static_cast<void>(::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED));
    if (dirty_resident_pages(mapping) > 0) failed = calls.sync_file(file.descriptor());
  }
  if (failed == 0) failed = calls.check_writable(file.descriptor());
  if (failed != 0) return errno_error(file.path() + ": fdatasync", failed);
  return {};
}

// A load from such a byte raises SIGBUS, and what was there is lost.
Result<void> refuse_bad_blocks(const File& file) {
  PERDURE_TRY(bad, bad_blocks_of(file));
  if (bad.empty()) return {};
  return Error{
      ErrorCode::Corrupt,
      fmt::format("{}: its memory has lost {} bytes at {}{} (badblocks of the kernel, "
                  "`ndctl list -M`): clear them (ndctl-clear-errors(1), or write the file "
                  "anew), make the pool again, and repair it from another replica",
                  file.path(), bad[0].length, bad[0].at,
                  bad.size() > 1 ? fmt::format(" and in {} other places", bad.size() - 1) : "")};
}

// A hole in a mapped file is a SIGBUS waiting for the disk to be full. fallocate and not
// posix_fallocate: the latter's emulation would write into every block of an existing pool.
Result<void> fill_holes(const File& file, std::uint64_t bytes) {
  if (file.is_device()) return {};
  if (::fallocate(file.descriptor(), 0, 0, static_cast<off_t>(bytes)) == 0) return {};
  if (errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return errno_error(fmt::format("{}: reserve {} bytes", file.path(), bytes), errno);
}

Error wrong_size(const File& file, std::uint64_t bytes, std::uint64_t unit) {
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{}: has {} bytes, which is not a positive multiple of {}; it is "
                           "truncated or was not made by perdure",
                           file.path(), bytes, unit)};
}

// One more would end the process, and all other pools with it, when a page of it is lost.
Error too_many_mappings(const File& file) {
  return {
      ErrorCode::QueueFull,
      fmt::format("{}: this process has {} pools open, and catches lost pages of no more: close "
                  "one, or let a second daemon serve some",
                  file.path(), MappingGuard::kGuardedMax)};
}

Error lost_page(const File& file) {
  return {ErrorCode::SystemError,
          fmt::format("{}: a page of it can not be reached any more (truncated, or the medium "
                      "failed); nothing of it is trusted: see to the file and its medium, open "
                      "the pool, and repair it from another replica",
                      file.path())};
}

}  // namespace

Result<std::unique_ptr<MappedRegion>> MappedRegion::map(File file, const MapOptions& options) {
  PERDURE_TRY(bytes, size_of(file));
  if (bytes == 0 || bytes % page_bytes() != 0) return wrong_size(file, bytes, page_bytes());
  auto watch = std::make_unique<MediumWatch>(options.watch);
  PERDURE_TRY(medium, watch->examine(file));
  if (medium.kind == MediumKind::Dax) PERDURE_TRY_VOID(refuse_bad_blocks(file));
  PERDURE_TRY_VOID(fill_holes(file, bytes));

  std::unique_ptr<MappedRegion> region(new MappedRegion);
  region->file_ = std::move(file);
  region->watch_ = std::move(watch);
  region->medium_ = std::move(medium);
  region->options_ = options;
  PERDURE_TRY_VOID(region->map_bytes(bytes));
  PERDURE_TRY_VOID(region->choose_domain());
  PERDURE_TRY_VOID(region->prepare_flush());
  return region;
}

Result<std::unique_ptr<MappedRegion>> MappedRegion::open(const std::string& path,
                                                         const MapOptions& options) {
  PERDURE_TRY(file, open_file(path, OpenMode::ReadWrite));
  PERDURE_TRY_VOID(lock_exclusively(file));
  return map(std::move(file), options);
}

Result<std::unique_ptr<MappedRegion>> MappedRegion::create(const std::string& path,
                                                           std::uint64_t bytes,
                                                           const MapOptions& options) {
  if (bytes == 0) return Error{ErrorCode::InvalidArgument, path + ": a region of 0 bytes"};
  const std::string directory = std::filesystem::path(path).parent_path().string();
  PERDURE_TRY(unit, mapping_unit(directory.empty() ? "." : directory));
  PERDURE_TRY(made, NewFile::begin(path, round_up(bytes, unit)));
  PERDURE_TRY(region, map(made.take_file(), options));
  PERDURE_TRY_VOID(made.publish(region->file().descriptor()));
  return region;
}

MappedRegion::~MappedRegion() {
  {
    const MutexLock lock(mutex_);
    read_ahead_.reset();
  }
  guard_.reset();
  unmap(mapping_);
}

Result<void> MappedRegion::map_bytes(std::uint64_t bytes) {
  PERDURE_TRY(mapping, map_file(file_, medium_, bytes));
  mapping_ = mapping;
  guard_ = std::make_unique<MappingGuard>(mapping_.bytes);
  if (!guard_->guards()) return too_many_mappings(file_);
  note_how_mapped(medium_);
  return {};
}

/// Two witnesses, the kernel's answer to MAP_SYNC and libpmem2's; the weaker one counts.
void MappedRegion::note_how_mapped(Medium& medium) const {
  if (medium.kind != MediumKind::Dax || mapping_.synchronous || medium.is_device) return;
  medium.evidence.emplace_back(
      "it is mapped without MAP_SYNC all the same: libpmem2 gave page granularity only, or this "
      "Perdure was built without it");
  conclude_mapped_by_pages(medium);
}

Result<void> MappedRegion::choose_domain() {
  const auto declared = still_declared(medium_, options_.declared, options_.declared_once);
  auto domain = decide_domain(medium_, declared);
  if (!domain.ok())
    return Error{domain.code(), fmt::format("{}: {}", file_.path(), domain.error().message)};
  domain_ = *domain;
  declared_ = declared.has_value();
  return {};
}

/// Whether what was decided when it was mapped still holds.
Result<void> MappedRegion::look_at_medium() {
  if (domain_ == PersistenceDomain::None) return {};  // promises nothing
  return watch_->look(file_, domain_, [this](Medium& medium) {
    note_how_mapped(medium);
    return decide_domain(medium, still_declared(medium, options_.declared, options_.declared_once));
  });
}

Result<void> MappedRegion::prepare_flush() {
  if (domain_ == PersistenceDomain::Dmp) {
    PERDURE_TRY(best, CacheFlush::best());
    cache_flush_ = best;
  }
  if (domain_ == PersistenceDomain::Page) {
    SyncCalls& calls = options_.sync_calls != nullptr ? *options_.sync_calls : SyncCalls::system();
    PERDURE_TRY_VOID(settle_page_cache(file_, mapping_.bytes, calls));
    keep_pages_small(mapping_.bytes);
    page_sync_ =
        std::make_unique<PageSync>(mapping_.bytes, file_.descriptor(), file_.path(), calls);
  }
  return {};
}

Result<void> MappedRegion::flush(std::span<const Range> ranges) {
  for (const Range& range : ranges) PERDURE_ASSERT(inside(range, mapping_.bytes.size()));
  PERDURE_TRY_VOID(flush_by_domain(ranges));
  // Last: what was stored before this flush may have gone into a page that is not the file's.
  if (guard_->failed()) return lost_page(file_);
  return {};
}

std::unique_ptr<FailureTie> MappedRegion::cut_on_failure(const CutSwitch& connection) {
  if (page_sync_ != nullptr) {
    const MutexLock lock(mutex_);
    if (read_ahead_ == nullptr) read_ahead_ = std::make_unique<ReadAhead>(mapping_.bytes);
  }
  return guard_->tie(connection);
}

Result<void> MappedRegion::deep_flush(const Range& range) {
  const Range wanted[] = {range};
  PERDURE_TRY_VOID(flush(wanted));
  if (domain_ == PersistenceDomain::None || domain_ == PersistenceDomain::Page) return {};
  if (domain_ != PersistenceDomain::Dmp) {
    // What an RNIC has written into the caches, msync does not find.
    PERDURE_TRY(best, CacheFlush::best());
    best.lines(mapping_.bytes.subspan(range.at, range.length));
    store_fence();
  }
  if (file_.is_device()) return flush_device(file_, mapping_, range);
  return sync_pages(mapping_.bytes, range, file_.path());
}

void MappedRegion::dirty_pages(const Range& range) {
  PERDURE_ASSERT(inside(range, mapping_.bytes.size()));
  if (domain_ != PersistenceDomain::Page) return;
  const std::uint64_t begin = round_down(range.at, page_bytes());
  const std::uint64_t end = round_up(range.at + range.length, page_bytes());
  dirty_resident_pages(mapping_.bytes.subspan(begin, end - begin));
}

Result<void> MappedRegion::check() {
  if (guard_->failed()) return lost_page(file_);
  if (file_.is_device()) return {};
  if (page_sync_ != nullptr) PERDURE_TRY_VOID(page_sync_->check());
  struct stat status {};
  if (::fstat(file_.descriptor(), &status) != 0) return errno_error(file_.path(), errno);
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes >= mapping_.bytes.size()) {
    PERDURE_TRY_VOID(check_name(file_));
    return look_at_medium();
  }
  return Error{
      ErrorCode::SystemError,
      fmt::format("{}: has been truncated to {} of {} bytes while it was in use; what "
                  "was behind is lost: make a new pool and repair it from another replica; "
                  "a copy is older, which a region or a mirror does not notice",
                  file_.path(), bytes, mapping_.bytes.size())};
}

Result<void> MappedRegion::flush_by_domain(std::span<const Range> ranges) {
  switch (domain_) {
    case PersistenceDomain::None: return {};
    case PersistenceDomain::Page: return page_sync_->sync(ranges);
    case PersistenceDomain::Dmp: flush_lines(ranges); return {};
    case PersistenceDomain::Mhp:
    case PersistenceDomain::Wsp:
      // A store waits in the processor's store buffer, which no battery is known to save.
      store_fence();
      return {};
  }
  return {};
}

void MappedRegion::give_up() { guard_->fail(); }

void MappedRegion::flush_lines(std::span<const Range> ranges) {
  for (const Range& range : ranges)
    cache_flush_->lines(mapping_.bytes.subspan(range.at, range.length));
  store_fence();
}

std::string MappedRegion::evidence() const {
  std::string facts = join_evidence(medium_);
  if (!declared_) return facts;
  return fmt::format("declared {} by the operator; {}", to_string(domain_), facts);
}

Result<std::uint64_t> mapping_unit(const std::string& path) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) return errno_error(path, errno);
  const bool huge = (static_cast<unsigned long>(status.f_type) & 0xFFFFFFFFUL) == HUGETLBFS_MAGIC;
  return huge ? static_cast<std::uint64_t>(status.f_bsize) : page_bytes();
}

}  // namespace perdure::pmem
