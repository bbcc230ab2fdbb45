// Preloaded to perdured: the RNIC can register no memory for FLUSH to persistence. So a FLUSH makes
// what was written visible, and the cache keeps it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

static const unsigned kFlushPersistent = 1U << 9;  // IBV_ACCESS_FLUSH_PERSISTENT, rdma-core 45

struct ibv_pd;
struct ibv_mr;
typedef struct ibv_mr* register_at(struct ibv_pd*, void*, size_t, uint64_t, unsigned);

struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* domain, void* at, size_t bytes, uint64_t iova,
                                unsigned access) {
  if (access & kFlushPersistent) {
    errno = EOPNOTSUPP;
    return NULL;
  }
  register_at* next = (register_at*)dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");
  return next(domain, at, bytes, iova, access);
}

struct ibv_mr* ibv_reg_mr(struct ibv_pd* domain, void* at, size_t bytes, int access) {
  return ibv_reg_mr_iova2(domain, at, bytes, (uintptr_t)at, (unsigned)access);
}
