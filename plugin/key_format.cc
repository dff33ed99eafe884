/*
 * Encoding and decoding of index keys (key_format.h has the rules). Hot code: no allocation,
 * no virtual call but the collation's strnxfrm.
 */
#include "key_format.h"

#include <string.h>

namespace ferrite {

/* ---- description ------------------------------------------------------------------- */

/* The kind of a fixed-width column, by how the server orders its record bytes. */
static PartKind fixed_kind(const Field *field) {
  const bool fraction = field->decimals() != 0;
  switch (field->real_type()) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
      return field->flags & UNSIGNED_FLAG ? PartKind::kUnsigned : PartKind::kSigned;
    case MYSQL_TYPE_YEAR:
    case MYSQL_TYPE_NEWDATE:
    case MYSQL_TYPE_ENUM:
    case MYSQL_TYPE_SET:
      return PartKind::kUnsigned;
    case MYSQL_TYPE_DATE:
      return PartKind::kSigned;
    case MYSQL_TYPE_TIME:
      return fraction ? PartKind::kBytes : PartKind::kSigned;
    case MYSQL_TYPE_TIMESTAMP:
    case MYSQL_TYPE_DATETIME:
      return fraction ? PartKind::kBytes : PartKind::kUnsigned;
    case MYSQL_TYPE_FLOAT:
      return PartKind::kFloat;
    case MYSQL_TYPE_DOUBLE:
      return PartKind::kDouble;
    default: /* DECIMAL, BIT, BINARY, TIME2 and its like, INET6, UUID: memcmp order */
      return PartKind::kBytes;
  }
}

/* Fills in how one level treats spaces; false when weights of spaces do not line up. */
static bool probe_space(CHARSET_INFO *cs, WeightLevel *level) {
  uint8_t one[64], two[128], spaces[16];
  int n = cs->wc_mb(' ', spaces, spaces + sizeof spaces);
  if (n <= 0 || n * 2 > static_cast<int>(sizeof spaces)) return false;
  memcpy(spaces + n, spaces, static_cast<size_t>(n));
  size_t len1 =
      cs->coll->strnxfrm(cs, one, sizeof one, 64, spaces, static_cast<size_t>(n), level->flags);
  size_t len2 =
      cs->coll->strnxfrm(cs, two, sizeof two, 64, spaces, static_cast<size_t>(2 * n), level->flags);
  if (len1 < 1 || len1 > 4 || len2 != 2 * len1) return false;
  if (memcmp(one, two, len1) || memcmp(one, two + len1, len1)) return false;
  level->space_len = static_cast<uint8_t>(len1);
  level->group = len1 == 3 ? 9 : 8;
  for (size_t i = 0; i < level->group; i++) level->space[i] = one[i % len1];
  return true;
}

static TextRules text_rules(CHARSET_INFO *cs, bool is_char) {
  TextRules rules;
  rules.cs = cs;
  const bool nopad = cs->state & MY_CS_NOPAD;
  rules.trim = !nopad;
  /* CHAR in a NO PAD collation compares with its padding, as in the other engines. */
  rules.padded = is_char && nopad;
  if (cs->uca && cs->levels_for_order > 1) {
    uint set = cs->levels_for_order;
    for (uint i = 0; set; i++, set >>= 1) {
      if (!(set & 1)) continue;
      WeightLevel level;
      level.flags = MY_STRXFRM_LEVEL1 << i;
      /* The server compares levels above the first one with PAD SPACE in any case. */
      level.pad = (!nopad || i > 0) && probe_space(cs, &level);
      rules.levels.push_back(level);
    }
    return rules;
  }
  WeightLevel level;
  /* Without regular space weights (Czech) the trimmed value's weights stand for themselves. */
  level.pad = !nopad && cs->levels_for_order <= 1 && probe_space(cs, &level);
  rules.levels.push_back(level);
  return rules;
}

static size_t max_text_bytes(const KeyPart &part, size_t bytes) {
  CHARSET_INFO *cs = part.text.cs;
  size_t weights = cs->strnxfrmlen(bytes) + 64;
  size_t per_level = (weights / 8 + 2) * 10;
  return per_level * part.text.levels.size() + 2;
}

