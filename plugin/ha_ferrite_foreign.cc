/*
 * Foreign keys: what the server asks of a table that has some (see ferrite_foreign.h).
 */
#include "ha_ferrite.h"

#include "ferrite_foreign.h"
#include "ferrite_hton.h"

using ferrite::database_of;
using ferrite::Index;
using ferrite::KeyPart;
using ferrite::Layout;
using ferrite::same_name;
using ferrite::shown;

/* The links of the table as they are now; NULL: it has none. */
fe_code ha_ferrite::find_links(const fe_links **out) const {
  *out = nullptr;
  const uint64_t version = m_share && m_share->table ? fe_table_links_version(m_share->table) : 0;
  if (!version) return FE_OK;
  if (!m_links || fe_links_version(m_links) != version) {
    forget_links();
    const fe_code rc = fe_links_open(m_share->table, &m_links);
    if (rc != FE_OK) return rc;
  }
  *out = m_links;
  return FE_OK;
}

/* Likewise; gives the error if they cannot be read: who took that for none would drop constraints,
   or not check them. */
int ha_ferrite::read_links(const fe_links **out) {
  const fe_code rc = find_links(out);
  if (rc == FE_OK) return 0;
  const int err = error(rc);
  print_error(err, MYF(0));
  return err;
}

void ha_ferrite::forget_links() const {
  fe_links_close(m_links);
  m_links = nullptr;
}

struct LinkSpan {
  const fe_link *first = nullptr;
  uint32_t count = 0;
  const fe_link *begin() const { return first; }
  const fe_link *end() const { return first + count; }
};

static LinkSpan outgoing(const fe_links *links) {
  LinkSpan span;
  if (links) span.first = fe_links_outgoing(links, &span.count);
  return span;
}

static LinkSpan incoming(const fe_links *links) {
  LinkSpan span;
  if (links) span.first = fe_links_incoming(links, &span.count);
  return span;
}

char *ha_ferrite::get_foreign_key_create_info() {
  const fe_links *links;
  if (read_links(&links)) return nullptr;
  const LinkSpan span = outgoing(links);
  if (!span.count) return nullptr;
  String text;
  for (const fe_link &link : span) {
    text.append(STRING_WITH_LEN(",\n "));
    ferrite_append_constraint(ha_thd(), &text, link, m_share->name, link.other);
  }
  char *copy = static_cast<char *>(my_malloc(PSI_INSTRUMENT_ME, text.length() + 1, MYF(MY_WME)));
  if (!copy) return nullptr;
  memcpy(copy, text.ptr(), text.length());
  copy[text.length()] = '\0';
  return copy;
}

void ha_ferrite::free_foreign_key_create_info(char *text) { my_free(text); }

static LEX_CSTRING *lex_text(THD *thd, const std::string &text) {
  return thd_make_lex_string(thd, nullptr, text.data(), text.size(), true);
}

static enum_fk_option option_of(uint32_t action) {
  switch (action) {
    case FE_FK_CASCADE:
      return FK_OPTION_CASCADE;
    case FE_FK_SET_NULL:
      return FK_OPTION_SET_NULL;
    case FE_FK_NO_ACTION:
      return FK_OPTION_NO_ACTION;
    default:
      return FK_OPTION_RESTRICT;
  }
}

/* One constraint in the server's form; `child`, `parent`: its tables in the core. */
static FOREIGN_KEY_INFO *key_info(THD *thd, const fe_link &link, const std::string &child,
                                  const std::string &parent, bool of_parent) {
  FOREIGN_KEY_INFO info;
  info.foreign_id = lex_text(thd, link.name);
  info.foreign_db = lex_text(thd, shown(database_of(child)));
  info.foreign_table = lex_text(thd, ferrite_shown_name(child));
  info.referenced_db = lex_text(thd, shown(database_of(parent)));
  info.referenced_table = lex_text(thd, ferrite_shown_name(parent));
  info.update_method = option_of(link.on_update);
  info.delete_method = option_of(link.on_delete);
  info.referenced_key_name = link.parent_index ? lex_text(thd, link.parent_index) : nullptr;
  for (uint32_t i = 0; i < link.column_count; i++) {
    info.foreign_fields.push_back(lex_text(thd, link.columns[i].own), thd->mem_root);
    info.referenced_fields.push_back(lex_text(thd, link.columns[i].other), thd->mem_root);
  }
  /* As in InnoDB, a side without an index is taken for one that may be NULL. */
  for (uint32_t i = link.part_count; i < link.column_count; i++)
    info.set_nullable(thd, false, i, link.column_count);
  for (uint32_t i = 0; i < link.part_count; i++) {
    const fe_link_part &part = link.parts[i];
    const fe_link_side &of_child = of_parent ? part.other : part.own;
    const fe_link_side &there = of_parent ? part.own : part.other;
    if (of_child.flags & FE_LINK_NULLABLE) info.set_nullable(thd, false, i, link.column_count);
    if (there.flags & FE_LINK_NULLABLE) info.set_nullable(thd, true, i, link.column_count);
  }
  return static_cast<FOREIGN_KEY_INFO *>(thd_memdup(thd, &info, sizeof info));
}

