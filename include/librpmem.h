/* librpmem: a program's memory replicated to another machine, as PMDK's library of that name did it
 * (API 1.3). For programs that are there; new ones use perdure/region.h.
 *
 * Functions that return a pointer return NULL on an error, the others nonzero; errno then says what
 * it was, and rpmem_errormsg() says it in words. docs/rpmem.md says where this library and PMDK's
 * differ.
 */
#ifndef LIBRPMEM_H
#define LIBRPMEM_H 1

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(modernize-use-using, readability-identifier-naming): the names are PMDK's. */
#define RPMEM_MAJOR_VERSION 1
#define RPMEM_MINOR_VERSION 3

typedef struct rpmem_pool RPMEMpool;

#define RPMEM_POOL_HDR_SIG_LEN 8
#define RPMEM_POOL_HDR_UUID_LEN 16
#define RPMEM_POOL_USER_FLAGS_LEN 16

struct rpmem_pool_attr {
  char signature[RPMEM_POOL_HDR_SIG_LEN];
  uint32_t major;
  uint32_t compat_features;
  uint32_t incompat_features;
  uint32_t ro_compat_features;
  unsigned char poolset_uuid[RPMEM_POOL_HDR_UUID_LEN];
  unsigned char uuid[RPMEM_POOL_HDR_UUID_LEN];
  unsigned char next_uuid[RPMEM_POOL_HDR_UUID_LEN];
  unsigned char prev_uuid[RPMEM_POOL_HDR_UUID_LEN];
  unsigned char user_flags[RPMEM_POOL_USER_FLAGS_LEN];
};

#define RPMEM_REMOVE_FORCE 0x1
#define RPMEM_REMOVE_POOL_SET 0x2
#define RPMEM_PERSIST_RELAXED 0x1U
#define RPMEM_FLUSH_RELAXED 0x1U

/* `target` is [user@]host[:port], `pool_set_name` relative to the target's poolset-dir. The memory
 * is page aligned and stays until rpmem_close(). *nlanes is what is asked for, and then what was
 * granted. No attributes, or zeros: the target's set has OPTION NOHDRS.
 * errno: EINVAL, ENOENT, EEXIST, EACCES, EBUSY, EFBIG (the set is smaller than the pool), ENOSPC,
 * ENOTSUP, EIO, ECONNRESET, ETIMEDOUT, EPROTO. */
RPMEMpool* rpmem_create(const char* target, const char* pool_set_name, void* pool_addr,
                        size_t pool_size, unsigned* nlanes,
                        const struct rpmem_pool_attr* create_attr);
RPMEMpool* rpmem_open(const char* target, const char* pool_set_name, void* pool_addr,
                      size_t pool_size, unsigned* nlanes, struct rpmem_pool_attr* open_attr);
int rpmem_set_attr(RPMEMpool* rpp, const struct rpmem_pool_attr* attr);
/* The pool can not be used afterwards, whatever it returns. */
int rpmem_close(RPMEMpool* rpp);

/* The bytes are durable at the target when it returns 0. flags: 0: no word of 8 bytes at a multiple
 * of 8 is torn by a crash in its midst; or RPMEM_PERSIST_RELAXED: nothing is promised of that. */
int rpmem_persist(RPMEMpool* rpp, size_t offset, size_t length, unsigned lane, unsigned flags);
/* Begins that; rpmem_drain() of the same lane waits for it. flags: 0 or RPMEM_FLUSH_RELAXED, as for
 * rpmem_persist. */
int rpmem_flush(RPMEMpool* rpp, size_t offset, size_t length, unsigned lane, unsigned flags);
/* flags: 0 */
int rpmem_drain(RPMEMpool* rpp, unsigned lane, unsigned flags);
int rpmem_deep_persist(RPMEMpool* rpp, size_t offset, size_t length, unsigned lane);
int rpmem_read(RPMEMpool* rpp, void* buff, size_t offset, size_t length, unsigned lane);

int rpmem_remove(const char* target, const char* pool_set_name, int flags);

/* NULL: this library has that version of the API; else why not. */
const char* rpmem_check_version(unsigned major_required, unsigned minor_required);
/* Of this thread's last call that failed. Never NULL. */
const char* rpmem_errormsg(void);
/* NOLINTEND(modernize-use-using, readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
