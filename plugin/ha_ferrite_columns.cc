/*
 * The columns that a change needs besides those that the server asks for.
 *
 * Rows that are changed are read with the columns of the read set alone. The server reads more of
 * the record in some statements than it has asked for, and an index entry takes more columns than
 * those of its key. What is not asked for here holds the default or another row's value.
 */
#include "ha_ferrite.h"

#include <partition_info.h>

using ferrite::Index;

namespace {
bool is_written(const TABLE *table, const Index &index) {
  for (const ferrite::KeyPart &part : index.parts)
    if (bitmap_is_set(table->write_set, part.column.field_no)) return true;
  return false;
}

bool is_update(THD *thd) {
  const int command = thd_sql_command(thd);
  return command == SQLCOM_UPDATE || command == SQLCOM_UPDATE_MULTI;
}

/* SET column = IGNORE keeps what the record holds, and DEFAULT as a parameter may be computed from
   other columns. Parameters with a value have its type. */
bool sets_without_value(THD *thd) {
  List_iterator_fast<Item> values(thd->lex->value_list);
  while (const Item *item = values++) {
    const Item::Type type = item->type();
    if (type == Item::CONTEXTUALLY_TYPED_VALUE_ITEM || type == Item::PARAM_ITEM) return true;
  }
  return false;
}

/* A row that may come to another partition is inserted there as it is in the record. */
bool may_move(const TABLE *table) {
#ifdef WITH_PARTITION_STORAGE_ENGINE
  return table->part_info &&
         bitmap_is_overlapping(&table->part_info->full_part_field_set, table->write_set);
#else
  return false;
#endif
}

/* The server looks for overlaps after each update, whatever it has changed. */
void mark_keys_without_overlaps(TABLE *table) {
  for (uint k = 0; k < table->s->keys; k++) {
    const KEY &key = table->key_info[k];
    if (!key.without_overlaps) continue;
    for (uint part = 0; part < key.user_defined_key_parts; part++)
      table->mark_column_with_deps(key.key_part[part].field);
  }
}
}  // namespace

/* External_lock() sets the mark, which does not come for temporary tables that LOCK TABLES has not
   named, or that a function has made. */
bool ha_ferrite::may_write() const {
  if (table->current_lock == F_WRLCK) return true;
  return table->s->tmp_table != NO_TMP_TABLE && table->in_use &&
         thd_sql_command(table->in_use) != SQLCOM_SELECT;
}

/* An entry ends with the primary key: when that changes, all columns of all keys are needed; when a
   key changes, the primary key, which the server leaves out of unique keys and of those on column
   prefixes. And indexed virtual columns, for every row that is changed. */
void ha_ferrite::mark_keys() {
  const Index *pk = layout().primary();
  const bool pk_written = pk && is_written(table, *pk);
  bool key_written = false;
  for (const Index &index : layout().indexes) {
    key_written |= is_written(table, index);
    if (!pk_written && !layout().has_indexed_virtual) continue;
    for (const ferrite::KeyPart &part : index.parts) {
      Field *field = table->field[part.column.field_no];
      if (pk_written || (!part.column.stored && field->vcol_info))
        table->mark_column_with_deps(field);
    }
  }
  if (!key_written || !pk) return;
  for (const ferrite::KeyPart &part : pk->parts)
    table->mark_column_with_deps(table->field[part.column.field_no]);
}

void ha_ferrite::column_bitmaps_signal() {
  if (!m_share || !may_write()) return;
  mark_keys();
  /* The table of a vector index is opened before it is anybody's. */
  THD *thd = table->in_use;
  if (!thd || !is_update(thd) || bitmap_is_clear_all(table->write_set)) return;
  if (table->s->period.unique_keys) mark_keys_without_overlaps(table);
  if (may_move(table) || sets_without_value(thd)) bitmap_set_all(table->read_set);
}
