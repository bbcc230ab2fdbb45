// PageSync: few system calls, and no trust after the first failure.
#include "pmem/page_sync.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <perdure/messages.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/random.h"
#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

constexpr std::uint64_t kPage = 4096;

std::vector<PageRun> joined(const std::vector<Range>& ranges) {
  std::array<PageRun, 8> runs;
  const std::size_t count = join_pages(ranges, kPage, runs);
  return {runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(count)};
}

using Ranges = std::vector<Range>;
using Runs = std::vector<PageRun>;

TEST(JoinPages, CoversEveryRangeWithAsFewRunsAsPossible) {
  EXPECT_EQ(joined(Ranges{}), Runs{});
  EXPECT_EQ(joined(Ranges{{100, 0}}), Runs{});
  EXPECT_EQ(joined(Ranges{{0, 1}}), (Runs{{0, kPage}}));
  EXPECT_EQ(joined(Ranges{{kPage - 1, 2}}), (Runs{{0, 2 * kPage}}));
  EXPECT_EQ(joined(Ranges{{kPage, kPage}}), (Runs{{kPage, kPage}}));
  // The same page twice; neighbours; in the wrong order; one inside the other.
  EXPECT_EQ(joined(Ranges{{10, 10}, {500, 10}}), (Runs{{0, kPage}}));
  EXPECT_EQ(joined(Ranges{{0, 10}, {kPage, 10}}), (Runs{{0, 2 * kPage}}));
  EXPECT_EQ(joined(Ranges{{kPage, 10}, {0, 10}}), (Runs{{0, 2 * kPage}}));
  EXPECT_EQ(joined(Ranges{{0, 9 * kPage}, {kPage, 1}}), (Runs{{0, 9 * kPage}}));
  // Apart, in any order; then a range that closes the gap.
  EXPECT_EQ(joined(Ranges{{4 * kPage, 1}, {0, 1}}), (Runs{{0, kPage}, {4 * kPage, kPage}}));
  EXPECT_EQ(joined(Ranges{{0, 1}, {2 * kPage, 1}, {4 * kPage, 1}, {kPage, 3 * kPage}}),
            (Runs{{0, 5 * kPage}}));
}

TEST(JoinPages, SaysWhenThereAreMoreRunsThanFit) {
  std::array<PageRun, 2> runs;
  const Ranges apart{{0, 1}, {2 * kPage, 1}, {4 * kPage, 1}};
  EXPECT_EQ(join_pages(apart, kPage, runs), 3U);
}

// A bit map of pages is the other way to say the same; both must agree.
TEST(JoinPages, AgreesWithABitMapOnRandomRanges) {
  constexpr std::size_t kPages = 64;
  Random random(0x5eed);
  for (int round = 0; round < 5000; ++round) {
    Ranges ranges;
    std::array<bool, kPages + 1> dirty{};
    for (std::uint64_t n = random.below(12); n > 0; --n) {
      const std::uint64_t at = random.below(kPages * kPage - 5 * kPage);
      const std::uint64_t length = random.below(5 * kPage);
      ranges.push_back({at, length});
      if (length == 0) continue;
      for (std::uint64_t page = at / kPage; page <= (at + length - 1) / kPage; ++page)
        dirty[page] = true;
    }
    Runs expected;
    for (std::size_t page = 0; page < kPages; ++page) {
      if (!dirty[page]) continue;
      if (page == 0 || !dirty[page - 1]) expected.push_back({page * kPage, 0});
      expected.back().length += kPage;
    }
    std::array<PageRun, 16> runs;
    const std::size_t count = join_pages(ranges, kPage, runs);
    ASSERT_EQ(Runs(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(count)), expected)
        << "round " << round;
  }
}

/// Notes the calls and fails when asked to.
class ScriptedCalls final : public SyncCalls {
 public:
  int sync_range(std::byte* at, std::size_t length) override {
    ranges.push_back({reinterpret_cast<std::uintptr_t>(at), length});
    return error;
  }
  int sync_file(int) override {
    ++files;
    return error;
  }
  int check_writable(int) override { return read_only ? EROFS : 0; }
  std::vector<PageRun> ranges;
  int files = 0;
  int error = 0;
  bool read_only = false;
};

class PageSyncTest : public testing::Test {
 protected:
  PageSyncTest() {
    if (::posix_memalign(&memory_, kPage, kPages * kPage) != 0) std::abort();
  }
  ~PageSyncTest() override { std::free(memory_); }

  static constexpr std::size_t kPages = 128;
  std::span<std::byte> mapping() { return {static_cast<std::byte*>(memory_), kPages * kPage}; }
  std::uint64_t base() const { return reinterpret_cast<std::uintptr_t>(memory_); }

  void* memory_ = nullptr;
  ScriptedCalls calls_;
};

