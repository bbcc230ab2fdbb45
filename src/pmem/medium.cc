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
#include <fstream>
#include <sstream>

#include "core/errno_error.h"
#include "core/try.h"
#include "pmem/mount_options.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace perdure::pmem {
namespace {

// As systemd-detect-virt(1) knows them. Without Amazon: its bare machines have
// the same vendor, and the processor of its guests is not silent.
constexpr std::array<std::string_view, 14> kHypervisors{
    "KVM", "OpenStack", "QEMU",      "VMware", "VMW",     "innotek GmbH", "VirtualBox",
    "Xen", "Bochs",     "Parallels", "BHYVE",  "Hyper-V", "RHEV",         "Virtual Machine"};

std::string dmi_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// CPUID leaf 1 ECX bit 31 is set by hypervisors only (Intel SDM vol. 2, CPUID: reserved, 0; AMD APM
// vol. 3, E.3.2), unless they hide it (QEMU: -cpu host,-hypervisor). On other processors nothing
// tells a guest for certain that it is one.
bool processor_says_so() {
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1U << 31)) != 0;
#else
  return true;
#endif
}

const char* sentence(PlatformDomain platform) {
  switch (platform) {
    case PlatformDomain::CpuCache: return "the platform says persistence_domain = cpu_cache";
    case PlatformDomain::MemoryController:
      return "the platform says persistence_domain = memory_controller";
    case PlatformDomain::Volatile:
      return "the NVDIMM region is volatile memory (devtype nd_volatile): a power failure empties "
             "it";
    case PlatformDomain::Silent: break;
  }
  return "the platform names no persistence_domain (/sys/bus/nd)";
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

bool may_run_under_hypervisor() { return processor_says_so() || names_hypervisor(machine_names()); }

Error contradiction(const Medium& medium, PersistenceDomain declared, std::string_view why,
                    std::string_view advice) {
  return Error{ErrorCode::Unsupported,
               fmt::format("domain {} was declared, but {} ({}); {}", to_string(declared), why,
                           join_evidence(medium), advice)};
}

/// The file system itself; `found` says whether its msync reaches what is below it.
Medium medium_of(const struct statfs& status) {
  Medium medium;
  medium.is_virtual = may_run_under_hypervisor();
  const FileSystem system = file_system_of(status);
  const bool is_known = system.name != nullptr;
  medium.file_system = is_known ? system.name : fmt::format("type {:#x}", system.magic);
  medium.kind = system.kind;
  medium.evidence.push_back(fmt::format("the file system is {} (statfs type {:#x})",
                                        is_known ? system.name : "of an unknown type",
                                        system.magic));
  if (medium.kind == MediumKind::Dram) {
    medium.evidence.emplace_back(
        fmt::format("{} is memory: a power failure empties it, unless a "
                    "battery is declared",
                    medium.file_system));
    return medium;
  }
  medium.writes_pages = system.lasts;
  medium.found = system.lasts ? PersistenceDomain::Page : PersistenceDomain::None;
  return medium;
}

/// The mount options, and the drives below a mounted file system. One with an anonymous device
/// number names its devices only as the source of the mount.
void note_what_is_below(Medium& medium, const Mount& mount, dev_t device, std::uint64_t bytes) {
  medium.mount_options = mount.options;
  medium.local_locks = why_locks_are_local(mount);
  if (major(device) == 0) {
    std::istringstream sources(mount.source);  // bcachefs: "/dev/a:/dev/b"
    for (std::string source; std::getline(sources, source, ':');) {
      const auto number = block_device_at(source);
      if (!number) continue;
      const auto below =
          medium.file_system == "btrfs" ? drives_of_btrfs(*number) : drives_below(*number);
      medium.drives.insert(medium.drives.end(), below.begin(), below.end());
    }
  }
  if (medium.drives.empty()) medium.drives = drives_below(device);
  const auto elsewhere = drives_elsewhere(medium, device, bytes);
  medium.drives.insert(medium.drives.end(), elsewhere.begin(), elsewhere.end());
}

std::uint64_t bytes_of(const struct statfs& status) {
  return static_cast<std::uint64_t>(status.f_blocks) * static_cast<std::uint64_t>(status.f_bsize);
}

// QEMU gives a guest the persistence_domain of its command line (nvdimm-persistence=), whatever the
// host keeps the bytes in; without pmem=on that is its page cache (docs/nvdimm.txt of QEMU).
void doubt_nvdimm(Medium& medium) {
  medium.found = PersistenceDomain::None;
  medium.evidence.push_back(fmt::format(
      "{}: what its NVDIMMs survive is what the hypervisor was told, and has to be declared",
      why_it_counts_as_virtual()));
}

constexpr char kElsewhere[] = "move the pool to a drive, or to memory that survives";

/// The first reason is the one that is told.
void never(Medium& medium, std::string why, std::string remedy) {
  medium.found = PersistenceDomain::None;
  if (!medium.never_lasts.empty()) return;
  medium.never_lasts = std::move(why);
  medium.remedy = std::move(remedy);
}

/// The other remedy, where there is one.
std::string excuse(const MountAbove& mount) {
  if (mount.drive.empty()) return ", or move the pool to a drive";
  return fmt::format(
      "; where the cache of drive {} survives a power failure, write \"write through\" to "
      "/sys/block/{}/queue/write_cache",
      mount.drive, mount.drive);
}

void conclude_swallowed(Medium& medium, const Drive& drive) {
  if (drive.swallowed_by.empty()) return;
  const std::string& by = drive.swallowed_by;
  medium.evidence.push_back(fmt::format("{} says \"write through\"", by));
  never(medium,
        fmt::format("{} says \"write through\", so the kernel sends no flush to what is volatile "
                    "below it",
                    by),
        fmt::format("write \"write back\" to /sys/block/{}/queue/write_cache", by));
}

void conclude_drive(Medium& medium, const Drive& drive) {
  medium.evidence.push_back(drive.reason);
  if (drive.kind == DriveKind::Memory)
    never(medium, drive.reason + ", so msync makes nothing last", kElsewhere);
  if (drive.kind == DriveKind::Unknown) medium.found = PersistenceDomain::None;
  conclude_swallowed(medium, drive);
}

/// Whether msync of a DAX mapping makes data last: only `page` needs it.
void conclude_dax_sync(Medium& medium) {
  for (const Drive& drive : medium.drives) {
    if (drive.leaves_caches && drive.platform != PlatformDomain::CpuCache) {
      const std::string at = fmt::format("/sys/block/{}/dax/write_cache", drive.name);
      medium.evidence.push_back(at + " says 0");
      never(medium, at + " says 0, so msync leaves the data in the processor's caches",
            "write 1 to it");
    }
    if (medium.platform == PlatformDomain::Silent) conclude_swallowed(medium, drive);
  }
}

/// Of options that can not be seen an operator may know more.
void conclude_mount(Medium& medium, const MountAbove& mount) {
  switch (mount.flushes) {
    case Flushes::Passed: return;
    case Flushes::NotKnown:
      medium.found = PersistenceDomain::None;
      medium.evidence.push_back(
          fmt::format("with which options {} is mounted can not be seen from here", mount.what));
      return;
    case Flushes::LeftOut:
    case Flushes::NotSynced: break;
  }
  const bool writes = mount.flushes == Flushes::LeftOut;
  never(medium,
        fmt::format("{} is mounted with {}, so msync leaves the data in {}", mount.what,
                    mount.option, writes ? "a volatile cache" : "memory"),
        fmt::format("mount it without {}{}", mount.option, excuse(mount)));
  medium.evidence.push_back(fmt::format("{} is mounted with {}", mount.what, mount.option));
}

}  // namespace

