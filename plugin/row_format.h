/*
 * The row payload: how a row is stored in the clustered index.
 *
 *   u8        count of overflow references (the core's part, see fe_payload in ferrite.h); from
 *             255 on 255, the count as u16, and 0xffff
 *   16 bytes  each reference
 *   u8        layout version (kRowVersion)
 *   bitmap    one bit per nullable column
 *   bytes     fixed-width columns at fixed places; a NULL leaves zeros
 *   u16[n]    end of each variable column within the variable area; bit 15 says that the
 *             value lies out of line; its one or two bytes here are the reference's number
 *   bytes     the variable columns
 *
 * Rules of this module
 * - Columns that can be recovered from the primary key are not stored again.
 * - CHAR is stored without trailing spaces; they are added again in the record buffer.
 * - Reading allocates nothing: values go straight into the server's record.
 * - An update copies what it does not change byte by byte, out-of-line references included.
 */
#ifndef FERRITE_ROW_FORMAT_H
#define FERRITE_ROW_FORMAT_H

#include "server_compat.h"

#include <vector>

#include "ferrite.h"

namespace ferrite {

constexpr uint8_t kRowVersion = 1;
constexpr uint16_t kOutOfLine = 0x8000;
/* A value shorter than this is not worth a reference. */
constexpr size_t kMinOutOfLineBytes = 64;
/* ... unless the row would not fit at all. */
constexpr size_t kShortestOutOfLineBytes = 24;
/* What a row with many references opens with, and the mark at its end: the upper half of a page
   id that no page has (before there could be so many, references followed at once). */
constexpr size_t kManyRefsBytes = 5;
constexpr uint kManyRefsMark = 0xffff;
/* A buffer up to this stays with its handler between statements. */
constexpr size_t kKeptBufferBytes = 64 << 10;
/* A buffer from this on is a mapping of its own. */
constexpr size_t kMappedBufferBytes = 1 << 20;

enum class ColumnKind : uint8_t {
  kFixed, /* pack_length() raw bytes of the record */
  kChar,  /* CHAR in a character set: trailing spaces trimmed */
  kVar,   /* VARCHAR, VARBINARY: 1 or 2 length bytes in the record */
  kBlob,  /* BLOB, TEXT, JSON, GEOMETRY: length bytes and a pointer in the record */
};

/* What a conversion needs of one column; computed once per table. */
struct Column {
  uint16_t field_no = 0;
  ColumnKind kind = ColumnKind::kFixed;
  bool stored = false;          /* has a place in the row payload */
  uint8_t length_bytes = 0;     /* kVar: 1 or 2; kBlob: 1 to 4 */
  bool null_as_default = false; /* kVar: NULL has the bytes of null_image, not the length 0 */
  uint8_t null_mask = 0;        /* 0: NOT NULL */
  uint8_t payload_null_mask = 0;
  uint16_t payload_null_byte = 0;
  uint16_t fixed_pos = 0;   /* kFixed: place in the fixed area */
  uint16_t var_no = 0;      /* others: number among the variable columns */
  int16_t pk_part = -1;     /* number of the primary key part it comes back from */
  uint32_t offset = 0;      /* in the record */
  uint32_t null_offset = 0; /* in the record */
  uint32_t length = 0;      /* bytes in the record without length bytes */
  CHARSET_INFO *cs = nullptr;
  const uchar *null_image = nullptr; /* in the TABLE_SHARE's default record */

