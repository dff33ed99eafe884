/*
 * The plugin frame: opens and closes the engine, fills the handlerton, gives the core its
 * callbacks into the server, and declares the plugins of this library.
 *
 * Rules of this module
 * - init() either leaves a running engine or nothing at all: no thread, no state. If it cannot open
 *   a database before the binary log's crash recovery, it ends the server.
 * - The callbacks below run in whatever thread the core says in ferrite.h; those of foreign
 *   threads use only server functions that are made for them.
 * - Order at shutdown: the binlog waits for its checkpoint notifications, panic/deinit close.
 *   No thread of the core needs the server before that, so there is nothing to end earlier.
 */
#include "ferrite_hton.h"

#include <atomic>
#include <mutex>
#include <shared_mutex>

#include "ferrite_backup.h"
#include "ferrite_kept.h"
#include "ferrite_encryption.h"
#include "ferrite_error.h"
#include "ferrite_exported.h"
#include "ferrite_foreign.h"
#include "ferrite_i_s.h"
#include "ferrite_psi.h"
#include "ferrite_replace_engines.h"
#include "ferrite_query.h"
#include "ferrite_share.h"
#include "ferrite_trx.h"
#include "ferrite_vars.h"
#include "ferrite_version.h"
#include "innodb_settings.h"
#include "systemd_notice.h"
#include "table_options.h"

fe_engine *ferrite_engine = nullptr;
handlerton *ferrite_hton = nullptr;

static const char data_subdir[] = "#ferrite";

[[noreturn]] void ferrite_fatal(const char *text) {
  sql_print_error("Ferrite: %s", text);
  sql_print_error(
      "Ferrite: the server stops to avoid silent data loss. Crash recovery runs at the next"
      " start.");
  abort();
}

/* ---- what the core calls --------------------------------------------------------------- */

/* While the database is being opened: then a word of the core is a sign of progress. */
static std::atomic<bool> opening{false};

static void on_log(fe_log_level level, const char *text) {
  if (opening.load(std::memory_order_relaxed)) ferrite::extend_start_timeout(text);
  switch (level) {
    case FE_LOG_NOTE:
      sql_print_information("Ferrite: %s", text);
      break;
    case FE_LOG_WARNING:
      sql_print_warning("Ferrite: %s", text);
      break;
    default:
      sql_print_error("Ferrite: %s", text);
  }
}

static int on_is_killed(void *thd) { return thd && ferrite::is_killed(static_cast<THD *>(thd)); }

/* Connections end before the engine is told anything. */
static int on_is_shutting_down() { return abort_loop; }

static void on_progress(void *thd, uint64_t done, uint64_t total) {
  if (thd) thd_progress_report(static_cast<THD *>(thd), done, total);
}

/* The thread pool may start another thread meanwhile; SHOW PROCESSLIST shows the reason. */
static void on_lock_wait_begin(void *arg) {
  THD *thd = static_cast<THD *>(arg);
  if (!thd) return;
  thd_wait_begin(thd, THD_WAIT_ROW_LOCK);
  ferrite_conn *conn = static_cast<ferrite_conn *>(thd_get_ha_data(thd, ferrite_hton));
  if (conn) conn->proc_info_before_wait = thd_proc_info(thd, "Waiting for row lock");
}

static void on_lock_wait_end(void *arg, uint64_t waited_us) {
  THD *thd = static_cast<THD *>(arg);
  if (!thd) return;
  ferrite_conn *conn = static_cast<ferrite_conn *>(thd_get_ha_data(thd, ferrite_hton));
  if (conn) thd_proc_info(thd, conn->proc_info_before_wait);
  thd_wait_end(thd);
  thd_storage_lock_wait(thd, static_cast<long long>(waited_us));
}

static int on_wants_wait_reports(void *waiter) {
  return waiter && thd_need_wait_reports(static_cast<THD *>(waiter));
}

static void on_report_wait_for(void *waiter, void *holder) {
  if (waiter && holder)
    thd_rpl_deadlock_check(static_cast<THD *>(waiter), static_cast<THD *>(holder));
}

static void *on_async_begin(void *thd) {
  return thd ? thd_increment_pending_ops(static_cast<THD *>(thd)) : nullptr;
}

