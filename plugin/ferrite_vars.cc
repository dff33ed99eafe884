/*
 * System variables; see ferrite_vars.h for the rules.
 *
 * A dynamic global is handed to the core in its update function; when the core refuses the
 * value, the statement fails with the core's text and the old value stays.
 */
#include "ferrite_vars.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "ferrite_encryption.h"
#include "ferrite_hot_backup.h"
#include "ferrite_hton.h"
#include "ferrite_kept.h"
#include "innodb_settings.h"
#include "table_options.h"

namespace {

unsigned long long memory;
unsigned long long buffer_pool_size;
unsigned long long buffer_pool_size_max;
unsigned long long log_budget;
unsigned long long history_ring_size;
unsigned long long max_history_bytes;
unsigned int flush_log_at_trx_commit;
unsigned int flush_log_at_timeout;
unsigned int purge_threads;
unsigned int write_threads;
unsigned int stats_sample_pages;
unsigned int stall_threshold_ms;
unsigned long long backup_max_kept_bytes;
unsigned long long backup_max_rate;
char *backup_dir;
char *backup_base;
char *snapshot_create;
char *snapshot_drop;
char *open_snapshot;
char *second_tier;
unsigned int snapshot_interval;
unsigned int snapshots_kept;
unsigned long long snapshot_max_bytes;
char deadlock_detect;
char print_all_deadlocks;
char purge_paused;
char scrub;
char read_ahead;
char warm_start;
unsigned int change_buffer_max_size;
unsigned long long row_cache_size;
char use_direct_io;
char rollback_on_timeout;
char replace_engines;
char encrypt;
unsigned int encryption_key_id;

const char *compression_names[] = {"none", "lz4", "zstd", nullptr};
TYPELIB compression_typelib = ferrite::typelib_of(compression_names);

/* True if the core accepted the value; otherwise the statement has an error. */
bool core_takes(const char *name, uint64_t value) {
  if (!ferrite_engine) return true;
  if (fe_engine_set(ferrite_engine, name, value) == FE_OK) return true;
  my_printf_error(ER_WRONG_VALUE_FOR_VAR, "Variable 'ferrite_%s' can't be set to %llu: %s", MYF(0),
                  name, static_cast<ulonglong>(value), fe_last_error());
  return false;
}

template <class T>
void update_global(const char *name, void *to, const void *save) {
  T value = *static_cast<const T *>(save);
  if (core_takes(name, static_cast<uint64_t>(value))) *static_cast<T *>(to) = value;
}

/* The same where `takes` may need long: meanwhile other settings can be read and changed. Two that
   set it follow each other under `turn`, which nobody waits for with the server's mutex: what the
   variable says in the end is what the core was told last. */
template <class T, class Do>
void update_slowly(std::mutex *turn, void *to, T value, Do takes) {
  mysql_mutex_unlock(&LOCK_global_system_variables);
  const std::lock_guard<std::mutex> guard(*turn);
  const bool taken = takes(value);
  mysql_mutex_lock(&LOCK_global_system_variables);
  if (taken) *static_cast<T *>(to) = value;
}

/* A text shorter than `Room`, or nothing; only for users whom `may_not` does not refuse. */
template <bool (*may_not)(THD *), int Room>
int check_text(THD *thd, struct st_mysql_sys_var *, void *save, struct st_mysql_value *value) {
  if (may_not(thd)) return 1;
  char buffer[Room];
  int length = sizeof buffer;
  const char *text = value->val_str(value, buffer, &length);
  if (text && length >= Room) return 1;
  *static_cast<const char **>(save) = text ? thd_strmake(thd, text, length) : "";
  return 0;
}

/* Of a value the server has the check function asked, of DEFAULT not: the privilege is asked for
 * here, too. */
template <bool (*may_not)(THD *), mysql_var_update_func act>
void update_if_allowed(THD *thd, struct st_mysql_sys_var *var, void *to, const void *save) {
  if (!may_not(thd)) act(thd, var, to, save);
}

constexpr auto check_backup_path = check_text<ferrite_may_not_back_up, FN_REFLEN>;
constexpr auto check_snapshot_name = check_text<ferrite_may_not_keep, NAME_LEN + 1>;

/* Texts of the variables are the server's to free. */
void set_text(void *to, const char *text) {
  char **at = static_cast<char **>(to);
  char *before = *at;
  *at = my_strdup(PSI_NOT_INSTRUMENTED, text, MYF(0));
  my_free(before);
}

void set_backup_base(THD *, struct st_mysql_sys_var *, void *to, const void *save) {
  set_text(to, *static_cast<const char *const *>(save));
}

/* What takes long: meanwhile other settings can be read and changed. */
template <class Do>
bool unlocked(Do act) {
  mysql_mutex_unlock(&LOCK_global_system_variables);
  const bool done = act();
  mysql_mutex_lock(&LOCK_global_system_variables);
  return done;
}

/* Settings that do something keep their old text if it fails. */
template <class Do>
void set_if_done(void *to, const char *text, Do act) {
  if (unlocked(act)) set_text(to, text);
}

void set_backup_dir(THD *thd, struct st_mysql_sys_var *, void *to, const void *save) {
  const char *dir = *static_cast<const char *const *>(save);
  const std::string base = backup_base ? backup_base : "";
  const fe_backup_plan plan = {dir, base.c_str(), 0, backup_max_kept_bytes, backup_max_rate};
  set_if_done(to, dir, [&] { return ferrite_hot_backup(thd, plan); });
}

void set_snapshot_create(THD *thd, struct st_mysql_sys_var *, void *to, const void *save) {
  const char *name = *static_cast<const char *const *>(save);
  set_if_done(to, name, [&] { return ferrite_kept_create(thd, name); });
}

void set_snapshot_drop(THD *thd, struct st_mysql_sys_var *, void *to, const void *save) {
  const char *name = *static_cast<const char *const *>(save);
  set_if_done(to, name, [&] { return ferrite_kept_drop(thd, name); });
}

constexpr auto update_backup_base = update_if_allowed<ferrite_may_not_back_up, set_backup_base>;
constexpr auto update_backup_dir = update_if_allowed<ferrite_may_not_back_up, set_backup_dir>;
constexpr auto update_snapshot_create =
    update_if_allowed<ferrite_may_not_keep, set_snapshot_create>;
constexpr auto update_snapshot_drop = update_if_allowed<ferrite_may_not_keep, set_snapshot_drop>;

void update_snapshot_schedule(THD *, struct st_mysql_sys_var *, void *to, const void *save) {
  unsigned int *const now = static_cast<unsigned int *>(to);
  const unsigned int before = *now;
  *now = *static_cast<const unsigned int *>(save);
  if (ferrite_kept_schedule(snapshot_interval, snapshots_kept)) return;
  *now = before;
  my_error(ER_CANT_CREATE_THREAD, MYF(0), EAGAIN);
}

void update_encryption_key_id(THD *, struct st_mysql_sys_var *, void *to, const void *save) {
  const unsigned int id = *static_cast<const unsigned int *>(save);
  /* The key management may be another machine, and the key's file is synced. */
  if (unlocked([id] { return ferrite::rotate_encryption_key(id); }))
    *static_cast<unsigned int *>(to) = id;
}

/* The server's struct of a variable is opaque, so every variable passes its name. */
#define UPDATE_FUNCTION(name, type)                                                  \
  void update_##name(THD *, struct st_mysql_sys_var *, void *to, const void *save) { \
    update_global<type>(#name, to, save);                                            \
  }

/* What the core frees memory or goes through files for. */
#define SLOW_UPDATE_FUNCTION(name, type)                                             \
  void update_##name(THD *, struct st_mysql_sys_var *, void *to, const void *save) { \
    static std::mutex turn;                                                          \
    update_slowly(&turn, to, *static_cast<const type *>(save),                       \
                  [](type value) { return core_takes(#name, value); });              \
  }

/* Of the two that set the size of the buffer pool. */
std::mutex pool_turn;

void update_buffer_pool_size(THD *, struct st_mysql_sys_var *, void *to, const void *save) {
  update_slowly(&pool_turn, to, *static_cast<const unsigned long long *>(save),
                [](uint64_t bytes) { return core_takes("buffer_pool_size", bytes); });
}

/* Without a budget the buffer pool has the size that its own variable says. */
void update_memory(THD *, struct st_mysql_sys_var *, void *to, const void *save) {
  update_slowly(&pool_turn, to, *static_cast<const unsigned long long *>(save), [](uint64_t bytes) {
    if (!core_takes("memory", bytes)) return false;
    if (!bytes) core_takes("buffer_pool_size", buffer_pool_size);
    return true;
  });
}

UPDATE_FUNCTION(log_budget, unsigned long long)
UPDATE_FUNCTION(history_ring_size, unsigned long long)
UPDATE_FUNCTION(max_history_bytes, unsigned long long)
UPDATE_FUNCTION(flush_log_at_trx_commit, unsigned int)
UPDATE_FUNCTION(flush_log_at_timeout, unsigned int)
UPDATE_FUNCTION(deadlock_detect, char)
UPDATE_FUNCTION(purge_paused, char)
SLOW_UPDATE_FUNCTION(scrub, char)
UPDATE_FUNCTION(read_ahead, char)
UPDATE_FUNCTION(warm_start, char)
UPDATE_FUNCTION(change_buffer_max_size, unsigned int)
SLOW_UPDATE_FUNCTION(row_cache_size, unsigned long long)
UPDATE_FUNCTION(stall_threshold_ms, unsigned int)
UPDATE_FUNCTION(print_all_deadlocks, char)
UPDATE_FUNCTION(snapshot_max_bytes, unsigned long long)

constexpr unsigned long long KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;
constexpr unsigned long long max_bytes = 1ULL << 62;
/* The least budget that the core takes. */
constexpr unsigned long long smallest_memory = 64 * MiB;

/* What the pool may grow to if nobody says more. Only addresses are reserved for it. */
unsigned long long machine_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? 1ULL * pages * page_bytes : 0;
}

}  // namespace

static MYSQL_SYSVAR_ULONGLONG(
    memory, memory, PLUGIN_VAR_RQCMDARG,
    "Memory in bytes for all of Ferrite: the buffer pool gets what row versions, locks, the"
    " dictionary and other parts leave of it, and ferrite_buffer_pool_size is not used. 0: no"
    " such budget. information_schema.FERRITE_MEMORY shows the parts.",
    nullptr, update_memory, 0, 0, max_bytes, MiB);

static MYSQL_SYSVAR_ULONGLONG(
    buffer_pool_size, buffer_pool_size, PLUGIN_VAR_RQCMDARG,
    "Size in bytes of the buffer pool, which caches index and data pages. Can be changed while the"
    " server runs, up to ferrite_buffer_pool_size_max.",
    nullptr, update_buffer_pool_size, 128 * MiB, 5 * MiB, max_bytes, MiB);

static MYSQL_SYSVAR_ULONGLONG(
    buffer_pool_size_max, buffer_pool_size_max, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "Largest size in bytes that ferrite_buffer_pool_size can be set to while the server runs. 0:"
    " the size of the machine's memory. A larger ferrite_buffer_pool_size at startup raises it.",
    nullptr, nullptr, 0, 0, max_bytes, MiB);

static MYSQL_SYSVAR_ULONGLONG(
    log_budget, log_budget, PLUGIN_VAR_RQCMDARG,
    "Target size of the redo log in bytes. Checkpoints keep the log close to it. A larger log"
    " writes pages less often; a smaller log makes crash recovery faster.",
    nullptr, update_log_budget, GiB, 16 * MiB, max_bytes, MiB);

static MYSQL_SYSVAR_UINT(
    flush_log_at_trx_commit, flush_log_at_trx_commit, PLUGIN_VAR_OPCMDARG,
    "1: the log is written and flushed to disk at each commit. 2: the log is written at each"
    " commit and flushed every ferrite_flush_log_at_timeout seconds. 0: the log is written and"
    " flushed every ferrite_flush_log_at_timeout seconds.",
    nullptr, update_flush_log_at_trx_commit, 1, 0, 2, 0);

static MYSQL_SYSVAR_UINT(flush_log_at_timeout, flush_log_at_timeout, PLUGIN_VAR_OPCMDARG,
                         "Interval in seconds between background flushes of the log.", nullptr,
                         update_flush_log_at_timeout, 1, 1, 2700, 0);

static MYSQL_SYSVAR_ULONGLONG(
    history_ring_size, history_ring_size, PLUGIN_VAR_RQCMDARG,
    "Size in bytes of the memory for row versions, which consistent reads use. Versions that do"
    " not fit are written to scratch files in the data directory.",
    nullptr, update_history_ring_size, 32 * MiB, MiB, max_bytes, MiB);

static MYSQL_SYSVAR_ULONGLONG(
    max_history_bytes, max_history_bytes, PLUGIN_VAR_RQCMDARG,
    "Limit in bytes for row versions, in memory and in scratch files. If it is exceeded, the"
    " oldest snapshot is ended: its next read fails with an error. 0: no limit.",
    nullptr, update_max_history_bytes, 0, 0, max_bytes, 0);

static MYSQL_SYSVAR_BOOL(deadlock_detect, deadlock_detect, PLUGIN_VAR_OPCMDARG,
                         "Detect deadlocks when a lock wait begins. If OFF, only"
                         " ferrite_lock_wait_timeout ends a deadlock.",
                         nullptr, update_deadlock_detect, 1);

static MYSQL_SYSVAR_BOOL(print_all_deadlocks, print_all_deadlocks, PLUGIN_VAR_OPCMDARG,
                         "Write information about every deadlock to the error log.", nullptr,
                         update_print_all_deadlocks, 0);

static MYSQL_SYSVAR_BOOL(rollback_on_timeout, rollback_on_timeout, PLUGIN_VAR_OPCMDARG,
                         "Roll back the whole transaction on a lock wait timeout, not only the"
                         " last statement. innodb_rollback_on_timeout=ON does the same.",
                         nullptr, nullptr, 0);

static MYSQL_SYSVAR_BOOL(replace_engines, replace_engines,
                         PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                         "With enforce_storage_engine=FERRITE, a statement that names another"
                         " engine makes a Ferrite table even if sql_mode contains"
                         " NO_ENGINE_SUBSTITUTION, which is taken out of such sessions.",
                         nullptr, nullptr, 0);

static MYSQL_SYSVAR_BOOL(use_direct_io, use_direct_io, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                         "Bypass the operating system's file cache when reading and writing pages.",
                         nullptr, nullptr, 1);

static MYSQL_SYSVAR_UINT(purge_threads, purge_threads, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                         "Number of purge threads. 0: a quarter of the number of processors,"
                         " from 1 to 4.",
                         nullptr, nullptr, 0, 0, 32, 0);

static MYSQL_SYSVAR_BOOL(purge_paused, purge_paused, PLUGIN_VAR_OPCMDARG,
                         "Pause purge, to measure what it costs. Deleted rows and old index"
                         " entries accumulate while it is paused.",
                         nullptr, update_purge_paused, 0);

static MYSQL_SYSVAR_BOOL(scrub, scrub, PLUGIN_VAR_OPCMDARG,
                         "Overwrite deleted rows, dropped tables and old log in Ferrite's files"
                         " with zeroes, in the background and at shutdown.",
                         nullptr, update_scrub, 0);

static MYSQL_SYSVAR_BOOL(read_ahead, read_ahead, PLUGIN_VAR_OPCMDARG,
                         "Read pages in the background before scans and row fetches from"
                         " secondary indexes need them.",
                         nullptr, update_read_ahead, 1);

static MYSQL_SYSVAR_BOOL(warm_start, warm_start, PLUGIN_VAR_OPCMDARG,
                         "Note which pages are in memory, and read them back in the background "
                         "after the next start",
                         nullptr, update_warm_start, 1);

static MYSQL_SYSVAR_UINT(change_buffer_max_size, change_buffer_max_size, PLUGIN_VAR_RQCMDARG,
                         "Memory of the change buffer, in percent of"
                         " ferrite_buffer_pool_size and beside it. It keeps new entries of"
                         " secondary indexes whose page is not in memory. 0: none are kept.",
                         nullptr, update_change_buffer_max_size, 25, 0, 50, 0);

static MYSQL_SYSVAR_ULONGLONG(row_cache_size, row_cache_size, PLUGIN_VAR_RQCMDARG,
                              "Memory in bytes, beside the buffer pool, for single rows that"
                              " are read by their primary key and whose page is not in memory."
                              " 0: none are kept.",
                              nullptr, update_row_cache_size, 0, 0, max_bytes, MiB);

static MYSQL_SYSVAR_UINT(write_threads, write_threads, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                         "Number of threads that write dirty pages. 0: a quarter of the number"
                         " of processors, from 4 to 8.",
                         nullptr, nullptr, 0, 0, 64, 0);

static MYSQL_SYSVAR_UINT(stats_sample_pages, stats_sample_pages, PLUGIN_VAR_OPCMDARG,
                         "Number of leaf pages that ANALYZE TABLE samples in each index.", nullptr,
                         nullptr, 20, 1, 65536, 0);

static MYSQL_SYSVAR_UINT(stall_threshold_ms, stall_threshold_ms, PLUGIN_VAR_RQCMDARG,
                         "Waits of at least so many milliseconds are rows of"
                         " information_schema.FERRITE_STALLS and FERRITE_LONG_WAITS.",
                         nullptr, update_stall_threshold_ms, 50, 1, 3600000, 0);

static MYSQL_THDVAR_LONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
                         "Time in seconds that a statement waits for a row lock before it fails."
                         " 100000000: no timeout. -1: the value of innodb_lock_wait_timeout, or"
                         " 50 on a server without InnoDB.",
                         nullptr, nullptr, -1, -1, 100000000, 0);

