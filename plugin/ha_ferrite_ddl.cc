/*
 * Operations on whole tables: CREATE, DROP, RENAME, TRUNCATE and OPTIMIZE.
 *
 * Each change is one atomic, durable call into the core, and each may be repeated by the
 * server's own DDL recovery. The core waits as long as for a row lock while a prepared
 * transaction, whose metadata locks went with its connection, has changed the table. What Ferrite
 * does not support is refused here with a message that names it; nothing is accepted and ignored.
 */
#include "ha_ferrite.h"

#include "ferrite_backup.h"
#include "ferrite_encryption.h"
#include "ferrite_error.h"
#include "ferrite_exported.h"
#include "ferrite_foreign.h"
#include "ferrite_hton.h"
#include "ferrite_vars.h"
#include "ferrite_writable.h"
#include "innodb_settings.h"
#include "table_options.h"

using ferrite::Column;
using ferrite::ColumnKind;
using ferrite::core_table_name;
using ferrite::Index;
using ferrite::KeyPart;
using ferrite::Layout;
using ferrite::PartKind;

/* ---- create ------------------------------------------------------------------------ */

static int refuse(const char *what) {
  my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "Storage engine FERRITE does not support %s", MYF(0),
                  what);
  return HA_ERR_UNSUPPORTED;
}

static void warn_option(THD *thd, const char *format, const char *text, uint number) {
  ferrite_warn(thd, ER_ILLEGAL_HA_CREATE_OPTION, format, text, number);
}

/* There is one row format; the names that InnoDB gives to its own are accepted, as is the size
   of its compressed blocks, so that tables may go from one engine to the other. What InnoDB
   refuses in its strict mode (the default) is refused in the same words; without it the words
   are a warning. */
const char *ha_ferrite::find_bad_option(THD *thd, const TABLE *form, const HA_CREATE_INFO *info) {
  const uint size = info->key_block_size;
  const char *bad = nullptr, *format = nullptr;
  if (size > 16 || size & (size - 1)) {
    warn_option(thd, "Ferrite: invalid %s = %u. Valid values are [1, 2, 4, 8, 16]",
                "KEY_BLOCK_SIZE", size);
    bad = "KEY_BLOCK_SIZE";
  }
  switch (info->row_type) {
    case ROW_TYPE_DYNAMIC:
      format = "DYNAMIC";
      break;
    case ROW_TYPE_COMPACT:
      format = "COMPACT";
      break;
    case ROW_TYPE_REDUNDANT:
      format = "REDUNDANT";
      break;
    case ROW_TYPE_DEFAULT:
    case ROW_TYPE_COMPRESSED:
      break;
    default:
      warn_option(thd, "Ferrite: invalid ROW_FORMAT specifier.%s", "", 0);
      bad = "ROW_TYPE";
  }
  if (size && format) {
    warn_option(thd, "Ferrite: cannot specify ROW_FORMAT = %s with KEY_BLOCK_SIZE.", format, 0);
    bad = "KEY_BLOCK_SIZE";
  }
  if (const char *option = ferrite::find_bad_compression(thd, form->s, info)) bad = option;
  /* Not to be encrypted is no matter of a mode. */
  if (const char *option = ferrite::find_unmet_encryption(thd, form->s)) return option;
  return ferrite::innodb_strict_mode(thd, true) ? bad : nullptr;
}

/* Clauses of CREATE TABLE that Ferrite cannot honour. */
static int refuse_unsupported(const TABLE *form) {
  for (uint i = 0; i < form->s->keys; i++) {
    const KEY &key = form->key_info[i];
    if (ferrite::is_fulltext(key)) return refuse("FULLTEXT indexes");
    if (ferrite::is_spatial(key)) return refuse("SPATIAL indexes");
  }
  if (form->versioned(VERS_TRX_ID)) return refuse("system versioning by transaction id");
  return 0;
}

/* The server's weights of Thai text do not order as its comparison does. (ENUM and SET are ordered
   by their numbers, in any collation.) */
int ferrite::refuse_unordered_key(const Index &index) {
  for (const KeyPart &part : index.parts)
    if (part.kind == PartKind::kText && !strncmp(part.text.cs->coll_name.str, "tis620_thai", 11))
      return refuse("keys in collation tis620_thai_ci");
  return 0;
}

/* Tables have no files of their own that could be elsewhere. Definitions of other engines are
   taken all the same; a symbolic link moves all of Ferrite's files. */
