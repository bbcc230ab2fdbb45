// Medium: what a file or device lies on, and which persistence domain follows from it. The facts
// are gathered here once, when a region is opened; deciding on them is a pure function.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pmem/block_devices.h"
#include "pmem/file.h"
#include "pmem/file_systems.h"

namespace perdure::pmem {

/// The facts about one file or device, and the conclusion.
struct Medium {
  MediumKind kind = MediumKind::PageCache;
  std::string file_system;  // "ext4", "tmpfs", "device dax", or "type 0x..." when not known
  /// The file system is known to write its pages to the drives below it.
  bool writes_pages = false;
  PlatformDomain platform = PlatformDomain::Silent;
  bool is_device = false;
  /// Of this machine: what its NVDIMMs are, its hypervisor was told. Where it can not be told
  /// whether there is one (Arm), there is.
  bool is_virtual = false;
  /// What follows from the facts alone. What is not known to survive does not survive.
  PersistenceDomain found = PersistenceDomain::None;
  std::string mount_options;  // of a page cache; comma-separated; empty: they can not be seen
  /// Why its locks may keep no other machine out: see why_locks_are_local().
  std::string local_locks;
  std::vector<Drive> drives;  // below a file system
  /// Why msync and fdatasync do not make data last there, whatever is declared; empty: nothing
  /// known.
  std::string never_lasts;
  std::string remedy;                 // of never_lasts, for a person: what to do
  std::vector<std::string> evidence;  // sentences, for a person
};

/// Why Medium::is_virtual is set, for a person.
std::string_view why_it_counts_as_virtual();

/// What the firmware says that this machine is. Below `root`, for tests.
struct MachineNames {
  std::string vendor;   // /sys/class/dmi/id/sys_vendor
  std::string product;  // /sys/class/dmi/id/product_name
};
MachineNames machine_names(const std::string& root = "");

/// Whether they are those of a virtual machine. Pure.
bool names_hypervisor(const MachineNames& names);

/// Whether a mount on the way from a file to what is volatile below it passes a flush on.
/// NotSynced: nor does it write the data, so what is below does not count.
enum class Flushes { Passed, LeftOut, NotSynced, NotKnown };

struct MountAbove {
  std::string what;  // "the file system", or of the file below a loop device
  Flushes flushes = Flushes::NotKnown;
  std::string option;  // LeftOut and NotSynced: by which
  /// LeftOut: the drive right below it, whose cache this is about; empty: other devices are there,
  /// and a drive that keeps its cache is no excuse.
  std::string drive;
};

/// The mounts that a flush passes on its way to `drive`, one of medium.drives, the upper first.
/// One that stands on the drive itself, or a partition, and whose drive has no volatile cache has
/// none to pass on, and is left out unless it does not even write. Pure.
std::vector<MountAbove> mounts_above(const Medium& medium, const Drive& drive);

/// The drives of a file system besides those below its own device: journals and data elsewhere, as
/// its mount options and the kernel's lists say. `bytes`: of the file system, as statfs(2) says.
/// `root`: as in drives_below().
std::vector<Drive> drives_elsewhere(const Medium& medium, dev_t device, std::uint64_t bytes,
                                    const std::string& root = "");

/// What follows for a file on a page cache from its mount options and drives. Pure. Before, `found`
/// is Page if the file system's own msync reaches its drives.
void conclude_page_cache(Medium& medium);

/// What follows for a file of which the kernel grants DAX, and which could only be mapped through
/// the page cache: what its drives keep, as for any other. Pure.
void conclude_mapped_by_pages(Medium& medium);

/// What follows for DAX, where stores reach the medium itself, from `platform` and the drives, if
/// it is no device. Pure.
void conclude_dax(Medium& medium);

/// Gathers the facts. Regular files are tried with a MAP_SYNC mapping, which the kernel grants
/// only on DAX. Errors: SystemError.
Result<Medium> examine_medium(const File& file);

/// What the file system of a file or directory is, and whether it is known to write its pages to
/// a medium that lasts; the part of examine_medium() that needs no open file.
Result<Medium> examine_file_system(const std::string& path);

/// What is declared of a pool: what is declared today; else what was when it was made, if that is
/// no more than the evidence shows. A stronger one ends when nobody repeats it.
std::optional<PersistenceDomain> still_declared(const Medium& medium,
                                                std::optional<PersistenceDomain> today,
                                                std::optional<PersistenceDomain> once);

/// The domain to work by: the declared one if the facts allow it, else the one found. Weaker than
/// found is always allowed. Stronger is allowed where only the operator can know (a battery behind
/// memory), and refused where the facts contradict it:
///   - a page cache never survives, so nothing above `page`;
///   - `page` on volatile memory, or where msync is known not to reach what lasts (barriers off
///   over
///     a volatile cache, a drive that is memory);
///   - `mhp` where the platform says that only its memory controller is flushed. (`wsp` is not
///     refused there: it speaks of an energy source that the platform knows nothing about.)
///
/// Errors  Unsupported, with the evidence and the remedy.
Result<PersistenceDomain> decide_domain(const Medium& medium,
                                        std::optional<PersistenceDomain> declared);

/// The evidence in one line.
std::string join_evidence(const Medium& medium);

}  // namespace perdure::pmem
