/*
 * Reading rows: scans, seeks, positions, pushed conditions, multi-range reads.
 *
 * One way for all of them: move() steps the cursor of an index until a row passes what was
 * pushed down, deliver() puts the wanted columns into the record - from the index entry
 * alone when it has them all, else from the clustered row.
 */
#include "ha_ferrite.h"

#include <key.h>

#include "ferrite_error.h"
#include "ferrite_hton.h"

using ferrite::Column;
using ferrite::Index;
using ferrite::KeyPart;

/* ---- the plan: which columns, from where ------------------------------------------- */

void ha_ferrite::make_plan() {
  const Index &index = *m_index;
  m_plan_index = m_index;
  m_plan_lock = m_lock;
  m_plan_keyread = keyread_enabled();
  m_plan_whole = m_whole_rows;
  const bool whole = m_whole_rows && m_lock == FE_READ_EXCLUSIVE;
  memcpy(m_plan_bits.data(), table->read_set->bitmap, read_set_bytes());
  m_plan_row.clear();
  m_plan_pk = false;
  m_plan_covering = index.no != 0;
  for (const Column &c : layout().rows.columns()) {
    /* Lookups inside a change (WITHOUT OVERLAPS) ask for the key, not by read_set; a key on
       the prefix of a column needs the column. */
    const bool of_key = index.touched_by[c.field_no];
    const bool wanted = whole || bitmap_is_set(table->read_set, c.field_no) ||
                        (m_plan_keyread && m_lock == FE_READ_EXCLUSIVE && of_key);
    m_plan_wanted[c.field_no] = wanted;
    m_plan_entry[c.field_no] = wanted && index.covered[c.field_no];
    if (!wanted) continue;
    /* Of a keyread the server uses the key's columns alone: what an indexed virtual column is
       computed of is in read_set, too. */
    const bool needed = (c.stored || c.pk_part >= 0) && (of_key || !m_plan_keyread);
    if (needed && !index.covered[c.field_no]) m_plan_covering = false;
    plan_column(c);
  }
  m_plan_dirty = reads_dirty();
  m_comparison = Comparison::kNone;
  if (m_plan_dirty && index.no && !m_plan_covering) plan_comparison();
}

void ha_ferrite::plan_column(const Column &c) {
  if (c.stored) m_plan_row.push_back(c.field_no);
  if (c.pk_part >= 0) m_plan_pk = true;
}

/* ---- scans ------------------------------------------------------------------------- */

int ha_ferrite::start_index(uint32_t index_no) {
  m_index = &layout().indexes[index_no];
  m_scan_started = false;
  m_match_bytes = 0;
  m_at_key.set_size(0);
  m_at_edge = 0;
  m_after_insert = false;
  if (int err = cursor_for(index_no, &m_cursor)) return err;
  fe_cursor_set_bound(m_cursor, {nullptr, 0});
  m_bounded = false;
  return 0;
}

int ha_ferrite::rnd_init(bool) { return start_index(0); }

int ha_ferrite::rnd_end() {
  m_cursor = nullptr;
  /* So ends a multi-range read of a partition, which gets no reset() before the next one. */
  m_ds_mrr.dsmrr_close();
  return 0;
}

int ha_ferrite::index_init(uint idx, bool) {
  active_index = idx;
  return start_index(layout().by_server[idx]);
}

int ha_ferrite::index_end() {
  m_cursor = nullptr;
  active_index = MAX_KEY;
  in_range_check_pushed_down = false;
  m_ds_mrr.dsmrr_close();
  return 0;
}

int ha_ferrite::rnd_next(uchar *buf) {
  return move(m_scan_started ? Step::kNext : Step::kFirst, buf);
}

int ha_ferrite::index_next(uchar *buf) {
  m_match_bytes = 0;
  return move(Step::kNext, buf);
}

int ha_ferrite::index_prev(uchar *buf) {
  m_match_bytes = 0;
  return move(Step::kPrev, buf);
}

int ha_ferrite::index_next_same(uchar *buf, const uchar *, uint) {
  /* m_seek_key still has the encoded key of the index_read() before. */
  m_match_bytes = m_seek_len;
  return move(Step::kNextSame, buf);
}

int ha_ferrite::index_first(uchar *buf) {
  m_match_bytes = 0;
  return move(Step::kFirst, buf);
}

