// File: what may be opened, who holds it, and how a new one appears whole or not at all.
#include "pmem/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

ErrorCode code_of_opening(const std::string& path) {
  auto file = open_file(path, OpenMode::ReadWrite);
  EXPECT_FALSE(file.ok()) << path;
  if (file.ok()) return ErrorCode::SystemError;
  EXPECT_NE(file.error().message.find(path), std::string::npos) << file.error().message;
  return file.code();
}

TEST(OpenFile, RefusesWhatCannotHoldAPool) {
  TestDirectory directory;
  ASSERT_EQ(::mkfifo(directory.file("fifo").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("nowhere", directory.file("dangling").c_str()), 0);
  ASSERT_EQ(::symlink("loop", directory.file("loop").c_str()), 0);
  write_all(directory.file("plain"), {'x'});

  EXPECT_EQ(code_of_opening(directory.path()), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of_opening(directory.file("fifo")), ErrorCode::InvalidArgument);  // and no hang
  EXPECT_EQ(code_of_opening(directory.file("loop")), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of_opening("/dev/null"), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of_opening(directory.file("missing")), ErrorCode::NotFound);
  EXPECT_EQ(code_of_opening(directory.file("dangling")), ErrorCode::NotFound);
  EXPECT_EQ(code_of_opening(directory.file("plain") + "/below"), ErrorCode::NotFound);
  EXPECT_EQ(code_of_opening(directory.file(std::string(300, 'n'))), ErrorCode::InvalidArgument);
}

TEST(OpenFile, SaysNoPermission) {
  TestDirectory directory;
  write_all(directory.file("secret"), {'x'});
  ASSERT_EQ(::chmod(directory.file("secret").c_str(), 0), 0);
  EXPECT_EQ(in_child([&]() -> std::string {
              // Root may open anything, so it becomes someone else first.
              constexpr uid_t kNobody = 65534;
              if (::geteuid() == 0) {
                if (::chmod(directory.path().c_str(), 0755) != 0) return "chmod failed";
                if (::setuid(kNobody) != 0) return "setuid failed";
              }
              auto file = open_file(directory.file("secret"), OpenMode::ReadWrite);
              if (file.ok()) return "was opened";
              return file.code() == ErrorCode::PermissionDenied ? "" : file.error().message;
            }),
            "");
}

Result<File> open_and_lock(const std::string& path) {
  auto file = open_file(path, OpenMode::ReadWrite);
  if (!file.ok()) return file;
  auto locked = lock_exclusively(*file);
  if (!locked.ok()) return locked.error();
  return file;
}

TEST(Lock, HoldsAgainstASecondOpenInTheSameProcess) {
  TestDirectory directory;
  write_all(directory.file("x"), {'x'});
  {
    auto first = open_and_lock(directory.file("x"));
    ASSERT_TRUE(first.ok()) << first.error().message;
    auto second = open_and_lock(directory.file("x"));
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.code(), ErrorCode::Busy);
    // Opening and closing elsewhere in the process must not let go of it.
    { auto reader = open_file(directory.file("x"), OpenMode::ReadOnly); }
    EXPECT_EQ(open_and_lock(directory.file("x")).code(), ErrorCode::Busy);
  }
  EXPECT_TRUE(open_and_lock(directory.file("x")).ok());
}

TEST(Lock, NamesTheProcessThatHoldsItAndEndsWithIt) {
  TestDirectory directory;
  write_all(directory.file("x"), {'x'});
  std::optional<Result<File>> held;
  HeldChild holder([&] {
    held.emplace(open_and_lock(directory.file("x")));
    return held->ok();
  });
  ASSERT_TRUE(holder.ready());
  auto second = open_and_lock(directory.file("x"));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.code(), ErrorCode::Busy);
  EXPECT_NE(second.error().message.find("process " + std::to_string(holder.pid())),
            std::string::npos)
      << second.error().message;
  holder.kill();
  EXPECT_TRUE(open_and_lock(directory.file("x")).ok());
}

