/* Writes a record and then a tail word to ranges on peers, waits until both are durable, reads
 * back. region POOL HOST:PORT [HOST:PORT ...]
 */
#include <perdure/perdure.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: region POOL HOST:PORT [HOST:PORT ...]\n");
    return 2;
  }
  perdure_region_options options = {.size = sizeof options,
                                    .peers = (const char* const*)(argv + 2),
                                    .peer_count = (size_t)(argc - 2),
                                    .pool = argv[1]};
  const char* record = "a record that survives";
  const uint64_t tail = strlen(record);
  /* Two epochs: the tail word is nowhere before the record is. */
  const perdure_range ranges[] = {{.at = 64, .bytes = record, .length = strlen(record), .epoch = 0},
                                  {.at = 0, .bytes = &tail, .length = sizeof tail, .epoch = 1}};
  perdure_region* region = NULL;
  perdure_region_ticket ticket = {0};
  char back[64] = "";
  perdure_code code = perdure_region_open(&options, &region);
  if (code == PERDURE_OK) code = perdure_region_write(region, ranges, 2, &ticket);
  if (code == PERDURE_OK) code = perdure_region_wait(region, &ticket, PERDURE_COMMITTED, 30000);
  if (code == PERDURE_OK) {
    code = perdure_region_read(region, 64, back, strlen(record), PERDURE_ANY_REPLICA);
  }
  if (code == PERDURE_OK) {
    printf("%s\n", back);
  } else {
    fprintf(stderr, "region: %s: %s\n", perdure_code_name(code), perdure_last_error());
  }
  const perdure_code closed = perdure_region_close(region, 5000);
  if (closed != PERDURE_OK) {
    fprintf(stderr, "region: the replicas may differ: %s\n", perdure_last_error());
  }
  return code == PERDURE_OK && closed == PERDURE_OK ? 0 : 1;
}
