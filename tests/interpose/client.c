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
 *   client each FILE COUNT          libpmem: each function that makes something durable once, of a
 *                                   page of its own
 *   client each2 FILE COUNT         libpmem2: the same
 *   client msync FILE COUNT         no library: stores, and msync
 *   client grow FILE COUNT          libpmem: the file grows to twice its size, and is mapped again
 *   client closes FILE COUNT        closes what it does not know, as daemons do, has files of its
 *                                   own in FILE.own, and persists 4096 lines a round; then the file
 *                                   grows, is mapped again, and one line is persisted
 *   client shrink FILE COUNT        as msync, then the file is made shorter, and synced once more
 *   client silent FILE COUNT        maps and stores, and makes nothing durable
 *   client inline FILE COUNT        persists line 0 by libpmem, and stores to so many lines behind
 *                                   it, which it flushes by itself
 *   client gone FILE COUNT          the same, and removes FILE
 *   client word FILE COUNT          msync of the first bytes of a page, of which a later one
 *                                   changed
 *   client jump FILE COUNT          as pmem, after a signal handler left a copy by siglongjmp
 *   client handler FILE COUNT       as pmem, after a signal handler persisted line 4096 inside
 *                                   a copy
 *   client alarm FILE COUNT         persists a line, and another one in a signal handler, by a
 *                                   timer
 *   client rewrite FILE COUNT       as pmem; FILE is written anew with write(), as long as it
 *                                   was, and mapped, and one line of it is persisted
 *   client zeros FILE COUNT         as pmem; FILE is made zeros, as long as it was, and can not
 *                                   be mapped
 *   client rename FILE COUNT        as pmem; then the same in FILE.new, which is renamed to FILE
 *   client waits FILE COUNT         as pmem; when FILE.go is there, FILE grows and is mapped again
 *   client maps FILE COUNT          maps and unmaps it so often, then makes a line durable
 *   client moves FILE COUNT         mremap to more than can be mirrored, which must fail and
 *                                   change nothing, then to twice as much
 *   client renamed FILE COUNT       maps FILE.tmp, gives it the name FILE, maps that, and makes
 *                                   lines durable by the first mapping
 *   client elsewhere FILE COUNT     the same, but a child maps FILE
 *   client nameless FILE COUNT      maps more than FILE has; while FILE has another name it
 *                                   grows, and a line of what is new is synced
 *   client cut FILE COUNT           persists eight pages, makes FILE short and as long as it
 *                                   was, and syncs a line of the first page
 *   client punch FILE COUNT         the same, but makes a hole of the eight pages
 *   client remove FILE COUNT        the same, by madvise
 *   client longer FILE COUNT        as msync, then FILE grows, and nothing of it is mapped or
 *                                   synced
 *   client dirty FILE COUNT         maps it, syncs its last page, and stores to the first; maps
 *                                   it again 5 s later, stores to the first page, and maps it
 *                                   again
 *   client exec FILE COUNT          four threads persist, until it becomes itself anew by exec();
 *                                   so often
 *   client odd FILE COUNT           makes FILE so many bytes longer than whole pages, and syncs all
 *                                   of it
 *   client refused FILE COUNT       maps it; then nothing can be kept beside it, and it can not be
 *                                   mapped again; goes on with the first mapping, and, once that
 *                                   has passed, with all of a FILE that has grown
 *   client killed FILE COUNT        syncs a line of the first page, stores to the second, and is
 *                                   killed
 *   client beyond FILE COUNT        maps 32 times what FILE has; FILE grows to that, and a line at
 *                                   its end is synced
 *   client alarms FILE COUNT        syncs a line; when FILE.go is there, FILE grows and is mapped
 *                                   again, while a signal handler maps and unmaps memory; then a
 *                                   child and this one sync a line
 *   client two FILE COUNT           per round persists a line of FILE, then one of FILE.second, and
 *                                   drains a line of each together
 *   client forks FILE COUNT         so many children persist a line each, one after the other,
 * while an allocator that locks itself for fork(), and another thread, map and unmap
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <libpmem.h>
#include <libpmem2.h>
#include <libpmemobj.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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

