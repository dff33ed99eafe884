/*
 * ALTER TABLE: which changes only affect the .frm file or indexes, and the one that sets
 * AUTO_INCREMENT.
 *
 * Indexes come and go in place (ha_ferrite_index.cc). Of the rest, a change is instant if the new
 * definition reads existing rows and keys in the same way. Two conditions must hold: the server's
 * list of changes contains only changes that are known not to touch data, and the fingerprint of
 * the formats is the one stored with the table. Everything else copies the table.
 */
#include "ha_ferrite.h"

#include "ferrite_error.h"
#include "ferrite_foreign.h"
#include "ferrite_hton.h"
#include "ferrite_writable.h"
#include "table_options.h"

using ferrite::Layout;

/* What may change without a look at the rows, if the fingerprint agrees. A new CHECK constraint is
   not here: the rows must pass it. (That of a column is none of the server's changes: see
   has_new_check().) */
static constexpr alter_table_operations kNoData =
    ALTER_COLUMN_DEFAULT | ALTER_COLUMN_NAME | ALTER_COLUMN_OPTION | ALTER_COLUMN_COLUMN_FORMAT |
    ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH | ALTER_CONVERT_TO |
    ALTER_DROP_CHECK_CONSTRAINT | ALTER_INDEX_IGNORABILITY | ALTER_CHANGE_INDEX_COMMENT |
    ALTER_RENAME_INDEX | ALTER_INDEX_ORDER | ALTER_RENAME | ALTER_PARTITIONED | ALTER_OPTIONS |
    ALTER_DROP_FOREIGN_KEY | ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN |
    ALTER_VIRTUAL_GCOL_EXPR;

/* Of these, what does not go together with a change of indexes. */
static constexpr alter_table_operations kNotWithIndexes =
    ALTER_RENAME_INDEX | ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN |
    ALTER_VIRTUAL_GCOL_EXPR | ALTER_PARTITIONED;

/* What may bring a name that create() would refuse. */
static constexpr alter_table_operations kNewNames =
    ALTER_COLUMN_NAME | ALTER_RENAME_INDEX | ALTER_ADD_VIRTUAL_COLUMN;

/* What may make a key longer than create() would take. */
static constexpr alter_table_operations kLongerColumns =
    ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH;

/* Table options that create() has to see, because it may refuse them. */
static constexpr ulong kCheckedOptions = HA_CREATE_USED_ENGINE | HA_CREATE_USED_ROW_FORMAT |
                                         HA_CREATE_USED_KEY_BLOCK_SIZE | HA_CREATE_USED_DATADIR |
                                         HA_CREATE_USED_INDEXDIR | HA_CREATE_USED_UNION |
                                         HA_CREATE_USED_SEQUENCE;

void ha_ferrite::update_create_info(HA_CREATE_INFO *create_info) {
  if (create_info->used_fields & HA_CREATE_USED_AUTO) return;
  info(HA_STATUS_AUTO);
  create_info->auto_increment_value = stats.auto_increment_value;
}

/* Of whose partitions does this statement make a table, or of a table one? */
static const TABLE *partitioned_by(const THD *thd) {
  constexpr auto kMoves = ALTER_PARTITION_EXCHANGE | ALTER_PARTITION_CONVERT_IN;
  const LEX *lex = thd->lex;
  if (lex->sql_command != SQLCOM_ALTER_TABLE || !(lex->alter_info.partition_flags & kMoves))
    return nullptr;
  for (const TABLE_LIST *used = lex->query_tables; used; used = used->next_global)
    if (used->table && used->table->part_info) return used->table;
  return nullptr;
}

/* The server compares keys by their names: which one comes first, and so is the primary key, it
   does not ask, nor whether a column of the partitions alone is generated. */
bool ha_ferrite::has_rows_like(const TABLE *parts) const {
  if (parts->s->fields != table->s->fields) return false;
  for (uint i = 0; i < parts->s->fields; i++)
    if (!parts->field[i]->vcol_info != !table->field[i]->vcol_info) return false;
  Layout theirs;
  theirs.init(parts);
  std::vector<std::string> names;
  for (const ferrite::Index &index : layout().indexes) names.push_back(index.name);
  return theirs.arrange(names) && theirs.fingerprint() == layout().fingerprint();
}