TEST_F(PageSyncTest, OneRunIsOneMsyncOfWholePages) {
  PageSync sync(mapping(), -1, "pool", calls_);
  const Ranges ranges{{kPage + 5, 10}, {2 * kPage + 7, 1}};
  ASSERT_TRUE(sync.sync(ranges).ok());
  EXPECT_EQ(calls_.ranges, (Runs{{base() + kPage, 2 * kPage}}));
  EXPECT_EQ(calls_.files, 0);
}

// Device DAX: msync of its mapping is EINVAL, since the driver has no fsync.
TEST_F(PageSyncTest, MemoryThatHasNoMsyncIsNotDeepAndDidNotFail) {
  const auto answer = [&](int error) {
    calls_.error = error;
    return sync_pages_deep(mapping(), {kPage + 5, 10}, "memory", calls_);
  };
  EXPECT_TRUE(answer(0).ok());
  EXPECT_EQ(calls_.ranges, (Runs{{base() + kPage, 15}}));
  EXPECT_EQ(answer(EINVAL).code(), ErrorCode::Unsupported);
  EXPECT_EQ(answer(EIO).code(), ErrorCode::SystemError);
}

TEST_F(PageSyncTest, SeveralRunsAreOneFdatasync) {
  PageSync sync(mapping(), -1, "pool", calls_);
  ASSERT_TRUE(sync.sync(Ranges{{0, 1}, {5 * kPage, 1}}).ok());
  EXPECT_EQ(calls_.files, 1);
  EXPECT_TRUE(calls_.ranges.empty());
}

TEST_F(PageSyncTest, MoreRunsThanAreSortedAreOneFdatasync) {
  PageSync sync(mapping(), -1, "pool", calls_);
  Ranges ranges;
  for (std::uint64_t i = 0; i < 60; ++i) ranges.push_back({2 * i * kPage, 1});
  ASSERT_TRUE(sync.sync(ranges).ok());
  EXPECT_EQ(calls_.files, 1);
}

TEST_F(PageSyncTest, NothingToSyncIsNoCall) {
  PageSync sync(mapping(), -1, "pool", calls_);
  ASSERT_TRUE(sync.sync(Ranges{}).ok());
  ASSERT_TRUE(sync.sync(Ranges{{5, 0}}).ok());
  EXPECT_EQ(calls_.files, 0);
  EXPECT_TRUE(calls_.ranges.empty());
}

void check_sticky(int error, ErrorCode expected, std::span<std::byte> mapping,
                  ScriptedCalls& calls) {
  PageSync sync(mapping, -1, "orders.pool", calls);
  calls.error = error;
  auto first = sync.sync(Ranges{{0, 1}});
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.code(), expected);
  EXPECT_NE(first.error().message.find("orders.pool"), std::string::npos);
  // The medium is well again, as the kernel says of pages that it has given up.
  // Expect: the same error, and not even a system call.
  calls.error = 0;
  const std::size_t calls_before = calls.ranges.size();
  auto second = sync.sync(Ranges{{8 * kPage, 1}});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message, first.error().message);
  EXPECT_FALSE(sync.sync(Ranges{}).ok());
  EXPECT_EQ(calls.ranges.size(), calls_before);
}

TEST_F(PageSyncTest, AFailureIsRememberedForEver) {
  check_sticky(EIO, ErrorCode::SystemError, mapping(), calls_);
  check_sticky(ENOSPC, ErrorCode::NoSpace, mapping(), calls_);
  check_sticky(EDQUOT, ErrorCode::NoSpace, mapping(), calls_);
  check_sticky(ENOMEM, ErrorCode::SystemError, mapping(), calls_);
}

TEST_F(PageSyncTest, AReadOnlyFileSystemIsAFailingMediumWhateverItReturns) {
  check_sticky(EROFS, ErrorCode::SystemError, mapping(), calls_);
  // errors=remount-ro: the calls write nothing, and say 0.
  PageSync sync(mapping(), -1, "pool", calls_);
  ASSERT_TRUE(sync.sync(Ranges{{0, 1}}).ok());
  EXPECT_TRUE(sync.check().ok());
  calls_.read_only = true;
  EXPECT_EQ(sync.check().code(), ErrorCode::SystemError);
  EXPECT_EQ(sync.sync(Ranges{{0, 1}}).code(), ErrorCode::SystemError);
  // Made writable again: what was lost meanwhile stays lost.
  calls_.read_only = false;
  EXPECT_EQ(sync.sync(Ranges{{0, 1}}).code(), ErrorCode::SystemError);
}

// A medium that fails one call and then forgets it, as the kernel does, with several threads
// flushing: each caller that comes after the failure must hear of it.
class FailsOnce final : public SyncCalls {
 public:
  int sync_range(std::byte*, std::size_t) override { return calls_++ == 100 ? EIO : 0; }
  int check_writable(int) override { return 0; }
  int calls() const { return calls_; }

