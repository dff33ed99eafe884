/*
 * information_schema.FERRITE_SYS_FOREIGN and FERRITE_SYS_FOREIGN_COLS: the foreign keys of all
 * tables, whose parents may be missing. Columns and numbers are those of INNODB_SYS_FOREIGN and
 * INNODB_SYS_FOREIGN_COLS. FERRITE_FOREIGN_KEY_ERRORS: the latest rows that were refused. The rules
 * of ferrite_i_s.cc hold here too.
 */
#include "ferrite_i_s.h"
#include "ferrite_i_s_rows.h"
#include "ferrite_violation.h"

using namespace ferrite;

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

ForeignKey key_of(const fe_fk_row *row) {
  const std::string child = row->child;
  ForeignKey key;
  key.id = child.substr(0, child.rfind('/') + 1) + row->def.name;
  key.child = child;
  key.parent = row->def.parent;
  key.type = type_bits(row->def);
  for (uint32_t i = 0; i < row->def.column_count; i++)
    key.columns.emplace_back(row->def.columns[i].own, row->def.columns[i].other);
  return key;
}

void collect(void *arg, const fe_fk_row *row) {
  static_cast<std::vector<ForeignKey> *>(arg)->push_back(key_of(row));
}

int fill_foreign(THD *thd, TABLE_LIST *tables, Item *) {
  return fill_rows<ForeignKey>(thd, tables, fe_each_foreign_key, collect,
                               [](Field **f, const ForeignKey &key) {
                                 put(f[0], key.id);
                                 put(f[1], key.child);
                                 put(f[2], key.parent);
                                 put(f[3], static_cast<uint64_t>(key.columns.size()));
                                 put(f[4], key.type);
                               });
}

/* A column of a constraint. */
struct KeyColumn {
  std::string id, own, other;
  uint64_t pos;
};

void collect_columns(void *arg, const fe_fk_row *row) {
  const ForeignKey key = key_of(row);
  uint64_t pos = 0;
  for (const auto &column : key.columns)
    static_cast<std::vector<KeyColumn> *>(arg)->push_back(
        {key.id, column.first, column.second, pos++});
}

int fill_foreign_cols(THD *thd, TABLE_LIST *tables, Item *) {
  return fill_rows<KeyColumn>(thd, tables, fe_each_foreign_key, collect_columns,
                              [](Field **f, const KeyColumn &column) {
                                put(f[0], column.id);
                                put(f[1], column.own);
                                put(f[2], column.other);
                                put(f[3], column.pos);
                              });
}

int fill_errors(THD *thd, TABLE_LIST *tables, Item *) {
  if (may_not_look(thd)) return 1;
  return store_rows(thd, tables, violations(), [thd](Field **f, const Violation &one) {
    put(f[0], one.number);
    put_time_us(thd, f[1], one.at_unix_us);
    put(f[2], one.thread_id);
    put(f[3], one.trx_id);
    put(f[4], one.in_child ? "NO PARENT" : "HAS CHILDREN");
    put(f[5], one.child);
    put(f[6], one.parent);
    put(f[7], one.name);
    put(f[8], one.query);
    put(f[9], one.text);
  });
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
  return init_table(p, Show::ferrite_sys_foreign_fields, fill_foreign);
}

int ferrite_i_s_foreign_cols_init(void *p) {
  return init_table(p, Show::ferrite_sys_foreign_cols_fields, fill_foreign_cols);
}

int ferrite_i_s_foreign_errors_init(void *p) {
  return init_table(p, Show::ferrite_foreign_key_errors_fields, fill_errors);
}
