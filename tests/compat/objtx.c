/* A program of libpmemobj, unmodified by Perdure: transactions on a pool set that may have remote
 * replicas. Its invariants: a + b is 0, and the list has a / 8 nodes, each with its number.
 *
 *   objtx create SET            makes the pool
 *   objtx run SET COUNT [LOUD]  so many transactions; LOUD: the number of each on a line of its own
 *   objtx die SET MICROSECONDS  transactions, the number of each on a line of its own; ended by
 *                               SIGKILL so long after the first one
 *   objtx check SET             the invariants; prints a
 *   objtx obey SET              the invariants, and "checked" with a; then for a line of standard
 *                               input transactions, the number of each on a line of its own, until
 *                               there is another line; and again, until the input ends
 *   objtx time SET COUNT        transactions a second
 */
#include <inttypes.h>
#include <libpmemobj.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LAYOUT "objtx"
enum { kNodeEvery = 8 };

struct node {
  uint64_t number;
  PMEMoid next;
};

struct root {
  uint64_t a;
  uint64_t b;
  PMEMoid list;
};

static int fail(const char* what) {
  fprintf(stderr, "objtx: %s: %s\n", what, pmemobj_errormsg());
  return 1;
}

static struct root* root_of(PMEMobjpool* pool, PMEMoid* oid) {
  *oid = pmemobj_root(pool, sizeof(struct root));
  return pmemobj_direct(*oid);
}

static int transact(PMEMobjpool* pool, PMEMoid oid, struct root* root) {
  volatile int failed = 0;
  TX_BEGIN(pool) {
    pmemobj_tx_add_range(oid, 0, 2 * sizeof(uint64_t));
    root->a += 1;
    root->b -= 1;
    if (root->a % kNodeEvery == 0) {
      PMEMoid node = pmemobj_tx_zalloc(sizeof(struct node), 1);
      struct node* at = pmemobj_direct(node);
      at->number = root->a;
      at->next = root->list;
      pmemobj_tx_add_range(oid, offsetof(struct root, list), sizeof(PMEMoid));
      root->list = node;
    }
  }
  TX_ONABORT { failed = 1; }
  TX_END
  return failed;
}

static int say(const char* what, uint64_t number) {
  char line[64];
  const int length = snprintf(line, sizeof line, "%s%" PRIu64 "\n", what, number);
  return write(1, line, (size_t)length) == length ? 0 : 1;
}

static int run(PMEMobjpool* pool, uint64_t count, int loud) {
  PMEMoid oid;
  struct root* root = root_of(pool, &oid);
  for (uint64_t number = 0; number < count; ++number) {
    if (transact(pool, oid, root)) return fail("transaction");
    if (loud && say("", root->a)) return 1;
  }
  return 0;
}

/* The kernel ends it: no thread of the process has a part in when. */
static int die(PMEMobjpool* pool, uint64_t microseconds) {
  enum { kMicro = 1000000, kNanoOfMicro = 1000 };
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
  const struct itimerspec after = {.it_value = {(time_t)(microseconds / kMicro),
                                                (long)(microseconds % kMicro * kNanoOfMicro) + 1}};
  timer_t timer;
  if (run(pool, 1, 1)) return 1;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &after, NULL)) {
    return fail("timer");
  }
  return run(pool, UINT64_MAX, 1);
}

static int check(PMEMobjpool* pool, const char* what) {
  PMEMoid oid;
  struct root* root = root_of(pool, &oid);
  if (root->a + root->b != 0) {
    fprintf(stderr, "objtx: a is %" PRIu64 " and b %" PRIu64 "\n", root->a, root->b);
    return 1;
  }
  uint64_t expected = root->a - root->a % kNodeEvery;
  for (PMEMoid at = root->list; !OID_IS_NULL(at);) {
    struct node* node = pmemobj_direct(at);
    if (node->number != expected) {
      fprintf(stderr, "objtx: node %" PRIu64 " where %" PRIu64 " should be\n", node->number,
              expected);
      return 1;
    }
    expected -= kNodeEvery;
    at = node->next;
  }
  if (expected != 0) {
    fprintf(stderr, "objtx: the list ends before %" PRIu64 "\n", expected);
    return 1;
  }
  return say(what, root->a);
}

static int obey(PMEMobjpool* pool) {
  PMEMoid oid;
  struct root* root = root_of(pool, &oid);
  struct pollfd input = {0, POLLIN, 0};
  char line[8];
  for (;;) {
    if (check(pool, "checked ")) return 1;
    if (read(0, line, sizeof line) <= 0) return 0;
    while (poll(&input, 1, 0) == 0) {
      if (transact(pool, oid, root)) return fail("transaction");
      if (say("", root->a)) return 1;
    }
    if (read(0, line, sizeof line) <= 0) return 0;
  }
}

static int measure(PMEMobjpool* pool, uint64_t count) {
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  const int failed = run(pool, count, 0);
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double seconds =
      (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
  printf("%.0f transactions a second\n", (double)count / seconds);
  return failed;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* what = argv[1];
  const uint64_t count = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
  if (strcmp(what, "create") == 0) {
    PMEMobjpool* pool = pmemobj_create(argv[2], LAYOUT, 0, 0666);
    if (pool == NULL) return fail("create");
    pmemobj_close(pool);
    return 0;
  }
  PMEMobjpool* pool = pmemobj_open(argv[2], NULL); /* of any layout: pmempool may have made it */
  if (pool == NULL) return fail("open");
  int status = 2;
  if (strcmp(what, "run") == 0) status = run(pool, count, argc > 4);
  if (strcmp(what, "die") == 0) status = die(pool, count);
  if (strcmp(what, "check") == 0) status = check(pool, "");
  if (strcmp(what, "obey") == 0) status = obey(pool);
  if (strcmp(what, "time") == 0) status = measure(pool, count);
  pmemobj_close(pool);
  return status;
}
