/*
 * Keys of the other side of foreign keys, encoded from own rows (see ferrite_links.h).
 */
#include "ferrite_links.h"

#include <algorithm>
#include <numeric>

#include "ferrite_foreign.h"

namespace ferrite {

bool LinkKey::any_null(const Layout &layout, const uchar *record) const {
  for (uint16_t column : columns)
    if (layout.rows.column(column).is_null(record)) return true;
  return false;
}

bool LinkKey::any_changed(const MY_BITMAP *changed) const {
  for (uint16_t column : columns)
    if (bitmap_is_set(changed, column)) return true;
  return false;
}

size_t LinkKey::max_bytes() const {
  size_t bytes = 16;
  for (const LinkPart &part : parts) bytes += part.max_encoded + 16;
  return bytes;
}

/* The most that a CHAR of 255 characters takes. */
static constexpr size_t kMaxCharBytes = 255 * 5;

/* A value in a NO PAD collation for the other side, where it is or is not a CHAR. NULL: no row
   there has it. */
static uint8_t *encode_repadded(const LinkPart &part, const uchar *record, uint8_t *to,
                                uint8_t *scratch) {
  const fe_slice value = part.column.value(record);
  if (!part.text.padded) return part.encode_there(value, to, scratch);
  CHARSET_INFO *cs = part.text.cs;
  const char *text = reinterpret_cast<const char *>(value.ptr);
  if (part.column.kind == ColumnKind::kVar && cs->lengthsp(text, value.len) != value.len)
    return nullptr;
  const size_t chars = cs->numchars(text, text + value.len);
  if (chars > part.prefix_chars) return nullptr;
  char padded[kMaxCharBytes];
  const size_t len = value.len + (part.prefix_chars - chars) * cs->mbminlen;
  if (len > sizeof padded) return nullptr;
  memcpy(padded, text, value.len);
  cs->fill(padded + value.len, len - value.len, ' ');
  return part.encode_there({reinterpret_cast<uint8_t *>(padded), len}, to, scratch);
}

uint8_t *LinkKey::encode(const uchar *record, uint8_t *to, uint8_t *scratch) const {
  for (const LinkPart &part : parts) {
    if (part.kind == PartKind::kBytes && part.column.value(record).len != part.width)
      return nullptr;
    to = part.repadded ? encode_repadded(part, record, to, scratch)
                       : part.encode_record(record, to, scratch);
    if (!to) return nullptr;
  }
  return to;
}

/* The part that a whole column would be of an index. */
static KeyPart part_of_column(const TABLE *table, const Layout &layout, uint16_t column) {
  KEY_PART_INFO info = {};
  info.field = table->field[column];
  info.length = info.field->key_length();
  return describe_part(info, layout.rows.column(column));
}

/* Whether the values of a child that has lost its index are of the parent's class, as
   catalog/matching.rs has it: nobody has compared the two since. Collations it has compared. */
static bool is_alike(const KeyPart &own, const fe_link_side &there) {
  const auto is_string = [](PartKind kind) {
    return kind == PartKind::kBytes || kind == PartKind::kBinary;
  };
  const PartKind other = static_cast<PartKind>(there.kind);
  if (is_string(own.kind) || own.kind == PartKind::kText)
    return is_string(own.kind) ? is_string(other) : other == PartKind::kText;
  const bool is_real = own.kind == PartKind::kDouble;
  return other == (is_real ? PartKind::kFloat : own.kind) && own.width == there.width;
}

/* The part of an index that a column has there, the primary key behind it included. */
static const KeyPart *find_part(const Layout &layout, uint32_t index_no, uint16_t column) {
  for (const KeyPart &part : layout.indexes[index_no].parts)
    if (part.column.field_no == column) return &part;
  if (const Index *primary = layout.primary())
    for (const KeyPart &part : primary->parts)
      if (part.column.field_no == column) return &part;
  return nullptr;
}

/* The own part, encoded as the other index has it. */
static LinkPart as_there(const KeyPart &own, const fe_link_side &there) {
  LinkPart part(own);
  part.nullable = there.flags & FE_LINK_NULLABLE;
  part.descending = there.flags & FE_LINK_DESCENDING;
  if (own.kind == PartKind::kBytes || own.kind == PartKind::kBinary) {
    constexpr uint8_t kBytes = static_cast<uint8_t>(PartKind::kBytes);
    part.kind = there.kind == kBytes ? PartKind::kBytes : PartKind::kBinary;
    part.width = there.kind == kBytes ? there.width : 0;
    const uint32_t bytes = std::max(own.column.length, there.width);
    part.prefix_bytes = own.column.length;
    part.max_encoded = (bytes / 8 + 2) * 9 + 1;
  }
  if (own.kind == PartKind::kText && there.width != (own.text.padded ? own.column.length : 0)) {
    part.repadded = true;
    part.pad_to(there.width);
  }
  return part;
}

static bool is_followed(uint32_t action) {
  return action == FE_FK_CASCADE || action == FE_FK_SET_NULL;
}

/* The core has them in the order of their names. */
static std::vector<uint32_t> by_index(const fe_link *links, uint32_t count) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return LinkSet::place_of(links[a]) < LinkSet::place_of(links[b]);
  });
  return order;
}

