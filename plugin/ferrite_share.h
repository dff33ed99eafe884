/*
 * State shared by all handlers of one table: the open table in the core and everything about
 * formats that can be computed once.
 *
 * Rules of this module
 * - One Share per TABLE_SHARE, kept there by the server (Handler_share); it never refers to
 *   a TABLE, whose fields live only as long as their connection.
 * - The core's table is open while at least one handler is.
 * - Immutable while a handler has it open, except the members protected by a mutex.
 */
#ifndef FERRITE_SHARE_H
#define FERRITE_SHARE_H

#include "server_compat.h"

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "ferrite.h"
#include "key_format.h"
#include "online_copy.h"
#include "row_format.h"

namespace ferrite {

constexpr uint32_t kRowIdBytes = 8;
constexpr uint32_t kNoIndex = UINT_MAX32;
constexpr char kHiddenIndexName[] = "GEN_CLUST_INDEX";

/* The server has taken the first key of a table for its primary key, and the rows are clustered by
   a hidden row id: tells `table`, and the TABLE_SHARE that it is of, that there is none. Nothing to
   do for other tables. Called by every open, before the server does anything with the table. */
void forget_primary_key(TABLE *table, const handler *file);

/* The formats of one table, from the server's description of it. */
struct Layout {
  RowFormat rows;
  std::vector<Index> indexes;      /* [0] is the clustered one */
  std::vector<uint32_t> by_server; /* the server's key number -> index number */
  bool hidden_row_id = false;
  bool has_indexed_virtual = false;
  bool pk_fixed = false; /* every primary key part has a fixed width: refs are encoded keys */
  bool pk_whole = true;  /* no primary key part is a column prefix */
  uint32_t pk_bytes = kRowIdBytes; /* longest encoded primary key */
  size_t max_key = 0;              /* longest encoded key of any index, primary key included */
  size_t max_scratch = 0;          /* longest part */
  size_t max_entries = 0;          /* keys and payloads of one row's secondary entries */

  void init(const TABLE *table) { init(table, table->s->primary_key); }
  /* With that key as the clustered index; MAX_KEY: none of the server's. */
  void init(const TABLE *table, uint primary_key);
  /* The server sorts the keys of a table anew when it writes a .frm file for changed partitions,
     and compares those of tables by name where it exchanges them: it may list them in another order
     than the core has its indexes in. These take the core's: `names` of them all, or that of
     another layout whose table lists its keys alike. False: they are other indexes. */
  bool arrange(const std::vector<std::string> &names);
  bool arrange_as(const Layout &other);
  /* A number that changes when rows or keys would be read wrongly. */
  uint64_t fingerprint() const;
  /* What it would be with the indexes in that order: their numbers. */
  uint64_t fingerprint_in(const uint32_t *order) const;
  /* The same for the rows, and for one index: of it, what does not follow from the rows. */
  uint64_t columns_fingerprint() const;
  uint64_t index_fingerprint(uint32_t index_no) const;
  const Index *primary() const { return hidden_row_id ? nullptr : &indexes[0]; }

 private:
  void add_index(const TABLE *table, uint server_no, const std::vector<Column> &columns);
  void finish_index(const TABLE *table, Index *index);
  void take_order(const std::vector<uint32_t> &order);
};

/* What ALTER TABLE in place does to a table's indexes. */
class IndexChange final : public inplace_alter_handler_ctx {
 public:
  ~IndexChange() override;
  Layout altered;
  /* For each index of `altered`: its number now, or -1 - its number among those that are built. */
  std::vector<int32_t> sources;
  std::vector<uint32_t> built; /* their numbers in `altered` */
  fe_index_build *build = nullptr;
};

class Share : public Handler_share {
 public:
  explicit Share(const TABLE *table) { layout.init(table); }
  ~Share() override;

