/*
 * Writing a table's description (description.h has the format).
 */
#include "description.h"

namespace ferrite {

static void put8(std::string *out, uint n) { out->push_back(static_cast<char>(n)); }

static void put16(std::string *out, size_t n) {
  put8(out, static_cast<uint>(n & 255));
  put8(out, static_cast<uint>(n >> 8 & 255));
}

static void put32(std::string *out, uint32_t n) {
  put16(out, n & 0xffff);
  put16(out, n >> 16);
}

static void put_text(std::string *out, const char *text, size_t len) {
  if (len > UINT_MAX16) len = 0; /* an ENUM with endless labels: the number will do */
  put16(out, len);
  out->append(text, len);
}

static uint column_flags(const Column &c, const Field *field) {
  uint flags = 0;
  if (c.stored) flags |= kDescribeStored;
  if (c.null_mask) flags |= kDescribeNullable;
  if (field->flags & UNSIGNED_FLAG) flags |= kDescribeUnsigned;
  if (!field->stored_in_db())
    flags |= kDescribeVirtual;
  else if (field->vcol_info)
    flags |= kDescribeGenerated;
  if (field->flags & AUTO_INCREMENT_FLAG) flags |= kDescribeAutoInc;
  if (field->compression_method()) flags |= kDescribeCompressed;
  if (field->flags & VERS_ROW_END) flags |= kDescribeRowEnd;
  return flags;
}

static uint32_t precision_of(const Field *field) {
  if (field->real_type() != MYSQL_TYPE_NEWDECIMAL) return 0;
  return static_cast<const Field_new_decimal *>(field)->precision;
}

static void put_column(std::string *out, const Column &c, const Field *field) {
  put8(out, static_cast<uint>(c.kind));
  put8(out, column_flags(c, field));
  put8(out, static_cast<uint>(field->real_type()));
  put8(out, field->decimals());
  put16(out, static_cast<uint16_t>(c.pk_part));
  put32(out, c.length);
  put32(out, precision_of(field));
  put_text(out, field->field_name.str, field->field_name.length);
  StringBuffer<MAX_FIELD_WIDTH> type(system_charset_info);
  field->sql_type(type);
  put_text(out, type.ptr(), type.length());
  const bool text = field->has_charset();
  const CHARSET_INFO *cs = text ? field->charset() : &my_charset_bin;
  put_text(out, cs->cs_name.str, cs->cs_name.length);
  put_text(out, cs->coll_name.str, cs->coll_name.length);
}

static void put_part(std::string *out, const KeyPart &part) {
  put16(out, part.column.field_no);
  put8(out, static_cast<uint>(part.kind));
  put8(out, (part.nullable ? 1u : 0u) | (part.descending ? 2u : 0u) | (part.whole ? 4u : 0u) |
                (part.recoverable ? 8u : 0u) | kDescribePartOfNow);
  put32(out, part.width);
  put32(out, part.kind == PartKind::kText ? part.prefix_chars : part.prefix_bytes);
  put8(out, static_cast<uint>(part.text.levels.size()));
  for (const WeightLevel &level : part.text.levels) {
    put8(out, level.group);
    put8(out, level.pad ? 1 : 0);
  }
}

void append_description(const Layout &layout, const TABLE *table, std::string *out) {
  out->append("FRc1", 4);
  put16(out, layout.rows.columns().size());
  for (const Column &c : layout.rows.columns()) put_column(out, c, table->field[c.field_no]);
  put16(out, layout.indexes.size());
  for (const Index &index : layout.indexes) {
    put8(out, index.server_no == MAX_KEY ? 1 : 0);
    put16(out, index.parts.size());
    for (const KeyPart &part : index.parts) put_part(out, part);
  }
}

}  // namespace ferrite
