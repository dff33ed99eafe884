/*
 * The handler's frame: what it can do, open and close, how a statement starts and ends, and
 * which locks it reads with. Decisions about locks follow InnoDB's store_lock() and
 * external_lock(), because applications rely on them.
 */
#include "ha_ferrite.h"

#include "ferrite_backup.h"
#include "ferrite_error.h"
#include "ferrite_hton.h"
#include "ferrite_vars.h"
#include "ferrite_writable.h"
#include "online_copy.h"

/* Exported by the server, declared in none of its headers. */
extern "C" int thd_binlog_format(const MYSQL_THD thd);
extern "C" bool thd_binlog_filter_ok(const MYSQL_THD thd);
extern "C" bool thd_sqlcom_can_generate_row_events(const MYSQL_THD thd);

using ferrite::Index;
using ferrite::Layout;
using ferrite::Share;

handler *ferrite_create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *mem_root) {
  return new (mem_root) ha_ferrite(hton, share);
}

ha_ferrite::ha_ferrite(handlerton *hton, TABLE_SHARE *share) : PagedHandler(hton, share) {
  memset(static_cast<void *>(&m_changed), 0, sizeof m_changed);
  memset(static_cast<void *>(&m_compared), 0, sizeof m_compared);
  memset(static_cast<void *>(&m_feeding), 0, sizeof m_feeding);
}

ha_ferrite::~ha_ferrite() {
  close_cursors();
  forget_links();
}

int ha_ferrite::error(fe_code code) { return ferrite_to_ha_error(code, ha_thd()); }

/* ---- what the engine can do -------------------------------------------------------- */

/* Is this handler one of a partitioned table's, or that of a table which has been one until now? */
bool ha_ferrite::is_in_partitions() const {
  if (table && table->part_info) return true;
  const LEX *lex = ha_thd()->lex;
  return lex && lex->sql_command == SQLCOM_ALTER_TABLE &&
         lex->alter_info.partition_flags & ALTER_PARTITION_REMOVE;
}

handler::Table_flags ha_ferrite::table_flags() const {
  Table_flags flags =
      HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_PARTIAL_COLUMN_READ |
      HA_PRIMARY_KEY_REQUIRED_FOR_POSITION | HA_PRIMARY_KEY_IN_READ_INDEX | HA_TABLE_SCAN_ON_INDEX |
      HA_REQUIRES_KEY_COLUMNS_FOR_DELETE | HA_BINLOG_ROW_CAPABLE | HA_CAN_VIRTUAL_COLUMNS |
      HA_CAN_GEOMETRY | HA_CAN_SQL_HANDLER | HA_CAN_SKIP_LOCKED | HA_CAN_TABLES_WITHOUT_ROLLBACK |
      HA_CAN_ONLINE_BACKUPS | HA_CONCURRENT_OPTIMIZE | HA_ONLINE_ANALYZE | HA_CAN_EXPORT;
  if (is_in_partitions()) flags |= ferrite::kNoOnlineCopy;
  /* The server caches these at open and in external_lock, when the isolation is known. */
  if (thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED) return flags | HA_CHECK_UNIQUE_AFTER_WRITE;
  return flags | HA_BINLOG_STMT_CAPABLE;
}

ulong ha_ferrite::index_flags(uint idx, uint, bool) const {
  /* May be called at CREATE with no table open. */
  const KEY &key = table_share->key_info[idx];
  if (ferrite::is_fulltext(key) || ferrite::is_spatial(key)) return 0;
  ulong flags = HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY |
                HA_DO_INDEX_COND_PUSHDOWN | HA_DO_RANGE_FILTER_PUSHDOWN;
  if (idx == table_share->primary_key)
    flags = (flags & ~ferrite::kClusteredIndexLacks) | HA_CLUSTERED_INDEX;
  /* A filter is built from the key alone, and virtual columns are not computed then: the prefix
     in an entry is not enough to detect the end of the range. */
  /* The server asks about its VECTOR INDEX, too: a table of its own, numbered behind ours. */
  if (m_share && idx < layout().by_server.size()) {
    const ferrite::Index &index = layout().indexes[layout().by_server[idx]];
    if (index.has_prefix && index.has_virtual)
      flags &= ~static_cast<ulong>(HA_DO_RANGE_FILTER_PUSHDOWN);
  }
  return flags;
}

/* ---- open -------------------------------------------------------------------------- */

Share *ha_ferrite::get_share() {
  lock_shared_ha_data();
  Share *share = static_cast<Share *>(get_ha_share_ptr());
  if (!share) {
    share = new Share(table);
    set_ha_share_ptr(share);
  }
  unlock_shared_ha_data();
  return share;
}

