// Preloaded to perdured: an RNIC that takes no rights away. What /run/rights_stay names stays where
// it is, with EBUSY: `qp` queue pairs, `mw` memory windows, `mr` registered memory; without that
// file all is as ever.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ibv_context* open_one(struct ibv_device*);
typedef int destroy_queue_pair(struct ibv_qp*);
typedef int deregister(struct ibv_mr*);
typedef int deallocate_window(struct ibv_mw*);

static deallocate_window* deallocate;

static int stays(const char* kind) {
  char named[8] = "";
  FILE* file = fopen("/run/rights_stay", "re");
  if (file == NULL) return 0;
  const int read = fscanf(file, "%7s", named);
  fclose(file);
  return read == 1 && strcmp(named, kind) == 0;
}

int ibv_destroy_qp(struct ibv_qp* qp) {
  return stays("qp") ? EBUSY : ((destroy_queue_pair*)dlsym(RTLD_NEXT, "ibv_destroy_qp"))(qp);
}

int ibv_dereg_mr(struct ibv_mr* mr) {
  return stays("mr") ? EBUSY : ((deregister*)dlsym(RTLD_NEXT, "ibv_dereg_mr"))(mr);
}

static int keep_or_deallocate(struct ibv_mw* mw) { return stays("mw") ? EBUSY : deallocate(mw); }

struct ibv_context* ibv_open_device(struct ibv_device* device) {
  struct ibv_context* context = ((open_one*)dlsym(RTLD_NEXT, "ibv_open_device"))(device);
  if (context == NULL) return NULL;
  if (context->ops.dealloc_mw == NULL) abort();  // shows nothing
  // A context that another call has opened before may be given again.
  if (context->ops.dealloc_mw != keep_or_deallocate) deallocate = context->ops.dealloc_mw;
  context->ops.dealloc_mw = keep_or_deallocate;
  return context;
}
