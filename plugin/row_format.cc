/*
 * Conversion between the server's record buffer and the row payload (row_format.h has the
 * layout). No call into the server here but character set functions, no lock, no latch.
 */
#include "row_format.h"

#include <string.h>
#include <sys/mman.h>

namespace ferrite {

/* ---- columns and buffers ----------------------------------------------------------- */

/* The server's own record of NULL in a VECTOR has the length of a vector, and it compares records.
 */
static bool is_vector(const Field *field) {
  return ferrite::same_name(field->type_handler()->name().lex_cstring().str, "vector");
}

Column describe_column(const Field *field, const uchar *record_start, const uchar *defaults,
                       bool virtual_column) {
  Column c;
  c.field_no = field->field_index;
  c.stored = !virtual_column;
  c.offset = static_cast<uint32_t>(field->ptr - record_start);
  c.null_image = defaults + c.offset;
  c.cs = field->charset();
  if (field->real_maybe_null()) {
    c.null_mask = field->null_bit;
    c.null_offset = static_cast<uint32_t>(field->null_ptr - record_start);
  }
  if (field->flags & BLOB_FLAG) {
    const Field_blob *blob = static_cast<const Field_blob *>(field);
    c.kind = ColumnKind::kBlob;
    c.length_bytes = static_cast<uint8_t>(blob->pack_length_no_ptr());
    c.length = UINT_MAX32;
  } else if (field->real_type() == MYSQL_TYPE_VARCHAR) {
    const Field_varstring *var = static_cast<const Field_varstring *>(field);
    c.kind = ColumnKind::kVar;
    c.length_bytes = static_cast<uint8_t>(var->length_bytes);
    c.length = var->pack_length() - var->length_bytes;
    c.null_as_default = is_vector(field);
  } else {
    c.length = field->pack_length();
    bool text =
        field->real_type() == MYSQL_TYPE_STRING || field->real_type() == MYSQL_TYPE_VAR_STRING;
    if (text && field->key_type() == HA_KEYTYPE_TEXT) c.kind = ColumnKind::kChar;
  }
  return c;
}

void Column::set_null(uchar *record) const {
  record[null_offset] |= null_mask;
  if (kind == ColumnKind::kFixed || kind == ColumnKind::kChar)
    memcpy(record + offset, null_image, length);
  else if (null_as_default)
    memcpy(record + offset, null_image, length_bytes + length);
  else
    memset(record + offset, 0, length_bytes + (kind == ColumnKind::kBlob ? sizeof(uchar *) : 0));
}

static size_t read_length(const uchar *from, uint bytes) {
  switch (bytes) {
    case 1:
      return from[0];
    case 2:
      return uint2korr(from);
    case 3:
      return uint3korr(from);
    default:
      return uint4korr(from);
  }
}

static void write_length(uchar *to, uint bytes, size_t len) {
  for (uint i = 0; i < bytes; i++, len >>= 8) to[i] = static_cast<uchar>(len);
}

fe_slice Column::value(const uchar *record) const {
  const uchar *at = record + offset;
  switch (kind) {
    case ColumnKind::kFixed:
      return {at, length};
    case ColumnKind::kChar:
      return {at, cs->lengthsp(reinterpret_cast<const char *>(at), length)};
    case ColumnKind::kVar:
      return {at + length_bytes, read_length(at, length_bytes)};
    case ColumnKind::kBlob: {
      const uint8_t *data;
      memcpy(&data, at + length_bytes, sizeof data);
      return {data, read_length(at, length_bytes)};
    }
  }
  return {nullptr, 0};
}

void Column::store(uchar *record, const uint8_t *data, size_t len) const {
  uchar *at = record + offset;
  switch (kind) {
    case ColumnKind::kFixed:
      memcpy(at, data, length);
      return;
    case ColumnKind::kChar:
      memcpy(at, data, len);
      if (len < length) {
        if (cs->mbminlen == 1)
          memset(at + len, ' ', length - len);
        else
          cs->fill(reinterpret_cast<char *>(at) + len, length - len, ' ');
      }
      return;
    case ColumnKind::kVar:
      write_length(at, length_bytes, len);
      memcpy(at + length_bytes, data, len);
      return;
    case ColumnKind::kBlob:
      write_length(at, length_bytes, len);
      memcpy(at + length_bytes, &data, sizeof data);
      return;
  }
}

bool Buffer::grow(size_t capacity) {
  size_t wanted = capacity < 256 ? 256 : capacity + capacity / 2;
  void *p;
  if (wanted >= kMappedBufferBytes)
    p = grow_mapping(wanted);
  else if (data_)
    p = my_realloc(PSI_INSTRUMENT_ME, data_, wanted, MYF(0));
  else
    p = my_malloc(PSI_INSTRUMENT_ME, wanted, MYF(0));
  if (!p) return false;
  data_ = static_cast<uint8_t *>(p);
  capacity_ = wanted;
  return true;
}

/* The new place of the content; the old one is gone. NULL: out of memory, nothing changed. */
uint8_t *Buffer::grow_mapping(size_t wanted) {
  void *p = is_mapped()
                ? mremap(data_, capacity_, wanted, MREMAP_MAYMOVE)
                : mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  if (!is_mapped() && data_) {
    memcpy(p, data_, size_);
    my_free(data_);
  }
  return static_cast<uint8_t *>(p);
}

void Buffer::free() {
  if (is_mapped())
    munmap(data_, capacity_);
  else
    my_free(data_);
  data_ = nullptr;
  size_ = capacity_ = 0;
}

/* ---- layout ------------------------------------------------------------------------ */

void RowFormat::init(std::vector<Column> columns, size_t pk_bytes) {
  static_assert(FE_MAX_KEY_BYTES < FE_MAX_RECORD_BYTES, "a row beside its key");
  const size_t beside_key = FE_MAX_RECORD_BYTES - std::min<size_t>(pk_bytes, FE_MAX_KEY_BYTES);
  target_bytes_ = std::min<size_t>(FE_MAX_INLINE_PAYLOAD, beside_key);
  columns_ = std::move(columns);
  stored_.clear();
  variable_.clear();
  size_t null_bits = 0;
  fixed_bytes_ = 0;
  for (Column &c : columns_) {
    if (c.pk_part >= 0) c.stored = false;
    if (!c.stored) continue;
    stored_.push_back(c.field_no);
    if (c.null_mask) {
      c.payload_null_byte = static_cast<uint16_t>(null_bits / 8);
      c.payload_null_mask = static_cast<uint8_t>(1u << (null_bits % 8));
      null_bits++;
    }
    if (c.kind == ColumnKind::kFixed) {
      c.fixed_pos = static_cast<uint16_t>(fixed_bytes_);
      fixed_bytes_ += c.length;
    } else {
      c.var_no = static_cast<uint16_t>(variable_.size());
      variable_.push_back(c.field_no);
    }
  }
  null_bytes_ = (null_bits + 7) / 8;
  var_count_ = variable_.size();
}

/* A payload taken apart. */
struct RowFormat::View {
  const uint8_t *refs;
  uint ref_count;
  const uint8_t *nulls;
  const uint8_t *fixed;
  const uint8_t *ends;
  const uint8_t *vars;
  size_t vars_len;

