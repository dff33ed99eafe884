/*
 * CHECK TABLE ... EXTENDED and foreign keys: which rows have no parent. The core looks for them by
 * one snapshot of both tables; here their columns become words.
 *
 * A row without a parent is no damage: foreign_key_checks=0 lets it in, and LOAD of a dump does so
 * every day. So each is a warning, and the table's status stays OK; of a parent that is not there
 * it is a note.
 *
 * Rules of this module
 * - What is kept of the rows that are found is bounded; their number is not counted.
 */
#include "ha_ferrite.h"

#include <string>
#include <vector>

#include <key.h>

#include "ferrite_error.h"
#include "ferrite_foreign.h"
#include "ferrite_hton.h"

using ferrite::LinkKey;

/* Rows that are shown of one foreign key. */
static constexpr uint kShownOrphans = 10;
/* Most bytes of a column that are shown. */
static constexpr uint kShownBytes = 64;

namespace {

struct Found {
  uint32_t link;
  fe_link_fault fault;
  std::string pk;
};

/* Kept until the core is done: it has the session. */
struct Findings {
  std::vector<Found> all;
  uint32_t link = 0; /* the one that is looked at */
  uint orphans = 0;  /* of it */
};

int keep(void *arg, uint32_t link, fe_link_fault fault, fe_slice pk) {
  Findings *findings = static_cast<Findings *>(arg);
  if (findings->link != link) findings->orphans = 0;
  findings->link = link;
  findings->all.push_back({link, fault, {reinterpret_cast<const char *>(pk.ptr), pk.len}});
  return fault != FE_FAULT_ORPHAN || ++findings->orphans < kShownOrphans;
}

}  // namespace

static void say(THD *thd, Sql_condition::enum_warning_level level, const String &text) {
  Abort_on_warning_instant_set stays_a_warning(thd, false);
  push_warning_printf(thd, level, ER_NO_REFERENCED_ROW_2, "Ferrite: %.*s",
                      static_cast<int>(text.length()), text.ptr());
}

void ha_ferrite::report_link_fault(THD *thd, const fe_link &link, fe_link_fault fault) {
  String text;
  text.append(STRING_WITH_LEN("foreign key "));
  text.append(link.name, strlen(link.name));
  if (fault == FE_FAULT_NO_PARENT && link.part_count) {
    text.append(STRING_WITH_LEN(" is not checked: the table has no index on its columns"));
  } else if (fault == FE_FAULT_NO_PARENT) {
    text.append(STRING_WITH_LEN(" is not checked: there is no table "));
    ferrite_append_table(thd, &text, link.other);
    text.append(STRING_WITH_LEN(" with an index on its columns"));
  } else if (fault == FE_FAULT_PADDING) {
    text.append(
        STRING_WITH_LEN(" is not checked: with a NO PAD collation, CHAR and another type, or CHAR "
                        "of another length"));
  } else {
    text.append(STRING_WITH_LEN(" is not checked: "));
    ferrite_append_table(thd, &text, link.other);
    text.append(STRING_WITH_LEN(" was changed by DDL meanwhile"));
  }
  say(thd, Sql_condition::WARN_LEVEL_NOTE, text);
}

/* (`a`, `b`) = (1, x) */
static void append_values(THD *thd, String *text, const TABLE *table, const LinkKey &key) {
  const char *before = "(";
  for (uint16_t column : key.columns) {
    text->append(before, strlen(before));
    append_identifier(thd, text, &table->field[column]->field_name);
    before = ", ";
  }
  before = ") = (";
  for (uint16_t column : key.columns) {
    text->append(before, strlen(before));
    field_unpack(text, table->field[column], table->record[0], kShownBytes, false);
    before = ", ";
  }
  text->append(')');
}

void ha_ferrite::report_orphan(THD *thd, const fe_link &link, const LinkKey &key,
                               const std::string &pk, fe_cursor *rows) {
  fe_row row;
  fe_code rc = fe_row_get(rows, {reinterpret_cast<const uint8_t *>(pk.data()), pk.size()}, &row);
  if (rc == FE_OK) {
    m_index = &layout().indexes[0];
    check_plan();
    rc = deliver_state(row, table->record[0]);
    m_index = nullptr;
  }
  /* Of a table without a primary key the core may not be able to tell history. */
  if (rc == FE_OK && is_history(table->record[0])) return;
  String text;
  text.append(STRING_WITH_LEN("foreign key "));
  text.append(link.name, strlen(link.name));
  text.append(STRING_WITH_LEN(": a row has no parent in "));
  ferrite_append_table(thd, &text, link.other);
  if (rc == FE_OK) {
    text.append(STRING_WITH_LEN(": "));
    append_values(thd, &text, table, key);
  }
  say(thd, Sql_condition::WARN_LEVEL_WARN, text);
}

int ha_ferrite::check_foreign_keys(THD *thd) {
  std::shared_ptr<const ferrite::LinkSet> set;
  if (int err = current_links(&set)) return err == HA_ERR_TABLE_DEF_CHANGED ? HA_ADMIN_FAILED : err;
  if (!set || set->outgoing_keys.empty()) return HA_ADMIN_OK;
  Findings findings;
  fe_code rc = fe_links_check(set->links(), m_session, m_share->table, keep, &findings);
  if (rc != FE_OK) {
    /* Rows of a transaction that could not be settled say nothing of the table. */
    if (rc == FE_IN_USE)
      ferrite_warn(thd, ER_GET_ERRMSG, "Ferrite: foreign keys are not checked: %s",
                   fe_last_error());
    else if (rc != FE_INTERRUPTED)
      error(rc);
    return rc == FE_CORRUPT ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
  }
  if (findings.all.empty()) return HA_ADMIN_OK;
  fe_cursor *rows;
  rc = fe_cursor_open(m_session, m_share->table, 0, FE_READ_SNAPSHOT, FE_WAIT, &rows);
  if (rc != FE_OK) return HA_ADMIN_FAILED;
  MY_BITMAP *old_read = tmp_use_all_columns(table, &table->read_set);
  for (const Found &found : findings.all) {
    const fe_link &link = set->outgoing[found.link];
    if (found.fault == FE_FAULT_ORPHAN)
      report_orphan(thd, link, set->outgoing_keys[found.link], found.pk, rows);
    else
      report_link_fault(thd, link, found.fault);
  }
  tmp_restore_column_map(&table->read_set, old_read);
  fe_cursor_close(rows);
  return HA_ADMIN_OK;
}