static void warn_of_directories(THD *thd, const HA_CREATE_INFO *info) {
  const bool data = info->data_file_name && *info->data_file_name;
  const bool index = info->index_file_name && *info->index_file_name;
  for (const char *option : {data ? "DATA DIRECTORY" : "", index ? "INDEX DIRECTORY" : ""})
    if (*option)
      ferrite_warn(thd, WARN_OPTION_IGNORED,
                   "Ferrite: %s ignored. All tables are in the directory #ferrite of the data "
                   "directory, which can be a symbolic link to another volume",
                   option);
}

/* The smallest row must fit, or no INSERT ever would. */
static int refuse_wide_rows(const Layout &layout) {
  size_t bytes = layout.rows.min_payload();
  size_t key = layout.pk_fixed ? layout.pk_bytes : 0;
  if (bytes <= FE_MAX_INLINE_PAYLOAD && bytes + key <= FE_MAX_RECORD_BYTES) return 0;
  my_error(ER_TOO_BIG_ROWSIZE, MYF(0), static_cast<ulong>(FE_MAX_INLINE_PAYLOAD));
  return HA_ERR_TO_BIG_ROW;
}

static size_t bytes_of_entry(const Layout &layout, const Index &index) {
  const Index *primary = layout.primary();
  const size_t pk_bytes = primary ? primary->ordinary_bytes() : ferrite::kRowIdBytes;
  return index.no ? index.ordinary_bytes() + pk_bytes : pk_bytes;
}

/* An INSERT of plain letters must not fail where CREATE did not. Characters whose weights take more
   are judged when they come. */
int ferrite::refuse_long_keys(const Layout &layout, const Layout *before) {
  for (const Index &index : layout.indexes) {
    const size_t bytes = bytes_of_entry(layout, index);
    if (bytes <= FE_MAX_KEY_BYTES) continue;
    size_t known = 0;
    if (before)
      for (const Index &old : before->indexes)
        if (same_name(old.name.c_str(), index.name.c_str())) known = bytes_of_entry(*before, old);
    if (bytes <= known) continue;
    const bool named = index.server_no != MAX_KEY;
    my_printf_error(ER_TOO_LONG_KEY,
                    "Specified key was too long; with full-length values an entry of index '%s', "
                    "which ends with the primary key, takes %zu bytes, and storage engine FERRITE "
                    "takes %u",
                    MYF(0), named ? index.name.c_str() : "", bytes,
                    static_cast<uint>(FE_MAX_KEY_BYTES));
    return HA_ERR_UNSUPPORTED;
  }
  return 0;
}

/* The server's own tables may be in any engine, and enforce_storage_engine moves them with a
   dump that holds them. All but one are read after the plugins are there. In mysql.plugin it says
   which plugins INSTALL SONAME has added: of the engine it is in it must know without asking it, or
   the accounts cannot be read. (Refusing would not help: the dump has dropped the old table by
   now.) */
static void warn_system_table(THD *thd, const std::string &path) {
  if (path.compare(0, 6, "mysql/") != 0 || !thd->lex->query_tables) return;
  const char *table = thd->lex->query_tables->table_name.str;
  if (strcmp(table, "plugin")) return;
  ferrite_warn(thd, ER_ILLEGAL_HA_CREATE_OPTION,
               "Ferrite: the system table `mysql`.`plugin` now uses FERRITE. The server will not "
               "start again with INSTALL SONAME alone; it needs plugin_load_add=ha_ferrite.so");
}

/* ---- names ------------------------------------------------------------------------- */

/* InnoDB has hidden columns and a hidden index, and refuses their names. A table with one could
   not go back to it. */
static const char *const reserved_columns[] = {"DB_ROW_ID", "DB_TRX_ID", "DB_ROLL_PTR"};
static const char reserved_index[] = "GEN_CLUST_INDEX";

static bool is_named(const LEX_CSTRING &name, const char *reserved) {
  return name.str && ferrite::same_name(name.str, reserved);
}

static int refuse_reserved_column(const Field *field) {
  for (const char *reserved : reserved_columns) {
    if (!is_named(field->field_name, reserved)) continue;
    my_error(ER_WRONG_COLUMN_NAME, MYF(0), field->field_name.str);
    return HA_WRONG_CREATE_OPTION;
  }
  return 0;
}