static MYSQL_THDVAR_ENUM(default_compression, PLUGIN_VAR_RQCMDARG,
                         "Page compression of new tables that have no table option COMPRESSION:"
                         " none, lz4 or zstd.",
                         nullptr, nullptr, 0, &compression_typelib);

static MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_OPCMDARG,
                         "At REPEATABLE READ and above, fail with an error when a locking read or a"
                         " write meets a row that has changed since the transaction's snapshot was"
                         " created. The transaction is rolled back then.",
                         nullptr, nullptr, ferrite::kSnapshotIsolation);

static MYSQL_THDVAR_BOOL(
    allow_backup_stage, PLUGIN_VAR_OPCMDARG,
    "Allow BACKUP STAGE START while Ferrite tables exist, for tools that copy the directory"
    " #ferrite in a volume snapshot or that need only the locks. mariadb-backup does not copy"
    " that directory.",
    nullptr, nullptr, 0);

ha_create_table_option ferrite_table_options[] = {
    HA_TOPTION_SYSVAR("COMPRESSION", compression, default_compression),
    HA_TOPTION_NUMBER("COMPRESSION_LEVEL", compression_level, 0, 0, 22, 1),
    HA_TOPTION_BOOL("PAGE_COMPRESSED", page_compressed, 0),
    HA_TOPTION_NUMBER("PAGE_COMPRESSION_LEVEL", page_compression_level, 0, 0, 9, 1),
    HA_TOPTION_ENUM("ENCRYPTED", encrypted, "DEFAULT,YES,NO", 0),
    HA_TOPTION_NUMBER("ENCRYPTION_KEY_ID", encryption_key_id, 0, 0, UINT_MAX32, 1),
    HA_TOPTION_ENUM("CACHE_PRIORITY", cache_priority, "normal,low,high", 0),
    HA_TOPTION_END};