TEST(NewFile, AppearsOnlyWhenPublished) {
  TestDirectory directory;
  const std::string path = directory.file("x");
  {
    auto made = NewFile::begin(path, 8192);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_TRUE(made->publish(made->file().descriptor()).ok());
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_EQ(directory.names(), std::vector<std::string>{"x"});
  EXPECT_EQ(read_all(path), std::vector<char>(8192));
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_GE(status.st_blocks * 512, 8192);
}

TEST(NewFile, IsGoneWhenNotPublished) {
  TestDirectory directory;
  { ASSERT_TRUE(NewFile::begin(directory.file("x"), 8192).ok()); }
  EXPECT_TRUE(directory.names().empty());
}

TEST(NewFile, NeverReplacesWhatIsThere) {
  TestDirectory directory;
  const std::string path = directory.file("x");
  write_all(path, {'o', 'l', 'd'});
  EXPECT_EQ(NewFile::begin(path, 4096).code(), ErrorCode::AlreadyExists);
  // Someone else takes the name between begin and publish.
  std::filesystem::remove(path);
  {
    auto made = NewFile::begin(path, 4096);
    ASSERT_TRUE(made.ok());
    write_all(path, {'n', 'e', 'w'});
    EXPECT_EQ(made->publish(made->file().descriptor()).code(), ErrorCode::AlreadyExists);
  }
  EXPECT_EQ(read_all(path), (std::vector<char>{'n', 'e', 'w'}));
  EXPECT_EQ(directory.names(), std::vector<std::string>{"x"});
  // A name that leads nowhere is taken all the same.
  ASSERT_EQ(::symlink("nowhere", directory.file("link").c_str()), 0);
  EXPECT_EQ(NewFile::begin(directory.file("link"), 4096).code(), ErrorCode::AlreadyExists);
}

TEST(NewFile, TwoAtOnceIsBusyForTheSecond) {
  TestDirectory directory;
  auto first = NewFile::begin(directory.file("x"), 4096);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(NewFile::begin(directory.file("x"), 4096).code(), ErrorCode::Busy);
  EXPECT_TRUE(first->publish(first->file().descriptor()).ok());
}

TEST(NewFile, TakesOverWhatAKilledCreatorLeft) {
  TestDirectory directory;
  const std::string path = directory.file("x");
  std::optional<Result<NewFile>> half;
  HeldChild creator([&] {
    half.emplace(NewFile::begin(path, 1 << 20));
    return half->ok() && ::pwrite((*half)->file().descriptor(), "junk", 4, 0) == 4;
  });
  ASSERT_TRUE(creator.ready());
  EXPECT_EQ(NewFile::begin(path, 4096).code(), ErrorCode::Busy);
  creator.kill();
  EXPECT_EQ(directory.names(), std::vector<std::string>{"x.creating"});

  auto made = NewFile::begin(path, 4096);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_TRUE(made->publish(made->file().descriptor()).ok());
  EXPECT_EQ(read_all(path), std::vector<char>(4096));  // nothing of the junk, nothing of its size
  EXPECT_EQ(directory.names(), std::vector<std::string>{"x"});
}

TEST(NewFile, DoesNotFollowALinkPlantedUnderItsTemporaryName) {
  TestDirectory directory;
  write_all(directory.file("victim"), {'v'});
  ASSERT_EQ(::symlink(directory.file("victim").c_str(), directory.file("x.creating").c_str()), 0);
  EXPECT_FALSE(NewFile::begin(directory.file("x"), 4096).ok());
  EXPECT_EQ(read_all(directory.file("victim")), std::vector<char>{'v'});
}

// On file systems that can only link and unlink, a crash between the two leaves the whole pool
// under both names; then it may be moved.
TEST(NewFile, DoesNotTruncateAPoolThatStillHasItsTemporaryName) {
  TestDirectory directory;
  write_all(directory.file("moved"), {'m'});
  std::filesystem::create_hard_link(directory.file("moved"), directory.file("x.creating"));
  auto made = NewFile::begin(directory.file("x"), 4096);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_TRUE(made->publish(made->file().descriptor()).ok());
  EXPECT_EQ(read_all(directory.file("moved")), std::vector<char>{'m'});
  EXPECT_EQ(read_all(directory.file("x")), std::vector<char>(4096));
}

TEST(NewFile, NeedsItsDirectory) {
  TestDirectory directory;
  EXPECT_EQ(NewFile::begin(directory.file("no/such/x"), 4096).code(), ErrorCode::NotFound);
}

TEST(NewFile, AProcessLimitIsNoSpaceAndNoSignal) {
  TestDirectory directory;
  EXPECT_EQ(in_child([&]() -> std::string {
              ::signal(SIGXFSZ, SIG_DFL);  // would end this process
              const struct rlimit limit { 65536, 65536 };
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "setrlimit failed";
              auto made = NewFile::begin(directory.file("x"), 1 << 20);
              if (made.ok()) return "was made";
              return made.code() == ErrorCode::NoSpace ? "" : made.error().message;
            }),
            "");
  EXPECT_TRUE(directory.names().empty());
}

// In a mount name space of its own, so that nothing is left mounted however the child ends.
// Empty when it worked.
std::string mount_tiny_disk(const std::string& at) {
  const std::string uid_map = "0 " + std::to_string(::geteuid()) + " 1";
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return "no mount name space";
    std::ofstream("/proc/self/uid_map") << uid_map;
  }
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return "no private mounts";
  if (::mount("none", at.c_str(), "tmpfs", 0, "size=256k") != 0) return "no tmpfs";
  return {};
}