static int refuse_reserved_index(THD *thd, const KEY *key) {
  if (!is_named(key->name, reserved_index)) return 0;
  ferrite_warn(thd, ER_WRONG_NAME_FOR_INDEX,
               "Cannot Create Index with name '%s'. The name is reserved for the system default "
               "primary index.",
               reserved_index);
  my_error(ER_WRONG_NAME_FOR_INDEX, MYF(0), reserved_index);
  return HA_ERR_WRONG_INDEX;
}

int ferrite::refuse_reserved_names(THD *thd, const TABLE *form) {
  for (Field *const *field = form->field; *field; field++)
    if (int err = refuse_reserved_column(*field)) return err;
  for (uint no = 0; no < form->s->keys; no++)
    if (int err = refuse_reserved_index(thd, &form->key_info[no])) return err;
  return 0;
}

/* Temporary tables are recognized by their file names: only they may have such a name. */
static int refuse_temporary_name(const char *path) {
  const char *file = strrchr(path, FN_LIBCHAR);
  my_error(ER_WRONG_TABLE_NAME, MYF(0), file ? file + 1 : path);
  return HA_WRONG_CREATE_OPTION;
}

/* The name of a partition, as users write it, without that of its subpartition. */
static std::string partition_of(const std::string &core_name) {
  const size_t mark = ferrite::partition_mark(core_name);
  DBUG_ASSERT(mark != std::string::npos);
  const size_t begin = mark + 3;
  size_t end = core_name.find("#SP#", begin);
  if (end == std::string::npos) end = core_name.find("#sp#", begin);
  const std::string file = core_name.substr(begin, end - begin);
  char name[FN_REFLEN + 1];
  return std::string(name, filename_to_tablename(file.c_str(), name, sizeof name, true));
}

/* The server has looked for a definition of what is to be created, and there is none. What ALTER
   TABLE could not add to a table, the server drops. */
static void warn_of_leftover(THD *thd, const std::string &core_name) {
  const size_t mark = ferrite::partition_mark(core_name);
  if (mark != std::string::npos && thd_sql_command(thd) == SQLCOM_ALTER_TABLE)
    ferrite_warn(thd, ER_TABLE_EXISTS_ERROR,
                 "Ferrite has a partition %s of table %s that the table's definition does not have"
                 " (an ALTER TABLE failed, or an old .frm file was put back). It is removed now:"
                 " repeat the statement",
                 partition_of(core_name).c_str(),
                 ferrite_shown_with_database(core_name.substr(0, mark)).c_str());
  else
    ferrite_warn(thd, ER_TABLE_EXISTS_ERROR,
                 "Ferrite has a table %s, whose definition the server does not have (it was killed"
                 " in DROP or CREATE TABLE, or lost the .frm file): DROP TABLE removes it",
                 ferrite_shown_with_database(core_name).c_str());
}

