/*
 * Tables that travel: FLUSH TABLES ... FOR EXPORT, ALTER TABLE ... DISCARD and IMPORT TABLESPACE.
 *
 * An exported table is one file beside its .frm, TABLE.ferrite, written while FLUSH TABLES takes
 * its locks and removed with them. IMPORT reads such a file into an empty table with the same
 * columns and keys, all or nothing, and removes it; DISCARD empties a table. The server exports
 * partitions one by one, each into its file, and does not pass DISCARD and IMPORT on to them.
 *
 * Rows that are imported are not checked against foreign keys: a table that has or is the parent
 * of some takes them only without foreign_key_checks.
 */
#include "ha_ferrite.h"

#include "ferrite_error.h"
#include "ferrite_encryption.h"
#include "ferrite_exported.h"
#include "ferrite_foreign.h"
#include "ferrite_hton.h"
#include "ferrite_writable.h"

#include <dirent.h>
#include <limits.h>
#include <unistd.h>

static constexpr char kExportedEnd[] = ".ferrite";
/* Of a file while it is written (ferrite-engine, exported/export.rs). */
static constexpr char kPartEnd[] = ".ferrite.part";

namespace {

/* The first version whose TIMESTAMP goes until 2106. */
constexpr unsigned kFirstLongMoments = 110500;

/* From 11.5 on, TIMESTAMP goes until 2106 instead of 2038, in the same bytes: living rows of a
   table WITH SYSTEM VERSIONING end with another moment, and what comes after 2038 is before 1970 on
   a server that does not know it. The server converts its own tables by the version in their .frm
   file; an imported one has this server's. Why the rows of a table of such a server mean something
   else here; NULL: they do not. */
const char *unlike_moments(const TABLE *table, const char *server) {
  unsigned major = 0, minor = 0;
  sscanf(server, "%u.%u", &major, &minor);
  const bool theirs = major * 10000 + minor * 100 >= kFirstLongMoments;
  constexpr bool ours = MYSQL_VERSION_ID >= kFirstLongMoments;
  if (theirs == ours) return nullptr;
  if (table->versioned())
    return "is WITH SYSTEM VERSIONING, and its living rows end in another year than those of this"
           " server (2106 from 11.5 on, 2038 before): it would seem empty. Use mariadb-dump"
           " --dump-history";
  if (ours) return nullptr;
  for (Field *const *field = table->field; *field; field++)
    if ((*field)->type() == MYSQL_TYPE_TIMESTAMP)
      return "has a TIMESTAMP column, whose moments after 2038, which there are from 11.5 on, would"
             " be others here. Use mariadb-dump, or make it DATETIME before FLUSH TABLES ... FOR "
             "EXPORT";
  return nullptr;
}

/* A data directory of an earlier server, before mariadb-upgrade: the file would not tell. */
bool has_moments_of_before(const TABLE *table) {
  return MYSQL_VERSION_ID >= kFirstLongMoments && table->versioned() &&
         table->s->mysql_version < kFirstLongMoments;
}

/* Where a table's file is. */
struct ExportedPlace {
  std::string dir, file;

  /* "db/t": names as files have them. */
  explicit ExportedPlace(const std::string &core_name) {
    const size_t slash = core_name.rfind('/');
    dir = std::string(mysql_real_data_home) + core_name.substr(0, slash);
    file = core_name.substr(slash + 1) + kExportedEnd;
  }
  std::string path() const { return dir + "/" + file; }
};

/* What the core asks about a table while it reads or writes its file. */
struct Traveller {
  const ferrite::Layout &layout;
  const TABLE *table;
  const std::string columns;

