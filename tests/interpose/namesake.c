/* A program that exports a function of a name that the interposer has too, gets the genuine one by
 * handle, and loads a library that has another such function.
 *
 *   namesake PLUGIN
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>

static int unmapped;

/* Called by whoever unmaps something in this process. */
int munmap(void* address, size_t length) {
  static int (*genuine)(void*, size_t);
  if (genuine == NULL) {
    genuine = (int (*)(void*, size_t))dlsym(dlopen("libc.so.6", RTLD_NOW), "munmap");
  }
  ++unmapped;
  return genuine(address, length);
}

int main(int count, char** words) {
  void* const page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (count != 2 || page == MAP_FAILED || munmap(page, 4096) != 0 || unmapped == 0) return 1;
  void* const plugin = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    fprintf(stderr, "namesake: %s\n", dlerror());
    return 2;
  }
  int (*const own)(const char*, long) = (int (*)(const char*, long))dlsym(plugin, "truncate");
  return own != NULL && own("/nowhere", 1) == 8 ? 0 : 3;
}
