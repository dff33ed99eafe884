/*
 * Kept snapshots: ferrite_snapshot_create, ferrite_snapshot_drop, and the schedule.
 *
 * A snapshot has one point in time with the definitions of tables (.frm) and the position in the
 * binary log: DDL is blocked while the files are read, and commits, too, while the point is fixed,
 * by the lock that BACKUP STAGE takes. Both are blocked for moments; the checkpoint before and what
 * is written after block nobody.
 *
 * Rules of this module
 * - While a BACKUP STAGE of another connection is active there is no point: the statement fails
 *   after lock_wait_timeout, ten seconds at most, and the schedule tries again.
 * - The thread of the schedule runs only while ferrite_snapshot_interval is not 0, and ends before
 *   the engine is closed.
 */
#ifndef FERRITE_KEPT_H
#define FERRITE_KEPT_H

#include "server_compat.h"

#include "ferrite.h"

/* False: the statement has an error. */
bool ferrite_kept_create(THD *thd, const char *name);
bool ferrite_kept_drop(THD *thd, const char *name);

/* True, with an error, if the connection's user may not take snapshots. */
bool ferrite_may_not_keep(THD *thd);

/* A snapshot every so many seconds (0: none), so many of them kept (0: all). False: the system
   refuses a thread, and nothing has changed. */
bool ferrite_kept_schedule(unsigned int interval_s, unsigned int most);

/* Ends the schedule's thread. */
void ferrite_kept_stop();

#endif
