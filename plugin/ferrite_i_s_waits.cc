/*
 * information_schema.FERRITE_WAITS, _LONG_WAITS and _STALLS: waits by reason, and the journal of
 * long ones. The rules of ferrite_i_s.cc hold here too.
 */
#include "ferrite_i_s.h"
#include "ferrite_i_s_rows.h"

using namespace ferrite;

namespace {

struct Wait {
  fe_wait_row row;
  std::string reason, meaning;
};

void collect_wait(void *arg, const fe_wait_row *row) {
  static_cast<std::vector<Wait> *>(arg)->push_back(
      {*row, copy_of(row->reason), copy_of(row->meaning)});
}

int fill_waits(THD *thd, TABLE_LIST *tables, Item *) {
  return fill_rows<Wait>(thd, tables, fe_each_wait, collect_wait, [](Field **f, const Wait &wait) {
    put(f[0], wait.reason);
    put(f[1], wait.row.count);
    put(f[2], wait.row.sum_us);
    put(f[3], wait.row.max_us);
    put(f[4], wait.row.p50_us);
    put(f[5], wait.row.p99_us);
    put(f[6], wait.meaning);
  });
}

struct LongWait {
  fe_long_wait_row row;
  std::string reason, thread, table, index, query;
};

void collect_long_wait(void *arg, const fe_long_wait_row *row) {
  static_cast<std::vector<LongWait> *>(arg)->push_back({*row, copy_of(row->reason),
                                                        copy_of(row->thread), copy_of(row->table),
                                                        copy_of(row->index), copy_of(row->query)});
}

/* What was waited for, in four columns. */
void put_place(Field **f, const LongWait &wait) {
  put_or_null(f[0], wait.table);
  put_or_null(f[1], wait.index);
  put_or_null(f[2], wait.row.page);
  put_or_null(f[3], wait.row.holder_thread_id);
}

int fill_long_waits(THD *thd, TABLE_LIST *tables, Item *) {
  return fill_rows<LongWait>(thd, tables, fe_each_long_wait, collect_long_wait,
                             [thd](Field **f, const LongWait &wait) {
                               put_time_us(thd, f[0], wait.row.ended_unix_us);
                               put(f[1], wait.row.waited_us / 1000);
                               put(f[2], wait.reason);
                               put_or_null(f[3], wait.row.thread_id);
                               put_or_null(f[4], wait.thread);
                               put_place(f + 5, wait);
                               put_or_null(f[9], wait.query);
                             });
}

/* The same journal; only those that a connection had to wait for. */
void collect_stall(void *arg, const fe_long_wait_row *row) {
  if (row->thread_id) collect_long_wait(arg, row);
}

int fill_stalls(THD *thd, TABLE_LIST *tables, Item *) {
  return fill_rows<LongWait>(thd, tables, fe_each_long_wait, collect_stall,
                             [thd](Field **f, const LongWait &wait) {
                               put_time_us(thd, f[0], wait.row.ended_unix_us - wait.row.waited_us);
                               put(f[1], wait.row.waited_us / 1000);
                               put(f[2], wait.reason);
                               put(f[3], wait.row.thread_id);
                               put_or_null(f[4], wait.row.txn_id);
                               put_or_null(f[5], wait.query);
                               put_place(f + 6, wait);
                             });
}

}  // namespace

/* ---- columns -------------------------------------------------------------------------- */

namespace Show {

static ST_FIELD_INFO ferrite_waits_fields[] = {
    Column("reason", Varchar(32), NOT_NULL),    Column("waits", ULonglong(), NOT_NULL),
    Column("time_us", ULonglong(), NOT_NULL),   Column("longest_us", ULonglong(), NOT_NULL),
    Column("median_us", ULonglong(), NOT_NULL), Column("p99_us", ULonglong(), NOT_NULL),
    Column("meaning", Varchar(128), NOT_NULL),  CEnd()};

static ST_FIELD_INFO ferrite_long_waits_fields[] = {
    Column("ended", Datetime(6), NOT_NULL),
    Column("waited_ms", ULonglong(), NOT_NULL),
    Column("reason", Varchar(32), NOT_NULL),
    Column("thread_id", ULonglong(), NULLABLE),
    Column("engine_thread", Varchar(32), NULLABLE),
    Column("table_name", Varchar(1024), NULLABLE),
    Column("index_name", Varchar(1024), NULLABLE),
    Column("page", ULonglong(), NULLABLE),
    Column("holder_thread_id", ULonglong(), NULLABLE),
    Column("query", Varchar(max_query), NULLABLE),
    CEnd()};

static ST_FIELD_INFO ferrite_stalls_fields[] = {Column("began", Datetime(6), NOT_NULL),
                                                Column("waited_ms", ULonglong(), NOT_NULL),
                                                Column("reason", Varchar(32), NOT_NULL),
                                                Column("thread_id", ULonglong(), NOT_NULL),
                                                Column("trx_id", ULonglong(), NULLABLE),
                                                Column("query", Varchar(max_query), NULLABLE),
                                                Column("table_name", Varchar(1024), NULLABLE),
                                                Column("index_name", Varchar(1024), NULLABLE),
                                                Column("page", ULonglong(), NULLABLE),
                                                Column("holder_thread_id", ULonglong(), NULLABLE),
                                                CEnd()};

}  // namespace Show

int ferrite_i_s_waits_init(void *p) {
  return init_table(p, Show::ferrite_waits_fields, fill_waits);
}

int ferrite_i_s_long_waits_init(void *p) {
  return init_table(p, Show::ferrite_long_waits_fields, fill_long_waits);
}

int ferrite_i_s_stalls_init(void *p) {
  return init_table(p, Show::ferrite_stalls_fields, fill_stalls);
}
