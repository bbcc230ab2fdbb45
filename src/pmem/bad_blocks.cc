// Bytes of a pool that its memory is known to have lost: see bad_blocks.h.
#include "pmem/bad_blocks.h"

#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/errno_error.h"
#include "core/try.h"
#include "pmem/block_devices.h"
#include "pmem/mount_options.h"

namespace perdure::pmem {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSectorUnit = 512;  // of sysfs, whatever the device's own sectors are
constexpr std::size_t kLookedAtMax = 64;

std::optional<std::string> text_of(const fs::path& file) {
  std::ifstream in(file);
  if (!in.is_open()) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A number as sysfs writes it, "0x..." or decimal; nothing where it may not be read.
std::optional<std::uint64_t> number_of(const fs::path& file) {
  const auto text = text_of(file);
  if (!text || text->empty()) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const std::uint64_t number = std::strtoull(text->c_str(), &end, 0);
  return errno == 0 && end != text->c_str() ? std::optional(number) : std::nullopt;
}

/// The parts of `bad` that lie in [begin, begin + length), counted from there.
std::vector<Range> within(std::span<const Range> bad, std::uint64_t begin, std::uint64_t length) {
  const Extent all{0, begin, length};
  return bad_in_file({&all, 1}, bad);
}

/// Adds the drives with bad blocks that are below the device at `at`.
void find_bad_drives(const fs::path& at, std::vector<fs::path>& seen,
                     std::vector<std::string>& found) {
  std::error_code ignored;
  for (const fs::directory_entry& slave : fs::directory_iterator(at / "slaves", ignored)) {
    std::error_code failed;
    fs::path below = fs::canonical(slave.path(), failed);
    if (failed) continue;
    if (fs::exists(below / "partition", ignored)) below = below.parent_path();
    if (std::find(seen.begin(), seen.end(), below) != seen.end()) continue;
    if (seen.size() == kLookedAtMax) {
      found.emplace_back("one of too many devices");
      return;
    }
    seen.push_back(below);
    if (!parse_bad_blocks(text_of(below / "badblocks").value_or("")).empty())
      found.push_back(below.filename().string());
    find_bad_drives(below, seen, found);
  }
}

}  // namespace

std::vector<Range> parse_bad_blocks(const std::string& text) {
  std::vector<Range> bad;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    std::uint64_t sector = 0;
    std::uint64_t count = 0;
    constexpr std::uint64_t kSectorsMax = UINT64_MAX / kSectorUnit / 2;
    if (!(numbers >> sector >> count) || sector > kSectorsMax || count > kSectorsMax) continue;
    if (count != 0) bad.push_back({sector * kSectorUnit, count * kSectorUnit});
  }
  return bad;
}

std::vector<Range> bad_in_file(std::span<const Extent> extents, std::span<const Range> bad) {
  std::vector<Range> found;
  for (const Extent& extent : extents) {
    for (const Range& range : bad) {
      const std::uint64_t begin = std::max(extent.on_disk, range.at);
      const std::uint64_t end = std::min(extent.on_disk + extent.length, range.at + range.length);
      if (begin < end) found.push_back({extent.at + (begin - extent.on_disk), end - begin});
    }
  }
  return found;
}

std::vector<Range> bad_of_block_device(dev_t device, const std::string& root) {
  std::error_code failed;
  const fs::path at = fs::canonical(
      fmt::format("{}/sys/dev/block/{}:{}", root, major(device), minor(device)), failed);
  if (failed) return {};
  if (!fs::exists(at / "partition", failed))
    return parse_bad_blocks(text_of(at / "badblocks").value_or(""));
  // A partition has no list of its own.
  auto bad = parse_bad_blocks(text_of(at.parent_path() / "badblocks").value_or(""));
  const auto start = number_of(at / "start");
  const auto sectors = number_of(at / "size");
  if (!start || !sectors) return bad;
  return within(bad, *start * kSectorUnit, *sectors * kSectorUnit);
}

std::vector<std::string> bad_drives_below(dev_t device, const std::string& root) {
  std::error_code failed;
  fs::path at = fs::canonical(
      fmt::format("{}/sys/dev/block/{}:{}", root, major(device), minor(device)), failed);
  if (failed) return {};
  if (fs::exists(at / "partition", failed)) at = at.parent_path();
  std::vector<fs::path> seen{at};
  std::vector<std::string> found;
  find_bad_drives(at, seen, found);
  return found;
}

std::vector<Range> bad_of_dax_device(dev_t device, const std::string& root) {
  std::error_code failed;
  const fs::path at = fs::canonical(
      fmt::format("{}/sys/dev/char/{}:{}", root, major(device), minor(device)), failed);
  if (failed) return {};
  for (fs::path region = at.parent_path(); region.has_relative_path();
       region = region.parent_path()) {
    const auto text = text_of(region / "badblocks");
    if (!text) continue;
    auto bad = parse_bad_blocks(*text);
    const auto begin = number_of(at / "resource");
    const auto region_begin = number_of(region / "resource");
    const auto bytes = number_of(at / "size");
    if (!begin || !region_begin || !bytes || *begin < *region_begin) return bad;
    return within(bad, *begin - *region_begin, *bytes);
  }
  return {};
}

std::optional<std::uint32_t> extended_flags(const File& file) {
  fsxattr attributes{};
  if (::ioctl(file.descriptor(), FS_IOC_FSGETXATTR, &attributes) != 0) return std::nullopt;
  return attributes.fsx_xflags;
}

DataSection data_section(std::optional<std::uint32_t> flags) {
  if (!flags) return DataSection::NotKnown;
  return (*flags & FS_XFLAG_REALTIME) != 0 ? DataSection::Realtime : DataSection::Main;
}

std::optional<dev_t> device_of_bytes(dev_t own, DataSection section,
                                     const std::string& mount_options, const std::string& root) {
  const std::string path = option_value(mount_options, "rtdev=");
  switch (section) {
    case DataSection::Main: return own;
    case DataSection::NotKnown: return path.empty() ? std::optional(own) : std::nullopt;
    case DataSection::Realtime: break;
  }
  return path.empty() ? std::nullopt : block_device_at(root + path);
}

Result<std::vector<Range>> bad_blocks_of(const File& file, const std::string& root) {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) return errno_error(file.path(), errno);
  if (file.is_device()) return bad_of_dax_device(status.st_rdev, root);
  const auto device = device_of_bytes(status.st_dev, data_section(extended_flags(file)),
                                      mount_of(file.descriptor()).options, root);
  if (!device) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{}: it lies, or may lie, in the realtime section of its file system, "
                             "and what the device of that has lost can not be seen: let the "
                             "device that the mount's option rtdev= names be seen here, and the "
                             "ioctl FS_IOC_FSGETXATTR be allowed",
                             file.path())};
  }
  if (const auto drives = bad_drives_below(*device, root); !drives.empty()) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{}: {} below it has bad blocks (`ndctl list -M`), and a device "
                             "between (device mapper) does not say whether they are this file's: "
                             "clear them, and repair the pool from another replica",
                             file.path(), fmt::join(drives, ", "))};
  }
  const auto bad = bad_of_block_device(*device, root);
  if (bad.empty()) return bad;
  const auto extents = extents_of(file);
  if (extents.ok()) return bad_in_file(*extents, bad);
  return Error{ErrorCode::Unsupported,
               fmt::format("{}: the device below has {} runs of bad blocks (`ndctl list -M`), and "
                           "the file system does not say whether they are this file's: {}",
                           file.path(), bad.size(), extents.error().message)};
}

}  // namespace perdure::pmem
