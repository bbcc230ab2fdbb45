/* A program that was compiled with the header as it was when PERDURE_ABI_VERSION became 1, run with
 * today's library: old_header POOL REGION PEER... What lies in its structs' padding is whatever lay
 * there, and behind them is something else of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perdure-abi1.h"

_Static_assert(sizeof(perdure_log_options) == 120, "the old header was changed");
_Static_assert(sizeof(perdure_reader_options) == 72, "the old header was changed");
_Static_assert(sizeof(perdure_region_options) == 96, "the old header was changed");
_Static_assert(sizeof(perdure_log_status) == 72, "the old header was changed");
_Static_assert(sizeof(perdure_log_times) == 392, "the old header was changed");
_Static_assert(sizeof(perdure_region_status) == 72, "the old header was changed");
_Static_assert(sizeof(perdure_pool_description) == 840, "the old header was changed");

enum { GARBAGE = 0x5a };

static void need(perdure_code code, const char* call) {
  if (code == PERDURE_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, perdure_code_name(code), perdure_last_error());
  exit(1);
}

/* A struct of the old header and what the program has behind it. */
#define GUARDED(type, name)               \
  struct {                                \
    type told;                            \
    unsigned char behind[64];             \
  } name;                                 \
  memset(&(name), GARBAGE, sizeof(name)); \
  (name).told.size = sizeof((name).told);
#define UNTOUCHED(name) untouched((name).behind, sizeof(name).behind, #name)

static void untouched(const unsigned char* bytes, size_t count, const char* what) {
  for (size_t index = 0; index < count; ++index) {
    if (bytes[index] == GARBAGE) continue;
    fprintf(stderr, "%s: something was written behind it\n", what);
    exit(1);
  }
}

static void use_log(const char* pool, const char* const* peers, size_t peer_count) {
  perdure_log_options options;
  memset(&options, GARBAGE, sizeof options); /* all fields are set; padding stays */
  options.size = sizeof options;
  options.peers = peers;
  options.peer_count = peer_count;
  options.pool = pool;
  options.quorum = 0;
  options.transport = options.rnic = options.shape = options.primary = options.writer_name = NULL;
  options.visible_only = options.existing_only = options.take_over = options.accept_loss = false;
  options.never_spin = false;
  options.usual_costs = true;
  options.record_bytes_max = 0;
  options.batches_in_flight = 0;
  options.replica_timeout_ms = options.reconnect_ms = options.spin_us = 0;
  perdure_log* log = NULL;
  need(perdure_log_open(&options, &log), "perdure_log_open");
  perdure_ticket ticket;
  need(perdure_log_append(log, "a record that survives", 22, &ticket), "perdure_log_append");
  need(perdure_log_wait(log, &ticket, PERDURE_COMMITTED, 30000), "perdure_log_wait");
  GUARDED(perdure_log_status, status)
  need(perdure_log_get_status(log, &status.told), "perdure_log_get_status");
  UNTOUCHED(status);
  GUARDED(perdure_log_times, times)
  need(perdure_log_get_times(log, &times.told), "perdure_log_get_times");
  UNTOUCHED(times);
  perdure_reader_options reading;
  memset(&reading, GARBAGE, sizeof reading);
  reading.size = sizeof reading;
  reading.peers = NULL;
  reading.peer_count = 0;
  reading.pool = reading.transport = reading.rnic = NULL;
  reading.from_lsn = reading.from_index = 0;
  reading.uncommitted = false;
  reading.timeout_ms = 0;
  perdure_reader* reader = NULL;
  need(perdure_log_reader(log, &reading, &reader), "perdure_log_reader");
  perdure_reader_close(reader);
  perdure_log_close(log);
  if (status.told.next_index != 1 || times.told.committed.classes[PERDURE_TIME_CLASSES - 1] != 0) {
    fprintf(stderr, "the log says something else than it did\n");
    exit(1);
  }
}

static void use_region(const char* pool, const char* const* peers, size_t peer_count) {
  perdure_region_options options;
  memset(&options, GARBAGE, sizeof options);
  options.size = sizeof options;
  options.peers = peers;
  options.peer_count = peer_count;
  options.pool = pool;
  options.quorum = 0;
  options.transport = options.rnic = options.primary = options.writer_name = NULL;
  options.visible_only = options.existing_only = options.take_over = false;
  options.usual_costs = true;
  options.staging_bytes = 0;
  options.peer_timeout_ms = 0;
  perdure_region* region = NULL;
  need(perdure_region_open(&options, &region), "perdure_region_open");
  const perdure_range range = {0, "bytes", 5, 0};
  perdure_region_ticket ticket;
  need(perdure_region_write(region, &range, 1, &ticket), "perdure_region_write");
  need(perdure_region_wait(region, &ticket, PERDURE_COMMITTED, 30000), "perdure_region_wait");
  GUARDED(perdure_region_status, status)
  need(perdure_region_get_status(region, &status.told), "perdure_region_get_status");
  UNTOUCHED(status);
  need(perdure_region_close(region, 5000), "perdure_region_close");
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const char* const* peers = (const char* const*)(argv + 3);
  const size_t peer_count = (size_t)(argc - 3);
  use_log(argv[1], peers, peer_count);
  use_region(argv[2], peers, peer_count);
  GUARDED(perdure_pool_description, pool)
  need(perdure_pool_describe(peers[0], argv[1], 0, &pool.told), "perdure_pool_describe");
  UNTOUCHED(pool);
  printf("%s\n", pool.told.name);
  return 0;
}
