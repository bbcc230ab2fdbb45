// The drives below a file system, from sysfs.
#include "pmem/block_devices.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "core/assert.h"
#include "pmem/file_systems.h"
#include "pmem/mount_options.h"

namespace perdure::pmem {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDevicesMax = 64;

std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// The part of a path up to the component that is `prefix` and a number; empty if there is none.
fs::path up_to(const fs::path& path, std::string_view prefix) {
  fs::path at;
  for (const fs::path& part : path) {
    at /= part;
    const std::string name = part.string();
    if (name.size() > prefix.size() && name.compare(0, prefix.size(), prefix) == 0 &&
        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                    [](char c) { return c >= '0' && c <= '9'; })) {
      return at;
    }
  }
  return {};
}

/// Of the NVDIMM region that a device's place in sysfs names. CXL regions are called regionN too;
/// only those below an NVDIMM bus say anything about persistence.
PlatformDomain platform_at(const fs::path& device) {
  const fs::path region = up_to(device, "region");
  if (region.empty() || up_to(region, "ndbus").empty()) return PlatformDomain::Silent;
  if (line_of(region / "devtype") == "nd_volatile") return PlatformDomain::Volatile;
  const std::string word = line_of(region / "persistence_domain");
  if (word == "cpu_cache") return PlatformDomain::CpuCache;
  if (word == "memory_controller") return PlatformDomain::MemoryController;
  return PlatformDomain::Silent;
}

