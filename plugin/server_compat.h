/*
 * Everything that differs between server versions, and the server headers themselves.
 *
 * Rules of this module
 * - Every file of the plugin includes this one first; none includes a server header that is
 *   not of the public plugin API by itself.
 * - A difference between versions is a macro, an inline function or a declaration here.
 */
#ifndef FERRITE_SERVER_COMPAT_H
#define FERRITE_SERVER_COMPAT_H

#ifndef MYSQL_SERVER
#define MYSQL_SERVER 1
#endif

#include <my_global.h>
#include <sql_class.h>
#include <sql_show.h>
#include <create_options.h>
#include <handler.h>
#include <log.h>
#include <mysql/plugin.h>
#include <mysqld_error.h>
#include <partition_info.h>
#include <rpl_rli.h>
#include <sql_acl.h>
#include <sql_i_s.h>
#include <sql_parse.h>
#include <sql_plugin.h>
#include <sql_table.h>
#include <sql_trigger.h>
#include <tztime.h>

#include <string>

/* Exported by the server, declared in none of its headers. */
extern "C" MYSQL_THD thd_increment_pending_ops(MYSQL_THD thd);
extern "C" void thd_decrement_pending_ops(void *token);
extern "C" int thd_deadlock_victim_preference(const MYSQL_THD thd1, const MYSQL_THD thd2);
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other_thd);
void ignore_db_dirs_append(const char *dirname_arg);
MYSQL_THD create_background_thd();
void destroy_background_thd(MYSQL_THD thd);
void *thd_attach_thd(MYSQL_THD thd);
void thd_detach_thd(void *mysysvar);
#if MYSQL_VERSION_ID >= 110700
class MHNSW_Trx {
 public:
  static int do_savepoint_rollback(THD *thd, void *);
};
#endif

