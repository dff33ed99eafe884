/*
 * Indexed virtual columns, computed again for each row that is changed.
 *
 * The value in the server's records can be outdated: a trigger has changed a column that it
 * depends on, or the memory of a virtual TEXT holds the value of another row (history of WITH
 * SYSTEM VERSIONING, several tables in one UPDATE). An index entry that does not follow from
 * its row would never be found again.
 *
 * Rules of this module
 * - Only tables with such columns use this module.
 * - Values go into copies of the records; the server's records and blob memory stay as they are.
 * - Each row that is being changed has a place of its own: a cascade can come back to this table
 *   while the row above it is still being changed.
 * - A warning of an expression is given only once.
 * - ALTER TABLE in place computes nothing: what would change a value that is kept copies the table.
 */
#include "ha_ferrite.h"

#include "ferrite_foreign.h"

/* Whatever an expression has to say, it has said to the server before. */
class SilentConditions final : public Internal_error_handler {
 public:
  bool handle_condition(THD *, uint, const char *, Sql_condition::enum_warning_level *,
                        const char *, Sql_condition **) override {
    return true;
  }
};

/* While expressions are evaluated with the values of a record, and put theirs there. */
class Evaluation {
 public:
  Evaluation(TABLE *table, uchar *record)
      : m_table(table), m_record(record), m_cuted_fields(table->in_use->cuted_fields) {
    THD *thd = table->in_use;
    thd->set_n_backup_active_arena(table->expr_arena, &m_backup);
    thd->push_internal_handler(&m_silent);
    table->move_fields(table->field, record, table->record[0]);
  }
  ~Evaluation() {
    THD *thd = m_table->in_use;
    m_table->move_fields(m_table->field, m_table->record[0], m_record);
    thd->pop_internal_handler();
    thd->restore_active_arena(m_table->expr_arena, &m_backup);
    thd->cuted_fields = m_cuted_fields;
  }
  Evaluation(const Evaluation &) = delete;
  Evaluation &operator=(const Evaluation &) = delete;

 private:
  TABLE *m_table;
  uchar *m_record;
  ulonglong m_cuted_fields;
  Query_arena m_backup;
  SilentConditions m_silent;
};

/* The memory of virtual TEXT and BLOB columns is put aside, and comes back at the end. */
ha_ferrite::BlobsAside::BlobsAside(TABLE *table, uchar *place)
    : m_table(table), m_place(reinterpret_cast<String *>(place)) {
  m_table->remember_blob_values(m_place);
}

ha_ferrite::BlobsAside::~BlobsAside() { m_table->restore_blob_values(m_place); }

void ha_ferrite::init_generated() {
  if (!layout().has_indexed_virtual) return;
  m_feeding_bits.assign(m_changed_bits.size(), 0);
  my_bitmap_init(&m_feeding, m_feeding_bits.data(), table->s->fields);
  m_feeding_known = false;
  m_blob_place_bytes = table->s->virtual_not_stored_blob_fields * sizeof(String);
  m_generated.clear();
  m_generated_used = 0;
}

ha_ferrite::GeneratedInUse::GeneratedInUse(ha_ferrite *handler) : m_handler(handler) {
  auto &places = handler->m_generated;
  if (handler->m_generated_used == places.size()) {
    places.push_back(std::make_unique<GeneratedPlace>());
    places.back()->blobs.resize(2 * handler->m_blob_place_bytes + sizeof(String));
    places.back()->old_image.resize(handler->table->s->reclength);
    places.back()->new_image.resize(handler->table->s->reclength);
  }
  m_place = places[handler->m_generated_used++].get();
}

ha_ferrite::GeneratedInUse::~GeneratedInUse() {
  m_handler->m_generated_used--;
  DBUG_ASSERT(m_handler->m_generated[m_handler->m_generated_used].get() == m_place);
}

bool ha_ferrite::is_virtual(const Field *field) {
  return field->vcol_info && !ferrite::is_stored(*field->vcol_info);
}

/* The geometry types are not among the blobs that can be put aside. */
bool ha_ferrite::can_compute(const Field *field) {
  return !ferrite::is_stored(*field->vcol_info) &&
         (!(field->flags & BLOB_FLAG) || field->type() == MYSQL_TYPE_BLOB);
}

/* Adds the columns of an index's key, and what virtual ones are computed of, to any depth: the
   server marks the next level only. */
