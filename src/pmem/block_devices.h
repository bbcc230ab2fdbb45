// The drives below a file system: through partitions, device mapper, RAID and loop devices down to
// what holds the bytes. What a store survives is decided there, not by the file system's name.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace perdure::pmem {

/// What the kernel's NVDIMM driver says of a region: /sys/.../regionN/persistence_domain
/// (Documentation/ABI/testing/sysfs-bus-nfit). Silent when there is no region or it does not say.
/// The weakest first. Volatile: the region is memory that a power failure empties, whatever is said
/// of it (a RAM disk or volatile range of the NFIT: devtype nd_volatile).
enum class PlatformDomain { Volatile, Silent, MemoryController, CpuCache };

enum class DriveKind {
  Disk,    // of hardware that is known to be this machine's, or of its hypervisor: NVMe on PCIe,
           // SCSI behind ATA, SAS, USB and known adapters, MMC, virtio, virtio-pmem, Xen
  Nvdimm,  // a pmem device that firmware or a hypervisor describes
  Memory,  // zram, brd, null_blk, scsi_debug, a loop device over tmpfs, a pmem device in a volatile
           // region: a power failure empties it
  Unknown,  // all else: behind a network, or what only looks like a drive; memory that the kernel
            // was told to call persistent; a USB drive that does not say that it has a cache
};

/// A file that a loop device makes a block device of. What is flushed to it goes through its file
/// system's own fsync, so the options of its mount count as those of the mount above.
struct Image {
  std::string file;
  std::string mount_options;  // as in Mount: empty when they can not be seen
  bool operator==(const Image&) const = default;
};

/// One drive that holds bytes.
struct Drive {
  std::string name;  // "sda", "pmem0"; or "253:0" when the kernel shows no more
  DriveKind kind = DriveKind::Unknown;
  /// queue/write_cache, "write back" or "write through"; empty when it can not be read.
  /// An operator whose drive keeps its cache through a power failure writes "write through" there.
  std::string write_cache;
  PlatformDomain platform = PlatformDomain::Silent;  // Nvdimm only
  std::string reason;                                // a sentence, for a person
  /// Through which it was reached, the upper first.
  std::vector<Image> images;
  /// Between the lowest mount and the drive are other devices (LVM, RAID, bcache): they may have
  /// volatile state of their own, which only a flush makes last.
  bool stacked = false;
  /// The device on the way that keeps flushes from what is volatile below it: it says "write
  /// through", so the kernel sends it none. Empty: there is none.
  std::string swallowed_by;
  /// A pmem device whose dax/write_cache says 0: msync of a DAX mapping leaves in the processor's
  /// caches what is there (dax_flush of Linux).
  bool leaves_caches = false;
};

/// Whether a flush has something to do there that a power failure would lose without it. What is
/// not known to be "write through" is.
inline bool cache_is_volatile(const Drive& drive) {
  return drive.kind != DriveKind::Disk || drive.write_cache != "write through";
}

/// The drives below the block device with this number; never empty. Reads sysfs and mountinfo below
/// `root`, for tests; the files of loop devices where they say. At most 64 devices deep and wide;
/// what lies beyond is one Unknown drive.
std::vector<Drive> drives_below(dev_t device, const std::string& root = "");

/// Of the block device with this name ("sda1"), the same.
std::vector<Drive> drives_below_name(const std::string& name, const std::string& root = "");

/// Besides the device that an ext4 file system is on: the drives of its journal, if that may lie on
/// another one. Which of the journals that lie so is whose can not be seen: all of them. Where
/// /proc/fs is hidden, one Unknown drive.
std::vector<Drive> drives_of_external_journals(dev_t device, const std::string& root = "");

/// The number of the block device at `path`; nothing: there is none, or it can not be seen.
std::optional<dev_t> block_device_at(const std::string& path);

/// Bytes of a block device; 0: they can not be seen.
std::uint64_t bytes_of_block_device(dev_t device, const std::string& root = "");

/// A drive of which nothing is known but why.
Drive unknown_drive(std::string name, std::string reason);

/// The drives of a btrfs file system, one of whose devices is this one: all of its devices'.
std::vector<Drive> drives_of_btrfs(dev_t device, const std::string& root = "");

/// What the NVDIMM region says to which a device DAX character device belongs. Silent for memory
/// that is in no region of the NVDIMM driver: soft-reserved HBM, CXL memory, dax_hmem.
PlatformDomain platform_of_dax_device(dev_t device, const std::string& root = "");

/// The weakest answer of NVDIMMs among `drives`; Silent if one of them is no NVDIMM.
PlatformDomain weakest_platform(const std::vector<Drive>& drives);

}  // namespace perdure::pmem
