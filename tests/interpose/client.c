/* A program on PMDK's libraries that knows nothing of Perdure, and makes a known number of things
 * durable. FILE is made new.
 *
 *   client obj FILE COUNT THREADS   so many persists by each thread, of a line of its own
 *   client fork FILE COUNT          so many by the program, and as many by its child, one after the
 *                                   other
 *   client fail FILE COUNT          so many, then abort()
 *   client exit FILE COUNT          so many, then exit status 3
 *   client pmem FILE COUNT          libpmem: per round a copy with a drain, two lines and a drain,
 *                                   and a persist of a line that did not change
 *   client pmem2 FILE COUNT         libpmem2, by function pointers: a persist, and a copy
 *   client msync FILE COUNT         no library: stores, and msync
 *   client grow FILE COUNT          libpmem: the file grows to twice its size, and is mapped again
 *   client closes FILE COUNT        closes what it does not know, as daemons do, has files of its
 *                                   own in FILE.own, and persists 4096 lines a round; then the file
 *                                   grows, is mapped again, and one line is persisted
 *   client shrink FILE COUNT        as msync, then the file is made shorter, and synced once more
 *   client silent FILE COUNT        maps and stores, and makes nothing durable
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <libpmem.h>
#include <libpmem2.h>
#include <libpmemobj.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kFileBytes = 1 << 20, kThreadsMax = 16, kLine = 64 };

static int fail(const char* what, const char* why) {
  fprintf(stderr, "client: %s: %s\n", what, why);
  return 1;
}

struct line {
  uint64_t value;
  char rest[kLine - sizeof(uint64_t)];
};

struct root {
  struct line lines[kThreadsMax];
};

struct work {
  PMEMobjpool* pool;
  struct line* line;
  uint64_t count;
};

static void* persist_all(void* argument) {
  struct work* work = argument;
  for (uint64_t i = 0; i < work->count; ++i) {
    work->line->value += 1;
    pmemobj_persist(work->pool, &work->line->value, sizeof work->line->value);
  }
  return NULL;
}

static int in_threads(PMEMobjpool* pool, struct root* root, uint64_t count, int threads) {
  pthread_t running[kThreadsMax];
  struct work work[kThreadsMax];
  for (int i = 0; i < threads; ++i) {
    work[i] = (struct work){pool, &root->lines[i], count};
    if (pthread_create(&running[i], NULL, persist_all, &work[i]) != 0) return 1;
  }
  for (int i = 0; i < threads; ++i) pthread_join(running[i], NULL);
  return 0;
}

static int with_objects(const char* how, const char* path, uint64_t count, int threads) {
  PMEMobjpool* pool = pmemobj_create(path, "client", PMEMOBJ_MIN_POOL, 0600);
  if (pool == NULL) return fail("pmemobj_create", pmemobj_errormsg());
  const PMEMoid oid = pmemobj_root(pool, sizeof(struct root));
  /* Lines of 64 bytes, wherever the object begins. */
  const uintptr_t at = (uintptr_t)pmemobj_direct(oid);
  struct root* root = (struct root*)((at + kLine - 1) / kLine * kLine);
  if (OID_IS_NULL(oid)) return fail("pmemobj_root", pmemobj_errormsg());
  if (strcmp(how, "obj") == 0) {
    const int status = in_threads(pool, root, count, threads);
    pmemobj_close(pool);
    return status;
  }
  struct work work = {pool, &root->lines[0], count};
  persist_all(&work);
  if (strcmp(how, "fail") == 0) abort();
  if (strcmp(how, "exit") == 0) exit(3);
  const pid_t child = fork();
  if (child == 0) {
    work.line = &root->lines[1];
    persist_all(&work);
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  pmemobj_close(pool);
  return 0;
}

static int with_pmem(const char* path, uint64_t count) {
  size_t length = 0;
  struct line* lines = pmem_map_file(path, kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (lines == NULL) return fail("pmem_map_file", pmem_errormsg());
  for (uint64_t i = 1; i <= count; ++i) {
    pmem_memcpy_persist(&lines[0], &i, sizeof i);
    lines[1].value = i;
    lines[2].value = i;
    pmem_flush(&lines[1], 2 * sizeof lines[1]);
    pmem_drain();
    pmem_persist(&lines[8], sizeof lines[8]);
  }
  return pmem_unmap(lines, length);
}

static int with_pmem2(const char* path, uint64_t count) {
  struct pmem2_config* config = NULL;
  struct pmem2_source* source = NULL;
  struct pmem2_map* map = NULL;
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) return fail("open", path);
  if (pmem2_config_new(&config) != 0 || pmem2_source_from_fd(&source, file) != 0 ||
      pmem2_config_set_required_store_granularity(config, PMEM2_GRANULARITY_PAGE) != 0 ||
      pmem2_map_new(&map, config, source) != 0) {
    return fail("pmem2_map_new", pmem2_errormsg());
  }
  close(file);
  struct line* lines = pmem2_map_get_address(map);
  const pmem2_persist_fn persist = pmem2_get_persist_fn(map);
  const pmem2_memcpy_fn copy = pmem2_get_memcpy_fn(map);
  for (uint64_t i = 1; i <= count; ++i) {
    lines[0].value = i;
    persist(&lines[0], sizeof lines[0]);
    copy(&lines[4], &i, sizeof i, 0);
  }
  pmem2_map_delete(&map);
  pmem2_source_delete(&source);
  return pmem2_config_delete(&config);
}