void ha_ferrite::add_key_columns(const ferrite::Index &index, MY_BITMAP *to) {
  MY_BITMAP *read_set = table->read_set;
  table->read_set = to;
  for (const ferrite::KeyPart &part : index.parts) {
    const Field *field = table->field[part.column.field_no];
    if (!bitmap_test_and_set(to, field->field_index) && is_virtual(field))
      field->vcol_info->expr->walk(&Item::register_field_in_read_map, true, table);
  }
  table->read_set = read_set;
}

void ha_ferrite::find_feeding() {
  for (const ferrite::Index &index : layout().indexes) add_key_columns(index, &m_feeding);
  m_feeding_known = true;
}

/* Copies a record, with its virtual columns as they follow from the others. */
const uchar *ha_ferrite::compute_generated(const uchar *record, std::vector<uchar> *image) {
  if (!m_feeding_known) find_feeding();
  return compute_generated(record, nullptr, image);
}

/* `which`: only those; null: those that indexes depend on. */
const uchar *ha_ferrite::compute_generated(const uchar *record, const MY_BITMAP *which,
                                           std::vector<uchar> *image) {
  const auto is_meant = [&](const Field *field) {
    if (which) return bitmap_is_set(which, field->field_index) != 0;
    return bitmap_is_set(&m_feeding, field->field_index) && is_read(field->field_index);
  };
  memcpy(image->data(), record, image->size());
  const Evaluation there(table, image->data());
  for (Field **field = table->vfield; *field; field++)
    if (can_compute(*field) && is_meant(*field))
      (*field)->vcol_info->expr->save_in_field(*field, false);
  return image->data();
}

/* The virtual columns that the server has read of a row, in its record, whose other columns are not
   as they were read. The server keeps the values of TEXT and BLOB of a row that is read beside
   those of one to be written: the latter stay. */
void ha_ferrite::compute_virtual(uchar *record) {
  const Evaluation there(table, record);
  for (Field **field = table->vfield; *field; field++) {
    if (!is_virtual(*field) || !bitmap_is_set(table->read_set, (*field)->field_index)) continue;
    Field_blob *blob = (*field)->flags & BLOB_FLAG ? static_cast<Field_blob *>(*field) : nullptr;
    if (blob) blob->swap_value_and_read_value();
    (*field)->vcol_info->expr->save_in_field(*field, false);
    if (blob) blob->swap_value_and_read_value();
  }
}

/* New rows have fresh values, but for the history of versions, what comes after a duplicate, row
   events from a table that does not have the column, and what a trigger may have changed: the
   server computes nothing again after it in LOAD DATA, INSERT ... VALUES () and FOR PORTION OF. */
bool ha_ferrite::has_fresh_values() const {
  if (m_copying) return true;
  if (table->triggers && table->triggers->has_triggers(TRG_EVENT_INSERT, TRG_ACTION_BEFORE))
    return false;
  return !(table->versioned() || m_replace || m_insert_update || m_whole_rows);
}

int ha_ferrite::insert_generated(const uchar *buf) {
  if (has_fresh_values()) return insert_row(buf);
  const GeneratedInUse place(this);
  BlobsAside of_server(table, place->blobs.data());
  return insert_row(compute_generated(buf, &place->new_image));
}

int ha_ferrite::update_generated(const uchar *old_data, const uchar *new_data) {
  const GeneratedInUse place(this);
  BlobsAside of_server(table, place->blobs.data());
  const uchar *old_row = compute_generated(old_data, &place->old_image);
  BlobsAside of_old_row(table, place->blobs.data() + m_blob_place_bytes);
  return update(old_row, compute_generated(new_data, &place->new_image));
}

int ha_ferrite::remove_generated(const uchar *buf) {
  const GeneratedInUse place(this);
  BlobsAside of_server(table, place->blobs.data());
  return remove_row(compute_generated(buf, &place->old_image));
}

/* ---- ALTER TABLE --------------------------------------------------------------------- */

/* May a column whose definition the server takes for the same have other values in expressions? A
   VARCHAR that grows has not, nor an ENUM or SET with more labels at its end; but the server does
   not look at ZEROFILL and decimals, nor at the case of labels. */
static bool reads_otherwise(const Field *old, const Field *now) {
  if (old->real_type() != now->real_type() || old->charset() != now->charset()) return true;
  StringBuffer<MAX_FIELD_WIDTH> before(system_charset_info), after(system_charset_info);
  old->sql_type(before);
  now->sql_type(after);
  const bool labels = old->real_type() == MYSQL_TYPE_ENUM || old->real_type() == MYSQL_TYPE_SET;
  /* All but the closing bracket. */
  if (labels)
    return after.length() < before.length() ||
           memcmp(before.ptr(), after.ptr(), before.length() - 1) != 0;
  if (old->real_type() == MYSQL_TYPE_VARCHAR && !now->vcol_info)
    return now->field_length < old->field_length;
  return before.length() != after.length() ||
         memcmp(before.ptr(), after.ptr(), before.length()) != 0;
}

