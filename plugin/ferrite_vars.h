/*
 * System variables (ferrite_...) and status variables (Ferrite_...).
 *
 * Rules of this module
 * - Named as InnoDB's where the meaning is the same, and only then.
 * - Every variable has an effect. Dynamic ones go to the core through fe_engine_set() at
 *   once; if the core refuses a value, the old one stays.
 * - Update functions run with LOCK_global_system_variables held: no waiting in them, and what may
 *   take long lets go of it meanwhile.
 */
#ifndef FERRITE_VARS_H
#define FERRITE_VARS_H

#include "server_compat.h"

#include "ferrite.h"

extern struct st_mysql_sys_var *ferrite_system_variables[];
extern struct st_mysql_show_var ferrite_status_variables[];

/* Fills everything but data_dir; values are those of the command line. */
void ferrite_fill_config(fe_config *config);

/* Passes the settings that are not in fe_config to an engine that was just opened. */
void ferrite_apply_settings();

/* Session: seconds to wait for a row lock; 0 is NOWAIT. */
unsigned long ferrite_lock_wait_timeout(THD *thd);
/* Session: how new tables are compressed without an option: 0 none, 1 lz4, 2 zstd. */
uint32_t ferrite_default_compression(THD *thd);
/* A snapshot of another server is open, to be read alone. */
bool ferrite_opened_snapshot();
/* Session: BACKUP STAGE START is allowed although there are Ferrite tables. */
bool ferrite_allow_backup_stage(THD *thd);
bool ferrite_snapshot_isolation(THD *thd);
/* Pages that ANALYZE TABLE samples per index. */
uint32_t ferrite_stats_sample_pages();
/* A lock wait timeout rolls the whole transaction back. */
bool ferrite_rollback_on_timeout();
/* enforce_storage_engine=FERRITE holds under NO_ENGINE_SUBSTITUTION, too. */
bool ferrite_replaces_engines();

/* SHOW ENGINE FERRITE STATUS | MUTEX; the handlerton's show_status. */
bool ferrite_show_status(handlerton *hton, THD *thd, stat_print_fn *print, enum ha_stat_type type);

#endif
