// PartRegion: the parts of a set as one region, the pool of a client, behind a front of plain
// memory in which a service keeps what it knows of its pools. So a client's bytes are served by the
// same machinery as any pool, and nothing of Perdure is in its files.
//
//   0                    kFrontBytes                                    bytes().size()
//   | front, volatile    | part 0 | part 1 behind its header | ...      |
//
// The domain is that of the weakest part.
#pragma once

#include "pmem/cache_flush.h"
#include "pmem/mapping_guard.h"
#include "pmem/medium_watch.h"
#include "pmem/page_sync.h"
#include "pmem/pool_format.h"
#include "pmem/region.h"
#include "rpmem/part_set.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::rpmem {

struct PartRegionOptions {
  std::optional<PersistenceDomain> declared;
  pmem::SyncCalls* sync_calls = nullptr;  // tests put a failing one here
  pmem::MediumWatchOptions watch = {};
};

class PartRegion final : public pmem::Region {
 public:
  static constexpr std::uint64_t kFrontBytes = pmem::kPoolDataOffset;

  /// What is visible of page-cache files is written back before. `parts` outlives the region.
  /// Errors: Unsupported (the declared domain contradicts the evidence; memory that loses all it
  /// has and nothing declared; a part that the weakest one's domain does not make durable),
  /// NoSpace, Corrupt (lost memory), QueueFull, SystemError.
  static Result<std::unique_ptr<PartRegion>> map(const PartSet& parts,
                                                 const PartRegionOptions& options);
  ~PartRegion() override;
  PartRegion(const PartRegion&) = delete;
  PartRegion& operator=(const PartRegion&) = delete;

  std::span<std::byte> bytes() override { return all_; }
  PersistenceDomain domain() const override { return domain_; }
  using Region::flush;
  Result<void> flush(std::span<const pmem::Range> ranges) override;
  /// One that failed fails the region.
  Result<void> deep_flush(const pmem::Range& range) override;
  void dirty_pages(const pmem::Range& range) override;
  /// Also whether each part's medium still promises what the whole did (MediumWatch).
  Result<void> check() override;
  std::unique_ptr<pmem::FailureTie> cut_on_failure(const CutSwitch& connection) override {
    return guard_->tie(connection);
  }
  std::string evidence() const override { return evidence_; }

 private:
  struct Part {
    const pmem::File* file = nullptr;
    pmem::Range place;  // in the region
    std::uint64_t file_bytes = 0;
    std::unique_ptr<pmem::PageSync> sync;  // Page only
    std::unique_ptr<pmem::MediumWatch> watch;
    pmem::Medium medium;               // at the opening
    pmem::MediumWatch::Decide decide;  // of the part alone
  };

  PartRegion() = default;
  Result<void> reserve(std::uint64_t bytes);
  Result<void> map_part(const PartSet& parts, std::size_t index, std::uint64_t at,
                        const PartRegionOptions& options);
  Result<void> settle_on_domain(const PartSet& parts);
  Error not_kept_so(const PartSet& parts, const Part& part) const;
  Result<void> prepare_flush();
  Result<void> flush_pages(std::span<const pmem::Range> ranges);
  Error lost() const;

  pmem::SyncCalls* sync_calls_ = &pmem::SyncCalls::system();
  std::span<std::byte> all_;
  std::vector<Part> parts_;
  PersistenceDomain domain_ = PersistenceDomain::Wsp;
  std::string evidence_;
  std::optional<pmem::CacheFlush> cache_flush_;  // Dmp only
  std::unique_ptr<pmem::MappingGuard> guard_;
};

}  // namespace perdure::rpmem
