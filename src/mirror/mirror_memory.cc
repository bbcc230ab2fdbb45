// The local memory of a mirror: a mapped file, or memory that the program has.

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "core/errno_error.h"
#include "core/try.h"
#include "mirror/mirror_memory.h"
#include "pmem/cache_flush.h"
#include "pmem/mapped_region.h"
#include "pmem/page_sync.h"

namespace perdure {
namespace mirror {
namespace {

/// A name by which nothing is read or written: to close it takes no lock from the program, as
/// closing an open file would.
class PlaceOfFile {
 public:
  explicit PlaceOfFile(const std::string& file)
      : descriptor_(::open(file.c_str(), O_PATH | O_CLOEXEC)), failed_(errno) {}
  ~PlaceOfFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  PlaceOfFile(const PlaceOfFile&) = delete;
  PlaceOfFile& operator=(const PlaceOfFile&) = delete;

  /// Errors: SystemError: its file system takes no writes any more. Then msync may have written
  /// nothing, and returned 0 (ext4's errors=remount-ro).
  Result<void> check() const {
    if (descriptor_ < 0) return errno_error("the file of the mirrored memory", failed_);
    struct statvfs status {};
    if (::fstatvfs(descriptor_, &status) != 0) {
      return errno_error("the file of the mirrored memory: statvfs", errno);
    }
    if ((status.f_flag & ST_RDONLY) == 0) return {};
    return Error{ErrorCode::SystemError,
                 "the file of the mirrored memory: its file system takes no writes any more"};
  }

 private:
  int descriptor_;
  int failed_;
};

/// Memory that the caller has mapped; of `file`, unless that is empty. Without a guard a page of it
/// that is lost ends the process, as it does wherever the program itself looks there.
class LentMemory final : public pmem::Region {
 public:
  LentMemory(std::span<std::byte> memory, PersistenceDomain domain, const std::string& file = {},
             const pmem::MappingGuard* guard = nullptr)
      : memory_(memory), domain_(domain), flush_(pmem::CacheFlush::best()), guard_(guard) {
    if (domain == PersistenceDomain::Page && !file.empty()) place_.emplace(file);
  }

  std::span<std::byte> bytes() override { return memory_; }
  PersistenceDomain domain() const override { return domain_; }
  std::string evidence() const override { return "declared by the program"; }
  bool is_lost() const override { return guard_ != nullptr && guard_->failed(); }
  Result<void> check() override {
    if (!is_lost()) return {};
    return Error{ErrorCode::SystemError,
                 "the file of the mirrored memory: a page of it could not be read any more"};
  }
  std::unique_ptr<pmem::FailureTie> cut_on_failure(const CutSwitch& connection) override {
    return guard_ == nullptr ? nullptr : guard_->tie(connection);
  }

  using Region::flush;
  Result<void> flush(std::span<const pmem::Range> ranges) override {
    if (domain_ == PersistenceDomain::None) return {};
    if (domain_ == PersistenceDomain::Page) return sync(ranges);
    if (domain_ == PersistenceDomain::Dmp) {
      if (!flush_.ok()) return flush_.error();
      for (const pmem::Range& range : ranges)
        flush_->lines(memory_.subspan(range.at, range.length));
    }
    pmem::store_fence();
    return {};
  }
  Result<void> deep_flush(const pmem::Range& range) override {
    const pmem::Range wanted[] = {range};
    PERDURE_TRY_VOID(flush(wanted));
    if (domain_ == PersistenceDomain::None || domain_ == PersistenceDomain::Page) return {};
    if (domain_ != PersistenceDomain::Dmp && flush_.ok()) {
      flush_->lines(memory_.subspan(range.at, range.length));
      pmem::store_fence();
    }
    return pmem::sync_pages_deep(memory_, range, kName);
  }

 private:
  static constexpr char kName[] = "the mirrored memory";

  Result<void> sync(std::span<const pmem::Range> ranges) {
    for (const pmem::Range& range : ranges) {
      PERDURE_TRY_VOID(pmem::sync_pages(memory_, range, kName));
    }
    return place_ ? place_->check() : Result<void>();
  }

  std::span<std::byte> memory_;
  PersistenceDomain domain_;
  Result<pmem::CacheFlush> flush_;
  std::optional<PlaceOfFile> place_;
  const pmem::MappingGuard* guard_;
};

}  // namespace
}  // namespace mirror

MirrorMemory::MirrorMemory(std::unique_ptr<State> state) : state_(std::move(state)) {}
MirrorMemory::MirrorMemory(MirrorMemory&&) noexcept = default;
MirrorMemory& MirrorMemory::operator=(MirrorMemory&&) noexcept = default;
MirrorMemory::~MirrorMemory() = default;

Result<MirrorMemory> MirrorMemory::file(const std::string& path) {
  auto state = std::make_unique<State>();
  PERDURE_TRY(region, pmem::MappedRegion::open(path, {}));
  state->region = std::move(region);
  if (std::filesystem::is_regular_file(path)) state->state = mirror::LocalStateFile(path);
  return MirrorMemory(std::move(state));
}

Result<MirrorMemory> MirrorMemory::create_file(const std::string& path, std::uint64_t bytes) {
  auto state = std::make_unique<State>();
  PERDURE_TRY(region, pmem::MappedRegion::create(path, bytes, {}));
  state->region = std::move(region);
  state->state = mirror::LocalStateFile(path);
  PERDURE_TRY_VOID(state->state.remove());  // it was of an earlier file of this name
  return MirrorMemory(std::move(state));
}

MirrorMemory MirrorMemory::bytes(std::span<std::byte> memory, PersistenceDomain domain) {
  auto state = std::make_unique<State>();
  state->region = std::make_unique<mirror::LentMemory>(memory, domain);
  return MirrorMemory(std::move(state));
}

MirrorMemory MirrorMemory::bytes_of(const std::string& file, std::span<std::byte> memory,
                                    PersistenceDomain domain) {
  auto state = std::make_unique<State>();
  state->region = std::make_unique<mirror::LentMemory>(memory, domain, file);
  state->state = mirror::LocalStateFile(file);
  return MirrorMemory(std::move(state));
}

MirrorMemory MirrorMemory::State::guarded(const mirror::LocalStateFile& file,
                                          std::span<std::byte> memory,
                                          const pmem::MappingGuard& guard) {
  auto state = std::make_unique<State>();
  state->region =
      std::make_unique<mirror::LentMemory>(memory, PersistenceDomain::None, std::string(), &guard);
  state->state = file;
  return MirrorMemory(std::move(state));
}

}  // namespace perdure