static void on_async_done(void *token) { thd_decrement_pending_ops(token); }

static void on_checkpoint_notify(void *cookie) { commit_checkpoint_notify_ha(cookie); }

static void on_fatal(const char *text) { ferrite_fatal(text); }

static int64_t on_current_connection(uint64_t *thread_id, char *query, size_t room) {
  THD *thd = current_thd;
  if (!thd) return -1;
  *thread_id = thd->thread_id;
  return static_cast<int64_t>(ferrite_own_query(thd, query, room));
}

static size_t on_query_of_waiter(void *thd, char *query, size_t room) {
  return thd ? ferrite_query_of(static_cast<THD *>(thd), query, room) : 0;
}

/* Parallel replication: the transaction that commits later is the victim. */
static int on_prefer_victim(void *a, void *b) {
  return thd_deadlock_victim_preference(static_cast<THD *>(a), static_cast<THD *>(b));
}

/* A token is the THD, which lives until its pending operation is done. A statement that somebody is
   looking at just then is not shown. */
static int64_t on_connection_of_token(void *token, uint64_t *thread_id, char *query, size_t room) {
  THD *thd = static_cast<THD *>(token);
  *thread_id = thd->thread_id;
  return static_cast<int64_t>(ferrite_query_of(thd, query, room));
}

/* ---- the rest of the handlerton -------------------------------------------------------- */

/* Shared by those who use the engine as somebody whom the server does not know; held alone while it
   is closed. Whoever closes it keeps the door meanwhile: users without a gap between them would
   keep a shared_mutex from it for ever. */
static std::shared_mutex engine_life;
static std::mutex engine_door;

FerriteUse::FerriteUse() {
  std::lock_guard<std::mutex> in_line(engine_door);
  engine_life.lock_shared();
}
FerriteUse::~FerriteUse() { engine_life.unlock_shared(); }

static int close_engine() {
  if (!ferrite_engine) return 0;
  ferrite_kept_stop();
  std::unique_lock<std::mutex> first_in_line(engine_door);
  std::unique_lock<std::shared_mutex> alone(engine_life);
  first_in_line.unlock();
  fe_code code = fe_engine_close(ferrite_engine);
  if (code != FE_OK) sql_print_error("Ferrite: cannot close the database: %s", fe_last_error());
  ferrite_engine = nullptr;
  return code != FE_OK;
}

static int hton_panic(handlerton *, enum ha_panic_function flag) {
  return flag == HA_PANIC_CLOSE ? close_engine() : 0;
}

static bool hton_flush_logs(handlerton *) {
  if (fe_engine_flush_log(ferrite_engine) == FE_OK) return false;
  sql_print_error("Ferrite: cannot flush the log: %s", fe_last_error());
  return true;
}

/* `path` is the directory of the database, "./db/": what is left of it here goes too. */
static void hton_drop_database(handlerton *, char *path) {
  size_t end = strlen(path);
  while (end && path[end - 1] == FN_LIBCHAR) end--;
  size_t begin = end;
  while (begin && path[begin - 1] != FN_LIBCHAR) begin--;
  char name[FN_REFLEN + 1];
  if (end == begin || end - begin > FN_REFLEN) return;
  memcpy(name, path + begin, end - begin);
  name[end - begin] = '\0';
  ferrite_remove_exported(path);
  THD *thd = current_thd;
  fe_code code = fe_database_drop(ferrite_engine, name, thd, ferrite_ddl_wait_ms(thd));
  if (code == FE_OK || code == FE_NOT_FOUND) return;
  sql_print_error("Ferrite: cannot drop the tables of database %s: %s", name, fe_last_error());
  /* The server ignores the result, so the client gets a warning. */
  if (thd)
    ferrite_warn(thd, ER_UNKNOWN_ERROR, "tables of database %s remain in the engine: %s", name,
                 fe_last_error());
}

/* After a crash in ALTER TABLE in place: 0 if the table has the new definition, whose .frm is to be
   used then. `before`: the old one's version; 0: not known (a partitioned table). */
