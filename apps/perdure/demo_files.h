// Files and directories of the programs that measure and demonstrate.
#pragma once

#include <perdure/result.h>

#include <string>
#include <string_view>

namespace perdure::app {

/// Replaces the file at `path`, whole or not at all; directories above it are made.
/// Errors: NotFound, PermissionDenied, NoSpace, SystemError.
Result<void> write_file(const std::string& path, std::string_view text);

/// The text of a file; empty when it can not be read.
std::string read_text(const std::string& path);

/// The directory of the running program.
std::string program_directory();

/// A new directory below `parent`, removed with all that is in it when this goes out of scope.
class TemporaryDirectory {
 public:
  /// Errors: NotFound, PermissionDenied, SystemError.
  static Result<TemporaryDirectory> make(const std::string& parent);
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace perdure::app
