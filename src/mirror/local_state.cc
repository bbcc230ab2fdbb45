#include "mirror/local_state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "core/errno_error.h"
#include "core/text_file.h"
#include "core/try.h"
#include "pmem/sync_directory.h"

namespace perdure::mirror {
namespace {

std::string encode(const LocalState& state) {
  const std::string bytes =
      state.bytes == 0 ? std::string() : fmt::format("bytes {:016x}\n", state.bytes);
  return fmt::format("perdure mirror 1\n{}id {:016x}\nepoch {:08x}\nwhole {:d}\n", bytes, state.id,
                     state.epoch, state.whole);
}

/// Each number has its place.
template <typename Number>
void take(std::string_view text, std::string_view before, std::size_t digits, Number& number) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return;
  const std::string_view found = text.substr(at + before.size(), digits);
  (void)std::from_chars(found.data(), found.data() + found.size(), number, 16);
}

std::optional<LocalState> decode(const std::string& text) {
  LocalState state;
  int whole = 0;
  take(text, "\nbytes ", 16, state.bytes);
  take(text, "\nid ", 16, state.id);
  take(text, "\nepoch ", 8, state.epoch);
  take(text, "\nwhole ", 1, whole);
  state.whole = whole == 1;
  if (encode(state) != text) return std::nullopt;
  return state;
}

Result<void> write_durably(const std::string& path, const std::string& text) {
  const auto failed = [&] {
    return errno_error(fmt::format("'{}' can not be written", path), errno);
  };
  (void)::unlink(path.c_str());  // of a process that was killed, perhaps another user's
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (file < 0) return failed();
  (void)::fchmod(file, 0644);  // whoever may read the directory, whatever this process's mask
  const bool written =
      ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(file) == 0;
  Result<void> outcome = written ? Result<void>() : failed();
  ::close(file);
  return outcome;
}

}  // namespace

std::string path_behind(const std::string& name) {
  constexpr int kLinksMax = 40;  // as the kernel
  std::filesystem::path path = name;
  std::error_code failed;
  // weakly_canonical() leaves a link as it is that leads to a file which is not there.
  for (int links = 0; links < kLinksMax && !std::filesystem::exists(path, failed); ++links) {
    const auto to = std::filesystem::read_symlink(path, failed);
    if (failed) break;
    path = path.parent_path() / to;
  }
  const auto real = std::filesystem::weakly_canonical(path, failed);
  return failed ? path.string() : real.string();
}

LocalStateFile::LocalStateFile(const std::string& file, std::uint64_t bytes)
    : file_(file), bytes_(bytes) {
  path_ = path_behind(file) + ".mirror";
}

Result<std::optional<LocalState>> LocalStateFile::read() const {
  if (path_.empty()) return std::optional<LocalState>{};
  const auto text = load_text(path_, 4096);
  if (!text.ok()) {
    if (text.code() == ErrorCode::NotFound) return std::optional<LocalState>{};
    return text.error();
  }
  const auto state = decode(*text);
  if (state) return state;
  return Error{ErrorCode::Corrupt,
               fmt::format("'{}' does not say what it should of '{}': open the mirror with what is "
                           "there (replicas), or remove it if '{}' is what counts",
                           path_, file_, file_)};
}

/// Errors: AlreadyExists: what has its name is none of ours.
Result<void> LocalStateFile::check_ours() const {
  const auto text = load_text(path_, 4096);
  if (!text.ok() || text->empty() || text->starts_with("perdure mirror ")) return {};
  return Error{
      ErrorCode::AlreadyExists,
      fmt::format("'{}' is not what a mirror keeps of '{}': give it another name", path_, file_)};
}

Result<void> LocalStateFile::check_writable() const {
  if (path_.empty()) return {};
  PERDURE_TRY_VOID(check_ours());
  const std::string fresh = path_ + ".new";
  auto written = write_durably(fresh, encode({}));
  (void)::unlink(fresh.c_str());
  return written;
}

Result<void> LocalStateFile::write(const LocalState& state) const {
  if (path_.empty()) return {};
  PERDURE_TRY_VOID(check_ours());
  const std::string fresh = path_ + ".new";
  if (auto written = write_durably(fresh, encode(state)); !written) {
    (void)::unlink(fresh.c_str());
    return written;
  }
  if (std::rename(fresh.c_str(), path_.c_str()) != 0) {
    return errno_error(fmt::format("'{}' can not be written", path_), errno);
  }
  return pmem::sync_directory_of(path_);
}

Result<void> LocalStateFile::remove() const {
  if (path_.empty()) return {};
  PERDURE_TRY_VOID(check_ours());
  if (::unlink(path_.c_str()) != 0) {
    if (errno == ENOENT) return {};
    return errno_error(fmt::format("'{}' can not be removed", path_), errno);
  }
  return pmem::sync_directory_of(path_);
}

Result<void> LocalStateFile::check_whole() const {
  PERDURE_TRY(state, read());
  if (!state) return {};
  if (state->whole && bytes_ != 0 && bytes_ < state->bytes) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("'{}' has {} bytes, and had {} when it was mirrored last ('{}' says so): what "
                    "it has lost would be zeros on the replicas; bring it back with `perdure "
                    "mirror restore --overwrite`, or remove '{}' if what '{}' holds is what counts",
                    file_, bytes_, state->bytes, path_, path_, file_)};
  }
  if (state->whole) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("'{}' is not whole: a replica was being copied over it, and that did "
                           "not come to its end ('{}' says so); copy it again: open the mirror "
                           "with what is there (replicas), or `perdure mirror restore "
                           "--overwrite`; or remove '{}' if what '{}' holds is what counts",
                           file_, path_, path_, file_)};
}

}  // namespace perdure::mirror