int ha_ferrite::get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) {
  const fe_links *links;
  if (int err = read_links(&links)) return err;
  for (const fe_link &link : outgoing(links))
    list->push_back(key_info(thd, link, m_share->name, link.other, false), thd->mem_root);
  return 0;
}

/* Whether rows may be deleted where the server opens the children for what follows from an update,
   or updated where it does so for a deletion. It opens the children of a child for what the
   statement does, though SET NULL makes an update of a deletion. And in a row event a row that goes
   from a table WITH SYSTEM VERSIONING is an update of its end. */
static bool does_otherwise(THD *thd, const TABLE *parent) {
  const TABLE_LIST *place = parent->pos_in_table_list;
  if (!place) return false;
  if (place->prelocking_placeholder == TABLE_LIST::PRELOCK_FK) return true;
  if (!parent->versioned() || !(thd->rgi_slave || thd->rgi_fake)) return false;
  return (place->slave_fk_event_map | place->trg_event_map) & trg2bit(TRG_EVENT_UPDATE);
}

int ha_ferrite::get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) {
  const fe_links *links;
  if (int err = read_links(&links)) return err;
  const bool either = does_otherwise(thd, table);
  for (const fe_link &link : incoming(links)) {
    FOREIGN_KEY_INFO *key = key_info(thd, link, link.other, m_share->name, true);
    if (key && either) {
      if (fk_modifies_child(key->delete_method))
        key->update_method = key->delete_method;
      else if (fk_modifies_child(key->update_method))
        key->delete_method = key->update_method;
    }
    list->push_back(key, thd->mem_root);
  }
  return 0;
}

/* One of another table that refers to this one, in words; NULL: there is none. */
const char *ha_ferrite::referring_constraint(String *text) const {
  const fe_links *links;
  if (find_links(&links) != FE_OK) return nullptr;
  for (const fe_link &link : incoming(links)) {
    if (m_share->name == link.other) continue;
    ferrite_append_table(ha_thd(), text, link.other);
    text->append(',');
    ferrite_append_constraint(ha_thd(), text, link, link.other, m_share->name);
    return text->c_ptr_safe();
  }
  return nullptr;
}

/* Links that cannot be read are taken for some by these three. */
bool ha_ferrite::referenced_by_foreign_key() const noexcept {
  const fe_links *links;
  return find_links(&links) != FE_OK || incoming(links).count;
}

bool ha_ferrite::can_switch_engines() {
  const fe_links *links;
  return find_links(&links) == FE_OK && !outgoing(links).count && !incoming(links).count;
}

bool ha_ferrite::is_fk_defined_on_table_or_index(uint index) {
  if (index == MAX_KEY) return !can_switch_engines();
  if (index >= layout().by_server.size()) return false;
  const uint32_t no = layout().by_server[index];
  const fe_links *links;
  if (find_links(&links) != FE_OK) return true;
  for (const fe_link &link : outgoing(links))
    if (link.index_no == no) return true;
  for (const fe_link &link : incoming(links))
    if (link.index_no == no) return true;
  return false;
}

/* The name that a column of an altered table had before. */
static const char *name_before(const Field *field, Alter_inplace_info *info) {
  List_iterator_fast<Create_field> fields(info->alter_info->create_list);
  while (const Create_field *now = fields++)
    if (now->field && same_name(now->field_name, field->field_name))
      return now->field->field_name.str;
  return "";
}

/* The parts of an index as the core counts them for foreign keys (catalog/matching.rs): those
   declared, and of a secondary one the primary key's after them, unless it has some of these
   already. */
static std::vector<const KeyPart *> parts_of(const Layout &layout, const Index &index) {
  std::vector<const KeyPart *> parts;
  for (const KeyPart &part : index.parts) parts.push_back(&part);
  if (!index.no || !layout.primary()) return parts;
  const std::vector<KeyPart> &primary = layout.primary()->parts;
  DBUG_ASSERT(!primary.empty());
  for (const KeyPart &part : primary)
    for (const KeyPart &own : index.parts)
      if (own.column.field_no == part.column.field_no) return parts;
  for (const KeyPart &part : primary) parts.push_back(&part);
  return parts;
}