int ha_ferrite::create(const char *name, TABLE *form, HA_CREATE_INFO *create_info) {
  if (!create_info->tmp_table())
    if (int err = ferrite_check_writable(ha_thd())) return err;
  if (ferrite::has_temporary_name(name) && !create_info->tmp_table())
    return refuse_temporary_name(name);
  if (int err = refuse_unsupported(form)) return err;
  if (int err = ferrite::refuse_reserved_names(ha_thd(), form)) return err;
  if (find_bad_option(ha_thd(), form, create_info)) return HA_WRONG_CREATE_OPTION;
  Layout layout;
  layout.init(form);
  for (const Index &index : layout.indexes)
    if (int err = ferrite::refuse_unordered_key(index)) return err;
  if (int err = refuse_wide_rows(layout)) return err;
  if (int err = ferrite::refuse_long_keys(layout, nullptr)) return err;

  std::vector<fe_index_def> indexes;
  for (const Index &index : layout.indexes) {
    fe_index_def def;
    const bool named = index.server_no != MAX_KEY;
    def.name = named ? form->key_info[index.server_no].name.str : ferrite::kHiddenIndexName;
    def.flags = index.unique ? FE_INDEX_UNIQUE : 0;
    def.key_parts = static_cast<uint32_t>(index.parts.size());
    indexes.push_back(def);
  }
  const std::string table_name = core_table_name(name);
  const std::string definition =
      ferrite::make_definition(layout, form, ferrite::cache_priority_of(form->s));
  ferrite::ForeignKeys foreign(ha_thd(), form, create_info, table_name, false);
  if (int err = foreign.check()) return err;
  if (is_wrong_for_children(form, create_info)) return HA_ERR_CANNOT_ADD_FOREIGN;
  if (int err = foreign.lock_parents()) return err;
  fe_table_def def;
  memset(&def, 0, sizeof def);
  def.foreign = foreign.defs();
  def.name = table_name.c_str();
  if (create_info->tmp_table()) def.flags |= FE_TABLE_TEMPORARY;
  if (layout.hidden_row_id) def.flags |= FE_TABLE_HIDDEN_ROWID;
  if (create_info->sequence) def.flags |= FE_TABLE_NO_ROLLBACK;
  def.compression = ferrite::compression_of(form->s);
  def.indexes = indexes.data();
  def.index_count = static_cast<uint32_t>(indexes.size());
  def.definition = {reinterpret_cast<const uint8_t *>(definition.data()), definition.size()};
  if (form->s->found_next_number_field)
    def.auto_increment = create_info->auto_increment_value ? create_info->auto_increment_value : 1;
  bool refused;
  const fe_code rc = ferrite_create_table(&def, ha_thd(), &refused);
  if (rc == FE_FOREIGN_KEY) return foreign.report();
  if (rc == FE_OK && !refused) {
    ferrite_child_has_come(table_name);
    warn_of_directories(ha_thd(), create_info);
    warn_system_table(ha_thd(), table_name);
  }
  if (rc == FE_EXISTS && !refused) warn_of_leftover(ha_thd(), table_name);
  return refused ? HA_ERR_UNSUPPORTED : ferrite_table_error(rc, ha_thd());
}

/* What is left of a partitioned table whose definition is gone: the server asks for it by the
   table's name when it is told to drop a table that it does not know. */
static fe_code drop_left_parts(const char *path, const std::string &name, THD *thd) {
  if (!access((std::string(path) + reg_ext).c_str(), F_OK)) return FE_NOT_FOUND;
  return fe_parts_drop(ferrite_engine, name.c_str(), thd, ferrite_ddl_wait_ms(thd));
}

/* Also in a cluster, on every node alike: nothing is left that could differ. By now the server has
   removed what names a partitioned table, or its partition, or the table that was converted. */
int ha_ferrite::delete_table(const char *name) {
  if (int err = ferrite_check_permanent(name)) return err;
  THD *thd = ha_thd();
  const std::string core_name = core_table_name(name);
  fe_code rc = fe_table_drop(ferrite_engine, core_name.c_str(), ferrite_references_that_keep(thd),
                             thd, ferrite_ddl_wait_ms(thd));
  const bool is_temporary = ferrite::is_temporary_path(name);
  if (rc == FE_NOT_FOUND && !is_temporary) rc = drop_left_parts(name, core_name, thd);
  /* Also if it stays: nothing of the ALTER is taken back then. */
  ferrite_parent_has_gone(thd);
  if (rc == FE_OK && !is_temporary) ferrite_remove_exported_table(core_name);
  return ferrite_table_error(rc, thd);
}

/* The server has not asked whether it has foreign keys, as it does before EXCHANGE PARTITION. To
   take back what has failed, it renames tables too: whoever refers to the name then refers to no
   partition. */
static bool becomes_partition(const THD *thd, const std::string &from, const std::string &to) {
  return thd_sql_command(thd) == SQLCOM_ALTER_TABLE &&
         thd->lex->alter_info.partition_flags & ALTER_PARTITION_CONVERT_IN &&
         ferrite::partition_mark(to) != std::string::npos &&
         ferrite::partition_mark(from) == std::string::npos;
}

struct LinkSearch {
  const std::string &table;
  bool found;
};

/* Whether the table has a foreign key, or one refers to it. Looks at those of all tables. */
static bool has_foreign_keys(const std::string &core_name) {
  LinkSearch search = {core_name, false};
  fe_each_foreign_key(
      ferrite_engine,
      [](void *arg, const fe_fk_row *row) {
        auto *search = static_cast<LinkSearch *>(arg);
        if (search->table == row->child || search->table == row->def.parent) search->found = true;
      },
      &search);
  return search.found;
}

