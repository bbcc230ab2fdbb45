// A file that is cut short under its mapping fails alone, and loudly.
#include "pmem/mapping_guard.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "pmem/mapped_region.h"
#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

TEST(MappingGuard, ATruncatedFileFailsAloneAndForEver) {
  const TestDirectory directory;
  auto cut = MappedRegion::create(directory.path() + "/cut", 64 * 1024, {});
  auto whole = MappedRegion::create(directory.path() + "/whole", 64 * 1024, {});
  ASSERT_TRUE(cut.ok() && whole.ok());
  ASSERT_TRUE((*cut)->check().ok());
  ASSERT_EQ(::truncate((directory.path() + "/cut").c_str(), 4096), 0);
  EXPECT_EQ((*cut)->check().code(), ErrorCode::SystemError);

  // Stores and loads go on, and end nowhere. Expect: no flush ever succeeds again.
  const auto before = faults_caught();
  std::memset((*cut)->bytes().data() + 8192, 7, 64);
  EXPECT_EQ((*cut)->bytes()[8192], std::byte{7});
  EXPECT_EQ((*cut)->bytes()[20480], std::byte{0});
  EXPECT_EQ(faults_caught(), before + 2);
  EXPECT_EQ((*cut)->flush(0, 64).code(), ErrorCode::SystemError);
  ASSERT_EQ(::truncate((directory.path() + "/cut").c_str(), 64 * 1024), 0);
  EXPECT_EQ((*cut)->flush(0, 64).code(), ErrorCode::SystemError);
  EXPECT_EQ((*cut)->check().code(), ErrorCode::SystemError);
  std::memset((*whole)->bytes().data() + 8192, 7, 64);
  EXPECT_TRUE((*whole)->flush(8192, 64).ok());
  EXPECT_TRUE((*whole)->check().ok());
}