int ha_ferrite::index_last(uchar *buf) {
  m_match_bytes = 0;
  return move(Step::kLast, buf);
}

/* ---- seeks ------------------------------------------------------------------------- */

int ha_ferrite::seek(uchar *buf, const uchar *key, uint key_len, fe_seek_mode mode) {
  uint parts;
  bool has_null;
  uint8_t *start = m_seek_key.data();
  uint8_t *end = ferrite::encode_tuple(*m_index, layout().primary(), key, key_len, start,
                                       m_scratch.data(), &parts, &has_null);
  m_seek_len = static_cast<size_t>(end - start);
  m_seek_mode = mode;
  m_unique_exact =
      mode == FE_SEEK_EXACT && m_index->unique && !has_null && parts == m_index->parts.size();
  m_match_bytes = 0;
  int err = move(Step::kSeek, buf);
  return err == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : err;
}

int ha_ferrite::index_read(uchar *buf, const uchar *key, uint key_len, ha_rkey_function find_flag) {
  if (!key || !key_len) {
    int err = find_flag == HA_READ_BEFORE_KEY || find_flag == HA_READ_KEY_OR_PREV ||
                      find_flag == HA_READ_PREFIX_LAST || find_flag == HA_READ_PREFIX_LAST_OR_PREV
                  ? index_last(buf)
                  : index_first(buf);
    return err == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : err;
  }
  switch (find_flag) {
    case HA_READ_KEY_EXACT:
    case HA_READ_PREFIX:
      return seek(buf, key, key_len, FE_SEEK_EXACT);
    case HA_READ_KEY_OR_NEXT:
      return seek(buf, key, key_len, FE_SEEK_GE);
    case HA_READ_AFTER_KEY:
      return seek(buf, key, key_len, FE_SEEK_GT);
    case HA_READ_BEFORE_KEY:
      return seek(buf, key, key_len, FE_SEEK_LT);
    case HA_READ_KEY_OR_PREV:
    case HA_READ_PREFIX_LAST_OR_PREV:
      return seek(buf, key, key_len, FE_SEEK_LE);
    case HA_READ_PREFIX_LAST:
      return seek(buf, key, key_len, FE_SEEK_LAST_EXACT);
    default: /* spatial */
      return HA_ERR_UNSUPPORTED;
  }
}

int ha_ferrite::index_read_last(uchar *buf, const uchar *key, uint key_len) {
  return index_read(buf, key, key_len, HA_READ_PREFIX_LAST);
}

/* A range: the core gets its end, so that it does not read ahead beyond it. */
int ha_ferrite::read_range_first(const key_range *start_key, const key_range *end_key,
                                 bool eq_range, bool sorted) {
  m_range_first = end_key && !(eq_range && m_index && m_index->unique);
  int err = handler::read_range_first(start_key, end_key, eq_range, sorted);
  m_range_first = false;
  return err;
}

/* Called before a step that begins a scan: sets the end of a range as the bound of reading
   ahead, or takes the bound of an earlier range away. It is a hint: rows are compared with
   the end by the server. */
void ha_ferrite::bound_scan(Step step) {
  if (step == Step::kNext || step == Step::kNextSame || step == Step::kPrev) return;
  const bool forward = step == Step::kFirst || (step == Step::kSeek && m_seek_mode < FE_SEEK_LE);
  if (!m_range_first || !end_range || !forward || !m_bound.reserve(layout().max_key + 16)) {
    if (m_bounded) fe_cursor_set_bound(m_cursor, {nullptr, 0});
    m_bounded = false;
    return;
  }
  uint parts;
  bool has_null;
  uint8_t *end =
      ferrite::encode_tuple(*m_index, layout().primary(), end_range->key, end_range->length,
                            m_bound.data(), m_scratch.data(), &parts, &has_null);
  size_t len = static_cast<size_t>(end - m_bound.data());
  m_bounded = end_range->flag == HA_READ_BEFORE_KEY || ferrite::successor(m_bound.data(), &len);
  fe_cursor_set_bound(m_cursor, {m_bounded ? m_bound.data() : nullptr, len});
}

/* ---- one step ---------------------------------------------------------------------- */

