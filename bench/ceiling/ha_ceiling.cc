/* See ha_ceiling.h. */
#include "ha_ceiling.h"

#include <mysql/plugin.h>

#include <utility>

#include "ceiling_log.h"

/* 11.8's functions of a handlerton are not told which one they belong to. */
#if MYSQL_VERSION_ID >= 110800
#define CEILING_OF_HTON
#else
#define CEILING_OF_HTON handlerton *,
#endif

/* Exported by the server, declared in none of its headers. */
extern "C" MYSQL_THD thd_increment_pending_ops(MYSQL_THD thd);
extern "C" void thd_decrement_pending_ops(void *token);

namespace {

handlerton *ceiling_hton;
CeilingLog *ceiling_log;
char flush_at_commit;

constexpr size_t log_bytes_per_change = 250;

void *hold_reply(void *thd) { return thd_increment_pending_ops(static_cast<THD *>(thd)); }

/* What a connection has logged and not committed; made once per connection. */
struct Session {
  uint64_t position = 0;
};

Session *session_of(THD *thd) {
  auto *session = static_cast<Session *>(thd_get_ha_data(thd, ceiling_hton));
  if (!session) {
    session = new Session;
    thd_set_ha_data(thd, ceiling_hton, session);
  }
  return session;
}

uint64_t take_position(THD *thd) {
  auto *session = static_cast<Session *>(thd_get_ha_data(thd, ceiling_hton));
  return session ? std::exchange(session->position, 0) : 0;
}

int ceiling_commit(CEILING_OF_HTON THD *thd, bool all) {
  if (!all && thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN)) return 0;
  const uint64_t position = take_position(thd);
  if (position && flush_at_commit)
    ceiling_log->make_durable(position, thd, hold_reply, thd_decrement_pending_ops);
  return 0;
}

int ceiling_rollback(CEILING_OF_HTON THD *thd, bool) {
  take_position(thd);
  return 0;
}

int ceiling_close_connection(CEILING_OF_HTON THD *thd) {
  delete static_cast<Session *>(thd_get_ha_data(thd, ceiling_hton));
  return 0;
}

handler *create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *root) {
  return new (root) ha_ceiling(hton, share);
}

int ceiling_init(void *p) {
  ceiling_hton = static_cast<handlerton *>(p);
  ceiling_hton->create = create_handler;
  ceiling_hton->commit = ceiling_commit;
  ceiling_hton->rollback = ceiling_rollback;
  ceiling_hton->close_connection = ceiling_close_connection;
  ceiling_hton->flags = HTON_CAN_RECREATE;
  ceiling_hton->tablefile_extensions = nullptr;
  ceiling_log = new CeilingLog;
  return ceiling_log->open("ceiling.log") ? 0 : 1;
}

int ceiling_deinit(void *) {
  ceiling_log->close();
  delete ceiling_log;
  return 0;
}

}  // namespace

/* ---- rows ----------------------------------------------------------------------------- */

CeilingRows::~CeilingRows() {
  for (auto &chunk : m_chunks) free(chunk.load());
}

uchar *CeilingRows::slot(uint32 id, bool create) {
  const uint32 number = id / chunk_rows;
  if (number >= chunk_count) return nullptr;
  uchar *chunk = m_chunks[number].load(std::memory_order_acquire);
  if (!chunk) {
    if (!create) return nullptr;
    auto *fresh = static_cast<uchar *>(calloc(chunk_rows, m_slot));
    if (m_chunks[number].compare_exchange_strong(chunk, fresh))
      chunk = fresh;
    else
      free(fresh);
  }
  return chunk + static_cast<size_t>(id % chunk_rows) * m_slot;
}

/* The first present row from id on; 0 when there is none. */
uint32 CeilingRows::next_present(uint32 id) {
  for (const uint32 end = top.load(); id <= end; id++) {
    const uchar *at = slot(id, false);
    if (at && *at) return id;
  }
  return 0;
}

/* ---- the table ------------------------------------------------------------------------ */

int ha_ceiling::create(const char *, TABLE *form, HA_CREATE_INFO *) {
  const KEY &key = form->key_info[0];
  if (form->s->primary_key != 0 || key.user_defined_key_parts != 1 || key.key_part[0].length != 4) {
    my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "CEILING", "a table without an INT primary key");
    return HA_ERR_UNSUPPORTED;
  }
  return 0;
}

int ha_ceiling::open(const char *, int, uint) {
  lock_shared_ha_data();
  m_rows = static_cast<CeilingRows *>(get_ha_share_ptr());
  if (!m_rows) {
    m_rows = new CeilingRows(table->s->reclength);
    set_ha_share_ptr(m_rows);
  }
  unlock_shared_ha_data();
  m_key_offset = table->key_info[0].key_part[0].field->offset(table->record[0]);
  return info(HA_STATUS_VARIABLE);
}

int ha_ceiling::info(uint what) {
  stats.records = m_rows ? m_rows->count.load() : 0;
  if (stats.records < 2) stats.records = 2;
  stats.mean_rec_length = table ? table->s->reclength : 0;
  stats.data_file_length = stats.records * stats.mean_rec_length;
  if (what & HA_STATUS_AUTO) stats.auto_increment_value = m_rows->next_id.load();
  return 0;
}