KeyPart describe_part(const KEY_PART_INFO &info, const Column &column) {
  KeyPart part;
  const Field *field = info.field;
  part.column = column;
  part.nullable = column.null_mask != 0;
  part.descending = info.key_part_flag & HA_REVERSE_SORT;
  part.tuple_bytes = info.store_length;
  part.prefix_bytes = info.length;
  part.whole = !(info.key_part_flag & HA_PART_KEY_SEG);
  switch (column.kind) {
    case ColumnKind::kFixed:
      part.kind = fixed_kind(field);
      part.width = info.length < column.length ? info.length : column.length;
      if (part.width < column.length) part.whole = false; /* BINARY(n) prefix */
      part.max_encoded = part.width + 1;
      part.recoverable =
          part.whole && part.kind != PartKind::kFloat && part.kind != PartKind::kDouble;
      return part;
    case ColumnKind::kBlob:
      part.whole = false;
      break;
    case ColumnKind::kVar:
      if (info.length < column.length) part.whole = false;
      break;
    case ColumnKind::kChar:
      if (info.length < column.length) part.whole = false;
      break;
  }
  if (column.cs == &my_charset_bin) {
    part.kind = PartKind::kBinary;
    part.recoverable = part.whole && column.kind == ColumnKind::kVar;
    part.max_encoded = (info.length / 8 + 2) * 9 + 1;
    return part;
  }
  part.kind = PartKind::kText;
  part.prefix_chars = info.length / column.cs->mbmaxlen;
  part.text = text_rules(column.cs, column.kind == ColumnKind::kChar);
  part.max_encoded = static_cast<uint32_t>(max_text_bytes(part, info.length));
  return part;
}

void KeyPart::pad_to(uint32_t char_bytes) {
  text.padded = char_bytes != 0;
  if (!char_bytes) return;
  prefix_bytes = char_bytes;
  prefix_chars = char_bytes / column.cs->mbmaxlen;
  max_encoded = std::max(max_encoded, static_cast<uint32_t>(max_text_bytes(*this, char_bytes)));
}

/* ---- encoding ---------------------------------------------------------------------- */

static void put_big_endian(uint8_t *to, const uint8_t *le, size_t width) {
  for (size_t i = 0; i < width; i++) to[i] = le[width - 1 - i];
}

/* IEEE numbers: positive ones get the sign bit, negative ones are complemented. */
static void put_real(uint8_t *to, const uint8_t *le, size_t width) {
  put_big_endian(to, le, width);
  bool zero = !(to[0] & 0x7f);
  for (size_t i = 1; zero && i < width; i++) zero = to[i] == 0;
  if (zero) to[0] = 0; /* -0 and 0 are one key */
  if (to[0] & 0x80)
    for (size_t i = 0; i < width; i++) to[i] = static_cast<uint8_t>(~to[i]);
  else
    to[0] |= 0x80;
}

/* Groups of bytes; the marker of the last one counts its bytes. */
static uint8_t *put_groups_nopad(const uint8_t *data, size_t len, size_t group, uint8_t *to) {
  while (len > group) {
    memcpy(to, data, group);
    to[group] = static_cast<uint8_t>(group + 1);
    to += group + 1;
    data += group;
    len -= group;
  }
  if (len) memcpy(to, data, len);
  memset(to + len, 0, group - len);
  to[group] = static_cast<uint8_t>(len);
  return to + group + 1;
}

/* Whether what follows sorts before (1) or after (3) endless spaces. Never equal: trailing
   spaces are gone. */
static uint8_t rest_marker(const uint8_t *data, size_t len, const WeightLevel &level) {
  while (len) {
    size_t n = len < level.group ? len : level.group;
    int cmp = memcmp(data, level.space, n);
    if (cmp) return cmp < 0 ? 1 : 3;
    data += n;
    len -= n;
  }
  return 3;
}

static uint8_t *put_groups_pad(const uint8_t *data, size_t len, const WeightLevel &level,
                               uint8_t *to) {
  const size_t step = level.space_len;
  while (len >= step && !memcmp(data + len - step, level.space, step)) len -= step;
  const size_t group = level.group;
  while (len > group) {
    memcpy(to, data, group);
    data += group;
    len -= group;
    to[group] = rest_marker(data, len, level);
    to += group + 1;
  }
  if (len) memcpy(to, data, len);
  /* A length that is no multiple of the space's cannot happen but for broken bytes. */
  memcpy(to + len, level.space + len % step, group - len);
  to[group] = 2;
  return to + group + 1;
}

/* The server's weights of Big5 are stroke counts, equal for many characters, while its
   comparison uses the codes, and so do the keys. */
static size_t weigh_big5(const CHARSET_INFO *cs, const uint8_t *data, size_t len, uint8_t *to) {
  size_t n = 0;
  for (size_t i = 0; i < len;) {
    const bool two = data[i] >= 0xa1 && data[i] <= 0xf9 && i + 1 < len;
    if (two) {
      to[n++] = data[i++];
      to[n++] = data[i++];
    } else {
      to[n++] = cs->sort_order ? cs->sort_order[data[i]] : data[i];
      i++;
    }
  }
  return n;
}

