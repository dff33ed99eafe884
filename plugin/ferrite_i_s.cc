/*
 * information_schema.FERRITE_METRICS, _TRX, _LOCKS, _LOCK_WAITS, _DEADLOCKS, _SNAPSHOTS, _BACKUP
 * and _KEPT_SNAPSHOTS. Waits are in ferrite_i_s_waits.cc, foreign keys in ferrite_i_s_foreign.cc.
 *
 * Rules of this module
 * - Columns have the names of the corresponding INNODB_... columns, in the same order, so
 *   that queries and joins written for those need only a new table name. What does not exist
 *   in Ferrite is NULL, never an invented number. Columns of our own come last. None is ever
 * renamed.
 * - The core's callbacks only copy: rows are stored after the core has released its
 *   locks. The text of a running query is then requested from the server, by thread id.
 */
#include "ferrite_i_s.h"

#include <unordered_map>

#include "ferrite_i_s_rows.h"
#include "ferrite_query.h"
#include "ferrite_violation.h"

struct st_mysql_information_schema ferrite_i_s_descriptor = {
    MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

int ferrite_i_s_deinit(void *) { return 0; }

using namespace ferrite;

namespace {

/* Counters since when; TIME_ENABLED of the metrics. */
time_t engine_started;

constexpr uint max_lock_id = 32;
constexpr uint max_foreign_error = 256;
constexpr uint max_lock_data = 8192;

std::string lock_id(uint64_t id) { return std::to_string(id); }

/* Of a connection: what it runs at this moment (empty when it is idle or busy changing that), and
   what it has set. */
struct Connection {
  std::string query;
  bool unique_checks, foreign_checks;
};

using Connections = std::unordered_map<uint64_t, Connection>;

my_bool add_connection(THD *other, Connections *all) {
  char text[max_query];
  const size_t length = ferrite_query_of(other, text, sizeof text);
  (*all)[other->thread_id] = {std::string(text, length),
                              !thd_test_options(other, OPTION_RELAXED_UNIQUE_CHECKS),
                              !thd_test_options(other, OPTION_NO_FOREIGN_KEY_CHECKS)};
  return 0;
}

/* All of them in one walk: to look one up by its id is a walk, too. None is gone before the walk
 * ends. */
Connections connections_now() {
  Connections all;
  server_threads.iterate(add_connection, &all);
  return all;
}

void put_query(Field *field, const Connections &all, uint64_t thread_id) {
  const auto found = all.find(thread_id);
  if (found == all.end() || found->second.query.empty())
    field->set_null();
  else
    put(field, found->second.query);
}

/* NULL when it is gone. */
void put_checks(Field *unique_checks, Field *foreign_checks, const Connections &all,
                uint64_t thread_id) {
  unique_checks->set_null();
  foreign_checks->set_null();
  const auto found = all.find(thread_id);
  if (found == all.end()) return;
  put(unique_checks, found->second.unique_checks);
  put(foreign_checks, found->second.foreign_checks);
}

/* ---- FERRITE_METRICS ------------------------------------------------------------------ */

struct Metric {
  std::string name, subsystem, comment;
  uint64_t value;
  bool is_counter;
};

void collect_metric(void *arg, const char *name, uint64_t value, const char *subsystem,
                    const char *comment, int is_counter) {
  static_cast<std::vector<Metric> *>(arg)->push_back(
      {copy_of(name), copy_of(subsystem), copy_of(comment), value, is_counter != 0});
}

int fill_metrics(THD *thd, TABLE_LIST *tables, Item *) {
  if (may_not_look(thd)) return 1;
  std::vector<Metric> metrics;
  {
    const FerriteUse use;
    if (!use) return 0;
    fe_status_each(ferrite_engine, collect_metric, &metrics);
  }
  const time_t elapsed = time(nullptr) - engine_started;
  return store_rows(thd, tables, metrics, [thd, elapsed](Field **f, const Metric &m) {
    put(f[0], m.name);
    put(f[1], m.subsystem);
    put(f[2], m.value);
    put_null(f, {3, 4, 5, 7, 8, 9, 11, 13});
    if (m.is_counter && elapsed > 0) {
      f[5]->set_notnull();
      f[5]->store(static_cast<double>(m.value) / static_cast<double>(elapsed));
    }
    put(f[6], m.value); /* counters are never reset */
    put_time(thd, f[10], static_cast<uint64_t>(engine_started));
    put(f[12], static_cast<uint64_t>(elapsed));
    put(f[14], 1);
    put(f[15], m.is_counter ? "counter" : "value");
    put(f[16], m.comment);
  });
}

/* ---- FERRITE_TRX ---------------------------------------------------------------------- */

struct Trx {
  fe_trx_row row;
  std::string state, isolation;
};

void collect_trx(void *arg, const fe_trx_row *row) {
  static_cast<std::vector<Trx> *>(arg)->push_back(
      {*row, copy_of(row->state), copy_of(row->isolation)});
}

/* By connection: all transactions that have changed nothing have the id 0. */
void collect_requested_lock(void *arg, const fe_lock_wait_row *row) {
  (*static_cast<std::unordered_map<uint64_t, uint64_t> *>(arg))[row->requesting_thread_id] =
      row->requested_lock_id;
}

int fill_trx(THD *thd, TABLE_LIST *tables, Item *) {
  if (may_not_look(thd)) return 1;
  std::vector<Trx> list;
  std::unordered_map<uint64_t, uint64_t> requested;
  {
    const FerriteUse use;
    if (!use) return 0;
    fe_each_trx(ferrite_engine, collect_trx, &list);
    fe_each_lock_wait(ferrite_engine, collect_requested_lock, &requested);
  }
  std::unordered_map<uint64_t, std::string> violated;
  for (const Violation &one : violations()) violated[one.trx_id] = one.text;
  const Connections connections = connections_now();
  return store_rows(thd, tables, list, [&](Field **f, const Trx &trx) {
    put(f[0], trx.row.txn_id);
    put(f[1], trx.state);
    put_time(thd, f[2], trx.row.started_unix_s);
    put_null(f, {3, 4, 8, 9, 10, 12, 15, 19, 21});
    auto wanted = requested.find(trx.row.thread_id);
    if (trx.row.waiting_since_unix_s) {
      put_time(thd, f[4], trx.row.waiting_since_unix_s);
      if (wanted != requested.end()) put(f[3], lock_id(wanted->second));
    }
    /* InnoDB's weight: what it would take to undo, and what others would get back. */
    put(f[5], trx.row.rows_changed + trx.row.locks_held);
    put(f[6], trx.row.thread_id);
    put_query(f[7], connections, trx.row.thread_id);
    put(f[11], trx.row.locks_held);
    put(f[13], trx.row.locks_held);
    put(f[14], trx.row.rows_changed);
    put(f[16], trx.isolation);
    put_checks(f[17], f[18], connections, trx.row.thread_id);
    const auto error = violated.find(trx.row.txn_id);
    if (trx.row.txn_id && error != violated.end())
      put(f[19], error->second.substr(0, max_foreign_error));
    put(f[20], trx.row.txn_id == 0 ? 1 : 0);
    put(f[22], trx.row.undo_bytes);
  });
}

/* ---- FERRITE_LOCKS, FERRITE_LOCK_WAITS ------------------------------------------------ */

struct Lock {
  fe_lock_row row;
  std::string mode, table, index, data;
};

/* Keys are in the order-preserving encoding: shown as bytes. */
std::string hex(fe_slice key) {
  static const char digits[] = "0123456789abcdef";
  std::string out = key.len ? "0x" : "";
  for (size_t i = 0; i < key.len && out.size() + 2 <= max_lock_data; i++) {
    out += digits[key.ptr[i] >> 4];
    out += digits[key.ptr[i] & 15];
  }
  return out;
}

/* What a lock is on. */
std::string lock_data(const fe_lock_row &row) {
  if (row.records) return std::to_string(row.records) + " records";
  return row.until.len ? hex(row.key) + ".." + hex(row.until) : hex(row.key);
}

/* Memory for the locks of one query; InnoDB's tables stop there, too. */
constexpr size_t max_locks_bytes = 16 << 20;

struct Locks {
  THD *thd;
  size_t bytes = 0;
  bool is_cut = false;
  std::vector<Lock> list;
};

/* Stops when the query is killed, or has taken enough. */
int collect_lock(void *arg, const fe_lock_row *row) {
  Locks *locks = static_cast<Locks *>(arg);
  if (locks->thd->killed) return 1;
  locks->is_cut = locks->bytes >= max_locks_bytes;
  if (locks->is_cut) return 1;
  locks->list.push_back(
      {*row, copy_of(row->mode), copy_of(row->table), copy_of(row->index), lock_data(*row)});
  const Lock &lock = locks->list.back();
  locks->bytes += sizeof lock + lock.table.size() + lock.index.size() + lock.data.size();
  return 0;
}

void put_lock(THD *thd, Field **f, const Lock &lock) {
  put(f[0], lock_id(lock.row.lock_id));
  put(f[1], lock.row.txn_id);
  put(f[2], lock.mode);
  put(f[3], lock.row.of_table ? "TABLE" : "RECORD");
  char name[2 * FN_REFLEN];
  size_t len =
      explain_filename(thd, lock.table.c_str(), name, sizeof name, EXPLAIN_PARTITIONS_AS_COMMENT);
  put(f[4], name, len);
  put_null(f, {5, 6, 7, 8, 9});
  if (!lock.row.of_table) {
    put_or_null(f[5], lock.index);
    put(f[9], lock.data);
  }
  put(f[10], lock.row.thread_id);
  put(f[11], lock.row.granted ? 1 : 0);
}

int fill_locks(THD *thd, TABLE_LIST *tables, Item *) {
  if (may_not_look(thd)) return 1;
  Locks locks{thd};
  {
    const FerriteUse use;
    if (!use) return 0;
    fe_each_lock(ferrite_engine, collect_lock, &locks);
  }
  if (thd->check_killed()) return 1;
  if (locks.is_cut)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR,
                        "FERRITE_LOCKS: only the first %llu locks are shown",
                        static_cast<ulonglong>(locks.list.size()));
  return store_rows(thd, tables, locks.list,
                    [thd](Field **f, const Lock &lock) { put_lock(thd, f, lock); });
}

int fill_lock_waits(THD *thd, TABLE_LIST *tables, Item *) {
  return fill_rows<fe_lock_wait_row>(thd, tables, fe_each_lock_wait,
                                     collect_as_told<fe_lock_wait_row>,
                                     [](Field **f, const fe_lock_wait_row &wait) {
                                       put(f[0], wait.requesting_txn_id);
                                       put(f[1], lock_id(wait.requested_lock_id));
                                       put(f[2], wait.blocking_txn_id);
                                       put(f[3], lock_id(wait.blocking_lock_id));
                                     });
}

/* ---- FERRITE_DEADLOCKS ---------------------------------------------------------------- */

struct Deadlocked {
  fe_deadlock_row row;
  std::string table, index, key, waits_for, holds, query;
};

void collect_deadlocked(void *arg, const fe_deadlock_row *row) {
  static_cast<std::vector<Deadlocked> *>(arg)->push_back(
      {*row, copy_of(row->table), copy_of(row->index), hex(row->key), copy_of(row->waits_for),
       copy_of(row->holds), copy_of(row->query)});
}

int fill_deadlocks(THD *thd, TABLE_LIST *tables, Item *) {
  return fill_rows<Deadlocked>(thd, tables, fe_each_deadlock, collect_deadlocked,
                               [thd](Field **f, const Deadlocked &one) {
                                 put(f[0], one.row.number);
                                 put_time_us(thd, f[1], one.row.at_unix_us);
                                 put(f[2], one.row.position);
                                 put(f[3], one.row.victim ? 1 : 0);
                                 put(f[4], one.row.thread_id);
                                 put(f[5], one.row.txn_id);
                                 put(f[6], one.row.rows_changed);
                                 put_or_null(f[7], one.query);
                                 put_or_null(f[8], one.table);
                                 put_or_null(f[9], one.index);
                                 put_or_null(f[10], one.index.empty() ? std::string() : one.key);
                                 put_or_null(f[11], one.waits_for);
                                 put_or_null(f[12], one.holds);
                               });
}

/* ---- FERRITE_SNAPSHOTS ---------------------------------------------------------------- */

int fill_snapshots(THD *thd, TABLE_LIST *tables, Item *) {
  const Connections connections = connections_now();
  return fill_rows<fe_snapshot_row>(thd, tables, fe_each_snapshot, collect_as_told<fe_snapshot_row>,
                                    [&](Field **f, const fe_snapshot_row &snapshot) {
                                      put(f[0], snapshot.thread_id);
                                      put(f[1], snapshot.age_ms);
                                      put(f[2], snapshot.csn);
                                      put(f[3], snapshot.held_bytes);
                                      put(f[4], snapshot.held_rows);
                                      put_query(f[5], connections, snapshot.thread_id);
                                    });
}

/* ---- FERRITE_BACKUP ------------------------------------------------------------------- */

struct Backup {
  fe_backup_row row;
  std::string state, dir, base, error;
};

void collect_backup(void *arg, const fe_backup_row *row) {
  *static_cast<Backup *>(arg) = {*row, copy_of(row->state), copy_of(row->dir), copy_of(row->base),
                                 copy_of(row->error)};
}

int fill_backup(THD *thd, TABLE_LIST *tables, Item *) {
  if (may_not_look(thd)) return 1;
  Backup backup{};
  {
    const FerriteUse use;
    if (!use) return 0;
    fe_backup_info(ferrite_engine, collect_backup, &backup);
  }
  if (!backup.row.id) return 0;
  TABLE *table = tables->table;
  Field **f = table->field;
  restore_record(table, s->default_values);
  char id[17];
  snprintf(id, sizeof id, "%016llx", static_cast<unsigned long long>(backup.row.id));
  put(f[0], backup.state);
  put(f[1], backup.dir);
  put_or_null(f[2], backup.base);
  put(f[3], std::string(id));
  put_time(thd, f[4], backup.row.started_unix_s);
  put_or_null(f[5], backup.row.position);
  put(f[6], backup.row.page_bytes);
  put(f[7], backup.row.copied_bytes);
  put(f[8], backup.row.kept_log_bytes);
  put(f[9], backup.row.withheld_bytes);
  put(f[10], backup.row.owner);
  put_or_null(f[11], backup.error);
  return schema_table_store_record(thd, table);
}

/* ---- FERRITE_KEPT_SNAPSHOTS ------------------------------------------------------------ */

struct Kept {
  fe_kept_row row;
  std::string name, lost, binlog_file, gtid;
};

void collect_kept(void *arg, const fe_kept_row *row) {
  static_cast<std::vector<Kept> *>(arg)->push_back({*row, copy_of(row->name), copy_of(row->lost),
                                                    copy_of(row->binlog_file), copy_of(row->gtid)});
}

int fill_kept_snapshots(THD *thd, TABLE_LIST *tables, Item *) {
  return fill_rows<Kept>(thd, tables, fe_kept_each, collect_kept,
                         [thd](Field **f, const Kept &kept) {
                           put(f[0], kept.name);
                           put(f[1], std::string(kept.lost.empty() ? "READY" : "LOST"));
                           put_time(thd, f[2], kept.row.taken_unix_s);
                           put(f[3], std::string(kept.row.scheduled ? "YES" : "NO"));
                           put(f[4], kept.row.position);
                           put(f[5], kept.row.changed_bytes);
                           put(f[6], kept.row.file_bytes);
                           put_or_null(f[7], kept.binlog_file);
                           put_or_null(f[8], kept.row.binlog_position);
                           put_or_null(f[9], kept.gtid);
                           put_or_null(f[10], kept.lost);
                         });
}

}  // namespace

