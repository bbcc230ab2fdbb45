#include "testing/temporary_directory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
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

Result<TemporaryDirectory> TemporaryDirectory::make_in_memory() {
  auto made = make("/dev/shm");
  if (made.ok()) return made;
  return make(std::filesystem::temp_directory_path());
}

TemporaryDirectory::~TemporaryDirectory() {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

namespace {

TemporaryDirectory make_for_test(const std::string& below) {
  auto made = TemporaryDirectory::make(
      below.empty() ? std::filesystem::temp_directory_path().string() : below);
  if (!made.ok()) throw std::runtime_error(made.error().message);
  return std::move(made).value();
}

}  // namespace

TestDirectory::TestDirectory(const std::string& below) : directory_(make_for_test(below)) {}

std::vector<std::string> TestDirectory::names() const {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(path())) {
    found.push_back(entry.path().filename());
  }
  return found;
}

}  // namespace perdure::test
