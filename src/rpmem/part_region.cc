// The parts of a set as one region: see part_region.h.
#include "rpmem/part_region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/errno_error.h"
#include "core/try.h"
#include "pmem/bad_blocks.h"
#include "rpmem/set_file.h"

namespace perdure::rpmem {
namespace {

/// As pmem::MappedRegion does it, and for the same reason: what recovery reads must be what a power
/// failure would leave.
Result<void> settle(const pmem::File& file, std::span<std::byte> mapping, pmem::SyncCalls& calls) {
  int failed = calls.sync_file(file.descriptor());
  if (failed == 0) {
    static_cast<void>(::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED));
    if (pmem::dirty_resident_pages(mapping) > 0) failed = calls.sync_file(file.descriptor());
  }
  if (failed == 0) failed = calls.check_writable(file.descriptor());
  if (failed != 0) return errno_error(file.path() + ": fdatasync", failed);
  return {};
}

Result<void> refuse_lost_memory(const pmem::File& file) {
  PERDURE_TRY(bad, pmem::bad_blocks_of(file));
  if (bad.empty()) return {};
  return Error{ErrorCode::Corrupt,
               fmt::format("{}: its memory has lost {} bytes at {}: clear them "
                           "(ndctl-clear-errors(1)), and bring the replica back with pmempool sync",
                           file.path(), bad[0].length, bad[0].at)};
}

bool overlap(const pmem::Range& one, const pmem::Range& other, pmem::Range& both) {
  const std::uint64_t begin = std::max(one.at, other.at);
  const std::uint64_t end = std::min(one.at + one.length, other.at + other.length);
  if (begin >= end) return false;
  both = {begin, end - begin};
  return true;
}

}  // namespace

Result<std::unique_ptr<PartRegion>> PartRegion::map(const PartSet& parts,
                                                    const PartRegionOptions& options) {
  std::unique_ptr<PartRegion> region(new PartRegion);
  if (options.sync_calls != nullptr) region->sync_calls_ = options.sync_calls;
  PERDURE_TRY_VOID(region->reserve(kFrontBytes + parts.set().pool_bytes()));
  std::uint64_t at = kFrontBytes;
  for (std::size_t part = 0; part < parts.set().parts.size(); ++part) {
    PERDURE_TRY_VOID(region->map_part(parts, part, at, options));
    at += parts.set().data_bytes(part);
  }
  PERDURE_TRY_VOID(region->settle_on_domain(parts));
  region->guard_ = std::make_unique<pmem::MappingGuard>(region->all_.subspan(kFrontBytes));
  if (!region->guard_->guards()) {
    return Error{ErrorCode::QueueFull, "too many sets are open in this process"};
  }
  PERDURE_TRY_VOID(region->prepare_flush());
  return region;
}

PartRegion::~PartRegion() {
  guard_.reset();
  if (!all_.empty()) ::munmap(all_.data(), all_.size());
}

/// Room for all, so that the parts lie one behind the other.
Result<void> PartRegion::reserve(std::uint64_t bytes) {
  void* const at =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return errno_error(fmt::format("reserve {} bytes", bytes), errno);
  all_ = {static_cast<std::byte*>(at), bytes};
  if (::mprotect(at, kFrontBytes, PROT_READ | PROT_WRITE) == 0) return {};
  return errno_error("memory for the front", errno);
}

Result<void> PartRegion::map_part(const PartSet& parts, std::size_t index, std::uint64_t at,
                                  const PartRegionOptions& options) {
  const SetFile& set = parts.set();
  const pmem::File& file = parts.file(index);
  if (file.is_device()) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{}:{}: {} is a device; rpmemd serves part files only", set.path,
                             set.parts[index].line, file.path())};
  }
  Part part;
  part.watch = std::make_unique<pmem::MediumWatch>(options.watch);
  PERDURE_TRY(medium, part.watch->examine(file));
  PERDURE_TRY_VOID(pmem::reserve_blocks(file, set.parts[index].bytes));
  part.file = &file;
  part.place = {at, set.data_bytes(index)};
  part.file_bytes = set.parts[index].bytes;
  std::byte* const where = all_.data() + at;
  const auto offset = static_cast<off_t>(set.data_at(index));
  const auto map = [&](int flags) {
    return ::mmap(where, part.place.length, PROT_READ | PROT_WRITE, flags | MAP_FIXED,
                  file.descriptor(), offset) != MAP_FAILED;
  };
  const bool dax = medium.kind == pmem::MediumKind::Dax;
  if (dax) PERDURE_TRY_VOID(refuse_lost_memory(file));
  const bool synchronous = dax && map(MAP_SHARED_VALIDATE | MAP_SYNC);
  if (!synchronous && !map(MAP_SHARED)) return errno_error(file.path() + ": mmap", errno);
  part.decide = [by_pages = dax && !synchronous, declared = options.declared](pmem::Medium& of) {
    if (by_pages) pmem::conclude_mapped_by_pages(of);
    return pmem::decide_domain(of, declared);
  };
  PERDURE_TRY(domain, part.decide(medium));
  domain_ = std::min(domain_, domain);
  if (!evidence_.empty()) evidence_ += "; ";
  evidence_ += fmt::format("{}: {}{}", file.path(), options.declared ? "declared; " : "",
                           pmem::join_evidence(medium));
  part.medium = std::move(medium);
  parts_.push_back(std::move(part));
  return {};
}