/* A column that is not altered keeps its old definition, expression included. */
static bool has_new_values(const Create_field &to, const Field *now, bool new_defaults) {
  const Field *old = to.field;
  if (!old || !old->vcol_info != !now->vcol_info || reads_otherwise(old, now)) return true;
  if (!old->vcol_info) return false;
  if (new_defaults &&
      old->vcol_info->expr->walk(&Item::check_func_default_processor, false, nullptr))
    return true;
  return to.vcol_info != old->vcol_info && !old->vcol_info->is_equal(to.vcol_info, false);
}

/* Whether the values of an expression are kept: in rows, in an index, as the choice of a partition.
 */
static bool is_kept(const Field *field) {
  return field->stored_in_db() || field->flags & PART_KEY_FLAG ||
         field->vcol_info->is_in_partitioning_expr();
}

/* Has one of these columns of an altered table other values than before? */
static bool any_new_values(const TABLE *altered, Alter_info *info, const MY_BITMAP *which,
                           bool new_defaults) {
  List_iterator_fast<Create_field> definitions(info->create_list);
  for (Field **field = altered->field; *field; field++) {
    const Create_field *to = definitions++;
    if (!bitmap_is_set(which, (*field)->field_index)) continue;
    if (!to || !ferrite::same_name(to->field_name, (*field)->field_name) ||
        has_new_values(*to, *field, new_defaults))
      return true;
  }
  return false;
}

/* May DEFAULT(column) have another value in an expression? Defaults are not compared, in place
   neither: it is asked whether the statement may give one, or another character set. A column that
   is dropped and added again is a new one. */
static bool may_have_new_defaults(const Alter_info *info) {
  constexpr alter_table_operations gives =
      ALTER_CHANGE_COLUMN_DEFAULT | ALTER_CHANGE_COLUMN | ALTER_CONVERT_TO;
  constexpr alter_table_operations renews = ALTER_PARSER_DROP_COLUMN | ALTER_PARSER_ADD_COLUMN;
  return info->flags & gives || (info->flags & renews) == renews;
}

bool ferrite::computes_otherwise(TABLE *altered, Alter_info *info, const Field *field) {
  if (!field->vcol_info) return false;
  MY_BITMAP *old_read = altered->read_set;
  MY_BITMAP *bases = &altered->tmp_set;
  altered->read_set = bases;
  bitmap_clear_all(bases);
  bitmap_set_bit(bases, field->field_index);
  field->vcol_info->expr->walk(&Item::register_field_in_read_map, true, altered);
  altered->read_set = old_read;
  return any_new_values(altered, info, bases, may_have_new_defaults(info));
}

/* Has a column got a CHECK constraint, or another one? The server takes that for a new default, and
   rows are checked by a copy only. */
bool ha_ferrite::has_new_check(const Alter_inplace_info *info) {
  List_iterator_fast<Create_field> definitions(info->alter_info->create_list);
  while (const Create_field *to = definitions++) {
    const Virtual_column_info *check = to->check_constraint;
    const Virtual_column_info *old = to->field ? to->field->check_constraint : nullptr;
    if (check && check != old && (!old || !old->is_equal(check, true))) return true;
  }
  return false;
}

/* The server looks at each generated column by itself. Here it is whether one whose values are
   kept, or a CHECK constraint, is computed from a column that changes, through others or not. */
bool ha_ferrite::changes_kept_values(TABLE *altered_table, const Alter_inplace_info *info) {
  MY_BITMAP *old_read = altered_table->read_set;
  MY_BITMAP *bases = &altered_table->tmp_set;
  altered_table->read_set = bases;
  bitmap_clear_all(bases);
  const auto add_bases = [&](const Virtual_column_info *computed) {
    computed->expr->walk(&Item::register_field_in_read_map, true, altered_table);
  };
  for (Field **field = altered_table->field; *field; field++)
    if ((*field)->vcol_info && is_kept(*field)) add_bases((*field)->vcol_info);
  Virtual_column_info **check = altered_table->check_constraints;
  for (; check && *check; check++) add_bases(*check);
  altered_table->read_set = old_read;
  return any_new_values(altered_table, info->alter_info, bases,
                        info->handler_flags & ALTER_COLUMN_DEFAULT);
}
