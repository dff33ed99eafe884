/*
 * Foreign keys in CREATE, ALTER and SHOW CREATE TABLE (see ferrite_foreign.h).
 */
#include "ferrite_foreign.h"

#include <sp_cache.h>
#include <sql_prepare.h>

#include "ferrite_error.h"
#include "ferrite_hton.h"

/* ---- names ------------------------------------------------------------------------- */

/* The server finishes or takes back what a crash has broken off, before there are connections. It
   has checked what there was to check, and goes on whether the engine refuses or not: in ALTER a
   parent whose copy is complete is dropped under its own name. */
static bool in_recovery(const THD *thd) { return !thd->thread_id; }

bool ferrite_foreign_checks(THD *thd) {
  if (!thd) return true;
  return !in_recovery(thd) && !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS);
}

fe_references ferrite_references_that_keep(THD *thd) {
  /* A DROP is logged before the engine is asked, so it may be one that would have been refused. */
  if (thd && in_recovery(thd)) return FE_REFERENCES_UNLESS_REPLACED;
  if (!ferrite_foreign_checks(thd)) return FE_REFERENCES_NONE;
  const bool database = thd && thd_sql_command(thd) == SQLCOM_DROP_DB;
  return database ? FE_REFERENCES_OTHER_DATABASES : FE_REFERENCES_ANY;
}

namespace ferrite {

/* How the names of tables begin that an ALTER TABLE fills. */
static constexpr char kAlterCopy[] = "#sql-alter-";

std::string shown(const std::string &file) {
  char text[NAME_LEN + 1];
  const uint len = filename_to_tablename(file.c_str(), text, sizeof text, true);
  return std::string(text, len);
}

std::string database_of(const std::string &core_name) {
  const size_t slash = core_name.rfind('/');
  return slash == std::string::npos ? std::string() : core_name.substr(0, slash);
}

std::string table_of(const std::string &core_name) {
  return core_name.substr(core_name.rfind('/') + 1);
}

bool is_alter_copy(const std::string &core_name) {
  return table_of(core_name).compare(0, strlen(kAlterCopy), kAlterCopy) == 0;
}

static std::string file_name(const LEX_CSTRING &name) {
  char text[FN_REFLEN + 1];
  const std::string folded =
      lower_case_table_names ? lower_case(name) : std::string(name.str, name.length);
  const uint len = tablename_to_filename(folded.c_str(), text, sizeof text);
  return std::string(text, len);
}

static void append_quoted(THD *thd, String *to, const std::string &name) {
  append_identifier(thd, to, name.data(), name.size());
}

static std::string quoted_table(THD *thd, const std::string &core_name) {
  String text;
  ferrite_append_table(thd, &text, core_name);
  return std::string(text.ptr(), text.length());
}

/* ---- a constraint in words ---------------------------------------------------------- */

static const char *action_text(uint32_t action) {
  switch (action) {
    case FE_FK_CASCADE:
      return "CASCADE";
    case FE_FK_SET_NULL:
      return "SET NULL";
    case FE_FK_NO_ACTION:
      return "NO ACTION";
    default:
      return nullptr;
  }
}

/* What CREATE TABLE says of a constraint. */
struct Clause {
  const char *name, *parent;
  const fe_fk_column *columns;
  uint32_t column_count, on_delete, on_update;

