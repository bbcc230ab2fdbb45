// Text files, read and written whole, or written piece by piece and whole in the end.
#pragma once

#include <perdure/result.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace perdure {

/// Replaces the file that `path` leads to, whole or not at all; what is there and can not be
/// replaced, a device, a pipe or what a process has open (/dev/stdout), is written to. Errors:
/// NotFound (no such directory), InvalidArgument (it is one), PermissionDenied, NoSpace,
/// SystemError.
Result<void> write_file(const std::string& path, std::string_view text);

/// A file that is written piece by piece beside the one at its path, and replaces that when it is
/// whole. What can not be replaced, as above, is written to.
class ReplacingFile {
 public:
  /// Errors: as of write_file().
  static Result<ReplacingFile> create(const std::string& path);
  ReplacingFile(ReplacingFile&& other) noexcept;
  ReplacingFile& operator=(ReplacingFile&&) = delete;
  /// Without replace() a file that is there stays as it was.
  ~ReplacingFile();

  std::FILE* stream() const { return stream_; }
  /// What goes wrong replace() says.
  void write(std::string_view text);
  /// Ends the writing. Errors: what was written is not whole, and is gone. NoSpace, SystemError.
  Result<void> replace();

 private:
  ReplacingFile(std::string path, std::string written, std::FILE* stream);

  std::string path_;
  std::string written_;  // where it is until it is whole; the path itself if that stays
  std::FILE* stream_;    // null once it is closed
  int reason_ = 0;       // why the first write() failed
};

/// Whether write_file() would be let: to know it before the work whose result it is. Leaves what is
/// there as it is. Errors: as above.
Result<void> require_writable(const std::string& path);

/// The text of a file that is there and is meant to be small: what is behind `bytes_max` may be
/// missing, and one byte of it is not. Errors: NotFound, PermissionDenied, SystemError.
Result<std::string> load_text(const std::string& path, std::size_t bytes_max);

/// The text of a file; empty when it can not be read.
std::string read_text(const std::string& path);

}  // namespace perdure
