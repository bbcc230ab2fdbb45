// A directory of a test, a measurement or a demonstration, gone when it is over.
#pragma once

#include <perdure/result.h>

#include <string>
#include <utility>

namespace perdure::test {

/// A new directory below `parent`, removed with all that is in it when this goes out of scope.
class TemporaryDirectory {
 public:
  /// Errors: NotFound, PermissionDenied, NoSpace, SystemError.
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

}  // namespace perdure::test