fe_code ha_ferrite::step_cursor(Step step, fe_row *row) {
  switch (step) {
    case Step::kFirst:
      return fe_cursor_first(m_cursor, row);
    case Step::kLast:
      return fe_cursor_last(m_cursor, row);
    case Step::kSeek:
      return fe_cursor_seek(m_cursor, {m_seek_key.data(), m_seek_len}, m_seek_mode, m_unique_exact,
                            row);
    case Step::kNext:
      return fe_cursor_next(m_cursor, row);
    case Step::kPrev:
      return fe_cursor_prev(m_cursor, row);
    case Step::kNextSame:
      return fe_cursor_next_same(m_cursor, {m_seek_key.data(), m_seek_len}, row);
  }
  return FE_BUG;
}

/* Steps until a row passes, and delivers it. */
int ha_ferrite::move(Step step, uchar *buf) {
  if (!m_index) return HA_ERR_WRONG_COMMAND;
  const bool backward = step == Step::kPrev || step == Step::kLast ||
                        (step == Step::kSeek && m_seek_mode >= FE_SEEK_LE);
  const bool stale = !m_cursor || m_cursors[m_index->no].statement != m_statement ||
                     m_generation != m_share->generation;
  if (stale)
    if (int err = cursor_for(m_index->no, &m_cursor)) return err;
  bound_scan(step);
  check_plan();
  if (m_semi != m_cursors[m_index->no].semi) ask_semi_consistent();
  fe_row row;
  const bool goes_on =
      stale && (step == Step::kNext || step == Step::kNextSame || step == Step::kPrev);
  fe_code rc = goes_on ? go_on(backward, &row) : step_cursor(step, &row);
  m_scan_started = true;
  const bool exact =
      step == Step::kSeek && (m_seek_mode == FE_SEEK_EXACT || m_seek_mode == FE_SEEK_LAST_EXACT);
  const bool single = exact && m_unique_exact;
  const bool same = step == Step::kNextSame || (exact && !backward);
  const Step next = backward ? Step::kPrev : same ? Step::kNextSame : Step::kNext;
  for (bool first = true;; first = false) {
    if (!first) {
      if (single) return HA_ERR_KEY_NOT_FOUND;
      rc = step_cursor(next, &row);
    }
    if (rc == FE_SKIPPED) continue;
    if (m_handler_mode) remember_place(rc, row, backward, exact);
    if (rc == FE_NOT_FOUND) return HA_ERR_KEY_NOT_FOUND;
    if (rc != FE_OK) return error(rc);
    /* Steps beyond the first row of an exact seek stay within its key. */
    if (m_match_bytes &&
        (row.key.len < m_match_bytes || memcmp(row.key.ptr, m_seek_key.data(), m_match_bytes))) {
      m_at_before = true;
      return HA_ERR_END_OF_FILE;
    }
    if (exact) m_match_bytes = m_seek_len;
    switch (check_pushed(row, buf)) {
      case CHECK_POS:
        break;
      case CHECK_NEG:
        unlock_entry();
        continue;
      case CHECK_OUT_OF_RANGE:
        return HA_ERR_END_OF_FILE;
      case CHECK_ABORTED_BY_USER:
        return HA_ERR_ABORTED_BY_USER;
      case CHECK_ERROR:
        return HA_ERR_INTERNAL_ERROR;
    }
    int err = deliver(&row, buf);
    if (err != HA_ERR_RECORD_DELETED) return err;
  }
}

/* HANDLER continues in another statement at its position: on a row, at the place of a key that
   does not exist, before the first row that no longer matched, or beyond an end. */
void ha_ferrite::remember_place(fe_code rc, const fe_row &row, bool backward, bool exact) {
  m_at_before = false;
  if (rc == FE_OK) {
    m_at_edge = 0;
    m_at_key.assign(row.key);
  } else if (rc == FE_END || rc == FE_NOT_FOUND) {
    m_at_edge = exact ? 0 : backward ? -1 : 1;
    if (exact) m_at_key.assign({m_seek_key.data(), m_seek_len});
  }
}

fe_code ha_ferrite::go_on(bool backward, fe_row *row) {
  if (m_at_edge == (backward ? -1 : 1)) return FE_END;
  if (m_at_edge) return step_cursor(backward ? Step::kLast : Step::kFirst, row);
  if (!m_at_key.size()) return step_cursor(backward ? Step::kPrev : Step::kNext, row);
  const fe_seek_mode mode = backward ? FE_SEEK_LT : m_at_before ? FE_SEEK_GE : FE_SEEK_GT;
  return fe_cursor_seek(m_cursor, m_at_key.slice(), mode, 0, row);
}