  bool is_null(const Column &c) const {
    return c.payload_null_mask && (nulls[c.payload_null_byte] & c.payload_null_mask);
  }
  /* The bytes of a variable column; *out_of_line says that they are a reference number. */
  fe_slice variable(uint no, bool *out_of_line) const {
    uint start = no ? uint2korr(ends + 2 * (no - 1)) & ~kOutOfLine : 0;
    uint end = uint2korr(ends + 2 * no);
    *out_of_line = end & kOutOfLine;
    end &= ~kOutOfLine;
    if (end < start || end > vars_len) return {nullptr, 0};
    return {vars + start, end - start};
  }
  /* No two columns have the same bytes. Reading a row finds that out only where it matters. */
  bool is_in_order(size_t count) const {
    uint start = 0;
    for (size_t i = 0; i < count; i++) {
      const uint end = uint2korr(ends + 2 * i) & ~kOutOfLine;
      if (end < start) return false;
      start = end;
    }
    return start <= vars_len;
  }
  const uint8_t *ref(fe_slice number) const {
    if (number.len != 1 && number.len != 2) return nullptr;
    const size_t no = number.len == 1 ? number.ptr[0] : uint2korr(number.ptr);
    return no < ref_count ? refs + no * size_t{FE_OVERFLOW_BYTES} : nullptr;
  }
};

bool RowFormat::parse(fe_slice payload, View *view) const {
  if (payload.len < 1) return false;
  size_t head = 1;
  view->ref_count = payload.ptr[0];
  if (view->ref_count == FE_MANY_OVERFLOW_REFS && payload.len >= kManyRefsBytes &&
      uint2korr(payload.ptr + 3) == kManyRefsMark) {
    view->ref_count = uint2korr(payload.ptr + 1);
    head = kManyRefsBytes;
  }
  view->refs = payload.ptr + head;
  head += view->ref_count * size_t{FE_OVERFLOW_BYTES};
  size_t base = head + 1 + null_bytes_ + fixed_bytes_ + 2 * var_count_;
  if (payload.len < base || payload.ptr[head] != kRowVersion) return false;
  view->nulls = payload.ptr + head + 1;
  view->fixed = view->nulls + null_bytes_;
  view->ends = view->fixed + fixed_bytes_;
  view->vars = view->ends + 2 * var_count_;
  view->vars_len = payload.len - base;
  return true;
}

/* Its checksums are right, perhaps: an imported file's, or a definition that is another table's. */
static fe_code damaged_row() { return fe_damaged("a row does not fit the table's definition"); }

/* ---- reading ----------------------------------------------------------------------- */

/* The bytes of those of the columns that lie out of line. False: the row is damaged. */
bool RowFormat::far_bytes(const View &view, const uint16_t *wanted, size_t count,
                          size_t *bytes) const {
  *bytes = 0;
  for (size_t i = 0; i < count; i++) {
    const Column &c = columns_[wanted[i]];
    if (c.kind == ColumnKind::kFixed || view.is_null(c)) continue;
    bool far;
    const fe_slice number = view.variable(c.var_no, &far);
    if (!far) continue;
    const uint8_t *ref = view.ref(number);
    if (!ref) return false;
    *bytes += fe_overflow_len(ref);
  }
  return true;
}

fe_code RowFormat::decode(fe_session *session, fe_table *table, fe_slice payload,
                          const uint16_t *wanted, size_t count, uchar *record,
                          Buffer *blobs) const {
  View view;
  if (!parse(payload, &view)) return damaged_row();
  size_t blob_bytes = 0, blob_room = 0;
  for (size_t i = 0; i < count; i++) {
    const Column &c = columns_[wanted[i]];
    if (view.is_null(c)) {
      c.set_null(record);
      continue;
    }
    c.set_not_null(record);
    if (c.kind == ColumnKind::kFixed) {
      memcpy(record + c.offset, view.fixed + c.fixed_pos, c.length);
      continue;
    }
    bool far;
    fe_slice v = view.variable(c.var_no, &far);
    if (!v.ptr) return damaged_row();
    if (!far && c.kind != ColumnKind::kBlob) {
      if (v.len > c.length) return damaged_row();
      c.store(record, v.ptr, v.len);
      continue;
    }
    if (!blob_room) {
      /* Room for all values at once: pointers already given out must stay. */
      if (!far_bytes(view, wanted + i, count - i, &blob_room)) return damaged_row();
      blob_room += payload.len;
      if (!blobs->reserve(blob_room)) return FE_OUT_OF_MEMORY;
    }
    uint8_t *to = blobs->data() + blob_bytes;
    size_t len = v.len;
    const uint8_t *ref = nullptr;
    if (far) {
      ref = view.ref(v);
      if (!ref) return damaged_row();
      len = fe_overflow_len(ref);
      if (c.kind != ColumnKind::kBlob && len > c.length) return damaged_row();
    }
    /* Values that overlap, in a damaged row, are longer together than the row. */
    if (len > blob_room - blob_bytes) return damaged_row();
    if (ref) {
      fe_code rc = fe_overflow_read(session, table, ref, to);
      if (rc != FE_OK) return rc;
    } else {
      memcpy(to, v.ptr, len);
    }
    c.store(record, to, len);
    blob_bytes += len;
  }
  return FE_OK;
}

bool RowFormat::same_value(fe_session *session, fe_table *table, fe_slice payload, const Column &c,
                           const uchar *record, Buffer *scratch) const {
  View view;
  if (!parse(payload, &view)) return false;
  const bool was_null = view.is_null(c), is_null = c.is_null(record);
  if (was_null || is_null) return was_null == is_null;
  fe_slice value = c.value(record);
  if (c.kind == ColumnKind::kFixed) return !memcmp(view.fixed + c.fixed_pos, value.ptr, value.len);
  bool far;
  fe_slice old = view.variable(c.var_no, &far);
  if (!old.ptr) return false;
  if (far) {
    const uint8_t *ref = view.ref(old);
    if (!ref || fe_overflow_len(ref) != value.len || !scratch->reserve(value.len)) return false;
    if (fe_overflow_read(session, table, ref, scratch->data()) != FE_OK) return false;
    old = {scratch->data(), value.len};
  }
  return old.len == value.len && (!old.len || !memcmp(old.ptr, value.ptr, old.len));
}

/* ---- writing ----------------------------------------------------------------------- */

/* One variable column on its way into a payload. */
struct RowFormat::Item {
  fe_slice data;          /* inline bytes, or the value to be put out of line */
  const uint8_t *old_ref; /* a reference taken over from the old row */
  bool out;               /* to be put out of line now */
};

fe_code RowFormat::gather(const uchar *record, const MY_BITMAP *changed, const View *old,
                          Item *items) const {
  const uint8_t *ref_before = nullptr;
  for (size_t i = 0; i < var_count_; i++) {
    const Column &c = columns_[variable_[i]];
    Item &item = items[i];
    item = Item{{nullptr, 0}, nullptr, false};
    if (changed && !bitmap_is_set(changed, c.field_no)) {
      bool far;
      if (old->is_null(c)) continue;
      item.data = old->variable(static_cast<uint>(i), &far);
      if (!item.data.ptr) return damaged_row();
      if (far) {
        item.old_ref = old->ref(item.data);
        /* They stand in the order of the columns: no two of those have the same one. */
        if (!item.old_ref || item.old_ref <= ref_before) return damaged_row();
        ref_before = item.old_ref;
        item.data.len = 1;
      }
      continue;
    }
    if (c.is_null(record)) continue;
    item.data = c.value(record);
  }
  return FE_OK;
}

size_t RowFormat::total_bytes(size_t base, const Item *items, size_t count, size_t *refs) {
  size_t total = base;
  *refs = 0;
  for (size_t i = 0; i < count; i++) {
    if (!items[i].out && !items[i].old_ref) {
      total += items[i].data.len;
      continue;
    }
    total += FE_OVERFLOW_BYTES + ref_number_bytes((*refs)++);
  }
  return *refs < FE_MANY_OVERFLOW_REFS ? total : total + kManyRefsBytes - 1;
}

/* Puts the longest values of a row that is too long out of line; gives the bytes left. */
size_t RowFormat::move_out(size_t target, size_t shortest, size_t total, Item *items,
                           size_t *refs) const {
  while (total > target) {
    Item *longest = nullptr;
    for (size_t i = 0; i < var_count_; i++) {
      Item &it = items[i];
      if (it.out || it.old_ref || it.data.len < shortest) continue;
      if (!longest || it.data.len > longest->data.len) longest = &it;
    }
    if (!longest) break;
    longest->out = true;
    total = total_bytes(min_payload(), items, var_count_, refs);
  }
  return total;
}

fe_code RowFormat::build(fe_session *session, fe_table *table, const uchar *record,
                         const MY_BITMAP *changed, const View *old, Buffer *out) const {
  /* The scratch list of items lies behind the payload in the same buffer. */
  size_t items_at = FE_MAX_INLINE_PAYLOAD + 64;
  if (!out->reserve(items_at + var_count_ * sizeof(Item))) return FE_OUT_OF_MEMORY;
  Item *items = reinterpret_cast<Item *>(out->data() + items_at);
  if (fe_code rc = gather(record, changed, old, items); rc != FE_OK) return rc;
  size_t ref_count;
  size_t total = total_bytes(min_payload(), items, var_count_, &ref_count);
  total = move_out(target_bytes_, kMinOutOfLineBytes, total, items, &ref_count);
  total = move_out(FE_MAX_INLINE_PAYLOAD, kShortestOutOfLineBytes, total, items, &ref_count);
  /* Nothing may be refused from here on but by the core: it takes back the values that the row
     has brought so far. */
  if (total > FE_MAX_INLINE_PAYLOAD) return FE_ROW_TOO_BIG;

  uint8_t *p = out->data();
  if (ref_count < FE_MANY_OVERFLOW_REFS) {
    *p++ = static_cast<uint8_t>(ref_count);
  } else {
    *p = FE_MANY_OVERFLOW_REFS;
    int2store(p + 1, ref_count);
    int2store(p + 3, kManyRefsMark);
    p += kManyRefsBytes;
  }
  for (size_t i = 0; i < var_count_; i++) {
    Item &it = items[i];
    if (!it.out && !it.old_ref) continue;
    if (it.old_ref) {
      memcpy(p, it.old_ref, FE_OVERFLOW_BYTES);
    } else {
      fe_code rc = fe_overflow_write(session, table, it.data, p);
      if (rc != FE_OK) return rc;
    }
    p += FE_OVERFLOW_BYTES;
  }
  *p++ = kRowVersion;
  uint8_t *nulls = p;
  uint8_t *fixed = nulls + null_bytes_;
  memset(nulls, 0, null_bytes_ + fixed_bytes_);
  for (uint16_t no : stored_) {
    const Column &c = columns_[no];
    bool from_old = changed && !bitmap_is_set(changed, no);
    if (from_old ? old->is_null(c) : c.is_null(record)) {
      nulls[c.payload_null_byte] |= c.payload_null_mask;
    } else if (c.kind == ColumnKind::kFixed) {
      memcpy(fixed + c.fixed_pos, from_old ? old->fixed + c.fixed_pos : record + c.offset,
             c.length);
    }
  }
  uint8_t *ends = fixed + fixed_bytes_;
  uint8_t *vars = ends + 2 * var_count_;
  uint end = 0;
  size_t ref_no = 0;
  for (size_t i = 0; i < var_count_; i++) {
    const Item &it = items[i];
    uint flag = 0;
    if (it.out || it.old_ref) {
      vars[end] = static_cast<uint8_t>(ref_no);
      if (ref_number_bytes(ref_no) == 2) vars[end + 1] = static_cast<uint8_t>(ref_no >> 8);
      end += static_cast<uint>(ref_number_bytes(ref_no++));
      flag = kOutOfLine;
    } else if (it.data.len) {
      memcpy(vars + end, it.data.ptr, it.data.len);
      end += static_cast<uint>(it.data.len);
    }
    int2store(ends + 2 * i, end | flag);
  }
  out->set_size(static_cast<size_t>(vars + end - out->data()));
  return FE_OK;
}

fe_code RowFormat::encode(fe_session *session, fe_table *table, const uchar *record,
                          Buffer *out) const {
  return build(session, table, record, nullptr, nullptr, out);
}

fe_code RowFormat::merge(fe_session *session, fe_table *table, const uchar *record,
                         const MY_BITMAP *changed, fe_slice old, Buffer *out) const {
  View view;
  if (!parse(old, &view) || !view.is_in_order(var_count_)) return damaged_row();
  return build(session, table, record, changed, &view, out);
}

}  // namespace ferrite