static MYSQL_SYSVAR_STR(
    backup_dir, backup_dir, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_MEMALLOC | PLUGIN_VAR_NOCMDOPT,
    "Setting it to an absolute path of an empty or new directory begins a hot backup of Ferrite's"
    " data into it. Its point in time is the end of the next BACKUP STAGE that blocked commits."
    " Setting it to an empty string ends the backup.",
    check_backup_path, update_backup_dir, "");

static MYSQL_SYSVAR_STR(
    backup_base, backup_base, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_MEMALLOC | PLUGIN_VAR_NOCMDOPT,
    "Directory of an earlier hot backup: the next one contains only the pages that changed since."
    " Empty: the next one is a full backup.",
    check_backup_path, update_backup_base, "");

static MYSQL_SYSVAR_ULONGLONG(
    backup_max_kept_bytes, backup_max_kept_bytes, PLUGIN_VAR_RQCMDARG,
    "Limit in bytes for the log and the replaced pages that a hot backup keeps while it runs. If"
    " it is exceeded, the backup ends with an error. 0: no limit.",
    nullptr, nullptr, 16 * GiB, 0, max_bytes, 0);

static MYSQL_SYSVAR_ULONGLONG(backup_max_rate, backup_max_rate, PLUGIN_VAR_RQCMDARG,
                              "Bytes that a hot backup copies per second at most. 0: no limit."
                              " Applies to backups that begin after it is set.",
                              nullptr, nullptr, 0, 0, max_bytes, 0);

