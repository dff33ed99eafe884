/*
 * What follows into the rows of a child: each row that is found goes, or gets what its parent now
 * has (docs/internals/foreign_keys.md). Whether anything follows says ha_ferrite_cascade.cc.
 *
 * Rules of this module
 * - Nothing here grows with the number of rows that are changed.
 * - A value that a column cannot hold as the parent has it does not follow: cut or padded, it might
 *   be another parent's.
 * - The record may be another row's once a row's own checks have run.
 */
#include "ha_ferrite.h"

using ferrite::Cascade;

/* A cursor that nobody below this step uses. It locks rows only: who adds a child finds its parent
   gone, and waits for that. */
int ha_ferrite::take_cursor(uint32_t index_no, size_t *out) {
  if (m_generation != m_share->generation) {
    close_cursors();
    m_generation = m_share->generation;
  }
  for (size_t i = 0; i < m_followers.size(); i++) {
    Follower &f = m_followers[i];
    if (f.busy || f.index_no != index_no) continue;
    fe_code rc = fe_cursor_reset(f.cursor, m_session, FE_READ_EXCLUSIVE, FE_WAIT);
    if (rc != FE_OK) return error(rc);
    fe_cursor_lock_rows_only(f.cursor);
    f.busy = true;
    *out = i;
    return 0;
  }
  Follower f = {index_no, nullptr, true};
  fe_code rc =
      fe_cursor_open(m_session, m_share->table, index_no, FE_READ_EXCLUSIVE, FE_WAIT, &f.cursor);
  if (rc != FE_OK) return error(rc);
  fe_cursor_lock_rows_only(f.cursor);
  m_followers.push_back(f);
  *out = m_followers.size() - 1;
  return 0;
}

void ha_ferrite::give_cursor(size_t which) {
  Follower &f = m_followers[which];
  fe_cursor_reset(f.cursor, m_session, FE_READ_SNAPSHOT, FE_WAIT);
  f.busy = false;
}

/* A TABLE while it is followed into. The server prepares one only for the statement that it opens
   it for, and then gives it to statements of triggers; it is as the last of them has left it: after
   a SELECT that has found nothing each column that is NOT NULL says that it is NULL. After an
   INSERT of history, by whatever statement, no version begins now. */
class FollowedTable {
 public:
  explicit FollowedTable(TABLE *table)
      : m_table(table),
        m_read_set(table->read_set),
        m_write_set(table->write_set),
        m_status(table->status),
        m_null_row(table->null_row) {
    table->column_bitmaps_set_no_signal(&table->s->all_set, &table->s->all_set);
    unmark_as_null_row(table);
    bitmap_clear_all(&table->has_value_set);
  }
  ~FollowedTable() {
    DBUG_ASSERT(!m_table->null_row);
    m_table->null_row = m_null_row;
    m_table->status = m_status;
    m_table->column_bitmaps_set_no_signal(m_read_set, m_write_set);
  }
  FollowedTable(const FollowedTable &) = delete;
  FollowedTable &operator=(const FollowedTable &) = delete;

 private:
  TABLE *m_table;
  MY_BITMAP *m_read_set, *m_write_set;
  uint m_status;
  bool m_null_row;
};

/* Changes all rows with the key at `at` of the parent's m_link_keys, which may move meanwhile. */
int ha_ferrite::follow(const Cascade &step, const fe_link &link, const ha_ferrite &parent,
                       size_t at, size_t len, const uchar *new_row) {
  if (unlikely(ferrite::vector_indexes(table)) && ferrite::open_vector_indexes(table))
    return HA_ERR_GENERIC;
  size_t which;
  if (int err = take_cursor(link.other_index_no, &which)) return err;
  fe_cursor *cursor = m_followers[which].cursor;
  const FollowedTable followed(table);
  m_lock = m_stored_lock; /* a statement of a trigger may have read it by its snapshot */
  const Cascade *above = m_cascade;
  m_cascade = &step;
  int err = 0;
  for (bool first = true; !err; first = false) {
    const fe_slice key = {parent.m_link_keys.data() + at, len};
    fe_row row;
    fe_code rc = first ? fe_cursor_seek(cursor, key, FE_SEEK_EXACT, 0, &row)
                       : fe_cursor_next_same(cursor, key, &row);
    if (rc == FE_END || rc == FE_NOT_FOUND) break;
    if (rc == FE_OK && link.other_index_no) rc = fe_cursor_fetch_row(cursor, &row);
    if (rc == FE_OK) {
      m_index = &layout().indexes[0];
      check_plan();
      rc = deliver_state(row, table->record[0]);
    }
    if (rc != FE_OK)
      err = error(rc == FE_NOT_FOUND ? fe_damaged("an entry of an index has no row") : rc);
    else if (ferrite::is_killed(ha_thd()))
      err = HA_ERR_ABORTED_BY_USER;
    else if (!is_history(table->record[0]))
      err = step.updates ? follow_update(link, parent, new_row) : follow_delete();
  }
  m_cascade = above;
  m_index = nullptr;
  give_cursor(which);
  return err;
}