bool starts_with(const std::string& text, std::string_view prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

/// What looks like a drive of this machine and has something else behind it; empty: nothing known.
std::string behind_what(const fs::path& at) {
  const std::string path = at.string();
  if (path.find("/tcm_loop_") != std::string::npos) return "a SCSI target of this machine's kernel";
  if (!up_to(at, "session").empty()) return "iSCSI";
  if (path.find("/rport-") != std::string::npos) return "a storage network (rport)";
  if (path.find("/nvme-fabrics/") != std::string::npos) return "NVMe over fabrics";
  if (path.find("/nvme-subsystem/") == std::string::npos) return {};
  // With more than one path, or prepared for it: each controller says how it is reached.
  std::error_code ignored;
  bool has_one = false;
  for (const fs::directory_entry& each : fs::directory_iterator(at.parent_path(), ignored)) {
    const std::string transport = line_of(each.path() / "transport");
    if (transport.empty()) continue;
    has_one = true;
    if (transport != "pcie") return "NVMe over fabrics (" + transport + ")";
  }
  return has_one ? std::string() : "an NVMe subsystem whose controllers can not be seen";
}

/// What a SCSI host's driver calls itself (proc_name), of adapters whose drives have no transport
/// of their own in sysfs: RAID controllers, and those of hypervisors.
constexpr std::array<std::string_view, 14> kLocalHosts{
    "aacraid", "hpsa",     "megaraid_sas", "mpi3mr", "mpt2sas", "mpt3sas",     "mptsas",
    "mptspi",  "smartpqi", "storvsc_host", "uas",    "ufshcd",  "usb-storage", "vmw_pvscsi"};

/// A virtio device of the platform. One on another bus is served by whoever is behind that: a
/// process (vDPA in user space, VDUSE), or an adapter with a storage network (vDPA).
bool is_of_platform(const fs::path& virtio) {
  std::error_code failed;
  const fs::path bus = fs::canonical(virtio.parent_path() / "subsystem", failed).filename();
  return !failed && (bus == "pci" || bus == "platform" || bus == "ccw");
}

/// Whether the drive there is known to be this machine's own, or its hypervisor's. The kernel knows
/// no such thing; what is not on this list may be anywhere (SRP, rbd, and what is yet to come).
bool is_local(const fs::path& at) {
  for (const char* bus : {"mmc", "ata", "vbd-"}) {
    if (!up_to(at, bus).empty()) return true;
  }
  if (const fs::path virtio = up_to(at, "virtio"); !virtio.empty()) return is_of_platform(virtio);
  const std::string path = at.string();
  if (path.find("/end_device-") != std::string::npos) return true;      // SAS
  if (path.find("/nvme-subsystem/") != std::string::npos) return true;  // behind_what() has asked
  if (const fs::path controller = up_to(at, "nvme"); !controller.empty()) {
    const std::string transport = line_of(controller / "transport");
    return path.find("/pci") != std::string::npos && (transport.empty() || transport == "pcie");
  }
  const fs::path host = up_to(at, "host");
  if (host.empty()) return false;
  const std::string driver = line_of(host / "scsi_host" / host.filename() / "proc_name");
  return std::find(kLocalHosts.begin(), kLocalHosts.end(), driver) != kLocalHosts.end();
}

/// Whether the file with these attributes is the one below a loop device, as its driver says.
bool is_file_of_loop(const std::string& name, const struct stat& status) {
  const int descriptor = ::open(("/dev/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  loop_info64 info{};
  const bool told = ::ioctl(descriptor, LOOP_GET_STATUS64, &info) == 0;
  ::close(descriptor);
  // It packs device numbers as stat(2) of old did (huge_encode_dev).
  return told && info.lo_inode == status.st_ino && info.lo_device == status.st_dev;
}

/// Walks from a device to the drives below it.
class Walk {
 public:
  explicit Walk(std::string root) : root_(std::move(root)) {}

  void device(dev_t device) {
    const std::string number = fmt::format("{}:{}", major(device), minor(device));
    std::error_code failed;
    const fs::path at = fs::canonical(root_ + "/sys/dev/block/" + number, failed);
    if (failed) return unknown(number, "the kernel shows no block device " + number);
    directory(at);
  }

  void directory(const fs::path& at) {
    const Place here{at, way_};
    if (std::find(seen_.begin(), seen_.end(), here) != seen_.end()) return;
    const std::string name = at.filename().string();
    if (seen_.size() == kDevicesMax)
      return unknown(name, fmt::format("more than {} devices below", kDevicesMax));
    seen_.push_back(here);
    std::error_code ignored;
    if (fs::exists(at / "partition", ignored)) return directory(at.parent_path());
    const bool says_through = line_of(at / "queue/write_cache") == "write through";
    bool has_slaves = false;
    const Way above = way_;
    for (const fs::directory_entry& slave : fs::directory_iterator(at / "slaves", ignored)) {
      has_slaves = true;
      way_.stacked = true;
      if (says_through && way_.through.empty()) way_.through = name;
      std::error_code failed;
      const fs::path below = fs::canonical(slave.path(), failed);
      if (failed)
        unknown(slave.path().filename().string(), "a device below can not be followed");
      else
        directory(below);
    }
    if (!has_slaves && fs::exists(at / "loop", ignored)) {
      // What is below is volatile: the page cache of its file.
      if (says_through && way_.through.empty()) way_.through = name;
      if (way_.swallowed_by.empty()) way_.swallowed_by = way_.through;
      loop(name, line_of(at / "loop/backing_file"));
    } else if (!has_slaves) {
      leaf(at, name);
    }
    way_ = above;
  }

  void unknown(const std::string& name, const std::string& reason) {
    add(name, DriveKind::Unknown, reason);
  }

  std::vector<Drive> take() {
    if (drives_.empty()) unknown("?", "no drive was found below");
    return std::move(drives_);
  }

 private:
  /// What a flush meets on its way down to where the walk is.
  struct Way {
    std::vector<Image> images;
    bool stacked = false;      // as in Drive, down to here
    std::string through;       // the first device that says "write through"; empty: none
    std::string swallowed_by;  // as in Drive
    bool operator==(const Way&) const = default;
  };

  /// One device can be reached past a loop device and through it.
  struct Place {
    fs::path device;
    Way way;
    bool operator==(const Place&) const = default;
  };

  void add(std::string name, DriveKind kind, std::string reason) {
    drives_.push_back({std::move(name), kind, "", PlatformDomain::Silent, std::move(reason),
                       way_.images, way_.stacked, way_.swallowed_by});
  }

  void loop(const std::string& name, const std::string& file) {
    struct statfs found {};
    struct stat status {};
    if (file.empty() || ::statfs(file.c_str(), &found) != 0 || ::stat(file.c_str(), &status) != 0)
      return unknown(name, fmt::format("{} is a loop device over a file that can not be seen: '{}'",
                                       name, file));
    if (root_.empty() && !is_file_of_loop(name, status))
      return unknown(name,
                     fmt::format("{} is a loop device, and whether its file is what is called "
                                 "{} here can not be seen (another mount namespace may have "
                                 "made it; asking {} needs rights to /dev)",
                                 name, file, name));
    way_.stacked = true;
    if (S_ISBLK(status.st_mode)) return device(status.st_rdev);  // its node may lie in memory
    const FileSystem system = file_system_of(found);
    if (system.kind == MediumKind::Dram)
      return add(name, DriveKind::Memory,
                 fmt::format("{} is a loop device over {}, which is in memory", name, file));
    way_.images.push_back({file, mount_of(file, root_).options});
    if (!system.lasts || major(status.st_dev) == 0)
      return unknown(name, fmt::format("what is below {} of {} can not be seen", file, name));
    way_.stacked = false;
    way_.through.clear();
    device(status.st_dev);
  }

  void leaf(const fs::path& at, const std::string& name) {
    const std::size_t before = drives_.size();
    const std::string cache = line_of(at / "queue/write_cache");
    name_leaf(at, name, cache);
    PERDURE_ASSERT(drives_.size() == before + 1);
    Drive& drive = drives_.back();
    if (drive.write_cache.empty()) drive.write_cache = cache;
    // A device above that says "write through" took it over from drives that say so, or was told.
    const bool silent = drive.kind == DriveKind::Unknown && cache.empty();
    if (cache != "write through" && !silent && drive.swallowed_by.empty())
      drive.swallowed_by = way_.through;
  }

  void name_leaf(const fs::path& at, const std::string& name, const std::string& cache) {
    for (const char* memory : {"zram", "ram", "nullb"}) {
      if (up_to(name, memory).empty()) continue;
      return add(name, DriveKind::Memory, name + " is memory: a power failure empties it");
    }
    if (at.string().find("/pseudo_") != std::string::npos)  // drivers/scsi/scsi_debug.c
      return add(name, DriveKind::Memory, name + " is made by scsi_debug, in memory");
    if (starts_with(name, "pmem")) return nvdimm(at, name, cache);
    if (starts_with(name, "mtdblock")) {
      const std::string type = line_of(at.parent_path() / "type");
      if (type == "ram")  // mtdram, phram
        return add(name, DriveKind::Memory, name + " is memory (MTD): a power failure empties it");
      if (type.empty()) return unknown(name, "what MTD device " + name + " is can not be seen");
    }
    if (const std::string far = behind_what(at); !far.empty())
      return unknown(name, fmt::format("{} is reached through {}: what flushes it there can not be "
                                       "seen from here",
                                       name, far));
    std::error_code ignored;
    const bool flash = starts_with(name, "mtdblock");
    if (!fs::exists(at / "device", ignored) || !(flash || is_local(at)))
      return unknown(name, fmt::format("{} is no drive that the kernel shows to be this machine's: "
                                       "what is behind it can not be seen",
                                       name));
    // A bridge that does not tell of the cache is taken to have none, and is sent no flush
    // (drivers/scsi/sd.c, sd_read_cache_type).
    if (!up_to(at, "usb").empty() && cache != "write back")
      return unknown(name, fmt::format("{} is behind USB, and does not say that it has a write "
                                       "cache: it may have one that is never flushed",
                                       name));
    add(name, DriveKind::Disk,
        fmt::format("the write cache of drive {} is \"{}\"", name,
                    cache.empty() ? "unknown" : cache));
  }

  void nvdimm(const fs::path& at, const std::string& name, const std::string& cache) {
    const fs::path bus = up_to(at, "ndbus");
    const std::string provider = bus.empty() ? "" : line_of(bus / "provider");
    // memmap=nn!ss, or a table of type 12: nobody vouches for a battery (drivers/nvdimm/e820.c).
    const bool leaves_caches = line_of(at / "dax/write_cache") == "0";
    if (provider.empty() || provider == "e820") {
      unknown(name, fmt::format("{} is memory that the kernel was told to take for "
                                "persistent (NVDIMM bus: '{}')",
                                name, provider));
      drives_.back().leaves_caches = leaves_caches;
      return;
    }
    if (provider == "virtio-pmem") {  // its flush is a command to the host, as a disk's is
      add(name, DriveKind::Disk, name + " is virtio-pmem, which the host flushes");
      drives_.back().write_cache = "write back";
      if (cache == "write through") drives_.back().swallowed_by = name;
      return;
    }
    const PlatformDomain platform = platform_at(at);
    if (platform == PlatformDomain::Volatile)
      return add(name, DriveKind::Memory,
                 fmt::format("{} lies in a volatile region of {} (devtype nd_volatile), which is "
                             "memory: a power failure empties it",
                             name, provider));
    add(name, DriveKind::Nvdimm, fmt::format("{} is an NVDIMM, described by {}", name, provider));
    drives_.back().platform = platform;
    drives_.back().leaves_caches = leaves_caches;
    // Without a platform that keeps what waits in its memory controllers the flush drains them.
    if (platform == PlatformDomain::Silent && cache == "write through")
      drives_.back().swallowed_by = name;
  }

  std::string root_;
  std::vector<Place> seen_;
  Way way_;
  std::vector<Drive> drives_;
};

}  // namespace

std::vector<Drive> drives_below(dev_t device, const std::string& root) {
  Walk walk(root);
  walk.device(device);
  return walk.take();
}

std::vector<Drive> drives_below_name(const std::string& name, const std::string& root) {
  Walk walk(root);
  std::error_code failed;
  const fs::path at = fs::canonical(root + "/sys/class/block/" + name, failed);
  if (failed) {
    walk.unknown(name, "the kernel shows no block device " + name);
  } else {
    walk.directory(at);
  }
  return walk.take();
}

// jbd2 has a directory for each journal: "sda1-8", that of inode 8 on sda1, or "sdb1", a device
// that is one; and the one above from its start on, so that without it there is no journal
// (fs/jbd2/journal.c), unless /proc/fs itself is hidden.
std::vector<Drive> drives_of_external_journals(dev_t device, const std::string& root) {
  std::error_code failed;
  const fs::path at = fs::canonical(
      fmt::format("{}/sys/dev/block/{}:{}", root, major(device), minor(device)), failed);
  const std::string own = at.filename().string() + "-";
  std::vector<Drive> drives;
  std::error_code unread;
  std::error_code ignored;
  const fs::directory_iterator journals(root + "/proc/fs/jbd2", unread);
  const bool none =
      unread == std::errc::no_such_file_or_directory && fs::exists(root + "/proc/fs", ignored);
  if (unread && !none) {
    return {unknown_drive("the journal",
                          "whether the journal is on another device can not be seen: "
                          "/proc/fs/jbd2 can not be read (ProcSubset=pid of systemd hides it)")};
  }
  for (const auto& journal : journals) {
    const std::string name = journal.path().filename().string();
    if (!failed && starts_with(name, own)) return {};
    if (!fs::exists(fmt::format("{}/sys/class/block/{}", root, name), ignored)) continue;
    for (Drive& each : drives_below_name(name, root)) drives.push_back(std::move(each));
  }
  return drives;
}

std::optional<dev_t> block_device_at(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISBLK(status.st_mode)) return std::nullopt;
  return status.st_rdev;
}

std::uint64_t bytes_of_block_device(dev_t device, const std::string& root) {
  constexpr std::uint64_t kSectorBytes = 512;  // of sysfs, whatever the device's own sectors are
  const std::string sectors =
      line_of(fmt::format("{}/sys/dev/block/{}:{}/size", root, major(device), minor(device)));
  return std::strtoull(sectors.c_str(), nullptr, 10) * kSectorBytes;
}

Drive unknown_drive(std::string name, std::string reason) {
  Drive drive;
  drive.name = std::move(name);
  drive.reason = std::move(reason);
  return drive;
}

std::vector<Drive> drives_of_btrfs(dev_t device, const std::string& root) {
  std::error_code failed;
  const fs::path one = fs::canonical(
      fmt::format("{}/sys/dev/block/{}:{}", root, major(device), minor(device)), failed);
  if (failed) return drives_below(device, root);
  std::error_code ignored;
  for (const auto& system : fs::directory_iterator(root + "/sys/fs/btrfs", ignored)) {
    const fs::path devices = system.path() / "devices";
    if (!fs::exists(devices / one.filename(), ignored)) continue;
    Walk walk(root);
    for (const auto& each : fs::directory_iterator(devices, ignored)) {
      std::error_code broken;
      const fs::path at = fs::canonical(each.path(), broken);
      if (broken)
        walk.unknown(each.path().filename().string(), "a device of the file system is missing");
      else
        walk.directory(at);
    }
    return walk.take();
  }
  return drives_below(device, root);
}

PlatformDomain platform_of_dax_device(dev_t device, const std::string& root) {
  std::error_code failed;
  const fs::path at = fs::canonical(
      fmt::format("{}/sys/dev/char/{}:{}", root, major(device), minor(device)), failed);
  return failed ? PlatformDomain::Silent : platform_at(at);
}

PlatformDomain weakest_platform(const std::vector<Drive>& drives) {
  PlatformDomain weakest = PlatformDomain::CpuCache;
  for (const Drive& drive : drives) {
    if (drive.kind != DriveKind::Nvdimm) return PlatformDomain::Silent;
    weakest = std::min(weakest, drive.platform);
  }
  return drives.empty() ? PlatformDomain::Silent : weakest;
}

}  // namespace perdure::pmem