  explicit Clause(const fe_fk_def &def)
      : name(def.name),
        parent(def.parent),
        columns(def.columns),
        column_count(def.column_count),
        on_delete(def.on_delete),
        on_update(def.on_update) {}
  Clause(const fe_link &link, const char *parent_name)
      : name(link.name),
        parent(parent_name),
        columns(link.columns),
        column_count(link.column_count),
        on_delete(link.on_delete),
        on_update(link.on_update) {}
};

static void append_columns(THD *thd, String *to, const Clause &clause,
                           const char *const fe_fk_column::*side) {
  to->append(STRING_WITH_LEN(" ("));
  for (uint32_t i = 0; i < clause.column_count; i++) {
    if (i) to->append(STRING_WITH_LEN(", "));
    append_quoted(thd, to, clause.columns[i].*side);
  }
  to->append(')');
}

static void append_constraint(THD *thd, String *to, const Clause &clause,
                              const std::string &child) {
  const std::string parent = clause.parent;
  to->append(STRING_WITH_LEN(" CONSTRAINT "));
  append_quoted(thd, to, clause.name);
  to->append(STRING_WITH_LEN(" FOREIGN KEY"));
  append_columns(thd, to, clause, &fe_fk_column::own);
  to->append(STRING_WITH_LEN(" REFERENCES "));
  if (database_of(parent) != database_of(child)) {
    append_quoted(thd, to, shown(database_of(parent)));
    to->append('.');
  }
  append_quoted(thd, to, ferrite_shown_name(parent));
  append_columns(thd, to, clause, &fe_fk_column::other);
  if (const char *action = action_text(clause.on_delete)) {
    to->append(STRING_WITH_LEN(" ON DELETE "));
    to->append(action, strlen(action));
  }
  if (const char *action = action_text(clause.on_update)) {
    to->append(STRING_WITH_LEN(" ON UPDATE "));
    to->append(action, strlen(action));
  }
}

/* ---- CREATE and ALTER -------------------------------------------------------------- */

static uint32_t action_of(enum_fk_option option) {
  switch (option) {
    case FK_OPTION_CASCADE:
      return FE_FK_CASCADE;
    case FK_OPTION_SET_NULL:
      return FE_FK_SET_NULL;
    case FK_OPTION_NO_ACTION:
      return FE_FK_NO_ACTION;
    default: /* SET DEFAULT restricts, as in InnoDB */
      return FE_FK_RESTRICT;
  }
}

ForeignKeys::ForeignKeys(THD *thd, const TABLE *form, const HA_CREATE_INFO *info,
                         const std::string &name, bool only_new)
    : m_thd(thd),
      m_form(form),
      m_name(name),
      m_database(database_of(name)),
      m_shown(ferrite_shown_name(name)),
      m_alter(thd_sql_command(thd) == SQLCOM_ALTER_TABLE),
      m_temporary(info->tmp_table()) {
  if (!info->alter_info) return;
  /* Also of OPTIMIZE, CREATE INDEX and whatever else copies a table. */
  if (const TABLE *original = info->alter_info->original_table) {
    const TABLE_SHARE *s = original->s;
    m_original = file_name(s->db) + "/" + file_name(s->table_name);
    const LEX_CSTRING *to = &s->table_name;
    if (m_alter && thd->lex->name.str) to = &thd->lex->name;
    m_shown.assign(to->str, to->length);
    const bool loses_primary = s->primary_key != MAX_KEY && form->s->primary_key == MAX_KEY;
    m_follows = ferrite_renames_copy(thd) && !loses_primary &&
                info->alter_info->algorithm(thd) != Alter_info::ALTER_TABLE_ALGORITHM_COPY;
  }
  /* CREATE TABLE ... LIKE has those of the other table here. */
  const bool copy = !m_temporary && table_of(name).compare(0, 5, "#sql-") == 0;
  List_iterator_fast<Key> keys(info->alter_info->key_list);
  while (const Key *key = keys++)
    if (key->type == Key::FOREIGN_KEY && !(key->old && (only_new || !copy)))
      add(static_cast<const Foreign_key *>(key), info->alter_info);
  name_constraints();
}

const char *ForeignKeys::keep(const std::string &text) {
  m_texts.push_back(text);
  return m_texts.back().c_str();
}

std::string ForeignKeys::parent_of(const Foreign_key *key) const {
  const std::string db = key->ref_db.str ? file_name(key->ref_db) : m_database;
  return db + "/" + file_name(key->ref_table);
}

/* A copied row without a value gets one where NULL is no longer allowed, but in strict mode. */
static bool fills_null(THD *thd, const Create_field &to) {
  const bool strict = thd->is_strict_mode() && !thd->lex->ignore;
  return !strict && to.field && !(to.field->flags & NOT_NULL_FLAG) && to.flags & NOT_NULL_FLAG;
}

/* A foreign key that the table has already: may the rows of its copy have other values in the
   columns than those that were checked? */
bool ForeignKeys::has_other_values(const Foreign_key *key, Alter_info *info) const {
  DBUG_ASSERT(key->old);
  const auto is_of_key = [key](const LEX_CSTRING &name) {
    List_iterator_fast<Key_part_spec> columns(const_cast<Foreign_key *>(key)->columns);
    while (const Key_part_spec *column = columns++)
      if (same_name(column->field_name, name)) return true;
    return false;
  };
  /* One that sets NULL does not fit such a column: that is found when the copy gets its name. */
  const bool nulls = key->delete_opt == FK_OPTION_SET_NULL || key->update_opt == FK_OPTION_SET_NULL;
  List_iterator_fast<Create_field> fields(info->create_list);
  while (const Create_field *to = fields++)
    if (!nulls && is_of_key(to->field_name) && fills_null(m_thd, *to)) return true;
  for (Field *const *field = m_form->field; *field; field++)
    if (is_of_key((*field)->field_name) &&
        computes_otherwise(const_cast<TABLE *>(m_form), info, *field))
      return true;
  return false;
}

void ForeignKeys::add(const Foreign_key *key, Alter_info *info) {
  std::vector<fe_fk_column> columns;
  /* Iterators of the server's lists take no const list. */
  Foreign_key *lists = const_cast<Foreign_key *>(key);
  List_iterator_fast<Key_part_spec> own(lists->columns), other(lists->ref_columns);
  const Key_part_spec *a, *b;
  while ((a = own++) && (b = other++))
    columns.push_back({keep(std::string(a->field_name.str, a->field_name.length)),
                       keep(std::string(b->field_name.str, b->field_name.length))});
  m_columns.push_back(std::move(columns));
  fe_fk_def def;
  memset(&def, 0, sizeof def);
  if (key->constraint_name.str)
    def.name = keep(std::string(key->constraint_name.str, key->constraint_name.length));
  def.parent = keep(parent_of(key));
  def.columns = m_columns.back().data();
  def.column_count = static_cast<uint32_t>(m_columns.back().size());
  def.on_delete = action_of(key->delete_opt);
  def.on_update = action_of(key->update_opt);
  def.carried = key->old && !(ferrite_foreign_checks(m_thd) && has_other_values(key, info));
  if (key->old && !def.carried) m_parents_to_lock.push_back(def.parent);
  m_keys.push_back(key);
  m_defs.push_back(def);
}

/* Those without a name: TABLE_ibfk_1 and so on, above all that the table has. Names of that form go
   with the table when it gets another one. */
void ForeignKeys::name_constraints() {
  uint64_t number = 0;
  const std::string before = m_original.empty() ? m_shown : ferrite_shown_name(m_original);
  const std::string prefix = before + "_ibfk_";
  if (!m_original.empty())
    number = fe_foreign_last_number(ferrite_engine, m_original.c_str(), before.c_str());
  for (size_t i = 0; i < m_defs.size(); i++) {
    fe_fk_def &def = m_defs[i];
    if (!def.name)
      def.name = keep(m_shown + "_ibfk_" + std::to_string(++number));
    else if (m_keys[i]->old && !strncmp(def.name, prefix.c_str(), prefix.size()))
      def.name = keep(m_shown + "_ibfk_" + (def.name + prefix.size()));
  }
}

fe_fk_defs ForeignKeys::defs() const {
  fe_fk_defs defs;
  memset(&defs, 0, sizeof defs);
  defs.defs = m_defs.data();
  defs.count = static_cast<uint32_t>(m_defs.size());
  defs.checks = (ferrite_foreign_checks(m_thd) ? 1u : 0u) | (m_thd->is_strict_mode() ? 2u : 0u) |
                (m_follows ? 4u : 0u);
  defs.original = m_original.empty() ? nullptr : m_original.c_str();
  return defs;
}

/* ---- what is wrong ----------------------------------------------------------------- */

/* The constraint in a message: its name, or its columns as far as they fit. */
static std::string key_text(const Foreign_key *key) {
  constexpr size_t kRoom = 48;
  if (key->name.str)
    return "`" + std::string(key->name.str, std::min(key->name.length, kRoom - 2)) + "`";
  std::string text = "(";
  List_iterator_fast<Key_part_spec> columns(const_cast<Foreign_key *>(key)->columns);
  while (const Key_part_spec *column = columns++) {
    const bool more = columns.peek();
    if (kRoom - text.size() < (more ? 6u : 4u) + column->field_name.length) {
      text += "...";
      break;
    }
    text.append(column->field_name.str, column->field_name.length);
    if (more) text += ", ";
  }
  return text + ")";
}

/* The number is the handler's own, as InnoDB's is. */
static void warn_misfit(THD *thd, uint number, const std::string &text) {
  Abort_on_warning_instant_set stays_a_warning(thd, false);
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, number, text.c_str());
}