/* Of the altered table, `parts` of an index: does it begin with the link's columns? */
static bool serves(const std::vector<const KeyPart *> &parts, const TABLE *altered_table,
                   const fe_link &link, const char *const fe_fk_column::*side,
                   Alter_inplace_info *info) {
  DBUG_ASSERT(link.column_count > 0);
  if (parts.size() < link.column_count) return false;
  for (uint32_t i = 0; i < link.column_count; i++) {
    if (!parts[i]->whole) return false;
    const char *before = name_before(altered_table->field[parts[i]->column.field_no], info);
    if (!same_name(before, link.columns[i].*side)) return false;
  }
  return true;
}

static bool is_dropped(const fe_link &link, Alter_info *info) {
  List_iterator_fast<Alter_drop> drops(info->drop_list);
  while (const Alter_drop *drop = drops++)
    if (drop->type == Alter_drop::FOREIGN_KEY &&
        ferrite::same_name(ferrite::text_of(drop->name), link.name))
      return true;
  return false;
}

/* The names, as they are spelled, of the foreign keys that an ALTER in place drops: which letters
   are the same is the server's to say. */
int ha_ferrite::find_dropped(const Alter_inplace_info *info, std::vector<std::string> *names) {
  const fe_links *links;
  if (read_links(&links)) return -1; /* the error is given */
  List_iterator_fast<Alter_drop> drops(info->alter_info->drop_list);
  while (const Alter_drop *drop = drops++) {
    if (drop->type != Alter_drop::FOREIGN_KEY) continue;
    const char *name = ferrite::text_of(drop->name);
    const fe_link *found = nullptr;
    for (const fe_link &link : outgoing(links))
      if (!strcmp(link.name, name) || (!found && ferrite::same_name(link.name, name)))
        found = &link;
    if (!found) return HA_ERR_TABLE_DEF_CHANGED;
    names->push_back(found->name);
  }
  return 0;
}

static bool has_column(const fe_link &link, const char *const fe_fk_column::*side,
                       const char *name) {
  for (uint32_t i = 0; i < link.column_count; i++)
    if (ferrite::same_name(link.columns[i].*side, name)) return true;
  return false;
}

static const Foreign_key *added_on(const Alter_inplace_info *info, const LEX_CSTRING &column) {
  List_iterator_fast<Key> keys(info->alter_info->key_list);
  while (const Key *key = keys++) {
    if (key->type != Key::FOREIGN_KEY || key->old) continue;
    List_iterator_fast<Key_part_spec> columns(const_cast<Key *>(key)->columns);
    while (const Key_part_spec *part = columns++)
      if (same_name(part->field_name, column)) return static_cast<const Foreign_key *>(key);
  }
  return nullptr;
}

static void refuse_for_child(const fe_link &link, const char *column, bool is_copied) {
  const std::string child = is_copied && ferrite::kNamesDatabaseOfChild
                                ? ferrite_shown_with_database(link.other)
                                : ferrite_shown_name(link.other);
  my_error(ER_FK_COLUMN_CANNOT_CHANGE_CHILD, MYF(0), column, link.name, child.c_str());
}

/* Gives the error if the rows of a copy of this table get other values in a column that children
   refer to: these would be without a parent. The server refuses another type, which is all that it
   knows of; it says so of no generated column. Names of columns are the same in a copy. */
bool ha_ferrite::computes_parents_otherwise(TABLE *copy, Alter_info *info) {
  if (!ferrite_foreign_checks(ha_thd())) return false;
  const fe_links *links;
  if (read_links(&links)) return true;
  for (const fe_link &link : incoming(links)) {
    if (m_share->name == link.other && is_dropped(link, info)) continue;
    for (Field *const *field = copy->field; *field; field++) {
      const char *name = (*field)->field_name.str;
      if (!has_column(link, &fe_fk_column::other, name)) continue;
      if (!ferrite::computes_otherwise(copy, info, *field)) continue;
      refuse_for_child(link, name, true);
      return true;
    }
  }
  return false;
}

/* The same, of a table that is made. */
bool ha_ferrite::is_wrong_for_children(TABLE *form, const HA_CREATE_INFO *info) {
  TABLE *original = info->alter_info ? info->alter_info->original_table : nullptr;
  if (!original || original->file->ht != ferrite_hton) return false;
  ha_ferrite *parent = static_cast<ha_ferrite *>(original->file);
  return parent->computes_parents_otherwise(form, info->alter_info);
}

/* Whether the table is filled by an ALTER TABLE, in the place of one that others refer to, which
   need not copy it for InnoDB. */
bool ha_ferrite::is_copy_of_parent() const {
  const THD *thd = ha_thd();
  const LEX *lex = thd->lex;
  if (!ferrite::is_alter_copy(m_share->name) || lex->ignore ||
      lex->alter_info.algorithm(thd) == Alter_info::ALTER_TABLE_ALGORITHM_COPY)
    return false;
  const TABLE *original = lex->query_tables ? lex->query_tables->table : nullptr;
  return original && original->file->ht == ferrite_hton &&
         original->file->referenced_by_foreign_key();
}

