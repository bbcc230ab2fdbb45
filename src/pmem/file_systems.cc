// The file systems that are known by name.
#include "pmem/file_systems.h"

#include <linux/magic.h>

#include <algorithm>
#include <array>

namespace perdure::pmem {
namespace {

// Numbers from linux/magic.h where it has them, else from the file system's own source or
// statfs(2).
constexpr std::array<FileSystem, 20> kFileSystems{{
    {EXT4_SUPER_MAGIC, "ext4", MediumKind::PageCache, true},  // ext2 and ext3 share the number
    {XFS_SUPER_MAGIC, "xfs", MediumKind::PageCache, true},
    {BTRFS_SUPER_MAGIC, "btrfs", MediumKind::PageCache, true},
    {F2FS_SUPER_MAGIC, "f2fs", MediumKind::PageCache, true},
    // sync=disabled is a property of the dataset that no file of the kernel shows.
    {0x2FC12FC1, "zfs", MediumKind::PageCache, false},
    {0xCA451A4E, "bcachefs", MediumKind::PageCache, true},
    // Its fsync sends the drive no flush (fs/jfs/file.c).
    {0x3153464A, "jfs", MediumKind::PageCache, false},
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

}  // namespace

FileSystem file_system_of(const struct statfs& status) {
  // f_type is signed and sign-extended for numbers above 2^31; only its low 32 bits count.
  const unsigned long magic = static_cast<unsigned long>(status.f_type) & 0xFFFFFFFFUL;
  const auto* known = std::find_if(kFileSystems.begin(), kFileSystems.end(),
                                   [&](const FileSystem& each) { return each.magic == magic; });
  return known != kFileSystems.end() ? *known : FileSystem{magic};
}

}  // namespace perdure::pmem
