// Medium: what a file or device lies on, and which persistence domain follows from it.
#include "pmem/medium.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "core/errno_error.h"
#include "core/try.h"
#include "pmem/mount_options.h"

namespace perdure::pmem {
namespace {

namespace fs = std::filesystem;

// A file system whose msync reaches a medium that lasts. Network, stacked and user-space file
// systems are not among them: what is behind those cannot be seen from here.
struct FileSystemName {
  unsigned long magic;
  const char* name;
  MediumKind kind;
  bool lasts;
};

// Numbers from linux/magic.h where it has them, else from the file system's own source or
// statfs(2).
constexpr std::array<FileSystemName, 20> kFileSystems{{
    {EXT4_SUPER_MAGIC, "ext4", MediumKind::PageCache, true},  // ext2 and ext3 share the number
    {XFS_SUPER_MAGIC, "xfs", MediumKind::PageCache, true},
    {BTRFS_SUPER_MAGIC, "btrfs", MediumKind::PageCache, true},
    {F2FS_SUPER_MAGIC, "f2fs", MediumKind::PageCache, true},
    {0x2FC12FC1, "zfs", MediumKind::PageCache, true},
    {0xCA451A4E, "bcachefs", MediumKind::PageCache, true},
    {0x3153464A, "jfs", MediumKind::PageCache, true},
    {NILFS_SUPER_MAGIC, "nilfs", MediumKind::PageCache, true},
    {MSDOS_SUPER_MAGIC, "vfat", MediumKind::PageCache, true},
    {0x2011BAB0, "exfat", MediumKind::PageCache, true},
    {0x7366746E, "ntfs3", MediumKind::PageCache, true},
    {NFS_SUPER_MAGIC, "nfs", MediumKind::PageCache, false},
    {0xFF534D42, "cifs", MediumKind::PageCache, false},
    {V9FS_MAGIC, "9p", MediumKind::PageCache, false},
    {0x00C36400, "ceph", MediumKind::PageCache, false},
    {0x65735546, "fuse", MediumKind::PageCache, false},
    {OVERLAYFS_SUPER_MAGIC, "overlay", MediumKind::PageCache, false},
    {TMPFS_MAGIC, "tmpfs", MediumKind::Dram, false},
    {RAMFS_MAGIC, "ramfs", MediumKind::Dram, false},
    {HUGETLBFS_MAGIC, "hugetlbfs", MediumKind::Dram, false},
}};

// f_type is signed and sign-extended for numbers above 2^31; only its low 32 bits count.
unsigned long magic_of(const struct statfs& status) {
  return static_cast<unsigned long>(status.f_type) & 0xFFFFFFFFUL;
}

// Barriers switched off: msync returns while the data is in the drive's own volatile cache.
bool barriers_off(const std::string& options) {
  return has_option(options, "nobarrier") || has_option(options, "barrier=0");
}

void note_write_cache(Medium& medium, dev_t device) {
  const std::string at = fmt::format("/sys/dev/block/{}:{}", major(device), minor(device));
  for (const char* place : {"/queue/write_cache", "/../queue/write_cache"}) {
    std::ifstream in(at + place);
    std::string mode;
    if (!std::getline(in, mode)) continue;
    medium.evidence.push_back(fmt::format("the drive's write cache is \"{}\"", mode));
    return;
  }
}

void conclude_page_cache(Medium& medium, bool lasts, const std::string& options) {
  if (!lasts) {
    medium.evidence.push_back(fmt::format(
        "what is behind a file system of type {} cannot be seen from here", medium.file_system));
    return;
  }
  if (barriers_off(options)) {
    medium.evidence.emplace_back(
        "mounted without barriers: msync leaves the data in the drive's volatile cache");
    return;
  }
  medium.found = PersistenceDomain::Page;
}

PersistenceDomain domain_of_dax(PlatformDomain platform, bool is_device) {
  switch (platform) {
    case PlatformDomain::CpuCache: return PersistenceDomain::Mhp;
    case PlatformDomain::MemoryController: return PersistenceDomain::Dmp;
    case PlatformDomain::Silent: break;
  }
  // A DAX device may be soft-reserved volatile memory. A file system at least promises msync.
  return is_device ? PersistenceDomain::None : PersistenceDomain::Page;
}

const char* sentence(PlatformDomain platform) {
  switch (platform) {
    case PlatformDomain::CpuCache: return "the platform says persistence_domain = cpu_cache";
    case PlatformDomain::MemoryController:
      return "the platform says persistence_domain = memory_controller";
    case PlatformDomain::Silent: break;
  }
  return "the platform names no persistence_domain (/sys/bus/nd)";
}

constexpr char kNvdimmDevices[] = "/sys/bus/nd/devices";

void conclude_dax(Medium& medium) {
  medium.kind = MediumKind::Dax;
  medium.platform = platform_domain(kNvdimmDevices);
  medium.found = domain_of_dax(medium.platform, medium.is_device);
  medium.evidence.emplace_back(sentence(medium.platform));
}

// The kernel grants MAP_SYNC only where a store reaches the medium without a page cache between
// (mmap(2)); trying it is the one test that does not depend on mount options or attributes.
bool grants_map_sync(const File& file) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* at = ::mmap(nullptr, page, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, file.descriptor(), 0);
  if (at == MAP_FAILED) return false;
  ::munmap(at, page);
  return true;
}

Error contradiction(const Medium& medium, PersistenceDomain declared, std::string_view why,
                    std::string_view way_out) {
  return Error{ErrorCode::Unsupported,
               fmt::format("domain {} was declared, but {} ({}); {}", to_string(declared), why,
                           join_evidence(medium), way_out)};
}

Medium medium_of(const struct statfs& status, dev_t device) {
  Medium medium;
  const unsigned long magic = magic_of(status);
  const auto* known = std::find_if(kFileSystems.begin(), kFileSystems.end(),
                                   [&](const FileSystemName& name) { return name.magic == magic; });
  const bool is_known = known != kFileSystems.end();
  medium.file_system = is_known ? known->name : fmt::format("type {:#x}", magic);
  medium.kind = is_known ? known->kind : MediumKind::PageCache;
  medium.evidence.push_back(fmt::format("the file system is {} (statfs type {:#x})",
                                        is_known ? known->name : "of an unknown type", magic));
  if (medium.kind == MediumKind::Dram) {
    medium.evidence.emplace_back(
        fmt::format("{} is memory: a power failure empties it, unless a "
                    "battery is declared",
                    medium.file_system));
    return medium;
  }
  note_write_cache(medium, device);
  conclude_page_cache(medium, is_known && known->lasts, mount_options_of(device));
  return medium;
}

}  // namespace

