// Recording: see recorder.h.
#include "interpose/recorder.h"

#include "interpose/journal.h"
#include "interpose/raw.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace perdure::interpose {
namespace {

constexpr std::uint32_t kNoThread = UINT32_MAX;
constexpr std::size_t kDirectoryMax = 3000;
constexpr std::uint64_t kJournalBytes = kEventsAt + kEventsMax * sizeof(JournalEvent);

void add(std::atomic<std::uint64_t>& counter, std::uint64_t count) {
  counter.fetch_add(count, std::memory_order_relaxed);
}

/// A mutex of the journal: whoever held it may have been killed, which does no harm to what it
/// protects.
class Held {
 public:
  explicit Held(pthread_mutex_t& mutex) : mutex_(mutex) {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  ~Held() { pthread_mutex_unlock(&mutex_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

class Recorder final : public Backend {
 public:
  bool open(const char* directory);

  int attach(int descriptor, const struct ::stat& status) override;
  bool map(const FileRange& range) override;
  void unmap(const FileRange& /*range*/) override {}
  void flush(const FileRange& range) override;
  void drain(Drain drain) override;
  void forked() override;

 private:
  struct Shadow {
    char* bytes = nullptr;
    std::uint64_t length = 0;
    int file = -1;      // of the shadow
    int original = -1;  // the program's file, a descriptor of our own
  };
  struct Mine {  // of a thread
    std::uint32_t number = kNoThread;
    std::uint32_t generation = 0;
    bool changed = false;  // a line since its last drain
  };

  int enter(int descriptor, const struct ::stat& status);
  bool open_shadow(int number, int descriptor);
  bool fill_shadow(int number, std::uint64_t end);
  bool copy_bytes(const Shadow& shadow, std::uint64_t from, std::uint64_t end);
  Mine& mine();
  void record(Mine& thread, JournalKind kind, int file, std::uint64_t line);
  bool allocate(std::uint64_t index);

  char directory_[kDirectoryMax] = {};
  JournalHeader* header_ = nullptr;
  JournalEvent* events_ = nullptr;
  int journal_ = -1;
  Shadow shadows_[kFilesMax];
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // shadows and events agree
  std::uint32_t generation_ = 1;                       // counts forks
};

/// Where the program's own descriptors are not.
int moved_up(int descriptor) {
  if (descriptor < 0) return descriptor;
  constexpr int kAbove = 500;
  const int up = ::fcntl(descriptor, F_DUPFD_CLOEXEC, kAbove);
  if (up < 0) return descriptor;
  ::close(descriptor);
  return up;
}

bool Recorder::open(const char* directory) {
  if (std::strlen(directory) >= kDirectoryMax) return false;
  std::strcpy(directory_, directory);  // NOLINT: its length was checked
  char path[kDirectoryMax + 32];
  std::snprintf(path, sizeof path, "%s/journal", directory_);
  journal_ = moved_up(::open(path, O_RDWR | O_CLOEXEC));
  if (journal_ < 0) {
    say("the journal of the recording can not be opened: ", path);
    return false;
  }
  char* const mapping = raw_mmap(nullptr, kJournalBytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_NORESERVE, journal_, 0);
  if (failed(mapping)) {
    say("the journal of the recording can not be mapped: ", std::strerror(errno));  // NOLINT
    return false;
  }
  header_ = reinterpret_cast<JournalHeader*>(mapping);
  if (header_->magic != kJournalMagic || header_->version != kJournalVersion) {
    say("this is no journal of this version: ", path);
    return false;
  }
  events_ = reinterpret_cast<JournalEvent*>(mapping + kEventsAt);
  return true;
}

int Recorder::attach(int descriptor, const struct ::stat& status) {
  const Held held(header_->files_mutex);
  const int number = enter(descriptor, status);
  if (number < 0) return number;
  if (shadows_[number].file < 0 && !open_shadow(number, descriptor)) {
    ++header_->refused_files;
    return kNotWanted;
  }
  return number;
}

/// Its number in the journal's table of files.
int Recorder::enter(int descriptor, const struct ::stat& status) {
  for (std::uint32_t number = 0; number < header_->file_count; ++number) {
    const JournalFile& known = header_->files[number];
    if (known.device == status.st_dev && known.inode == status.st_ino) {
      return static_cast<int>(number);
    }
  }
  if (header_->file_count == kFilesMax) {
    say("more files are mapped than a recording can have: this one is left out");
    ++header_->refused_files;
    return kNotWanted;
  }
  JournalFile& file = header_->files[header_->file_count];
  file.device = status.st_dev;
  file.inode = status.st_ino;
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = ::readlink(link, file.path, kPathMax - 1);
  file.path[std::max<ssize_t>(length, 0)] = '\0';
  return static_cast<int>(header_->file_count++);
}

bool Recorder::open_shadow(int number, int descriptor) {
  char path[kDirectoryMax + 64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  Shadow& shadow = shadows_[number];
  shadow.original = moved_up(::open(path, O_RDONLY | O_CLOEXEC));
  std::snprintf(path, sizeof path, "%s/shadow.%d", directory_, number);
  shadow.file = moved_up(::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (shadow.original >= 0 && shadow.file >= 0) return true;
  say("a file that is mapped can not be copied, and is left out: ", header_->files[number].path);
  if (shadow.original >= 0) ::close(shadow.original);
  if (shadow.file >= 0) ::close(shadow.file);
  shadow = {};
  return false;
}

bool Recorder::map(const FileRange& range) {
  const std::uint64_t end = range.offset + range.length;
  const Held held(header_->files_mutex);
  pthread_mutex_lock(&mutex_);
  const bool good = fill_shadow(range.file, end);
  pthread_mutex_unlock(&mutex_);
  JournalFile& file = header_->files[range.file];
  if (good && file.mapped_to.load() < end) file.mapped_to.store(end);
  return good;
}

/// The shadow covers the file's first `end` bytes, and has those that it did not cover before from
/// the file.
bool Recorder::fill_shadow(int number, std::uint64_t end) {
  JournalFile& file = header_->files[number];
  Shadow& shadow = shadows_[number];
  if (file.shadowed < end) {
    if (::ftruncate(shadow.file, static_cast<off_t>(end)) != 0 ||
        !copy_bytes(shadow, file.shadowed, end)) {
      say("no copy of a mapped file can be made for the recording: ", file.path);
      return false;
    }
    file.shadowed = end;
  }
  if (shadow.length >= end) return true;
  // The old mapping stays: it is of the same file.
  char* const mapping =
      raw_mmap(nullptr, end, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, shadow.file, 0);
  if (failed(mapping)) return false;
  if (shadow.bytes != nullptr) raw_munmap(shadow.bytes, shadow.length);
  shadow.bytes = mapping;
  shadow.length = end;
  return true;
}

/// Holes stay holes.
bool Recorder::copy_bytes(const Shadow& shadow, std::uint64_t from, std::uint64_t end) {
  constexpr std::size_t kBlock = 65536;
  char block[kBlock];
  auto at = static_cast<off_t>(from);
  while (at < static_cast<off_t>(end)) {
    at = ::lseek(shadow.original, at, SEEK_DATA);
    if (at < 0) return errno == ENXIO || errno == EINVAL;  // nothing but holes; or a device
    const off_t hole = std::min(::lseek(shadow.original, at, SEEK_HOLE), static_cast<off_t>(end));
    while (at < hole) {
      const auto count = std::min(kBlock, static_cast<std::size_t>(hole - at));
      const ssize_t got = ::pread(shadow.original, block, count, at);
      if (got <= 0) return got == 0;
      if (::pwrite(shadow.file, block, static_cast<std::size_t>(got), at) != got) return false;
      at += got;
    }
  }
  return true;
}

Recorder::Mine& Recorder::mine() {
  static thread_local Mine thread;
  if (thread.generation == generation_) return thread;
  thread = {header_->thread_count.fetch_add(1), generation_, false};
  if (thread.number >= kThreadsMax) {
    thread.number = kNoThread;
  } else {
    header_->threads[thread.number].process = static_cast<std::uint64_t>(::getpid());
  }
  return thread;
}

/// Places up to `index` are backed by the file system: a full one must not end the program.
bool Recorder::allocate(std::uint64_t index) {
  if (index < header_->allocated.load(std::memory_order_acquire)) return true;
  if (index >= kEventsMax) return false;
  const std::uint64_t first = index / kEventsPerStep * kEventsPerStep;
  const auto at = static_cast<off_t>(kEventsAt + first * sizeof(JournalEvent));
  if (::posix_fallocate(journal_, at, kEventsPerStep * sizeof(JournalEvent)) != 0) return false;
  std::uint64_t known = header_->allocated.load();
  while (known == first && !header_->allocated.compare_exchange_weak(known, first + kEventsPerStep))
    ;
  return true;
}

void Recorder::record(Mine& thread, JournalKind kind, int file, std::uint64_t line) {
  if (thread.number == kNoThread) {
    add(header_->lost, 1);
    return;
  }
  const std::uint64_t index = header_->event_count.fetch_add(1);
  if (!allocate(index)) {
    add(header_->lost, 1);
    return;
  }
  events_[index].line = line;
  events_[index].what.store(pack({kind, static_cast<std::uint32_t>(file), thread.number}),
                            std::memory_order_release);
}

void Recorder::flush(const FileRange& range) {
  Mine& thread = mine();
  const Shadow& shadow = shadows_[range.file];
  const std::uint64_t first = range.offset / kLineBytes;
  const std::uint64_t end = (range.offset + range.length + kLineBytes - 1) / kLineBytes;
  const char* const start = range.at - range.offset % kLineBytes;
  std::uint64_t changed = 0;
  pthread_mutex_lock(&mutex_);
  for (std::uint64_t line = first; line < end; ++line) {
    const char* const now = start + (line - first) * kLineBytes;
    char* const before = shadow.bytes + line * kLineBytes;
    if (std::memcmp(now, before, kLineBytes) == 0) continue;
    std::memcpy(before, now, kLineBytes);
    record(thread, JournalKind::Write, range.file, line);
    ++changed;
  }
  pthread_mutex_unlock(&mutex_);
  thread.changed = thread.changed || changed > 0;
  if (thread.number == kNoThread) return;
  JournalThread& counts = header_->threads[thread.number];
  add(counts.flushes, 1);
  add(counts.flushed_lines, end - first);
  add(counts.changed_lines, changed);
}

void Recorder::drain(Drain drain) {
  Mine& thread = mine();
  record(thread, drain == Drain::Durable ? JournalKind::Durable : JournalKind::Ordered, 0, 0);
  if (thread.number != kNoThread) {
    add(header_->threads[thread.number].drains, 1);
    if (thread.changed) add(header_->threads[thread.number].epochs, 1);
  }
  thread.changed = false;
}

void Recorder::forked() {
  const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
  mutex_ = fresh;
  ++generation_;
}

}  // namespace

Backend* record_into(const char* directory) {
  static Recorder recorder;
  return recorder.open(directory) ? &recorder : nullptr;
}

}  // namespace perdure::interpose
