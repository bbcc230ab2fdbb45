// The journal of a recorded program: one file that all its processes map, so that what they wrote
// is there however they end.
//
//   0                 Header: counters, the table of files, the table of threads
//   kEventsAt         events of 16 bytes, in the order in which their places were taken
//
// An event's second word is written last. Of one whose thread was killed in between that word is
// zero: it is skipped. The reader comes when all processes have ended.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace perdure::interpose {

inline constexpr std::uint64_t kJournalMagic = 0x4c4e524a44524550;  // "PERDJRNL"
inline constexpr std::uint32_t kJournalVersion = 2;
inline constexpr std::uint64_t kLineBytes = 64;
inline constexpr std::size_t kFilesMax = 64;
inline constexpr std::size_t kThreadsMax = 4096;  // as many as a trace can name
inline constexpr std::size_t kPathMax = 4096;
/// Beside the journal, with the number of its file behind it: a copy of what was flushed.
inline constexpr const char* kShadowName = "shadow.";
/// 16 GiB of journal; more is counted as lost.
inline constexpr std::uint64_t kEventsMax = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kEventsPerStep = std::uint64_t{1} << 16;

enum class JournalKind : std::uint8_t { Write = 1, Ordered = 2, Durable = 3 };

struct JournalEvent {
  std::uint64_t line = 0;                // of its file, for Write
  std::atomic<std::uint64_t> what = {};  // see pack()
};

struct JournalWhat {
  JournalKind kind = JournalKind::Write;
  std::uint32_t file = 0;
  std::uint32_t thread = 0;
};

constexpr std::uint64_t pack(const JournalWhat& what) {
  return static_cast<std::uint64_t>(what.kind) | static_cast<std::uint64_t>(what.file) << 8 |
         static_cast<std::uint64_t>(what.thread) << 32;
}

constexpr JournalWhat unpack(std::uint64_t word) {
  return {static_cast<JournalKind>(word & 0xff), static_cast<std::uint32_t>((word >> 8) & 0xffffff),
          static_cast<std::uint32_t>(word >> 32)};
}

struct JournalFile {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t shadow_device = 0;
  std::uint64_t shadow_inode = 0;            // 0: it has none yet
  std::uint64_t shadowed = 0;                // bytes of it that the shadow had from the file
  std::atomic<std::uint64_t> mapped_to = 0;  // the largest end of a mapping
  char path[kPathMax] = {};
};

struct JournalThread {
  std::atomic<std::uint64_t> process = 0;
  std::atomic<std::uint64_t> flushes = 0;        // ranges
  std::atomic<std::uint64_t> flushed_lines = 0;  // of those ranges
  std::atomic<std::uint64_t> changed_lines = 0;  // of those, the ones that became events
  std::atomic<std::uint64_t> drains = 0;         // of either kind
  std::atomic<std::uint64_t> epochs = 0;         // drains with a changed line since the one before
};

struct JournalHeader {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::atomic<std::uint32_t> thread_count = 0;
  std::atomic<std::uint64_t> event_count = 0;   // places taken
  std::atomic<std::uint64_t> allocated = 0;     // places that the file system has granted
  std::atomic<std::uint64_t> lost_places = 0;   // events for which there was no room
  std::atomic<std::uint64_t> lost_threads = 0;  // events of threads beyond kThreadsMax
  pthread_mutex_t files_mutex;                  // robust, shared between processes
  std::uint32_t file_count = 0;
  std::uint32_t refused_files = 0;  // which could not be shadowed
  JournalFile files[kFilesMax];
  JournalThread threads[kThreadsMax];
};

inline constexpr std::uint64_t kEventsAt = std::uint64_t{1} << 20;
static_assert(sizeof(JournalHeader) <= kEventsAt);
static_assert(sizeof(JournalEvent) == 16);

}  // namespace perdure::interpose
