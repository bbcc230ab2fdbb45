#include "core/text_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/errno_error.h"
#include "core/try.h"

namespace perdure {
namespace {

/// Where the new text of a file is written, before it takes the file's place.
std::string place_beside(const std::string& path) { return fmt::format("{}.{}", path, ::getpid()); }

Error not_written(const std::string& path, int number) {
  return errno_error(fmt::format("'{}' can not be written", path), number != 0 ? number : EIO);
}

/// Something that is no file, and that another can not replace: a device or a pipe. Errors:
/// InvalidArgument: it has no name or is a directory; NotFound: the one above is none.
Result<bool> is_special(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) {
    return Error{ErrorCode::InvalidArgument, "the name of the file is empty"};
  }
  std::error_code unknown;
  const fs::file_status there = fs::status(path, unknown);
  if (fs::is_directory(there)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' can not be written: it is a directory", path)};
  }
  const fs::path above = fs::path(path).parent_path();
  if (!above.empty() && !fs::is_directory(above, unknown)) {
    return Error{ErrorCode::NotFound, fmt::format("'{}' can not be written: there is no directory "
                                                  "'{}'",
                                                  path, above.string())};
  }
  return fs::exists(there) && !fs::is_regular_file(there);
}

Result<void> write_text(const std::string& to, const std::string& path, std::string_view text) {
  errno = 0;
  std::ofstream file(to, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file) return {};
  return not_written(path, errno);
}

}  // namespace

Result<void> write_file(const std::string& path, std::string_view text) {
  PERDURE_TRY(special, is_special(path));
  if (special) return write_text(path, path, text);
  const std::string beside = place_beside(path);
  std::error_code error;
  const auto written = write_text(beside, path, text);
  if (written.ok()) std::filesystem::rename(beside, path, error);
  if (written.ok() && !error) return {};
  std::error_code ignored;
  std::filesystem::remove(beside, ignored);
  return written.ok() ? not_written(path, error.value()) : written;
}

ReplacingFile::ReplacingFile(std::string path, std::string written, std::FILE* stream)
    : path_(std::move(path)), written_(std::move(written)), stream_(stream) {}

ReplacingFile::ReplacingFile(ReplacingFile&& other) noexcept
    : path_(std::move(other.path_)),
      written_(std::move(other.written_)),
      stream_(std::exchange(other.stream_, nullptr)) {}

ReplacingFile::~ReplacingFile() {
  if (stream_ == nullptr) return;
  (void)std::fclose(stream_);
  std::error_code ignored;
  if (written_ != path_) std::filesystem::remove(written_, ignored);
}

Result<ReplacingFile> ReplacingFile::create(const std::string& path) {
  PERDURE_TRY(special, is_special(path));
  std::error_code unknown;
  const bool stays = special || std::filesystem::is_symlink(path, unknown);
  const std::string written = stays ? path : place_beside(path);
  std::FILE* const stream = std::fopen(written.c_str(), "wbe");
  if (stream == nullptr) return not_written(path, errno);
  return ReplacingFile(path, written, stream);
}

Result<void> ReplacingFile::replace() {
  const bool good = std::ferror(stream_) == 0;
  errno = 0;
  const bool closed = std::fclose(std::exchange(stream_, nullptr)) == 0;
  const int reason = errno;
  std::error_code error;
  if (good && closed && written_ != path_) std::filesystem::rename(written_, path_, error);
  if (good && closed && !error) return {};
  std::error_code ignored;
  if (written_ != path_) std::filesystem::remove(written_, ignored);
  return not_written(path_, error ? error.value() : reason);
}

Result<void> require_writable(const std::string& path) {
  PERDURE_TRY(special, is_special(path));
  if (special) return {};
  const std::string beside = place_beside(path);
  PERDURE_TRY_VOID(write_text(beside, path, ""));
  std::error_code ignored;
  std::filesystem::remove(beside, ignored);
  return {};
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