static MYSQL_SYSVAR_STR(snapshot_create, snapshot_create,
                        PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_MEMALLOC | PLUGIN_VAR_NOCMDOPT,
                        "Setting it to a name takes a snapshot of all Ferrite tables, which is "
                        "kept until it is dropped.",
                        check_snapshot_name, update_snapshot_create, "");

static MYSQL_SYSVAR_STR(snapshot_drop, snapshot_drop,
                        PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_MEMALLOC | PLUGIN_VAR_NOCMDOPT,
                        "Setting it to the name of a kept snapshot drops that snapshot.",
                        check_snapshot_name, update_snapshot_drop, "");

static MYSQL_SYSVAR_STR(
    open_snapshot, open_snapshot, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "DATADIR:NAME: opens a kept snapshot of the server with that data directory, which may run, in"
    " place of tables of this server's own. They can only be read.",
    nullptr, nullptr, nullptr);

static MYSQL_SYSVAR_STR(
    second_tier, second_tier, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "FILE,SIZE: pages that were read or written are also kept in that file, on a device that is"
    " faster than the one with the data. It may be lost at any time.",
    nullptr, nullptr, nullptr);

static MYSQL_SYSVAR_UINT(snapshot_interval, snapshot_interval, PLUGIN_VAR_RQCMDARG,
                         "A snapshot is taken every so many seconds, and kept. 0: none.", nullptr,
                         update_snapshot_schedule, 0, 0, 31536000, 0);