// Linux splits hugetlb mappings, as those of device DAX, only between units of their own size. No
// huge page has to be free for this: one that is beyond the end of the file faults as a lost one.
TEST(MappingGuard, AMappingOfLargeUnitsLosesAUnit) {
  const int file = ::memfd_create("units", MFD_CLOEXEC | MFD_HUGETLB);
  if (file < 0) GTEST_SKIP() << "this kernel has no hugetlb files";
  struct stat status {};
  ASSERT_EQ(::fstat(file, &status), 0);
  const auto unit = static_cast<std::size_t>(status.st_blksize);
  ASSERT_GT(unit, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  ASSERT_EQ(::ftruncate(file, static_cast<off_t>(3 * unit)), 0);
  auto* const bytes = static_cast<std::byte*>(
      ::mmap(nullptr, 3 * unit, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0));
  ASSERT_NE(bytes, MAP_FAILED);
  {
    const MappingGuard guard({bytes, 3 * unit});
    ASSERT_EQ(::ftruncate(file, 0), 0);
    const auto before = faults_caught();
    EXPECT_FALSE(guard.failed());
    bytes[unit + 4096 + 7] = std::byte{7};
    EXPECT_TRUE(guard.failed());
    EXPECT_EQ(bytes[unit + 4096 + 7], std::byte{7});
    EXPECT_EQ(bytes[2 * unit - 1], std::byte{0});
    EXPECT_EQ(faults_caught(), before + 1);
    // Its neighbours are other units, the first and the last of the mapping among them.
    EXPECT_EQ(bytes[unit - 1], std::byte{0});
    EXPECT_EQ(bytes[2 * unit], std::byte{0});
    EXPECT_EQ(faults_caught(), before + 3);
  }
  ::munmap(bytes, 3 * unit);
  ::close(file);
}

/// What the kernel sends when it gives up a page that nobody is touching.
void tell_of_lost_memory(const void* at) {
  siginfo_t info{};
  info.si_signo = SIGBUS;
  info.si_code = BUS_MCEERR_AO;
  info.si_addr = const_cast<void*>(at);
  info.si_addr_lsb = 12;
  ASSERT_EQ(::syscall(SYS_rt_sigqueueinfo, ::getpid(), SIGBUS, &info), 0);
}

TEST(MappingGuard, LostMemoryFailsItsMappingBeforeItIsTouched) {
  const TestDirectory directory;
  auto lost = MappedRegion::create(directory.path() + "/lost", 64 * 1024, {});
  auto other = MappedRegion::create(directory.path() + "/other", 64 * 1024, {});
  ASSERT_TRUE(lost.ok() && other.ok());
  (*lost)->bytes()[8192] = std::byte{7};
  (*lost)->bytes()[4096] = std::byte{7};
  tell_of_lost_memory((*lost)->bytes().data() + 8192);
  EXPECT_EQ((*lost)->check().code(), ErrorCode::SystemError);
  EXPECT_EQ((*lost)->flush(0, 64).code(), ErrorCode::SystemError);
  EXPECT_EQ((*lost)->bytes()[8192], std::byte{0});  // given up
  EXPECT_EQ((*lost)->bytes()[4096], std::byte{7});
  EXPECT_TRUE((*other)->check().ok());
}

// As by default: who touches it gets a fault, and nobody else.
TEST(MappingGuard, LostMemoryOfOthersEndsNothing) {
  const TestDirectory directory;
  auto region = MappedRegion::create(directory.path() + "/pool", 64 * 1024, {});
  ASSERT_TRUE(region.ok());
  const auto before = faults_caught();
  int mine = 0;
  tell_of_lost_memory(&mine);
  EXPECT_EQ(faults_caught(), before);
  // The handler is still the one that catches faults.
  ASSERT_EQ(::truncate((directory.path() + "/pool").c_str(), 0), 0);
  EXPECT_EQ((*region)->bytes()[8192], std::byte{0});
  EXPECT_EQ(faults_caught(), before + 1);
}

TEST(MappingGuard, AThreadThatAsksIsToldOfLostMemoryEarly) {
  std::thread([] {
    ASSERT_EQ(::prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_DEFAULT);
    ask_for_lost_pages();
    EXPECT_EQ(::prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_EARLY);
  }).join();
}

/// A file of one page without that page: reading it faults.
const volatile char* vanishing_page() {
  char name[] = "/tmp/perdure-vanishing-XXXXXX";
  const int file = ::mkstemp(name);
  ::unlink(name);
  if (::ftruncate(file, 4096) != 0) return nullptr;
  void* const at = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  if (::ftruncate(file, 0) != 0) return nullptr;
  return static_cast<const volatile char*>(at);
}

void exit_seven(int) { ::_exit(7); }

void take_signal(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigaction(SIGBUS, &action, nullptr);
}

TEST(MappingGuardDeathTest, AFaultElsewhereEndsTheProcessAsWithoutUs) {
  EXPECT_EXIT(
      {
        take_signal(SIG_DFL);
        guard_faults();
        (void)*vanishing_page();
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(MappingGuardDeathTest, AFaultElsewhereIsPassedToTheHandlerThatWasThere) {
  EXPECT_EXIT(
      {
        take_signal(exit_seven);
        guard_faults();
        (void)*vanishing_page();
      },
      testing::ExitedWithCode(7), "");
}

TEST(MappingGuardDeathTest, AHandlerThatCameLaterDoesNotGetOurFaults) {
  const TestDirectory directory;  // here: what exits runs no destructors
  EXPECT_EXIT(
      {
        auto cut = MappedRegion::create(directory.path() + "/cut", 64 * 1024, {});
        take_signal(exit_seven);  // as a library does that is loaded later
        guard_faults();
        const int truncated = ::truncate((directory.path() + "/cut").c_str(), 0);
        const bool zero = (*cut)->bytes()[0] == std::byte{0};
        ::_exit(truncated == 0 && zero ? 3 : 4);
      },
      testing::ExitedWithCode(3), "");
}

struct sigaction ours;
void back_to_ours(int signal, siginfo_t* info, void* context) {
  ours.sa_sigaction(signal, info, context);
}

TEST(MappingGuardDeathTest, AHandlerThatPassesItBackIsNoCircle) {
  EXPECT_EXIT(
      {
        take_signal(SIG_DFL);
        guard_faults();
        struct sigaction theirs {};
        theirs.sa_sigaction = back_to_ours;
        theirs.sa_flags = SA_SIGINFO | SA_NODEFER;
        ::sigaction(SIGBUS, &theirs, &ours);
        guard_faults();
        (void)*vanishing_page();
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(MappingGuardLimit, ARegionThatCanNotBeGuardedIsNotOpened) {
  TestDirectory directory(kMemoryFileSystem);
  std::vector<std::byte> bytes(1);
  std::vector<std::unique_ptr<MappingGuard>> guards;
  while (guards.empty() || guards.back()->guards()) {
    ASSERT_LE(guards.size(), MappingGuard::kGuardedMax);
    guards.push_back(std::make_unique<MappingGuard>(bytes));
  }
  EXPECT_EQ(MappedRegion::create(directory.file("x"), 4096, {}).code(), ErrorCode::QueueFull);
  EXPECT_FALSE(std::filesystem::exists(directory.file("x")));
  guards.clear();
  EXPECT_TRUE(MappedRegion::create(directory.file("x"), 4096, {}).ok());
}

}  // namespace
}  // namespace perdure::pmem