int ha_ferrite::open(const char *name, int, uint) {
  m_share = get_share();
  if (int err = m_share->attach(ferrite::core_table_name(name).c_str(), table, ha_thd())) {
    if (err != HA_ERR_NO_SUCH_TABLE) return err;
    return ferrite_table_is_lost(table->s->db.str, table->s->table_name.str);
  }
  m_attached = true;
  if (layout().hidden_row_id) ferrite::forget_primary_key(table, this);
  m_sequence = table->s->table_type == TABLE_TYPE_SEQUENCE;
  m_generation = m_share->generation;
  m_cursors.assign(layout().indexes.size(), Cursor{});
  m_plan_bits.assign(table->s->fields / (8 * sizeof(my_bitmap_map)) + 1, 0);
  m_changed_bits.assign(m_plan_bits.size() + 1, 0);
  m_plan_wanted.assign(table->s->fields, 0);
  m_plan_entry.assign(table->s->fields, 0);
  m_compared_bits.assign(m_changed_bits.size(), 0);
  if (my_bitmap_init(&m_changed, m_changed_bits.data(), table->s->fields) ||
      my_bitmap_init(&m_compared, m_compared_bits.data(), table->s->fields))
    return HA_ERR_OUT_OF_MEM;
  m_removed.resize(layout().indexes.size());
  m_added.resize(layout().indexes.size());
  init_generated();
  if (layout().hidden_row_id)
    ref_length = ferrite::kRowIdBytes;
  else if (layout().pk_fixed)
    ref_length = layout().pk_bytes;
  else
    ref_length = table->key_info[table->s->primary_key].key_length;
  if (!m_seek_key.reserve(layout().max_key + 16) || !m_scratch.reserve(layout().max_scratch + 16))
    return HA_ERR_OUT_OF_MEM;
  /* An update of the primary key must not meet its own rows again: the server looks here. */
  key_used_on_scan = table->s->primary_key;
  stats.block_size = 16384;
  if (table->found_next_number_field && !fe_autoinc_read(m_share->table))
    fe_autoinc_update(m_share->table, 1);
  info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
  return 0;
}

int ha_ferrite::close() {
  close_cursors();
  m_link_set.reset();
  forget_links();
  if (m_attached) m_share->detach();
  m_attached = false;
  m_share = nullptr;
  return 0;
}

handler *ha_ferrite::clone(const char *name, MEM_ROOT *mem_root) {
  ha_ferrite *copy = static_cast<ha_ferrite *>(handler::clone(name, mem_root));
  if (!copy) return nullptr;
  copy->m_session = m_session;
  copy->m_lock = m_lock;
  copy->m_stored_lock = m_stored_lock;
  copy->m_wait = m_wait;
  copy->m_low_isolation = m_low_isolation;
  copy->m_dirty = m_dirty;
  return copy;
}

/* ---- cursors ----------------------------------------------------------------------- */

void ha_ferrite::close_cursors() {
  for (Cursor &c : m_cursors) {
    if (c.cursor) fe_cursor_close(c.cursor);
    c = Cursor{};
  }
  for (Follower &f : m_followers) fe_cursor_close(f.cursor);
  m_followers.clear();
  m_cursor = nullptr;
}

int ha_ferrite::cursor_for(uint32_t index_no, fe_cursor **out) {
  if (m_generation != m_share->generation) {
    close_cursors();
    m_generation = m_share->generation;
  }
  Cursor &c = m_cursors[index_no];
  if (!c.cursor) {
    fe_code rc = fe_cursor_open(m_session, m_share->table, index_no, m_lock, m_wait, &c.cursor);
    if (rc != FE_OK) {
      c.cursor = nullptr;
      return error(rc);
    }
  } else if (c.statement != m_statement || c.mode != m_lock) {
    fe_code rc = fe_cursor_reset(c.cursor, m_session, m_lock, m_wait);
    if (rc != FE_OK) return error(rc);
    c.semi = false;
  }
  c.statement = m_statement;
  c.mode = m_lock;
  *out = c.cursor;
  return 0;
}

/* ---- locks ------------------------------------------------------------------------- */

