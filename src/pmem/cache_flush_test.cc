// CacheFlush changes no byte and touches no line beyond the range.
#include "pmem/cache_flush.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace perdure::pmem {
namespace {

// On mhp and wsp an answer rests on this instruction alone. A weaker one passes every other test.
TEST(StoreFence, CompletesStoresAndDoesNotOnlyOrderThem) {
  EXPECT_EQ(store_fence_instruction(Processor::X86), "sfence");
  EXPECT_EQ(store_fence_instruction(Processor::Arm64), "dsb sy");
  EXPECT_EQ(store_fence_instruction(Processor::Other), "");
}

#if defined(__x86_64__)
TEST(CacheFlush, TheBestInstructionIsOneThatTheKernelLists) {
  std::ifstream in("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::string name(to_string(best_flush_instruction()));
  EXPECT_NE(text.find(" " + name + " "), std::string::npos) << name;
}

TEST(CacheFlush, KeepsTheBytesAndStaysInsideThePage) {
  auto flush = CacheFlush::best();
  ASSERT_TRUE(flush.ok()) << flush.error().message;
  // A page with forbidden neighbours: a line flushed outside of it would fault.
  constexpr std::size_t kPage = 4096;
  void* at = ::mmap(nullptr, 3 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  auto* page = static_cast<std::byte*>(at) + kPage;
  ASSERT_EQ(::mprotect(page, kPage, PROT_READ | PROT_WRITE), 0);
  std::fill_n(page, kPage, std::byte{0x5A});
  for (const std::size_t from : {0UL, 1UL, 63UL, 64UL, 4095UL})
    for (const std::size_t length : {0UL, 1UL, 63UL, 64UL, 65UL, 4096UL}) {
      if (from + length > kPage) continue;
      flush->lines({page + from, length});
      store_fence();
    }
  EXPECT_TRUE(std::all_of(page, page + kPage, [](std::byte b) { return b == std::byte{0x5A}; }));
  ::munmap(at, 3 * kPage);
}
#endif

}  // namespace
}  // namespace perdure::pmem
