/*
 * Shares, layouts, table names and definition blobs (see ferrite_share.h).
 */
#include "ferrite_share.h"

#include <string.h>
#include <time.h>

#include "description.h"
#include "ferrite_error.h"
#include "ferrite_hton.h"

namespace ferrite {

/* ---- layout ------------------------------------------------------------------------ */

void Layout::init(const TABLE *table, uint primary_key) {
  const TABLE_SHARE *s = table->s;
  std::vector<Column> columns;
  for (uint i = 0; i < s->fields; i++) {
    const Field *field = table->field[i];
    columns.push_back(
        describe_column(field, table->record[0], s->default_values, !field->stored_in_db()));
  }
  hidden_row_id = primary_key == MAX_KEY;
  by_server.assign(s->keys, kNoIndex);
  if (hidden_row_id) {
    indexes.emplace_back();
    indexes[0].server_no = MAX_KEY;
    indexes[0].unique = true;
    indexes[0].name = kHiddenIndexName;
  } else {
    add_index(table, primary_key, columns);
  }
  for (uint i = 0; i < s->keys; i++)
    if (i != primary_key) add_index(table, i, columns);

  if (!hidden_row_id) {
    const Index &pk = indexes[0];
    pk_fixed = true;
    pk_bytes = 0;
    for (size_t i = 0; i < pk.parts.size(); i++) {
      const KeyPart &part = pk.parts[i];
      if (part.recoverable && columns[part.column.field_no].stored)
        columns[part.column.field_no].pk_part = static_cast<int16_t>(i);
      if (!part.fixed() || part.nullable) pk_fixed = false;
      if (!part.whole) pk_whole = false;
      pk_bytes += part.max_encoded;
    }
    if (pk_fixed) {
      pk_bytes = 0;
      for (const KeyPart &part : pk.parts) pk_bytes += part.width;
    }
  }
  rows.init(std::move(columns), pk_bytes);
  for (Index &index : indexes) finish_index(table, &index);
}

void Layout::add_index(const TABLE *table, uint server_no, const std::vector<Column> &columns) {
  const KEY &key = table->key_info[server_no];
  Index index;
  index.no = static_cast<uint32_t>(indexes.size());
  index.server_no = server_no;
  index.name = key.name.str;
  index.unique = key.flags & HA_NOSAME && key.algorithm != HA_KEY_ALG_LONG_HASH;
  for (uint i = 0; i < key.user_defined_key_parts; i++) {
    const KEY_PART_INFO &info = key.key_part[i];
    KeyPart part = describe_part(info, columns[info.fieldnr - 1]);
    if (!part.whole) index.has_prefix = true;
    if (!part.column.stored) index.has_virtual = true;
    index.parts.push_back(std::move(part));
  }
  if (index.has_virtual) has_indexed_virtual = true;
  by_server[server_no] = index.no;
  indexes.push_back(std::move(index));
}

/* The extended key of the server, and what an entry covers: needs the primary key known. */
void Layout::finish_index(const TABLE *table, Index *index) {
  const size_t fields = rows.columns().size();
  index->covered.assign(fields, index->no == 0);
  index->touched_by.assign(fields, 0);
  size_t own_key = 0;
  for (const KeyPart &part : index->parts) {
    own_key += part.max_encoded;
    if (part.max_encoded > max_scratch) max_scratch = part.max_encoded;
    const uint16_t no = part.column.field_no;
    index->touched_by[no] = 1;
    if (part.recoverable) index->covered[no] = 1;
  }
  for (const KeyPart &part : index->parts) {
    const uint16_t no = part.column.field_no;
    if (index->no == 0 || !part.whole || index->covered[no]) continue;
    index->payload.push_back(no);
    index->covered[no] = 1;
  }
  const Index *pk = primary();
  if (index->no != 0 && pk) {
    for (const KeyPart &part : pk->parts) {
      const uint16_t no = part.column.field_no;
      index->touched_by[no] = 1;
      if (!part.whole || index->covered[no]) continue;
      index->covered[no] = 1;
      if (!part.recoverable) index->payload.push_back(no);
    }
  }
  index->max_key = own_key + (index->no ? pk_bytes : 0) + 16;
  if (index->max_key > max_key) max_key = index->max_key;
  if (index->no) {
    max_entries += own_key;
    for (uint16_t no : index->payload) max_entries += rows.column(no).length + 4;
  }
  if (index->server_no == MAX_KEY) return;
  const KEY &key = table->key_info[index->server_no];
  for (uint i = 0; i < key.ext_key_parts; i++) {
    const KEY_PART_INFO &info = key.key_part[i];
    int16_t id = static_cast<int16_t>(i);
    if (i >= key.user_defined_key_parts) {
      id = -1;
      for (size_t k = 0; pk && k < pk->parts.size(); k++)
        if (pk->parts[k].column.field_no + 1 == info.fieldnr) id = static_cast<int16_t>(~k);
    }
    if (id >= 0 ? !index->parts[id].whole : pk && !pk->parts[~id].whole)
      index->prefix_in_tuple = true;
    index->tuple_parts.push_back(id);
    index->tuple_part_bytes.push_back(info.store_length);
  }
}

void Layout::take_order(const std::vector<uint32_t> &order) {
  std::vector<Index> arranged;
  for (uint32_t from : order) arranged.push_back(std::move(indexes[from]));
  indexes = std::move(arranged);
  for (uint32_t no = 0; no < indexes.size(); no++) {
    indexes[no].no = no;
    if (indexes[no].server_no != MAX_KEY) by_server[indexes[no].server_no] = no;
  }
}

bool Layout::arrange(const std::vector<std::string> &names) {
  if (names.size() != indexes.size()) return false;
  std::vector<uint32_t> order{0};
  for (size_t i = 1; i < names.size(); i++)
    for (const Index &index : indexes)
      if (index.no && same_name(index.name.c_str(), names[i].c_str())) order.push_back(index.no);
  /* Names of a table's keys differ. */
  if (order.size() != indexes.size()) return false;
  take_order(order);
  return true;
}

bool Layout::arrange_as(const Layout &other) {
  if (by_server.size() != other.by_server.size()) return false;
  std::vector<uint32_t> order;
  for (const Index &index : other.indexes)
    order.push_back(index.server_no == MAX_KEY ? 0 : by_server[index.server_no]);
  /* The clustered index is another one. */
  if (order.size() != indexes.size() || order[0]) return false;
  take_order(order);
  return true;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value;
  hash *= 0x100000001b3ULL;
  return hash ^ (hash >> 29);
}

/* A VARCHAR's greatest length leaves no trace in rows, and none in keys on all of it: such a
   column may grow without a copy of the table. */
static constexpr uint64_t kNoFingerprint = 0xcbf29ce484222325ULL;

uint64_t Layout::columns_fingerprint() const {
  uint64_t h = kNoFingerprint;
  for (const Column &c : rows.columns()) {
    if (!c.stored && c.pk_part < 0) continue;
    const bool may_grow = c.kind == ColumnKind::kVar;
    h = mix(h, static_cast<uint64_t>(c.kind) | (may_grow ? 0 : uint64_t{c.length} << 8));
    h = mix(h, (may_grow ? 0u : c.length_bytes) | (c.null_mask ? 256u : 0u) |
                   uint64_t{c.cs->number} << 16);
  }
  return h;
}

static uint64_t mix_index(uint64_t h, const Index &index) {
  h = mix(h, 0x1d | (index.unique ? 256u : 0u));
  for (const KeyPart &p : index.parts) {
    h = mix(h, p.column.field_no | static_cast<uint64_t>(p.kind) << 16);
    const uint32_t bytes = p.whole && p.column.kind == ColumnKind::kVar ? 0 : p.prefix_bytes;
    h = mix(h, bytes | (p.descending ? 1ULL << 32 : 0) | (p.nullable ? 2ULL << 32 : 0));
  }
  return h;
}

uint64_t Layout::index_fingerprint(uint32_t index_no) const {
  return mix_index(kNoFingerprint, indexes[index_no]);
}

uint64_t Layout::fingerprint() const {
  uint64_t h = columns_fingerprint();
  for (const Index &index : indexes) h = mix_index(h, index);
  return h;
}

uint64_t Layout::fingerprint_in(const uint32_t *order) const {
  uint64_t h = columns_fingerprint();
  for (size_t i = 0; i < indexes.size(); i++) h = mix_index(h, indexes[order[i]]);
  return h;
}

/* ---- a primary key that is none -------------------------------------------------------- */

/* A column of the TABLE is in such keys as the server finds without a primary key: those that have
   all of it. */
static void find_keys_of_columns(TABLE *table, const handler *file) {
  for (Field **field = table->field; *field; field++) {
    (*field)->flags &= ~PRI_KEY_FLAG;
    (*field)->part_of_key.clear_all();
    (*field)->part_of_sortkey.clear_all();
  }
  for (uint no = 0; no < table->s->keys; no++) {
    const KEY &key = table->key_info[no];
    if (key.algorithm == HA_KEY_ALG_LONG_HASH) continue;
    for (uint part = 0; part < key.user_defined_key_parts; part++) {
      Field *field = table->field[key.key_part[part].fieldnr - 1];
      if (field->key_length() != key.key_part[part].length || field->flags & BLOB_FLAG) continue;
      if (file->index_flags(no, part, false) & HA_KEYREAD_ONLY) field->part_of_key.set_bit(no);
      if (file->index_flags(no, part, true) & HA_READ_ORDER) field->part_of_sortkey.set_bit(no);
    }
  }
}

/* No key goes on with the columns of the primary key. Others may be reading what is right already.
 */
static void end_keys_as_defined(KEY *keys, uint count) {
  for (KEY *key = keys; key < keys + count; key++) {
    if (key->ext_key_parts == key->user_defined_key_parts && !(key->ext_key_flags & HA_EXT_NOSAME))
      continue;
    key->ext_key_parts = key->user_defined_key_parts;
    key->ext_key_part_map = 0;
    key->ext_key_flags &= ~static_cast<ulong>(HA_EXT_NOSAME);
  }
}

/* The columns of the TABLE_SHARE keep PRI_KEY_FLAG: every TABLE that is made of it, also one that
   another thread is making now, is told by its own open. What the threads write into the
   TABLE_SHARE is the same. */
void forget_primary_key(TABLE *table, const handler *file) {
  bool believed = false;
  for (Field **field = table->field; *field; field++)
    if ((*field)->flags & PRI_KEY_FLAG) believed = true;
  if (!believed) return;
  TABLE_SHARE *s = table->s;
  end_keys_as_defined(s->key_info, s->keys);
  end_keys_as_defined(table->key_info, s->keys);
  s->primary_key = MAX_KEY;
  find_keys_of_columns(table, file);
  const KEY &first = table->key_info[0];
  first.key_part[0].field->flags |=
      first.user_defined_key_parts == 1 ? UNIQUE_KEY_FLAG : MULTIPLE_KEY_FLAG;
}

/* ---- shares ------------------------------------------------------------------------ */

Share::~Share() {
  if (table) fe_table_close(table);
}

static void take_name(void *names, fe_slice name) {
  static_cast<std::vector<std::string> *>(names)->emplace_back(
      reinterpret_cast<const char *>(name.ptr), name.len);
}

/* A sorted .frm file may begin with another key than before: one that does without NULL only since
   an ALTER TABLE which did not sort, and which the server now takes for the primary key of rows
   that have none. */
void Share::take_core_order(const TABLE *form) {
  std::vector<std::string> names;
  fe_table_index_names(table, take_name, &names);
  if (!layout.hidden_row_id && !names.empty() && names[0] == kHiddenIndexName) {
    layout = Layout();
    layout.init(form, MAX_KEY);
    sql_print_information(
        "Ferrite: the rows of table %s have no primary key, though its .frm file begins with a key "
        "that could be one; ALTER TABLE ... FORCE makes it the primary key",
        name.c_str());
  }
  layout.arrange(names);
}

int Share::open_table(const TABLE *form, THD *thd) {
  fe_code rc = fe_table_open(ferrite_engine, name.c_str(), &table);
  if (rc != FE_OK) {
    table = nullptr;
    return ferrite_table_error(rc, thd);
  }
  const fe_slice definition = fe_table_definition(table);
  if (!has_fingerprint(layout, definition)) take_core_order(form);
  int err = check_definition(layout, definition, name.c_str());
  if (err) {
    fe_table_close(table);
    table = nullptr;
  }
  return err;
}

int Share::attach(const char *core_name, const TABLE *form, THD *thd) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (!table) {
    name = core_name;
    if (int err = open_table(form, thd)) return err;
  }
  users_++;
  return 0;
}

