/*
 * The handlerton's transaction members, defined in ferrite_trx.cc and entered into the
 * handlerton by ferrite_hton.cc. Only the server calls them, and ferrite_init() the rest.
 */
#ifndef FERRITE_TRX_H
#define FERRITE_TRX_H

#include "server_compat.h"

int ferrite_hton_close_connection(THD *thd);
void ferrite_hton_kill_query(handlerton *hton, THD *thd, enum thd_kill_levels level);

int ferrite_hton_commit(THD *thd, bool all);
void ferrite_hton_commit_ordered(THD *thd, bool all);
int ferrite_hton_rollback(THD *thd, bool all);
int ferrite_hton_prepare(THD *thd, bool all);
int ferrite_hton_start_snapshot(THD *thd);

int ferrite_hton_recover(XID *list, uint len);
/* For a plugin that is installed while the server runs: XA RECOVER lists what users have prepared.
   False: some of them the server itself has prepared, and decides only when it starts. */
bool ferrite_take_over_prepared();
/* The server has decided what it found prepared; from here on there may be statements. */
void ferrite_recovery_is_over();
int ferrite_hton_commit_by_xid(XID *xid);
int ferrite_hton_rollback_by_xid(XID *xid);
void ferrite_hton_checkpoint_request(void *cookie);

int ferrite_hton_savepoint_set(THD *thd, void *area);
int ferrite_hton_savepoint_rollback(THD *thd, void *area);
int ferrite_hton_savepoint_release(THD *thd, void *area);
bool ferrite_hton_savepoint_can_release_mdl(THD *thd);

/* Logs the text and aborts the process: what was acknowledged cannot be kept otherwise. */
[[noreturn]] void ferrite_fatal(const char *text);

#endif