  /* Opens the core's table for one more handler, or closes it for one. `form` is of the server. */
  int attach(const char *core_name, const TABLE *form, THD *thd);
  void detach();
  /* After TRUNCATE: opens the table anew; handlers notice by the generation. */
  int reopen(const TABLE *form, THD *thd);

  Layout layout;
  std::string name;
  fe_table *table = nullptr;
  std::atomic<uint32_t> generation{0};
  const ferrite_wrong_logs wrong_logs = std::make_shared<std::atomic<uint64_t>>(0);
  std::atomic<THD *> exporter{nullptr}; /* whose FLUSH TABLES ... FOR EXPORT has made its file */
  std::mutex autoinc_mutex;             /* read-and-reserve of AUTO_INCREMENT values */
  std::atomic<uint32_t> autoinc_lockers{0}; /* statements that have them alone, or wait for that */

  /* rec_per_key of the whole table, by the server's key number and part; guarded. */
  std::mutex stats_mutex;
  std::vector<std::vector<double>> records_per_key;
  uint64_t stats_rows = 0; /* of the table when they were counted */
  bool stats_loaded = false;
  bool stats_running = false;

 private:
  int open_table(const TABLE *form, THD *thd);
  void take_core_order(const TABLE *form);
  std::mutex mutex_;
  uint users_ = 0;
};

/* "./db/t" and the like -> "db/t": the last two steps of the server's path. A session's
   temporary table has no database: "/#sql-temptable-...", which no database's tables begin with. */
std::string core_table_name(const char *path);
/* Is this the path of a session's temporary table? Its file is in a tmpdir; who names one in SQL
   gives a path in a database. */
bool is_temporary_path(const char *path);
/* Has it the name of one? */
bool has_temporary_name(const char *path);

/* Where the core's name of a partition goes on behind that of its table; npos: it is none. On a
   volume that does not tell capitals apart the server writes the mark small. */
size_t partition_mark(const std::string &core_name);

/* Every index must take a row whose values are as long as declared: 0, or the error code after the
   error. `before`: in it indexes of the same names took as much already. */
int refuse_long_keys(const Layout &layout, const Layout *before);

/* A key whose bytes would not order as the server compares the values is refused, in CREATE and in
   every ALTER that adds it: 0, or the error code after the error. */
int refuse_unordered_key(const Index &index);

/* Names that InnoDB keeps for itself are refused as it does: 0, or the error code after the error.
 */
int refuse_reserved_names(THD *thd, const TABLE *form);

/* The definition blob kept with a table: who made it and with which layout, its cache priority
   (table_options.h), and for tools what rows and keys mean (description.h). */
std::string make_definition(const Layout &layout, const TABLE *table, uint8_t cache_priority);
/* Was it made with that layout? */
bool has_fingerprint(const Layout &layout, fe_slice definition);
/* 0, or HA_ERR_INCOMPATIBLE_DEFINITION after saying why in the error log. Not
   HA_ERR_TABLE_DEF_CHANGED: the server would ask the engine for a .frm file, get none, and remove
   its own. */
int check_definition(const Layout &layout, fe_slice definition, const char *name);

/* Writes the entry payload of a record (columns that the key does not give back). */
uint8_t *encode_entry_payload(const Layout &layout, const Index &index, const uchar *record,
                              uint8_t *to);

/* Key and payload of a record's entry in an index, at `to`; the first byte behind them. */
uint8_t *encode_entry(const Layout &layout, const Index &index, const uchar *record, uint8_t *to,
                      uint8_t *scratch, fe_entry *entry);

/* Reads the columns with wanted[field_no] from an index entry into `record`. */
bool decode_entry(const Layout &layout, const Index &index, const fe_row &row,
                  const uint8_t *wanted, uchar *record);

/* Reads wanted primary key columns from an encoded primary key. */
bool decode_primary_key(const Layout &layout, fe_slice pk, const uint8_t *wanted, uchar *record);

}  // namespace ferrite

#endif
