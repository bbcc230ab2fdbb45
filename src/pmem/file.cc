// File: an open pool file or DAX device, its lock, and the way a new one comes into being whole.
#include "pmem/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "core/errno_error.h"
#include "core/try.h"
#include "pmem/mount_options.h"
#include "pmem/sync_directory.h"

namespace perdure::pmem {
namespace {

namespace fs = std::filesystem;

// Owner only: a pool holds other people's records, and sharing it is the daemon's business.
constexpr mode_t kPoolMode = S_IRUSR | S_IWUSR;

// The lock proper is an open file description lock on byte 0. The kernel drops it with the last
// copy of the descriptor, so it can not go stale; unlike a classic POSIX lock it also holds
// against a second open in the same process and is not lost when some other descriptor of the
// file is closed. It does not tell who holds it, though. So the holder also puts a classic lock on
// byte 1, only because F_GETLK names its process: no pid file that a crash could leave behind.
constexpr off_t kLockByte = 0;
constexpr off_t kNameByte = 1;

struct flock one_byte_lock(off_t at) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return lock;
}

fs::path sysfs_of_device(dev_t device) {
  return fmt::format("/sys/dev/char/{}:{}", major(device), minor(device));
}

bool is_dax_device(const struct stat& status) {
  if (!S_ISCHR(status.st_mode)) return false;
  std::error_code ignored;
  return fs::canonical(sysfs_of_device(status.st_rdev) / "subsystem", ignored).filename() == "dax";
}

const char* name_of_type(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode)) return "a block device";
  if (S_ISCHR(mode)) return "a character device that is not device DAX";
  return "not a regular file";
}

Result<void> check_type(const std::string& path, const struct stat& status) {
  if (S_ISREG(status.st_mode) || is_dax_device(status)) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{}: is {}; a pool is a regular file or a device DAX device", path,
                           name_of_type(status.st_mode))};
}

bool same_inode(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// rename that never replaces. Where the file system does not know the flag, link does the same:
// it fails when the name is taken. A crash between link and unlink leaves both names on the whole
// file, and the next creation fails with AlreadyExists as it should.
int rename_to_free_name(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (::link(from.c_str(), to.c_str()) != 0) return errno;
  ::unlink(from.c_str());
  return 0;
}

std::string creating_name(const std::string& path) { return path + std::string(kCreatingSuffix); }

// Opens and locks the file in which `path` is to grow up.
Result<File> claim_temporary(const std::string& path) {
  const std::string temporary = creating_name(path);
  const int descriptor =
      ::open(temporary.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kPoolMode);
  if (descriptor < 0) return errno_error(path, errno);
  File file(descriptor, path, false);
  if (auto locked = lock_exclusively(file); !locked.ok()) {
    // Nobody makes a pool there, so nobody misses it.
    if (locked.code() == ErrorCode::Unsupported) ::unlink(temporary.c_str());
    return locked.error();
  }

  // Someone may have published or removed the file between our open and our lock. From here on
  // only the holder of the lock, this one, touches that name.
  struct stat ours {};
  struct stat named {};
  if (::fstat(descriptor, &ours) != 0) return errno_error(path, errno);
  if (!S_ISREG(ours.st_mode) || ::lstat(temporary.c_str(), &named) != 0 || !same_inode(ours, named))
    return Error{ErrorCode::Busy,
                 fmt::format("{}: another process is creating it at this moment", path)};
  return file;
}

bool has_another_name(const File& file) {
  struct stat status {};
  return ::fstat(file.descriptor(), &status) != 0 || status.st_nlink != 1;
}

}  // namespace

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      is_device_(other.is_device_) {}