static void persist_rounds(struct line* lines, uint64_t count) {
  for (uint64_t i = 1; i <= count; ++i) {
    pmem_memcpy_persist(&lines[0], &i, sizeof i);
    lines[1].value = i;
    lines[2].value = i;
    pmem_flush(&lines[1], 2 * sizeof lines[1]);
    pmem_drain();
    pmem_persist(&lines[8], sizeof lines[8]);
  }
}

static int with_pmem(const char* path, uint64_t count) {
  size_t length = 0;
  struct line* lines = pmem_map_file(path, kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (lines == NULL) return fail("pmem_map_file", pmem_errormsg());
  persist_rounds(lines, count);
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

enum { kPage = 4096 };

/* A page that nothing else is done to, with its first word stored. */
static char* store(char** next, uint64_t value) {
  char* page = *next;
  *next += kPage;
  memcpy(page, &value, sizeof value);
  return page;
}

static char* skip(char** next) {
  char* page = *next;
  *next += kPage;
  return page;
}

static int flush_by_each(char** next, uint64_t value) {
  pmem_persist(store(next, value), kLine);
  pmem_flush(store(next, value), kLine);
  pmem_drain();
  if (pmem_msync(store(next, value), kLine) != 0) return fail("pmem_msync", pmem_errormsg());
  char* page = store(next, value);
  pmem_deep_flush(page, kLine);
  if (pmem_deep_drain(page, kLine) != 0) return fail("pmem_deep_drain", pmem_errormsg());
  if (pmem_deep_persist(store(next, value), kLine) != 0) {
    return fail("pmem_deep_persist", pmem_errormsg());
  }
  return 0;
}

static void copy_by_each(char** next, const struct line* from) {
  pmem_memmove_persist(skip(next), from, kLine);
  pmem_memcpy_persist(skip(next), from, kLine);
  pmem_memset_persist(skip(next), 1, kLine);
  pmem_memmove_nodrain(skip(next), from, kLine);
  pmem_memcpy_nodrain(skip(next), from, kLine);
  pmem_memset_nodrain(skip(next), 1, kLine);
  pmem_drain();
  pmem_memmove(skip(next), from, kLine, 0);
  pmem_memcpy(skip(next), from, kLine, 0);
  pmem_memset(skip(next), 1, kLine, 0);
  pmem_memcpy(skip(next), from, kLine, PMEM_F_MEM_NODRAIN);
  pmem_drain();
  char* page = skip(next);
  pmem_memset(page, 1, kLine, PMEM_F_MEM_NOFLUSH);
  pmem_persist(page, kLine);
}

static int each_of_pmem(const char* path, uint64_t count) {
  const struct line from = {count, ""};
  size_t length = 0;
  char* next = pmem_map_file(path, kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (next == NULL) return fail("pmem_map_file", pmem_errormsg());
  copy_by_each(&next, &from);
  return flush_by_each(&next, count);
}

static struct pmem2_map* map_by_pmem2(const char* path) {
  struct pmem2_config* config = NULL;
  struct pmem2_source* source = NULL;
  struct pmem2_map* map = NULL;
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0 || pmem2_config_new(&config) != 0 ||
      pmem2_source_from_fd(&source, file) != 0 ||
      pmem2_config_set_required_store_granularity(config, PMEM2_GRANULARITY_PAGE) != 0 ||
      pmem2_map_new(&map, config, source) != 0) {
    fail("pmem2_map_new", pmem2_errormsg());
  }
  return map;
}

static int each_of_pmem2(const char* path, uint64_t count) {
  const struct line from = {count, ""};
  struct pmem2_map* map = map_by_pmem2(path);
  if (map == NULL) return 1;
  const pmem2_persist_fn persist = pmem2_get_persist_fn(map);
  const pmem2_flush_fn flush = pmem2_get_flush_fn(map);
  const pmem2_drain_fn drain = pmem2_get_drain_fn(map);
  const pmem2_memcpy_fn copy = pmem2_get_memcpy_fn(map);
  const pmem2_memset_fn set = pmem2_get_memset_fn(map);
  char* next = pmem2_map_get_address(map);
  persist(store(&next, count), kLine);
  flush(store(&next, count), kLine);
  drain();
  pmem2_get_memmove_fn(map)(skip(&next), &from, kLine, 0);
  copy(skip(&next), &from, kLine, 0);
  set(skip(&next), 1, kLine, 0);
  copy(skip(&next), &from, kLine, PMEM2_F_MEM_NODRAIN);
  drain();
  char* page = skip(&next);
  set(page, 1, kLine, PMEM2_F_MEM_NOFLUSH);
  persist(page, kLine);
  if (pmem2_deep_flush(map, store(&next, count), kLine) != 0) {
    return fail("pmem2_deep_flush", pmem2_errormsg());
  }
  return 0;
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

static void flush_inline(const void* at) {
#ifdef __SSE2__
  _mm_clflush(at);
  _mm_sfence();
#else
  (void)at; /* not seen either */
#endif
}

static int with_inline_flushes(const char* path, uint64_t count, int removes) {
  size_t length = 0;
  struct line* lines = pmem_map_file(path, kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (lines == NULL) return fail("pmem_map_file", pmem_errormsg());
  lines[0].value = 1;
  pmem_persist(&lines[0], sizeof lines[0]);
  for (uint64_t i = 1; i <= count; ++i) {
    lines[i].value = i;
    flush_inline(&lines[i]);
  }
  if (removes && unlink(path) != 0) return fail("unlink", path);
  return pmem_unmap(lines, length);
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

static int word_of_a_page(const char* path, uint64_t count) {
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) return fail("open", path);
  char* bytes = mmap(NULL, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (bytes == MAP_FAILED) return fail("mmap", path);
  for (uint64_t i = 1; i <= count; ++i) {
    memcpy(bytes + 200, &i, sizeof i);
    if (msync(bytes, sizeof i, MS_SYNC) != 0) return fail("msync", path);
  }
  return munmap(bytes, kFileBytes);
}

static sigjmp_buf out_of_call;
static char* nothing;
static struct line* of_handler;

static void jump_out(int number) {
  (void)number;
  siglongjmp(out_of_call, 1);
}

static void persist_in_handler(int number) {
  (void)number;
  of_handler->value += 1;
  pmem_persist(of_handler, sizeof *of_handler);
  if (nothing != NULL) mprotect(nothing, 4096, PROT_READ);
}

/* A copy from memory that can not be read. */
static void copy_nothing(struct line* to) {
  if (sigsetjmp(out_of_call, 1) == 0) pmem_memcpy_persist(to, nothing, 4096);
}

static int in_handler(const char* how, const char* path, uint64_t count) {
  size_t length = 0;
  struct line* lines = pmem_map_file(path, kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (lines == NULL) return fail("pmem_map_file", pmem_errormsg());
  of_handler = &lines[4096];
  if (strcmp(how, "alarm") == 0) {
    const struct itimerval often = {{0, 5000}, {0, 5000}};
    signal(SIGALRM, persist_in_handler);
    if (setitimer(ITIMER_REAL, &often, NULL) != 0) return fail("setitimer", "");
    for (uint64_t i = 1; i <= count; ++i) {
      lines[0].value = i;
      pmem_persist(&lines[0], sizeof lines[0]);
    }
    return 0;
  }
  nothing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (nothing == MAP_FAILED) return fail("mmap", "");
  signal(SIGSEGV, strcmp(how, "jump") == 0 ? jump_out : persist_in_handler);
  copy_nothing(&lines[8192]);
  persist_rounds(lines, count); /* in the mapping that there is: a new one is compared */
  return 0;
}

static int write_anew(const char* path, uint64_t count, int zeros) {
  if (with_pmem(path, count) != 0) return 1;
  static char bytes[65536];
  memset(bytes, zeros ? 0 : 'x', sizeof bytes);
  const int file = open(path, O_RDWR | O_TRUNC);
  if (file < 0 || ftruncate(file, kFileBytes) != 0 ||
      pwrite(file, bytes, sizeof bytes, 2 * sizeof bytes) != sizeof bytes) {
    return fail("open", path);
  }
  struct line* lines = mmap(NULL, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (zeros) return lines == MAP_FAILED ? 0 : fail("mmap", "it should have been refused");
  if (lines == MAP_FAILED) return fail("mmap", path);
  lines[0].value = count;
  pmem_persist(&lines[0], sizeof lines[0]);
  return munmap(lines, kFileBytes);
}

static int rename_new(const char* path, uint64_t count) {
  char name[4096];
  snprintf(name, sizeof name, "%s.new", path);
  if (with_pmem(path, count) != 0 || with_pmem(name, 2 * count) != 0) return 1;
  return rename(name, path) == 0 ? 0 : fail("rename", path);
}

static void* map_all(int file, size_t bytes) {
  return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

/* FILE is mapped by its name, in this process or in a child. */
static int map_by_name(const char* path, int in_child) {
  const pid_t child = in_child ? fork() : 0;
  if (child < 0) return fail("fork", path);
  if (child > 0) {
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
  }
  const int file = open(path, O_RDWR);
  const int good = file >= 0 && map_all(file, kFileBytes) != MAP_FAILED;
  if (!good) fail("mmap", path);
  if (in_child) _exit(!good);
  return !good;
}

static int map_then_rename(const char* path, uint64_t count, int in_child) {
  char name[4096];
  snprintf(name, sizeof name, "%s.tmp", path);
  const int file = open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) return fail("open", name);
  struct line* lines = map_all(file, kFileBytes);
  if (lines == MAP_FAILED) return fail("mmap", name);
  if (rename(name, path) != 0) return fail("rename", path);
  if (map_by_name(path, in_child) != 0) return 1;
  for (uint64_t i = 1; i <= count; ++i) {
    lines[i % 64].value = i;
    if (msync(lines, 4096, MS_SYNC) != 0) return fail("msync", path);
  }
  return 0;
}

static int grow_without_name(const char* path, uint64_t count) {
  char name[4096];
  const size_t twice = (size_t)2 * kFileBytes;
  snprintf(name, sizeof name, "%s.other", path);
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) return fail("open", path);
  char* bytes = map_all(file, twice);
  if (bytes == MAP_FAILED) return fail("mmap", path);
  memcpy(bytes, &count, sizeof count);
  if (msync(bytes, 4096, MS_SYNC) != 0) return fail("msync", path);
  if (rename(path, name) != 0 || ftruncate(file, (off_t)twice) != 0) return fail("rename", path);
  memcpy(bytes + twice - 4096, &count, sizeof count);
  if (msync(bytes + twice - 4096, 4096, MS_SYNC) != 0) return fail("msync", name);
  return rename(name, path) == 0 ? 0 : fail("rename", name);
}

enum { kCutBytes = 8 * 4096 };

static int cut_pages(const char* how, const char* path, uint64_t count) {
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) return fail("open", path);
  char* bytes = map_all(file, kFileBytes);
  if (bytes == MAP_FAILED) return fail("mmap", path);
  memset(bytes, 'x', kCutBytes);
  if (msync(bytes, kCutBytes, MS_SYNC) != 0) return fail("msync", path);
  if (strcmp(how, "cut") == 0) {
    if (ftruncate(file, 0) != 0 || ftruncate(file, kFileBytes) != 0) return fail(how, path);
  } else if (strcmp(how, "punch") == 0) {
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (fallocate(file, mode, 0, kCutBytes) != 0) return fail(how, path);
  } else if (madvise(bytes, kCutBytes, MADV_REMOVE) != 0) {
    return fail(how, path);
  }
  memcpy(bytes, &count, sizeof count);
  return msync(bytes, 4096, MS_SYNC) == 0 ? 0 : fail("msync", path);
}

static int store_twice(const char* path, uint64_t count) {
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) return fail("open", path);
  char* bytes = map_all(file, kFileBytes);
  if (bytes == MAP_FAILED) return fail("mmap", path);
  memcpy(bytes + kFileBytes - 4096, &count, sizeof count);
  if (msync(bytes + kFileBytes - 4096, 4096, MS_SYNC) != 0) return fail("msync", path);
  bytes[0] = 1;
  sleep(5); /* its time of change is old enough by then to be trusted */
  if (map_all(file, kFileBytes) == MAP_FAILED) return fail("mmap", path);
  bytes[8] = 2;
  return map_all(file, kFileBytes) != MAP_FAILED ? 0 : fail("mmap", path);
}

static void* persist_on(void* line) {
  for (;;) {
    ((struct line*)line)->value += 1;
    pmem_persist(line, sizeof(struct line));
  }
}

static int exec_anew(char** argv, uint64_t count) {
  char left[32];
  size_t length = 0;
  pthread_t running;
  struct line* lines = pmem_map_file(argv[2], kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (lines == NULL) return fail("pmem_map_file", pmem_errormsg());
  if (count == 0) {
    pmem_persist(lines, 4 * sizeof *lines);
    return 0;
  }
  for (int i = 0; i < 4; ++i) {
    if (pthread_create(&running, NULL, persist_on, &lines[i]) != 0) return 1;
  }
  usleep(50000);
  snprintf(left, sizeof left, "%llu", (unsigned long long)(count - 1));
  argv[3] = left;
  execv("/proc/self/exe", argv);
  return fail("exec", argv[0]);
}

static void map_in_handler(int number) {
  (void)number;
  void* const page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) munmap(page, 4096);
}

static int map_under_alarms(const char* path, uint64_t count) {
  char name[4096];
  const size_t twice = (size_t)2 * kFileBytes;
  const struct itimerval often = {{0, 5000}, {0, 5000}};
  const struct itimerval never = {{0, 0}, {0, 0}};
  snprintf(name, sizeof name, "%s.go", path);
  if (without_library(path, count, 0, 0) != 0) return 1;
  puts("ready");
  fflush(stdout);
  while (access(name, F_OK) != 0) usleep(10000);
  const int file = open(path, O_RDWR);
  if (file < 0 || ftruncate(file, (off_t)twice) != 0) return fail("open", path);
  signal(SIGALRM, map_in_handler);
  if (setitimer(ITIMER_REAL, &often, NULL) != 0) return fail("setitimer", "");
  char* bytes = map_all(file, twice);
  if (setitimer(ITIMER_REAL, &never, NULL) != 0) return fail("setitimer", "");
  if (bytes == MAP_FAILED) return fail("mmap", path);
  const pid_t child = fork();
  char* last_page = bytes + twice - 4096;
  memcpy(last_page + (child == 0 ? 64 : 0), &count, sizeof count);
  if (msync(last_page, 4096, MS_SYNC) != 0) return fail("msync", path);
  if (child == 0) _exit(0);
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

static int sync_odd_end(const char* path, uint64_t count) {
  const size_t length = kFileBytes + (size_t)count;
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, (off_t)length) != 0) return fail("open", path);
  char* bytes = map_all(file, length);
  if (bytes == MAP_FAILED) return fail("mmap", path);
  bytes[length - 1] = 'x';
  return msync(bytes, length, MS_SYNC) == 0 ? 0 : fail("msync", path);
}

static int map_refused(const char* path, uint64_t count) {
  char name[4096];
  const size_t twice = (size_t)2 * kFileBytes;
  snprintf(name, sizeof name, "%s.mirror.new", path);
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) return fail("open", path);
  char* bytes = map_all(file, kFileBytes);
  if (bytes == MAP_FAILED) return fail("mmap", path);
  if (ftruncate(file, (off_t)twice) != 0 || mkdir(name, 0700) != 0) return fail("mkdir", name);
  if (map_all(file, twice) != MAP_FAILED) return fail("mmap", "it should have been refused");
  memcpy(bytes, &count, sizeof count);
  if (msync(bytes, 4096, MS_SYNC) != 0) return fail("msync", path);
  if (rmdir(name) != 0) return fail("rmdir", name);
  char* all = map_all(file, twice);
  if (all == MAP_FAILED) return fail("mmap", path);
  memcpy(all + twice - 4096, &count, sizeof count);
  return msync(all + twice - 4096, 4096, MS_SYNC) == 0 ? 0 : fail("msync", path);
}

static int store_and_die(const char* path, uint64_t count) {
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) return fail("open", path);
  char* bytes = map_all(file, kFileBytes);
  if (bytes == MAP_FAILED) return fail("mmap", path);
  memcpy(bytes, &count, sizeof count);
  if (msync(bytes, 4096, MS_SYNC) != 0) return fail("msync", path);
  memcpy(bytes + 4096, &count, sizeof count);
  return raise(SIGKILL);
}

static int grow_beyond(const char* path, uint64_t count) {
  const size_t much = (size_t)32 * kFileBytes;
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) return fail("open", path);
  char* bytes = map_all(file, much);
  if (bytes == MAP_FAILED) return fail("mmap", path);
  if (ftruncate(file, (off_t)much) != 0) return fail("ftruncate", path);
  memcpy(bytes + much - 4096, &count, sizeof count);
  if (msync(bytes + much - 4096, 4096, MS_SYNC) == 0) puts("synced");
  fflush(stdout);
  return 0;
}

