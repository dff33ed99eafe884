/*
 * Hot backup; see ferrite_hot_backup.h.
 */
#include "ferrite_hot_backup.h"

#include <limits.h>
#include <stdlib.h>

#include <string>

#include "ferrite_hton.h"
#include "ferrite_vars.h"

namespace {

/* The path without links; of one that does not exist, that of the directory it would be in. */
std::string real_path(const std::string &path) {
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved)) return resolved;
  const size_t slash = path.find_last_of('/', path.find_last_not_of('/'));
  if (slash == std::string::npos || !slash) return path;
  return realpath(path.substr(0, slash).c_str(), resolved) ? resolved : path;
}

bool is_within(const std::string &path, const std::string &dir) {
  const std::string inner = real_path(path) + "/", outer = real_path(dir) + "/";
  return inner.compare(0, outer.size(), outer) == 0;
}

bool refuse(uint number, const char *text, const char *dir) {
  my_printf_error(number, "Variable 'ferrite_backup_dir' can't be set to '%s': %s", MYF(0), dir,
                  text);
  return false;
}

/* The stage of this connection blocks commits: the lock is the strongest that a stage takes. */
bool commits_are_blocked(THD *thd) {
  return thd->mdl_context.is_lock_owner(MDL_key::BACKUP, "", "", MDL_BACKUP_WAIT_COMMIT);
}

}  // namespace

bool ferrite_may_not_back_up(THD *thd) {
  return check_global_access(thd, FILE_ACL) || check_global_access(thd, RELOAD_ACL);
}

bool ferrite_hot_backup(THD *thd, const fe_backup_plan &plan) {
  if (!ferrite_engine) return true;
  if (!*plan.dir) {
    fe_backup_end(ferrite_engine, 0, "SET GLOBAL ferrite_backup_dir = '' ended it");
    return true;
  }
  if (ferrite_opened_snapshot())
    return refuse(ER_WRONG_VALUE_FOR_VAR, "this server has a snapshot of another one open",
                  plan.dir);
  if (is_within(plan.dir, mysql_real_data_home))
    return refuse(ER_WRONG_VALUE_FOR_VAR, "it is inside the data directory", plan.dir);
  /* So that the end of this connection is heard of. */
  ferrite_conn *conn = ferrite_conn_of(thd);
  fe_backup_plan ours = plan;
  ours.owner = thd->thread_id;
  if (fe_backup_begin(ferrite_engine, &ours) == FE_OK) {
    conn->owns_backup = true;
    return true;
  }
  return refuse(ER_WRONG_VALUE_FOR_VAR, fe_last_error(), plan.dir);
}

bool ferrite_hot_backup_waits() { return ferrite_engine && fe_backup_waits(ferrite_engine); }

void ferrite_hot_backup_stage_ends(THD *thd) {
  if (!ferrite_hot_backup_waits() || !thd || !commits_are_blocked(thd)) return;
  if (fe_backup_fix(ferrite_engine) != FE_OK)
    sql_print_error("Ferrite: the backup has no point in time: %s", fe_last_error());
}

void ferrite_hot_backup_owner_ends(const ferrite_conn *conn) {
  if (ferrite_engine && conn->owns_backup)
    fe_backup_end(ferrite_engine, conn->thd->thread_id, "the connection that began it has ended");
}