File& File::operator=(File&& other) noexcept {
  if (this == &other) return *this;
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  path_ = std::move(other.path_);
  is_device_ = other.is_device_;
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<File> open_file(const std::string& path, OpenMode access) {
  // Asked before opening, because opening a FIFO or a tape is an act of its own.
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno_error(path, errno);
  PERDURE_TRY_VOID(check_type(path, status));

  const int mode = access == OpenMode::ReadOnly ? O_RDONLY : O_RDWR;
  const int descriptor = ::open(path.c_str(), mode | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return errno_error(path, errno);
  File file(descriptor, path, S_ISCHR(status.st_mode));
  if (::fstat(descriptor, &status) != 0) return errno_error(path, errno);
  PERDURE_TRY_VOID(check_type(path, status));
  return file;
}

Result<void> check_name(const File& file) {
  if (file.is_device()) return {};
  struct stat ours {};
  struct stat named {};
  if (::fstat(file.descriptor(), &ours) != 0) return errno_error(file.path(), errno);
  const bool replaced = ::stat(file.path().c_str(), &named) == 0 && !same_inode(ours, named);
  if (!replaced && ours.st_nlink != 0) return {};
  return Error{ErrorCode::SystemError,
               fmt::format("{}: {} while it was in use; what is written to the old one is lost "
                           "when it is closed: make a new pool and repair it from another replica; "
                           "a copy is older, which a region or a mirror does not notice",
                           file.path(), replaced ? "was replaced by another file" : "was deleted")};
}

Result<void> lock_exclusively(const File& file) {
  if (const std::string local = why_locks_are_local(mount_of(file.descriptor())); !local.empty())
    return Error{
        ErrorCode::Unsupported,
        fmt::format("{}: {}, and one that has the file too could serve it at the same time; "
                    "move the pool to a drive of this machine, or to a file system whose "
                    "locks do",
                    file.path(), local)};
  struct flock lock = one_byte_lock(kLockByte);
  if (fcntl(file.descriptor(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES)
      return Error{ErrorCode::Busy,
                   fmt::format("{}: is in use by {}; close it there first, or choose another pool",
                               file.path(), lock_holder(file))};
    if (errno == ENOLCK || errno == EOPNOTSUPP || errno == EINVAL)
      return Error{ErrorCode::Unsupported,
                   fmt::format("{}: this file system cannot lock files, so nothing would keep a "
                               "second writer out; move the pool to another one",
                               file.path())};
    return errno_error(file.path() + ": lock", errno);
  }
  struct flock name = one_byte_lock(kNameByte);
  static_cast<void>(fcntl(file.descriptor(), F_SETLK, &name));  // only a name: may fail
  return {};
}

bool is_locked(const File& file) {
  struct flock lock = one_byte_lock(kLockByte);
  return fcntl(file.descriptor(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::string lock_holder(const File& file) {
  struct flock lock = one_byte_lock(kNameByte);
  if (fcntl(file.descriptor(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0)
    return fmt::format("process {}", lock.l_pid);
  return "this process or one that cannot be named from here";
}

Result<std::uint64_t> size_of(const File& file) {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) return errno_error(file.path(), errno);
  if (!file.is_device()) return static_cast<std::uint64_t>(status.st_size);

  std::ifstream in(sysfs_of_device(status.st_rdev) / "size");
  std::uint64_t bytes = 0;
  if (!(in >> bytes))
    return Error{
        ErrorCode::SystemError,
        fmt::format("{}: the kernel does not tell the size of this DAX device", file.path())};
  return bytes;
}

Result<void> reserve_blocks(const File& file, std::uint64_t bytes) {
  if (file.is_device()) return {};
  // The limit is asked first: running into it would send this process SIGXFSZ.
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur)
    return Error{ErrorCode::NoSpace,
                 fmt::format("{}: needs {} bytes, but this process may only write files of {} "
                             "bytes (ulimit -f)",
                             file.path(), bytes, limit.rlim_cur)};
  const int failed = ::posix_fallocate(file.descriptor(), 0, static_cast<off_t>(bytes));
  if (failed == 0) return {};
  return errno_error(fmt::format("{}: reserve {} bytes", file.path(), bytes), failed);
}

Result<std::vector<Extent>> extents_of(const File& file) {
  constexpr std::uint32_t kAtATime = 128;
  constexpr std::size_t kExtentsMax = 1 << 20;
  std::vector<Extent> extents;
  std::vector<std::byte> memory(sizeof(fiemap) + kAtATime * sizeof(fiemap_extent));
  auto* map = reinterpret_cast<fiemap*>(memory.data());
  const auto* found = reinterpret_cast<const fiemap_extent*>(memory.data() + sizeof(fiemap));
  for (std::uint64_t from = 0; extents.size() < kExtentsMax;) {
    std::fill(memory.begin(), memory.end(), std::byte{0});
    map->fm_start = from;
    map->fm_length = FIEMAP_MAX_OFFSET - from;
    map->fm_extent_count = kAtATime;
    if (::ioctl(file.descriptor(), FS_IOC_FIEMAP, map) != 0) return errno_error(file.path(), errno);
    for (std::uint32_t i = 0; i < map->fm_mapped_extents; ++i) {
      const bool written = (found[i].fe_flags & FIEMAP_EXTENT_UNWRITTEN) == 0;
      extents.push_back({found[i].fe_logical, found[i].fe_physical, found[i].fe_length, written});
      from = found[i].fe_logical + found[i].fe_length;
      if ((found[i].fe_flags & FIEMAP_EXTENT_LAST) != 0) return extents;
    }
    if (map->fm_mapped_extents == 0) return extents;
  }
  return extents;
}

std::optional<std::uint64_t> unwritten_bytes(const File& file) {
  const auto extents = extents_of(file);
  if (!extents.ok()) return std::nullopt;
  std::uint64_t unwritten = 0;
  for (const Extent& extent : *extents) unwritten += extent.written ? 0 : extent.length;
  return unwritten;
}

Result<NewFile> NewFile::begin(const std::string& path, std::uint64_t bytes) {
  struct stat at_path {};
  if (::lstat(path.c_str(), &at_path) == 0)
    return Error{ErrorCode::AlreadyExists,
                 fmt::format("{}: is there already; open it, or choose another name", path)};
  PERDURE_TRY(file, claim_temporary(path));
  if (has_another_name(file)) {
    // A crash in rename_to_free_name, and then the pool was moved: those bytes are someone's.
    ::unlink(creating_name(path).c_str());
    PERDURE_TRY(fresh, claim_temporary(path));
    file = std::move(fresh);
  }
  NewFile made(std::move(file), path);
  // What is in it now is left from an attempt that crashed.
  if (::ftruncate(made.file_.descriptor(), 0) != 0) return errno_error(path, errno);
  PERDURE_TRY_VOID(reserve_blocks(made.file_, bytes));
  return made;
}

void remove_unfinished(const std::string& path) {
  const std::string temporary = creating_name(path);
  struct stat named {};
  if (::lstat(temporary.c_str(), &named) != 0 || !S_ISREG(named.st_mode)) return;
  // Where it is the second name of a whole pool, that has its own already: rename_to_free_name.
  if (const auto claimed = claim_temporary(path); claimed.ok()) ::unlink(temporary.c_str());
}

NewFile::~NewFile() {
  if (!path_.empty()) ::unlink(creating_name(path_).c_str());
}

Result<void> NewFile::write_zeros(std::uint64_t bytes, const Deadline& within) {
  constexpr std::uint64_t kChunkBytes = 1 << 20;
  constexpr std::uint64_t kSyncBytes = 8 << 20;  // little to wait for, for others on that disk
  const std::vector<char> zeros(kChunkBytes);
  PERDURE_TRY(size, size_of(file_));
  bytes = std::min(bytes, size);
  std::uint64_t synced = 0;
  for (std::uint64_t at = 0; at < bytes && !within.passed();) {
    const ssize_t written = ::pwrite(file_.descriptor(), zeros.data(),
                                     std::min(kChunkBytes, bytes - at), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_error(path_ + ": write", errno);
    at += static_cast<std::uint64_t>(written);
    if (at < bytes && at - synced < kSyncBytes) continue;
    // Only what is clean can be forgotten.
    if (::fdatasync(file_.descriptor()) != 0) return errno_error(path_ + ": fdatasync", errno);
    synced = at;
  }
  (void)::posix_fadvise(file_.descriptor(), 0, static_cast<off_t>(synced), POSIX_FADV_DONTNEED);
  return {};
}

Result<void> check_removable(const std::string& path) {
  std::error_code ignored;
  const bool device = fs::is_character_file(path, ignored);  // also behind a link
  if (!device && !fs::is_symlink(path, ignored)) return {};
  return Error{ErrorCode::Unsupported, fmt::format("{} is {}: clear and remove it on its machine",
                                                   path, device ? "a device" : "a link")};
}

Result<void> remove_file(const File& file) {
  PERDURE_TRY_VOID(check_removable(file.path()));
  PERDURE_TRY_VOID(check_name(file));
  if (::unlink(file.path().c_str()) != 0) return errno_error(file.path(), errno);
  return sync_directory_of(file.path());
}

Result<void> NewFile::publish(int descriptor) {
  if (::fsync(descriptor) != 0) return errno_error(path_ + ": fsync", errno);
  const int failed = rename_to_free_name(creating_name(path_), path_);
  if (failed == EEXIST)
    return Error{ErrorCode::AlreadyExists,
                 fmt::format("{}: was created by someone else meanwhile; open that one, or choose "
                             "another name",
                             path_)};
  if (failed == ENOENT)
    return Error{
        ErrorCode::Busy,
        fmt::format("{}: another process tried to create it at the same time; try again", path_)};
  if (failed != 0) return errno_error(path_, failed);
  const std::string published = std::exchange(path_, std::string());
  auto durable = sync_directory_of(published);
  if (!durable.ok()) ::unlink(published.c_str());  // a name that may not last is not kept
  return durable;
}

}  // namespace perdure::pmem
