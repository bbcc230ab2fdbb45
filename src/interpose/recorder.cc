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
  bool map(const FileRange& range, int descriptor) override;
  void unmap(const FileRange& /*range*/) override {}
  void flush(const FileRange& range) override;
  void drain(Drain drain) override;
  void cut(std::uint64_t /*device*/, std::uint64_t /*inode*/) override {}
  void forked() override;

 private:
  struct Shadow {
    char* bytes = nullptr;
    std::uint64_t length = 0;
  };
  struct Mine {  // of a thread
    std::uint32_t number = kNoThread;
    std::uint32_t generation = 0;
    bool changed = false;  // a line since its last drain
  };

  int enter(int descriptor, const struct ::stat& status);
  using ShadowPath = char[kDirectoryMax + 64];
  void path_of_shadow(int number, ShadowPath& path) const;
  int open_shadow(int number);
  int open_original(int number, int descriptor) const;
  bool fill_shadow(int number, std::uint64_t end, int descriptor);
  bool map_shadow(int number, std::uint64_t end);
  bool copy_original(int number, std::uint64_t end, int descriptor);
  Mine& mine();
  void record(Mine& thread, JournalKind kind, int file, std::uint64_t line);
  bool allocate(std::uint64_t index);

  char directory_[kDirectoryMax] = {};
  JournalHeader* header_ = nullptr;
  JournalEvent* events_ = nullptr;
  Shadow shadows_[kFilesMax];
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // shadows and events agree
  std::uint32_t generation_ = 1;                       // counts forks
};

