// Pool: made whole or not at all, opened by one, and every damaged file refused with a reason.
#include "pmem/pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <thread>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "pmem/lent_region.h"
#include "pmem/pool_fixture.h"

namespace perdure::pmem {
namespace {

constexpr std::size_t kSmallFileBytes = 167'936;  // 65536 + 100000, up to a page

void check_reopen(const std::string& path) {
  Uuid uuid;
  {
    auto pool = Pool::create(path, small_pool());
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    uuid = (*pool)->uuid();
    EXPECT_EQ((*pool)->data_bytes(), 100'000U);
    EXPECT_EQ((*pool)->data_offset(), 65536U);
    EXPECT_EQ((*pool)->data().size(), 100'000U);
    EXPECT_EQ((*pool)->epoch(), Epoch{0});
    EXPECT_FALSE((*pool)->was_shut_down());
    std::memcpy((*pool)->data().data(), "hello", 5);
    ASSERT_TRUE((*pool)->region().flush((*pool)->data_offset(), 5).ok());
    ASSERT_TRUE((*pool)->set_state(state_of(7, "host:1")).ok());
    ASSERT_TRUE((*pool)->close().ok());
  }
  auto pool = Pool::open(path, {});
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  EXPECT_EQ((*pool)->uuid(), uuid);
  EXPECT_EQ((*pool)->header().name, "orders");
  EXPECT_EQ((*pool)->header().kind, "log");
  EXPECT_TRUE((*pool)->was_shut_down());
  EXPECT_EQ(as_given((*pool)->state()), state_of(7, "host:1"));
  EXPECT_EQ(std::memcmp((*pool)->data().data(), "hello", 5), 0);
}

TEST_F(PoolFile, KeepsDataAndStateOverReopenInMemory) { check_reopen(path_); }

TEST(PoolOnDisk, KeepsDataAndStateOverReopen) {
  TestDirectory directory;
  check_reopen(directory.file("a.pool"));
}

/// The extents of a file that are only reserved. Nothing: the file system does not tell.
std::optional<std::size_t> count_reserved_extents(const std::string& path) {
  constexpr std::uint32_t kExtentsMax = 64;
  std::vector<std::byte> room(sizeof(fiemap) + kExtentsMax * sizeof(fiemap_extent));
  auto* map = reinterpret_cast<fiemap*>(room.data());
  map->fm_length = FIEMAP_MAX_OFFSET;
  map->fm_flags = FIEMAP_FLAG_SYNC;
  map->fm_extent_count = kExtentsMax;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int failed = ::ioctl(descriptor, FS_IOC_FIEMAP, map);
  ::close(descriptor);
  if (failed != 0) return std::nullopt;
  const std::span extents(map->fm_extents, map->fm_mapped_extents);
  return std::count_if(extents.begin(), extents.end(), [](const fiemap_extent& extent) {
    return (extent.fe_flags & FIEMAP_EXTENT_UNWRITTEN) != 0;
  });
}

TEST(PoolOnDisk, WrittenZerosAreAPoolLikeAnyOther) {
  TestDirectory directory;
  const std::string path = directory.file("a.pool");
  PoolOptions options = small_pool();
  options.data_bytes = (1 << 20) + 5;  // more than one write
  ASSERT_TRUE(Pool::create(directory.file("reserved.pool"), options).ok());
  options.zeroed_bytes_max = 1 << 30;
  ASSERT_TRUE(Pool::create(path, options).ok());
  if (const auto reserved = count_reserved_extents(directory.file("reserved.pool"))) {
    EXPECT_GT(*reserved, 0U);
    EXPECT_EQ(count_reserved_extents(path), 0U);
  }
  auto pool = Pool::open(path, {});
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  const auto data = (*pool)->data();
  EXPECT_EQ(std::count(data.begin(), data.end(), std::byte{0}), (1 << 20) + 5);
}

TEST_F(PoolFile, WithoutCloseItWasNotShutDown) {
  create();
  auto pool = Pool::open(path_, {});
  ASSERT_TRUE(pool.ok());
  EXPECT_FALSE((*pool)->was_shut_down());
}

TEST_F(PoolFile, SetStateAfterCloseTakesTheMarkAway) {
  {
    auto pool = Pool::create(path_, small_pool());
    ASSERT_TRUE(pool.ok() && (*pool)->close().ok());
    PoolState state = state_of(1, "x");
    state.clean_shutdown = true;  // not for the caller to say
    ASSERT_TRUE((*pool)->set_state(state).ok());
    EXPECT_FALSE((*pool)->state().clean_shutdown);
  }
  EXPECT_FALSE(Pool::open(path_, {}).value()->was_shut_down());
}

TEST_F(PoolFile, AnEpochNeverGoesBack) {
  create();
  auto pool = Pool::open(path_, {});
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->set_state(state_of(6, "late")).code(), ErrorCode::Fenced);
  EXPECT_EQ(as_given((*pool)->state()), state_of(7, "host:1"));
  EXPECT_TRUE((*pool)->set_state(state_of(7, "same epoch")).ok());
  EXPECT_TRUE((*pool)->set_state(state_of(8, "next")).ok());
  EXPECT_EQ((*pool)->epoch(), Epoch{8});
}

TEST_F(PoolFile, StateThatDoesNotFitChangesNothing) {
  create();
  auto pool = Pool::open(path_, {});
  ASSERT_TRUE(pool.ok());
  PoolState large = state_of(8, "x");
  large.opaque.resize(kOpaqueBytesMax + 1);
  EXPECT_EQ((*pool)->set_state(large).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ((*pool)->set_state(state_of(8, std::string(257, 'x'))).code(),
            ErrorCode::InvalidArgument);
  EXPECT_EQ(as_given((*pool)->state()), state_of(7, "host:1"));
}

TEST_F(PoolFile, CreateRefusesWhatDoesNotFitAndLeavesNothing) {
  const auto code_of = [&](auto change) {
    PoolOptions options = small_pool();
    change(options);
    return Pool::create(path_, options).code();
  };
  const auto wrong = ErrorCode::InvalidArgument;
  EXPECT_EQ(code_of([](PoolOptions& o) { o.data_bytes = 0; }), wrong);
  EXPECT_EQ(code_of([](PoolOptions& o) { o.data_bytes = ~std::uint64_t{0}; }), wrong);
  EXPECT_EQ(code_of([](PoolOptions& o) { o.data_bytes = kPoolDataBytesMax + 1; }), wrong);
  EXPECT_EQ(code_of([](PoolOptions& o) { o.name = std::string(129, 'n'); }), wrong);
  EXPECT_EQ(code_of([](PoolOptions& o) { o.kind = "two\nlines"; }), wrong);
  EXPECT_EQ(code_of([](PoolOptions& o) { o.declared = PersistenceDomain::Page; }),
            ErrorCode::Unsupported);
  EXPECT_EQ(code_of([](PoolOptions& o) { o.data_bytes = std::uint64_t{1} << 45; }),
            ErrorCode::NoSpace);
  EXPECT_TRUE(directory_.names().empty());
}

TEST_F(PoolFile, CreateNeverReplacesAPool) {
  create();
  EXPECT_EQ(Pool::create(path_, small_pool()).code(), ErrorCode::AlreadyExists);
  EXPECT_EQ(Pool::open(path_, {}).value()->uuid(), uuid_);
}

TEST_F(PoolFile, IsOpenedByOneOnly) {
  create();
  HeldChild holder([&] {
    auto pool = Pool::open(path_, {});
    if (!pool.ok()) return false;
    static_cast<void>(pool->release());  // lives as long as the child
    return true;
  });
  ASSERT_TRUE(holder.ready());
  auto second = Pool::open(path_, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.code(), ErrorCode::Busy);
  EXPECT_NE(second.error().message.find(std::to_string(holder.pid())), std::string::npos)
      << second.error().message;
  // Describing needs no lock.
  EXPECT_TRUE(Pool::inspect(path_).ok());
  holder.kill();
  auto third = Pool::open(path_, {});
  ASSERT_TRUE(third.ok()) << third.error().message;
  EXPECT_EQ(Pool::open(path_, {}).code(), ErrorCode::Busy);  // the same process
}

TEST_F(PoolFile, InspectChangesNothing) {
  create();
  const std::vector<char> before = read_all(path_);
  auto info = Pool::inspect(path_);
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(read_all(path_), before);
  EXPECT_EQ(info->header.uuid, uuid_);
  EXPECT_EQ(as_given(info->state), state_of(7, "host:1"));
  EXPECT_EQ(info->domain, PersistenceDomain::None);
  EXPECT_TRUE(info->state_copies_agree);
  const std::string text = to_string(*info);
  for (const char* part : {"orders", "log", "100000 bytes", "tmpfs",
                           "epoch:      7, held by host:1", "domain:     none"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST_F(PoolFile, InspectSeesAStateThatGoesForwardWhileItChanges) {
  create();
  auto pool = Pool::open(path_, {});
  ASSERT_TRUE(pool.ok());
  constexpr std::uint32_t kLast = 2000;
  std::thread writer([&] {
    for (std::uint32_t epoch = 8; epoch <= kLast; ++epoch)
      EXPECT_TRUE((*pool)->set_state(state_of(epoch, std::string(epoch % 200, 'w'))).ok());
  });
  Epoch seen{0};
  for (int look = 0; look < 200; ++look) {
    auto info = Pool::inspect(path_);
    EXPECT_TRUE(info.ok()) << info.error().message;
    if (!info.ok()) break;
    EXPECT_GE(info->state.epoch, seen);
    seen = info->state.epoch;
  }
  writer.join();
  EXPECT_EQ(Pool::inspect(path_)->state.epoch, Epoch{kLast});
}

TEST_F(PoolFile, ASickMediumIsReportedByEveryChangeOfState) {
  TestDirectory disk;
  auto medium = examine_file_system(disk.path());
  ASSERT_TRUE(medium.ok());
  if (medium->kind != MediumKind::PageCache) GTEST_SKIP() << disk.path() << " is not a disk";
  class Sick final : public SyncCalls {
   public:
    int sync_range(std::byte*, std::size_t) override { return error; }
    int error = 0;
  } calls;
  PoolOptions options = small_pool();
  options.declared = PersistenceDomain::Page;
  ASSERT_TRUE(Pool::create(disk.file("a.pool"), options).ok());
  OpenOptions sick;
  sick.sync_calls = &calls;
  auto pool = Pool::open(disk.file("a.pool"), sick);
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  calls.error = ENOSPC;
  EXPECT_EQ((*pool)->set_state(state_of(1, "x")).code(), ErrorCode::NoSpace);
  EXPECT_EQ((*pool)->epoch(), Epoch{0});
  calls.error = 0;
  EXPECT_EQ((*pool)->set_state(state_of(2, "x")).code(), ErrorCode::NoSpace);
  EXPECT_EQ((*pool)->close().code(), ErrorCode::NoSpace);
}

TEST_F(PoolFile, EveryTruncationIsRefused) {
  create();
  const std::vector<char> whole = read_all(path_);
  ASSERT_EQ(whole.size(), kSmallFileBytes);
  const auto check = [&](std::size_t length) {
    write_all(path_, {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
    EXPECT_EQ(code_of_opening(), ErrorCode::Corrupt) << length;
  };
  for (std::size_t length = 0; length < 32; ++length) check(length);
  for (std::size_t length = 32; length < 13'000; length += 97) check(length);
  for (std::size_t length = 13'000; length < whole.size(); length += 4099) check(length);
  check(4096);
  check(kPoolFrontBytes);
  check(kPoolDataOffset);
  check(whole.size() - 4096);
  check(whole.size() - 1);
  EXPECT_NE(message_.find("truncated"), std::string::npos) << message_;
  write_all(path_, {});
  EXPECT_EQ(code_of_opening(), ErrorCode::Corrupt);
  EXPECT_NE(message_.find("is empty"), std::string::npos) << message_;
}

TEST_F(PoolFile, AnExtendedFileIsRefused) {
  create();
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(kSmallFileBytes + 4096)), 0);
  EXPECT_EQ(code_of_opening(), ErrorCode::Corrupt);
  EXPECT_NE(message_.find("extended"), std::string::npos) << message_;
}

// Every byte in front of the data, one bit each. In the header's magic number the pool is refused:
// another file may have been put there. Elsewhere another copy stands in, and opening repairs the
// damaged one. In the reserved bytes nothing is read.
TEST_F(PoolFile, EveryFlippedByteIsRefusedOrHarmless) {
  create();
  const std::vector<char> whole = read_all(path_);
  const int descriptor = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  const auto restore = [&] {
    return ::pwrite(descriptor, whole.data(), kPoolHeadBytes, 0) ==
           static_cast<ssize_t>(kPoolHeadBytes);
  };
  for (std::size_t at = 0; at < kPoolDataOffset; at += at < kPoolFrontBytes ? 1 : 499) {
    const char flipped = static_cast<char>(whole[at] ^ (1 << (at % 8)));
    ASSERT_TRUE(restore());
    ASSERT_EQ(::pwrite(descriptor, &flipped, 1, static_cast<off_t>(at)), 1);
    auto pool = Pool::open(path_, {});
    if (at < 8) {
      ASSERT_FALSE(pool.ok()) << "byte " << at;
      EXPECT_EQ(pool.code(), ErrorCode::InvalidArgument);
      continue;
    }
    ASSERT_TRUE(pool.ok()) << "byte " << at << ": " << pool.error().message;
    EXPECT_EQ(as_given((*pool)->state()), state_of(7, "host:1")) << "byte " << at;
    EXPECT_EQ((*pool)->uuid(), uuid_);
    EXPECT_TRUE(Pool::inspect(path_)->state_copies_agree) << "byte " << at;
  }
  ::close(descriptor);
}

TEST_F(PoolFile, AnotherVersionIsNamed) {
  create();
  std::vector<char> bytes = read_all(path_);
  auto* page = reinterpret_cast<std::byte*>(bytes.data());
  store(page + 8, std::uint32_t{2});
  store(page + 4092, crc32c({page, 4092}));
  write_all(path_, bytes);
  EXPECT_EQ(code_of_opening(), ErrorCode::VersionMismatch);
  EXPECT_NE(message_.find("version 2"), std::string::npos) << message_;
}

TEST_F(PoolFile, OtherFilesAreNotPools) {
  write_all(path_, std::vector<char>(kSmallFileBytes, 'x'));
  EXPECT_EQ(code_of_opening(), ErrorCode::InvalidArgument);
  write_all(path_, std::vector<char>(kSmallFileBytes));
  EXPECT_EQ(code_of_opening(), ErrorCode::InvalidArgument);
  write_all(path_, std::vector<char>(20, 'x'));
  EXPECT_EQ(code_of_opening(), ErrorCode::InvalidArgument);
  EXPECT_EQ(Pool::open(directory_.path(), {}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(Pool::open("/dev/null", {}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(Pool::open(directory_.file("missing"), {}).code(), ErrorCode::NotFound);
  EXPECT_EQ(Pool::create("/dev/null", small_pool()).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(Pool::create(directory_.path(), small_pool()).code(), ErrorCode::AlreadyExists);
}

TEST_F(PoolFile, EveryStateDamagedIsCorrupt) {
  create();
  std::vector<char> bytes = read_all(path_);
  std::fill_n(bytes.begin() + kPoolPageBytes, 2 * kPoolPageBytes, '\0');
  std::fill_n(bytes.begin() + kSpareStateOffset, kPoolPageBytes, '\0');
  write_all(path_, bytes);
  EXPECT_EQ(code_of_opening(), ErrorCode::Corrupt);
  EXPECT_NE(message_.find("all copies"), std::string::npos) << message_;
}

// A drive that lost its power may have lost the whole unit that it was writing: as zeros, or as
// whatever was in its flash.
TEST_F(PoolFile, AnyOneDriveUnitMayBeLost) {
  create();
  const std::vector<char> whole = read_all(path_);
  for (const char left : {'\0', '\x5a'}) {
    for (std::uint64_t unit = 0; unit < kPoolDataOffset; unit += kDriveUnitBytes) {
      std::vector<char> bytes = whole;
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(unit), kDriveUnitBytes, left);
      write_all(path_, bytes);
      auto pool = Pool::open(path_, {});
      if (unit == 0 && left != '\0') {  // something else may have been put there
        EXPECT_EQ(pool.code(), ErrorCode::InvalidArgument);
        continue;
      }
      ASSERT_TRUE(pool.ok()) << "unit at " << unit << ": " << pool.error().message;
      EXPECT_EQ(as_given((*pool)->state()), state_of(7, "host:1"));
      EXPECT_EQ((*pool)->uuid(), uuid_);
      pool->reset();
      // Expect: it is whole again, and may lose another one.
      const std::vector<char> repaired = read_all(path_);
      const PoolPage header = load<PoolPage>(reinterpret_cast<const std::byte*>(repaired.data()));
      EXPECT_TRUE(decode_header(header).ok());
      EXPECT_TRUE(std::equal(header.begin(), header.end(),
                             reinterpret_cast<const std::byte*>(&repaired[kHeaderCopyOffset])));
      EXPECT_EQ(
          std::memcmp(&repaired[kPoolPageBytes], &repaired[kSpareStateOffset], kPoolPageBytes), 0);
    }
  }
}

TEST_F(PoolFile, APoolWithoutTheCopiesGetsThem) {
  create();
  std::vector<char> bytes = read_all(path_);
  const std::vector<char> whole = bytes;
  // As version 1 was written before there were copies: zeros there.
  std::fill_n(bytes.begin() + kPoolFrontBytes, kPoolHeadBytes - kPoolFrontBytes, '\0');
  write_all(path_, bytes);
  EXPECT_TRUE(Pool::inspect(path_)->state_copies_agree);
  EXPECT_EQ(as_given((*Pool::open(path_, {}))->state()), state_of(7, "host:1"));
  bytes = read_all(path_);
  EXPECT_EQ(std::memcmp(&bytes[kHeaderCopyOffset], bytes.data(), kPoolPageBytes), 0);
  // An older Perdure has gone on with the slots alone. Expect: they count, not the spare copy.
  std::copy_n(whole.begin() + kSpareStateOffset, kPoolPageBytes, bytes.begin() + kSpareStateOffset);
  write_all(path_, bytes);
  auto pool = Pool::open(path_, {});
  ASSERT_TRUE(pool.ok());
  EXPECT_GT((*pool)->info().state_generation, 1u);
  EXPECT_EQ(as_given((*pool)->state()), state_of(7, "host:1"));
}

/// A device to which somebody else comes first: at the moment when its lease is taken, a pool has
/// been made there, by an owner that has ended since.
class OvertakenDevice final : public LentRegion {
 public:
  OvertakenDevice(Region& device, std::vector<std::byte> made)
      : LentRegion(device), made_(std::move(made)) {}
  using Region::flush;
  Result<void> flush(std::span<const Range> ranges) override {
    const bool of_lease = ranges.size() == 1 && ranges[0].at == kOwnerLeaseOffset;
    if (of_lease) std::copy(made_.begin(), made_.end(), bytes().begin());
    made_.clear();
    return LentRegion::flush(ranges);
  }

 private:
  std::vector<std::byte> made_;
};

TEST_F(PoolFile, ADeviceIsLookedAtAgainOnceItsLeaseIsTaken) {
  auto memory = MappedRegion::create(path_, 1 << 20, {});
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  MappedRegion& device = **memory;
  auto others = Pool::format_device(std::make_unique<LentRegion>(device), small_pool(), "device");
  ASSERT_TRUE(others.ok()) << others.error().message;
  const Uuid uuid = (*others)->uuid();
  others->reset();
  const auto front = device.bytes().first(kOwnerLeaseOffset);
  const std::vector<std::byte> pool(front.begin(), front.end());
  // Receive: a device that holds a pool. Expect: it stays as it is.
  EXPECT_EQ(Pool::format_device(std::make_unique<LentRegion>(device), small_pool(), "d").code(),
            ErrorCode::AlreadyExists);
  // Receive: one that is blank when it is first looked at.
  std::fill(front.begin(), front.end(), std::byte{0});
  const auto late =
      Pool::format_device(std::make_unique<OvertakenDevice>(device, pool), small_pool(), "device");
  EXPECT_EQ(late.code(), ErrorCode::AlreadyExists);
  const auto found = Pool::attach(std::make_unique<LentRegion>(device));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ((*found)->uuid(), uuid);
}

// Not a state, not the mark of a clean end, not who owns it.
TEST_F(PoolFile, WhoLostADeviceWritesNothingMoreToIt) {
  auto memory = MappedRegion::create(path_, 1 << 20, {});
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  MappedRegion& device = **memory;
  auto pool = Pool::format_device(std::make_unique<LentRegion>(device), small_pool(), "device");
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  OwnerLease::Options by_force;
  by_force.take_over = true;
  LentRegion others(device);
  const auto lease = OwnerLease::take(others, kOwnerLeaseOffset, by_force);
  ASSERT_TRUE(lease.ok()) << lease.error().message;
  const auto front = device.bytes().first(kOwnerLeaseOffset);
  const std::vector<std::byte> before(front.begin(), front.end());
  EXPECT_EQ((*pool)->set_state(state_of(7, "late")).code(), ErrorCode::SystemError);
  EXPECT_EQ((*pool)->close(Pool::Contents::Settled).code(), ErrorCode::SystemError);
  EXPECT_TRUE(std::equal(front.begin(), front.end(), before.begin()));
  EXPECT_EQ((*pool)->region().check().code(), ErrorCode::SystemError);
  pool->reset();
  EXPECT_TRUE(std::equal(front.begin(), front.end(), before.begin()));
  EXPECT_TRUE((*lease)->check().ok());
}

/// A device that refuses a flush, of the lease or of what comes after it.
class RefusingDevice final : public LentRegion {
 public:
  RefusingDevice(Region& device, int accepted) : LentRegion(device), accepted_(accepted) {}
  using Region::flush;
  Result<void> flush(std::span<const Range> ranges) override {
    if (accepted_-- <= 0) return Error{ErrorCode::SystemError, "the medium is damaged"};
    return LentRegion::flush(ranges);
  }

 private:
  int accepted_;
};

// Expect: it is nobody's afterwards, and the one before knows that it is not his any more.
TEST_F(PoolFile, ADeviceWhoseMediumFailsAsItIsTakenOverIsNobodys) {
  ASSERT_TRUE(MappedRegion::create(path_, 1 << 20, {}).ok());
  std::vector<std::unique_ptr<MappedRegion>> mappings;
  const auto device = [&]() -> MappedRegion& {  // a mapping of its own for each
    auto file = open_file(path_, OpenMode::ReadWrite);
    EXPECT_TRUE(file.ok());
    auto mapped = MappedRegion::map(std::move(*file), {});
    EXPECT_TRUE(mapped.ok());
    mappings.push_back(std::move(*mapped));
    return *mappings.back();
  };
  const auto lent = [&] { return std::make_unique<LentRegion>(device()); };
  ASSERT_TRUE(Pool::format_device(lent(), small_pool(), "device").ok());
  OpenOptions taking_over;
  taking_over.take_over_lease = true;
  for (const int accepted : {0, 1, 2}) {  // flushes: of the lease, of the state and what follows
    auto first = Pool::attach_device(lent(), "device", 1);
    ASSERT_TRUE(first.ok()) << first.error().message;
    ASSERT_TRUE((*first)->close().ok());  // so there is a mark to take away
    EXPECT_EQ(Pool::attach_device(lent(), "device", 1).code(), ErrorCode::Busy);
    const auto broken = Pool::attach_device(std::make_unique<RefusingDevice>(device(), accepted),
                                            "device", 1, taking_over);
    EXPECT_EQ(broken.code(), ErrorCode::SystemError) << accepted;
    EXPECT_EQ((*first)->region().check().code(), ErrorCode::SystemError) << accepted;
    EXPECT_EQ((*first)->set_state(state_of(7, "late")).code(), ErrorCode::SystemError);
    const auto next = Pool::attach_device(lent(), "device", 1);
    EXPECT_TRUE(next.ok()) << accepted << ": " << next.error().message;
  }
}

TEST_F(PoolFile, AKilledCreatorLeavesNoPoolAndNoObstacle) {
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto pool = Pool::create(path_, small_pool());
      ::_exit(pool.ok() ? 0 : 1);
    }
    // The child is at some point of the creation, and there is no need to know at which.
    for (int spin = 0; spin < round * 2000; ++spin) ::getppid();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    auto pool = Pool::open(path_, {});
    if (!pool.ok()) {
      ASSERT_EQ(pool.code(), ErrorCode::NotFound) << pool.error().message;
      auto made = Pool::create(path_, small_pool());
      ASSERT_TRUE(made.ok()) << made.error().message;
    }
    EXPECT_EQ(directory_.names(), std::vector<std::string>{"a.pool"});
    std::filesystem::remove(path_);
  }
}

}  // namespace
}  // namespace perdure::pmem
