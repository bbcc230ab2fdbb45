// Makes the kernel give up one page of a file or device as if its memory had failed: MADV_HWPOISON,
// for root, where the kernel recovers from lost memory. A page of a file is made dirty before, with
// the bytes that it has: a clean one is only read again. Others write the file back meanwhile, so
// that is repeated until the kernel says that it lost something. TEXT is written to NOTE right
// before, while the page can still be touched: how a driver is told where its memory is bad.
#include <sys/mman.h>

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kUnitBytes = 2 << 20;  // device DAX is mapped in these
constexpr int kTriesMax = 1000;

// Who has a lost page of DAX mapped is told of it, this process too.
void lost(int) { std::_Exit(0); }

bool note(const char* path, const char* text) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  const auto bytes = static_cast<ssize_t>(std::strlen(text));
  return file >= 0 && ::write(file, text, std::strlen(text)) == bytes;
}

int fail(const char* what) {
  std::perror(what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 5) {
    std::fprintf(stderr, "usage: perdure_lab_lose_page FILE OFFSET [NOTE TEXT]\n");
    return 2;
  }
  const std::uint64_t offset = std::strtoull(argv[2], nullptr, 0) / kPageBytes * kPageBytes;
  const int file = ::open(argv[1], O_RDWR | O_CLOEXEC);
  if (file < 0) return fail(argv[1]);
  const std::uint64_t bytes = (offset / kUnitBytes + 1) * kUnitBytes;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return fail("mmap");
  auto* const page = static_cast<unsigned char*>(at) + offset;
  __atomic_fetch_add(page, 0, __ATOMIC_SEQ_CST);
  std::signal(SIGBUS, lost);
  if (argc == 5 && !note(argv[3], argv[4])) return fail(argv[3]);
  for (int tries = 0; tries < kTriesMax; ++tries) {
    __atomic_fetch_add(page, 0, __ATOMIC_SEQ_CST);
    if (::madvise(page, kPageBytes, MADV_HWPOISON) != 0) return fail("MADV_HWPOISON");
    if (::fsync(file) != 0) return 0;  // what was dirty is lost
  }
  std::fprintf(stderr, "%s: the page was clean each of %d times\n", argv[1], kTriesMax);
  return 1;
}