static MYSQL_SYSVAR_UINT(
    snapshots_kept, snapshots_kept, PLUGIN_VAR_RQCMDARG,
    "Of the snapshots taken by ferrite_snapshot_interval, so many are kept; the"
    " oldest are dropped. 0: all.",
    nullptr, update_snapshot_schedule, 24, 0, 100000, 0);

static MYSQL_SYSVAR_ULONGLONG(snapshot_max_bytes, snapshot_max_bytes, PLUGIN_VAR_RQCMDARG,
                              "Limit in bytes for what kept snapshots take: their files, and pages "
                              "that have changed since. If"
                              " it is exceeded, the oldest snapshot is dropped. 0: no limit.",
                              nullptr, update_snapshot_max_bytes, 16 * GiB, 0, max_bytes, 0);

static MYSQL_SYSVAR_BOOL(encrypt, encrypt, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                         "A new database is encrypted: tables, log and scratch files, with a key"
                         " that is kept encrypted with a key of the server's key management. A"
                         " database that exists is encrypted or not from its creation on.",
                         nullptr, nullptr, 0);

static MYSQL_SYSVAR_UINT(encryption_key_id, encryption_key_id, PLUGIN_VAR_RQCMDARG,
                         "Number of the key with whose newest version the data key is kept from"
                         " now on. 0: the one that it is kept with, 1 for a new database.",
                         nullptr, update_encryption_key_id, 0, 0, UINT_MAX32 - 1, 0);

