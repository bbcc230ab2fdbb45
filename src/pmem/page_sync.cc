// PageSync: making bytes behind the page cache durable.
#include "pmem/page_sync.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/errno_error.h"
#include "core/log_message.h"
#include "pmem/read_ahead.h"

namespace perdure::pmem {
namespace {

// More separate runs than this are not worth sorting: the answer is fdatasync anyway.
constexpr std::size_t kRunsMax = 32;

}  // namespace

int SyncCalls::sync_range(std::byte* at, std::size_t length) {
  return ::msync(at, length, MS_SYNC) == 0 ? 0 : errno;
}

int SyncCalls::sync_file(int descriptor) { return ::fdatasync(descriptor) == 0 ? 0 : errno; }

int SyncCalls::check_writable(int descriptor) {
  struct statfs status {};
  if (::fstatfs(descriptor, &status) != 0) return errno;
  if ((status.f_flags & ST_RDONLY) != 0) return EROFS;
  // A file system that was shut down stays mounted for writing (ext4 after an error since Linux
  // 6.12, xfs), and refuses all else: ext4_file_read_iter and xfs_file_read_iter ask for that
  // before they look at the length. Nothing is read, so no page and no access time changes.
  return ::pread(descriptor, nullptr, 0, 0) == 0 ? 0 : errno;
}

namespace {

/// Returns 0 or an errno.
int sync_whole_pages(std::span<std::byte> mapping, const Range& range, SyncCalls& calls) {
  const auto base = reinterpret_cast<std::uintptr_t>(mapping.data());
  const std::uint64_t before =
      (base + range.at) % static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return calls.sync_range(mapping.data() + range.at - before, before + range.length);
}

}  // namespace

Result<void> sync_pages(std::span<std::byte> mapping, const Range& range, const std::string& name) {
  const int failed = sync_whole_pages(mapping, range, SyncCalls::system());
  if (failed == 0) return {};
  return errno_error(name + ": msync", failed);
}

Result<void> sync_pages_deep(std::span<std::byte> mapping, const Range& range,
                             const std::string& name, SyncCalls& calls) {
  const int failed = sync_whole_pages(mapping, range, calls);
  if (failed == 0) return {};
  // The address is that of a page, and MS_SYNC is a flag: it is the file that has no fsync.
  if (failed == EINVAL) {
    return Error{ErrorCode::Unsupported,
                 name + ": is not flushed beyond the memory controllers, for it has no msync"};
  }
  return errno_error(name + ": msync", failed);
}

SyncCalls& SyncCalls::system() {
  static SyncCalls calls;
  return calls;
}

std::size_t join_pages(std::span<const Range> ranges, std::uint64_t page_bytes,
                       std::span<PageRun> runs) {
  std::size_t count = 0;
  for (const Range& range : ranges) {
    if (range.length == 0) continue;
    std::uint64_t begin = round_down(range.at, page_bytes);
    std::uint64_t end = round_up(range.at + range.length, page_bytes);
    // runs[0, count) are sorted and apart. Those that touch [begin, end) are swallowed by it.
    const auto stop = runs.begin() + static_cast<std::ptrdiff_t>(count);
    const auto first = std::find_if(
        runs.begin(), stop, [&](const PageRun& run) { return run.at + run.length >= begin; });
    const auto last = std::find_if(first, stop, [&](const PageRun& run) { return run.at > end; });
    if (first != last) {
      begin = std::min(begin, first->at);
      end = std::max(end, (last - 1)->at + (last - 1)->length);
      std::move(last, stop, first + 1);
    } else {
      if (count == runs.size()) return runs.size() + 1;
      std::move_backward(first, stop, stop + 1);
    }
    *first = PageRun{begin, end - begin};
    count += 1 - static_cast<std::size_t>(last - first);
  }
  return count;
}

namespace {

/// An atomic or with 0: the page is dirty, its bytes are the same, whoever writes meanwhile. As
/// instructions, since a compiler may leave out what changes nothing (clang 14 does, of a fetch_or
/// whose result is not used; LLVM's test atomic-idempotent.ll).
void store_what_is_there(unsigned char* place) {
#if defined(__x86_64__)
  asm volatile("lock orb $0, %0" : "+m"(*place) : : "memory");
#elif defined(__aarch64__)
  unsigned value = 0;
  unsigned failed = 0;
  asm volatile(
      "1: ldxrb %w0, %2\n"
      "stxrb %w1, %w0, %2\n"
      "cbnz %w1, 1b"
      : "=&r"(value), "=&r"(failed), "+Q"(*place)
      :
      : "memory");
#else
  unsigned char value = __atomic_load_n(place, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(place, &value, value, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {
  }
#endif
}

/// Once: a filter is never lifted from a process.
void warn_that_pages_are_not_told(int failed) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  log_message(Severity::Warning,
              fmt::format("which pages of a pool are in memory can not be told (mincore: {}), so "
                          "each opening of a pool in the page cache reads and writes all of it: if "
                          "a filter of system calls refuses it, let mincore pass "
                          "(SystemCallFilter=@system-service mincore in the unit of systemd)",
                          std::generic_category().message(failed)));
}

}  // namespace

std::size_t dirty_resident_pages(std::span<std::byte> mapping) {
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::size_t kPagesAtATime = 65536;
  std::vector<unsigned char> resident(kPagesAtATime);
  std::size_t dirtied = 0;
  while (!mapping.empty()) {
    const auto part = mapping.first(std::min(mapping.size(), kPagesAtATime * page_bytes));
    mapping = mapping.subspan(part.size());
    // Where it can not be told, all of them count as resident.
    const bool told = ::mincore(part.data(), part.size(), resident.data()) == 0;
    if (!told) warn_that_pages_are_not_told(errno);
    for (std::size_t at = 0; at < part.size(); at += page_bytes) {
      if (told && (resident[at / page_bytes] & 1) == 0) continue;
      store_what_is_there(reinterpret_cast<unsigned char*>(part.data() + at));
      ++dirtied;
    }
  }
  return dirtied;
}

void keep_pages_small(std::span<std::byte> mapping) {
  constexpr std::size_t kReadBytesMax = std::size_t{256} << 20;
  (void)::madvise(mapping.data(), mapping.size(), MADV_RANDOM);
  (void)ask_for_pages(mapping.first(std::min(mapping.size(), kReadBytesMax)));
}

PageSync::PageSync(std::span<std::byte> mapping, int descriptor, std::string path, SyncCalls& calls)
    : mapping_(mapping),
      descriptor_(descriptor),
      path_(std::move(path)),
      calls_(calls),
      page_bytes_(static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))) {
  PERDURE_ASSERT(mapping_.size() % page_bytes_ == 0);
}

