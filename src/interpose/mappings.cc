// The table of mappings: see mappings.h. It has a fixed size, because mmap() may be what an
// allocator calls: nothing here allocates.
#include "interpose/mappings.h"

#include "interpose/choice.h"
#include "interpose/raw.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace perdure::interpose {
namespace {

constexpr std::size_t kMappingsMax = 1 << 16;  // what Linux lets a process have, by default

/// By address, without overlaps. A change is made in a second copy, which counts from publish() on:
/// a child that is forked while another thread makes one has the copy of before, whole.
class Table {
 public:
  /// What ends behind `at`, or the end.
  std::size_t first_behind(const char* at) const {
    const Copy& now = copies_[used_];
    const FileRange* const found = std::upper_bound(
        now.ranges, now.ranges + now.count, at,
        [](const char* value, const FileRange& r) { return value < r.at + r.length; });
    return static_cast<std::size_t>(found - now.ranges);
  }
  std::size_t size() const { return copies_[used_].count; }
  const FileRange& operator[](std::size_t index) const { return copies_[used_].ranges[index]; }
  bool has_room(std::size_t parts) const { return size() + parts <= kMappingsMax; }

  void insert(const FileRange& range) {
    const std::size_t index = first_behind(range.at);
    Copy& to = to_change();
    std::memmove(to.ranges + index + 1, to.ranges + index, (to.count - index) * sizeof(FileRange));
    to.ranges[index] = range;
    ++to.count;
  }
  void remove(std::size_t index) {
    Copy& from = to_change();
    --from.count;
    std::memmove(from.ranges + index, from.ranges + index + 1,
                 (from.count - index) * sizeof(FileRange));
  }
  void publish() { whole_.store(used_, std::memory_order_release); }
  /// In a child: what a thread of its parent was changing is nobody's.
  void forget_change() { used_ = whole_.load(std::memory_order_acquire); }

 private:
  struct Copy {
    FileRange ranges[kMappingsMax];
    std::size_t count = 0;
  };

  Copy& to_change() {
    if (used_ != whole_.load(std::memory_order_relaxed)) return copies_[used_];
    const Copy& from = copies_[used_];
    Copy& to = copies_[1 - used_];
    std::memcpy(to.ranges, from.ranges, from.count * sizeof(FileRange));
    to.count = from.count;
    used_ = 1 - used_;
    return to;
  }

  Copy copies_[2];
  std::size_t used_ = 0;  // which one: the other one than whole_ while there is a change
  std::atomic<std::size_t> whole_{0};
};

constinit Table table;  // whoever is initialized early may map memory
pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
bool anything_mapped = false;

/// The part of `range` from its byte `begin` to its byte `end`.
FileRange part(const FileRange& range, std::uint64_t begin, std::uint64_t end) {
  FileRange found = range;
  found.offset += begin;
  found.length = end - begin;
  found.at += begin;
  return found;
}

/// The bytes of `range` that [at, at + length) covers. Requires that they meet.
FileRange covered(const FileRange& range, const char* at, std::size_t length) {
  const auto begin = at > range.at ? static_cast<std::uint64_t>(at - range.at) : 0;
  const auto end = std::min(range.length, static_cast<std::uint64_t>(at + length - range.at));
  return part(range, begin, end);
}

/// What the program persists would not be seen any more, and it would take it for safe.
[[noreturn]] void give_up_watching(const char* why) {
  say(why);
  ::_exit(EXIT_FAILURE);
}

/// The calling thread has the lock for reading. Of one that left that by siglongjmp() it stays so.
thread_local volatile bool reads_table = false;

/// Takes the lock for writing. No signal handler of this thread runs until unlock_table(): it may
/// map memory itself. Nobody waits for the back-end under the lock.
void lock_table(sigset_t& before) {
  if (reads_table) {
    give_up_watching(
        "a signal handler of this program maps memory while its thread looks up what it makes "
        "durable, or has left that by siglongjmp(): it ends here");
  }
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_rwlock_wrlock(&table_lock);
}

void unlock_table(const sigset_t& before) {
  table.publish();
  pthread_rwlock_unlock(&table_lock);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// The lock for writing, as long as it lives. Keeps errno.
class Alone {
 public:
  Alone() { lock_table(before_); }
  ~Alone() {
    const int error = errno;
    unlock_table(before_);
    errno = error;
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  sigset_t before_;
};

/// The calling thread is in what can not be entered twice. Of a thread that left it by siglongjmp()
/// that stays so.
thread_local volatile bool inside = false;

thread_local sigset_t before_fork_set;

/// The lock is not taken: allocators lock themselves here, too, and may have been first, or wait
/// for a thread that maps memory inside of them. What the child gets is whole without: see Table.
/// No signal handler of it runs before it is.
void before_fork() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_fork_set);
}
void after_fork() { pthread_sigmask(SIG_SETMASK, &before_fork_set, nullptr); }
void after_fork_in_child() {
  if (inside || reads_table) {  // what it would go on with is the parent's
    give_up_watching(
        "a signal handler of this program has forked while its thread makes something durable: the "
        "child ends here");
  }
  const pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;
  table_lock = fresh;  // another thread of the parent may have had it
  table.forget_change();
  if (Backend* const to = backend()) to->forked();
  pthread_sigmask(SIG_SETMASK, &before_fork_set, nullptr);
}

class Inside {
 public:
  Inside() : before_(inside) {
    inside = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Inside() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    inside = before_;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const bool before_;
};

void check_outside() {
  if (!inside) return;
  give_up_watching(
      "a signal handler of this program makes something durable while its thread does, or has left "
      "that by siglongjmp(), and order can not be kept: it ends here");
}

void drop(Backend& to, const char* at, std::size_t length) {
  std::size_t index = table.first_behind(at);
  while (index < table.size() && table[index].at < at + length) {
    const FileRange whole = table[index];
    const FileRange gone = covered(whole, at, length);
    const auto begin = static_cast<std::uint64_t>(gone.at - whole.at);
    table.remove(index);
    const bool is_rest = begin + gone.length < whole.length;
    // The addresses are somebody else's already, or will be: there is no way back.
    if (!table.has_room((begin > 0 ? 1 : 0) + (is_rest ? 1 : 0))) {
      give_up_watching(
          "this program has unmapped parts of files in more places than can be watched: it ends "
          "here");
    }
    if (begin > 0) table.insert(part(whole, 0, begin));
    if (is_rest) {
      table.insert(part(whole, begin + gone.length, whole.length));
    }
    to.unmap(gone);
    index = table.first_behind(at);
  }
}

/// Only a descriptor that may write makes bytes of a file that anyone would want durable.
bool may_persist(int descriptor, const struct ::stat& status) {
  if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode)) return false;
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) == O_RDWR;
}