void Share::detach() {
  std::lock_guard<std::mutex> guard(mutex_);
  if (--users_ || !table) return;
  fe_table_close(table);
  table = nullptr;
  generation++;
  stats_loaded = false;
}

int Share::reopen(const TABLE *form, THD *thd) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (table) fe_table_close(table);
  table = nullptr;
  generation++;
  stats_loaded = false;
  return open_table(form, thd);
}

/* ---- names and definitions --------------------------------------------------------- */

/* What the server calls the temporary tables of sessions, in whichever tmpdir. */
static constexpr char kTemporaryFile[] = "#sql-temptable-";

bool has_temporary_name(const char *path) {
  const char *file = strrchr(path, FN_LIBCHAR);
  return !strncmp(file ? file + 1 : path, kTemporaryFile, sizeof kTemporaryFile - 1);
}

size_t partition_mark(const std::string &core_name) {
  const size_t mark = core_name.find("#P#");
  return mark != std::string::npos ? mark : core_name.find("#p#");
}

/* Without what may be written in several ways. */
static std::string plain_directory(std::string dir) {
  while (!dir.compare(0, 2, "./")) dir.erase(0, 2);
  while (!dir.empty() && dir.back() == FN_LIBCHAR) dir.pop_back();
  return dir == "." ? std::string() : dir;
}