 private:
  int calls_ = 0;  // unguarded on purpose: PageSync lets one caller in at a time
};

TEST_F(PageSyncTest, NoThreadIsToldDurableAfterAnotherSawTheFailure) {
  FailsOnce calls;
  PageSync sync(mapping(), -1, "pool", calls);
  constexpr int kThreads = 4;
  constexpr int kFlushes = 100;
  std::array<int, kThreads> successes{};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kFlushes; ++i)
        successes[static_cast<std::size_t>(t)] += sync.sync(Ranges{{0, 1}}).ok() ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  int total = 0;
  for (const int count : successes) total += count;
  EXPECT_EQ(total, 100);
  EXPECT_EQ(calls.calls(), 101);
}

TEST(PageSyncSystem, AMissingPageIsAnErrorOfTheRealMsync) {
  const std::size_t bytes = 4 * kPage;
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  auto* begin = static_cast<std::byte*>(at);
  const int file = ::memfd_create("pool", MFD_CLOEXEC);
  PageSync sync({begin, bytes}, file, "pool", SyncCalls::system());
  ASSERT_TRUE(sync.sync(Ranges{{0, bytes}}).ok());

  ASSERT_EQ(::munmap(begin + kPage, kPage), 0);
  EXPECT_FALSE(sync.sync(Ranges{{0, bytes}}).ok());
  EXPECT_FALSE(sync.sync(Ranges{{3 * kPage, 1}}).ok());  // a page that is still there
  ::munmap(begin, kPage);
  ::munmap(begin + 2 * kPage, 2 * kPage);
  ::close(file);
}

// A file system that was shut down says that it is writable, and refuses reads of nothing, too.
TEST(PageSyncSystem, AFileThatCanNotBeReadCountsAsNotWritable) {
  const int file = ::memfd_create("pool", MFD_CLOEXEC);
  EXPECT_EQ(SyncCalls::system().check_writable(file), 0);
  const int directory = ::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(directory, 0);
  EXPECT_EQ(SyncCalls::system().check_writable(directory), EISDIR);
  ::close(directory);
  ::close(file);
}

// Pages that are there become dirty, those that are not are not fetched for it.
TEST(PageSyncSystem, ResidentPagesAreMadeDirtyAndKeepTheirBytes) {
  const int file = ::memfd_create("pool", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, 8 * kPage), 0);
  ASSERT_EQ(::pwrite(file, "third", 5, 2 * kPage), 5);
  ASSERT_EQ(::pwrite(file, "eighth", 6, 8 * kPage - 6), 6);
  void* at = ::mmap(nullptr, 8 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(at, MAP_FAILED);
  const std::span<std::byte> mapping(static_cast<std::byte*>(at), 8 * kPage);
  EXPECT_EQ(dirty_resident_pages(mapping), 2u);
  EXPECT_EQ(std::memcmp(mapping.data() + 2 * kPage, "third", 5), 0);
  EXPECT_EQ(std::memcmp(mapping.data() + 8 * kPage - 6, "eighth", 6), 0);
  struct stat status {};
  ASSERT_EQ(::fstat(file, &status), 0);
  EXPECT_EQ(status.st_blocks * 512, static_cast<blkcnt_t>(2 * kPage));
  ::munmap(at, 8 * kPage);
  ::close(file);
}

/// As SystemCallFilter= of systemd does with SystemCallErrorNumber=EPERM. For as long as the
/// process lives.
bool refuse_mincore() {
  std::array<sock_filter, 4> program{
      sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_mincore},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(PageSyncSystem, WhereAFilterHidesWhichPagesAreThereAllCountAndItIsSaidOnce) {
  const std::string wrong = in_child([]() -> std::string {
    std::vector<std::string> warnings;
    set_message_callback([&](Severity severity, const std::string& message) {
      if (severity == Severity::Warning) warnings.push_back(message);
    });
    void* at =
        ::mmap(nullptr, 8 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || !refuse_mincore()) return "no filter";
    const std::span<std::byte> mapping(static_cast<std::byte*>(at), 8 * kPage);
    for (int i = 0; i < 2; ++i) {
      if (dirty_resident_pages(mapping) != 8) return "not all pages count";
    }
    set_message_callback({});
    if (warnings.size() != 1) return std::to_string(warnings.size()) + " warnings";
    for (const char* part : {"(mincore: Operation not permitted)", "reads and writes all of it",
                             "SystemCallFilter=@system-service mincore"}) {
      if (warnings[0].find(part) == std::string::npos) return warnings[0];
    }
    return "";
  });
  if (wrong == "no filter") GTEST_SKIP() << "this machine lets no process filter its system calls";
  EXPECT_EQ(wrong, "");
}

}  // namespace
}  // namespace perdure::pmem
