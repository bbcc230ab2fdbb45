/* A program that was written for PMDK's librpmem: here nobody answers. */
#define _DEFAULT_SOURCE
#include <librpmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  const char* wrong = rpmem_check_version(RPMEM_MAJOR_VERSION, RPMEM_MINOR_VERSION);
  if (wrong != NULL) {
    fprintf(stderr, "%s\n", wrong);
    return 1;
  }
  void* memory = NULL;
  const size_t bytes = 8u << 20;
  if (posix_memalign(&memory, 4096, bytes) != 0) return 1;
  setenv("RPMEM_SSH", "/bin/false", 1);
  struct rpmem_pool_attr attributes;
  memset(&attributes, 0, sizeof attributes);
  unsigned lanes = 1;
  RPMEMpool* const pool = rpmem_create("localhost", "pool.set", memory, bytes, &lanes, &attributes);
  const int found = pool != NULL || strlen(rpmem_errormsg()) == 0;
  free(memory);
  if (found) return 1;
  puts("no target");
  return 0;
}
