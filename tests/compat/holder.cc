// holder HOST SET BYTES: opens a pool by librpmem, says so, and keeps it until it is killed.
#include <librpmem.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::size_t bytes = std::strtoull(argv[3], nullptr, 10);
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned lanes = 1;
  if (at == MAP_FAILED || rpmem_open(argv[1], argv[2], at, bytes, &lanes, nullptr) == nullptr) {
    std::fprintf(stderr, "%s\n", rpmem_errormsg());
    return 1;
  }
  std::puts("open");
  std::fflush(stdout);
  for (;;) ::pause();
}