/* A table of a database has a path that begins with "./", whoever names it, and in whatever way. So
   has a temporary table only if the tmpdir was given so. */
bool is_temporary_path(const char *path) {
  if (!has_temporary_name(path)) return false;
  if (path[0] != FN_CURLIB || path[1] != FN_LIBCHAR) return true;
  const std::string dir = plain_directory({path, strrchr(path, FN_LIBCHAR)});
  for (size_t i = 0; i <= mysql_tmpdir_list.max; i++)
    if (dir == plain_directory(mysql_tmpdir_list.list[i])) return true;
  return false;
}

/* A temporary table belongs to no database: the directory it is in may have the name of one. */
std::string core_table_name(const char *path) {
  if (is_temporary_path(path)) {
    const char *file = strrchr(path, FN_LIBCHAR);
    return file ? file : std::string(1, FN_LIBCHAR) + path;
  }
  const char *end = path + strlen(path);
  const char *p = end;
  int slashes = 0;
  while (p > path) {
    if (p[-1] == '/' && ++slashes == 2) break;
    p--;
  }
  return std::string(p, static_cast<size_t>(end - p));
}

/* magic, server version (3 bytes), cache priority, unix time, fingerprint: little-endian. The
   description follows. */
static constexpr char kDefinitionMagic[4] = {'F', 'R', 'd', '1'};
static constexpr size_t kDefinitionBytes = 4 + 4 + 8 + 8;