/// Asks the back-end first, which may take long.
bool keep(Backend& to, const FileRange& range, int descriptor) {
  if (range.file >= 0) {
    check_outside();
    const Inside here;
    if (!to.map(range, descriptor)) return false;
  }
  const Alone alone;
  drop(to, range.at, range.length);
  if (!table.has_room(1)) {
    say("this program has more mappings of files than can be watched");
    errno = ENOMEM;
    return false;
  }
  table.insert(range);
  __atomic_store_n(&anything_mapped, true, __ATOMIC_RELEASE);
  return true;
}

char* kernel_remaps(const Remapping& wanted) {
  return raw_mremap(wanted.at, wanted.old_length, wanted.length, wanted.flags, wanted.to);
}

/// What is to be mapped, with its new length; false: it is of no file that is watched. The lock is
/// held.
bool find_remapped(const Remapping& wanted, FileRange& range) {
  const std::size_t index = table.first_behind(wanted.at);
  if (index == table.size() || table[index].at > wanted.at) return false;
  range = covered(table[index], wanted.at, 1);
  range.length = whole_pages(wanted.length);
  return true;
}

/// The back-end is asked before the kernel does what can not be undone.
bool may_grow(Backend& to, const Remapping& wanted) {
  if (whole_pages(wanted.length) <= whole_pages(wanted.old_length)) return true;
  FileRange range;
  {
    const Alone alone;
    if (!find_remapped(wanted, range)) return true;
  }
  const Inside here;
  return to.map(range, -1);
}

/// The lock is held for writing.
char* remap_watched(Backend& to, const Remapping& wanted) {
  char* const refused = static_cast<char*>(MAP_FAILED);
  const std::size_t old_length = whole_pages(wanted.old_length);
  const std::size_t length = whole_pages(wanted.length);
  FileRange range;
  const bool known = find_remapped(wanted, range);
  if (known && !table.has_room(3)) {
    say("this program has more mappings of files than can be watched");
    errno = ENOMEM;
    return refused;
  }
  char* const moved = kernel_remaps(wanted);
  if (failed(moved)) return refused;
  const bool stays = old_length == 0 || (wanted.flags & MREMAP_DONTUNMAP) != 0;
  if (!stays) drop(to, wanted.at, old_length);
  drop(to, moved, length);
  range.at = moved;
  if (known) table.insert(range);
  return moved;
}