static int grow_and_leave(const char* path, uint64_t count) {
  if (without_library(path, count, 0, 0) != 0) return 1;
  return truncate(path, (off_t)2 * kFileBytes) == 0 ? 0 : fail("truncate", path);
}

static int wait_and_grow(const char* path, uint64_t count) {
  char name[4096];
  size_t length = 0;
  snprintf(name, sizeof name, "%s.go", path);
  if (with_pmem(path, count) != 0) return 1;
  puts("ready");
  fflush(stdout);
  while (access(name, F_OK) != 0) usleep(10000);
  struct line* lines =
      pmem_map_file(path, 2 * (size_t)kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (lines == NULL) return fail("pmem_map_file", pmem_errormsg());
  struct line* last = lines + length / kLine - 1;
  last->value = count;
  pmem_persist(last, sizeof *last);
  return pmem_unmap(lines, length);
}

static int map_often(const char* path, uint64_t count) {
  struct stat status;
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || fstat(file, &status) != 0) return fail("open", path);
  if (status.st_size == 0 && ftruncate(file, kFileBytes) != 0) return fail("ftruncate", path);
  struct line* lines = NULL;
  for (uint64_t i = 1; i <= count; ++i) {
    if (lines != NULL && munmap(lines, kFileBytes) != 0) return fail("munmap", path);
    lines = mmap(NULL, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (lines == MAP_FAILED) return fail("mmap", path);
  }
  if (lines == NULL) return 1;
  lines[0].value += 1;
  return msync(lines, 4096, MS_SYNC);
}

static int move_mapping(const char* path, uint64_t count) {
  const size_t much = (size_t)32 * kFileBytes;
  const size_t twice = (size_t)2 * kFileBytes;
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, kFileBytes) != 0) return fail("open", path);
  struct line* lines = mmap(NULL, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (lines == MAP_FAILED) return fail("mmap", path);
  if (ftruncate(file, (off_t)much) != 0) return fail("ftruncate", path);
  if (mremap(lines, kFileBytes, much, MREMAP_MAYMOVE) != MAP_FAILED) {
    return fail("mremap", "it should have been refused");
  }
  if (ftruncate(file, kFileBytes) != 0) return fail("ftruncate", path);
  lines[1].value = count;
  if (msync(lines, 4096, MS_SYNC) != 0 || ftruncate(file, (off_t)twice) != 0) {
    return fail("msync", path);
  }
  lines = mremap(lines, kFileBytes, twice, MREMAP_MAYMOVE);
  if (lines == MAP_FAILED) return fail("mremap", path);
  char* last_page = (char*)lines + twice - 4096;
  memcpy(last_page, &count, sizeof count);
  if (msync(last_page, 4096, MS_SYNC) != 0) return fail("msync", path);
  return munmap(lines, twice);
}

