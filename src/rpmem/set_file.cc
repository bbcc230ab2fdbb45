// Set files of PMDK: see set_file.h.
#include "rpmem/set_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "core/bytes.h"
#include "core/errno_error.h"
#include "core/text_file.h"
#include "core/try.h"
#include "rpmem/part_header.h"

namespace perdure::rpmem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSignature = "PMEMPOOLSET";

Error wrong(const std::string& path, std::size_t line, const std::string& what) {
  return {ErrorCode::InvalidArgument, fmt::format("{}:{}: {}", path, line, what)};
}

Error not_served(const std::string& path, std::size_t line, const std::string& what) {
  return {ErrorCode::Unsupported, fmt::format("{}:{}: {}", path, line, what)};
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return words;
    const std::size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
}

Result<void> read_options(SetFile& set, std::span<const std::string_view> words, std::size_t line) {
  if (words.empty()) return wrong(set.path, line, "OPTION without an option");
  for (const std::string_view word : words) {
    if (word == "NOHDRS") {
      set.no_headers = true;
    } else if (word == "SINGLEHDR") {
      set.single_header = true;
    } else {
      return wrong(set.path, line,
                   fmt::format("option '{}'; there are SINGLEHDR and NOHDRS", word));
    }
  }
  return {};
}

Result<void> read_part(SetFile& set, std::span<const std::string_view> words, std::size_t line) {
  if (words.size() != 2) {
    return wrong(set.path, line, "a part is a size and a path, such as `16M /srv/pmem/part0`");
  }
  const std::string path(words[1]);
  if (path.front() != '/') {
    return wrong(set.path, line, fmt::format("the path '{}' is not absolute", path));
  }
  if (path.back() == '/') {
    return not_served(set.path, line,
                      fmt::format("'{}' is a directory; rpmemd serves part files only: name the "
                                  "files",
                                  path));
  }
  if (words[0] == "AUTO") {
    return not_served(set.path, line, "AUTO stands for a device; rpmemd serves part files only");
  }
  const auto bytes = parse_part_size(words[0]);
  if (!bytes) return wrong(set.path, line, bytes.error().message);
  if (*bytes < kPartBytesMin || *bytes > kPartBytesMax) {
    return wrong(set.path, line,
                 fmt::format("a part of {} bytes; parts have {} to {}", *bytes, kPartBytesMin,
                             kPartBytesMax));
  }
  if (set.parts.size() == kPartsMax) {
    return wrong(set.path, line, fmt::format("more than {} parts", kPartsMax));
  }
  set.parts.push_back({path, *bytes, line});
  return {};
}

Result<void> read_line(SetFile& set, std::string_view text, std::size_t line) {
  const auto words = words_of(text);
  if (words.empty()) return {};  // blanks, with a comment behind them or not
  const std::span<const std::string_view> rest = std::span(words).subspan(1);
  if (words[0] == "OPTION") return read_options(set, rest, line);
  if (words[0] == "REPLICA") {
    return not_served(set.path, line,
                      "a set that is served to a remote client is one replica: it takes no "
                      "REPLICA; name the others in the client's set");
  }
  return read_part(set, words, line);
}

Result<void> check(const SetFile& set, std::size_t lines) {
  if (set.parts.empty()) return wrong(set.path, lines, "the set has no parts");
  if (set.no_headers && set.single_header) {
    return wrong(set.path, lines, "SINGLEHDR and NOHDRS exclude each other");
  }
  std::set<std::string> paths;
  for (const SetPart& part : set.parts) {
    if (paths.insert(part.path).second) continue;
    return wrong(set.path, part.line, fmt::format("'{}' is there twice", part.path));
  }
  return {};
}

Result<std::string> real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (real == nullptr) return errno_error(path, errno);
  return std::string(real.get());
}

bool lies_in(const std::string& path, const std::string& directory) {
  if (directory == "/") return true;
  return path.size() > directory.size() && path.compare(0, directory.size(), directory) == 0 &&
         path[directory.size()] == '/';
}

/// Where a part is or would be, behind links.
Result<std::string> real_place(const std::string& path) {
  auto there = real_path(path);
  if (there.ok() || there.code() != ErrorCode::NotFound) return there;
  const fs::path parsed(path);
  PERDURE_TRY(directory, real_path(parsed.parent_path().string()));
  return directory + (directory == "/" ? "" : "/") + parsed.filename().string();
}