bool ha_ferrite::check_if_incompatible_data(HA_CREATE_INFO *create_info, uint table_changes) {
  if (table_changes != IS_EQUAL_YES) return COMPATIBLE_DATA_NO;
  const TABLE *parts = partitioned_by(ha_thd());
  if (parts && !has_rows_like(parts)) return COMPATIBLE_DATA_NO;
  if (create_info->used_fields & (HA_CREATE_USED_AUTO | kCheckedOptions)) return COMPATIBLE_DATA_NO;
  return COMPATIBLE_DATA_YES;
}

/* A VARCHAR may grow: neither rows nor keys have anything of its greatest length. */
bool ha_ferrite::can_convert_nocopy(const Field &field, const Column_definition &to) const {
  /* Other types are stored in the same way, but are none: a VECTOR's length is that of all of its
     values. */
  const Type_handler *type = field.type_handler();
  if (type != &type_handler_varchar && type != &type_handler_varchar_compressed) return false;
  if (field.charset() != to.charset) return false;
  return to.type_handler() == field.type_handler() && to.length >= field.field_length &&
         !to.compression_method() == !field.compression_method();
}

/* A key on a whole VARCHAR column stays one if the column becomes longer. */
Compare_keys ha_ferrite::compare_key_parts(const Field &old_field,
                                           const Column_definition &new_field,
                                           const KEY_PART_INFO &old_part,
                                           const KEY_PART_INFO &new_part) const {
  if (!old_field.is_equal(new_field) && !can_convert_nocopy(old_field, new_field))
    return Compare_keys::NotEqual;
  if (old_part.length == new_part.length) return Compare_keys::Equal;
  if (old_part.length == old_field.key_length() && new_part.length == new_field.length)
    return Compare_keys::EqualButKeyPartLength;
  return Compare_keys::NotEqual;
}

enum_alter_inplace_result ha_ferrite::check_if_supported_inplace_alter(
    TABLE *altered_table, Alter_inplace_info *ha_alter_info) {
  if (table->s->tmp_table == NO_TMP_TABLE && ferrite_check_writable(ha_thd()))
    return HA_ALTER_ERROR;
  const HA_CREATE_INFO *create_info = ha_alter_info->create_info;
  if (create_info->used_fields & (HA_CREATE_USED_ROW_FORMAT | HA_CREATE_USED_KEY_BLOCK_SIZE) ||
      create_info->option_list) {
    if (const char *bad = find_bad_option(ha_thd(), altered_table, create_info)) {
      my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), table_type(), bad);
      return HA_ALTER_ERROR;
    }
  }
  if (ha_alter_info->handler_flags & ALTER_STORED_COLUMN_TYPE)
    ha_alter_info->unsupported_reason =
        my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
  if (loses_needed_index(altered_table, ha_alter_info) || changes_linked_type(ha_alter_info))
    return HA_ALTER_ERROR;
  alter_table_operations changes = ha_alter_info->handler_flags;
  if (changes & ALTER_ADD_FOREIGN_KEY) {
    if (!ferrite_foreign_checks(ha_thd()))
      changes &= ~ALTER_ADD_FOREIGN_KEY;
    else if (!ha_alter_info->unsupported_reason)
      ha_alter_info->unsupported_reason =
          my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_FK_CHECK);
  }
  if (changes & ~(kNoData | kIndexChanges) || changes_kept_values(altered_table, ha_alter_info) ||
      has_new_check(ha_alter_info))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (changes & (kIndexChanges | kNewNames) &&
      ferrite::refuse_reserved_names(ha_thd(), altered_table))
    return HA_ALTER_ERROR;
  if (create_info->used_fields & kCheckedOptions) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  Layout altered;
  altered.init(altered_table);
  if (changes & kLongerColumns && ferrite::refuse_long_keys(altered, &layout()))
    return HA_ALTER_ERROR;
  if (changes & kIndexChanges) {
    if (changes & kNotWithIndexes || create_info->used_fields & HA_CREATE_USED_AUTO)
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
    return can_change_indexes(altered_table, ha_alter_info);
  }
  if (!altered.arrange_as(layout()) || altered.fingerprint() != layout().fingerprint())
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  return HA_ALTER_INPLACE_INSTANT;
}

/* The greatest value in the AUTO_INCREMENT column, as readers at this isolation level see it; 0
   when there is none above 0. Without locks. */