MachineNames machine_names(const std::string& root) {
  const std::string at = root + "/sys/class/dmi/id/";
  return {dmi_line(at + "sys_vendor"), dmi_line(at + "product_name")};
}

bool names_hypervisor(const MachineNames& names) {
  return std::any_of(kHypervisors.begin(), kHypervisors.end(), [&](std::string_view each) {
    return names.vendor.find(each) != std::string::npos ||
           names.product.find(each) != std::string::npos;
  });
}

std::string_view why_it_counts_as_virtual() {
#if defined(__x86_64__)
  return "this is a virtual machine";
#else
  return "this may be a virtual machine, for this processor does not say";
#endif
}

std::vector<Drive> drives_elsewhere(const Medium& medium, dev_t device, std::uint64_t bytes,
                                    const std::string& root) {
  std::vector<Drive> drives;
  // xfs(5): a log, and a section of data, on devices of their own. By name: of the mount's own
  // view.
  for (const char* option : {"logdev=", "rtdev="}) {
    const std::string path = option_value(medium.mount_options, option);
    if (path.empty()) continue;
    const auto number = block_device_at(root + path);
    if (!number) {
      drives.push_back(unknown_drive(path, path + ", of the mount options, can not be seen"));
      continue;
    }
    for (Drive& below : drives_below(*number, root)) drives.push_back(std::move(below));
  }
  if (medium.file_system == "ext4") {
    for (Drive& each : drives_of_external_journals(device, root)) drives.push_back(std::move(each));
  }
  // f2fs names its further devices nowhere but on the first of them.
  const std::uint64_t own = bytes_of_block_device(device, root);
  if (medium.file_system == "f2fs" && own != 0 && bytes > own)
    drives.push_back(unknown_drive("?",
                                   "the file system is larger than its device: it has others, "
                                   "which can not be seen"));
  return drives;
}