/* A copy's name says nothing to users. */
const std::string &ForeignKeys::known_as() const {
  return m_original.empty() ? m_name : m_original;
}

void ForeignKeys::warn(const Foreign_key *key, const std::string &reason) const {
  const std::string table = quoted_table(m_thd, known_as());
  /* InnoDB's grammar, too. */
  const bool no_column = reason.compare(0, 7, "Column ") == 0;
  warn_misfit(m_thd, HA_ERR_CANNOT_ADD_FOREIGN,
              std::string(m_alter ? "Alter " : "Create ") + " table " + table +
                  (no_column ? "" : " with") + " foreign key " + key_text(key) +
                  " constraint failed. " + reason);
}

std::string ForeignKeys::reason(const fe_fk_misfit &misfit, const Foreign_key *key) const {
  switch (misfit.reason) {
    case FE_MISFIT_CHILD_COLUMN:
      return std::string("Column ") + misfit.column + " was not found.";
    case FE_MISFIT_PARENT_COLUMN:
      return std::string("Column ") + misfit.other + " was not found.";
    case FE_MISFIT_CHILD_PREFIX:
    case FE_MISFIT_PARENT_PREFIX:
      return "There is only prefix index in the referenced table where the referenced columns "
             "appear as the first columns.";
    case FE_MISFIT_PARENT:
      return "Referenced table " + quoted_table(m_thd, parent_of(key)) +
             " not found in the data dictionary.";
    case FE_MISFIT_PARENT_OLD:
      return "An earlier version of Ferrite made the referenced table. Rebuild it with ALTER "
             "TABLE " +
             quoted_table(m_thd, parent_of(key)) + " FORCE.";
    case FE_MISFIT_TYPES:
      return std::string("Field type or character set for column '") + misfit.column +
             "' does not match referenced column '" + misfit.other + "'.";
    case FE_MISFIT_NOT_NULL:
      return std::string("You have defined a SET NULL condition but column '") + misfit.column +
             "' is defined as NOT NULL.";
    default:
      return "There is no index in the referenced table where the referenced columns appear as "
             "the first columns.";
  }
}

