// Files and directories.
#include "demo_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace perdure::app {
namespace {

Error file_error(int number, const std::string& doing) {
  ErrorCode code = ErrorCode::SystemError;
  if (number == ENOENT || number == ENOTDIR) code = ErrorCode::NotFound;
  if (number == EACCES || number == EPERM || number == EROFS) code = ErrorCode::PermissionDenied;
  if (number == ENOSPC || number == EDQUOT) code = ErrorCode::NoSpace;
  return Error{code, fmt::format("{}: {}", doing, std::generic_category().message(number))};
}

}  // namespace

Result<void> write_file(const std::string& path, std::string_view text) {
  const std::filesystem::path target(path);
  std::error_code error;
  if (target.has_parent_path()) std::filesystem::create_directories(target.parent_path(), error);
  const std::string beside = fmt::format("{}.{}", path, ::getpid());
  errno = 0;
  std::ofstream file(beside, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) {
    const int number = errno != 0 ? errno : EIO;
    std::filesystem::remove(beside, error);
    return file_error(number, fmt::format("writing '{}'", path));
  }
  std::filesystem::rename(beside, target, error);
  if (!error) return {};
  const int number = error.value();
  std::filesystem::remove(beside, error);
  return file_error(number, fmt::format("writing '{}'", path));
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::string program_directory() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : program.parent_path().string();
}

Result<TemporaryDirectory> TemporaryDirectory::make(const std::string& parent) {
  std::string path = parent + "/perdure-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return file_error(errno, fmt::format("making a directory in '{}'", parent));
  }
  return TemporaryDirectory(std::move(path));
}

TemporaryDirectory::~TemporaryDirectory() {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace perdure::app