  fe_exported_file in(const ExportedPlace &place) const {
    const auto *bytes = reinterpret_cast<const uint8_t *>(columns.data());
    return {place.dir.c_str(), place.file.c_str(), layout_in, this, {bytes, columns.size()}, unfit};
  }
  static uint64_t layout_in(const void *of, const uint32_t *order) {
    return static_cast<const Traveller *>(of)->layout.fingerprint_in(order);
  }
  static const char *unfit(const void *of, const char *server) {
    return unlike_moments(static_cast<const Traveller *>(of)->table, server);
  }
};

/* A longer text is cut off there, and its checksum stands for the rest. */
constexpr size_t kColumnBytes = 400;

/* Everything of a column that decides what its bytes in a row mean. */
std::string column_text(THD *thd, Field *field) {
  StringBuffer<MAX_FIELD_WIDTH> text(system_charset_info);
  append_identifier(thd, &text, &field->field_name);
  text.append(' ');
  StringBuffer<MAX_FIELD_WIDTH> type(system_charset_info);
  field->sql_type(type);
  text.append(type);
  if (field->has_charset()) {
    const LEX_CSTRING &collation = field->charset()->coll_name;
    text.append(STRING_WITH_LEN(" COLLATE "));
    text.append(collation.str, collation.length);
  }
  if (!field->real_maybe_null()) text.append(STRING_WITH_LEN(" NOT NULL"));
  if (const Virtual_column_info *computed = field->vcol_info) {
    StringBuffer<MAX_FIELD_WIDTH> expression(system_charset_info);
    field->vcol_info->print(&expression);
    text.append(STRING_WITH_LEN(" AS ("));
    text.append(expression);
    const bool is_stored = ferrite::is_stored(*computed);
    if (is_stored)
      text.append(STRING_WITH_LEN(") STORED"));
    else
      text.append(STRING_WITH_LEN(") VIRTUAL"));
  }
  std::string out(text.ptr(), text.length());
  if (out.size() > kColumnBytes) {
    char rest[24];
    const ha_checksum sum = my_checksum(0, out.data(), out.size());
    snprintf(rest, sizeof rest, "... (%08lx)", static_cast<ulong>(sum));
    out.resize(kColumnBytes);
    out += rest;
  }
  return out;
}

/* While it lives, names and expressions are printed in one way, whatever sql_mode and
   sql_quote_show_create of the session are: who imports a table may have others. */
class PrintedAlike : Sql_mode_instant_set {
 public:
  explicit PrintedAlike(THD *thd)
      : Sql_mode_instant_set(thd, 0),
        quotes_(thd->variables.option_bits & OPTION_QUOTE_SHOW_CREATE) {
    thd->variables.option_bits |= OPTION_QUOTE_SHOW_CREATE;
  }
  PrintedAlike(const PrintedAlike &) = delete;
  PrintedAlike &operator=(const PrintedAlike &) = delete;
  ~PrintedAlike() {
    if (!quotes_) thd->variables.option_bits &= ~OPTION_QUOTE_SHOW_CREATE;
  }

 private:
  const bool quotes_;
};

std::string columns_text(THD *thd, const TABLE *table) {
  const PrintedAlike alike(thd);
  std::string all;
  for (Field **field = table->field; *field; field++) all += column_text(thd, *field) + '\0';
  return all;
}

/* A name in another alphabet takes five bytes a character in the names of files. */
bool is_too_long(const ExportedPlace &place, const char *table_name) {
  if (place.file.size() <= NAME_MAX) return false;
  my_error(ER_TOO_LONG_IDENT, MYF(0), table_name);
  return true;
}

/* The first error of a statement is the one that the client gets: what the server adds to this
   one does not matter. */
int raised() { return HA_ERR_GENERIC; }

int refuse(const char *what, const char *why, const char *instead) {
  my_error(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON, MYF(0), what, why, instead);
  return raised();
}

/* `table` as the server calls it. */
int refuse_vector_index(const char *table) {
  my_printf_error(
      ER_ILLEGAL_HA,
      "Ferrite: table %s has a VECTOR INDEX, and a file of FLUSH TABLES ... FOR EXPORT would not: "
      "drop the index first, or use mariadb-dump or a backup",
      MYF(0), table);
  return raised();
}

}  // namespace

static bool ends_with(const char *text, const char *end) {
  const size_t len = strlen(text), end_len = strlen(end);
  return len > end_len && !strcmp(text + len - end_len, end);
}

/* A name that is too long is no file's. */
static void remove_file(const std::string &path) {
  if (unlink(path.c_str()) && errno != ENOENT && errno != ENAMETOOLONG)
    sql_print_warning("Ferrite: cannot remove the exported table %s: %s", path.c_str(),
                      strerror(errno));
}

void ferrite_remove_exported(const char *dir) {
  DIR *entries = opendir(dir);
  if (!entries) return;
  while (const dirent *entry = readdir(entries)) {
    if (!ends_with(entry->d_name, kExportedEnd) && !ends_with(entry->d_name, kPartEnd)) continue;
    const std::string path = std::string(dir) + "/" + entry->d_name;
    remove_file(path);
  }
  closedir(entries);
}

void ferrite_remove_exported_table(const std::string &core_name) {
  remove_file(ExportedPlace(core_name).path());
}

/* ---- export ------------------------------------------------------------------------ */

bool ha_ferrite::is_export(THD *thd, int lock_type) {
  return lock_type == F_RDLCK && thd_sql_command(thd) == SQLCOM_FLUSH &&
         (thd->lex->type & REFRESH_FOR_EXPORT);
}

