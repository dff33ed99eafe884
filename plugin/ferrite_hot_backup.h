/*
 * Hot backup: the variable ferrite_backup_dir, and what the server's backup stages mean for it.
 *
 * SET GLOBAL ferrite_backup_dir = '/dir' begins a backup of Ferrite's data (FE_BACKUP in
 * ferrite.h). Its point in time is the end of the next BACKUP STAGE that has reached
 * BLOCK_COMMIT: there no commit and no DDL runs, so that other engines' files, .frm files and
 * the position in the binary log that were taken in the stage agree with it. Then it is
 * copied in the background. An empty value ends the backup.
 *
 * Rules of this module
 * - The stage is one of the account that began the backup: that of somebody's mariadb-backup would
 *   be without Ferrite's rows, and take the point in time from the stage that belongs to it.
 * - `accounts_lock` is a leaf.
 * - A backup belongs to the connection that began it and ends with it: KILL, or the death of
 *   the program that took it, leaves nothing behind.
 * - Beginning takes a checkpoint: LOCK_global_system_variables is given back meanwhile.
 */
#ifndef FERRITE_HOT_BACKUP_H
#define FERRITE_HOT_BACKUP_H

#include "server_compat.h"

#include <string>

#include "ferrite.h"

struct ferrite_conn;

/* The plan's directories may not be NULL. An empty directory ends the connection's backup.
   False: the statement has an error. */
bool ferrite_hot_backup(THD *thd, const fe_backup_plan &plan);

/* True, with an error, if the connection's user may not take backups. */
bool ferrite_may_not_back_up(THD *thd);

/* A backup waits for its point in time, which this connection's BACKUP STAGE may be. */
bool ferrite_hot_backup_waits_for(THD *thd);

/* Of a backup that runs and has nothing to do with this connection's BACKUP STAGE: why. Empty:
   none runs. */
std::string ferrite_hot_backup_of_others(THD *thd);

/* At the end of a BACKUP STAGE. */
void ferrite_hot_backup_stage_ends(THD *thd);

/* At the end of a connection, or of what the server had in its place while it did something for
   itself (mysql.time_zone*, mysql.proc): that one owns no backup, though it has the same number. */
void ferrite_hot_backup_owner_ends(const ferrite_conn *conn);

#endif