static int hton_check_version(handlerton *, const char *path, const LEX_CUSTRING *,
                              ulonglong before) {
  if (!before || !ferrite_engine) return 0;
  const std::string name = ferrite::core_table_name(path);
  return fe_table_definition_version(ferrite_engine, name.c_str()) == before;
}

static int is_table_defined(void *, const char *name) {
  char path[FN_REFLEN + 1];
  const int len = snprintf(path, sizeof path, "./%s%s", name, reg_ext);
  return len >= static_cast<int>(sizeof path) || !access(path, F_OK);
}

/* The server removes no .frm file of what it has put aside and forgotten. */
static void note_dropped_copy(void *, const char *name) {
  sql_print_information("Ferrite: dropped %s, which an ALTER TABLE had not finished", name);
  char path[FN_REFLEN + 1];
  const int len = snprintf(path, sizeof path, "./%s%s", name, reg_ext);
  if (len < static_cast<int>(sizeof path) && unlink(path) && errno != ENOENT)
    sql_print_warning("Ferrite: cannot remove %s: %s", path, strerror(errno));
}

/* Tables that the server does not know, for its log. */
struct Unknown {
  static constexpr size_t kNamed = 10;
  size_t count = 0;
  std::string names;
};

static void collect_unknown(void *arg, const char *name, uint64_t partitions) {
  Unknown *all = static_cast<Unknown *>(arg);
  if (all->count++ >= Unknown::kNamed) return;
  all->names += (all->names.empty() ? "" : ", ") + ferrite_shown_with_database(name);
  if (partitions) all->names += " (" + std::to_string(partitions) + " partitions)";
}

static void report_unknown_tables() {
  Unknown all;
  fe_each_unknown_table(ferrite_engine, is_table_defined, collect_unknown, &all);
  if (!all.count) return;
  sql_print_warning(
      "Ferrite: %zu tables are in the engine and have no .frm file: %s%s. The server was killed in"
      " DROP or CREATE TABLE, or its files were lost. DROP TABLE removes one, or its .frm file"
      " brings it back",
      all.count, all.names.c_str(), all.count > Unknown::kNamed ? ", ..." : "");
}

/* It may be all that there is of a table, if the server was killed while it took an ALTER TABLE
   back. */
static void report_table_put_aside(void *, const char *name) {
  const std::string core_name(name);
  const std::string database = ferrite::shown(ferrite::database_of(core_name));
  sql_print_warning(
      "Ferrite: an ALTER TABLE that was cut off has put table %s aside, and it is not known whether"
      " another table has its rows. If one has, DROP TABLE `%s`.`#mysql50#%s` removes it; if none "
      "has,"
      " RENAME TABLE brings it back from that name",
      name, database.c_str(), ferrite::table_of(core_name).c_str());
}

/* What a DDL statement had left when the server ended is gone. What a rewind or a restore has
   brought back of one, the server's own log of DDL does not know. */
static int hton_ddl_recovery_done(handlerton *) {
  ferrite_recovery_is_over();
  if (!ferrite_engine) return 0;
  /* Not before: a .frm file may be what a CREATE or DROP TABLE had left that was cut off. */
  ferrite_report_lost_tables();
  if (ferrite_opened_snapshot()) return 0;
  if (fe_copies_drop(ferrite_engine, is_table_defined, note_dropped_copy, nullptr) != FE_OK)
    sql_print_warning("Ferrite: cannot drop the tables of an unfinished ALTER TABLE: %s",
                      fe_last_error());
  report_unknown_tables();
  fe_each_table_put_aside(ferrite_engine, report_table_put_aside, nullptr);
  return 0;
}