int PageSync::call(std::span<const PageRun> runs) {
  if (runs.size() != 1) return calls_.sync_file(descriptor_);
  return calls_.sync_range(mapping_.data() + runs[0].at, runs[0].length);
}

Result<void> PageSync::check() {
  const int failed = calls_.check_writable(descriptor_);
  if (failed == 0) return {};
  return Error{ErrorCode::SystemError,
               fmt::format("{}: what is written does not reach the medium any more: {}; see to the "
                           "file system (the kernel's log says why), then open the pool again",
                           path_, std::generic_category().message(failed))};
}

// A failed write-back is reported once. The kernel marks the pages clean all the same and drops the
// error, so a second msync of the very same pages succeeds while the medium still has the old
// bytes ("fsyncgate", the PostgreSQL list 2018; fsync(2), NOTES). Hence the failure is kept here
// and given to every later caller. It is also why one caller syncs at a time: with two in the
// kernel at once, the error of a shared page goes to one of them and the other hears "durable".
Result<void> PageSync::sync(std::span<const Range> ranges) {
  std::array<PageRun, kRunsMax> runs;
  const std::size_t count = join_pages(ranges, page_bytes_, runs);
  MutexLock lock(mutex_);
  if (failure_) return *failure_;
  if (count == 0) return {};
  int failed = call(count > runs.size() ? std::span<const PageRun>()
                                        : std::span<const PageRun>(runs.data(), count));
  if (failed == 0) failed = calls_.check_writable(descriptor_);
  if (failed == 0) return {};
  const Error cause = errno_error(path_, failed);
  // Whatever its number, it is a medium that refused: nobody's request was wrong.
  const ErrorCode code =
      cause.code == ErrorCode::NoSpace ? ErrorCode::NoSpace : ErrorCode::SystemError;
  failure_ =
      Error{code, fmt::format("{}; what was written since the last successful flush may be lost, "
                              "and this pool must not be written any more: repair the medium, then "
                              "open and repair it",
                              cause.message)};
  log_message(Severity::Error, failure_->message);
  return *failure_;
}

}  // namespace perdure::pmem
