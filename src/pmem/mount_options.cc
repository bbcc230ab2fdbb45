// With which options a file system is mounted.
#include "pmem/mount_options.h"

#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <sstream>
#include <vector>

namespace perdure::pmem {

std::string mount_options_in(std::string_view mountinfo, dev_t device) {
  // id parent major:minor root place options [tags...] - type source super-options (proc(5))
  constexpr std::size_t kDeviceWord = 2;
  constexpr std::size_t kOptionsWord = 5;
  const std::string wanted = fmt::format("{}:{}", major(device), minor(device));
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    if (words.size() <= kOptionsWord || words[kDeviceWord] != wanted) continue;
    return words[kOptionsWord] + "," + words.back();
  }
  return {};
}

std::string mount_options_of(dev_t device) {
  std::ifstream in("/proc/self/mountinfo");
  std::stringstream text;
  text << in.rdbuf();
  return mount_options_in(text.str(), device);
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