/* Reads of an INSERT ... SELECT and the like see a snapshot where nothing relies on locks. */
static bool reads_snapshot(int sql_command, thr_lock_type lock_type, int isolation) {
  if (sql_command == SQLCOM_CHECKSUM || sql_command == SQLCOM_CREATE_SEQUENCE) return true;
  if (sql_command == SQLCOM_ANALYZE && lock_type == TL_READ) return true;
  /* A table is copied beside writers: the server repeats in the copy what they have done since the
     first row was read. */
  if (ferrite::may_copy_online(sql_command) && lock_type == TL_READ &&
      isolation == ISO_REPEATABLE_READ)
    return true;
  if (isolation > ISO_READ_COMMITTED) return false;
  if (lock_type != TL_READ && lock_type != TL_READ_NO_INSERT) return false;
  return sql_command == SQLCOM_INSERT_SELECT || sql_command == SQLCOM_REPLACE_SELECT ||
         sql_command == SQLCOM_UPDATE || sql_command == SQLCOM_CREATE_TABLE;
}

THR_LOCK_DATA **ha_ferrite::store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type lock_type) {
  const int command = thd_sql_command(thd);
  const int isolation = thd_tx_isolation(thd);
  /* DROP TABLE calls this for handlers that other connections are using. */
  if (lock_type == TL_IGNORE || command == SQLCOM_DROP_TABLE || command == SQLCOM_DROP_SEQUENCE)
    return to;
  choose_lock_for(lock_type, command, isolation);
  m_wait = lock_type == TL_WRITE_SKIP_LOCKED || lock_type == TL_READ_SKIP_LOCKED ? FE_SKIP_LOCKED
                                                                                 : FE_WAIT;
  return to;
}

void ha_ferrite::choose_lock_for(thr_lock_type lock_type, int sql_command, int isolation) {
  THD *thd = ha_thd();
  const bool in_lock_tables = thd_in_lock_tables(thd);
  fe_lock_mode mode = FE_READ_SNAPSHOT; /* X comes with external_lock(F_WRLCK) */
  if (sql_command == SQLCOM_FLUSH && lock_type == TL_READ_NO_INSERT) {
    if (isolation == ISO_SERIALIZABLE) mode = FE_READ_SHARED;
  } else if ((in_lock_tables && (lock_type == TL_READ || lock_type == TL_READ_HIGH_PRIORITY)) ||
             lock_type == TL_READ_WITH_SHARED_LOCKS || lock_type == TL_READ_SKIP_LOCKED ||
             lock_type == TL_READ_NO_INSERT || sql_command != SQLCOM_SELECT) {
    if (!reads_snapshot(sql_command, lock_type, isolation)) mode = FE_READ_SHARED;
  }
  m_lock = m_stored_lock = mode;
}

/* Row events of a replica, or of BINLOG statements. */
static bool applies_row_events(const THD *thd) {
  const rpl_group_info *rgi = thd->rgi_slave ? thd->rgi_slave : thd->rgi_fake;
  return rgi && rgi->tables_to_lock;
}

/* DELETE changes the end of the row's period. To another partition, and to a binary log without
   full images, which has it as an UPDATE, the row is then written as it was read. */
static bool writes_deleted_rows(const THD *thd, const TABLE *table) {
  const bool is_logged_in_part =
      opt_bin_log && thd->variables.binlog_row_image != BINLOG_ROW_IMAGE_FULL;
  return table->versioned() && (table->part_info || is_logged_in_part);
}

void ha_ferrite::begin_statement(THD *thd) {
  m_session = ferrite_session_of(thd);
  ferrite_register_trx(thd);
  if (m_sequence) m_session = ferrite_sequence_session_of(thd);
  m_statement++;
  m_low_isolation = thd_tx_isolation(thd) <= ISO_READ_COMMITTED;
  m_dirty = thd_tx_isolation(thd) == ISO_READ_UNCOMMITTED;
  m_whole_rows = applies_row_events(thd) || writes_deleted_rows(thd, table);
  m_autoinc_rows = 0;
  m_have_payload = false;
  m_after_insert = false;
  /* init_table_handle_for_HANDLER() is not called for partitions. */
  m_handler_mode = thd_sql_command(thd) == SQLCOM_HA_READ;
}

/* A copy into another engine's table, which does not say kNoOnlineCopy. */
static bool leaves_partitions_online(const THD *thd, const TABLE *table) {
  if (!table->part_info || !ferrite::may_copy_online(thd, table)) return false;
  const HA_CREATE_INFO &wanted = thd->lex->create_info;
  if (!(wanted.used_fields & HA_CREATE_USED_ENGINE)) return false;
  /* The server replaces the name in a copy of what was written. */
  plugin_ref enforced = thd->variables.enforced_table_plugin;
  return (enforced ? plugin_hton(enforced) : wanted.db_type) != ferrite_hton;
}

