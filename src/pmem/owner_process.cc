// Which process had a pool: see owner_process.h.
#include "pmem/owner_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"

namespace perdure::pmem {
namespace {

constexpr std::uint64_t kOwnerMagic = 0x504E574F44524550;  // "PERDOWNP" in memory
constexpr std::uint32_t kOwnerVersion = 1;
constexpr std::size_t kOwnerBootAt = 40;
constexpr std::size_t kOwnerBootBytes = 40;
constexpr std::size_t kOwnerChecksumAt = 252;

/// When a process started, as /proc/PID/stat has it (field 22; proc(5)); nothing: not to be seen.
std::optional<std::uint64_t> start_of(const std::string& process) {
  std::ifstream in("/proc/" + process + "/stat");
  std::string line;
  std::getline(in, line);
  const std::size_t name_end = line.rfind(')');  // the name of a program may have spaces
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  constexpr int kStartField = 22;
  std::string word;
  for (int field = 3; field <= kStartField; ++field) {
    if (!(fields >> word)) return std::nullopt;
  }
  return std::strtoull(word.c_str(), nullptr, 10);
}

std::uint64_t this_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

/// Whether a process with this number has not ended: not even as one that its parent did not wait
/// for yet, which has no files any more.
bool is_running(int process) {
  const int descriptor = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (descriptor < 0) return errno != ESRCH && errno != EINVAL;
  pollfd ended{descriptor, POLLIN, 0};
  const bool has_ended = ::poll(&ended, 1, 0) > 0;
  ::close(descriptor);
  return !has_ended;
}

}  // namespace

std::string this_boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id.empty() ? kUnknownBoot : id.substr(0, kOwnerBootBytes - 1);
}

void note_owner(std::span<std::byte> bytes, std::uint64_t place) {
  PERDURE_ASSERT(bytes.size() >= kOwnerProcessBytes);
  std::array<std::byte, kOwnerProcessBytes> owner{};
  store(owner.data(), kOwnerMagic);
  store(owner.data() + 8, kOwnerVersion);
  store(owner.data() + 12, static_cast<std::uint32_t>(::getpid()));
  store(owner.data() + 16, start_of("self").value_or(0));
  store(owner.data() + 24, this_namespace());
  store(owner.data() + 32, place);
  const std::string boot = this_boot();
  std::memcpy(owner.data() + kOwnerBootAt, boot.data(), boot.size());
  store(owner.data() + kOwnerChecksumAt, crc32c(std::span(owner).first(kOwnerChecksumAt)));
  std::copy(owner.begin(), owner.end(), bytes.begin());
}

void forget_owner(std::span<std::byte> bytes) { store(bytes.data(), std::uint64_t{0}); }

std::optional<int> owner_still_ending(std::span<const std::byte> bytes, std::uint64_t place) {
  if (bytes.size() < kOwnerProcessBytes || load<std::uint64_t>(bytes.data()) != kOwnerMagic ||
      load<std::uint32_t>(bytes.data() + 8) != kOwnerVersion ||
      load<std::uint32_t>(bytes.data() + kOwnerChecksumAt) !=
          crc32c(bytes.first(kOwnerChecksumAt))) {
    return std::nullopt;
  }
  const auto* boot = reinterpret_cast<const char*>(bytes.data() + kOwnerBootAt);
  if (std::string(boot, ::strnlen(boot, kOwnerBootBytes)) != this_boot()) return std::nullopt;
  if (load<std::uint64_t>(bytes.data() + 24) != this_namespace()) return std::nullopt;
  if (load<std::uint64_t>(bytes.data() + 32) != place) return std::nullopt;
  const auto process = static_cast<int>(load<std::uint32_t>(bytes.data() + 12));
  if (process == ::getpid() || !is_running(process)) return std::nullopt;
  // Another one may have the number by now. Where processes can be seen at all, one that can not is
  // none, or another user's: pidfd_open may be forbidden, or unknown to an old kernel.
  const auto start = start_of(std::to_string(process));
  if (!start && start_of("self")) return std::nullopt;
  if (start && *start != load<std::uint64_t>(bytes.data() + 16)) return std::nullopt;
  return process;
}

}  // namespace perdure::pmem
