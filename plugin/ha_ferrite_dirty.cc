/*
 * READ UNCOMMITTED: does the row still belong to the index entry through which it was found?
 *
 * An entry and its row are read one after the other, and without a snapshot the row may change in
 * between. The server relies on an answer: it takes a pushed index condition for checked, and ends
 * a range at a row that lies beyond it.
 *
 * Rules of this module
 * - The entry's key is encoded again from the row that was read. If it differs, the row is skipped:
 * its own entry is met, or is not in the range.
 * - Columns that the key follows from are read besides those that the statement wants; virtual ones
 *   are computed, level by level. The server computes them only later.
 * - Rows that are found by position (multi-range reads, filesort) have no entry to compare with.
 */
#include "ha_ferrite.h"

using ferrite::Column;
using ferrite::KeyPart;

/* How to compare, and what has to be read for it besides what is wanted. */
void ha_ferrite::plan_comparison() {
  bitmap_clear_all(&m_compared);
  add_key_columns(*m_plan_index, &m_compared);
  m_comparison = Comparison::kAsRead;
  for (const Column &c : layout().rows.columns()) {
    const Field *field = table->field[c.field_no];
    if (!is_virtual(field) || !bitmap_is_set(&m_compared, c.field_no)) continue;
    m_comparison = Comparison::kComputed;
    if (can_compute(field)) continue;
    m_comparison = Comparison::kNone;
    return;
  }
  for (const Column &c : layout().rows.columns()) {
    if (m_plan_wanted[c.field_no] || !bitmap_is_set(&m_compared, c.field_no)) continue;
    m_plan_wanted[c.field_no] = 1;
    plan_column(c);
  }
}

/* 0, or HA_ERR_RECORD_DELETED: the entry with that key is of another state of the row. */
int ha_ferrite::compare_entry(const fe_slice &key, const uchar *record) {
  if (!m_compare.reserve(layout().max_key + 16)) return HA_ERR_OUT_OF_MEM;
  const auto compare = [&](const uchar *row) {
    const uint8_t *begin = m_compare.data();
    const uint8_t *end =
        ferrite::encode_key(*m_plan_index, row, m_compare.data(), m_scratch.data());
    const auto len = static_cast<size_t>(end - begin);
    DBUG_ASSERT(len <= layout().max_key);
    return key.len < len || memcmp(key.ptr, begin, len) ? HA_ERR_RECORD_DELETED : 0;
  };
  if (m_comparison == Comparison::kAsRead) return compare(record);
  const GeneratedInUse place(this);
  BlobsAside of_server(table, place->blobs.data());
  MY_BITMAP *read_set = tmp_use_all_columns(table, &table->read_set);
  const uchar *row = compute_generated(record, &m_compared, &place->new_image);
  tmp_restore_column_map(&table->read_set, read_set);
  return compare(row);
}