/* Index condition and rowid filter, on the entry alone. With the filter the server also compares
   the row with the end of the range, which needs the key's columns; the entry of a prefix does
   not have them: the filter is then skipped, and WHERE decides. */
check_result_t ha_ferrite::check_pushed(const fe_row &row, uchar *buf) {
  if (m_index->no == 0 || buf != table->record[0] || inited != INDEX) return CHECK_POS;
  const bool condition = pushed_idx_cond && active_index == pushed_idx_cond_keyno;
  const bool filter = pushed_rowid_filter && rowid_filter_is_active && layout().pk_whole &&
                      !(m_index->has_prefix && end_range);
  if (!condition && !filter) return CHECK_POS;
  if (!ferrite::decode_entry(layout(), *m_index, row, m_index->covered.data(), buf))
    return CHECK_ERROR;
  if (condition) {
    check_result_t res = handler_index_cond_check(this);
    if (res != CHECK_POS) return res;
  }
  if (!filter) return CHECK_POS;
  if (layout().hidden_row_id && keep_row(row)) return CHECK_ERROR;
  return handler_rowid_filter_check(this);
}

int ha_ferrite::keep_row(const fe_row &row) {
  m_after_insert = false;
  if (!m_row_pk.assign(row.pk)) return HA_ERR_OUT_OF_MEM;
  m_have_payload = false;
  return 0;
}

/* HA_ERR_RECORD_DELETED: skip this entry (its row is locked by another, or was deleted or
   rolled back while it was read without a snapshot). With X locks the clustered row is visited
   in any case: it carries the lock and the payload. In a keyread indexed virtual columns come
   from the entry: the server does not compute them then. */
int ha_ferrite::deliver(fe_row *row, uchar *buf) {
  if (m_index->no == 0) return deliver_clustered(*row, buf);
  const bool exclusive = m_lock == FE_READ_EXCLUSIVE;
  if (m_plan_keyread || (m_plan_covering && !exclusive)) {
    if (int err = keep_row(*row)) return err;
    if (!ferrite::decode_entry(layout(), *m_index, *row, m_plan_entry.data(), buf))
      return error(fe_damaged("an entry of an index does not fit the table's definition"));
    if (m_plan_covering && !exclusive) return 0;
  }
  fe_row clustered;
  fe_code rc = fe_cursor_fetch_row(m_cursor, &clustered);
  if (rc == FE_SKIPPED || (rc == FE_NOT_FOUND && reads_dirty())) return HA_ERR_RECORD_DELETED;
  if (rc == FE_NOT_FOUND) rc = fe_damaged("an entry of an index has no row");
  if (rc != FE_OK) return error(rc);
  const int err = deliver_clustered(clustered, buf);
  return err || m_comparison == Comparison::kNone ? err : compare_entry(row->key, buf);
}

/* READ UNCOMMITTED, and semi-consistent reads: a row may change between its copying and the
   reading of its values out of line, which then are not there any more. It is read again, so that
   what is delivered is one state of the row. HA_ERR_RECORD_DELETED: there is none, or never for
   long enough. */
int ha_ferrite::deliver_clustered(fe_row row, uchar *buf) {
  constexpr uint kAttempts = 1000;
  for (uint attempt = 0; attempt < kAttempts; attempt++) {
    fe_code rc = deliver_state(row, buf);
    if (rc != FE_NOT_FOUND) return rc == FE_OK ? 0 : error(rc);
    char value_error[512];
    strncpy(value_error, fe_last_error(), sizeof value_error - 1);
    value_error[sizeof value_error - 1] = '\0';
    /* A state that was the last committed one when it was copied: the next step locks the row. */
    if (was_semi_consistent_read()) return HA_ERR_RECORD_DELETED;
    if (ferrite::is_killed(ha_thd())) return HA_ERR_ABORTED_BY_USER;
    if (!m_compare.assign(row.payload)) return HA_ERR_OUT_OF_MEM;
    rc = fe_row_get(m_cursor, m_row_pk.slice(), &row);
    if (rc == FE_NOT_FOUND || rc == FE_SKIPPED) return HA_ERR_RECORD_DELETED;
    if (rc != FE_OK) return error(rc);
    /* The row still names a value that is not there. */
    if (row.payload.len == m_compare.size() &&
        !memcmp(row.payload.ptr, m_compare.data(), m_compare.size()))
      return error(fe_damaged(value_error));
  }
  return HA_ERR_RECORD_DELETED;
}

