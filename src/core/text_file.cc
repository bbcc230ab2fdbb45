#include "core/text_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "core/errno_error.h"

namespace perdure {
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
    return errno_error(fmt::format("writing '{}'", path), number);
  }
  std::filesystem::rename(beside, target, error);
  if (!error) return {};
  const int number = error.value();
  std::filesystem::remove(beside, error);
  return errno_error(fmt::format("writing '{}'", path), number);
}

Result<std::string> load_text(const std::string& path, std::size_t bytes_max) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  std::string text;
  // Not by iterators of the buffer: those throw when `path` is a directory; read() does not.
  std::array<char, 4096> part{};
  while (stream.read(part.data(), part.size()) || stream.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(stream.gcount()));
    if (text.size() > bytes_max) break;
  }
  if (!stream.is_open() || stream.bad()) {
    const int reason = errno;
    const ErrorCode code = reason == ENOENT   ? ErrorCode::NotFound
                           : reason == EACCES ? ErrorCode::PermissionDenied
                                              : ErrorCode::SystemError;
    return Error{code, fmt::format("'{}' can not be read: {}", path,
                                   std::generic_category().message(reason))};
  }
  return text;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

}  // namespace perdure