static size_t weigh(CHARSET_INFO *cs, const uint8_t *data, size_t len, uint8_t *to, size_t room,
                    uint flags) {
  if (!strncmp(cs->coll_name.str, "big5_chinese", 12)) return weigh_big5(cs, data, len, to);
  return cs->coll->strnxfrm(cs, to, room, static_cast<uint>(room), data, len, flags);
}

uint8_t *KeyPart::encode_text(const uint8_t *data, size_t len, uint8_t *to,
                              uint8_t *scratch) const {
  CHARSET_INFO *cs = text.cs;
  if (len > prefix_bytes / cs->mbmaxlen) {
    size_t at = cs->charpos(data, data + len, prefix_chars);
    if (at < len) len = at;
  }
  if (text.trim) len = cs->lengthsp(reinterpret_cast<const char *>(data), len);
  for (const WeightLevel &level : text.levels) {
    size_t n = weigh(cs, data, len, scratch, max_encoded, level.flags);
    to = level.pad ? put_groups_pad(scratch, n, level, to)
                   : put_groups_nopad(scratch, n, level.group, to);
  }
  return to;
}

uint8_t *KeyPart::encode_value(const uint8_t *data, size_t len, uint8_t *to,
                               uint8_t *scratch) const {
  switch (kind) {
    case PartKind::kUnsigned:
      put_big_endian(to, data, width);
      return to + width;
    case PartKind::kSigned:
      put_big_endian(to, data, width);
      to[0] ^= 0x80;
      return to + width;
    case PartKind::kBytes:
      memcpy(to, data, width);
      return to + width;
    case PartKind::kFloat:
    case PartKind::kDouble:
      put_real(to, data, width);
      return to + width;
    case PartKind::kBinary:
      return put_groups_nopad(data, len < prefix_bytes ? len : prefix_bytes, 8, to);
    case PartKind::kText:
      return encode_text(data, len, to, scratch);
  }
  return to;
}

static void complement(uint8_t *from, const uint8_t *end) {
  for (; from < end; from++) *from = static_cast<uint8_t>(~*from);
}

uint8_t *KeyPart::encode_record(const uchar *record, uint8_t *to, uint8_t *scratch) const {
  if (nullable && column.is_null(record)) {
    *to = descending ? 0xff : 0;
    return to + 1;
  }
  return encode_there(
      text.padded ? fe_slice{record + column.offset, column.length} : column.value(record), to,
      scratch);
}

uint8_t *KeyPart::encode_there(fe_slice value, uint8_t *to, uint8_t *scratch) const {
  uint8_t *start = to;
  if (nullable) *to++ = 1;
  to = encode_value(value.ptr, value.len, to, scratch);
  if (descending) complement(start, to);
  return to;
}

uint8_t *KeyPart::encode_tuple(const uchar *tuple, uint8_t *to, uint8_t *scratch) const {
  uint8_t *start = to;
  bool null = false;
  if (nullable) {
    null = *tuple++ != 0;
    *to++ = null ? 0 : 1;
  }
  if (!null) {
    size_t len = prefix_bytes;
    if (column.kind == ColumnKind::kVar || column.kind == ColumnKind::kBlob) {
      len = uint2korr(tuple);
      tuple += HA_KEY_BLOB_LENGTH;
    }
    to = encode_value(tuple, len, to, scratch);
  }
  if (descending) complement(start, to);
  return to;
}

size_t KeyPart::ordinary_bytes() const {
  const size_t marker = nullable ? 1 : 0;
  if (fixed()) return marker + width;
  std::vector<uint8_t> value(prefix_bytes + 16, 'a'), to(max_encoded + 32), scratch(to.size());
  size_t len = prefix_bytes;
  if (kind == PartKind::kText) {
    len = 0;
    for (uint i = 0; i < prefix_chars; i++) {
      int n = text.cs->wc_mb('a', value.data() + len, value.data() + prefix_bytes);
      if (n <= 0) break;
      len += static_cast<size_t>(n);
    }
  }
  const uint8_t *end = encode_value(value.data(), len, to.data(), scratch.data());
  return marker + static_cast<size_t>(end - to.data());
}

size_t Index::ordinary_bytes() const {
  size_t bytes = 0;
  for (const KeyPart &part : parts) bytes += part.ordinary_bytes();
  return bytes;
}

/* ---- decoding ---------------------------------------------------------------------- */

/* Past one run of groups. The last group's marker is at most `group` (NO PAD) or 2. */
static const uint8_t *skip_groups(const uint8_t *p, const uint8_t *end, size_t group, bool pad,
                                  uint8_t flip) {
  for (;;) {
    if (static_cast<size_t>(end - p) < group + 1) return nullptr;
    uint8_t marker = p[group] ^ flip;
    p += group + 1;
    if (pad ? marker == 2 : marker <= group) return p;
  }
}

