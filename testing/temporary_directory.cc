#include "testing/temporary_directory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "core/errno_error.h"

namespace perdure::test {

Result<TemporaryDirectory> TemporaryDirectory::make(const std::string& parent) {
  std::string path = parent + "/perdure-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return errno_error(fmt::format("making a directory in '{}'", parent), errno);
  }
  return TemporaryDirectory(std::move(path));
}

TemporaryDirectory::~TemporaryDirectory() {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace perdure::test