/* FE_NOT_FOUND: a value of this state of the row is gone. */
fe_code ha_ferrite::deliver_state(const fe_row &row, uchar *buf) {
  if (keep_row(row)) return FE_OUT_OF_MEMORY;
  if (m_lock == FE_READ_EXCLUSIVE) {
    if (!keep_payload(row)) return FE_OUT_OF_MEMORY;
  }
  if (m_plan_pk && !ferrite::decode_primary_key(layout(), row.pk, m_plan_wanted.data(), buf))
    return fe_damaged("the primary key of a row does not fit the table's definition");
  if (m_plan_row.empty()) return FE_OK;
  return layout().rows.decode(m_session, m_share->table, row.payload, m_plan_row.data(),
                              m_plan_row.size(), buf, &m_blobs);
}

/* An UPDATE that has met a row locked by another transaction asks whether what it got is the last
   committed state. If so and the row matches, it continues and gets the row again, locked. */
void ha_ferrite::try_semi_consistent_read(bool yes) { m_semi = yes && m_low_isolation; }

bool ha_ferrite::was_semi_consistent_read() {
  return m_semi && m_cursor && fe_cursor_was_semi_consistent(m_cursor);
}

void ha_ferrite::ask_semi_consistent() {
  fe_cursor_try_semi_consistent(m_cursor, m_semi);
  m_cursors[m_index->no].semi = m_semi;
}

/* A row found through a secondary index keeps its locks, and so does an entry that needs no row:
   InnoDB does not unlock them either. */
void ha_ferrite::unlock_row() {
  if (m_index && m_index->no == 0) unlock_entry();
}

/* At REPEATABLE READ and above a lock once taken stays. */
void ha_ferrite::unlock_entry() {
  if (m_lock != FE_READ_SNAPSHOT && m_low_isolation && m_cursor) fe_cursor_unlock_row(m_cursor);
}

/* ---- positions --------------------------------------------------------------------- */

void ha_ferrite::position(const uchar *record) {
  if (layout().hidden_row_id) {
    memcpy(ref, m_after_insert ? m_inserted_id : m_row_pk.data(), ferrite::kRowIdBytes);
  } else if (layout().pk_fixed) {
    ferrite::encode_key(layout().indexes[0], record, ref, m_scratch.data());
  } else {
    const KEY *key = &table->key_info[table->s->primary_key];
    key_copy(ref, record, key, key->key_length, true);
  }
}

/* The encoded primary key of a ref; `to` has room for pk_bytes. */
fe_slice ha_ferrite::ref_to_key(const uchar *pos, uint8_t *to) {
  if (layout().hidden_row_id || layout().pk_fixed) return {pos, ref_length};
  uint parts;
  bool has_null;
  uint8_t *end = ferrite::encode_tuple(layout().indexes[0], nullptr, pos, ref_length, to,
                                       m_scratch.data(), &parts, &has_null);
  return {to, static_cast<size_t>(end - to)};
}

/* A deadlock has ended the transaction within this statement. */
static bool is_deadlock_victim(THD *thd) {
  const ferrite_conn *conn = static_cast<ferrite_conn *>(thd_get_ha_data(thd, ferrite_hton));
  return conn && conn->rolled_back_by_core;
}

int ha_ferrite::rnd_pos(uchar *buf, uchar *pos) {
  if (m_index != &layout().indexes[0] || !m_cursor)
    if (int err = start_index(0)) return err;
  if (m_cursors[0].statement != m_statement || m_generation != m_share->generation)
    if (int err = cursor_for(0, &m_cursor)) return err;
  check_plan();
  fe_row row;
  fe_code rc = fe_row_get(m_cursor, ref_to_key(pos, m_seek_key.data()), &row);
  /* The server takes back what it has written whatever the check of a hashed key has ended with:
     the deadlock is the statement's error, not that nothing is there any more. */
  if (rc != FE_OK && is_deadlock_victim(ha_thd())) return HA_ERR_LOCK_DEADLOCK;
  if (rc == FE_END || rc == FE_SKIPPED) return HA_ERR_KEY_NOT_FOUND;
  if (rc != FE_OK) return error(rc);
  int err = deliver_clustered(row, buf);
  return err == HA_ERR_RECORD_DELETED ? HA_ERR_KEY_NOT_FOUND : err;
}