static void fill_handlerton(handlerton *hton) {
  hton->create = ferrite_create_handler;
  hton->flags = HTON_SUPPORTS_EXTENDED_KEYS | HTON_REQUIRES_CLOSE_AFTER_TRUNCATE |
                HTON_TRUNCATE_REQUIRES_EXCLUSIVE_USE;
  hton->table_options = ferrite_table_options;
  static const char *no_extensions[] = {nullptr};
  hton->tablefile_extensions = no_extensions;

  hton->close_connection = FERRITE_TRX_CALL(ferrite_hton_close_connection);
  hton->kill_query = ferrite_hton_kill_query;
  hton->commit = FERRITE_TRX_CALL(ferrite_hton_commit);
  hton->commit_ordered = FERRITE_TRX_CALL(ferrite_hton_commit_ordered);
  hton->rollback = FERRITE_TRX_CALL(ferrite_hton_rollback);
  hton->prepare = FERRITE_TRX_CALL(ferrite_hton_prepare);
  hton->recover = FERRITE_TRX_CALL(ferrite_hton_recover);
  hton->commit_by_xid = FERRITE_TRX_CALL(ferrite_hton_commit_by_xid);
  hton->rollback_by_xid = FERRITE_TRX_CALL(ferrite_hton_rollback_by_xid);
  hton->commit_checkpoint_request = ferrite_hton_checkpoint_request;
  hton->start_consistent_snapshot = FERRITE_TRX_CALL(ferrite_hton_start_snapshot);

  hton->savepoint_offset = sizeof(ferrite_savepoint);
  hton->savepoint_set = FERRITE_TRX_CALL(ferrite_hton_savepoint_set);
  hton->savepoint_rollback = FERRITE_TRX_CALL(ferrite_hton_savepoint_rollback);
  hton->savepoint_release = FERRITE_TRX_CALL(ferrite_hton_savepoint_release);
  hton->savepoint_rollback_can_release_mdl =
      FERRITE_TRX_CALL(ferrite_hton_savepoint_can_release_mdl);

  hton->drop_database = hton_drop_database;
  hton->check_version = hton_check_version;
  hton->signal_ddl_recovery_done = hton_ddl_recovery_done;
  hton->prepare_for_backup = ferrite_prepare_for_backup;
  hton->end_backup = ferrite_end_backup;
  hton->flush_logs = hton_flush_logs;
  hton->show_status = ferrite_show_status;
  hton->panic = hton_panic;
  ferrite::set_optimizer_costs(hton);
}

/* The server's crash recovery is still to come: it ends what each engine has prepared as its log
   says, once, and an engine that is not there has its transactions rolled back later, whatever
   their clients were told. Nothing of this is in a server that only lists its options. */
static bool is_before_recovery() { return !tc_log && !opt_help; }

/* Whether there is a database: its creation writes the superblock last, and its use the second
   checkpoint. What cannot be looked at may be one. */
static bool has_database() {
  const std::string dir = std::string(mysql_real_data_home) + data_subdir;
  auto may_be_there = [&dir](const char *file) {
    return !access((dir + file).c_str(), F_OK) || errno != ENOENT;
  };
  return may_be_there("/superblock") || may_be_there("/checkpoint.1");
}

/* A server that is up already, or has no database, goes on without the engine. */
static void end_start_without_database() {
  if (!is_before_recovery() || !has_database()) return;
  sql_print_error(
      "Ferrite: the server does not start without its database in %s%s: crash recovery would go by"
      " without it, and transactions that were committed before a crash would be lost. Remove the"
      " cause above and start again. (After a clean shutdown only: --ferrite=OFF starts without"
      " Ferrite.)",
      mysql_real_data_home, data_subdir);
  unireg_abort(1);
}

static int ferrite_init(void *arg) {
  static const fe_callbacks callbacks = {on_log,
                                         on_is_killed,
                                         on_progress,
                                         on_lock_wait_begin,
                                         on_lock_wait_end,
                                         on_wants_wait_reports,
                                         on_report_wait_for,
                                         on_async_begin,
                                         on_async_done,
                                         on_checkpoint_notify,
                                         on_fatal,
                                         on_current_connection,
                                         on_query_of_waiter,
                                         on_prefer_victim,
                                         on_connection_of_token,
                                         ferrite::newest_key_version,
                                         ferrite::encryption_key,
                                         on_is_shutting_down};
  ferrite_hton = static_cast<handlerton *>(arg);
  ferrite::find_innodb_settings();
  fe_config config;
  memset(&config, 0, sizeof config);
  ferrite_fill_config(&config);
  config.abi_version = FE_ABI_VERSION;
  config.data_dir = mysql_real_data_home;
  /* Else the directory of our files would show up as a database. */
  ignore_db_dirs_append(data_subdir);

  ferrite_observe_core();
  opening = true;
  fe_code code = fe_engine_open(&config, &callbacks, &ferrite_engine);
  opening = false;
  if (code != FE_OK) {
    sql_print_error("Ferrite: cannot open the database in %s%s: %s", config.data_dir, data_subdir,
                    fe_last_error());
    ferrite_engine = nullptr;
    ferrite_hton = nullptr;
    end_start_without_database();
    return 1;
  }
  if (mysqld_server_started && !ferrite_take_over_prepared()) {
    close_engine();
    ferrite_hton = nullptr;
    return 1;
  }
  fill_handlerton(ferrite_hton);
  ferrite_apply_settings();
  return 0;
}

