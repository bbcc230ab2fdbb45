// See read_ahead.h.
#include "pmem/read_ahead.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>

#include "core/assert.h"

namespace perdure::pmem {
namespace {

/// Of one call the kernel takes no more than the drive's read_ahead_kb, 128 unless it was changed.
constexpr std::size_t kAskBytes = std::size_t{128} << 10;

/// MemAvailable of /proc/meminfo; 0: not shown.
std::uint64_t available_bytes() {
  std::ifstream in("/proc/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  for (std::string rest; in >> name >> kib; std::getline(in, rest)) {
    if (name == "MemAvailable:") return kib << 10;
  }
  return 0;
}

/// memory.max of this process's control group of version 2; 0: it has none, or no limit.
std::uint64_t group_bytes() {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("0::")) continue;
    std::ifstream limit("/sys/fs/cgroup" + line.substr(3) + "/memory.max");
    std::uint64_t bytes = 0;
    return limit >> bytes ? bytes : 0;
  }
  return 0;
}

}  // namespace

bool ask_for_pages(std::span<std::byte> part) {
  for (std::size_t at = 0; at < part.size(); at += kAskBytes) {
    const auto piece = part.subspan(at, std::min(kAskBytes, part.size() - at));
    if (::madvise(piece.data(), piece.size(), MADV_WILLNEED) != 0) return false;
  }
  return true;
}

std::uint64_t read_ahead_bytes_max() {
  const std::uint64_t machine = available_bytes();
  const std::uint64_t group = group_bytes();
  return (group != 0 ? std::min(machine, group) : machine) / 2;
}

ReadAheadBudget& ReadAheadBudget::of_process() {
  static ReadAheadBudget budget(read_ahead_bytes_max);
  return budget;
}

ReadAheadBudget::Share ReadAheadBudget::take(std::uint64_t wanted) {
  const std::uint64_t most = most_();  // reads files: before the lock
  const MutexLock lock(mutex_);
  const std::uint64_t bytes = std::min(wanted, most > taken_ ? most - taken_ : 0);
  taken_ += bytes;
  return {*this, bytes};
}

std::uint64_t ReadAheadBudget::taken() const {
  const MutexLock lock(mutex_);
  return taken_;
}

void ReadAheadBudget::give_back(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  PERDURE_ASSERT(bytes <= taken_);
  taken_ -= bytes;
}

ReadAhead::ReadAhead(std::span<std::byte> mapping, ReadAheadBudget& budget)
    : share_(budget.take(mapping.size())) {
  const auto bytes = static_cast<std::size_t>(share_.bytes());
  if (bytes == 0) return;
  try {
    thread_ = std::thread([this, part = mapping.first(bytes)] {
      for (std::size_t at = 0; at < part.size() && !stop_.load(); at += kAskBytes) {
        if (!ask_for_pages(part.subspan(at, std::min(kAskBytes, part.size() - at)))) return;
      }
    });
  } catch (const std::system_error&) {  // no thread: no read-ahead
  }
}

ReadAhead::~ReadAhead() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

}  // namespace perdure::pmem
