/*
 * Changing rows: insert, update, delete. AUTO_INCREMENT is in ha_ferrite_autoinc.cc.
 *
 * The server passes whole records; the core gets an encoded primary key, a row payload and
 * the secondary entries that change. An update starts from the payload of the
 * row last read and replaces only what differs. If that row may have changed since, by the same
 * session, it is read again first (ha_ferrite_refresh.cc).
 */
#include "ha_ferrite.h"

#include "ferrite_error.h"
#include "ferrite_hton.h"
#include "ferrite_writable.h"
#include "online_copy.h"

using ferrite::Column;
using ferrite::ColumnKind;
using ferrite::Index;
using ferrite::KeyPart;

/* ---- entries ----------------------------------------------------------------------- */

int ha_ferrite::prepare_write_buffers() {
  /* Both sides of an update: twice the entries of one row. */
  return m_entries.reserve(2 * layout().max_entries + 16) &&
                 m_new_pk.reserve(layout().pk_bytes + 16) &&
                 m_row_pk.reserve(layout().pk_bytes + 16)
             ? 0
             : HA_ERR_OUT_OF_MEM;
}

uint8_t *ha_ferrite::encode_entry(const Index &index, const uchar *record, uint8_t *to,
                                  fe_entry *entry) {
  return ferrite::encode_entry(layout(), index, record, to, m_scratch.data(), entry);
}

thread_local uint ha_ferrite::s_duplicate_key = MAX_KEY;

/* lookup_errkey, which goes before what info() says, is of the server's own check of keys that it
   hashes. At READ COMMITTED and below that check comes after the write: what it left behind in
   an earlier statement would make REPLACE change the row that was the duplicate then. */
int ha_ferrite::duplicate(uint32_t index_no) {
  table->file->lookup_errkey = UINT_MAX;
  s_duplicate_key = layout().indexes[index_no].server_no;
  return HA_ERR_FOUND_DUPP_KEY;
}

/* ---- insert ------------------------------------------------------------------------ */

/* A temporary SEQUENCE is written at its creation without a lock call before. */
int ha_ferrite::prepare_write() {
  if (unlikely(!m_session)) begin_statement(ha_thd());
  if (table->s->tmp_table == NO_TMP_TABLE)
    if (int err = ferrite_check_writable(ha_thd())) return err;
  return prepare_write_buffers();
}

/* What is written to a SEQUENCE is committed there and then. */
int ha_ferrite::end_write(int err) {
  if (!m_session) return err;
  fe_code rc = ferrite_end_sequence_write(m_session, !err);
  return err || rc == FE_OK ? err : error(rc);
}

int ha_ferrite::write_row(const uchar *buf) {
  int err = insert(buf);
  if (unlikely(ferrite::is_copied_online(table)) && !err)
    ferrite_logged_row(ha_thd(), table, m_share->wrong_logs, LoggedKind::kInsert, buf, nullptr);
  return unlikely(m_sequence) ? end_write(err) : err;
}

int ha_ferrite::insert(const uchar *buf) {
  const bool autoinc = table->next_number_field && buf == table->record[0];
  if (autoinc) {
    m_autoinc_error = 0; /* the server need not ask for a value before it fails */
    if (int err = update_auto_increment()) return m_autoinc_error ? m_autoinc_error : err;
  }
  if (int err = prepare_write()) return err;
  int err = layout().has_indexed_virtual ? insert_generated(buf) : insert_row(buf);
  return autoinc ? after_autoinc_write(err) : err;
}

/* The row read last stays the one that an update or a deletion is of: of a partition it may still
   wait in the server's queue of an ordered scan, while a row moves into that partition. */
