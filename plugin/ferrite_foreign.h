/*
 * Foreign keys between the server and the core (ferrite_foreign.cc, ha_ferrite_foreign.cc);
 * docs/internals/foreign_keys.md has the rules.
 *
 * Rules of this module
 * - What later versions of the server do otherwise (lists of foreign keys move to TABLE_SHARE) is
 *   in ha_ferrite_foreign.cc.
 * - What is wrong with a constraint is said in InnoDB's words, as a warning beside the error.
 */
#ifndef FERRITE_FOREIGN_H
#define FERRITE_FOREIGN_H

#include "server_compat.h"

#include <list>
#include <string>
#include <vector>

#include "ferrite.h"
#include "ferrite_share.h"

namespace ferrite {

/* Parts of a name in the core, "db/table"; a part as users see it. */
std::string database_of(const std::string &core_name);
std::string table_of(const std::string &core_name);
std::string shown(const std::string &file);
/* Is it a table that an ALTER TABLE fills? */
bool is_alter_copy(const std::string &core_name);

/* The foreign keys of a CREATE or ALTER TABLE, as the core wants them. */
class ForeignKeys {
 public:
  /* `name`: the table to be made, as the core calls it. `only_new`: without those that the table
     has already. */
  ForeignKeys(THD *thd, const TABLE *form, const HA_CREATE_INFO *info, const std::string &name,
              bool only_new);
  /* 0, or the error of what the core need not look at; the reason is given. */
  int check() const;
  /* Keeps the parents from changing of what copied rows may not satisfy any more, though the table
     has it already: the server does so for new foreign keys. */
  int lock_parents() const;
  fe_fk_defs defs() const;
  bool empty() const { return m_defs.empty(); }
  /* After FE_FOREIGN_KEY: gives the reason, and the error that the server shall report. */
  int report() const;
  /* The same in place, where InnoDB has other errors; -1: it is given already. */
  int report_in_place() const;

 private:
  void add(const Foreign_key *key, Alter_info *info);
  bool has_other_values(const Foreign_key *key, Alter_info *info) const;
  const std::string &known_as() const;
  void warn(const Foreign_key *key, const std::string &reason) const;
  void warn_taken(const fe_fk_def &def) const;
  std::string reason(const fe_fk_misfit &misfit, const Foreign_key *key) const;
  const char *keep(const std::string &text);
  std::string parent_of(const Foreign_key *key) const;
  void name_constraints();

  THD *m_thd;
  const TABLE *m_form;
  std::string m_name;     /* of the table, in the core */
  std::string m_database; /* of the table, in the core */
  std::string m_original; /* the table it is to replace, in the core; empty: none */
  std::string m_shown;    /* the table's name as users will see it */
  bool m_alter;
  bool m_temporary;
  /* Who refers to the original follows to the table's new name. Not if ALGORITHM=COPY is asked for,
     or the primary key goes without another one: InnoDB, which copies less, copies for that, and
     leaves them without a parent then. */
  bool m_follows = false;
  std::list<std::string> m_texts;
  std::list<std::vector<fe_fk_column>> m_columns;
  std::vector<const Foreign_key *> m_keys;
  std::vector<fe_fk_def> m_defs;
  /* Of foreign keys that the table has already, whose rows are checked all the same. */
  std::vector<std::string> m_parents_to_lock;
};

/* Of a generated column of an altered table: has it another expression, or has what it is computed
   of, to any depth, other values? (ha_ferrite_generated.cc) */
bool computes_otherwise(TABLE *altered, Alter_info *info, const Field *field);

/* Drops (by their own names) and adds foreign keys, changes names of columns and indexes, indexes
 * (if there is a `change` of them), compression (FE_COMPRESSION_KEEP: not), the counter (0: not),
 * and the description of a table whose rows stay. */
fe_code alter_table(THD *thd, const std::string &name, const TABLE *altered, const Layout &layout,
                    Alter_inplace_info *info, const std::string &definition, uint32_t compression,
                    const std::vector<std::string> &names_dropped, ForeignKeys *added,
                    const IndexChange *change, uint64_t auto_increment);

}  // namespace ferrite

/* The table with this name may be a child that statements with a list of tables of their own do not
   know: the routines of all sessions are read again, and open its children too. */
void ferrite_child_has_come(const std::string &core_name);

/* ALTER TABLE ... RENAME TO, of whatever else. */
bool ferrite_renames_copy(const THD *thd);

/* A table is dropped. If the session's ALTER TABLE has made a copy with another name of it, that
   one has its children now. */
void ferrite_parent_has_gone(const THD *thd);

/* The statement has a list of tables that is older than a child it has to change. True: it will be
   prepared again, and run again. */
bool ferrite_prepare_again(THD *thd);

/* foreign_key_checks of this session; off while the server recovers DDL. */
bool ferrite_foreign_checks(THD *thd);

/* What keeps a table from being dropped by the session's present statement. */
fe_references ferrite_references_that_keep(THD *thd);

/* "db/table" as the core has it -> the table's name as users see it. */
std::string ferrite_shown_name(const std::string &core_name);
/* With its database, for texts. */
std::string ferrite_shown_with_database(const std::string &core_name);

/* The same; of what the session's ALTER TABLE fills: the altered table, which users know. */
std::string ferrite_known_as(const THD *thd, const std::string &core_name);

/* "db/table" as the core has it -> `db`.`table`. */
void ferrite_append_table(THD *thd, String *to, const std::string &core_name);

/* The clause of SHOW CREATE TABLE for a constraint. */
void ferrite_append_constraint(THD *thd, String *to, const fe_link &link, const std::string &child,
                               const std::string &parent);

#endif