struct st_mysql_sys_var *ferrite_system_variables[] = {MYSQL_SYSVAR(memory),
                                                       MYSQL_SYSVAR(buffer_pool_size),
                                                       MYSQL_SYSVAR(buffer_pool_size_max),
                                                       MYSQL_SYSVAR(log_budget),
                                                       MYSQL_SYSVAR(flush_log_at_trx_commit),
                                                       MYSQL_SYSVAR(flush_log_at_timeout),
                                                       MYSQL_SYSVAR(history_ring_size),
                                                       MYSQL_SYSVAR(max_history_bytes),
                                                       MYSQL_SYSVAR(deadlock_detect),
                                                       MYSQL_SYSVAR(print_all_deadlocks),
                                                       MYSQL_SYSVAR(rollback_on_timeout),
                                                       MYSQL_SYSVAR(replace_engines),
                                                       MYSQL_SYSVAR(use_direct_io),
                                                       MYSQL_SYSVAR(purge_threads),
                                                       MYSQL_SYSVAR(write_threads),
                                                       MYSQL_SYSVAR(stats_sample_pages),
                                                       MYSQL_SYSVAR(lock_wait_timeout),
                                                       MYSQL_SYSVAR(default_compression),
                                                       MYSQL_SYSVAR(purge_paused),
                                                       MYSQL_SYSVAR(allow_backup_stage),
                                                       MYSQL_SYSVAR(scrub),
                                                       MYSQL_SYSVAR(snapshot_isolation),
                                                       MYSQL_SYSVAR(read_ahead),
                                                       MYSQL_SYSVAR(warm_start),
                                                       MYSQL_SYSVAR(change_buffer_max_size),
                                                       MYSQL_SYSVAR(row_cache_size),
                                                       MYSQL_SYSVAR(stall_threshold_ms),
                                                       MYSQL_SYSVAR(backup_dir),
                                                       MYSQL_SYSVAR(backup_base),
                                                       MYSQL_SYSVAR(backup_max_kept_bytes),
                                                       MYSQL_SYSVAR(backup_max_rate),
                                                       MYSQL_SYSVAR(snapshot_create),
                                                       MYSQL_SYSVAR(snapshot_drop),
                                                       MYSQL_SYSVAR(open_snapshot),
                                                       MYSQL_SYSVAR(snapshot_interval),
                                                       MYSQL_SYSVAR(snapshots_kept),
                                                       MYSQL_SYSVAR(snapshot_max_bytes),
                                                       MYSQL_SYSVAR(second_tier),
                                                       MYSQL_SYSVAR(encrypt),
                                                       MYSQL_SYSVAR(encryption_key_id),
                                                       nullptr};

