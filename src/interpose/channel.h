// The channel between a mirrored program, all of its processes, and the command that mirrors it: a
// file that both sides map. A thread of the program takes a lane, says what it wants, and waits for
// the answer in the lane's word; the command has a thread for each lane.
//
//   Idle -> Asked      by the program, whose process has taken the lane
//   Asked -> Answered  by the command
//   Answered -> Idle   by the program, which then gives the lane back
//
// A process that is killed leaves its lane as it was: whoever finds it taken by a process that is
// no more takes it over, once the command has answered. Of processes in another PID namespace
// nobody knows whether they are. A program that becomes another one (exec) gives up the lanes that
// its threads had.
#pragma once

#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace perdure::interpose {

inline constexpr std::uint64_t kChannelMagic = 0x4e48434d44524550;  // "PERDMCHN"
inline constexpr std::uint32_t kChannelVersion = 3;
inline constexpr std::size_t kLanes = 16;
inline constexpr std::size_t kMirroredMax = 16;  // files
inline constexpr std::size_t kRangesOfLane = 256;
inline constexpr std::size_t kChannelPathMax = 4096;

/// A process: its number, and the inode of the PID namespace in which it has that; 0: none.
using ProcessName = std::uint64_t;
inline constexpr ProcessName kGivenUp = UINT64_MAX;  // of a lane: nobody waits for its answer

inline ProcessName name_of(std::uint32_t process, std::uint64_t name_space) {
  return name_space << 32 | process;
}
/// Of this process; 0: it is not known (/proc is not there).
inline std::uint64_t pid_namespace() {
  struct ::stat status = {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino & UINT32_MAX : 0;
}

enum class LaneState : std::uint32_t { Idle, Asked, Answered };

enum class Ask : std::uint32_t {
  Map,    // the file's first `length` bytes are mapped from now on: ranges[0]
  Drain,  // all ranges are to be durable on the replicas
};

struct ChannelRange {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

/// Which file the command mirrors by one of the paths. What the program flushes of this inode is
/// that file's, by whatever name it was mapped. The command shows it before it compares the file
/// with the replicas: what was stored before a flush that does not find it here yet is compared.
struct ChannelFile {
  std::atomic<std::uint64_t> device = 0;
  std::atomic<std::uint64_t> inode = 0;  // 0: none
  std::atomic<std::uint64_t> cuts = 0;   // by the program: its bytes changed by no store
};

struct alignas(64) ChannelLane {
  std::atomic<ProcessName> process = 0;  // of the program, that has it; 0: free
  std::atomic<std::uint32_t> state = 0;  // a LaneState; a futex
  Ask ask = Ask::Drain;
  std::uint32_t count = 0;  // of ranges
  std::int32_t error = 0;   // the answer: 0, or an errno
  ChannelRange ranges[kRangesOfLane];
};

struct ChannelHeader {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t file_count = 0;
  ProcessName command = 0;
  std::atomic<std::uint64_t> maps = 0;
  std::atomic<std::uint64_t> flushes = 0;  // ranges, as the program flushed them
  std::atomic<std::uint64_t> drains = 0;   // that had something to wait for
  char paths[kMirroredMax][kChannelPathMax] = {};
  ChannelFile files[kMirroredMax];
  ChannelLane lanes[kLanes];
};

/// Sleeps while the word holds `value`, at most for this long; may wake for nothing.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, long milliseconds) {
  const timespec time = {milliseconds / 1000, milliseconds % 1000 * 1'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}
inline void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

inline bool is_shown(const ChannelFile& file, std::uint64_t device, std::uint64_t inode) {
  return inode != 0 && file.inode.load() == inode && file.device.load() == device;
}
/// The same file again is shown throughout: what is drained meanwhile waits for its comparison.
inline void show(ChannelFile& file, std::uint64_t device, std::uint64_t inode) {
  if (is_shown(file, device, inode)) return;
  file.inode.store(0);
  file.device.store(device);
  file.inode.store(inode);
}

inline LaneState state_of(const ChannelLane& lane) {
  return static_cast<LaneState>(lane.state.load(std::memory_order_acquire));
}
inline void set_state(ChannelLane& lane, LaneState state) {
  lane.state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
  futex_wake(lane.state);
}

}  // namespace perdure::interpose
