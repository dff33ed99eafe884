/*
 * Hot backup; see ferrite_hot_backup.h.
 */
#include "ferrite_hot_backup.h"

#include <limits.h>
#include <stdlib.h>

#include <map>
#include <mutex>
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

/* Accounts by the number of the connection that began a backup; `who_fixed` is the account whose
   stage fixed the latest backup's point in time. */
std::mutex accounts_lock;
std::map<uint64_t, std::string> owners;
std::string who_fixed;

std::string account_of(THD *thd) {
  /* The connection's: in a procedure of SQL SECURITY DEFINER the other one is its definer's. */
  const Security_context *account = &thd->main_security_ctx;
  return std::string("'") + account->priv_user + "'@'" + account->priv_host + "'";
}

/* The backup that runs, or ran last. */
struct Latest {
  std::string state, dir, owner_account;
  uint64_t owner = 0;

  Latest() {
    fe_backup_info(
        ferrite_engine,
        [](void *to, const fe_backup_row *row) {
          Latest *latest = static_cast<Latest *>(to);
          latest->state = row->state;
          latest->dir = row->dir;
          latest->owner = row->owner;
        },
        this);
    const std::lock_guard<std::mutex> guard(accounts_lock);
    const auto found = owners.find(owner);
    if (found != owners.end()) owner_account = found->second;
  }
  bool waits_for(THD *thd) const {
    return state == "WAITING" && (owner == thd->thread_id || owner_account == account_of(thd));
  }
};

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
  {
    const std::lock_guard<std::mutex> guard(accounts_lock);
    owners[ours.owner] = account_of(thd);
  }
  if (fe_backup_begin(ferrite_engine, &ours) == FE_OK) {
    conn->owns_backup = true;
    return true;
  }
  if (!conn->owns_backup) {
    const std::lock_guard<std::mutex> guard(accounts_lock);
    owners.erase(ours.owner);
  }
  return refuse(ER_WRONG_VALUE_FOR_VAR, fe_last_error(), plan.dir);
}

bool ferrite_hot_backup_waits_for(THD *thd) {
  return ferrite_engine && fe_backup_waits(ferrite_engine) && Latest().waits_for(thd);
}

std::string ferrite_hot_backup_of_others(THD *thd) {
  const Latest latest;
  if (latest.state == "WAITING")
    return "The backup into " + latest.dir + " waits for a stage of " + latest.owner_account +
           ", who began it, and this one is of " + account_of(thd);
  if (latest.state != "COPYING") return "";
  const std::lock_guard<std::mutex> guard(accounts_lock);
  return "The backup into " + latest.dir +
         " waits for no stage any more: it has its point in time, the end of one of " + who_fixed;
}

void ferrite_hot_backup_stage_ends(THD *thd) {
  if (!thd || !ferrite_hot_backup_waits_for(thd) || !commits_are_blocked(thd)) return;
  const std::string account = account_of(thd);
  {
    const std::lock_guard<std::mutex> guard(accounts_lock);
    who_fixed = account;
  }
  if (fe_backup_fix(ferrite_engine) != FE_OK)
    sql_print_error("Ferrite: the backup has no point in time: %s", fe_last_error());
  else
    sql_print_information(
        "Ferrite: the backup into %s has its point in time: the end of the BACKUP STAGE of"
        " connection %llu, %s",
        Latest().dir.c_str(), static_cast<ulonglong>(thd->thread_id), account.c_str());
}

void ferrite_hot_backup_owner_ends(const ferrite_conn *conn) {
  if (!ferrite_engine || !conn->owns_backup) return;
  fe_backup_end(ferrite_engine, conn->thd->thread_id, "the connection that began it has ended");
  const std::lock_guard<std::mutex> guard(accounts_lock);
  owners.erase(conn->thd->thread_id);
}
