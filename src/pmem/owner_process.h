// OwnerProcess: which process had a pool, for whoever gets its lock next. When a process is killed
// the kernel lets go of its files one after another, in an order that it promises nobody: the lock
// of a pool may be free while the RNIC still has the queue pairs that write to it (seen on Linux
// 6.18: the file with the highest number goes first, and a daemon opens its RNICs before its
// pools). The process itself has ended only when all its files have.
//
//   offset   size  field
//   0        8     magic      the characters "PERDOWNP"
//   8        4     version    1
//   12       4     process    its number
//   16       8     start      of the process, in clock ticks since the machine started
//   24       8     namespace  in which it has that number
//   32       8     place      of the pool (Pool::place): in a copy this names nobody
//   40       40    boot id    of its kernel, as text (kUnknownBoot: the start tells kernels apart)
//   80       172   zero
//   252      4     checksum   CRC32C of the 252 bytes before it
//
// Not flushed: it matters only as long as the kernel lives that caches it. Torn, it names nobody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace perdure::pmem {

inline constexpr std::size_t kOwnerProcessBytes = 256;

/// What is written for a boot id that can not be read (ProcSubset=pid of systemd). It is the same
/// for every kernel, so by itself it never means that something is of this one.
inline constexpr char kUnknownBoot[] = "unknown";

/// This kernel's (/proc/sys/kernel/random/boot_id), at most 39 characters; or kUnknownBoot.
std::string this_boot();

/// Writes down this process.
void note_owner(std::span<std::byte> bytes, std::uint64_t place);

/// Nobody: the owner gives the pool up, with nothing left that could write to it.
void forget_owner(std::span<std::byte> bytes);

/// The process that had the pool in this place, if it has not ended. Nobody: this process; one that
/// can not be seen from here, of another PID namespace.
std::optional<int> owner_still_ending(std::span<const std::byte> bytes, std::uint64_t place);

}  // namespace perdure::pmem