/* The table is locked against writers from here to UNLOCK TABLES. */
int ha_ferrite::export_table(THD *thd) {
  if (m_sequence) return HA_ERR_WRONG_COMMAND;
  if (ferrite::vector_indexes(table)) return refuse_vector_index(table->s->table_name.str);
  if (ferrite::is_encrypted()) {
    my_printf_error(
        ER_ILLEGAL_HA,
        "Ferrite: table %s is encrypted, and a file of FLUSH TABLES ... FOR EXPORT would "
        "not be: use mariadb-dump, or a backup",
        MYF(0), m_share->name.c_str());
    return raised();
  }
  if (has_moments_of_before(table)) {
    my_printf_error(
        ER_ILLEGAL_HA,
        "Ferrite: table %s is WITH SYSTEM VERSIONING and of a server before 11.5; its "
        "living rows are not converted yet: run mariadb-upgrade, or ALTER TABLE ... FORCE",
        MYF(0), m_share->name.c_str());
    return raised();
  }
  /* Named twice, by views: it is there already, and goes when the first of them is unlocked. */
  if (m_share->exporter == thd) return 0;
  const ExportedPlace place(m_share->name);
  if (is_too_long(place, table->s->table_name.str)) return raised();
  const Traveller traveller{layout(), table, columns_text(thd, table)};
  const fe_exported_file file = traveller.in(place);
  /* A snapshot of its own, whatever the statement's isolation is. */
  fe_stmt_begin(m_session, FE_READ_COMMITTED);
  uint64_t bytes = 0;
  const fe_code rc = fe_table_export(m_session, m_share->table, &file, m_share->name.c_str(),
                                     MYSQL_SERVER_VERSION, &bytes);
  fe_txn_close_snapshot(m_session);
  if (rc == FE_EXISTS) {
    my_error(ER_FILE_EXISTS_ERROR, MYF(0), place.path().c_str());
    return raised();
  }
  if (rc == FE_INTERRUPTED) return ferrite_table_error(rc, thd);
  if (rc != FE_OK) return error(rc);
  m_exported = true;
  m_share->exporter = thd;
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_UNKNOWN_ERROR,
                      "Ferrite: exported to %s, %llu bytes", place.path().c_str(),
                      static_cast<ulonglong>(bytes));
  return 0;
}

/* Who has moved the file away needs it no longer. */
void ha_ferrite::end_export() {
  if (!m_exported) return;
  m_exported = false;
  m_share->exporter = nullptr;
  ferrite_remove_exported_table(m_share->name);
}

/* ---- discard and import ------------------------------------------------------------ */

int ha_ferrite::discard_or_import_tablespace(my_bool discard) {
  THD *thd = ha_thd();
  /* This is the index, which the server asks before its table. */
  if (table->s->tmp_table == INTERNAL_TMP_TABLE)
    return refuse_vector_index(table->s->table_name.str);
  if (table->s->tmp_table != NO_TMP_TABLE) {
    my_error(ER_CANNOT_DISCARD_TEMPORARY_TABLE, MYF(0));
    return raised();
  }
  if (int err = ferrite_check_writable(thd)) return err;
  const char *what = discard ? "DISCARD TABLESPACE" : "IMPORT TABLESPACE";
  if (m_sequence) return refuse(what, "the table is a sequence", "ALTER SEQUENCE");
  if (is_linked() && ferrite_foreign_checks(thd))
    return refuse(what,
                  discard ? "rows of other tables may refer to the table's"
                          : "the rows are not checked against the table's foreign keys",
                  "SET foreign_key_checks=0");
  close_cursors();
  return discard ? truncate() : import_table(thd);
}

int ha_ferrite::import_table(THD *thd) {
  const ExportedPlace place(m_share->name);
  if (is_too_long(place, table->s->table_name.str)) return raised();
  const Traveller traveller{layout(), table, columns_text(thd, table)};
  const fe_exported_file file = traveller.in(place);
  fe_stmt_begin(m_session, FE_READ_COMMITTED);
  const fe_code rc =
      fe_table_import(m_session, m_share->name.c_str(), &file, thd, ferrite_ddl_wait_ms(thd));
  switch (rc) {
    case FE_OK:
      break;
    case FE_NOT_FOUND:
      my_error(ER_FILE_NOT_FOUND, MYF(0), place.path().c_str(), ENOENT);
      return raised();
    case FE_EXISTS:
      my_error(ER_TABLESPACE_EXISTS, MYF(0), table->s->table_name.str);
      return raised();
    case FE_FORMAT:
      my_error(ER_TABLE_SCHEMA_MISMATCH, MYF(0), fe_last_error());
      return raised();
    case FE_CORRUPT:
      my_printf_error(ER_NOT_KEYFILE, "Ferrite: %s", MYF(0), fe_last_error());
      return raised();
    default:
      return ferrite_table_error(rc, thd);
  }
  const int err = m_share->reopen(table, thd);
  m_generation = m_share->generation;
  m_exported = true;
  end_export();
  return err;
}
