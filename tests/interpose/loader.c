/* A program that is linked with none of PMDK's libraries: it loads them while it runs and looks
 * their functions up, as programs in other languages do. FILE is made new and mapped by libpmem and
 * by libpmem2; then seven of its pages are made durable, each in another way.
 *
 *   loader FILE
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <libpmem.h>
#include <libpmem2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { kFileBytes = 1 << 20, kPage = 4096 };

static void* load(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    fprintf(stderr, "loader: %s\n", dlerror());
    exit(1);
  }
  return handle;
}

/* As its manual has it: an error is what dlerror() says, not what was found. */
static void* find(void* handle, const char* name) {
  dlerror();
  void* found = dlsym(handle, name);
  const char* error = dlerror();
  if (error != NULL || found == NULL) {
    fprintf(stderr, "loader: %s: %s\n", name, error == NULL ? "not found" : error);
    exit(1);
  }
  return found;
}
#define FIND(handle, name) ((__typeof__(&name))find(handle, #name))

static char* map_by_pmem(void* pmem, const char* path) {
  size_t length = 0;
  char* bytes = FIND(pmem, pmem_map_file)(path, kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (bytes == NULL) {
    fprintf(stderr, "loader: pmem_map_file: %s\n", FIND(pmem, pmem_errormsg)());
    exit(1);
  }
  return bytes;
}

static struct pmem2_map* map_by_pmem2(void* pmem2, const char* path) {
  struct pmem2_config* config = NULL;
  struct pmem2_source* source = NULL;
  struct pmem2_map* map = NULL;
  const int file = open(path, O_RDWR);
  const enum pmem2_granularity pages = PMEM2_GRANULARITY_PAGE;
  if (file < 0 || FIND(pmem2, pmem2_config_new)(&config) != 0 ||
      FIND(pmem2, pmem2_source_from_fd)(&source, file) != 0 ||
      FIND(pmem2, pmem2_config_set_required_store_granularity)(config, pages) != 0 ||
      FIND(pmem2, pmem2_map_new)(&map, config, source) != 0) {
    fprintf(stderr, "loader: pmem2_map_new: %s\n", FIND(pmem2, pmem2_errormsg)());
    exit(1);
  }
  return map;
}

static void persist_by(void* handle, char* at) {
  *at = 1;
  FIND(handle, pmem_persist)(at, 1);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  void* pmem = load("libpmem.so.1");
  void* pmem2 = load("libpmem2.so.1");
  void* libc = load("libc.so.6");
  char* pages = map_by_pmem(pmem, argv[1]);
  struct pmem2_map* map = map_by_pmem2(pmem2, argv[1]);
  char* same_pages = FIND(pmem2, pmem2_map_get_address)(map);

  persist_by(pmem, pages);
  const char word[] = "a word";
  FIND(pmem, pmem_memcpy_persist)(pages + kPage, word, sizeof word);
  pages[2 * kPage] = 1;
  FIND(pmem, pmem_flush)(pages + 2 * kPage, 1);
  FIND(pmem, pmem_drain)();
  /* Without a handle there is the interposer's alone: libpmem was loaded for nobody else. */
  persist_by(RTLD_DEFAULT, pages + 3 * kPage);
  persist_by(RTLD_NEXT, pages + 4 * kPage);
  pages[5 * kPage] = 1;
  if (FIND(libc, msync)(pages + 5 * kPage, kPage, MS_SYNC) != 0) return 1;
  same_pages[6 * kPage] = 1;
  FIND(pmem2, pmem2_get_persist_fn)(map)(same_pages + 6 * kPage, 1);
  return 0;
}
