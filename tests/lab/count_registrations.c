// Preloaded to perdured: a line with the bytes of each registration of memory, in /run/registered.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#undef ibv_reg_mr

typedef struct ibv_mr* register_at(struct ibv_pd*, void*, size_t, uint64_t, unsigned);

struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* domain, void* at, size_t bytes, uint64_t iova,
                                unsigned access) {
  register_at* next = (register_at*)dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");
  struct ibv_mr* registered = next(domain, at, bytes, iova, access);
  FILE* file = registered == NULL ? NULL : fopen("/run/registered", "ae");
  if (registered != NULL && file == NULL) abort();  // would count too few
  if (file != NULL) {
    fprintf(file, "%zu\n", bytes);
    fclose(file);
  }
  return registered;
}

struct ibv_mr* ibv_reg_mr(struct ibv_pd* domain, void* at, size_t bytes, int access) {
  return ibv_reg_mr_iova2(domain, at, bytes, (uintptr_t)at, (unsigned)access);
}