int ha_ferrite::insert_row(const uchar *buf) {
  fe_code rc = layout().rows.encode(m_session, m_share->table, buf, &m_payload);
  if (rc != FE_OK) return error(rc);
  fe_slice pk = {nullptr, 0};
  if (!layout().hidden_row_id) {
    uint8_t *end = ferrite::encode_key(layout().indexes[0], buf, m_new_pk.data(), m_scratch.data());
    pk = {m_new_pk.data(), static_cast<size_t>(end - m_new_pk.data())};
  }
  uint8_t *to = m_entries.data();
  uint count = 0;
  for (const Index &index : layout().indexes)
    if (index.no) to = encode_entry(index, buf, to, &m_added[count++]);

  const uint32_t flags = m_replace || m_insert_update ? FE_INSERT_REPLACE_HINT : 0;
  uint8_t row_id[ferrite::kRowIdBytes];
  rc = fe_row_insert(m_session, m_share->table, pk, m_payload.slice(), m_added.data(), count, flags,
                     row_id, &m_dup);
  if (rc == FE_DUPLICATE) return not_inserted(buf);
  if (rc != FE_OK) return error(rc);
  if (layout().hidden_row_id) {
    memcpy(m_inserted_id, row_id, sizeof row_id);
    m_after_insert = true;
  }
  return check_inserted(buf);
}

/* ---- update ------------------------------------------------------------------------ */

/* Whether a column has another value in the new record. The old value of a column that is
   written but was not read is in the payload alone: a row that stays the same must be
   reported so. */
bool ha_ferrite::column_changed(const Column &c, const uchar *old_row, const uchar *new_row) {
  if (!is_read(c.field_no)) {
    if (!bitmap_is_set(table->write_set, c.field_no)) return false;
    return !c.stored || !layout().rows.same_value(m_session, m_share->table, m_row_payload.slice(),
                                                  c, new_row, &m_compare);
  }
  const bool was_null = c.is_null(old_row), is_null = c.is_null(new_row);
  if (was_null || is_null) return was_null != is_null;
  if (c.kind == ColumnKind::kFixed || c.kind == ColumnKind::kChar)
    return memcmp(old_row + c.offset, new_row + c.offset, c.length) != 0;
  fe_slice a = c.value(old_row), b = c.value(new_row);
  return a.len != b.len || (a.ptr != b.ptr && memcmp(a.ptr, b.ptr, a.len) != 0);
}

/* Fills m_changed; false when nothing differs. */
bool ha_ferrite::find_changes(const uchar *old_row, const uchar *new_row) {
  bool any = false;
  bitmap_clear_all(&m_changed);
  for (const Column &c : layout().rows.columns()) {
    if (!c.stored && c.pk_part < 0 && !layout().has_indexed_virtual) continue;
    if (!column_changed(c, old_row, new_row)) continue;
    bitmap_set_bit(&m_changed, c.field_no);
    if (c.stored || c.pk_part >= 0) any = true;
  }
  return any;
}

int ha_ferrite::change_entries(const uchar *old_row, const uchar *new_row, bool pk_changed,
                               uint *removed, uint *added) {
  uint8_t *to = m_entries.data();
  *removed = *added = 0;
  for (const Index &index : layout().indexes) {
    if (!index.no) continue;
    bool touched = pk_changed;
    for (size_t i = 0; !touched && i < index.touched_by.size(); i++)
      touched = index.touched_by[i] && bitmap_is_set(&m_changed, static_cast<uint>(i));
    if (!touched) continue;
    fe_entry *before = &m_removed[*removed];
    fe_entry *after = &m_added[*added];
    to = encode_entry(index, old_row, to, before);
    to = encode_entry(index, new_row, to, after);
    const bool same_key = before->key.len == after->key.len &&
                          !memcmp(before->key.ptr, after->key.ptr, after->key.len);
    const bool same_payload = before->payload.len == after->payload.len &&
                              !memcmp(before->payload.ptr, after->payload.ptr, after->payload.len);
    if (same_key && same_payload && !pk_changed) continue;
    /* The row's own old entry is no duplicate of its new one. */
    if (same_key) after->check_unique = 0;
    ++*removed;
    ++*added;
  }
  return 0;
}

int ha_ferrite::update_row(const uchar *old_data, const uchar *new_data) {
  if (unlikely(may_be_outdated()))
    if (int err = refresh(old_data, new_data)) return err;
  int err = layout().has_indexed_virtual ? update_generated(old_data, new_data)
                                         : update(old_data, new_data);
  if (unlikely(ferrite::is_copied_online(table)) && !err)
    ferrite_logged_row(ha_thd(), table, m_share->wrong_logs, LoggedKind::kUpdate, new_data,
                       old_data);
  return unlikely(m_sequence) ? end_write(err) : err;
}