int ha_ferrite::rename_table(const char *from, const char *to) {
  if (int err = ferrite_check_writable_ddl(ha_thd(), from)) return err;
  if (ferrite::has_temporary_name(to)) return refuse_temporary_name(to);
  THD *thd = ha_thd();
  const std::string old_name = core_table_name(from), new_name = core_table_name(to);
  if (becomes_partition(thd, old_name, new_name) && has_foreign_keys(old_name)) {
    my_error(ER_PARTITION_EXCHANGE_FOREIGN_KEY, MYF(0), ferrite_shown_name(old_name).c_str());
    return HA_ERR_GENERIC;
  }
  fe_code rc =
      fe_table_rename(ferrite_engine, old_name.c_str(), new_name.c_str(),
                      ferrite_shown_name(old_name).c_str(), ferrite_shown_name(new_name).c_str(),
                      ferrite_foreign_checks(thd), thd, ferrite_ddl_wait_ms(thd));
  if (rc == FE_OK) ferrite_child_has_come(new_name);
  /* The server would report any failure as 1025; the first error reported is used. */
  if (rc == FE_LOCK_TIMEOUT) my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
  if (rc == FE_INTERRUPTED) my_error(ER_QUERY_INTERRUPTED, MYF(0));
  if (rc == FE_EXISTS) {
    /* As InnoDB, also if what exists is the name of a foreign key. */
    my_error(ER_TABLE_EXISTS_ERROR, MYF(0), to);
    return HA_ERR_GENERIC;
  }
  return ferrite_table_error(rc, thd);
}

/* As the server does when it finds the child. */
int ha_ferrite::refuse_truncate() {
  String text;
  if (const char *constraint = referring_constraint(&text))
    my_error(ER_TRUNCATE_ILLEGAL_FK, MYF(0), constraint);
  else /* it has gone again */
    my_error(ER_ROW_IS_REFERENCED, MYF(0));
  return HA_ERR_GENERIC;
}

int ha_ferrite::truncate() {
  if (table->s->tmp_table == NO_TMP_TABLE)
    if (int err = ferrite_check_writable(ha_thd())) return err;
  close_cursors();
  const uint64_t next = table->found_next_number_field ? 1 : 0;
  fe_code rc = fe_table_truncate(ferrite_engine, m_share->name.c_str(), next,
                                 ferrite_references_that_keep(ha_thd()), ha_thd(),
                                 ferrite_ddl_wait_ms(ha_thd()));
  if (rc == FE_REFERENCED) return refuse_truncate();
  if (rc != FE_OK) return ferrite_table_error(rc, ha_thd());
  int err = m_share->reopen(table, ha_thd());
  m_generation = m_share->generation;
  return err;
}

/* Does ALTER TABLE drop the partition with this name of the core's? */
static bool is_to_be_dropped(partition_info *parts, const std::string &core_name) {
  const std::string name = partition_of(core_name);
  List_iterator<partition_element> it(parts->partitions);
  while (const partition_element *part = it++)
    if (part->part_state == PART_TO_BE_DROPPED &&
        ferrite::same_name(ferrite::text_of(part->partition_name), name.c_str()))
      return true;
  return false;
}

/* Does this statement empty or drop this partition, perhaps as one of several? */
static bool takes_partition(const THD *thd, const TABLE *table, const std::string &core_name) {
  const LEX *lex = thd->lex;
  if (lex->sql_command == SQLCOM_TRUNCATE) return true;
  if (lex->sql_command != SQLCOM_ALTER_TABLE) return false;
  const auto changes = lex->alter_info.partition_flags;
  if (changes & ALTER_PARTITION_TRUNCATE) return true;
  return changes & ALTER_PARTITION_DROP && is_to_be_dropped(table->part_info, core_name);
}

/* The server takes one partition after the other, and goes back for none; those that it drops its
   definition does not have any more by then. So a prepared transaction is waited for while all of
   them are there: it locks them before it begins, and nobody changes the table from then on. */
int ha_ferrite::wait_before_partition_goes(THD *thd) {
  if (likely(!table->part_info) || !takes_partition(thd, table, m_share->name)) return 0;
  DBUG_ASSERT(m_attached && table->s->tmp_table == NO_TMP_TABLE);
  const fe_code rc = fe_table_wait_for_prepared(ferrite_engine, m_share->name.c_str(), thd,
                                                ferrite_ddl_wait_ms(thd));
  return rc == FE_OK ? 0 : ferrite_table_error(rc, thd);
}

int ha_ferrite::optimize(THD *, HA_CHECK_OPT *) { return HA_ADMIN_TRY_ALTER; }
