/*
 * Backups without Ferrite's rows: refused when they begin, reported when one was restored.
 *
 * mariadb-backup copies table files by their extension and skips the directory #ferrite: its
 * copy has the .frm files but no rows, and it reports "completed OK!". So BACKUP STAGE START (its
 * first statement) fails while there are Ferrite tables, unless a hot backup of Ferrite's own
 * waits for the stage (ferrite_hot_backup.h), and no Ferrite table can be created while a backup
 * runs that began without any. Tools that copy #ferrite by other means (a volume snapshot) or need
 * only the locks (a logical dump) set ferrite_allow_backup_stage.
 *
 * Rules of this module
 * - The server gives prepare_for_backup() no way to fail: it raises the error in the session
 *   that runs the statement, which the server then sends instead of OK. The stage itself has
 *   begun: it ends with BACKUP STAGE END or the connection, as after every error of a stage.
 * - `creating` (shared by sessions that create tables, taken before the core's own locks) orders
 * the creation of a table and the count of tables at the start of a backup.
 */
#ifndef FERRITE_BACKUP_H
#define FERRITE_BACKUP_H

#include "server_compat.h"

#include "ferrite.h"

/* The handlerton's prepare_for_backup and end_backup. */
void ferrite_prepare_for_backup();
void ferrite_end_backup();

/* fe_table_create(), unless a backup runs that would not have the table: then an error is
   raised and *refused is set. */
fe_code ferrite_create_table(const fe_table_def *def, THD *thd, bool *refused);

/* At start, once the server has recovered its DDL: says in the error log when the server has .frm
   files of Ferrite tables and the database has no table at all. */
void ferrite_report_lost_tables();

/* The statement's error for a table that has a .frm file and is not in the core. */
int ferrite_table_is_lost(const char *db, const char *table);

#endif