int ha_ferrite::update(const uchar *old_data, const uchar *new_data) {
  if (int err = prepare_write()) return err;
  m_after_insert = false;
  if (!m_have_payload) {
    /* The row was read without an X lock (a sequence, a covering read): get it now. */
    fe_cursor *cursor;
    fe_row row;
    m_lock = FE_READ_EXCLUSIVE;
    if (int err = cursor_for(0, &cursor)) return err;
    fe_code rc = fe_row_get(cursor, m_row_pk.slice(), &row);
    if (rc != FE_OK) return error(rc);
    if (!keep_payload(row)) return HA_ERR_OUT_OF_MEM;
  }
  /* INSERT into a sequence writes the values that it has, too, and takes the error for one. */
  const int same = m_sequence ? 0 : HA_ERR_RECORD_IS_THE_SAME;
  if (!find_changes(old_data, new_data)) return same;
  fe_slice old_pk = m_row_pk.slice();
  fe_slice new_pk = old_pk;
  bool pk_changed = false;
  if (!layout().hidden_row_id) {
    const Index &pk = layout().indexes[0];
    for (const KeyPart &part : pk.parts)
      if (bitmap_is_set(&m_changed, part.column.field_no)) pk_changed = true;
    if (pk_changed) {
      uint8_t *end = ferrite::encode_key(pk, new_data, m_new_pk.data(), m_scratch.data());
      new_pk = {m_new_pk.data(), static_cast<size_t>(end - m_new_pk.data())};
      pk_changed = new_pk.len != old_pk.len || memcmp(new_pk.ptr, old_pk.ptr, new_pk.len);
    }
  }
  fe_code rc = layout().rows.merge(m_session, m_share->table, new_data, &m_changed,
                                   m_row_payload.slice(), &m_payload);
  if (rc != FE_OK) return error(rc);
  uint removed, added;
  if (int err = change_entries(old_data, new_data, pk_changed, &removed, &added)) return err;
  rc = fe_row_update(m_session, m_share->table, old_pk, new_pk, m_payload.slice(), m_removed.data(),
                     removed, m_added.data(), added, &m_dup);
  if (rc == FE_DUPLICATE) return not_updated(old_data, new_data, pk_changed);
  if (rc == FE_SAME) return same;
  if (rc != FE_OK) return error(rc);
  const uint64_t now = fe_rows_changed(m_session);
  if (int err = check_updated(old_data, new_data, pk_changed)) return err;
  /* A row that is undone in any case leaves no trace. */
  const bool is_trial = m_cascade && m_cascade->is_trial;
  if (table->found_next_number_field && !is_trial &&
      bitmap_is_set(&m_changed, table->found_next_number_field->field_index)) {
    Field *field = table->found_next_number_field;
    my_ptrdiff_t diff = new_data - table->record[0];
    field->move_field_offset(diff);
    ulonglong value = field->val_uint();
    field->move_field_offset(-diff);
    if (value && value <= field->get_max_int_value())
      if (int err = raise_autoinc(value)) return err;
  }
  /* The same row may be changed once more (ON DUPLICATE KEY, several tables). */
  if (!m_row_pk.assign(new_pk) || !m_row_payload.assign(m_payload.slice()))
    return HA_ERR_OUT_OF_MEM;
  m_read_at = now;
  return 0;
}

/* ---- delete ------------------------------------------------------------------------ */

int ha_ferrite::delete_row(const uchar *buf) {
  if (int err = prepare_write()) return err;
  if (unlikely(may_be_outdated())) {
    const int err = refresh(buf, nullptr);
    if (err) return err == HA_ERR_KEY_NOT_FOUND ? 0 : err;
  }
  int err = layout().has_indexed_virtual ? remove_generated(buf) : remove_row(buf);
  if (unlikely(ferrite::is_copied_online(table)) && !err)
    ferrite_logged_row(ha_thd(), table, m_share->wrong_logs, LoggedKind::kDelete, buf, nullptr);
  return err;
}

int ha_ferrite::remove_row(const uchar *buf) {
  m_after_insert = false;
  uint8_t *to = m_entries.data();
  uint count = 0;
  for (const Index &index : layout().indexes)
    if (index.no) to = encode_entry(index, buf, to, &m_removed[count++]);
  fe_code rc = fe_row_delete(m_session, m_share->table, m_row_pk.slice(), m_removed.data(), count);
  return rc == FE_OK ? check_deleted(buf) : error(rc);
}