Result<Medium> examine_file_system(const std::string& path) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) return errno_error(path, errno);
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return errno_error(path, errno);
  return medium_of(status, file.st_dev);
}

Result<Medium> examine_medium(const File& file) {
  if (file.is_device()) {
    Medium medium;
    medium.is_device = true;
    medium.file_system = "device dax";
    medium.evidence.emplace_back("a device DAX character device: no page cache in between");
    conclude_dax(medium);
    return medium;
  }
  // By descriptor: a file that is being made does not have its name yet.
  struct statfs status {};
  struct stat attributes {};
  if (::fstatfs(file.descriptor(), &status) != 0 || ::fstat(file.descriptor(), &attributes) != 0)
    return errno_error(file.path(), errno);
  Medium medium = medium_of(status, attributes.st_dev);
  if (medium.kind != MediumKind::PageCache) return medium;
  if (!grants_map_sync(file)) {
    medium.evidence.emplace_back("the kernel refuses MAP_SYNC: there is a page cache in between");
    return medium;
  }
  medium.evidence.emplace_back("the kernel grants MAP_SYNC: no page cache in between (DAX)");
  conclude_dax(medium);
  return medium;
}

PlatformDomain platform_domain(const std::string& devices) {
  PlatformDomain weakest = PlatformDomain::Silent;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(devices, ignored)) {
    if (entry.path().filename().string().rfind("region", 0) != 0) continue;
    std::ifstream in(entry.path() / "persistence_domain");
    std::string word;
    in >> word;
    // One region that does not say, or says less, speaks for all: the file's own region could be
    // found only through every kind of block device stacked on top.
    if (word == "memory_controller") {
      weakest = PlatformDomain::MemoryController;
    } else if (word != "cpu_cache") {
      return PlatformDomain::Silent;
    } else if (weakest == PlatformDomain::Silent) {
      weakest = PlatformDomain::CpuCache;
    }
  }
  return weakest;
}

Result<PersistenceDomain> decide_domain(const Medium& medium,
                                        std::optional<PersistenceDomain> declared) {
  using enum PersistenceDomain;
  if (!declared) return medium.found;
  if (*declared == None) return None;
  if (*declared == Page) {
    if (medium.kind == MediumKind::Dram)
      return contradiction(medium, Page, "this is memory, and msync has nothing to write it to",
                           "declare dmp, mhp or wsp if a battery keeps this memory");
    if (medium.is_device)
      return contradiction(medium, Page, "device DAX has no msync", "declare dmp, or nothing");
    return Page;
  }
  if (medium.kind == MediumKind::PageCache)
    return contradiction(medium, *declared,
                         "stores go to the page cache, which a power failure empties",
                         "declare page or nothing, or move the pool to DAX or tmpfs");
  if (*declared == Mhp && medium.platform == PlatformDomain::MemoryController)
    return contradiction(medium, Mhp, "the platform flushes only its memory controller",
                         "declare dmp or nothing");
  return *declared;
}

std::string join_evidence(const Medium& medium) {
  return fmt::format("{}", fmt::join(medium.evidence, "; "));
}

}  // namespace perdure::pmem
