/*
 * information_schema.FERRITE_MEMORY: the core's memory by parts. The rules of ferrite_i_s.cc hold
 * here too.
 */
#include "ferrite_i_s.h"
#include "ferrite_i_s_rows.h"

using namespace ferrite;

namespace {

struct Part {
  fe_memory_row row;
  std::string name, meaning;
};

void collect_part(void *arg, const fe_memory_row *row) {
  static_cast<std::vector<Part> *>(arg)->push_back(
      {*row, copy_of(row->part), copy_of(row->meaning)});
}

int fill_memory(THD *thd, TABLE_LIST *tables, Item *) {
  return fill_rows<Part>(thd, tables, fe_each_memory, collect_part,
                         [](Field **f, const Part &part) {
                           put(f[0], part.name);
                           put(f[1], part.row.bytes);
                           put_or_null(f[2], part.row.limit_bytes);
                           put(f[3], part.meaning);
                         });
}

}  // namespace

namespace Show {

static ST_FIELD_INFO ferrite_memory_fields[] = {Column("part", Varchar(32), NOT_NULL),
                                                Column("bytes", ULonglong(), NOT_NULL),
                                                Column("limit_bytes", ULonglong(), NULLABLE),
                                                Column("meaning", Varchar(128), NOT_NULL), CEnd()};

}  // namespace Show

int ferrite_i_s_memory_init(void *p) {
  return init_table(p, Show::ferrite_memory_fields, fill_memory);
}