static int two_files(const char* path, uint64_t count) {
  char name[4096];
  size_t length = 0;
  snprintf(name, sizeof name, "%s.second", path);
  struct line* first = pmem_map_file(path, kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  struct line* second = pmem_map_file(name, kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (first == NULL || second == NULL) return fail("pmem_map_file", pmem_errormsg());
  second[0].value = first[0].value; /* it may have been killed in between */
  pmem_persist(&second[0], sizeof second[0]);
  for (uint64_t i = 1; i <= count; ++i) {
    first[0].value += 1;
    pmem_persist(&first[0], sizeof first[0]);
    second[0].value += 1;
    pmem_persist(&second[0], sizeof second[0]);
    first[1].value = i;
    second[1].value = 2 * i;
    pmem_flush(&first[1], sizeof first[1]);
    pmem_flush(&second[1], sizeof second[1]);
    pmem_drain();
  }
  return 0;
}

static pthread_mutex_t of_allocator = PTHREAD_MUTEX_INITIALIZER;
static void lock_allocator(void) { pthread_mutex_lock(&of_allocator); }
static void unlock_allocator(void) { pthread_mutex_unlock(&of_allocator); }
/* Before any constructor, as allocators do that are used by then. */
static void be_an_allocator(int argc, char** argv, char** environment) {
  (void)argc;
  (void)argv;
  (void)environment;
  pthread_atfork(lock_allocator, unlock_allocator, unlock_allocator);
}
__attribute__((section(".preinit_array"), used)) static void (*be_early)(int, char**,
                                                                         char**) = be_an_allocator;

enum { kMapsInAllocator = 20 };
static int maps_end;

static void map_once(int file) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, file, 0);
  if (page != MAP_FAILED) munmap(page, 4096);
}

