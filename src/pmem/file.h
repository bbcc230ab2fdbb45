// File: an open pool file or DAX device, its lock, and the way a new one comes into being whole.
// What is inside the file is the business of pool.h; how it is mapped, of mapped_region.h.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.h"

namespace perdure::pmem {

enum class OpenMode { ReadOnly, ReadWrite };

/// A descriptor that closes itself. Closing gives back the lock.
class File {
 public:
  File() = default;
  File(int descriptor, std::string path, bool is_device)
      : descriptor_(descriptor), path_(std::move(path)), is_device_(is_device) {}
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  /// A device DAX character device; otherwise a regular file.
  bool is_device() const { return is_device_; }

 private:
  int descriptor_ = -1;
  std::string path_;
  bool is_device_ = false;
};

/// Whether whoever opens the path gets this open file. One that was only moved away, or has another
/// name, passes: what is written to it is not lost.
/// Errors  SystemError: deleted, or another file is in its place.
Result<void> check_name(const File& file);

/// Opens a regular file or a DAX device that exists.
///
/// Errors  NotFound, PermissionDenied. InvalidArgument: a directory, a FIFO or another thing that
///         cannot hold a pool. SystemError.
Result<File> open_file(const std::string& path, OpenMode access);

/// Takes the file for this opener alone, until the File is closed or the process ends. Holds
/// against other processes and against a second open in this one.
///
/// Requires  OpenMode::ReadWrite.
/// Errors    Busy: someone else has it; the message names the process if it can be known.
///           Unsupported: the file system has no locks, or its locks keep no other machine out.
Result<void> lock_exclusively(const File& file);

/// Whether some opener has it so just now. Takes nothing.
bool is_locked(const File& file);
/// Who has that lock, for a person: "process 12". Requires is_locked().
std::string lock_holder(const File& file);

/// Takes the file's name away, durably; its blocks are free once the last opener lets go of it.
///
/// Requires  lock_exclusively.
/// Errors    Unsupported: a device, or the path is a link. SystemError: also where another file
///           has the name by now. After fsync has failed, the name may come back with a crash.
Result<void> remove_file(const File& file);
/// Errors: Unsupported, as of remove_file.
Result<void> check_removable(const std::string& path);

/// What NewFile gives a name while it has not its own yet.
inline constexpr std::string_view kCreatingSuffix = ".creating";

/// Removes what a creation of `path` left that was cut off. Nothing happens where one is at it.
void remove_unfinished(const std::string& path);

/// Bytes in the file or device. Errors: SystemError.
Result<std::uint64_t> size_of(const File& file);

/// Gives every byte of [0, bytes) a block on the medium, keeping what is there, so that a store
/// into the mapping can not meet a full disk (which would be SIGBUS) later. On file systems that
/// write elsewhere on overwrite (btrfs, zfs) this lessens the danger and does not remove it.
///
/// Errors  NoSpace: the medium, the quota or the process's file size limit is too small.
Result<void> reserve_blocks(const File& file, std::uint64_t bytes);

/// A run of a file's bytes and where they are on its device.
struct Extent {
  std::uint64_t at = 0;       // in the file
  std::uint64_t on_disk = 0;  // in the device
  std::uint64_t length = 0;
  bool written = true;  // false: these blocks are reserved, and nothing was ever written there
};

/// All of a file's, as its file system says; of more than 1048576 the first.
/// Errors: Unsupported, SystemError: it does not say.
Result<std::vector<Extent>> extents_of(const File& file);

/// How much of it has blocks on the medium into which nothing was ever written: the first write of
/// each is noted in the file system's journal, too. Not set: the file system does not tell, or it
/// is a device.
std::optional<std::uint64_t> unwritten_bytes(const File& file);

/// A file that others see whole or not at all. It grows up under the name `<path>.creating`,
/// locked, and gets its own name when it is published. A crash before that leaves at most the
/// `.creating` file, which the next creation under the same name takes over.
class NewFile {
 public:
  /// Errors  AlreadyExists: `path` is there. Busy: another process is creating it now.
  ///         NotFound: no such directory. NoSpace, PermissionDenied, SystemError.
  static Result<NewFile> begin(const std::string& path, std::uint64_t bytes);

  NewFile(NewFile&& other) noexcept
      : file_(std::move(other.file_)), path_(std::exchange(other.path_, std::string())) {}
  NewFile& operator=(NewFile&&) = delete;
  /// Removes what was not published.
  ~NewFile();

  /// Lends the file to be filled; it is locked and stays so.
  const File& file() const { return file_; }

  /// Writes zeros durably into the first `bytes` of it, or as many as go there `within` that time,
  /// so that these blocks are not only reserved but written, and lets the page cache forget them
  /// again. (Linux keeps what write() leaves in large folios, up to 2 MiB, and a store through a
  /// mapping makes all of such a folio dirty: a flush of one page then wrote 1 MiB. Measured, ext4,
  /// Linux 6.18.) Errors  NoSpace, SystemError.
  Result<void> write_zeros(std::uint64_t bytes, const Deadline& within);

  /// Makes the file durable, gives it its name, makes the name durable. `descriptor` is the
  /// file's, wherever it was handed to.
  /// Errors  AlreadyExists: someone else published that name first; theirs is untouched.
  ///         NoSpace, SystemError: nothing was published.
  Result<void> publish(int descriptor);

  /// Hands the file over, for example to a MappedRegion; afterwards only publish() is allowed.
  File take_file() { return std::move(file_); }

 private:
  NewFile(File file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  File file_;
  std::string path_;  // the final name; empty when there is nothing left to remove
};

}  // namespace perdure::pmem