  bool is_null(const uchar *record) const { return null_mask && (record[null_offset] & null_mask); }
  /* The bytes of a NULL get a fixed value too: the server compares them at times. */
  void set_null(uchar *record) const;
  void set_not_null(uchar *record) const {
    if (null_mask) record[null_offset] &= static_cast<uchar>(~null_mask);
  }
  /* The value's bytes in a record that is not NULL there; CHAR comes trimmed. */
  fe_slice value(const uchar *record) const;
  /* Puts a value into the record. For kBlob the record keeps the pointer itself. */
  void store(uchar *record, const uint8_t *data, size_t len) const;
};

/* A column of the server's table as this module sees it. */
Column describe_column(const Field *field, const uchar *record_start, const uchar *defaults,
                       bool virtual_column);

/* A byte buffer that grows, and frees memory only on request. */
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer() { free(); }
  uint8_t *data() { return data_; }
  const uint8_t *data() const { return data_; }
  size_t size() const { return size_; }
  void set_size(size_t size) { size_ = size; }
  fe_slice slice() const { return {data_, size_}; }
  /* Room for `capacity` bytes; keeps the first size() ones. False: out of memory. */
  bool reserve(size_t capacity) { return capacity <= capacity_ || grow(capacity); }
  bool assign(fe_slice from) {
    size_ = 0;
    if (!reserve(from.len)) return false;
    if (from.len) memcpy(data_, from.ptr, from.len);
    size_ = from.len;
    return true;
  }
  /* Gives a large buffer back, with its content; a small one stays for the next statement. */
  void trim() {
    if (capacity_ > kKeptBufferBytes) free();
  }

 private:
  /* Large ones are memory mappings of their own: freed memory goes back to the operating system,
     not into the holes of a heap that does not shrink. */
  bool is_mapped() const { return capacity_ >= kMappedBufferBytes; }
  bool grow(size_t capacity);
  uint8_t *grow_mapping(size_t wanted);
  void free();
  uint8_t *data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

/* The layout of one table's row payload. */
class RowFormat {
 public:
  /* `columns` in field order, with pk_part set. Gives each stored column its place. `pk_bytes`: of
     the longest primary key, for which a record must have room beside the row. */
  void init(std::vector<Column> columns, size_t pk_bytes);
  const std::vector<Column> &columns() const { return columns_; }
  const Column &column(uint field_no) const { return columns_[field_no]; }
  /* Bytes of a row whose variable columns are all empty. */
  size_t min_payload() const { return 2 + null_bytes_ + fixed_bytes_ + 2 * var_count_; }
  /* Whether out-of-line values are possible at all. */
  bool has_var() const { return var_count_ != 0; }

  /* Builds the payload of a new row. `table` is where overflow values go. */
  fe_code encode(fe_session *session, fe_table *table, const uchar *record, Buffer *out) const;
  /* The same for an update: columns for which `changed` has no bit come from `old`. */
  fe_code merge(fe_session *session, fe_table *table, const uchar *record, const MY_BITMAP *changed,
                fe_slice old, Buffer *out) const;

  /* Whether the payload of a row has the value of `record` in this stored column; reads an
     out-of-line value of the same length into `scratch`. */
  bool same_value(fe_session *session, fe_table *table, fe_slice payload, const Column &column,
                  const uchar *record, Buffer *scratch) const;

  /* Reads the columns `wanted[0..count)` (field numbers) of `payload` into `record`.
     Blob values are copied to `blobs` and live until the next call. */
  fe_code decode(fe_session *session, fe_table *table, fe_slice payload, const uint16_t *wanted,
                 size_t count, uchar *record, Buffer *blobs) const;

 private:
  struct View;
  struct Item;
  bool parse(fe_slice payload, View *view) const;
  bool far_bytes(const View &view, const uint16_t *wanted, size_t count, size_t *bytes) const;
  fe_code build(fe_session *session, fe_table *table, const uchar *record, const MY_BITMAP *changed,
                const View *old, Buffer *out) const;
  fe_code gather(const uchar *record, const MY_BITMAP *changed, const View *old, Item *items) const;
  static size_t ref_number_bytes(size_t number) { return number < 256 ? 1 : 2; }
  static size_t total_bytes(size_t base, const Item *items, size_t count, size_t *refs);
  size_t move_out(size_t target, size_t shortest, size_t total, Item *items, size_t *refs) const;

  std::vector<Column> columns_;
  std::vector<uint16_t> stored_;   /* field numbers with a place in the payload */
  std::vector<uint16_t> variable_; /* field numbers by var_no */
  size_t null_bytes_ = 0;
  size_t fixed_bytes_ = 0;
  size_t var_count_ = 0;
  /* Of a longer row the longest values are put out of line. Each takes a page of the buffer pool of
     its own there, whatever its length, and a read of its own. */
  size_t target_bytes_ = 0;
};

}  // namespace ferrite

#endif