Error PartRegion::not_kept_so(const PartSet& parts, const Part& part) const {
  const pmem::Medium& medium = part.medium;
  return {ErrorCode::Unsupported,
          fmt::format("{}: all of its parts are flushed as {}, which the weakest needs, and {} is "
                      "not made durable by that: {}; {}, or put all parts on media of one kind",
                      parts.set().path, to_string(domain_), part.file->path(),
                      medium.never_lasts.empty() ? pmem::join_evidence(medium) : medium.never_lasts,
                      medium.remedy.empty() ? "declare what its medium keeps" : medium.remedy)};
}

/// All parts are flushed as the weakest one has to be, which may do nothing for another: where
/// dax/write_cache says 0, the msync of `page` leaves in the processor's caches what `dmp` flushes.
Result<void> PartRegion::settle_on_domain(const PartSet& parts) {
  if (domain_ == PersistenceDomain::None) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{}: a power failure loses what is written there ({}); choose another "
                             "place, or, if it has a battery, say `declare-domain = wsp` in "
                             "rpmemd.conf",
                             parts.set().path, evidence_)};
  }
  for (Part& part : parts_) {
    if (!pmem::decide_domain(part.medium, domain_).ok()) return not_kept_so(parts, part);
    part.decide = [alone = std::move(part.decide),
                   all = domain_](pmem::Medium& of) -> Result<PersistenceDomain> {
      PERDURE_TRY(domain, alone(of));
      if (domain < all) return domain;
      return pmem::decide_domain(of, all);
    };
  }
  return {};
}

Result<void> PartRegion::prepare_flush() {
  if (domain_ == PersistenceDomain::Dmp) {
    PERDURE_TRY(best, pmem::CacheFlush::best());
    cache_flush_ = best;
  }
  if (domain_ != PersistenceDomain::Page) return {};
  for (Part& part : parts_) {
    const auto bytes = all_.subspan(part.place.at, part.place.length);
    PERDURE_TRY_VOID(settle(*part.file, bytes, *sync_calls_));
    pmem::keep_pages_small(bytes);
    part.sync = std::make_unique<pmem::PageSync>(bytes, part.file->descriptor(), part.file->path(),
                                                 *sync_calls_);
  }
  return {};
}

Result<void> PartRegion::flush(std::span<const pmem::Range> ranges) {
  for (const pmem::Range& range : ranges) PERDURE_ASSERT(pmem::inside(range, all_.size()));
  if (domain_ == PersistenceDomain::Page) {
    PERDURE_TRY_VOID(flush_pages(ranges));
  } else {
    if (domain_ == PersistenceDomain::Dmp) {
      for (const pmem::Range& range : ranges)
        cache_flush_->lines(all_.subspan(range.at, range.length));
    }
    pmem::store_fence();
  }
  // Last: what was stored before may have gone into a page that is no file's any more.
  if (guard_->failed()) return lost();
  return {};
}

/// A range may lie in several parts, and in the front, which nothing makes durable.
Result<void> PartRegion::flush_pages(std::span<const pmem::Range> ranges) {
  for (Part& part : parts_) {
    std::vector<pmem::Range> here;
    for (const pmem::Range& range : ranges) {
      pmem::Range both;
      if (!overlap(range, part.place, both)) continue;
      here.push_back({both.at - part.place.at, both.length});
    }
    if (!here.empty()) PERDURE_TRY_VOID(part.sync->sync(here));
  }
  return {};
}

Result<void> PartRegion::deep_flush(const pmem::Range& range) {
  PERDURE_TRY_VOID(flush(std::span(&range, 1)));
  if (domain_ == PersistenceDomain::Page) return {};
  if (domain_ != PersistenceDomain::Dmp) {
    // What an RNIC has written into the caches, msync does not find.
    PERDURE_TRY(best, pmem::CacheFlush::best());
    best.lines(all_.subspan(range.at, range.length));
    pmem::store_fence();
  }
  auto synced = pmem::sync_pages_deep(all_, range, "the parts", *sync_calls_);
  // The kernel tells of it once: the next msync would find nothing to write.
  if (!synced.ok() && synced.code() != ErrorCode::Unsupported) guard_->fail();
  return synced;
}

void PartRegion::dirty_pages(const pmem::Range& range) {
  if (domain_ != PersistenceDomain::Page) return;
  for (const Part& part : parts_) {
    pmem::Range both;
    if (!overlap(range, part.place, both)) continue;
    const std::uint64_t begin = round_down(both.at, kPageBytes);
    const std::uint64_t end = round_up(both.at + both.length, kPageBytes);
    pmem::dirty_resident_pages(all_.subspan(begin, end - begin));
  }
}

Error PartRegion::lost() const {
  return {ErrorCode::SystemError,
          "a page of a part can not be reached any more (truncated, or the medium failed); nothing "
          "of the replica is trusted: see to the files, then bring it back with pmempool sync"};
}

Result<void> PartRegion::check() {
  if (guard_->failed()) return lost();
  for (const Part& part : parts_) {
    if (part.sync != nullptr) PERDURE_TRY_VOID(part.sync->check());
    struct stat status {};
    if (::fstat(part.file->descriptor(), &status) != 0) {
      return errno_error(part.file->path(), errno);
    }
    if (static_cast<std::uint64_t>(status.st_size) < part.file_bytes) {
      return Error{
          ErrorCode::SystemError,
          fmt::format("{}: has been truncated to {} of {} bytes while it was in use; bring "
                      "the replica back with pmempool sync",
                      part.file->path(), status.st_size, part.file_bytes)};
    }
    PERDURE_TRY_VOID(pmem::check_name(*part.file));
    PERDURE_TRY_VOID(part.watch->look(*part.file, domain_, part.decide));
  }
  return {};
}

}  // namespace perdure::rpmem
