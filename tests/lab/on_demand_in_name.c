// Preloaded to perdured: an RNIC that says it pages on demand, and pins. What it writes to a file's
// page after the page was written back does not make it dirty again, so msync writes nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

#undef ibv_reg_mr

static const size_t kPoolBytesMin = 4 << 20;

typedef struct ibv_mr* register_at(struct ibv_pd*, void*, size_t, uint64_t, unsigned);
typedef struct ibv_context* open_one(struct ibv_device*);
typedef int query(struct ibv_context*, const struct ibv_query_device_ex_input*,
                  struct ibv_device_attr_ex*, size_t);

static query* asked;

static int answer(struct ibv_context* context, const struct ibv_query_device_ex_input* input,
                  struct ibv_device_attr_ex* attributes, size_t bytes) {
  const int status = asked(context, input, attributes, bytes);
  if (status == 0) {
    attributes->odp_caps.general_caps = IBV_ODP_SUPPORT;
    attributes->odp_caps.per_transport_caps.rc_odp_caps =
        IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
        IBV_ODP_SUPPORT_ATOMIC;
  }
  return status;
}

struct ibv_context* ibv_open_device(struct ibv_device* device) {
  struct ibv_context* context = ((open_one*)dlsym(RTLD_NEXT, "ibv_open_device"))(device);
  struct verbs_context* verbs = context == NULL ? NULL : verbs_get_ctx(context);
  if (verbs == NULL || verbs->query_device_ex == NULL) abort();  // another rdma-core: shows nothing
  asked = verbs->query_device_ex;
  verbs->query_device_ex = answer;
  return context;
}

struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* domain, void* at, size_t bytes, uint64_t iova,
                                unsigned access) {
  // A pool; smaller things are pinned as ever.
  if (bytes >= kPoolBytesMin && !(access & IBV_ACCESS_ON_DEMAND)) {
    errno = EOPNOTSUPP;
    return NULL;
  }
  register_at* next = (register_at*)dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");
  return next(domain, at, bytes, iova, access & ~(unsigned)IBV_ACCESS_ON_DEMAND);
}

struct ibv_mr* ibv_reg_mr(struct ibv_pd* domain, void* at, size_t bytes, int access) {
  return ibv_reg_mr_iova2(domain, at, bytes, (uintptr_t)at, (unsigned)access);
}
