/*
 * LD_PRELOAD shim: the clock of the day is wrong.
 *
 * FAULT_CLOCK names a file with a number: the clock is ahead by so many seconds. It is looked at every 50 ms,
 * so that a clock can be set while the server runs. Clocks that only measure time are right.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

typedef int clock_call(clockid_t, struct timespec *);

static clock_call *next_call(void) {
  static _Atomic(clock_call *) found;
  clock_call *next = found;
  if (!next) found = next = (clock_call *)dlsym(RTLD_NEXT, "clock_gettime");
  return next;
}

static long ahead_s(void) {
  static atomic_long ahead, looked_ms = -1000;
  const char *name = getenv("FAULT_CLOCK");
  struct timespec now;
  next_call()(CLOCK_MONOTONIC, &now);
  const long ms = now.tv_sec * 1000 + now.tv_nsec / 1000000;
  long before = looked_ms;
  if (!name || ms - before < 50 || !atomic_compare_exchange_strong(&looked_ms, &before, ms)) return ahead;
  FILE *file = fopen(name, "re");
  long seconds;
  if (file && fscanf(file, "%ld", &seconds) == 1) ahead = seconds;
  if (file) fclose(file);
  return ahead;
}

int clock_gettime(clockid_t clock, struct timespec *to) {
  const int failed = next_call()(clock, to);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) to->tv_sec += ahead_s();
  return failed;
}

time_t time(time_t *to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval *to, void *zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  to->tv_sec = now.tv_sec;
  to->tv_usec = now.tv_nsec / 1000;
  return 0;
}