static void* allocate_on(void* nothing_needed) {
  (void)nothing_needed;
  while (!__atomic_load_n(&maps_end, __ATOMIC_RELAXED)) {
    pthread_mutex_lock(&of_allocator);
    for (int i = 0; i < kMapsInAllocator; ++i) map_once(-1);
    pthread_mutex_unlock(&of_allocator);
    usleep(100);
  }
  return NULL;
}

static void* map_on(void* file) {
  while (!__atomic_load_n(&maps_end, __ATOMIC_RELAXED)) map_once(*(const int*)file);
  return NULL;
}

static int fork_beside_maps(const char* path, uint64_t count) {
  char name[4096];
  size_t length = 0;
  pthread_t allocates;
  pthread_t maps;
  snprintf(name, sizeof name, "%s.other", path);
  int other = open(name, O_RDWR | O_CREAT, 0600);
  struct line* lines = pmem_map_file(path, kFileBytes, PMEM_FILE_CREATE, 0600, &length, NULL);
  if (lines == NULL) return fail("pmem_map_file", pmem_errormsg());
  if (other < 0 || ftruncate(other, 4096) != 0) return fail("open", name);
  if (pthread_create(&allocates, NULL, allocate_on, NULL) != 0 ||
      pthread_create(&maps, NULL, map_on, &other) != 0) {
    return fail("pthread_create", "");
  }
  for (uint64_t i = 1; i <= count; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      lines[1].value = i;
      pmem_persist(&lines[1], sizeof lines[1]);
      _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return fail("fork", "");
  }
  __atomic_store_n(&maps_end, 1, __ATOMIC_RELAXED);
  pthread_join(allocates, NULL);
  pthread_join(maps, NULL);
  return lines[1].value == count ? 0 : fail("fork", "a child has not stored its line");
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const char* how = argv[1];
  const uint64_t count = strtoull(argv[3], NULL, 10);
  const int threads = argc > 4 ? atoi(argv[4]) : 1;
  if (threads < 1 || threads > kThreadsMax) return 2;
  if (strcmp(how, "pmem") == 0) return with_pmem(argv[2], count);
  if (strcmp(how, "pmem2") == 0) return with_pmem2(argv[2], count);
  if (strcmp(how, "each") == 0) return each_of_pmem(argv[2], count);
  if (strcmp(how, "each2") == 0) return each_of_pmem2(argv[2], count);
  if (strcmp(how, "msync") == 0) return without_library(argv[2], count, 0, 0);
  if (strcmp(how, "shrink") == 0) return without_library(argv[2], count, 0, 1);
  if (strcmp(how, "silent") == 0) return without_library(argv[2], count, 1, 0);
  if (strcmp(how, "inline") == 0) return with_inline_flushes(argv[2], count, 0);
  if (strcmp(how, "gone") == 0) return with_inline_flushes(argv[2], count, 1);
  if (strcmp(how, "word") == 0) return word_of_a_page(argv[2], count);
  if (strcmp(how, "jump") == 0 || strcmp(how, "handler") == 0 || strcmp(how, "alarm") == 0) {
    return in_handler(how, argv[2], count);
  }
  if (strcmp(how, "rewrite") == 0) return write_anew(argv[2], count, 0);
  if (strcmp(how, "zeros") == 0) return write_anew(argv[2], count, 1);
  if (strcmp(how, "rename") == 0) return rename_new(argv[2], count);
  if (strcmp(how, "renamed") == 0) return map_then_rename(argv[2], count, 0);
  if (strcmp(how, "elsewhere") == 0) return map_then_rename(argv[2], count, 1);
  if (strcmp(how, "cut") == 0 || strcmp(how, "punch") == 0 || strcmp(how, "remove") == 0) {
    return cut_pages(how, argv[2], count);
  }
  if (strcmp(how, "dirty") == 0) return store_twice(argv[2], count);
  if (strcmp(how, "exec") == 0) return exec_anew(argv, count);
  if (strcmp(how, "alarms") == 0) return map_under_alarms(argv[2], count);
  if (strcmp(how, "odd") == 0) return sync_odd_end(argv[2], count);
  if (strcmp(how, "refused") == 0) return map_refused(argv[2], count);
  if (strcmp(how, "killed") == 0) return store_and_die(argv[2], count);
  if (strcmp(how, "beyond") == 0) return grow_beyond(argv[2], count);
  if (strcmp(how, "nameless") == 0) return grow_without_name(argv[2], count);
  if (strcmp(how, "longer") == 0) return grow_and_leave(argv[2], count);
  if (strcmp(how, "waits") == 0) return wait_and_grow(argv[2], count);
  if (strcmp(how, "maps") == 0) return map_often(argv[2], count);
  if (strcmp(how, "moves") == 0) return move_mapping(argv[2], count);
  if (strcmp(how, "closes") == 0) return close_all(argv[2], count);
  if (strcmp(how, "grow") == 0) return grow(argv[2], count);
  if (strcmp(how, "two") == 0) return two_files(argv[2], count);
  if (strcmp(how, "forks") == 0) return fork_beside_maps(argv[2], count);
  return with_objects(how, argv[2], count, threads);
}
