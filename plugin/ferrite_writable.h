/*
 * Servers whose Ferrite tables cannot be changed: nodes of a Galera cluster, which is not
 * supported, and those that have a snapshot of another server open (ferrite_open_snapshot).
 *
 * With wsrep on, a statement on a Ferrite table would be executed on this node but not
 * replicated: the nodes would silently differ. Statements that change permanent Ferrite
 * tables, and DDL on them, are therefore refused while they would have to be replicated
 * (wsrep_on for the session, a provider loaded). Of a snapshot, nothing would outlive the server.
 * Dropping is not: the cluster executes it on every node, and what is gone cannot differ.
 * Temporary tables belong to one session of one node and stay allowed; so do reads.
 *
 * Asked at the beginning of a statement and at each row: what a stored function changes is part of
 * a statement that reads. Cost otherwise: two loads of variables that are never written.
 */
#ifndef FERRITE_WRITABLE_H
#define FERRITE_WRITABLE_H

#include "server_compat.h"

#include <wsrep_on.h>

#include "ferrite_vars.h"

/* Raises the error; HA_ERR_LOGGING_IMPOSSIBLE. (DROP TABLE takes HA_ERR_UNSUPPORTED for "there is
   no such table" and removes the .frm file.) */
int ferrite_refuse_in_cluster();
/* Raises the error; HA_ERR_TABLE_READONLY. */
int ferrite_refuse_in_snapshot();

inline bool ferrite_must_replicate(const THD *thd) { return WSREP_ON && thd && WSREP_NNULL(thd); }

/* A permanent table is about to be changed: 0, or the statement's error. */
inline int ferrite_check_writable(const THD *thd) {
  if (unlikely(ferrite_opened_snapshot())) return ferrite_refuse_in_snapshot();
  return ferrite_must_replicate(thd) ? ferrite_refuse_in_cluster() : 0;
}

/* The same for DROP, by file name; refused of a snapshot only. */
int ferrite_check_permanent(const char *path);

/* As above for DDL by file name: tables that the server makes for itself ("#sql...": copies of
   ALTER TABLE, temporary tables) come and go. */
int ferrite_check_writable_ddl(const THD *thd, const char *path);

#endif