/* ---- columns -------------------------------------------------------------------------- */

namespace Show {

static ST_FIELD_INFO ferrite_metrics_fields[] = {
    Column("NAME", Varchar(NAME_LEN + 1), NOT_NULL),
    Column("SUBSYSTEM", Varchar(NAME_LEN + 1), NOT_NULL),
    Column("COUNT", SLonglong(), NOT_NULL),
    Column("MAX_COUNT", SLonglong(), NULLABLE),
    Column("MIN_COUNT", SLonglong(), NULLABLE),
    Column("AVG_COUNT", Float(MAX_FLOAT_STR_LENGTH), NULLABLE),
    Column("COUNT_RESET", SLonglong(), NOT_NULL),
    Column("MAX_COUNT_RESET", SLonglong(), NULLABLE),
    Column("MIN_COUNT_RESET", SLonglong(), NULLABLE),
    Column("AVG_COUNT_RESET", Float(MAX_FLOAT_STR_LENGTH), NULLABLE),
    Column("TIME_ENABLED", Datetime(0), NULLABLE),
    Column("TIME_DISABLED", Datetime(0), NULLABLE),
    Column("TIME_ELAPSED", SLonglong(), NULLABLE),
    Column("TIME_RESET", Datetime(0), NULLABLE),
    Column("ENABLED", SLong(1), NOT_NULL),
    Column("TYPE", Varchar(16), NOT_NULL),
    Column("COMMENT", Varchar(NAME_LEN + 1), NOT_NULL),
    CEnd()};

static ST_FIELD_INFO ferrite_trx_fields[] = {
    Column("trx_id", ULonglong(), NOT_NULL),
    Column("trx_state", Varchar(13), NOT_NULL),
    Column("trx_started", Datetime(0), NOT_NULL),
    Column("trx_requested_lock_id", Varchar(max_lock_id), NULLABLE),
    Column("trx_wait_started", Datetime(0), NULLABLE),
    Column("trx_weight", ULonglong(), NOT_NULL),
    Column("trx_mysql_thread_id", ULonglong(), NOT_NULL),
    Column("trx_query", Varchar(max_query), NULLABLE),
    Column("trx_operation_state", Varchar(64), NULLABLE),
    Column("trx_tables_in_use", ULonglong(), NULLABLE),
    Column("trx_tables_locked", ULonglong(), NULLABLE),
    Column("trx_lock_structs", ULonglong(), NOT_NULL),
    Column("trx_lock_memory_bytes", ULonglong(), NULLABLE),
    Column("trx_rows_locked", ULonglong(), NOT_NULL),
    Column("trx_rows_modified", ULonglong(), NOT_NULL),
    Column("trx_concurrency_tickets", ULonglong(), NULLABLE),
    Column("trx_isolation_level", Varchar(16), NOT_NULL),
    Column("trx_unique_checks", SLong(1), NULLABLE),
    Column("trx_foreign_key_checks", SLong(1), NULLABLE),
    Column("trx_last_foreign_key_error", Varchar(max_foreign_error), NULLABLE),
    Column("trx_is_read_only", SLong(1), NOT_NULL),
    Column("trx_autocommit_non_locking", SLong(1), NULLABLE),
    Column("trx_undo_bytes", ULonglong(), NOT_NULL),
    CEnd()};

static ST_FIELD_INFO ferrite_locks_fields[] = {
    Column("lock_id", Varchar(max_lock_id), NOT_NULL),
    Column("lock_trx_id", ULonglong(), NOT_NULL),
    Column("lock_mode", Varchar(32), NOT_NULL),
    Column("lock_type", Varchar(8), NOT_NULL),
    Column("lock_table", Varchar(1024), NOT_NULL),
    Column("lock_index", Varchar(1024), NULLABLE),
    Column("lock_space", ULong(), NULLABLE),
    Column("lock_page", ULong(), NULLABLE),
    Column("lock_rec", ULong(), NULLABLE),
    Column("lock_data", Varchar(max_lock_data), NULLABLE),
    Column("lock_thread_id", ULonglong(), NOT_NULL),
    Column("lock_granted", SLong(1), NOT_NULL),
    CEnd()};

static ST_FIELD_INFO ferrite_lock_waits_fields[] = {
    Column("requesting_trx_id", ULonglong(), NOT_NULL),
    Column("requested_lock_id", Varchar(max_lock_id), NOT_NULL),
    Column("blocking_trx_id", ULonglong(), NOT_NULL),
    Column("blocking_lock_id", Varchar(max_lock_id), NOT_NULL), CEnd()};

static ST_FIELD_INFO ferrite_deadlocks_fields[] = {
    Column("deadlock", ULonglong(), NOT_NULL),
    Column("found", Datetime(6), NOT_NULL),
    Column("position", ULonglong(), NOT_NULL),
    Column("victim", SLong(1), NOT_NULL),
    Column("thread_id", ULonglong(), NOT_NULL),
    Column("trx_id", ULonglong(), NOT_NULL),
    Column("rows_modified", ULonglong(), NOT_NULL),
    Column("query", Varchar(max_query), NULLABLE),
    Column("waited_table", Varchar(1024), NULLABLE),
    Column("waited_index", Varchar(1024), NULLABLE),
    Column("waited_key", Varchar(max_lock_data), NULLABLE),
    Column("waited_mode", Varchar(32), NULLABLE),
    Column("held_mode", Varchar(32), NULLABLE),
    CEnd()};

static ST_FIELD_INFO ferrite_snapshots_fields[] = {Column("thread_id", ULonglong(), NOT_NULL),
                                                   Column("age_ms", ULonglong(), NOT_NULL),
                                                   Column("csn", ULonglong(), NOT_NULL),
                                                   Column("held_bytes", ULonglong(), NOT_NULL),
                                                   Column("held_rows", ULonglong(), NOT_NULL),
                                                   Column("query", Varchar(max_query), NULLABLE),
                                                   CEnd()};

static ST_FIELD_INFO ferrite_backup_fields[] = {Column("state", Varchar(16), NOT_NULL),
                                                Column("directory", Varchar(512), NOT_NULL),
                                                Column("base", Varchar(512), NULLABLE),
                                                Column("id", Varchar(16), NOT_NULL),
                                                Column("started", Datetime(0), NOT_NULL),
                                                Column("position", ULonglong(), NULLABLE),
                                                Column("page_bytes", ULonglong(), NOT_NULL),
                                                Column("copied_bytes", ULonglong(), NOT_NULL),
                                                Column("kept_log_bytes", ULonglong(), NOT_NULL),
                                                Column("withheld_bytes", ULonglong(), NOT_NULL),
                                                Column("thread_id", ULonglong(), NOT_NULL),
                                                Column("error", Varchar(1024), NULLABLE),
                                                CEnd()};

static ST_FIELD_INFO ferrite_kept_snapshots_fields[] = {
    Column("name", Varchar(64), NOT_NULL),
    Column("state", Varchar(16), NOT_NULL),
    Column("taken", Datetime(0), NOT_NULL),
    Column("scheduled", Varchar(3), NOT_NULL),
    Column("position", ULonglong(), NOT_NULL),
    Column("changed_bytes", ULonglong(), NOT_NULL),
    Column("file_bytes", ULonglong(), NOT_NULL),
    Column("binlog_file", Varchar(512), NULLABLE),
    Column("binlog_position", ULonglong(), NULLABLE),
    Column("gtid", Varchar(1024), NULLABLE),
    Column("error", Varchar(1024), NULLABLE),
    CEnd()};

}  // namespace Show

int ferrite_i_s_metrics_init(void *p) {
  engine_started = time(nullptr);
  return init_table(p, Show::ferrite_metrics_fields, fill_metrics);
}

int ferrite_i_s_trx_init(void *p) { return init_table(p, Show::ferrite_trx_fields, fill_trx); }

int ferrite_i_s_locks_init(void *p) {
  return init_table(p, Show::ferrite_locks_fields, fill_locks);
}

int ferrite_i_s_lock_waits_init(void *p) {
  return init_table(p, Show::ferrite_lock_waits_fields, fill_lock_waits);
}

int ferrite_i_s_deadlocks_init(void *p) {
  return init_table(p, Show::ferrite_deadlocks_fields, fill_deadlocks);
}

int ferrite_i_s_snapshots_init(void *p) {
  return init_table(p, Show::ferrite_snapshots_fields, fill_snapshots);
}

int ferrite_i_s_backup_init(void *p) {
  return init_table(p, Show::ferrite_backup_fields, fill_backup);
}

int ferrite_i_s_kept_snapshots_init(void *p) {
  return init_table(p, Show::ferrite_kept_snapshots_fields, fill_kept_snapshots);
}