/* The snapshot that the table is copied by must not miss what is prepared. Partitions are copied
   while writers wait, so that nothing more is prepared in them, and of some no row may be read:
   what is prepared is waited for row by row. */
int ha_ferrite::prepare_copy(THD *thd) {
  if (!table->part_info) {
    m_wrong_logs_before = *m_share->wrong_logs;
    const fe_code rc = ferrite_begin_online_copy(thd, m_share->name);
    return rc == FE_OK ? 0 : error(rc);
  }
  const fe_code rc = fe_table_wait_for_prepared(ferrite_engine, m_share->name.c_str(), thd, 0);
  if (rc == FE_LOCK_TIMEOUT) m_lock = m_stored_lock = FE_READ_SHARED;
  return rc == FE_OK || rc == FE_LOCK_TIMEOUT ? 0 : error(rc);
}

int ha_ferrite::external_lock(THD *thd, int lock_type) {
  const bool is_online_copy =
      ferrite::may_copy_online(thd, table) && table->s->tmp_table == NO_TMP_TABLE;
  if (lock_type == F_UNLCK) {
    m_locked = false;
    /* Partitions are copied while writers wait. */
    if (unlikely(is_online_copy && !table->part_info && ferrite::is_copied_online(table)))
      ferrite_end_online_copy(thd, m_share->name, m_share->wrong_logs, m_wrong_logs_before);
    if (unlikely(m_autoinc_locked)) unlock_autoinc();
    end_export();
    return m_sequence ? end_write(0) : 0;
  }
  if (lock_type == F_WRLCK && thd_tx_isolation(thd) <= ISO_READ_COMMITTED &&
      thd_binlog_format(thd) == BINLOG_FORMAT_STMT && thd_binlog_filter_ok(thd) &&
      thd_sqlcom_can_generate_row_events(thd)) {
    my_error(ER_BINLOG_STMT_MODE_AND_ROW_ENGINE, MYF(0),
             " FERRITE is limited to row-logging when transaction isolation level is READ "
             "COMMITTED or READ UNCOMMITTED.");
    return HA_ERR_LOGGING_IMPOSSIBLE;
  }
  if (leaves_partitions_online(thd, table)) {
    my_error(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON, MYF(0), "LOCK=NONE",
             "a partitioned table is copied into one of another engine", "LOCK=SHARED");
    return HA_ERR_UNSUPPORTED;
  }
  if (unlikely(is_online_copy && lock_type == F_RDLCK && !ferrite::is_name_ours(table)))
    if (int err = prepare_copy(thd)) return err;
  if (int err = wait_before_partition_goes(thd)) return err;
  /* SELECT ... FOR UPDATE asks for write locks, and changes nothing. */
  if (lock_type == F_WRLCK && table->s->tmp_table == NO_TMP_TABLE &&
      thd_sql_command(thd) != SQLCOM_SELECT)
    if (int err = ferrite_check_writable(thd)) return err;
  begin_statement(thd);
  m_locked = true;
  const bool in_trx = thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
  if (lock_type == F_WRLCK) {
    m_lock = m_stored_lock = FE_READ_EXCLUSIVE;
  } else if (in_trx && thd_tx_isolation(thd) == ISO_SERIALIZABLE && m_lock == FE_READ_SNAPSHOT) {
    /* Plain SELECTs lock; in autocommit mode a snapshot is serializable as it is. */
    m_lock = m_stored_lock = FE_READ_SHARED;
  }
  if (m_lock != FE_READ_SNAPSHOT && !m_sequence && thd_sql_command(thd) == SQLCOM_LOCK_TABLES &&
      thd_test_options(thd, OPTION_NOT_AUTOCOMMIT) && thd_in_lock_tables(thd)) {
    fe_code rc = fe_table_lock(m_session, m_share->table, m_lock == FE_READ_EXCLUSIVE);
    if (rc != FE_OK) return error(rc);
  }
  return is_export(thd, lock_type) ? export_table(thd) : 0;
}

/* A statement under LOCK TABLES, or a table used by a stored function or trigger. */
int ha_ferrite::start_stmt(THD *thd, thr_lock_type lock_type) {
  if (int err = wait_before_partition_goes(thd)) return err;
  begin_statement(thd);
  const int command = thd_sql_command(thd);
  if (!m_locked) {
    /* A temporary table created under LOCK TABLES: external_lock() never came. */
    m_lock = FE_READ_EXCLUSIVE;
  } else if (command == SQLCOM_SELECT && lock_type == TL_READ &&
             thd_tx_isolation(thd) != ISO_SERIALIZABLE) {
    m_lock = FE_READ_SNAPSHOT;
  } else {
    m_lock = m_stored_lock;
    const bool writes = command == SQLCOM_INSERT || command == SQLCOM_UPDATE ||
                        command == SQLCOM_DELETE || command == SQLCOM_REPLACE;
    if (table->s->tmp_table != NO_TMP_TABLE && m_lock == FE_READ_SNAPSHOT && writes)
      m_lock = m_stored_lock = FE_READ_EXCLUSIVE;
  }
  return 0;
}