/* The server takes a duplicate in such a copy for a row that it could leave out, and says of any
   that no parent is deleted (1834), though without IGNORE it leaves out none. So the duplicate is
   what it is to say. */
bool ha_ferrite::is_fatal_error(int error, uint flags) {
  if (handler::is_fatal_error(error, flags)) return true;
  const bool duplicate = error == HA_ERR_FOUND_DUPP_KEY || error == HA_ERR_FOUND_DUPP_UNIQUE;
  return unlikely(duplicate) && is_copy_of_parent();
}

/* Gives the error if a column of a foreign key becomes longer, or of another charset: by copy, the
   server refuses that, with and without foreign_key_checks. */
bool ha_ferrite::changes_linked_type(Alter_inplace_info *info) {
  constexpr alter_table_operations types =
      ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_STORED_COLUMN_TYPE;
  if (!(info->handler_flags & types)) return false;
  const fe_links *links;
  if (read_links(&links)) return true;
  List_iterator_fast<Create_field> fields(info->alter_info->create_list);
  while (const Create_field *now = fields++) {
    if (!now->field || now->field->is_equal(*now)) continue;
    /* All other changes copy the table. */
    if (!can_convert_nocopy(*now->field, *now) && now->field->charset() == now->charset) continue;
    const char *name = now->field->field_name.str;
    for (const fe_link &link : outgoing(links)) {
      if (is_dropped(link, info->alter_info) || !has_column(link, &fe_fk_column::own, name))
        continue;
      my_error(ER_FK_COLUMN_CANNOT_CHANGE, MYF(0), name, link.name);
      return true;
    }
    for (const fe_link &link : incoming(links)) {
      if (!has_column(link, &fe_fk_column::other, name)) continue;
      refuse_for_child(link, name, now->field->charset() != now->charset);
      return true;
    }
    /* With foreign_key_checks a new key is not added in place, so the copy finds out. */
    const Foreign_key *key =
        ferrite_foreign_checks(ha_thd()) ? nullptr : added_on(info, now->field_name);
    if (key) {
      /* One without a name has no number yet. */
      const std::string unnamed = std::string(table->s->table_name.str) + "_ibfk_0";
      const char *given = key->constraint_name.str;
      my_error(ER_FK_COLUMN_CANNOT_CHANGE, MYF(0), name, given ? given : unnamed.c_str());
      return true;
    }
  }
  return false;
}

/* The own index that a child looks into that has lost its own: it still has its parent. */
uint32_t ha_ferrite::index_for_child(const fe_link &link) const {
  for (size_t no = 0; no < layout().indexes.size(); no++) {
    const std::vector<const KeyPart *> parts = parts_of(layout(), layout().indexes[no]);
    bool is_it = parts.size() >= link.column_count;
    for (uint32_t i = 0; is_it && i < link.column_count; i++)
      is_it = parts[i]->whole && same_name(table->field[parts[i]->column.field_no]->field_name.str,
                                           link.columns[i].other);
    if (is_it) return static_cast<uint32_t>(no);
  }
  return FE_NO_INDEX;
}

/* Gives the error if indexes go without which a foreign key cannot be checked. */
bool ha_ferrite::loses_needed_index(TABLE *altered_table, Alter_inplace_info *info) {
  if (!info->index_drop_count || !ferrite_foreign_checks(ha_thd())) return false;
  /* InnoDB copies the table then, and finds out at the end. */
  if (info->handler_flags & ALTER_DROP_PK_INDEX && !(info->handler_flags & ALTER_ADD_PK_INDEX))
    return false;
  const fe_links *links;
  if (read_links(&links)) return true;
  Layout altered;
  altered.init(altered_table);
  const auto lost = [&](const fe_link &link, const char *const fe_fk_column::*side) {
    uint32_t needed = link.index_no;
    if (needed == FE_NO_INDEX && side == &fe_fk_column::other) needed = index_for_child(link);
    if (needed >= layout().indexes.size()) return false;
    for (const Index &index : altered.indexes)
      if (serves(parts_of(altered, index), altered_table, link, side, info)) return false;
    const uint key = layout().indexes[needed].server_no;
    my_error(ER_DROP_INDEX_FK, MYF(0), key < table->s->keys ? table->key_info[key].name.str : "");
    return true;
  };
  for (const fe_link &link : outgoing(links))
    if (!is_dropped(link, info->alter_info) && lost(link, &fe_fk_column::own)) return true;
  for (const fe_link &link : incoming(links)) {
    const bool own = m_share->name == link.other;
    if (!(own && is_dropped(link, info->alter_info)) && lost(link, &fe_fk_column::other))
      return true;
  }
  return false;
}
