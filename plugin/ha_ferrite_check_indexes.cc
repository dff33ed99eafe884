/*
 * CHECK TABLE: the trees, and whether indexes and rows say the same.
 *
 * | words | what is looked at |
 * | --- | --- |
 * | QUICK | the trees, each by itself |
 * | none | and the entries of each index against those that the rows should have: their number, and
 *          the sum of what each hashes to. Both are read in order, so that it takes as long as
 *          reading the table and its indexes once, however small the buffer pool is |
 * | EXTENDED, or the sums differ | and each entry of each row, and the row of each entry, by its
 *          key: which one it is. EXTENDED: then foreign keys (ha_ferrite_check.cc) |
 *
 * Rules of this module
 * - One snapshot for rows and entries, whatever the statement's locks are.
 * - Nothing grows with the table. KILL is looked for at each row, and every kRowsBetweenLooks
 *   entries.
 */
#include "ha_ferrite.h"

#include <functional>
#include <string_view>

#include "ferrite_error.h"
#include "ferrite_hton.h"

using ferrite::Index;

static constexpr uint kRowsBetweenLooks = 1024;

/* Of check_indexes(): readable, but not the same. */
static constexpr int kEntriesDiffer = 1;

static void report_fault(void *thd, const char *text) {
  ferrite_warn(static_cast<THD *>(thd), ER_NOT_KEYFILE, "Ferrite: %s", text);
}

/* ---- sums ---------------------------------------------------------------------------- */

static std::string_view text_of(const fe_slice &bytes) {
  return {reinterpret_cast<const char *>(bytes.ptr), bytes.len};
}

/* Of an entry; the sum of many says the same in whatever order they come. */
static uint64_t hash_of(const fe_slice &key, const fe_slice &payload) {
  const std::hash<std::string_view> hash;
  uint64_t mixed = hash(text_of(key)) * 0x9e3779b97f4a7c15 + hash(text_of(payload));
  mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93;
  return mixed ^ mixed >> 32;
}

void ha_ferrite::EntrySum::add(const fe_slice &key, const fe_slice &payload) {
  count++;
  sum += hash_of(key, payload);
}

/* ---- CHECK TABLE --------------------------------------------------------------------- */

int ha_ferrite::check(THD *thd, HA_CHECK_OPT *check_opt) {
  const bool quick = check_opt->flags & T_QUICK, extended = check_opt->flags & T_EXTEND;
  m_lock = FE_READ_SNAPSHOT;
  if (m_dirty) {
    /* What others have not committed is no fault. */
    m_dirty = false;
    fe_stmt_begin(m_session, FE_READ_COMMITTED);
  }
  /* Trees, rows, entries, foreign keys. */
  ferrite::Progress progress(thd, quick ? 1 : extended ? 4 : 3);
  int found = check_trees(thd, extended);
  if (found != HA_ADMIN_OK || quick) return found;
  progress.next_stage();
  found = check_indexes(thd, &progress, extended);
  if (found == kEntriesDiffer && !extended) {
    /* Which one it is. */
    found = check_trees(thd, true);
    if (found == HA_ADMIN_OK) found = check_indexes(thd, &progress, true);
    if (found == HA_ADMIN_OK) {
      report_fault(thd, "indexes had other entries than the rows when they were read first");
      return HA_ADMIN_CORRUPT;
    }
  }
  if (found == kEntriesDiffer) return HA_ADMIN_CORRUPT;
  if (found != HA_ADMIN_OK || !extended) return found;
  progress.next_stage();
  return check_foreign_keys(thd);
}

/* `with_rows`: whether each entry has its row, too. */
int ha_ferrite::check_trees(THD *thd, bool with_rows) {
  const fe_code rc = fe_table_check(m_session, m_share->table, !with_rows, report_fault, thd);
  if (rc == FE_OK) return HA_ADMIN_OK;
  if (rc == FE_CORRUPT) return HA_ADMIN_CORRUPT;
  if (rc != FE_INTERRUPTED) report_fault(thd, fe_last_error());
  return HA_ADMIN_FAILED;
}

/* Rows cannot be read to their end. Only damage is a fault of the table: a snapshot that was ended,
   no memory or a disk that does not answer says nothing of it. */
static int answer_of_failed(THD *thd, int err) {
  DBUG_ASSERT(err && err != HA_ERR_END_OF_FILE);
  if (err == HA_ERR_CRASHED) return HA_ADMIN_CORRUPT;
  if (err != HA_ERR_ABORTED_BY_USER)
    report_fault(thd, err == HA_ERR_OUT_OF_MEM ? "out of memory" : fe_last_error());
  return HA_ADMIN_FAILED;
}

/* What an index must have for the row. `by_key`: every entry is looked up; the bytes must be equal.
 */