/* The part before the last colon, and that behind it. */
static void fill_opened_snapshot(fe_config *config) {
  static std::string of, name;
  of = open_snapshot;
  name.clear();
  const size_t colon = of.rfind(':');
  if (colon != std::string::npos) {
    name = of.substr(colon + 1);
    of.resize(colon);
  }
  config->snapshot_of = of.c_str();
  config->snapshot = name.c_str();
}

/* A budget that the core would refuse: there is none then, and the pool has the size that its own
   variable says. */
static void check_memory() {
  if (!memory || memory >= smallest_memory) return;
  sql_print_warning(
      "Ferrite: ferrite_memory=%llu is not used: the least is %llu (64 MiB). There is no budget;"
      " the buffer pool has ferrite_buffer_pool_size",
      memory, smallest_memory);
  memory = 0;
}

void ferrite_fill_config(fe_config *config) {
  check_memory();
  /* With a budget: most of it, until it is known what the rest takes. */
  config->buffer_pool_size_bytes = memory ? std::max(memory / 4 * 3, 5 * MiB) : buffer_pool_size;
  config->buffer_pool_size_max_bytes =
      std::max(buffer_pool_size_max ? buffer_pool_size_max : machine_memory_bytes(), memory);
  config->log_budget_bytes = log_budget;
  config->history_ring_bytes = history_ring_size;
  config->max_history_bytes = max_history_bytes;
  config->flush_log_at_commit = flush_log_at_trx_commit;
  config->flush_interval_ms = flush_log_at_timeout * 1000;
  unsigned long seconds = ferrite_lock_wait_timeout(nullptr);
  config->lock_wait_timeout_ms =
      seconds > UINT32_MAX / 1000 ? UINT32_MAX : static_cast<uint32_t>(seconds * 1000);
  config->purge_threads = purge_threads;
  config->write_threads = write_threads;
  config->deadlock_detect = deadlock_detect;
  config->use_direct_io = use_direct_io;
  config->compression = ferrite_default_compression(nullptr);
  config->second_tier = second_tier;
  config->encrypt = encrypt;
  config->encryption_key_id = encryption_key_id;
  if (ferrite_opened_snapshot()) fill_opened_snapshot(config);
}

