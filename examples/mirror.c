/* Stores a record and then a tail word into its own memory, makes both durable on peers in that
 * order, and reads the record back from a replica. mirror POOL HOST:PORT [HOST:PORT ...]
 */
#include <perdure/perdure.h>
#include <stdio.h>
#include <string.h>

static _Alignas(4096) char memory[64 * 1024];

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: mirror POOL HOST:PORT [HOST:PORT ...]\n");
    return 2;
  }
  const char* record = "a record that survives";
  const uint64_t tail = strlen(record);
  perdure_mirror_options options = {.size = sizeof options,
                                    .peers = (const char* const*)(argv + 2),
                                    .peer_count = (size_t)(argc - 2),
                                    .pool = argv[1],
                                    .memory = memory,
                                    .memory_bytes = sizeof memory};
  memcpy(memory + 64, record, tail);
  memcpy(memory, &tail, sizeof tail);
  /* Two epochs in one message: the tail word is nowhere before the record is. */
  const perdure_mirror_range ranges[] = {{.at = 64, .length = tail, .epoch = 0},
                                         {.at = 0, .length = sizeof tail, .epoch = 1}};
  perdure_mirror* mirror = NULL;
  uint64_t ticket = 0;
  char back[64] = "";
  perdure_code code = perdure_mirror_open(&options, &mirror);
  if (code == PERDURE_OK) code = perdure_mirror_flush_ordered(mirror, ranges, 2, &ticket);
  if (code == PERDURE_OK) code = perdure_mirror_wait(mirror, ticket, 30000);
  if (code == PERDURE_OK) code = perdure_mirror_read(mirror, 64, back, tail, PERDURE_ANY_REPLICA);
  if (code == PERDURE_OK) {
    printf("%s\n", back);
  } else {
    fprintf(stderr, "mirror: %s: %s\n", perdure_code_name(code), perdure_last_error());
  }
  const perdure_code closed = perdure_mirror_close(mirror, 5000);
  if (closed != PERDURE_OK) {
    fprintf(stderr, "mirror: the last of it may not be everywhere: %s\n", perdure_last_error());
  }
  return code == PERDURE_OK && closed == PERDURE_OK ? 0 : 1;
}
