// The machine, as it describes itself.
#include "report/setup.h"

#include "core/text_file.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>

namespace perdure::report {
namespace {

/// The value of the first line "key : value" of a file below /proc.
std::string field_of(const std::string& path, std::string_view key) {
  const std::string text = read_text(path);
  const std::size_t at = text.find(key);
  if (at == std::string::npos) return "unknown";
  const std::size_t colon = text.find(':', at);
  const std::size_t end = text.find('\n', at);
  if (colon == std::string::npos || end == std::string::npos || colon > end) return "unknown";
  const std::size_t begin = text.find_first_not_of(" \t", colon + 1);
  return begin >= end ? "unknown" : text.substr(begin, end - begin);
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string kernel() {
  utsname name{};
  if (::uname(&name) != 0) return "unknown";
  return fmt::format("{} {} {}", name.sysname, name.release, name.machine);
}

}  // namespace

std::string Setup::text() const {
  std::string out;
  for (const auto& [name, value] : rows) out += fmt::format("{}: {}\n", name, value);
  return out;
}

Setup machine_setup() {
  Setup setup;
  setup.add("Perdure", std::string(build_version()));
  setup.add("Commit", std::string(build_commit()));
  setup.add("Build", fmt::format("{}, {}", build_type(), compiler()));
  setup.add("Processor", fmt::format("{}, {} cores online", field_of("/proc/cpuinfo", "model name"),
                                     ::sysconf(_SC_NPROCESSORS_ONLN)));
  setup.add("Memory", field_of("/proc/meminfo", "MemTotal"));
  setup.add("Kernel", kernel());
  setup.add("Time", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr))));
  return setup;
}

std::string configuration_hash(std::string_view description) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bits
  for (const char c : description) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace perdure::report