bool ferrite_opened_snapshot() { return open_snapshot && *open_snapshot; }

void ferrite_apply_settings() {
  const std::pair<const char *, uint64_t> settings[] = {
      {"memory", memory},
      {"print_all_deadlocks", print_all_deadlocks},
      {"purge_paused", purge_paused},
      {"scrub", scrub},
      {"read_ahead", read_ahead},
      {"warm_start", warm_start},
      {"change_buffer_max_size", change_buffer_max_size},
      {"row_cache_size", row_cache_size},
      {"snapshot_max_bytes", snapshot_max_bytes},
      {"stall_threshold_ms", stall_threshold_ms}};
  for (const auto &[name, value] : settings)
    if (fe_engine_set(ferrite_engine, name, value) != FE_OK)
      sql_print_warning("Ferrite: ferrite_%s: %s", name, fe_last_error());
  if (!ferrite_kept_schedule(snapshot_interval, snapshots_kept)) {
    sql_print_error("Ferrite: no snapshots are taken by the schedule: the system refuses a thread");
    snapshot_interval = 0;
  }
}

unsigned long ferrite_lock_wait_timeout(THD *thd) {
  const long own = THDVAR(thd, lock_wait_timeout);
  return own >= 0 ? static_cast<unsigned long>(own) : ferrite::innodb_lock_wait_timeout(thd, 50);
}

uint32_t ferrite_default_compression(THD *thd) {
  return static_cast<uint32_t>(THDVAR(thd, default_compression));
}

bool ferrite_snapshot_isolation(THD *thd) { return THDVAR(thd, snapshot_isolation); }

bool ferrite_allow_backup_stage(THD *thd) { return THDVAR(thd, allow_backup_stage); }

uint32_t ferrite_stats_sample_pages() { return stats_sample_pages; }

bool ferrite_replaces_engines() { return replace_engines; }

bool ferrite_rollback_on_timeout() {
  return rollback_on_timeout || ferrite::innodb_rollback_on_timeout(false);
}
