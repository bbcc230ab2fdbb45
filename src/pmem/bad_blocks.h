// Bytes of a pool that its memory is known to have lost (poison): the kernel keeps a list, filled
// by the firmware's scrub and by machine checks, and a load from one of them is a SIGBUS.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pmem/file.h"
#include "pmem/region.h"

namespace perdure::pmem {

/// The lines of a `badblocks` file, "sector count" in units of 512 bytes, as bytes. What is no such
/// line is left out.
std::vector<Range> parse_bad_blocks(const std::string& text);

/// The parts of `bad` that lie in the extents, as bytes of the file.
std::vector<Range> bad_in_file(std::span<const Extent> extents, std::span<const Range> bad);

/// Of the block device with this number (a disk or a partition), in its own bytes. Reads sysfs
/// below `root`, for tests. Empty where the kernel keeps no list.
std::vector<Range> bad_of_block_device(dev_t device, const std::string& root = "");

/// The drives below the block device with this number, through device mapper or RAID, that have
/// bad blocks: which bytes of the upper device those are, only its own driver knows. Empty for a
/// drive itself. At most 64 devices are looked at; more are named as one.
std::vector<std::string> bad_drives_below(dev_t device, const std::string& root = "");

/// Of a device DAX character device, in its own bytes. Where the kernel does not show which part of
/// its region it is (that needs root), all of the region's are given as if they began with it.
std::vector<Range> bad_of_dax_device(dev_t device, const std::string& root = "");

/// In which part of its file system a file's data lie.
enum class DataSection {
  Main,
  Realtime,  // of an xfs, which has it on a device of its own
  NotKnown,
};

/// fsx_xflags of FS_IOC_FSGETXATTR, ioctl_xfs_fsgetxattr(2). Nothing: the file system does not know
/// the call, or it is not allowed here.
std::optional<std::uint32_t> extended_flags(const File& file);

/// What follows from the flags. Pure.
DataSection data_section(std::optional<std::uint32_t> flags);

/// The block device that a file's bytes are on: `own`, that of its file system, or for the realtime
/// section the one that the mount's options name, looked up below `root`. Nothing: that one can not
/// be seen, or there is one and the section is not known.
std::optional<dev_t> device_of_bytes(dev_t own, DataSection section,
                                     const std::string& mount_options,
                                     const std::string& root = "");

/// Of an open file on a DAX file system, or DAX device. Errors: Unsupported: there are bad blocks
/// below the file system, and it, or a device between, does not say whether they are this file's;
/// or the device of its bytes can not be seen.
Result<std::vector<Range>> bad_blocks_of(const File& file, const std::string& root = "");

}  // namespace perdure::pmem