/* HANDLER reads are consistent reads, and a scan continues in the next statement. */
void ha_ferrite::init_table_handle_for_HANDLER() {
  begin_statement(ha_thd());
  m_lock = m_stored_lock = FE_READ_SNAPSHOT;
  m_wait = FE_WAIT;
}

/* ---- hints and the end of a statement ---------------------------------------------- */

int ha_ferrite::extra(ha_extra_function operation) {
  switch (operation) {
    case HA_EXTRA_WRITE_CAN_REPLACE:
      m_replace = true;
      break;
    case HA_EXTRA_WRITE_CANNOT_REPLACE:
      m_replace = false;
      break;
    case HA_EXTRA_INSERT_WITH_UPDATE:
      m_insert_update = true;
      break;
    case HA_EXTRA_NO_IGNORE_DUP_KEY:
      m_insert_update = false;
      break;
    case HA_EXTRA_RESET_STATE:
      m_replace = m_insert_update = false;
      break;
    default:
      return copy_step(ferrite::copy_step(operation));
  }
  return 0;
}

int ha_ferrite::copy_step(ferrite::CopyStep step) {
  switch (step) {
    case ferrite::CopyStep::kBeginIgnore:
      /* CREATE TEMPORARY TABLE ... IGNORE SELECT is part of the transaction, as with InnoDB. */
      if (thd_sql_command(ha_thd()) == SQLCOM_CREATE_TABLE && table->s->tmp_table) return 0;
      return begin_copy();
    case ferrite::CopyStep::kBegin:
      return begin_copy();
    case ferrite::CopyStep::kEnd:
      return end_copy();
    default:
      return 0;
  }
}

/* Rows are about to be copied into a table that only this statement sees and that the server
   drops if it fails. They are no part of a transaction: ROLLBACK keeps the rows of CREATE
   TEMPORARY TABLE ... SELECT, as it keeps the table. Keys that the server checks by reading the
   index need it complete. */
int ha_ferrite::begin_copy() {
  const TABLE_SHARE *s = table->s;
  if (m_sequence || s->long_unique_table || s->period.unique_keys) return 0;
  /* Who deletes a parent must see its children: only copies under a name of their own are not seen.
   */
  if (is_linked() && m_share->name.find("/#sql-") == std::string::npos) return 0;
  if (int err = prepare_write()) return err;
  fe_table_begin_load(m_session, m_share->table);
  m_copying = true;
  return 0;
}

int ha_ferrite::end_copy() {
  if (!m_copying) return 0;
  m_copying = false;
  fe_code rc = fe_table_end_load(m_session, m_share->table);
  if (ferrite::may_copy_online(thd_sql_command(ha_thd()))) fe_txn_close_snapshot(m_session);
  if (likely(rc == FE_OK)) return 0;
  const int err = error(rc);
  /* The server does not look at what becomes of a single partition: it is told at the commit. */
  if (table->part_info) {
    ferrite_conn_of(ha_thd())->failed_copy_by = ha_thd()->query_id;
    print_error(err, MYF(0));
  }
  return err;
}

int ha_ferrite::reset() {
  m_ds_mrr.dsmrr_close();
  /* Cursors must not hold pages or snapshots until the next statement comes. */
  for (Cursor &c : m_cursors) {
    if (!c.cursor || c.statement != m_statement) continue;
    fe_cursor_reset(c.cursor, m_session, FE_READ_SNAPSHOT, FE_WAIT);
    c.statement = 0;
    c.semi = false;
  }
  m_cursor = nullptr;
  m_replace = m_insert_update = false;
  m_autoinc_last = 0;
  if (unlikely(m_autoinc_locked)) end_autoinc();
  m_plan_index = nullptr;
  m_have_payload = false;
  m_semi = false;
  m_wait = FE_WAIT;
  /* The table cache keeps handlers: what a large value took is not for it to keep. */
  m_blobs.trim();
  m_compare.trim();
  m_payload.trim();
  m_row_payload.trim();
  m_fresh_blobs.trim();
  return 0;
}

bool ha_ferrite::get_error_message(int error, String *buf) {
  return ferrite_get_error_message(error, buf);
}
