// With which options a file system is mounted.
#include "pmem/mount_options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace perdure::pmem {

namespace {

/// At spaces only, which the kernel writes as \040 within a word: it leaves other white space in
/// names as it is, and a source may be empty.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (;;) {
    const std::size_t space = std::min(line.find(' '), line.size());
    words.push_back(line.substr(0, space));
    if (space == line.size()) return words;
    line.remove_prefix(space + 1);
  }
}

/// Space, tab, newline and backslash come as three octal digits (seq_escape of Linux).
std::string unescaped(std::string_view word) {
  const auto digit = [&](std::size_t at) {
    return at < word.size() && word[at] >= '0' && word[at] <= '7' ? word[at] - '0' : -1;
  };
  std::string text;
  for (std::size_t at = 0; at < word.size(); ++at) {
    const int code = digit(at + 1) * 64 + digit(at + 2) * 8 + digit(at + 3);
    const bool escaped = word[at] == '\\' && digit(at + 1) >= 0 && digit(at + 2) >= 0 &&
                         digit(at + 3) >= 0 && code <= UCHAR_MAX;
    text += escaped ? static_cast<char>(code) : word[at];
    if (escaped) at += 3;
  }
  return text;
}

}  // namespace

Mount mount_in(std::string_view mountinfo, std::uint64_t mount_id) {
  // id parent major:minor root place options [tags...] - type source super-options (proc(5))
  constexpr std::ptrdiff_t kOptionsWord = 5;
  const std::string wanted = std::to_string(mount_id);
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string_view> words = words_of(line);
    if (words[0] != wanted || std::ssize(words) <= kOptionsWord) continue;
    // Not before the tags: a directory may be called so.
    const auto dash = std::find(words.begin() + kOptionsWord + 1, words.end(), "-");
    if (words.end() - dash < 4) continue;
    const std::string_view behind(dash[3].data());  // to the line's end
    return {fmt::format("{},{}", words[kOptionsWord], behind), unescaped(dash[2]),
            std::string(dash[1])};
  }
  return {};
}

namespace {

// ext4(5); f2fs.rst.
constexpr std::array<const char*, 3> kNoFlush{"nobarrier", "barrier=0", "fsync_mode=nobarrier"};

// How they begin. bcachefs(8): journal_flush_disabled, no_data_io; jfs.rst: nointegrity; f2fs.rst:
// checkpoint=disable[:%u[%]]; overlayfs.rst: volatile, fsync=volatile.
constexpr std::array<const char*, 7> kNoSync{
    "journal_flush_disabled", "journal_flush=off", "no_data_io",    "nointegrity",
    "checkpoint=disable",     "volatile",          "fsync=volatile"};

/// Of shared file systems: whose locks stay in this machine's kernel, or are granted to everybody.
/// Without an option, always: virtiofs and FUSE unless the server asks for them, which shows
/// nowhere (FUSE_POSIX_LOCKS, fs/fuse/file.c); 9p, of which QEMU's server grants every lock
/// (hw/9pfs/9p.c, v9fs_lock); BeeGFS (tuneUseGlobalFileLocks is false).
struct LocalLocks {
  const char* type;
  const char* option;  // null: whatever the options
};
constexpr std::array<LocalLocks, 19> kLocalLocks{{{"virtiofs", nullptr},
                                                  {"9p", nullptr},
                                                  {"fuse.sshfs", nullptr},
                                                  {"fuse.vmhgfs-fuse", nullptr},
                                                  {"vboxsf", nullptr},
                                                  {"prl_fs", nullptr},
                                                  {"beegfs", nullptr},
                                                  {"nfs", "nolock"},
                                                  {"nfs", "local_lock=all"},
                                                  {"nfs", "local_lock=posix"},
                                                  {"nfs4", "nolock"},
                                                  {"nfs4", "local_lock=all"},
                                                  {"nfs4", "local_lock=posix"},
                                                  {"cifs", "nobrl"},
                                                  {"smb3", "nobrl"},
                                                  {"gfs2", "localflocks"},
                                                  {"ocfs2", "localflocks"},
                                                  {"orangefs", "local_lock"},
                                                  {"lustre", "localflock"}}};

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Mount mount_at(int descriptor, const std::string& root) {
  struct statx status {};
  std::optional<std::uint64_t> id;
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_MNT_ID, &status) == 0 &&
      (status.stx_mask & STATX_MNT_ID) != 0)
    id = status.stx_mnt_id;
  if (!id) id = mount_id_in(text_of(fmt::format("/proc/self/fdinfo/{}", descriptor)));
  return id ? mount_in(text_of(root + "/proc/self/mountinfo"), *id) : Mount{};
}

}  // namespace

std::optional<std::uint64_t> mount_id_in(std::string_view fdinfo) {
  std::istringstream lines{std::string(fdinfo)};
  for (std::string name; lines >> name;) {
    std::uint64_t id = 0;
    if (name == "mnt_id:" && lines >> id) return id;
  }
  return std::nullopt;
}

Mount mount_of(const std::string& path, const std::string& root) {
  const int descriptor = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  if (descriptor < 0) return {};
  Mount mount = mount_at(descriptor, root);
  ::close(descriptor);
  return mount;
}

Mount mount_of(int descriptor) { return mount_at(descriptor, ""); }

std::string option_without_flush(std::string_view options) {
  for (const char* option : kNoFlush) {
    if (has_option(options, option)) return option;
  }
  return {};
}

std::string option_without_sync(std::string_view options) {
  while (!options.empty()) {
    const std::size_t comma = std::min(options.find(','), options.size());
    const std::string_view option = options.substr(0, comma);
    for (const char* prefix : kNoSync) {
      if (option.starts_with(prefix)) return std::string(option);
    }
    options.remove_prefix(std::min(comma + 1, options.size()));
  }
  return {};
}

std::string why_locks_are_local(const Mount& mount) {
  for (const LocalLocks& each : kLocalLocks) {
    if (mount.type != each.type) continue;
    if (each.option == nullptr)
      return fmt::format("locks on {} do not reach other machines", mount.type);
    if (has_option(mount.options, each.option))
      return fmt::format("{} is mounted with {}, so locks do not reach other machines", mount.type,
                         each.option);
  }
  return {};
}

std::string option_value(std::string_view options, std::string_view name) {
  while (!options.empty()) {
    const std::size_t comma = std::min(options.find(','), options.size());
    const std::string_view option = options.substr(0, comma);
    if (option.starts_with(name)) return std::string(option.substr(name.size()));
    options.remove_prefix(std::min(comma + 1, options.size()));
  }
  return {};
}

bool has_option(std::string_view options, std::string_view option) {
  while (!options.empty()) {
    const std::size_t comma = options.find(',');
    if (options.substr(0, comma) == option) return true;
    if (comma == std::string_view::npos) break;
    options.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace perdure::pmem
