/*
 * ALTER TABLE that adds or drops indexes without a copy of the table.
 *
 * Indexes to be added are built while the server keeps writers away (readers go on): every row
 * is read by a snapshot, its entries go to the core, which sorts them and fills the trees. The
 * definition changes in commit_inplace_alter_table(), when nobody uses the table, together
 * with everything else that the statement changes. Until then nothing has happened; a build
 * that comes to nothing goes with its context.
 *
 * Not done here, so the table is copied: another primary key, keys on virtual columns, keys that
 * the server hashes or checks itself, partitions, and whatever also changes rows.
 */
#include "ha_ferrite.h"

#include "ferrite_error.h"
#include "ferrite_foreign.h"
#include "ferrite_hton.h"

using ferrite::Column;
using ferrite::Index;
using ferrite::IndexChange;
using ferrite::KeyPart;
using ferrite::Layout;
using ferrite::same_name;

/* ---- which changes ----------------------------------------------------------------- */

static constexpr alter_table_operations kAdded =
    ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;

/* A record of one of the two tables can be read as one of the other. */
static bool same_records(const TABLE *table, const Layout &now, const TABLE *altered_table,
                         const Layout &altered) {
  const auto &before = now.rows.columns(), &after = altered.rows.columns();
  if (table->s->reclength != altered_table->s->reclength || before.size() != after.size())
    return false;
  for (size_t i = 0; i < before.size(); i++)
    if (before[i].offset != after[i].offset || before[i].null_mask != after[i].null_mask)
      return false;
  return now.columns_fingerprint() == altered.columns_fingerprint();
}

static const char *name_of(const TABLE *table, const Index &index) {
  return table->key_info[index.server_no].name.str;
}

static bool is_added(const Alter_inplace_info *info, const char *name) {
  for (uint i = 0; i < info->index_add_count; i++)
    if (same_name(info->key_info_buffer[info->index_add_buffer[i]].name.str, name)) return true;
  return false;
}

static bool is_dropped(const Alter_inplace_info *info, const char *name) {
  for (uint i = 0; i < info->index_drop_count; i++)
    if (same_name(info->index_drop_buffer[i]->name.str, name)) return true;
  return false;
}

/* Can its entries be computed from a row as the engine reads it, and does the engine alone check
 * it? */
static bool can_build(const TABLE *altered_table, const Index &index, size_t pk_bytes) {
  const KEY &key = altered_table->key_info[index.server_no];
  if (ferrite::is_fulltext(key) || ferrite::is_spatial(key)) return false;
  if (key.algorithm == HA_KEY_ALG_LONG_HASH || key.without_overlaps || index.has_virtual)
    return false;
  return index.ordinary_bytes() + pk_bytes <= FE_MAX_KEY_BYTES;
}

/* Where each index of the altered table comes from; false: the table has to be copied. */
bool ha_ferrite::plan_indexes(const TABLE *altered_table, const Alter_inplace_info *info,
                              IndexChange *change) const {
  const Layout &now = layout();
  Layout &altered = change->altered;
  altered.init(altered_table);
  if (now.hidden_row_id != altered.hidden_row_id ||
      !same_records(table, now, altered_table, altered))
    return false;
  if (now.index_fingerprint(0) != altered.index_fingerprint(0)) return false;
  const Index *primary = altered.primary();
  const size_t pk_bytes = primary ? primary->ordinary_bytes() : ferrite::kRowIdBytes;
  change->sources.assign(1, 0);
  for (const Index &index : altered.indexes) {
    if (!index.no) continue;
    const char *name = name_of(altered_table, index);
    if (is_added(info, name)) {
      if (!can_build(altered_table, index, pk_bytes)) return false;
      change->sources.push_back(-1 - static_cast<int32_t>(change->built.size()));
      change->built.push_back(index.no);
      continue;
    }
    uint32_t from = 0;
    for (const Index &old : now.indexes)
      if (old.no && same_name(name_of(table, old), name) && !is_dropped(info, name)) from = old.no;
    if (!from || now.index_fingerprint(from) != altered.index_fingerprint(index.no)) return false;
    change->sources.push_back(static_cast<int32_t>(from));
  }
  return true;
}