void ForeignKeys::warn_taken(const fe_fk_def &def) const {
  String text;
  text.append(STRING_WITH_LEN("CREATE or ALTER TABLE "));
  const std::string table = quoted_table(m_thd, known_as());
  text.append(table.data(), table.size());
  text.append(STRING_WITH_LEN(" failed: duplicate name,"));
  append_constraint(m_thd, &text, Clause(def), m_name);
  warn_misfit(m_thd, HA_ERR_FOUND_DUPP_KEY, std::string(text.ptr(), text.length()));
}

int ForeignKeys::report() const {
  fe_fk_misfit misfit;
  fe_last_misfit(&misfit);
  if (misfit.reason == FE_MISFIT_NAME_TWICE) return HA_ERR_CANNOT_ADD_FOREIGN;
  const bool is_taken = misfit.reason == FE_MISFIT_NAME || misfit.reason == FE_MISFIT_NAME_OF_OWN;
  if (is_taken && misfit.at < m_defs.size()) {
    warn_taken(m_defs[misfit.at]);
    return HA_ERR_FOUND_DUPP_KEY;
  }
  /* InnoDB gives no reason. */
  if (misfit.reason == FE_MISFIT_NULL_FOLLOWS) return HA_ERR_CANNOT_ADD_FOREIGN;
  if (misfit.at < m_keys.size())
    warn(m_keys[misfit.at], reason(misfit, m_keys[misfit.at]));
  else
    warn_misfit(m_thd, HA_ERR_CANNOT_ADD_FOREIGN,
                "Create table '" + known_as() +
                    "' with foreign key constraint failed. Constraint " + misfit.key +
                    ", which refers to the table, does not fit it.");
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

int ForeignKeys::report_in_place() const {
  fe_fk_misfit misfit;
  fe_last_misfit(&misfit);
  if (misfit.at >= m_keys.size()) return report();
  const Foreign_key *key = m_keys[misfit.at];
  const char *name = key->constraint_name.str ? key->constraint_name.str : "";
  /* InnoDB's name of a constraint. */
  const std::string id = m_database + "/" + misfit.key;
  switch (misfit.reason) {
    case FE_MISFIT_NAME:
    case FE_MISFIT_NAME_TWICE:
      warn_taken(m_defs[misfit.at]);
      my_error(ER_FK_FAIL_ADD_SYSTEM, MYF(0), id.c_str());
      break;
    case FE_MISFIT_NAME_OF_OWN:
      my_error(ER_DUP_CONSTRAINT_NAME, MYF(0), "FOREIGN KEY", id.c_str());
      break;
    case FE_MISFIT_CHILD_COLUMN:
    case FE_MISFIT_CHILD_INDEX:
    case FE_MISFIT_CHILD_PREFIX:
      my_error(ER_FK_NO_INDEX_CHILD, MYF(0), name, m_shown.c_str());
      break;
    case FE_MISFIT_NOT_NULL:
      my_error(ER_FK_INCORRECT_OPTION, MYF(0), m_shown.c_str(), misfit.key);
      break;
    case FE_MISFIT_NULL_FOLLOWS:
      my_error(ER_CANNOT_ADD_FOREIGN, MYF(0), m_shown.c_str());
      break;
    case FE_MISFIT_PARENT_OLD:
      warn(key, reason(misfit, key));
      my_error(ER_FK_NO_INDEX_PARENT, MYF(0), name, key->ref_table.str);
      break;
    default:
      my_error(ER_FK_NO_INDEX_PARENT, MYF(0), name, key->ref_table.str);
  }
  return -1;
}

/* Is a column of the constraint one from which a stored generated column is computed? */
static bool on_base_of_stored(const TABLE *form, const Foreign_key *key) {
  TABLE *table = const_cast<TABLE *>(form);
  MY_BITMAP *old_read = table->read_set;
  table->read_set = &table->tmp_set;
  bool found = false;
  for (uint i = 0; i < form->s->fields && !found; i++) {
    const Field *field = form->field[i];
    if (!field->vcol_info || !field->stored_in_db()) continue;
    bitmap_clear_all(table->read_set);
    field->vcol_info->expr->walk(&Item::register_field_in_read_map, true, table);
    List_iterator_fast<Key_part_spec> columns(const_cast<Foreign_key *>(key)->columns);
    while (const Key_part_spec *column = columns++)
      for (uint base = 0; base < form->s->fields; base++)
        if (bitmap_is_set(table->read_set, base) &&
            same_name(form->field[base]->field_name, column->field_name))
          found = true;
  }
  table->read_set = old_read;
  return found;
}

/* What a constraint on a generated column must not do: nothing could follow into it. NULL: it does
   not. The server asks so of new constraints, and takes it for granted of those that the table has,
   whatever becomes of their columns. */
static const char *writes_generated(const TABLE *form, const Foreign_key *key) {
  const char *clause = key->delete_opt == FK_OPTION_SET_NULL   ? "ON DELETE SET NULL"
                       : key->update_opt == FK_OPTION_SET_NULL ? "ON UPDATE SET NULL"
                       : key->update_opt == FK_OPTION_CASCADE  ? "ON UPDATE CASCADE"
                                                               : nullptr;
  if (!clause) return nullptr;
  List_iterator_fast<Key_part_spec> columns(const_cast<Foreign_key *>(key)->columns);
  while (const Key_part_spec *column = columns++)
    for (Field *const *field = form->field; *field; field++)
      if ((*field)->vcol_info && same_name((*field)->field_name, column->field_name)) return clause;
  return nullptr;
}

int ForeignKeys::check() const {
  for (size_t i = 0; i < m_keys.size(); i++) {
    const char *name = m_defs[i].name;
    if (system_charset_info->numchars(name, name + strlen(name)) > NAME_CHAR_LEN) {
      my_error(ER_TOO_LONG_IDENT, MYF(0), name);
      return HA_ERR_INTERNAL_ERROR;
    }
    if (m_temporary) {
      warn_misfit(m_thd, HA_ERR_CANNOT_ADD_FOREIGN,
                  std::string(m_alter ? "Alter " : "Create ") + " table `" + m_form->s->db.str +
                      "`.`" + m_form->s->table_name.str +
                      "` with foreign key constraint failed. Temporary tables can't have "
                      "foreign key constraints.");
      return HA_ERR_CANNOT_ADD_FOREIGN;
    }
    if (const char *clause = writes_generated(m_form, m_keys[i])) {
      my_error(ER_WRONG_FK_OPTION_FOR_GENERATED_COLUMN, MYF(0), clause);
      return HA_ERR_CANNOT_ADD_FOREIGN;
    }
    const bool changes =
        m_defs[i].on_delete == FE_FK_SET_NULL || m_defs[i].on_update >= FE_FK_CASCADE;
    if (!m_keys[i]->old && changes && on_base_of_stored(m_form, m_keys[i])) {
      warn_misfit(m_thd, HA_ERR_CANNOT_ADD_FOREIGN,
                  "Create table '" + known_as() +
                      "' with foreign key constraint failed. Cannot add foreign key "
                      "constraint placed on the base column of stored column. \n");
      return HA_ERR_CANNOT_ADD_FOREIGN;
    }
  }
  return 0;
}

int ForeignKeys::lock_parents() const {
  for (const std::string &parent : m_parents_to_lock) {
    const std::string db = shown(database_of(parent)), name = ferrite_shown_name(parent);
    MDL_request request;
    MDL_REQUEST_INIT(&request, MDL_key::TABLE, db.c_str(), name.c_str(), MDL_SHARED_NO_WRITE,
                     MDL_TRANSACTION);
    /* The error is given. */
    if (m_thd->mdl_context.acquire_lock(&request, m_thd->variables.lock_wait_timeout))
      return HA_ERR_GENERIC;
  }
  return 0;
}

/* ---- ALTER in place ---------------------------------------------------------------- */

fe_code alter_table(THD *thd, const std::string &name, const TABLE *altered, const Layout &layout,
                    Alter_inplace_info *info, const std::string &definition, uint32_t compression,
                    const std::vector<std::string> &names_dropped, ForeignKeys *added,
                    const IndexChange *change, uint64_t auto_increment) {
  std::vector<const char *> dropped;
  for (const std::string &name : names_dropped) dropped.push_back(name.c_str());
  std::list<std::string> names;
  std::vector<fe_fk_column> renamed;
  List_iterator_fast<Create_field> fields(info->alter_info->create_list);
  while (const Create_field *field = fields++) {
    /* Another spelling is another name. */
    if (!field->field || !strcmp(field->field->field_name.str, field->field_name.str)) continue;
    names.emplace_back(field->field->field_name.str, field->field->field_name.length);
    const char *before = names.back().c_str();
    names.emplace_back(field->field_name.str, field->field_name.length);
    renamed.push_back({before, names.back().c_str()});
  }
  fe_table_change alter;
  memset(&alter, 0, sizeof alter);
  alter.definition = {reinterpret_cast<const uint8_t *>(definition.data()), definition.size()};
  alter.drop = dropped.data();
  alter.drop_count = static_cast<uint32_t>(dropped.size());
  alter.renamed = renamed.data();
  alter.renamed_count = static_cast<uint32_t>(renamed.size());
  std::vector<const char *> indexes;
  for (const Index &index : layout.indexes)
    indexes.push_back(index.server_no == MAX_KEY ? kHiddenIndexName
                                                 : altered->key_info[index.server_no].name.str);
  alter.index_names = indexes.data();
  alter.index_count = static_cast<uint32_t>(indexes.size());
  alter.compression = compression;
  if (change) {
    alter.index_sources = change->sources.data();
    alter.build = change->build;
  }
  alter.add = added->defs();
  alter.auto_increment = auto_increment;
  return fe_table_alter(ferrite_engine, name.c_str(), &alter, thd, ferrite_lock_wait_ms(thd));
}

}  // namespace ferrite