int ha_ferrite::cmp_ref(const uchar *ref1, const uchar *ref2) {
  if (layout().hidden_row_id || layout().pk_fixed) return memcmp(ref1, ref2, ref_length);
  const KEY &key = table->key_info[table->s->primary_key];
  for (uint i = 0; i < key.user_defined_key_parts; i++) {
    const KEY_PART_INFO &part = key.key_part[i];
    int cmp;
    if (part.key_part_flag & HA_BLOB_PART)
      cmp = static_cast<Field_blob *>(part.field)
                ->cmp(ref1 + 2, uint2korr(ref1), ref2 + 2, uint2korr(ref2));
    else
      cmp = part.field->key_cmp(ref1, ref2);
    if (cmp) return part.key_part_flag & HA_REVERSE_SORT ? -cmp : cmp;
    ref1 += part.store_length;
    ref2 += part.store_length;
  }
  return 0;
}

/* ---- pushed conditions ------------------------------------------------------------- */

Item *ha_ferrite::idx_cond_push(uint keyno, Item *idx_cond) {
  const Index &index = layout().indexes[layout().by_server[keyno]];
  /* The check of the range needs whole columns, those of the primary key in the bounds, too;
     virtual ones are computed after the read. */
  if (index.no == 0 || index.prefix_in_tuple || index.has_virtual) return idx_cond;
  pushed_idx_cond = idx_cond;
  pushed_idx_cond_keyno = keyno;
  in_range_check_pushed_down = true;
  return nullptr;
}

bool ha_ferrite::rowid_filter_push(Rowid_filter *filter) {
  if (!layout().pk_whole) return true;
  pushed_rowid_filter = filter;
  return false;
}

/* ---- multi-range reads: the server's implementation -------------------------------- */

int ha_ferrite::multi_range_read_init(RANGE_SEQ_IF *seq, void *seq_init_param, uint n_ranges,
                                      uint mode, HANDLER_BUFFER *buf) {
  m_mrr_in_steps = !(mode & (HA_MRR_USE_DEFAULT_IMPL | HA_MRR_SORTED));
  return mrr_result(m_ds_mrr.dsmrr_init(this, seq, seq_init_param, n_ranges, mode, buf));
}

/* In steps (entries, then rows in the order of their keys) READ UNCOMMITTED may meet an entry whose
   row is gone: it is passed over, as everywhere else. There may be many, so KILL is looked for. */
int ha_ferrite::multi_range_read_next(range_id_t *range_info) {
  int err = m_ds_mrr.dsmrr_next(range_info);
  while (err == HA_ERR_KEY_NOT_FOUND && m_mrr_in_steps)
    err = ferrite::is_killed(ha_thd()) ? HA_ERR_ABORTED_BY_USER : m_ds_mrr.dsmrr_next(range_info);
  return mrr_result(err);
}

/* A join by keys in batches takes an error without a message for the end of the rows. */
int ha_ferrite::mrr_result(int err) {
  if (err && err != HA_ERR_END_OF_FILE && m_mrr_in_steps && !ha_thd()->is_error())
    print_error(err, MYF(0));
  return err;
}

ha_rows ha_ferrite::multi_range_read_info_const(uint keyno, RANGE_SEQ_IF *seq, void *seq_init_param,
                                                uint n_ranges, uint *bufsz, uint *flags,
                                                FERRITE_MRR_LIMIT_PARAMETER Cost_estimate *cost) {
  m_ds_mrr.init(this, table);
  /* Locking reads keep to the order of the index. */
  if (m_lock != FE_READ_SNAPSHOT) *flags |= HA_MRR_USE_DEFAULT_IMPL;
  return m_ds_mrr.dsmrr_info_const(keyno, seq, seq_init_param, n_ranges, bufsz, flags,
                                   FERRITE_MRR_LIMIT cost);
}

ha_rows ha_ferrite::multi_range_read_info(uint keyno, uint n_ranges, uint keys, uint key_parts,
                                          uint *bufsz, uint *flags, Cost_estimate *cost) {
  m_ds_mrr.init(this, table);
  return m_ds_mrr.dsmrr_info(keyno, n_ranges, keys, key_parts, bufsz, flags, cost);
}

int ha_ferrite::multi_range_read_explain_info(uint mrr_mode, char *str, size_t size) {
  return m_ds_mrr.dsmrr_explain_info(mrr_mode, str, size);
}