enum_alter_inplace_result ha_ferrite::can_change_indexes(TABLE *altered_table,
                                                         Alter_inplace_info *info) {
  const TABLE_SHARE *s = altered_table->s;
  if (table->part_info || altered_table->part_info || m_sequence || s->long_unique_table ||
      s->period.unique_keys)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (info->ignore && info->handler_flags & ALTER_ADD_UNIQUE_INDEX)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  IndexChange change;
  if (!plan_indexes(altered_table, info, &change)) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  for (uint32_t no : change.built)
    if (ferrite::refuse_unordered_key(change.altered.indexes[no])) return HA_ALTER_ERROR;
  if (change.built.empty()) return HA_ALTER_INPLACE_NOCOPY_NO_LOCK;
  /* The server's own copy lets writers go on, a build here does not: who has not asked for it, or
     for a lock that it needs, keeps writing. */
  if (ferrite::kCopiesOnline) {
    const auto lock = info->alter_info->requested_lock;
    const auto algorithm = info->alter_info->algorithm(ha_thd());
    const bool locked = lock == Alter_info::ALTER_TABLE_LOCK_SHARED ||
                        lock == Alter_info::ALTER_TABLE_LOCK_EXCLUSIVE;
    if (!locked && (algorithm == Alter_info::ALTER_TABLE_ALGORITHM_DEFAULT ||
                    algorithm == Alter_info::ALTER_TABLE_ALGORITHM_COPY))
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  return HA_ALTER_INPLACE_NOCOPY_LOCK;
}

/* ---- the build --------------------------------------------------------------------- */

IndexChange::~IndexChange() { fe_index_build_close(build); }

bool ha_ferrite::prepare_inplace_alter_table(TABLE *altered_table, Alter_inplace_info *info) {
  if (!(info->handler_flags & kIndexChanges)) return false;
  IndexChange *change = new (ha_thd()->mem_root) IndexChange;
  if (!change) return true;
  info->handler_ctx = change;
  if (plan_indexes(altered_table, info, change)) return false;
  my_error(ER_INTERNAL_ERROR, MYF(0), "Ferrite: the indexes of the altered table are not known");
  return true;
}

bool ha_ferrite::inplace_alter_table(TABLE *altered_table, Alter_inplace_info *info) {
  IndexChange *change = static_cast<IndexChange *>(info->handler_ctx);
  if (!change || change->built.empty()) return false;
  fe_dup_info dup;
  const int err = build_indexes(altered_table, change, &dup);
  if (!err) return false;
  if (err == HA_ERR_FOUND_DUPP_KEY)
    report_duplicate(altered_table, *change, dup);
  else
    print_error(err, MYF(0));
  return true;
}

int ha_ferrite::build_indexes(TABLE *altered_table, IndexChange *change, fe_dup_info *dup) {
  if (!m_session) begin_statement(ha_thd());
  std::vector<fe_index_def> defs;
  for (uint32_t no : change->built) {
    const Index &index = change->altered.indexes[no];
    fe_index_def def;
    def.name = name_of(altered_table, index);
    def.flags = index.unique ? FE_INDEX_UNIQUE : 0;
    def.key_parts = static_cast<uint32_t>(index.parts.size());
    defs.push_back(def);
  }
  close_cursors();
  fe_code rc = fe_index_build_begin(m_session, m_share->table, defs.data(),
                                    static_cast<uint32_t>(defs.size()), ha_thd(),
                                    ferrite_lock_wait_ms(ha_thd()), &change->build);
  if (rc != FE_OK) return ferrite_table_error(rc, ha_thd());
  ferrite::Progress progress(ha_thd(), 2);
  if (int err = add_all_rows(change, &progress)) return err;
  progress.next_stage();
  rc = fe_index_build_fill(m_session, change->build, dup);
  if (rc == FE_DUPLICATE) return HA_ERR_FOUND_DUPP_KEY;
  return rc == FE_OK ? 0 : error(rc);
}

/* The columns that entries of the new indexes are made of. */
static void mark_columns(const IndexChange &change, MY_BITMAP *map) {
  bitmap_clear_all(map);
  for (uint32_t no : change.built) {
    const Index &index = change.altered.indexes[no];
    for (const KeyPart &part : index.parts) bitmap_set_bit(map, part.column.field_no);
    for (uint16_t column : index.payload) bitmap_set_bit(map, column);
  }
}

int ha_ferrite::add_all_rows(IndexChange *change, ferrite::Progress *progress) {
  /* One snapshot, whatever the statement's locks and isolation are: nobody writes. */
  m_lock = FE_READ_SNAPSHOT;
  if (m_dirty) {
    m_dirty = false;
    fe_stmt_begin(m_session, FE_READ_COMMITTED);
  }
  if (!m_entries.reserve(change->altered.max_entries + 16) ||
      !m_scratch.reserve(change->altered.max_scratch + 16))
    return HA_ERR_OUT_OF_MEM;
  MY_BITMAP *old_read = table->read_set;
  mark_columns(*change, &table->tmp_set);
  table->read_set = &table->tmp_set;
  constexpr uint kRowsBetweenLooks = 1024;
  ulonglong rows = 0;
  int err = ha_rnd_init(true);
  while (!err && !(err = ha_rnd_next(table->record[0]))) {
    err = add_row(change);
    if (err || ++rows % kRowsBetweenLooks != 0) continue;
    progress->report(rows, stats.records);
    if (ferrite::is_killed(ha_thd())) err = HA_ERR_ABORTED_BY_USER;
  }
  if (inited == RND) ha_rnd_end();
  table->read_set = old_read;
  return err == HA_ERR_END_OF_FILE ? 0 : err;
}

int ha_ferrite::add_row(IndexChange *change) {
  const uchar *record = table->record[0];
  fe_entry entries[MAX_KEY];
  uint32_t count = 0;
  uint8_t *to = m_entries.data();
  for (uint32_t no : change->built) {
    const Index &index = change->altered.indexes[no];
    to = ferrite::encode_entry(change->altered, index, record, to, m_scratch.data(),
                               &entries[count]);
    entries[count].index_no = count;
    count++;
  }
  fe_code rc = fe_index_build_add(change->build, m_row_pk.slice(), entries, count);
  return rc == FE_OK ? 0 : error(rc);
}

/* The message names the values, so the row is read once more, with all its columns. */
void ha_ferrite::report_duplicate(TABLE *altered_table, const IndexChange &change,
                                  const fe_dup_info &dup) {
  const Index &index = change.altered.indexes[change.built[dup.index_no]];
  MY_BITMAP *old_read = tmp_use_all_columns(table, &table->read_set);
  fe_row row;
  int err = ha_rnd_init(false);
  if (!err) {
    check_plan();
    fe_code rc = fe_row_get(m_cursor, {dup.pk, dup.pk_len}, &row);
    err = rc == FE_OK ? deliver_clustered(row, table->record[0]) : error(rc);
    /* Values of blobs live as long as this read. */
    memcpy(altered_table->record[0], table->record[0], table->s->reclength);
    if (!err) print_keydup_error(altered_table, &altered_table->key_info[index.server_no], MYF(0));
    ha_rnd_end();
  }
  tmp_restore_column_map(&table->read_set, old_read);
  if (err) print_error(err, MYF(0));
}
