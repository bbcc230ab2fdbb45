// A directory of a test, a measurement or a demonstration, gone when it is over.
#pragma once

#include <perdure/result.h>

#include <string>
#include <utility>
#include <vector>

namespace perdure::test {

/// A new directory below `parent`, removed with all that is in it when this goes out of scope.
class TemporaryDirectory {
 public:
  /// Errors: NotFound, PermissionDenied, NoSpace, SystemError.
  static Result<TemporaryDirectory> make(const std::string& parent);
  /// Where files cost no disk's time, if there is such a place.
  static Result<TemporaryDirectory> make_in_memory();
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

/// The same for a test, below the system's directory for temporary files unless another is named.
/// Where it can not be made the test fails with an exception.
class TestDirectory {
 public:
  explicit TestDirectory(const std::string& below = {});

  const std::string& path() const { return directory_.path(); }
  std::string file(const std::string& name) const { return path() + "/" + name; }
  /// Names of all that is in it.
  std::vector<std::string> names() const;

 private:
  TemporaryDirectory directory_;
};

}  // namespace perdure::test