const uint8_t *KeyPart::skip(const uint8_t *from, const uint8_t *end) const {
  if (nullable) {
    if (from >= end) return nullptr;
    bool null = encoded_null(from++);
    if (null) return from;
  }
  if (fixed()) return static_cast<size_t>(end - from) < width ? nullptr : from + width;
  const uint8_t flip = descending ? 0xff : 0;
  if (kind == PartKind::kBinary) return skip_groups(from, end, 8, false, flip);
  for (const WeightLevel &level : text.levels) {
    from = skip_groups(from, end, level.group, level.pad, flip);
    if (!from) return nullptr;
  }
  return from;
}

const uint8_t *KeyPart::decode(const uint8_t *from, const uint8_t *end, uchar *record) const {
  const uint8_t flip = descending ? 0xff : 0;
  if (nullable) {
    if (from >= end) return nullptr;
    if (encoded_null(from)) {
      column.set_null(record);
      return from + 1;
    }
    column.set_not_null(record);
    from++;
  }
  uchar *at = record + column.offset;
  if (kind == PartKind::kBinary) {
    uchar *to = at + column.length_bytes;
    size_t total = 0;
    for (;;) {
      if (end - from < 9) return nullptr;
      uint8_t marker = from[8] ^ flip;
      size_t n = marker > 8 ? 8 : marker;
      if (total + n > column.length) return nullptr;
      for (size_t i = 0; i < n; i++) to[total + i] = from[i] ^ flip;
      total += n;
      from += 9;
      if (marker <= 8) break;
    }
    at[0] = static_cast<uchar>(total);
    if (column.length_bytes == 2) at[1] = static_cast<uchar>(total >> 8);
    return from;
  }
  if (static_cast<size_t>(end - from) < width) return nullptr;
  if (kind == PartKind::kBytes) {
    for (size_t i = 0; i < width; i++) at[i] = from[i] ^ flip;
  } else {
    for (size_t i = 0; i < width; i++) at[width - 1 - i] = from[i] ^ flip;
    if (kind == PartKind::kSigned) at[width - 1] ^= 0x80;
  }
  return from + width;
}

/* ---- whole keys -------------------------------------------------------------------- */

bool Index::any_null(const uchar *record) const {
  for (const KeyPart &part : parts)
    if (part.column.is_null(record)) return true;
  return false;
}

uint8_t *encode_key(const Index &index, const uchar *record, uint8_t *to, uint8_t *scratch) {
  for (const KeyPart &part : index.parts) to = part.encode_record(record, to, scratch);
  return to;
}

/* The tuple bytes of primary key part `pk_part` among the parts given, or NULL. */
static const uchar *find_in_tuple(const Index &index, const Index &primary, int pk_part,
                                  const uchar *tuple, size_t count) {
  const KeyPart &wanted = primary.parts[static_cast<size_t>(pk_part)];
  for (size_t i = 0; i < count; i++) {
    int id = index.tuple_parts[i];
    if (id < 0 && ~id == pk_part) return tuple;
    if (id >= 0) {
      const KeyPart &p = index.parts[static_cast<size_t>(id)];
      if (p.column.field_no == wanted.column.field_no && p.prefix_bytes == wanted.prefix_bytes &&
          !p.nullable)
        return tuple;
    }
    tuple += index.tuple_part_bytes[i];
  }
  return nullptr;
}

uint8_t *encode_tuple(const Index &index, const Index *primary, const uchar *tuple, size_t key_len,
                      uint8_t *to, uint8_t *scratch, uint *parts, bool *has_null) {
  const uchar *p = tuple;
  size_t given = 0, used = 0;
  *parts = 0;
  *has_null = false;
  bool extended = false;
  for (; given < index.tuple_parts.size() && used < key_len; given++) {
    int id = index.tuple_parts[given];
    if (id >= 0) {
      const KeyPart &part = index.parts[static_cast<size_t>(id)];
      if (part.nullable && *p) *has_null = true;
      to = part.encode_tuple(p, to, scratch);
      ++*parts;
    } else {
      extended = true;
    }
    p += index.tuple_part_bytes[given];
    used += index.tuple_part_bytes[given];
  }
  if (!extended || !primary) return to;
  /* The tail of a secondary key is the whole primary key, in its own order; parts that the
     server omitted because the index declares them are earlier in the tuple. */
  for (size_t i = 0; i < primary->parts.size(); i++) {
    const uchar *at = find_in_tuple(index, *primary, static_cast<int>(i), tuple, given);
    if (!at) break;
    to = primary->parts[i].encode_tuple(at, to, scratch);
  }
  return to;
}

bool successor(uint8_t *key, size_t *len) {
  while (*len) {
    if (++key[*len - 1]) return true;
    --*len;
  }
  return false;
}

}  // namespace ferrite
