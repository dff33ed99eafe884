/*
 * LD_PRELOAD shim: kills the server at a step of a statement that changes definitions.
 *
 * FAULT_TRIGGER names a file with a number and a letter. The server notes each step of such a
 * statement in its DDL log; before (b) or after (a) the write with that number, counted from
 * when the file came, the process gets SIGKILL. The file is gone then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is_ddl_log(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return strstr(path, "ddl_recovery") != NULL;
}

/* 'b' or 'a' if this write is the one; one thread at a time changes definitions. */
static int due(int fd) {
  const char *trigger = getenv("FAULT_TRIGGER");
  int number;
  char when;
  if (!trigger || access(trigger, F_OK) || !is_ddl_log(fd)) return 0;
  FILE *file = fopen(trigger, "r+");
  if (!file) return 0;
  int found = 0;
  if (fscanf(file, "%d %c", &number, &when) == 2) {
    if (number <= 1) {
      found = when;
      unlink(trigger);
    } else {
      rewind(file);
      fprintf(file, "%8d %c", number - 1, when);
    }
  }
  fclose(file);
  return found;
}

static ssize_t write_with(const char *name, int fd, const void *bytes, size_t count, off64_t at) {
  ssize_t (*next)(int, const void *, size_t, off64_t) =
      (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, name);
  const int when = due(fd);
  if (when == 'b') kill(getpid(), SIGKILL);
  const ssize_t done = next(fd, bytes, count, at);
  if (when == 'a') kill(getpid(), SIGKILL);
  return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
  return write_with("pwrite", fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
  return write_with("pwrite64", fd, bytes, count, at);
}
