// A disk of which a test says what it is like now.
#pragma once

#include <string>

#include "pmem/medium_watch.h"

namespace perdure::test {

struct ToldMedium {
  std::string options = "rw";
  pmem::DriveKind kind = pmem::DriveKind::Disk;
  std::string write_cache = "write back";

  pmem::Medium now() const {
    pmem::Medium medium;
    medium.file_system = "ext4";
    medium.writes_pages = true;
    medium.found = PersistenceDomain::Page;
    medium.mount_options = options;
    medium.drives = {
        {"sda", kind, write_cache, pmem::PlatformDomain::Silent, "sda", {}, false, ""}};
    pmem::conclude_page_cache(medium);
    return medium;
  }
  /// It must outlive who watches it. Each look examines it.
  pmem::MediumWatchOptions watched() const {
    return {[this](const pmem::File&) -> Result<pmem::Medium> { return now(); }, Nanoseconds{0}};
  }
};

}  // namespace perdure::test