std::vector<MountAbove> mounts_above(const Medium& medium, const Drive& drive) {
  std::vector<MountAbove> mounts;
  const auto note = [&](const std::string& what, const std::string& options, bool lowest) {
    const bool bare = lowest && !drive.stacked;
    if (const std::string option = option_without_sync(options); !option.empty()) {
      mounts.push_back({what, Flushes::NotSynced, option, ""});
      return;
    }
    // Other devices have a cache of their own: a page cache, metadata (loop, dm-thin, bcache).
    if (bare && !cache_is_volatile(drive)) return;
    const std::string option = option_without_flush(options);
    const Flushes flushes = options.empty()  ? Flushes::NotKnown
                            : option.empty() ? Flushes::Passed
                                             : Flushes::LeftOut;
    mounts.push_back({what, flushes, option, bare ? drive.name : ""});
  };
  note("the file system", medium.mount_options, drive.images.empty());
  for (const Image& image : drive.images)
    note("what holds " + image.file, image.mount_options, &image == &drive.images.back());
  return mounts;
}

void conclude_page_cache(Medium& medium) {
  if (medium.found == PersistenceDomain::None) {
    medium.evidence.push_back(fmt::format(
        "what is behind a file system of type {} cannot be seen from here", medium.file_system));
  }
  for (const Drive& drive : medium.drives) {
    conclude_drive(medium, drive);
    if (drive.kind == DriveKind::Nvdimm && medium.is_virtual) doubt_nvdimm(medium);
    for (const MountAbove& mount : mounts_above(medium, drive)) conclude_mount(medium, mount);
  }
}

void conclude_mapped_by_pages(Medium& medium) {
  medium.kind = MediumKind::PageCache;
  medium.found = medium.writes_pages ? PersistenceDomain::Page : PersistenceDomain::None;
  conclude_page_cache(medium);
  if (!medium.never_lasts.empty()) medium.found = PersistenceDomain::None;
}

void conclude_dax(Medium& medium) {
  medium.kind = MediumKind::Dax;
  medium.evidence.emplace_back(sentence(medium.platform));
  for (const Drive& drive : medium.drives) {
    if (drive.kind == DriveKind::Memory) never(medium, drive.reason, kElsewhere);
  }
  if (medium.platform == PlatformDomain::Volatile)
    never(medium, sentence(medium.platform), kElsewhere);
  if (!medium.never_lasts.empty()) return;
  conclude_dax_sync(medium);
  if (medium.is_virtual) return doubt_nvdimm(medium);
  switch (medium.platform) {
    case PlatformDomain::Volatile: return;
    case PlatformDomain::CpuCache: medium.found = PersistenceDomain::Mhp; return;
    case PlatformDomain::MemoryController: medium.found = PersistenceDomain::Dmp; return;
    case PlatformDomain::Silent: break;
  }
  // A DAX device may be soft-reserved volatile memory, and so may what a file system was made on.
  // Over drives that are NVDIMMs the file system at least promises msync.
  const bool nvdimms =
      !medium.drives.empty() &&
      std::all_of(medium.drives.begin(), medium.drives.end(),
                  [](const Drive& drive) { return drive.kind == DriveKind::Nvdimm; });
  medium.found =
      nvdimms && medium.never_lasts.empty() ? PersistenceDomain::Page : PersistenceDomain::None;
}

Result<Medium> examine_file_system(const std::string& path) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) return errno_error(path, errno);
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return errno_error(path, errno);
  Medium medium = medium_of(status);
  if (medium.kind != MediumKind::PageCache) return medium;
  note_what_is_below(medium, mount_of(path), file.st_dev, bytes_of(status));
  conclude_page_cache(medium);
  return medium;
}

Result<Medium> examine_medium(const File& file) {
  // By descriptor: a file that is being made does not have its name yet.
  struct stat attributes {};
  if (::fstat(file.descriptor(), &attributes) != 0) return errno_error(file.path(), errno);
  if (file.is_device()) {
    Medium medium;
    medium.is_device = true;
    medium.is_virtual = may_run_under_hypervisor();
    medium.file_system = "device dax";
    medium.evidence.emplace_back("a device DAX character device: no page cache in between");
    medium.platform = platform_of_dax_device(attributes.st_rdev);
    conclude_dax(medium);
    return medium;
  }
  struct statfs status {};
  if (::fstatfs(file.descriptor(), &status) != 0) return errno_error(file.path(), errno);
  Medium medium = medium_of(status);
  if (medium.kind != MediumKind::PageCache) return medium;
  note_what_is_below(medium, mount_of(file.descriptor()), attributes.st_dev, bytes_of(status));
  if (!grants_map_sync(file)) {
    medium.evidence.emplace_back("the kernel refuses MAP_SYNC: there is a page cache in between");
    conclude_page_cache(medium);
    return medium;
  }
  medium.evidence.emplace_back("the kernel grants MAP_SYNC: no page cache in between (DAX)");
  medium.platform = weakest_platform(medium.drives);
  conclude_dax(medium);
  return medium;
}

std::optional<PersistenceDomain> still_declared(const Medium& medium,
                                                std::optional<PersistenceDomain> today,
                                                std::optional<PersistenceDomain> once) {
  if (today || !once) return today;
  return *once <= medium.found ? once : std::nullopt;
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
    if (!medium.never_lasts.empty())
      return contradiction(medium, Page, medium.never_lasts, medium.remedy);
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
