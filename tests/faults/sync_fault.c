/*
 * LD_PRELOAD shim: fails one fdatasync() or fsync() of the server, once, on
 * demand; or stalls them.
 *
 * FAULT_TRIGGER names a file and FAULT_FILE a part of a path. The first sync of
 * a file whose path holds that part, while the trigger file exists, removes the
 * trigger and fails with EIO without syncing. With FAULT_STALL_MS every such
 * sync sleeps so long first, for as long as the trigger is there. Everything
 * else goes through.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int wanted(int fd) {
  const char *trigger = getenv("FAULT_TRIGGER"), *part = getenv("FAULT_FILE");
  char link[64], path[4096];
  if (!trigger || !part || access(trigger, F_OK))
    return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0)
    return 0;
  path[n] = 0;
  if (!strstr(path, part))
    return 0;
  const char *stall = getenv("FAULT_STALL_MS");
  if (stall) {
    long ms = atol(stall);
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
    return 0;
  }
  /* Of several threads the one that removes the trigger fails. */
  return unlink(trigger) == 0;
}

static int sync_with(const char *name, int fd) {
  int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  if (wanted(fd)) {
    errno = EIO;
    return -1;
  }
  return next(fd);
}

int fdatasync(int fd) { return sync_with("fdatasync", fd); }
int fsync(int fd) { return sync_with("fsync", fd); }