std::string make_definition(const Layout &layout, const TABLE *table, uint8_t cache_priority) {
  static_assert(MYSQL_VERSION_ID < 1 << 24, "three bytes");
  uchar buf[kDefinitionBytes];
  memcpy(buf, kDefinitionMagic, 4);
  int3store(buf + 4, static_cast<uint32_t>(MYSQL_VERSION_ID));
  buf[7] = cache_priority;
  int8store(buf + 8, static_cast<ulonglong>(time(nullptr)));
  int8store(buf + 16, layout.fingerprint());
  std::string blob(reinterpret_cast<char *>(buf), sizeof buf);
  append_description(layout, table, &blob);
  return blob;
}

bool has_fingerprint(const Layout &layout, fe_slice definition) {
  return definition.len >= kDefinitionBytes &&
         uint8korr(definition.ptr + 16) == layout.fingerprint();
}

int check_definition(const Layout &layout, fe_slice definition, const char *name) {
  if (definition.len < kDefinitionBytes || memcmp(definition.ptr, kDefinitionMagic, 4)) {
    sql_print_error("Ferrite: table %s has a definition of an unknown format", name);
    return HA_ERR_INCOMPATIBLE_DEFINITION;
  }
  if (has_fingerprint(layout, definition)) return 0;
  sql_print_error(
      "Ferrite: the columns or keys of table %s in its .frm file are not those it was created "
      "with (by server version %u); restore the matching .frm file",
      name, static_cast<uint>(uint3korr(definition.ptr + 4)));
  return HA_ERR_INCOMPATIBLE_DEFINITION;
}