namespace ferrite {

/* ---- the transaction members of the handlerton ------------------------------------------ */

#if MYSQL_VERSION_ID >= 110800
/* Called without the handlerton. */
#define FERRITE_TRX_CALL(function) (function)
#else
/* Called with the handlerton, which this plugin has one of: `function` does without. */
template <auto Function>
struct TrxCall;
template <class Result, class... Arguments, Result (*Function)(Arguments...)>
struct TrxCall<Function> {
  static Result call(handlerton *, Arguments... arguments) { return Function(arguments...); }
};
#define FERRITE_TRX_CALL(function) (&ferrite::TrxCall<function>::call)
#endif

/* ---- names ------------------------------------------------------------------------------ */

/* Names of columns, keys and constraints: case does not count. */
inline bool same_name(const LEX_CSTRING &a, const LEX_CSTRING &b) {
#if MYSQL_VERSION_ID >= 110800
  return Lex_ident_ci::streq(a, b);
#else
  return !lex_string_cmp(system_charset_info, &a, &b);
#endif
}

inline bool same_name(const char *a, const char *b) {
  return same_name(LEX_CSTRING{a, strlen(a)}, LEX_CSTRING{b, strlen(b)});
}

inline const char *text_of(const char *name) { return name; }
inline const char *text_of(const LEX_CSTRING &name) { return name.str; }

/* A name in the server's character set, in lower case. */
inline std::string lower_case(const LEX_CSTRING &name) {
#if MYSQL_VERSION_ID >= 110800
  std::string lower(name.length * system_charset_info->casedn_multiply() + 1, '\0');
  lower.resize(system_charset_info->casedn(name.str, name.length, lower.data(), lower.size()));
#else
  std::string lower(name.str, name.length);
  lower.push_back('\0');
  lower.resize(my_casedn_str(system_charset_info, lower.data()));
#endif
  return lower;
}

/* ---- statements ------------------------------------------------------------------------- */

/* KILL in any form, max_statement_time included: thd_killed() does not know of those that are to
   end a statement softly. */
inline bool is_killed(THD *thd) { return thd_kill_level(thd) != THD_IS_NOT_KILLED; }

/* ---- columns ---------------------------------------------------------------------------- */

inline bool is_stored(const Virtual_column_info &column) {
#if MYSQL_VERSION_ID >= 110800
  return column.is_stored();
#else
  return column.stored_in_db;
#endif
}

/* The values of an ENUM variable: names, with a null pointer after the last. */
template <size_t N>
inline TYPELIB typelib_of(const char *(&names)[N]) {
  TYPELIB lib{};
  lib.count = N - 1;
  lib.name = "";
  lib.type_names = names;
  return lib;
}

/* ---- vector indexes --------------------------------------------------------------------- */

/* Each is a table of its own with the nodes of a graph, of which the server has a part in memory
   for each transaction. It changes them itself after each row that it writes: the row before and
   after is in record[1] and record[0] (one that is deleted: in record[0]). */
#if MYSQL_VERSION_ID >= 110700
inline uint vector_indexes(const TABLE *table) { return table->s->hlindexes(); }

/* For a table that the server has opened, but does not write itself. LOCK TABLES keeps them from an
   earlier statement. */
inline int open_vector_indexes(TABLE *table) {
  if (table->in_use->locked_tables_mode == LTM_PRELOCKED_UNDER_LOCK_TABLES)
    table->unlock_hlindexes();
  return table->open_hlindexes_for_write();
}

inline int vectors_on_insert(TABLE *table) { return table->hlindexes_on_insert(); }
inline int vectors_on_update(TABLE *table) { return table->hlindexes_on_update(); }
inline int vectors_on_delete(TABLE *table) { return table->hlindexes_on_delete(table->record[0]); }

/* Has the transaction's part in memory read again; false: one is being searched. */
inline bool forget_vectors(THD *thd) {
  for (const TABLE *t = thd->open_tables; t; t = t->next)
    if (t->hlindex && t->hlindex->context) return false;
  MHNSW_Trx::do_savepoint_rollback(thd, nullptr);
  return true;
}
#else
inline uint vector_indexes(const TABLE *) { return 0; }
inline int open_vector_indexes(TABLE *) { return 0; }
inline int vectors_on_insert(TABLE *) { return 0; }
inline int vectors_on_update(TABLE *) { return 0; }
inline int vectors_on_delete(TABLE *) { return 0; }
inline bool forget_vectors(THD *) { return true; }
#endif

/* ---- kinds of keys ---------------------------------------------------------------------- */

inline bool is_fulltext(const KEY &key) {
#if MYSQL_VERSION_ID < 110800
  if (key.flags & HA_FULLTEXT) return true;
#endif
  return key.algorithm == HA_KEY_ALG_FULLTEXT;
}

inline bool is_spatial(const KEY &key) {
#if MYSQL_VERSION_ID < 110800
  if (key.flags & HA_SPATIAL) return true;
#endif
  return key.algorithm == HA_KEY_ALG_RTREE;
}

/* ---- rows copied into a new table ------------------------------------------------------- */

/* ALTER ... LOCK=NONE by copy: the old table is read by one snapshot. */
constexpr bool kCopiesOnline = MYSQL_VERSION_ID >= 110200;

/* A parent's column that keeps its type for the child's sake: 11.8 always copies for another
   character set, and names the child with its database then. */
constexpr bool kNamesDatabaseOfChild = MYSQL_VERSION_ID >= 110800;

/* What others change during such a copy is logged and repeated in the new table. Of a partitioned
   table what they roll back is repeated, too, since the server asks the engine "partition" whether
   it can roll back: no such copy then. */
#if MYSQL_VERSION_ID >= 110200
constexpr ulonglong kNoOnlineCopy = HA_NO_ONLINE_ALTER;
#else
constexpr ulonglong kNoOnlineCopy = 0;
#endif

/* Statements that may make such a copy: the server runs all of them as ALTER TABLE. */
inline bool may_copy_online(int sql_command) {
  switch (sql_command) {
    case SQLCOM_ALTER_TABLE:
    case SQLCOM_CREATE_INDEX:
    case SQLCOM_DROP_INDEX:
    case SQLCOM_REPAIR:
      return kCopiesOnline;
    default:
      return false;
  }
}

/* Does the one that this thread runs read the table for such a copy? The server asks for TL_READ
   if so, for all that it has decided before it locks the table: by old_mode, LOCK, ALGORITHM and
   ORDER BY. Where writers are to wait it asks for TL_READ_NO_INSERT. */
inline bool may_copy_online(const THD *thd, const TABLE *table) {
  return may_copy_online(static_cast<int>(thd->lex->sql_command)) &&
         table->reginfo.lock_type == TL_READ;
}

/* Is the name this thread's alone? So it is when the server locks a table that it alters in place,
   and never when it locks one that it copies beside writers. */
inline bool is_name_ours(const TABLE *table) {
  return table->mdl_ticket && table->mdl_ticket->get_type() == MDL_EXCLUSIVE;
}

/* Do others copy it just now, and is what is changed in it logged for them? */
inline bool is_copied_online(const TABLE *table) {
#if MYSQL_VERSION_ID >= 110200
  return table->s->online_alter_binlog != nullptr;
#else
  (void)table;
  return false;
#endif
}

/* Is that participant of a transaction the log of such changes? It can commit by xid and cannot
   roll back, and no engine is so. */
inline bool is_online_log(const Ha_trx_info &participant) {
#if MYSQL_VERSION_ID >= 110200
  const auto *log = participant.ht();
  return log->flags & HTON_NO_ROLLBACK && log->commit_by_xid && !log->commit_ordered &&
         !log->commit_checkpoint_request && !log->start_consistent_snapshot;
#else
  (void)participant;
  return false;
#endif
}

/* ALTER IGNORE and CREATE ... IGNORE SELECT (kBeginIgnore) say nothing on 11.8. */
enum class CopyStep { kNone, kBegin, kBeginIgnore, kEnd };

inline CopyStep copy_step(ha_extra_function operation) {
  switch (operation) {
#if MYSQL_VERSION_ID >= 110800
    case HA_EXTRA_BEGIN_ALTER_COPY:
      return CopyStep::kBegin;
    case HA_EXTRA_END_ALTER_COPY:
      return CopyStep::kEnd;
#else
    case HA_EXTRA_BEGIN_COPY:
      return CopyStep::kBegin;
    case HA_EXTRA_BEGIN_ALTER_IGNORE_COPY:
      return CopyStep::kBeginIgnore;
    case HA_EXTRA_END_COPY:
      return CopyStep::kEnd;
#endif
    default:
      return CopyStep::kNone;
  }
}

/* ---- the optimizer ---------------------------------------------------------------------- */

/* What an engine says of the rows with one key value is halved on 10.11, unless the user asks
   otherwise; 11.8 takes the figure as it is. */
inline double cardinality_divisor(THD *thd) {
#if MYSQL_VERSION_ID >= 110800
  (void)thd;
  return 1;
#else
  return 1 + thd_double_innodb_cardinality(thd);
#endif
}

/* 11.8 asks for the costs of MRR with the LIMIT of the statement. */
#if MYSQL_VERSION_ID >= 110800
#define FERRITE_MRR_LIMIT_PARAMETER ha_rows limit,
#define FERRITE_MRR_LIMIT limit,
#else
#define FERRITE_MRR_LIMIT_PARAMETER
#define FERRITE_MRR_LIMIT
#endif

/* The times of single operations, as InnoDB's on the same server: plans should not change with
   the engine. 10.11 has one set of costs for all engines. */
inline void set_optimizer_costs(handlerton *hton) {
#if MYSQL_VERSION_ID >= 110800
  hton->update_optimizer_costs = [](OPTIMIZER_COSTS *costs) {
    costs->row_next_find_cost = 0.00007013;
    costs->row_lookup_cost = 0.00076597;
    costs->key_next_find_cost = 0.00009900;
    costs->key_lookup_cost = 0.00079112;
    costs->row_copy_cost = 0.00006087;
  };
#else
  (void)hton;
#endif
}

/* 11.8 has costs of its own for a clustered index: that one is no covering index there. */
#if MYSQL_VERSION_ID >= 110800
constexpr ulong kClusteredIndexLacks = HA_KEYREAD_ONLY | HA_DO_RANGE_FILTER_PUSHDOWN;
#else
constexpr ulong kClusteredIndexLacks = 0;
#endif

/* A handler whose costs follow from the pages that a scan of the table reads, as InnoDB's do. */
class PagedHandler : public handler {
 public:
  using handler::handler;
  /* 0 before the table is open. */
  virtual double pages_to_scan() = 0;

#if MYSQL_VERSION_ID < 110800
  /* 11.8 shows what CREATE TABLE has said. */
  const char *index_type(uint) override { return "BTREE"; }
#endif

#if MYSQL_VERSION_ID >= 110800
  /* In blocks of IO_SIZE, and what it costs to have one from the buffer pool. */
  IO_AND_CPU_COST scan_time() override {
    const double pages = pages_to_scan();
    if (pages == 0) return handler::scan_time();
    return {pages * stats.block_size / IO_SIZE, pages * costs->index_block_copy_cost};
  }
#else
  double scan_time() override {
    const double pages = pages_to_scan();
    return pages == 0 ? handler::scan_time() : pages;
  }

  double read_time(uint index, uint ranges, ha_rows rows) override {
    if (index != table->s->primary_key) return handler::read_time(index, ranges, rows);
    const double scan = scan_time();
    const ha_rows total = estimate_rows_upper_bound();
    if (total < rows) return scan;
    return ranges + static_cast<double>(rows) / static_cast<double>(total) * scan;
  }
#endif
};

/* ---- what InnoDB does by default -------------------------------------------------------- */

/* innodb_snapshot_isolation is OFF on 10.11 and ON since 11.6. */
constexpr bool kSnapshotIsolation = MYSQL_VERSION_ID >= 110602;

}  // namespace ferrite

#endif
