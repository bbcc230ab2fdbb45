#include "core/text_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
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

/// Where a path leads to through symbolic links. Nothing: to what a process has open, as
/// /dev/stdout does.
std::optional<std::string> end_of_links(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kLinksMax = 40;  // as the kernel
  std::error_code unknown;
  fs::path at = path;
  for (int links = 0; links < kLinksMax; ++links) {
    const fs::path above = fs::weakly_canonical(at.parent_path(), unknown);
    const bool of_process = (above / at.filename()).string().starts_with("/proc/");
    if (of_process && fs::exists(at, unknown)) return std::nullopt;
    if (!fs::is_symlink(at, unknown)) break;
    at = at.parent_path() / fs::read_symlink(at, unknown);
  }
  return at.string();
}

struct Place {
  std::string path;
  bool kept = false;  // it is written to, and not replaced
};

/// Errors: as of is_special.
Result<Place> find_place(const std::string& path) {
  PERDURE_TRY(special, is_special(path));
  const auto end = end_of_links(path);
  if (special || !end) return Place{path, true};
  PERDURE_TRY_VOID(is_special(*end));
  return Place{*end, false};
}

}  // namespace

Result<void> write_file(const std::string& path, std::string_view text) {
  PERDURE_TRY(file, ReplacingFile::create(path));
  file.write(text);
  return file.replace();
}

ReplacingFile::ReplacingFile(std::string path, std::string written, std::FILE* stream)
    : path_(std::move(path)), written_(std::move(written)), stream_(stream) {}

ReplacingFile::ReplacingFile(ReplacingFile&& other) noexcept
    : path_(std::move(other.path_)),
      written_(std::move(other.written_)),
      stream_(std::exchange(other.stream_, nullptr)),
      reason_(other.reason_) {}

ReplacingFile::~ReplacingFile() {
  if (stream_ == nullptr) return;
  (void)std::fclose(stream_);
  std::error_code ignored;
  if (written_ != path_) std::filesystem::remove(written_, ignored);
}

Result<ReplacingFile> ReplacingFile::create(const std::string& path) {
  PERDURE_TRY(place, find_place(path));
  const std::string written = place.kept ? place.path : place_beside(place.path);
  std::FILE* const stream = std::fopen(written.c_str(), "wbe");
  if (stream == nullptr) return not_written(path, errno);
  return ReplacingFile(place.path, written, stream);
}

void ReplacingFile::write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stream_) != text.size() && reason_ == 0) {
    reason_ = errno;
  }
}

Result<void> ReplacingFile::replace() {
  const bool good = std::ferror(stream_) == 0;
  errno = 0;
  const bool closed = std::fclose(std::exchange(stream_, nullptr)) == 0;
  const int reason = reason_ != 0 ? reason_ : errno;
  std::error_code error;
  if (good && closed && written_ != path_) std::filesystem::rename(written_, path_, error);
  if (good && closed && !error) return {};
  std::error_code ignored;
  if (written_ != path_) std::filesystem::remove(written_, ignored);
  return not_written(path_, error ? error.value() : reason);
}

Result<void> require_writable(const std::string& path) {
  PERDURE_TRY(place, find_place(path));
  if (!place.kept) PERDURE_TRY_VOID(ReplacingFile::create(path));  // which is gone again at once
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