/// The next parts of files from `begin` on, up to `end`, at most `max`.
std::size_t find_parts(const char* begin, const char* end, FileRange* parts, std::size_t max) {
  std::size_t count = 0;
  reads_table = true;
  pthread_rwlock_rdlock(&table_lock);
  for (std::size_t index = table.first_behind(begin);
       index < table.size() && table[index].at < end && count < max; ++index) {
    parts[count++] = covered(table[index], begin, static_cast<std::size_t>(end - begin));
  }
  pthread_rwlock_unlock(&table_lock);
  reads_table = false;
  return count;
}

/// Calls `tell` with each part of a file in the range, without the lock.
template <typename Tell>
void for_each_part(const char* begin, std::size_t length, const Tell& tell) {
  constexpr std::size_t kPartsMax = 16;
  const char* const end = begin + length;
  FileRange parts[kPartsMax];
  for (;;) {
    const std::size_t count = find_parts(begin, end, parts, kPartsMax);
    for (std::size_t i = 0; i < count; ++i) tell(parts[i]);
    if (count < kPartsMax) return;
    begin = parts[count - 1].at + parts[count - 1].length;
  }
}

}  // namespace

void watch_forks() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { pthread_atfork(before_fork, after_fork, after_fork_in_child); });
}

bool mapped(char* at, std::size_t length, int flags, int descriptor, off_t offset) {
  Backend* const to = backend();
  if (to == nullptr) return true;
  length = whole_pages(length);
  const int kind = flags & MAP_TYPE;
  const bool shared = (kind == MAP_SHARED || kind == MAP_SHARED_VALIDATE) &&
                      (flags & MAP_ANONYMOUS) == 0 && descriptor >= 0;
  struct ::stat status = {};
  const bool wanted =
      shared && ::fstat(descriptor, &status) == 0 && may_persist(descriptor, status);
  if (!wanted && !__atomic_load_n(&anything_mapped, __ATOMIC_ACQUIRE)) return true;
  watch_forks();
  {
    const Alone alone;
    drop(*to, at, length);  // what was there
  }
  if (!wanted) return true;
  const int file = to->attach(descriptor, status);
  if (file == Backend::kRefused) return false;
  if (file == Backend::kNotWanted) return true;
  return keep(*to,
              {file, static_cast<std::uint64_t>(offset), length, at, status.st_dev, status.st_ino},
              descriptor);
}

int unmap(char* at, std::size_t length) {
  Backend* const to = backend();
  const bool wrong = length == 0 || reinterpret_cast<std::uintptr_t>(at) % kPage != 0;
  if (to == nullptr || wrong || !__atomic_load_n(&anything_mapped, __ATOMIC_ACQUIRE)) {
    return raw_munmap(at, length);
  }
  bool known = false;
  {
    const Alone alone;
    const std::size_t first = table.first_behind(at);
    known = first < table.size() && table[first].at < at + length;
    drop(*to, at, whole_pages(length));  // first: then the addresses may be another thread's
  }
  const int outcome = raw_munmap(at, length);
  if (outcome != 0 && known) {
    give_up_watching(
        "the kernel does not unmap what this program wants unmapped, and it is not watched any "
        "more: it ends here");
  }
  return outcome;
}

char* remap(const Remapping& wanted) {
  Backend* const to = backend();
  if (to == nullptr || !__atomic_load_n(&anything_mapped, __ATOMIC_ACQUIRE)) {
    return kernel_remaps(wanted);
  }
  if (!may_grow(*to, wanted)) return static_cast<char*>(MAP_FAILED);
  // Before the kernel moves it: the old addresses may be another thread's right after.
  const Alone alone;
  return remap_watched(*to, wanted);
}

void flushed(const void* at, std::size_t length) {
  Backend* const to = backend();
  if (to == nullptr || length == 0 || !__atomic_load_n(&anything_mapped, __ATOMIC_ACQUIRE)) return;
  check_outside();
  const Inside here;
  const int error = errno;
  for_each_part(static_cast<const char*>(at), length, [to](const FileRange& each) {
    to->flush(each);  // which may wait for a quorum
  });
  errno = error;
}

void drained(Drain drain) {
  Backend* const to = backend();
  if (to == nullptr || !__atomic_load_n(&anything_mapped, __ATOMIC_ACQUIRE)) return;
  check_outside();
  const Inside here;
  const int error = errno;
  to->drain(drain);
  errno = error;
}

void cut(const struct ::stat& file) {
  if (Backend* const to = backend()) to->cut(file.st_dev, file.st_ino);
}

void cut(const char* at, std::size_t length) {
  Backend* const to = backend();
  if (to == nullptr || !__atomic_load_n(&anything_mapped, __ATOMIC_ACQUIRE)) return;
  for_each_part(at, length, [to](const FileRange& each) { to->cut(each.device, each.inode); });
}

}  // namespace perdure::interpose
