// With which options a file system is mounted: some switch off what fsync promises.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace perdure::pmem {

/// One line of mountinfo (proc(5)).
struct Mount {
  std::string options;  // comma-separated: those of the mount and those of the file system
  std::string source;   // "/dev/sda1"
  std::string type;     // of the file system: "ext4", "fuse.sshfs"
};

/// The mount through which a file or directory is reached. Found by the mount's id: device numbers
/// are not those of the mount for btrfs, and not unique elsewhere. Empty when it can not be seen:
/// in a chroot mountinfo leaves out what is not below the root.
/// A tree that is made up for a test has its own mountinfo below `root`.
Mount mount_of(const std::string& path, const std::string& root = "");
Mount mount_of(int descriptor);

/// The id of the mount through which a descriptor reaches its file, from its /proc/self/fdinfo: of
/// kernels whose statx does not tell it (before 5.8).
std::optional<std::uint64_t> mount_id_in(std::string_view fdinfo);

/// The same from the text of a mountinfo file; lines that make no sense are passed over.
Mount mount_in(std::string_view mountinfo, std::uint64_t mount_id);

/// The first of the options that makes msync return while data is in a volatile cache of the drive;
/// empty if there is none.
std::string option_without_flush(std::string_view options);

/// The first of the options by which msync and fdatasync return while data, or what leads to it, is
/// in this machine's memory: it is lost whatever the drive is. Empty if there is none.
std::string option_without_sync(std::string_view options);

/// Why a lock on a file there may keep no other machine out that has the file too; empty: it does,
/// or no other has it as far as is known.
std::string why_locks_are_local(const Mount& mount);

/// What follows `name` ("rtdev=") in the first of the options that begins so; empty: there is none.
std::string option_value(std::string_view options, std::string_view name);

/// Whether `option` is one of the comma-separated `options`.
bool has_option(std::string_view options, std::string_view option);

}  // namespace perdure::pmem