Result<void> require_inside(const SetDirectories& directories, SetFile& set, bool force) {
  const auto left_out = [&](const Result<std::string>& place) {
    return force && !place.ok() && place.code() == ErrorCode::NotFound;
  };
  std::vector<std::string> allowed;
  for (const std::string& each : directories.parts) {
    auto real = real_path(each);
    if (left_out(real)) continue;
    if (!real) return real.error();
    allowed.push_back(std::move(real).value());
  }
  PERDURE_TRY(sets, real_path(directories.sets));
  allowed.push_back(std::move(sets));
  const std::vector<SetPart> all = std::exchange(set.parts, {});
  for (const SetPart& part : all) {
    auto real = real_place(part.path);
    if (left_out(real)) continue;
    set.parts.push_back(part);
    if (!real) {
      return Error{real.code(),
                   fmt::format("{}:{}: {}", set.path, part.line, real.error().message)};
    }
    const auto has = [&](const std::string& each) { return lies_in(*real, each); };
    if (std::any_of(allowed.begin(), allowed.end(), has)) continue;
    return Error{ErrorCode::PermissionDenied,
                 fmt::format("{}:{}: '{}' lies outside of '{}'; if it may, say `part-dir = {}` in "
                             "rpmemd.conf",
                             set.path, part.line, part.path, directories.sets,
                             fs::path(part.path).parent_path().string())};
  }
  return {};
}

}  // namespace

std::uint64_t SetFile::data_at(std::size_t part) const {
  return part != 0 && part < headers() ? kHeaderBytes : 0;
}

std::uint64_t SetFile::data_bytes(std::size_t part) const {
  return round_down(parts[part].bytes, kPageBytes) - data_at(part);
}

std::uint64_t SetFile::pool_bytes() const {
  std::uint64_t sum = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) sum += data_bytes(part);
  return sum;
}

Result<std::uint64_t> parse_part_size(std::string_view word) {
  constexpr std::string_view kUnits = "KMGTP";
  const Error error{ErrorCode::InvalidArgument,
                    fmt::format("the size '{}'; write it like 16M, 16MiB, 16MB or 16777216", word)};
  std::size_t digits = 0;
  std::uint64_t value = 0;
  for (; digits < word.size() && word[digits] >= '0' && word[digits] <= '9'; ++digits) {
    const auto digit = static_cast<std::uint64_t>(word[digits] - '0');
    if (value > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) return error;
    value = value * 10 + digit;
  }
  if (digits == 0 || value == 0) return error;
  const std::string_view unit = word.substr(digits);
  if (unit.empty() || unit == "B") return value;
  const std::size_t power = kUnits.find(unit.front());
  const std::string_view rest = unit.substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "iB" && rest != "B")) {
    return error;
  }
  const std::uint64_t base = rest == "B" ? 1000 : 1024;
  for (std::size_t count = 0; count <= power; ++count) {
    if (value > std::numeric_limits<std::uint64_t>::max() / base) return error;
    value *= base;
  }
  return value;
}

Result<SetFile> parse_set_file(std::string_view text, const std::string& path) {
  SetFile set;
  set.path = path;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find('\0') != std::string_view::npos) return wrong(path, number, "a byte of zero");
    if (number == 1) {
      if (line != kSignature) {
        return wrong(path, 1, fmt::format("a set file begins with the line {}", kSignature));
      }
      continue;
    }
    line = line.substr(0, line.find('#'));
    if (line.empty()) continue;
    PERDURE_TRY_VOID(read_line(set, line, number));
  }
  PERDURE_TRY_VOID(check(set, std::max<std::size_t>(number, 1)));
  return set;
}

Result<std::string> find_set(const SetDirectories& directories, const std::string& name) {
  const bool readable = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (name.empty() || name.size() > kSetNameMax || !readable) {
    return Error{ErrorCode::InvalidArgument, "the name of a set is a relative path"};
  }
  const fs::path relative(name);
  const bool climbs = std::find(relative.begin(), relative.end(), "..") != relative.end();
  if (relative.is_absolute() || climbs) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the set '{}': a set is named relative to '{}', and lies in it", name,
                             directories.sets)};
  }
  PERDURE_TRY(root, real_path(directories.sets));
  PERDURE_TRY(real, real_path((fs::path(directories.sets) / relative).string()));
  if (lies_in(real, root)) return real;
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("the set '{}' is a link that leads out of '{}'", name, directories.sets)};
}

Result<SetFile> read_set(const SetDirectories& directories, const std::string& name, bool force) {
  PERDURE_TRY(path, find_set(directories, name));
  PERDURE_TRY(text, load_text(path, kSetFileBytesMax));
  PERDURE_TRY(set, parse_set_file(text, path));
  PERDURE_TRY_VOID(require_inside(directories, set, force));
  return set;
}

}  // namespace perdure::rpmem