static int ferrite_deinit(void *) {
  int failed = close_engine();
  ferrite_hton = nullptr;
  return failed;
}

static struct st_mysql_storage_engine ferrite_storage_engine = {MYSQL_HANDLERTON_INTERFACE_VERSION};

maria_declare_plugin(ferrite){MYSQL_STORAGE_ENGINE_PLUGIN,
                              &ferrite_storage_engine,
                              "FERRITE",
                              "The Ferrite developers",
                              "Supports transactions, row-level locking and bounded history",
                              PLUGIN_LICENSE_GPL,
                              ferrite_init,
                              ferrite_deinit,
                              FERRITE_VERSION_NUMBER,
                              ferrite_status_variables,
                              ferrite_system_variables,
                              FERRITE_VERSION_TEXT,
                              MariaDB_PLUGIN_MATURITY_EXPERIMENTAL},
    FERRITE_I_S_PLUGIN("FERRITE_METRICS", "Ferrite metrics", ferrite_i_s_metrics_init),
    FERRITE_I_S_PLUGIN("FERRITE_TRX", "Ferrite transactions", ferrite_i_s_trx_init),
    FERRITE_I_S_PLUGIN("FERRITE_LOCKS", "Ferrite locks", ferrite_i_s_locks_init),
    FERRITE_I_S_PLUGIN("FERRITE_LOCK_WAITS", "Ferrite lock waits", ferrite_i_s_lock_waits_init),
    FERRITE_I_S_PLUGIN("FERRITE_DEADLOCKS", "Latest deadlocks in Ferrite",
                       ferrite_i_s_deadlocks_init),
    FERRITE_I_S_PLUGIN("FERRITE_SNAPSHOTS", "Ferrite snapshots and the history they hold",
                       ferrite_i_s_snapshots_init),
    FERRITE_I_S_PLUGIN("FERRITE_BACKUP", "The latest hot backup of Ferrite",
                       ferrite_i_s_backup_init),
    FERRITE_I_S_PLUGIN("FERRITE_KEPT_SNAPSHOTS", "Kept snapshots of Ferrite's tables",
                       ferrite_i_s_kept_snapshots_init),
    FERRITE_I_S_PLUGIN("FERRITE_WAITS", "Ferrite waits by reason", ferrite_i_s_waits_init),
    FERRITE_I_S_PLUGIN("FERRITE_LONG_WAITS", "Long waits in Ferrite", ferrite_i_s_long_waits_init),
    FERRITE_I_S_PLUGIN("FERRITE_STALLS", "Long waits of statements in Ferrite",
                       ferrite_i_s_stalls_init),
    FERRITE_I_S_PLUGIN("FERRITE_MEMORY", "Ferrite's memory by parts", ferrite_i_s_memory_init),
    FERRITE_I_S_PLUGIN("FERRITE_SYS_FOREIGN", "Ferrite foreign keys", ferrite_i_s_foreign_init),
    FERRITE_I_S_PLUGIN("FERRITE_SYS_FOREIGN_COLS", "Columns of Ferrite foreign keys",
                       ferrite_i_s_foreign_cols_init),
    FERRITE_I_S_PLUGIN("FERRITE_FOREIGN_KEY_ERRORS", "Latest violations of Ferrite foreign keys",
                       ferrite_i_s_foreign_errors_init),
    FERRITE_REPLACE_ENGINES_PLUGIN maria_declare_plugin_end;