TEST(NewFile, AFullDiskIsNoSpaceAndLeavesNothing) {
  TestDirectory directory;
  const std::string answer = in_child([&]() -> std::string {
    const std::string missing = mount_tiny_disk(directory.path());
    if (!missing.empty()) return "cannot try: " + missing;
    auto large = NewFile::begin(directory.file("large"), 1 << 20);
    if (large.ok()) return "1 MiB fit into 256 KiB";
    if (large.code() != ErrorCode::NoSpace) return large.error().message;
    if (!directory.names().empty()) return "left " + directory.names()[0];
    // Expect: the failed attempt gave back its blocks.
    auto small = NewFile::begin(directory.file("small"), 200 << 10);
    return small.ok() ? "" : small.error().message;
  });
  if (answer.rfind("cannot try", 0) == 0) GTEST_SKIP() << answer << " (needs root)";
  EXPECT_EQ(answer, "");
}

// Where the blocks that were reserved are not the file's for ever: a file system that compresses or
// copies on write, a thin volume. Here somebody takes them away.
TEST(NewFile, ADiskThatIsFullWhileZerosAreWrittenIsNoSpaceAndLeavesNothing) {
  TestDirectory directory;
  const std::string answer = in_child([&]() -> std::string {
    const std::string missing = mount_tiny_disk(directory.path());
    if (!missing.empty()) return "cannot try: " + missing;
    {
      auto made = NewFile::begin(directory.file("x"), 128 << 10);
      if (!made.ok()) return made.error().message;
      const std::string growing = directory.file(directory.names().at(0));
      if (::truncate(growing.c_str(), 0) != 0) return "not cut short";
      if (::truncate(growing.c_str(), 128 << 10) != 0) return "not made longer";
      auto other = NewFile::begin(directory.file("y"), 240 << 10);
      if (!other.ok()) return other.error().message;
      const auto zeroed = made->write_zeros(128 << 10, Deadline::after(std::chrono::seconds{60}));
      if (zeroed.ok()) return "zeros fit where there is no room";
      if (zeroed.code() != ErrorCode::NoSpace) return zeroed.error().message;
      if (zeroed.error().message.find(directory.file("x")) == std::string::npos) return "no name";
    }
    if (!directory.names().empty()) return "left " + directory.names()[0];
    // Expect: there is room again.
    auto again = NewFile::begin(directory.file("x"), 128 << 10);
    if (!again.ok()) return again.error().message;
    const auto zeroed = again->write_zeros(128 << 10, Deadline::after(std::chrono::seconds{60}));
    return zeroed.ok() ? "" : zeroed.error().message;
  });
  if (answer.rfind("cannot try", 0) == 0) GTEST_SKIP() << answer << " (needs root)";
  EXPECT_EQ(answer, "");
}

TEST(NewFile, WhatIsReservedAndWhatIsWrittenCanBeSeen) {
  TestDirectory directory;
  constexpr std::uint64_t kBytes = 1 << 20;
  auto made = NewFile::begin(directory.file("x"), kBytes);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto reserved = unwritten_bytes(made->file());
  if (!reserved) GTEST_SKIP() << "this file system does not tell (FIEMAP)";
  if (*reserved == 0) GTEST_SKIP() << "this file system reserves by writing";
  EXPECT_EQ(*reserved, kBytes);
  ASSERT_TRUE(made->write_zeros(kBytes / 4, Deadline::after(std::chrono::seconds{60})).ok());
  EXPECT_EQ(unwritten_bytes(made->file()), kBytes - kBytes / 4);
  ASSERT_TRUE(made->write_zeros(kBytes, Deadline::after(std::chrono::seconds{60})).ok());
  EXPECT_EQ(unwritten_bytes(made->file()), 0u);
}

}  // namespace
}  // namespace perdure::pmem