LinkSet::LinkSet(fe_links *links, const TABLE *table, const Layout &layout) : m_links(links) {
  uint32_t count;
  outgoing = fe_links_outgoing(links, &count);
  for (uint32_t i = 0; i < count; i++) {
    add(outgoing[i], true, table, layout, &outgoing_keys);
    if (is_followed(outgoing[i].on_delete) || is_followed(outgoing[i].on_update))
      follows_parents = true;
  }
  outgoing_order = by_index(outgoing, count);
  incoming = fe_links_incoming(links, &count);
  for (uint32_t i = 0; i < count; i++) add(incoming[i], false, table, layout, &incoming_keys);
  incoming_order = by_index(incoming, count);
  DBUG_ASSERT(incoming_order.size() == incoming_keys.size());
}

/* Whether an index begins with the columns, in whatever order. */
static bool has_index_for(const Layout &layout, const std::vector<uint16_t> &columns) {
  const auto begins = [&](const Index &index) {
    if (index.parts.size() < columns.size()) return false;
    return std::all_of(columns.begin(), columns.end(), [&](uint16_t column) {
      const auto end = index.parts.begin() + static_cast<ptrdiff_t>(columns.size());
      return std::any_of(index.parts.begin(), end,
                         [&](const KeyPart &part) { return part.column.field_no == column; });
    });
  };
  return std::any_of(layout.indexes.begin(), layout.indexes.end(), begins);
}

void LinkSet::add(const fe_link &link, bool is_child, const TABLE *table, const Layout &layout,
                  std::vector<LinkKey> *to) {
  LinkKey key;
  for (uint32_t i = 0; i < link.part_count; i++) {
    const fe_link_part &sides = link.parts[i];
    key.columns.push_back(sides.own.column);
    if (link.index_no == FE_NO_INDEX) {
      const KeyPart own = part_of_column(table, layout, sides.own.column);
      key.misfits = key.misfits || !is_alike(own, sides.other);
      key.parts.push_back(as_there(own, sides.other));
    } else {
      const KeyPart *own = find_part(layout, link.index_no, sides.own.column);
      if (!own) continue;
      key.parts.push_back(as_there(*own, sides.other));
    }
    max_scratch = std::max<size_t>(max_scratch, key.parts.back().max_encoded + 16);
  }
  /* Without the other table only the names tell which columns. */
  for (uint32_t i = 0; !link.part_count && i < link.column_count; i++) {
    const char *name = is_child ? link.columns[i].own : link.columns[i].other;
    for (uint f = 0; f < table->s->fields; f++)
      if (ferrite::same_name(table->field[f]->field_name.str, name))
        key.columns.push_back(static_cast<uint16_t>(f));
  }
  key.is_unread = !link.part_count && !has_index_for(layout, key.columns);
  to->push_back(std::move(key));
}

bool Cascade::is_by(const fe_link &other, const fe_slice &key) const {
  return !strcmp(link->name, other.name) && !strcmp(link->other, other.other) &&
         key_len == key.len && !memcmp(keys->data() + key_at, key.ptr, key.len);
}

}  // namespace ferrite