/* The row in record[0] goes, or becomes history. */
int ha_ferrite::follow_delete() {
  if (table->vfield) table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  if (!table->versioned(VERS_TIMESTAMP)) return delete_row(table->record[0]);
  store_record(table, record[1]);
  table->vers_update_end();
  const int err = update_row(table->record[1], table->record[0]);
  if (err != HA_ERR_FOUND_DUPP_KEY) return err;
  /* The same moment's history is there already. */
  restore_record(table, record[1]);
  return delete_row(table->record[0]);
}

/* Whether a text would be cut, of which the server says nothing where warnings are not counted, or
   a BINARY padded with bytes that count. Spaces are not cut either, as in InnoDB; a CHAR has none.
 */
static bool is_cut_or_padded(const String &value, const Field &to) {
  const enum_field_types type = to.real_type();
  if (type != MYSQL_TYPE_STRING && type != MYSQL_TYPE_VARCHAR) return false;
  if (type == MYSQL_TYPE_STRING && to.charset() == &my_charset_bin)
    return value.length() != to.pack_length();
  CHARSET_INFO *cs = value.charset();
  size_t bytes = value.length();
  if (type == MYSQL_TYPE_STRING) bytes = cs->lengthsp(value.ptr(), bytes);
  return cs->numchars(value.ptr(), value.ptr() + bytes) > to.char_length();
}

/* Gives a column of record[0] the parent's new value; false: it does not fit. */
bool ha_ferrite::take_value(Field *to, const ha_ferrite &parent, uint16_t column,
                            const uchar *new_row) {
  TABLE *there = parent.table;
  Field *from = there->field[column];
  const my_ptrdiff_t diff = new_row - there->record[0];
  if (from->is_null(diff)) {
    if (!to->real_maybe_null()) return false;
    to->set_null();
    return true;
  }
  to->set_notnull();
  if (from->real_type() == to->real_type() && from->pack_length() == to->pack_length() &&
      from->charset() == to->charset()) {
    memcpy(to->ptr, from->ptr + diff, from->pack_length());
    return true;
  }
  String text;
  from->move_field_offset(diff);
  const String *value = from->val_str(&text);
  from->move_field_offset(-diff);
  if (is_cut_or_padded(*value, *to)) return false;
  THD *thd = ha_thd();
  const enum_check_fields before = thd->count_cuted_fields;
  thd->count_cuted_fields = CHECK_FIELD_IGNORE;
  const bool fits = !to->store(value->ptr(), value->length(), value->charset());
  thd->count_cuted_fields = before;
  return fits;
}

/* A column of the row in record[0] becomes NULL, or what the parent's is now; false: it cannot.
   With foreign_key_checks=0 it could be made NOT NULL, and earlier versions let ALTER TABLE make it
   a generated one, whose value the row's own expression decides. */
bool ha_ferrite::follow_column(const fe_link_part &sides, bool to_null, const ha_ferrite &parent,
                               const uchar *new_row) {
  Field *field = table->field[sides.other.column];
  if (to_null) {
    if (field->vcol_info || !field->real_maybe_null()) return false;
    layout().rows.column(sides.other.column).set_null(table->record[0]);
    return true;
  }
  if (!bitmap_is_set(&parent.m_changed, sides.own.column)) return true;
  return !field->vcol_info && take_value(field, parent, sides.own.column, new_row);
}

/* The columns of the row in record[0] become NULL, or what the parent's are now. */
int ha_ferrite::follow_update(const fe_link &link, const ha_ferrite &parent, const uchar *new_row) {
  if (table->vfield) table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  store_record(table, record[1]);
  const bool to_null = (new_row ? link.on_update : link.on_delete) == FE_FK_SET_NULL;
  for (uint32_t i = 0; i < link.part_count; i++)
    if (!follow_column(link.parts[i], to_null, parent, new_row)) {
      ferrite_note_violation(ha_thd(), link, m_share->name, parent.m_share->name);
      return HA_ERR_ROW_IS_REFERENCED;
    }
  if (table->vfield && table->update_virtual_fields(this, VCOL_UPDATE_FOR_WRITE))
    return HA_ERR_GENERIC;
  const bool versioned = table->versioned(VERS_TIMESTAMP);
  if (versioned) table->vers_update_fields();
  int err = update_row(table->record[1], table->record[0]);
  if (err == HA_ERR_RECORD_IS_THE_SAME) return 0;
  if (err || !versioned) return err;
  restore_record(table, record[1]);
  table->vers_update_end();
  err = write_row(table->record[0]);
  return err == HA_ERR_FOUND_DUPP_KEY ? 0 : err;
}