/* ---- index entries ----------------------------------------------------------------- */

static constexpr uint kNullLength = 0xffff;

uint8_t *encode_entry_payload(const Layout &layout, const Index &index, const uchar *record,
                              uint8_t *to) {
  for (uint16_t no : index.payload) {
    const Column &c = layout.rows.column(no);
    if (c.is_null(record)) {
      int2store(to, kNullLength);
      to += 2;
      continue;
    }
    fe_slice v = c.value(record);
    int2store(to, static_cast<uint>(v.len));
    memcpy(to + 2, v.ptr, v.len);
    to += 2 + v.len;
  }
  return to;
}

uint8_t *encode_entry(const Layout &layout, const Index &index, const uchar *record, uint8_t *to,
                      uint8_t *scratch, fe_entry *entry) {
  entry->index_no = index.no;
  entry->check_unique = index.unique && !index.any_null(record);
  entry->key.ptr = to;
  to = encode_key(index, record, to, scratch);
  entry->key.len = static_cast<size_t>(to - entry->key.ptr);
  entry->payload.ptr = to;
  to = encode_entry_payload(layout, index, record, to);
  entry->payload.len = static_cast<size_t>(to - entry->payload.ptr);
  return to;
}

static bool decode_parts(const std::vector<KeyPart> &parts, const uint8_t **at, const uint8_t *end,
                         const uint8_t *wanted, uchar *record) {
  const uint8_t *p = *at;
  for (const KeyPart &part : parts) {
    p = part.recoverable && wanted[part.column.field_no] ? part.decode(p, end, record)
                                                         : part.skip(p, end);
    if (!p) return false;
  }
  *at = p;
  return true;
}

bool decode_primary_key(const Layout &layout, fe_slice pk, const uint8_t *wanted, uchar *record) {
  const uint8_t *p = pk.ptr;
  return !layout.primary() ||
         decode_parts(layout.indexes[0].parts, &p, pk.ptr + pk.len, wanted, record);
}

bool decode_entry(const Layout &layout, const Index &index, const fe_row &row,
                  const uint8_t *wanted, uchar *record) {
  const uint8_t *p = row.key.ptr, *end = row.key.ptr + row.key.len;
  if (!decode_parts(index.parts, &p, end, wanted, record)) return false;
  if (!decode_primary_key(layout, row.pk, wanted, record)) return false;
  p = row.payload.ptr;
  end = p + row.payload.len;
  for (uint16_t no : index.payload) {
    const Column &c = layout.rows.column(no);
    if (end - p < 2) return false;
    uint len = uint2korr(p);
    p += 2;
    if (len == kNullLength) {
      if (wanted[no]) c.set_null(record);
      continue;
    }
    if (end - p < static_cast<ptrdiff_t>(len) || len > c.length) return false;
    if (wanted[no]) {
      c.set_not_null(record);
      c.store(record, p, len);
    }
    p += len;
  }
  return true;
}

}  // namespace ferrite