int ha_ferrite::largest_autoinc(fe_isolation isolation, ulonglong *value) {
  m_lock = FE_READ_SNAPSHOT;
  m_dirty = isolation == FE_READ_UNCOMMITTED;
  fe_stmt_begin(m_session, isolation);
  *value = 0;
  const uint key_no = table->s->next_number_index;
  Field *field = table->found_next_number_field;
  MY_BITMAP *old_read = table->read_set;
  bitmap_clear_all(&table->tmp_set);
  bitmap_set_bit(&table->tmp_set, field->field_index);
  table->read_set = &table->tmp_set;
  int err = ha_index_init(key_no, true);
  if (!err) {
    const bool descending = table->key_info[key_no].key_part[0].key_part_flag & HA_REVERSE_SORT;
    err = descending ? ha_index_first(table->record[0]) : ha_index_last(table->record[0]);
    if (!err) {
      const longlong found = field->val_int();
      if (found > 0 || field->flags & UNSIGNED_FLAG) *value = static_cast<ulonglong>(found);
    }
    ha_index_end();
  }
  table->read_set = old_read;
  return err == HA_ERR_END_OF_FILE || err == HA_ERR_KEY_NOT_FOUND ? 0 : err;
}

/* AUTO_INCREMENT = n: the counter goes down too, but not below the values that are there, or will
   be when a prepared transaction is committed, or rolled back. Found before anything is changed. */
int ha_ferrite::find_autoinc(ulonglong wanted, ulonglong *next) {
  *next = wanted ? wanted : 1;
  if (*next >= fe_autoinc_read(m_share->table)) return 0;
  for (fe_isolation isolation : {FE_READ_UNCOMMITTED, FE_READ_COMMITTED}) {
    ulonglong largest;
    if (int err = largest_autoinc(isolation, &largest)) return err;
    if (*next <= largest) *next = largest + (largest < ULONGLONG_MAX);
  }
  DBUG_ASSERT(*next > 0);
  return 0;
}

/* The description kept for tools follows names and types, and so do foreign keys; the server
   reads none of it. AUTO_INCREMENT goes on at `next`; 0: where it is. */
int ha_ferrite::redescribe(const TABLE *altered_table, Alter_inplace_info *info, ulonglong next) {
  const auto *indexes = static_cast<const ferrite::IndexChange *>(info->handler_ctx);
  Layout altered;
  altered.init(altered_table);
  if (!indexes) altered.arrange_as(layout());
  /* Partitions may have options of their own: only what the ALTER changes is changed. */
  const uint8_t priority = ferrite::cache_priority_of(altered_table->s);
  const bool stays = priority == ferrite::cache_priority_of(table->s);
  const std::string text = ferrite::make_definition(altered, altered_table,
                                                    stays ? ferrite::kCachePriorityKept : priority);
  ferrite::ForeignKeys added(ha_thd(), altered_table, info->create_info, m_share->name, true);
  if (int err = added.check()) return err;
  std::vector<std::string> dropped;
  if (int err = find_dropped(info, &dropped)) return err;
  const uint32_t compression = ferrite::compression_of(altered_table->s);
  const bool keep = compression == ferrite::compression_of(table->s);
  if (indexes) close_cursors();
  const fe_code rc = ferrite::alter_table(ha_thd(), m_share->name, altered_table, altered, info,
                                          text, keep ? FE_COMPRESSION_KEEP : compression, dropped,
                                          &added, indexes, next);
  if (rc == FE_FOREIGN_KEY) return added.report_in_place();
  if (rc == FE_OK) ferrite_child_has_come(m_share->name);
  return ferrite_table_error(rc, ha_thd());
}

/* The server asks before an ALTER in place and, by hton->check_version(), after a crash in it. */
ulonglong ha_ferrite::table_version() const {
  return fe_table_definition_version(ferrite_engine, m_share->name.c_str());
}

/* group_commit_ctx is left alone, so that every partition comes by here. */
bool ha_ferrite::commit_inplace_alter_table(TABLE *altered_table, Alter_inplace_info *ha_alter_info,
                                            bool commit) {
  if (!commit) {
    if (auto *indexes = static_cast<ferrite::IndexChange *>(ha_alter_info->handler_ctx)) {
      fe_index_build_close(indexes->build);
      indexes->build = nullptr;
    }
    return false;
  }
  const HA_CREATE_INFO *create_info = ha_alter_info->create_info;
  ulonglong next = 0; /* as it is */
  int err = 0;
  if (create_info->used_fields & HA_CREATE_USED_AUTO && table->found_next_number_field)
    err = find_autoinc(create_info->auto_increment_value, &next);
  if (!err) err = redescribe(altered_table, ha_alter_info, next);
  if (err > 0) print_error(err, MYF(0));
  return err != 0;
}