int ha_ceiling::external_lock(THD *thd, int type) {
  if (type == F_UNLCK) return 0;
  trans_register_ha(thd, false, ceiling_hton, 0);
  if (thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN))
    trans_register_ha(thd, true, ceiling_hton, 0);
  return 0;
}

/* ---- changes -------------------------------------------------------------------------- */

int ha_ceiling::log_change(const uchar *row) {
  const size_t length = std::min<size_t>(log_bytes_per_change, table->s->reclength);
  session_of(ha_thd())->position = ceiling_log->append(row, length);
  return 0;
}

int ha_ceiling::write_row(const uchar *row) {
  if (table->next_number_field && row == table->record[0])
    if (int error = update_auto_increment()) return error;
  const uint32 id = id_of(row);
  uchar *at = m_rows->slot(id, true);
  if (!at) return HA_ERR_RECORD_FILE_FULL;
  if (*at) {
    lookup_errkey = errkey = 0;
    return HA_ERR_FOUND_DUPP_KEY;
  }
  memcpy(at + 1, row, table->s->reclength);
  *at = 1;
  m_rows->count++;
  uint32 top = m_rows->top.load();
  while (top < id && !m_rows->top.compare_exchange_weak(top, id)) {
  }
  uint32 next = m_rows->next_id.load();
  while (next <= id && !m_rows->next_id.compare_exchange_weak(next, id + 1)) {
  }
  return log_change(row);
}

int ha_ceiling::update_row(const uchar *before, const uchar *after) {
  if (id_of(before) != id_of(after)) return HA_ERR_WRONG_COMMAND;
  uchar *at = m_rows->slot(id_of(after), false);
  if (!at) return HA_ERR_KEY_NOT_FOUND;
  memcpy(at + 1, after, table->s->reclength);
  return log_change(after);
}

int ha_ceiling::delete_row(const uchar *row) {
  uchar *at = m_rows->slot(id_of(row), false);
  if (!at || !*at) return HA_ERR_KEY_NOT_FOUND;
  *at = 0;
  m_rows->count--;
  return log_change(row);
}

void ha_ceiling::get_auto_increment(ulonglong, ulonglong, ulonglong wanted, ulonglong *first,
                                    ulonglong *got) {
  *first = m_rows->next_id.fetch_add(static_cast<uint32>(wanted));
  *got = wanted;
}

/* ---- reads ---------------------------------------------------------------------------- */

int ha_ceiling::read_from(uchar *row, uint32 id) {
  id = m_rows->next_present(id);
  if (!id) return HA_ERR_END_OF_FILE;
  m_at = id;
  memcpy(row, m_rows->slot(id, false) + 1, table->s->reclength);
  return 0;
}

int ha_ceiling::rnd_init(bool) {
  m_at = 0;
  return 0;
}

int ha_ceiling::rnd_pos(uchar *row, uchar *pos) {
  const uint32 id = uint4korr(pos);
  const uchar *at = m_rows->slot(id, false);
  if (!at || !*at) return HA_ERR_KEY_NOT_FOUND;
  memcpy(row, at + 1, table->s->reclength);
  return 0;
}

int ha_ceiling::index_read_map(uchar *row, const uchar *key, key_part_map,
                               enum ha_rkey_function find) {
  if (active_index != 0) return HA_ERR_WRONG_COMMAND;
  const uint32 id = uint4korr(key);
  switch (find) {
    case HA_READ_KEY_EXACT:
      m_at = id;
      int4store(ref, id);
      return rnd_pos(row, ref);
    case HA_READ_KEY_OR_NEXT:
      return read_from(row, id);
    case HA_READ_AFTER_KEY:
      return read_from(row, id + 1);
    default:
      return HA_ERR_WRONG_COMMAND;
  }
}

ha_rows ha_ceiling::records_in_range(uint, const key_range *from, const key_range *to,
                                     page_range *) {
  const ulonglong low = from ? uint4korr(from->key) : 1;
  const ulonglong high = to ? uint4korr(to->key) : m_rows->top.load();
  return high > low ? high - low + 1 : 1;
}

/* ---- the plugin ----------------------------------------------------------------------- */

static MYSQL_SYSVAR_BOOL(flush, flush_at_commit, PLUGIN_VAR_OPCMDARG, "Make every commit durable.",
                         nullptr, nullptr, 1);

static struct st_mysql_sys_var *ceiling_variables[] = {MYSQL_SYSVAR(flush), nullptr};

static struct st_mysql_storage_engine ceiling_engine = {MYSQL_HANDLERTON_INTERFACE_VERSION};

maria_declare_plugin(ceiling){MYSQL_STORAGE_ENGINE_PLUGIN,
                              &ceiling_engine,
                              "CEILING",
                              "The Ferrite developers",
                              "Rows in an array, to measure what is not the engine",
                              PLUGIN_LICENSE_GPL,
                              ceiling_init,
                              ceiling_deinit,
                              0x0001,
                              nullptr,
                              ceiling_variables,
                              "0.1",
                              MariaDB_PLUGIN_MATURITY_EXPERIMENTAL} maria_declare_plugin_end;
