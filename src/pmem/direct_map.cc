// The mapping itself, through libpmem2 where the tree was built with it.
#include "pmem/direct_map.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>

#include "core/assert.h"
#include "core/errno_error.h"
#include "core/try.h"

#if PERDURE_HAVE_PMEM2
#include <libpmem2.h>
#endif

namespace perdure::pmem {
namespace {

Result<Mapping> map_plainly(const File& file, const Medium& medium, std::uint64_t bytes) {
  // Memory is populated at once: its pages exist already, and a fault in the data path would be
  // paid by an append. Pages of a disk file are not read in just because the file is opened.
  const int populate = medium.kind == MediumKind::Dram ? MAP_POPULATE : 0;
  void* at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | populate, file.descriptor(), 0);
  if (at == MAP_FAILED) return errno_error(file.path() + ": mmap", errno);
  return Mapping{{static_cast<std::byte*>(at), bytes}, nullptr, false};
}

#if PERDURE_HAVE_PMEM2
Error pmem2_error(const File& file, int code) {
  if (code > PMEM2_E_UNKNOWN) return errno_error(file.path(), -code);
  return Error{ErrorCode::SystemError,
               fmt::format("{}: libpmem2: {}", file.path(), pmem2_errormsg())};
}

// Owns the two objects that a mapping is made from.
struct Pmem2Parts {
  pmem2_source* source = nullptr;
  pmem2_config* config = nullptr;
  ~Pmem2Parts() {
    if (config != nullptr) pmem2_config_delete(&config);
    if (source != nullptr) pmem2_source_delete(&source);
  }
};

Result<Mapping> map_with_pmem2(const File& file, std::uint64_t bytes) {
  Pmem2Parts parts;
  int failed = pmem2_source_from_fd(&parts.source, file.descriptor());
  if (failed == 0) failed = pmem2_config_new(&parts.config);
  if (failed == 0)
    failed = pmem2_config_set_required_store_granularity(parts.config, PMEM2_GRANULARITY_PAGE);
  if (failed == 0) failed = pmem2_config_set_sharing(parts.config, PMEM2_SHARED);
  if (failed == 0) failed = pmem2_config_set_length(parts.config, bytes);
  pmem2_map* map = nullptr;
  if (failed == 0) failed = pmem2_map_new(&map, parts.config, parts.source);
  if (failed != 0) return pmem2_error(file, failed);

  Mapping mapping;
  mapping.bytes = {static_cast<std::byte*>(pmem2_map_get_address(map)), bytes};
  mapping.pmem2_map = map;
  mapping.synchronous = pmem2_map_get_store_granularity(map) != PMEM2_GRANULARITY_PAGE;
  PERDURE_ASSERT(pmem2_map_get_size(map) >= bytes);
  return mapping;
}
#endif

}  // namespace

Result<Mapping> map_file(const File& file, const Medium& medium, std::uint64_t bytes) {
  if (medium.kind == MediumKind::Dram) return map_plainly(file, medium, bytes);
#if PERDURE_HAVE_PMEM2
  return map_with_pmem2(file, bytes);
#else
  if (medium.is_device)
    return Error{ErrorCode::Unsupported,
                 fmt::format("{}: device DAX needs libpmem2, and this Perdure was built without "
                             "it; use a file on a DAX file system",
                             file.path())};
  return map_plainly(file, medium, bytes);
#endif
}

Result<void> flush_device(const File& file, const Mapping& mapping, const Range& range) {
  std::string why = "this Perdure was built without libpmem2";
#if PERDURE_HAVE_PMEM2
  if (mapping.pmem2_map != nullptr) {
    const int failed = pmem2_deep_flush(static_cast<pmem2_map*>(mapping.pmem2_map),
                                        mapping.bytes.data() + range.at, range.length);
    if (failed == 0) return {};
    why = pmem2_error(file, failed).message;
  }
#endif
  return Error{ErrorCode::Unsupported,
               fmt::format("{}: not flushed beyond the memory controllers: {}", file.path(), why)};
}

void unmap(const Mapping& mapping) {
  if (mapping.bytes.empty()) return;
#if PERDURE_HAVE_PMEM2
  if (mapping.pmem2_map != nullptr) {
    auto* map = static_cast<pmem2_map*>(mapping.pmem2_map);
    const int failed = pmem2_map_delete(&map);
    PERDURE_ASSERT(failed == 0);  // only a mapping that is not ours could fail
    return;
  }
#endif
  const int failed = ::munmap(mapping.bytes.data(), mapping.bytes.size());
  PERDURE_ASSERT(failed == 0);
}

}  // namespace perdure::pmem