/// A descriptor for a moment. None stays open between the program's calls: one that closes what it
/// does not know (closefrom) would be given the number again, for a file of its own.
class Opened {
 public:
  explicit Opened(int descriptor) : descriptor_(descriptor) {}
  ~Opened() {
    if (good()) ::close(descriptor_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  bool good() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  bool is(std::uint64_t device, std::uint64_t inode) const {
    struct ::stat status;
    return good() && ::fstat(descriptor_, &status) == 0 && status.st_dev == device &&
           status.st_ino == inode;
  }

 private:
  int descriptor_;
};

/// Pages up to `at + length` are backed by the file system: a full one must not end the program.
bool back(char* at, std::size_t length) { return ::madvise(at, length, MADV_POPULATE_WRITE) == 0; }

bool Recorder::open(const char* directory) {
  if (std::strlen(directory) >= kDirectoryMax) return false;
  std::strcpy(directory_, directory);  // NOLINT: its length was checked
  char path[kDirectoryMax + 32];
  std::snprintf(path, sizeof path, "%s/journal", directory_);
  const Opened journal(::open(path, O_RDWR | O_CLOEXEC));
  if (!journal.good()) {
    say("the journal of the recording can not be opened: ", path);
    return false;
  }
  char* const mapping = raw_mmap(nullptr, kJournalBytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_NORESERVE, journal.descriptor(), 0);
  if (failed(mapping)) {
    say("the journal of the recording can not be mapped: ", std::strerror(errno));  // NOLINT
    return false;
  }
  if (!back(mapping, kEventsAt)) {
    say("no place can be had for the recording (Linux has MADV_POPULATE_WRITE since 5.14)");
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
  if (shadows_[number].bytes != nullptr) return number;
  const Opened original(open_original(number, descriptor));
  const Opened shadow(open_shadow(number));
  if (original.good() && shadow.good()) return number;
  say("a file that is mapped can not be copied, and is left out: ", header_->files[number].path);
  ++header_->refused_files;
  return kNotWanted;
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

void Recorder::path_of_shadow(int number, ShadowPath& path) const {
  std::snprintf(path, sizeof path, "%s/%s%d", directory_, kShadowName, number);
}

/// To be closed by the caller; -1: there is none.
int Recorder::open_shadow(int number) {
  ShadowPath path;
  path_of_shadow(number, path);
  JournalFile& file = header_->files[number];
  const int flags = file.shadow_inode == 0 ? O_CREAT : 0;
  const int descriptor = ::open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
  struct ::stat status;
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) return -1;
  if (file.shadow_inode == 0) {
    file.shadow_device = status.st_dev;
    file.shadow_inode = status.st_ino;
  }
  if (file.shadow_device == status.st_dev && file.shadow_inode == status.st_ino) return descriptor;
  ::close(descriptor);
  errno = ESTALE;
  return -1;
}

/// The program's file, by a descriptor of our own; without `descriptor` by the name that it had.
int Recorder::open_original(int number, int descriptor) const {
  const JournalFile& file = header_->files[number];
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const int original = ::open(descriptor < 0 ? file.path : link, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct ::stat status;
  if (original < 0 || ::fstat(original, &status) != 0) return -1;
  if (status.st_dev == file.device && status.st_ino == file.inode) return original;
  ::close(original);
  errno = ESTALE;
  return -1;
}

bool Recorder::map(const FileRange& range, int descriptor) {
  const std::uint64_t end = range.offset + range.length;
  const Held held(header_->files_mutex);
  pthread_mutex_lock(&mutex_);
  const bool good = fill_shadow(range.file, end, descriptor);
  pthread_mutex_unlock(&mutex_);
  JournalFile& file = header_->files[range.file];
  if (!good) say("no copy of a mapped file can be made for the recording: ", file.path);
  if (good && file.mapped_to.load() < end) file.mapped_to.store(end);
  return good;
}

/// The shadow covers the file's first `end` bytes, and has those that it did not cover before from
/// the file.
bool Recorder::fill_shadow(int number, std::uint64_t end, int descriptor) {
  JournalFile& file = header_->files[number];
  if (shadows_[number].length < end && !map_shadow(number, end)) return false;
  if (file.shadowed < end && !copy_original(number, end, descriptor)) return false;
  file.shadowed = std::max(file.shadowed, end);
  return true;
}

bool Recorder::map_shadow(int number, std::uint64_t end) {
  const JournalFile& file = header_->files[number];
  Shadow& shadow = shadows_[number];
  const Opened copy(open_shadow(number));
  if (!copy.good()) return false;
  ShadowPath path;
  path_of_shadow(number, path);
  // By its name: whatever another thread has just done to the descriptor, no file of the program
  // is made shorter.
  if (file.shadowed < end && ::truncate(path, static_cast<off_t>(end)) != 0) return false;
  char* const mapping = raw_mmap(nullptr, end, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                                 copy.descriptor(), 0);
  if (failed(mapping)) return false;
  if (!copy.is(file.shadow_device, file.shadow_inode)) {
    raw_munmap(mapping, end);
    errno = ESTALE;
    return false;
  }
  // The old mapping is of the same file, and goes last: a child may be forked in between.
  const Shadow old = shadow;
  shadow.bytes = mapping;
  shadow.length = end;
  if (old.bytes != nullptr) raw_munmap(old.bytes, old.length);
  return true;
}

/// What the shadow did not cover before, up to `end`. Holes stay holes.
bool Recorder::copy_original(int number, std::uint64_t end, int descriptor) {
  const JournalFile& file = header_->files[number];
  const Opened original(open_original(number, descriptor));
  if (!original.good() && descriptor < 0) {
    say("what a file has grown by can not be read, for it has another name now: a line of it "
        "counts as changed when it is flushed first: ",
        file.path);
    return true;
  }
  if (!original.good()) return false;
  auto at = static_cast<off_t>(file.shadowed);
  while (at < static_cast<off_t>(end)) {
    at = ::lseek(original.descriptor(), at, SEEK_DATA);
    if (at < 0) return errno == ENXIO || errno == EINVAL;  // nothing but holes; or a device
    const off_t hole =
        std::min(::lseek(original.descriptor(), at, SEEK_HOLE), static_cast<off_t>(end));
    while (at < hole) {
      // Where there is no room for the shadow, this fails, and nothing is killed.
      const ssize_t got = ::pread(original.descriptor(), shadows_[number].bytes + at,
                                  static_cast<std::size_t>(hole - at), at);
      if (got <= 0) return got == 0;
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

/// The place `index` of an event is backed by the file system.
bool Recorder::allocate(std::uint64_t index) {
  if (index < header_->allocated.load(std::memory_order_acquire)) return true;
  if (index >= kEventsMax) return false;
  const std::uint64_t first = index / kEventsPerStep * kEventsPerStep;
  if (!back(reinterpret_cast<char*>(events_ + first), kEventsPerStep * sizeof(JournalEvent))) {
    return false;
  }
  std::uint64_t known = header_->allocated.load();
  while (known == first && !header_->allocated.compare_exchange_weak(known, first + kEventsPerStep))
    ;
  return true;
}

void Recorder::record(Mine& thread, JournalKind kind, int file, std::uint64_t line) {
  if (thread.number == kNoThread) {
    add(header_->lost_threads, 1);
    return;
  }
  const std::uint64_t index = header_->event_count.fetch_add(1);
  if (!allocate(index)) {
    add(header_->lost_places, 1);
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
