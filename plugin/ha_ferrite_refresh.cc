/*
 * A row that the statement itself has changed between reading it and changing it.
 *
 * A trigger, or a function in SET, may change a parent of the row that it runs for: the foreign key
 * is followed to that row, through another TABLE, while the server's records of it have the old
 * values; or a function changes the row of a temporary table itself. What the statement changes is
 * changed in the row as it is now, as in InnoDB.
 *
 * Rules of this module
 * - Only this session can have changed the row: it is locked. It has not if it has changed no row
 *   since the read, so that a statement without such triggers pays one comparison for each row; nor
 *   if no foreign key has rows of the table follow their parents, so that triggers may write to
 *   other tables at no cost.
 * - The server's records get the present values, in all columns that the statement leaves as they
 *   were: so its binary log, AFTER triggers and history of versions are right, too. Virtual columns
 *   are computed of them.
 * - The row that a scan stands on is looked at through a cursor of its own.
 */
#include "ha_ferrite.h"

#include "ferrite_error.h"

using ferrite::Column;

/* The error for a row that is not there any more. With it the server deletes what it would make a
   version of the past, which has nothing to do then. */
int ha_ferrite::is_gone(const uchar *new_data) const {
  return new_data && is_history(new_data) ? HA_ERR_FOREIGN_DUPLICATE_KEY : HA_ERR_KEY_NOT_FOUND;
}

/* Whether a row of this table can have been changed through another TABLE. A function changes no
   table that the statement uses, but for temporary ones. */
int ha_ferrite::may_change_meanwhile(bool *out) {
  *out = table->s->tmp_table != NO_TMP_TABLE;
  if (*out) return 0;
  std::shared_ptr<const ferrite::LinkSet> set;
  if (int err = current_links(&set)) return err;
  *out = set && set->follows_parents;
  return 0;
}

/* HA_ERR_KEY_NOT_FOUND: the row is gone. `new_data` NULL: it is to be deleted. */
int ha_ferrite::refresh(const uchar *old_data, const uchar *new_data) {
  DBUG_ASSERT(may_be_outdated());
  DBUG_ASSERT(!new_data || new_data == table->record[0]);
  bool may_change;
  if (int err = may_change_meanwhile(&may_change)) return err;
  if (!may_change) return 0;
  size_t which;
  if (int err = take_cursor(0, &which)) return err;
  const uint64_t now = fe_rows_changed(m_session);
  fe_row row;
  fe_code rc = fe_row_get(m_followers[which].cursor, m_row_pk.slice(), &row);
  int err = rc == FE_OK ? 0 : rc == FE_NOT_FOUND ? is_gone(new_data) : error(rc);
  const bool same = !err && row.payload.len == m_row_payload.size() &&
                    !memcmp(row.payload.ptr, m_row_payload.data(), row.payload.len);
  /* The server gives them as constants, but they are the table's own. */
  if (!err && !same)
    err = refresh_records(row, const_cast<uchar *>(old_data), const_cast<uchar *>(new_data));
  if (!err) m_read_at = now;
  give_cursor(which);
  return err;
}

/* A column of one record as in the other. The value of a BLOB stays where it is. */
static void copy_column(const Column &c, const uchar *from, uchar *to) {
  if (c.is_null(from)) return c.set_null(to);
  c.set_not_null(to);
  const fe_slice value = c.value(from);
  c.store(to, value.ptr, value.len);
}

/* `row` is the row as it is now; the records, and what is kept of it, are as it was. */
int ha_ferrite::refresh_records(const fe_row &row, uchar *old_data, uchar *new_data) {
  if (new_data) find_changes(old_data, new_data);
  std::vector<uint16_t> stored;
  for (const Column &c : layout().rows.columns())
    if (c.stored) stored.push_back(c.field_no);
  const std::vector<uint8_t> all(table->s->fields, 1);
  if (!ferrite::decode_primary_key(layout(), row.pk, all.data(), old_data))
    return error(fe_damaged("the primary key of a row does not fit the table's definition"));
  fe_code rc = layout().rows.decode(m_session, m_share->table, row.payload, stored.data(),
                                    stored.size(), old_data, &m_fresh_blobs);
  if (rc != FE_OK) return error(rc);
  if (!keep_payload(row)) return HA_ERR_OUT_OF_MEM;
  if (table->vfield) compute_virtual(old_data);
  if (!new_data) return 0;
  for (const Column &c : layout().rows.columns())
    if ((c.stored || c.pk_part >= 0) && !bitmap_is_set(&m_changed, c.field_no))
      copy_column(c, old_data, new_data);
  /* What is computed of several columns may have been so of old and new ones. */
  if (table->vfield && table->update_virtual_fields(this, VCOL_UPDATE_FOR_WRITE))
    return HA_ERR_GENERIC;
  return 0;
}
