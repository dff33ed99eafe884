/*
 * information_schema.FERRITE_SYS_FOREIGN and FERRITE_SYS_FOREIGN_COLS: the foreign keys of all
 * tables, whose parents may be missing. Columns and numbers are those of INNODB_SYS_FOREIGN and
 * INNODB_SYS_FOREIGN_COLS. FERRITE_FOREIGN_KEY_ERRORS: the latest rows that were refused. The rules
 * of ferrite_i_s.cc hold here too.
 */
#include <string>
#include <vector>

#include "ferrite.h"
#include "ferrite_hton.h"
#include "ferrite_i_s.h"
#include "ferrite_violation.h"

namespace {

constexpr uint max_name =
    1024; /* "db/name", each up to 64 characters of 5 bytes as files are called */

struct ForeignKey {
  std::string id, child, parent;
  uint64_t type;
  std::vector<std::pair<std::string, std::string>> columns;
};

/* InnoDB's bits. */
uint64_t type_bits(const fe_fk_def &def) {
  static constexpr uint64_t of_delete[] = {0, 16, 1, 2};
  static constexpr uint64_t of_update[] = {0, 32, 4, 8};
  return (def.on_delete < 4 ? of_delete[def.on_delete] : 0) |
         (def.on_update < 4 ? of_update[def.on_update] : 0);
}

void collect(void *arg, const fe_fk_row *row) {
  const std::string child = row->child;
  ForeignKey key;
  key.id = child.substr(0, child.rfind('/') + 1) + row->def.name;
  key.child = child;
  key.parent = row->def.parent;
  key.type = type_bits(row->def);
  for (uint32_t i = 0; i < row->def.column_count; i++)
    key.columns.emplace_back(row->def.columns[i].own, row->def.columns[i].other);
  static_cast<std::vector<ForeignKey> *>(arg)->push_back(std::move(key));
}

void put(Field *field, const std::string &text) {
  field->set_notnull();
  field->store(text.data(), text.size(), system_charset_info);
}

void put(Field *field, uint64_t value) {
  field->set_notnull();
  field->store(static_cast<longlong>(value), true);
}

int fill_foreign(THD *thd, TABLE_LIST *tables, Item *) {
  if (check_global_access(thd, PROCESS_ACL)) return 1;
  if (!ferrite_engine) return 0;
  std::vector<ForeignKey> keys;
  fe_each_foreign_key(ferrite_engine, collect, &keys);
  TABLE *table = tables->table;
  for (const ForeignKey &key : keys) {
    put(table->field[0], key.id);
    put(table->field[1], key.child);
    put(table->field[2], key.parent);
    put(table->field[3], static_cast<uint64_t>(key.columns.size()));
    put(table->field[4], key.type);
    if (schema_table_store_record(thd, table)) return 1;
  }
  return 0;
}

int fill_foreign_cols(THD *thd, TABLE_LIST *tables, Item *) {
  if (check_global_access(thd, PROCESS_ACL)) return 1;
  if (!ferrite_engine) return 0;
  std::vector<ForeignKey> keys;
  fe_each_foreign_key(ferrite_engine, collect, &keys);
  TABLE *table = tables->table;
  for (const ForeignKey &key : keys) {
    uint64_t pos = 0;
    for (const auto &column : key.columns) {
      put(table->field[0], key.id);
      put(table->field[1], column.first);
      put(table->field[2], column.second);
      put(table->field[3], pos++);
      if (schema_table_store_record(thd, table)) return 1;
    }
  }
  return 0;
}

void put_time(THD *thd, Field *field, uint64_t unix_us) {
  MYSQL_TIME t;
  thd->variables.time_zone->gmt_sec_to_TIME(&t, static_cast<my_time_t>(unix_us / 1000000));
  t.second_part = unix_us % 1000000;
  field->set_notnull();
  field->store_time(&t);
}

int fill_errors(THD *thd, TABLE_LIST *tables, Item *) {
  if (check_global_access(thd, PROCESS_ACL)) return 1;
  TABLE *table = tables->table;
  for (const ferrite::Violation &one : ferrite::violations()) {
    put(table->field[0], one.number);
    put_time(thd, table->field[1], one.at_unix_us);
    put(table->field[2], one.thread_id);
    put(table->field[3], one.trx_id);
    put(table->field[4], one.in_child ? "NO PARENT" : "HAS CHILDREN");
    put(table->field[5], one.child);
    put(table->field[6], one.parent);
    put(table->field[7], one.name);
    put(table->field[8], one.query);
    put(table->field[9], one.text);
    if (schema_table_store_record(thd, table)) return 1;
  }
  return 0;
}

}  // namespace

namespace Show {

static ST_FIELD_INFO ferrite_foreign_key_errors_fields[] = {
    Column("number", ULonglong(), NOT_NULL),
    Column("found", Datetime(6), NOT_NULL),
    Column("thread_id", ULonglong(), NOT_NULL),
    Column("trx_id", ULonglong(), NOT_NULL),
    Column("reason", Varchar(16), NOT_NULL),
    Column("child_table", Varchar(max_name), NOT_NULL),
    Column("parent_table", Varchar(max_name), NOT_NULL),
    Column("constraint_name", Varchar(max_name), NOT_NULL),
    Column("query", Varchar(1024), NOT_NULL),
    Column("message", Varchar(512), NOT_NULL),
    CEnd()};

static ST_FIELD_INFO ferrite_sys_foreign_fields[] = {
    Column("ID", Varchar(max_name), NOT_NULL),
    Column("FOR_NAME", Varchar(max_name), NOT_NULL),
    Column("REF_NAME", Varchar(max_name), NOT_NULL),
    Column("N_COLS", ULonglong(), NOT_NULL),
    Column("TYPE", ULonglong(), NOT_NULL),
    CEnd()};

static ST_FIELD_INFO ferrite_sys_foreign_cols_fields[] = {
    Column("ID", Varchar(max_name), NOT_NULL), Column("FOR_COL_NAME", Varchar(max_name), NOT_NULL),
    Column("REF_COL_NAME", Varchar(max_name), NOT_NULL), Column("POS", ULonglong(), NOT_NULL),
    CEnd()};

}  // namespace Show

int ferrite_i_s_foreign_init(void *p) {
  ST_SCHEMA_TABLE *schema = static_cast<ST_SCHEMA_TABLE *>(p);
  schema->fields_info = Show::ferrite_sys_foreign_fields;
  schema->fill_table = fill_foreign;
  return 0;
}

int ferrite_i_s_foreign_cols_init(void *p) {
  ST_SCHEMA_TABLE *schema = static_cast<ST_SCHEMA_TABLE *>(p);
  schema->fields_info = Show::ferrite_sys_foreign_cols_fields;
  schema->fill_table = fill_foreign_cols;
  return 0;
}

int ferrite_i_s_foreign_errors_init(void *p) {
  ST_SCHEMA_TABLE *schema = static_cast<ST_SCHEMA_TABLE *>(p);
  schema->fields_info = Show::ferrite_foreign_key_errors_fields;
  schema->fill_table = fill_errors;
  return 0;
}
