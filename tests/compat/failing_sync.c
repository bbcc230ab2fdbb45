/* Preloaded into a daemon: its medium refuses, in that msync, fdatasync and fsync fail with
 * EIO, while the file exists that $FAILING_SYNC names. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int refuses(void) {
  const char* name = getenv("FAILING_SYNC");
  return name != NULL && access(name, F_OK) == 0;
}

int msync(void* at, size_t length, int flags) {
  if (!refuses()) return (int)syscall(SYS_msync, at, length, flags);
  errno = EIO;
  return -1;
}

int fdatasync(int descriptor) {
  if (!refuses()) return (int)syscall(SYS_fdatasync, descriptor);
  errno = EIO;
  return -1;
}

int fsync(int descriptor) {
  if (!refuses()) return (int)syscall(SYS_fsync, descriptor);
  errno = EIO;
  return -1;
}