static int without_library(const char* path, uint64_t count, int silent, int shrinks) {
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) return fail("open", path);
  struct line* lines = mmap(NULL, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (lines == MAP_FAILED) return fail("mmap", path);
  for (uint64_t i = 1; i <= count; ++i) {
    lines[i % 64].value = i;
    if (!silent && msync(lines, 4096, MS_SYNC) != 0) return fail("msync", path);
  }
  if (shrinks) {
    if (ftruncate(file, 0) != 0) return fail("ftruncate", path);
    if (msync(lines, 4096, MS_SYNC) != 0) return fail("msync", path);
  }
  return munmap(lines, kFileBytes);
}

static int grow(const char* path, uint64_t count) {
  size_t length = 0;
  for (uint64_t size = 1; size <= 2; ++size) {
    struct line* lines =
        pmem_map_file(path, size * kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
    if (lines == NULL) return fail("pmem_map_file", pmem_errormsg());
    struct line* last = lines + length / kLine - 1;
    for (uint64_t i = 1; i <= count; ++i) {
      last->value = i;
      pmem_persist(last, sizeof *last);
    }
    if (pmem_unmap(lines, length) != 0) return fail("pmem_unmap", pmem_errormsg());
  }
  return 0;
}

enum { kOwnFiles = 600, kOwnBytes = 4 << 20, kPersistsOfLines = 4096 };

/* Each has its number at its begin and at its end. */
static int make_own(const char* path, int* own) {
  char name[4096];
  if (mkdir(path, 0700) != 0) return fail("mkdir", path);
  for (int i = 0; i < kOwnFiles; ++i) {
    snprintf(name, sizeof name, "%s/%d", path, i);
    own[i] = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (own[i] < 0 || pwrite(own[i], &i, sizeof i, 0) != sizeof i ||
        pwrite(own[i], &i, sizeof i, kOwnBytes - (off_t)sizeof i) != sizeof i ||
        lseek(own[i], i, SEEK_SET) != i) {
      return fail("open", name);
    }
  }
  return 0;
}

static int check_own(const int* own) {
  for (int i = 0; i < kOwnFiles; ++i) {
    int first = -1;
    int last = -1;
    struct stat status;
    if (fstat(own[i], &status) != 0 || status.st_size != kOwnBytes ||
        lseek(own[i], 0, SEEK_CUR) != i || pread(own[i], &first, sizeof first, 0) < 0 ||
        pread(own[i], &last, sizeof last, kOwnBytes - (off_t)sizeof last) < 0 || first != i ||
        last != i) {
      fprintf(stderr, "client: own file %d is damaged\n", i);
      return 1;
    }
  }
  return 0;
}

static int close_all(const char* path, uint64_t count) {
  static int own[kOwnFiles];
  char directory[4096];
  size_t length = 0;
  struct line* lines = pmem_map_file(path, kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (lines == NULL) return fail("pmem_map_file", pmem_errormsg());
  closefrom(3);
  snprintf(directory, sizeof directory, "%s.own", path);
  if (make_own(directory, own) != 0) return 1;
  for (uint64_t i = 1; i <= count; ++i) {
    for (int line = 0; line < kPersistsOfLines; ++line) lines[line].value = i;
    pmem_persist(lines, kPersistsOfLines * sizeof *lines);
  }
  struct line* all =
      pmem_map_file(path, 2 * (size_t)kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (all == NULL) return fail("pmem_map_file", pmem_errormsg());
  struct line* last = all + length / kLine - 1;
  last->value = 1;
  pmem_persist(last, sizeof *last);
  return check_own(own);
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const char* how = argv[1];
  const uint64_t count = strtoull(argv[3], NULL, 10);
  const int threads = argc > 4 ? atoi(argv[4]) : 1;
  if (threads < 1 || threads > kThreadsMax) return 2;
  if (strcmp(how, "pmem") == 0) return with_pmem(argv[2], count);
  if (strcmp(how, "pmem2") == 0) return with_pmem2(argv[2], count);
  if (strcmp(how, "msync") == 0) return without_library(argv[2], count, 0, 0);
  if (strcmp(how, "shrink") == 0) return without_library(argv[2], count, 0, 1);
  if (strcmp(how, "silent") == 0) return without_library(argv[2], count, 1, 0);
  if (strcmp(how, "closes") == 0) return close_all(argv[2], count);
  if (strcmp(how, "grow") == 0) return grow(argv[2], count);
  return with_objects(how, argv[2], count, threads);
}