int ha_ferrite::check_row_entries(const uchar *record, std::vector<CheckedIndex> *checked,
                                  ferrite::Buffer *whole, bool by_key, uint *faults) {
  for (const Index &index : layout().indexes) {
    if (!index.no) continue;
    fe_entry entry;
    encode_entry(index, record, m_entries.data(), &entry);
    /* The primary key of an imported file may be longer than the table's can be. */
    if (!whole->reserve(entry.key.len + m_row_pk.size())) return HA_ERR_OUT_OF_MEM;
    memcpy(whole->data(), entry.key.ptr, entry.key.len);
    memcpy(whole->data() + entry.key.len, m_row_pk.data(), m_row_pk.size());
    whole->set_size(entry.key.len + m_row_pk.size());
    CheckedIndex &state = (*checked)[index.no];
    state.of_rows.add(whole->slice(), entry.payload);
    if (!by_key) continue;
    fe_row found;
    fe_code rc = fe_cursor_seek(state.cursor, whole->slice(), FE_SEEK_EXACT, 0, &found);
    const bool missing = rc == FE_NOT_FOUND || rc == FE_END;
    if (rc != FE_OK && !missing) return error(rc);
    const bool same = !missing && found.payload.len == entry.payload.len &&
                      !memcmp(found.payload.ptr, entry.payload.ptr, entry.payload.len);
    if (same) continue;
    if (++*faults <= 10)
      ferrite_warn(ha_thd(), ER_NOT_KEYFILE, "Ferrite: index %s %s an entry of a row",
                   table->key_info[index.server_no].name.str,
                   missing ? "misses" : "has other column values in");
  }
  return 0;
}

/* HA_ERR_END_OF_FILE: of all rows. */
int ha_ferrite::check_rows(std::vector<CheckedIndex> *checked, ferrite::Progress *progress,
                           bool by_key, uint *faults) {
  ferrite::Buffer whole; /* key of an entry, the primary key's included */
  if (!whole.reserve(layout().max_key + 16)) return HA_ERR_OUT_OF_MEM;
  ulonglong rows = 0;
  int err = ha_rnd_init(true);
  while (!err && !(err = ha_rnd_next(table->record[0]))) {
    err = check_row_entries(table->record[0], checked, &whole, by_key, faults);
    if (++rows % kRowsBetweenLooks == 0) progress->report(rows, stats.records);
    /* Each row: by key it may take many reads. */
    if (ferrite::is_killed(ha_thd())) err = HA_ERR_ABORTED_BY_USER;
  }
  ha_rnd_end();
  return err;
}

/* FE_END: all were seen. A cursor looks for KILL only where it finds nothing. */
fe_code ha_ferrite::sum_entries(const Index &index, CheckedIndex *state,
                                ferrite::Progress *progress) {
  const ulonglong rows = state->of_rows.count;
  const ulonglong before = (index.no - 1) * rows, all = (layout().indexes.size() - 1) * rows;
  fe_row row;
  fe_code rc = fe_cursor_first(state->cursor, &row);
  for (; rc == FE_OK; rc = fe_cursor_next(state->cursor, &row)) {
    state->of_entries.add(row.key, row.payload);
    if (state->of_entries.count % kRowsBetweenLooks != 0) continue;
    progress->report(before + state->of_entries.count, all);
    if (ferrite::is_killed(ha_thd())) return FE_INTERRUPTED;
  }
  return rc;
}

/* The rest of what an index is found to have: only `by_key` is it told. */
bool ha_ferrite::has_other_entries(const Index &index, const CheckedIndex &state, bool by_key,
                                   uint faults) const {
  const char *name = table->key_info[index.server_no].name.str;
  const ulonglong entries = state.of_entries.count, rows = state.of_rows.count;
  if (entries == rows && state.of_entries.sum == state.of_rows.sum) return false;
  if (!by_key) return true;
  if (entries != rows)
    ferrite_warn(ha_thd(), ER_NOT_KEYFILE, "Ferrite: index %s has %llu entries for %llu rows", name,
                 entries, rows);
  else if (!faults)
    ferrite_warn(ha_thd(), ER_NOT_KEYFILE, "Ferrite: index %s has other entries than the rows",
                 name);
  return true;
}

/* HA_ADMIN_OK, kEntriesDiffer (of which without `by_key` nothing is said), or what keeps it from
   telling. */
int ha_ferrite::check_indexes(THD *thd, ferrite::Progress *progress, bool by_key) {
  info(HA_STATUS_VARIABLE | HA_STATUS_NO_LOCK);
  if (prepare_write_buffers()) return HA_ADMIN_FAILED;
  std::vector<CheckedIndex> checked(layout().indexes.size());
  for (const Index &index : layout().indexes)
    if (index.no && cursor_for(index.no, &checked[index.no].cursor)) return HA_ADMIN_FAILED;
  uint faults = 0;
  MY_BITMAP *old_read = tmp_use_all_columns(table, &table->read_set);
  const int err = check_rows(&checked, progress, by_key, &faults);
  tmp_restore_column_map(&table->read_set, old_read);
  if (err != HA_ERR_END_OF_FILE) return answer_of_failed(thd, err);
  progress->next_stage();
  bool differ = faults != 0;
  for (const Index &index : layout().indexes) {
    if (!index.no) continue;
    CheckedIndex &state = checked[index.no];
    const fe_code rc = sum_entries(index, &state, progress);
    if (rc == FE_INTERRUPTED) return HA_ADMIN_FAILED;
    if (rc != FE_END) {
      report_fault(thd, fe_last_error());
      return HA_ADMIN_FAILED;
    }
    differ |= has_other_entries(index, state, by_key, faults);
  }
  return differ ? kEntriesDiffer : HA_ADMIN_OK;
}
