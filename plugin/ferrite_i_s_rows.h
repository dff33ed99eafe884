/*
 * What the tables of information_schema have in common: values into fields, and rows from what the
 * core or the plugin hands out.
 *
 * Rules
 * - PROCESS is required; without it a query fails, as with InnoDB's tables.
 * - Each table is a plugin of its own: the engine may be closed at any moment but while the core is
 *   called (FerriteUse).
 */
#ifndef FERRITE_I_S_ROWS_H
#define FERRITE_I_S_ROWS_H

#include "server_compat.h"

#include <initializer_list>
#include <string>
#include <vector>

#include "ferrite.h"
#include "ferrite_hton.h"

namespace ferrite {

/* Longest text of a query. */
constexpr uint max_query = 1024;

/* ---- storing values ------------------------------------------------------------------- */

inline void put(Field *field, uint64_t value) {
  field->set_notnull();
  field->store(static_cast<longlong>(value), true);
}

inline void put(Field *field, const char *text, size_t len) {
  field->set_notnull();
  field->store(text, len, system_charset_info);
}

inline void put(Field *field, const std::string &text) { put(field, text.data(), text.size()); }

inline void put_time(THD *thd, Field *field, uint64_t unix_s, uint64_t us = 0) {
  MYSQL_TIME t;
  thd->variables.time_zone->gmt_sec_to_TIME(&t, static_cast<my_time_t>(unix_s));
  t.second_part = us;
  field->set_notnull();
  field->store_time(&t);
}

inline void put_time_us(THD *thd, Field *field, uint64_t unix_us) {
  put_time(thd, field, unix_us / 1000000, unix_us % 1000000);
}

inline void put_null(Field **fields, std::initializer_list<uint> columns) {
  for (uint column : columns) fields[column]->set_null();
}

inline void put_or_null(Field *field, uint64_t value) {
  if (value)
    put(field, value);
  else
    field->set_null();
}

inline void put_or_null(Field *field, const std::string &text) {
  if (text.empty())
    field->set_null();
  else
    put(field, text);
}

/* Texts of the core live only as long as its call; a missing one is empty. */
inline std::string copy_of(const char *text) { return text ? text : ""; }

inline std::string copy_of(fe_slice slice) {
  return slice.ptr ? std::string(reinterpret_cast<const char *>(slice.ptr), slice.len)
                   : std::string();
}

/* ---- rows ------------------------------------------------------------------------------ */

/* Raises the error that names the missing privilege. */
inline bool may_not_look(THD *thd) { return check_global_access(thd, PROCESS_ACL); }

/* One row for each of the list; `put_row` fills the fields. */
template <class Row, class Put>
int store_rows(THD *thd, TABLE_LIST *tables, const std::vector<Row> &list, Put put_row) {
  TABLE *table = tables->table;
  for (const Row &row : list) {
    if (thd->check_killed()) return 1;
    restore_record(table, s->default_values);
    put_row(table->field, row);
    if (schema_table_store_record(thd, table)) return 1;
  }
  return 0;
}

/* The same of what the core tells: `each` calls `collect`, which only copies, under the core's
   locks; rows are stored afterwards. */
template <class Row, class Told, class Put>
int fill_rows(THD *thd, TABLE_LIST *tables,
              void (*each)(fe_engine *, void (*)(void *, const Told *), void *),
              void (*collect)(void *, const Told *), Put put_row) {
  if (may_not_look(thd)) return 1;
  std::vector<Row> list;
  {
    const FerriteUse use;
    if (!use) return 0;
    each(ferrite_engine, collect, &list);
  }
  return store_rows(thd, tables, list, put_row);
}

/* Of what the core tells: nothing in it points anywhere. */
template <class Told>
void collect_as_told(void *arg, const Told *row) {
  static_cast<std::vector<Told> *>(arg)->push_back(*row);
}

inline int init_table(void *p, ST_FIELD_INFO *fields, int (*fill)(THD *, TABLE_LIST *, Item *)) {
  ST_SCHEMA_TABLE *schema = static_cast<ST_SCHEMA_TABLE *>(p);
  schema->fields_info = fields;
  schema->fill_table = fill;
  return 0;
}

}  // namespace ferrite

#endif