/* A statement of a routine keeps the list of its tables, those included that the server adds
   because something follows into them; nothing of it depends on the version of a parent. */
void ferrite_child_has_come(const std::string &core_name) {
  if (fe_foreign_count(ferrite_engine, core_name.c_str())) sp_cache_invalidate();
}

std::string ferrite_known_as(const THD *thd, const std::string &core_name) {
  const TABLE_LIST *altered = thd->lex->query_tables;
  if (thd_sql_command(thd) != SQLCOM_ALTER_TABLE || !altered || !ferrite::is_alter_copy(core_name))
    return core_name;
  return ferrite::file_name(altered->db) + "/" + ferrite::file_name(altered->table_name);
}

bool ferrite_renames_copy(const THD *thd) {
  return thd_sql_command(thd) == SQLCOM_ALTER_TABLE && thd->lex->alter_info.flags & ALTER_RENAME;
}

/* The last step of such a statement is that the original goes. */
void ferrite_parent_has_gone(const THD *thd) {
  if (ferrite_renames_copy(thd)) sp_cache_invalidate();
}

bool ferrite_prepare_again(THD *thd) {
  const bool locked = thd->locked_tables_mode == LTM_LOCK_TABLES ||
                      thd->locked_tables_mode == LTM_PRELOCKED_UNDER_LOCK_TABLES;
  return !locked && thd->m_reprepare_observer && thd->m_reprepare_observer->report_error(thd);
}

std::string ferrite_shown_name(const std::string &core_name) {
  return ferrite::shown(ferrite::table_of(core_name));
}

std::string ferrite_shown_with_database(const std::string &core_name) {
  return ferrite::shown(ferrite::database_of(core_name)) + "." + ferrite_shown_name(core_name);
}

void ferrite_append_table(THD *thd, String *to, const std::string &core_name) {
  ferrite::append_quoted(thd, to, ferrite::shown(ferrite::database_of(core_name)));
  to->append('.');
  ferrite::append_quoted(thd, to, ferrite_shown_name(core_name));
}

void ferrite_append_constraint(THD *thd, String *to, const fe_link &link, const std::string &child,
                               const std::string &parent) {
  ferrite::append_constraint(thd, to, ferrite::Clause(link, parent.c_str()), child);
}
