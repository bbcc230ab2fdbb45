// Streams keep their bytes in order whatever the sizes, and believe nothing of the other side.
#include "fabric/shm/shared_rings.h"

#include "core/random.h"
#include "testing/soak.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace perdure::fabric::shm {
namespace {

constexpr std::uint64_t kSize = kAnswerBytes;

struct Stream {
  std::vector<std::byte> bytes = std::vector<std::byte>(kSize);
  std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint64_t> read{0};
};

TEST(Stream, RandomPiecesComeOutAsTheyWentIn) {
  Stream stream;
  StreamWriter writer(stream.bytes, stream.written, stream.read);
  StreamReader reader(stream.bytes, stream.written, stream.read);
  Random random(3);
  std::vector<std::byte> piece(kSize);
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  const std::uint64_t steps = test::rounds(8000, 20'000);
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (random.chance(1, 2)) {
      const std::uint64_t length = std::min(random.below(20'000), writer.room());
      for (std::uint64_t i = 0; i < length; ++i) piece[i] = static_cast<std::byte>((in + i) * 7);
      writer.put({piece.data(), length});
      in += length;
      writer.publish();
    } else {
      const std::uint64_t length = std::min(random.below(20'000), reader.available());
      reader.take({piece.data(), length});
      for (std::uint64_t i = 0; i < length; ++i) {
        ASSERT_EQ(piece[i], static_cast<std::byte>((out + i) * 7)) << out + i;
      }
      out += length;
      reader.release();
    }
    ASSERT_LE(in - out, kSize);
  }
  EXPECT_GT(out, steps * 1000);
}

TEST(Stream, TwoThreadsPassAlignedFrames) {
  Stream stream;
  constexpr std::uint64_t kFrames = 20'000;
  std::thread producer([&] {
    StreamWriter writer(stream.bytes, stream.written, stream.read);
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      while (writer.room() < 128) std::this_thread::yield();
      writer.put(bytes_of(i));
      writer.align(64);
      writer.publish();
    }
  });
  StreamReader reader(stream.bytes, stream.written, stream.read);
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    while (reader.refresh() == 0) std::this_thread::yield();
    std::uint64_t value = 0;
    reader.take(std::as_writable_bytes(std::span(&value, 1)));
    reader.align(64);
    reader.release();
    ASSERT_EQ(value, i);
  }
  producer.join();
}

TEST(Stream, NonsensePositionsMoveNothing) {
  Stream stream;
  StreamWriter writer(stream.bytes, stream.written, stream.read);
  StreamReader reader(stream.bytes, stream.written, stream.read);
  // The peer claims to have read more than was written: no room, rather than room beyond the end.
  const std::vector<std::byte> much(kSize / 2 + 64);
  writer.put(much);
  stream.read = ~std::uint64_t{0} / 2;
  EXPECT_EQ(writer.room(), 0u);
  // The peer claims to have written more than fits: the reader is told so.
  stream.written = kSize * 3;
  EXPECT_GT(reader.refresh(), kSize);
}

TEST(SharedRings, OnlySealedMemoryOfTheRightFormIsMapped) {
  auto rings = create_rings();
  ASSERT_TRUE(rings.ok()) << rings.error().message;
  EXPECT_TRUE(map_rings(rings->descriptor).ok());

  // Receive: memory that the peer could shrink later, which would kill us with SIGBUS.
  const Descriptor unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.number(), sizeof(SharedMemory)), 0);
  EXPECT_FALSE(map_rings(unsealed).ok());

  const Descriptor small(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(small.number(), 4096), 0);
  ASSERT_EQ(::fcntl(small.number(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(map_rings(small).ok());

  const Descriptor empty(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(empty.number(), sizeof(SharedMemory)), 0);
  ASSERT_EQ(::fcntl(empty.number(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(map_rings(empty).ok());  // no magic
}

}  // namespace
}  // namespace perdure::fabric::shm
