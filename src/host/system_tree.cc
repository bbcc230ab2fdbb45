// Reading /proc and /sys below a root.
#include "host/system_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <system_error>

namespace perdure::host {
namespace {

namespace fs = std::filesystem;

Reading unreadable(Reading reading, int reason) {
  const bool absent = reason == ENOENT || reason == ENOTDIR;
  reading.state = absent ? Reading::State::Absent : Reading::State::Unreadable;
  reading.text.clear();
  reading.reason = std::generic_category().message(reason);
  return reading;
}

void trim_end(std::string& text) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  text.erase(last == std::string::npos ? 0 : last + 1);
}

}  // namespace

std::string Reading::evidence() const {
  constexpr std::size_t kShownMax = 100;
  if (absent()) return fmt::format("{}: is not there", path);
  if (!read()) return fmt::format("{}: can not be read ({})", path, reason);
  return fmt::format("{}: {}", path, text.substr(0, std::min(text.find('\n'), kShownMax)));
}

std::optional<std::uint64_t> Reading::number() const {
  return read() ? number_in(text) : std::nullopt;
}

Reading SystemTree::read_bytes(const std::string& path) const {
  Reading reading;
  reading.path = path;
  const int file = ::open(below_root(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return unreadable(std::move(reading), errno);
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while (reading.text.size() < kFileBytesMax &&
         (got = ::read(file, part.data(), part.size())) > 0) {
    reading.text.append(part.data(), static_cast<std::size_t>(got));
  }
  const int reason = errno;
  ::close(file);
  if (got < 0) return unreadable(std::move(reading), reason);
  reading.state = Reading::State::Read;
  return reading;
}

Reading SystemTree::read(const std::string& path) const {
  Reading reading = read_bytes(path);
  trim_end(reading.text);
  return reading;
}

std::vector<std::string> SystemTree::names(const std::string& directory) const {
  std::vector<std::string> found;
  std::error_code failed;
  for (fs::directory_iterator at(below_root(directory), failed), end; !failed && at != end;
       at.increment(failed)) {
    if (found.size() == kNamesMax) break;
    found.push_back(at->path().filename().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool SystemTree::exists(const std::string& path) const {
  std::error_code ignored;
  return fs::exists(below_root(path), ignored);
}

std::string SystemTree::resolve(const std::string& path) const {
  std::error_code failed;
  const std::string top = root_.empty() ? "" : fs::canonical(root_, failed).string();
  if (failed) return {};
  const std::string whole = fs::canonical(below_root(path), failed).string();
  if (failed || whole.rfind(top, 0) != 0) return {};
  return whole.substr(top.size());
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string last_name(const std::string& path) { return fs::path(path).filename().string(); }

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace perdure::host
