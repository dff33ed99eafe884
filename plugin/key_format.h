/*
 * The key encoding: any index key as bytes that memcmp() orders as the server would.
 *
 * One part after the other, each one self-delimiting, so that no encoded part is a prefix of
 * another one and a leading run of parts is a byte prefix of the whole key:
 *   NULL marker   only for nullable parts: 00 NULL, 01 a value follows
 *   integers, ENUM, SET, YEAR, DATE ...   big-endian, sign bit flipped
 *   DECIMAL, BINARY, BIT, INET6, UUID, temporal types with fractions   as in the record
 *   FLOAT, DOUBLE   order-preserving IEEE image; -0 becomes 0
 *   strings   groups of 8 (or 9) bytes of the collation's weights and a marker each:
 *     NO PAD and binary: the number of bytes used in a last group, group size + 1 when more
 *       follow
 *     PAD SPACE: trailing spaces dropped; 2 for the last group, filled with the weight of a
 *       space; else 1 or 3, as what follows sorts before or after endless spaces
 *   a DESC part has all its bytes complemented.
 * An entry of a secondary index has a payload: the original bytes of the columns that a
 * covering read promises and that the key does not give back (collated strings, floats).
 *
 * Rules of this module
 * - Weights come from the server's collation functions alone; they are pure, so these
 *   functions may run in any thread of the server.
 * - A change here is a change of the file format.
 */
#ifndef FERRITE_KEY_FORMAT_H
#define FERRITE_KEY_FORMAT_H

#include "server_compat.h"

#include <string>
#include <vector>

#include "ferrite.h"
#include "row_format.h"

namespace ferrite {

enum class PartKind : uint8_t {
  kUnsigned, /* little-endian in the record */
  kSigned,   /* little-endian, two's complement */
  kBytes,    /* fixed width, ordered by memcmp as it is */
  kFloat,
  kDouble,
  kBinary, /* variable length, ordered by bytes */
  kText,   /* ordered by a collation */
};

/* How a collation's weights are cut into groups; one level of one collation. */
struct WeightLevel {
  uint32_t flags = 0;     /* for strnxfrm */
  bool pad = false;       /* PAD SPACE on this level */
  uint8_t group = 8;      /* bytes in a group */
  uint8_t space[16] = {}; /* a group of space weights */
  uint8_t space_len = 1;  /* bytes of one space's weight */
};

struct TextRules {
  CHARSET_INFO *cs = nullptr;
  bool trim = false;   /* drop trailing spaces of the value first */
  bool padded = false; /* take a CHAR with all its padding */
  std::vector<WeightLevel> levels;
};

struct KeyPart {
  Column column; /* where the value lies in a record */
  PartKind kind = PartKind::kBytes;
  bool nullable = false;
  bool descending = false;
  bool whole = false;       /* the whole column, no prefix */
  bool recoverable = false; /* the column can be had back from the key */
  uint32_t width = 0;       /* bytes of a fixed-width part without its marker */
  uint32_t prefix_bytes = 0;
  uint32_t prefix_chars = 0; /* kText: at most so many characters count */
  uint32_t tuple_bytes = 0;  /* store_length in the server's key tuples */
  uint32_t max_encoded = 0;
  TextRules text;

  bool fixed() const { return kind < PartKind::kBinary; }
  /* Appends the part of a record or of a key tuple; gives the end. `scratch` has room for
     max_encoded bytes. */
  uint8_t *encode_record(const uchar *record, uint8_t *to, uint8_t *scratch) const;
  uint8_t *encode_tuple(const uchar *tuple, uint8_t *to, uint8_t *scratch) const;
  /* From now on the part is that of another table: a CHAR of so many bytes of a NO PAD collation,
     whose padding counts; 0: no CHAR. */
  void pad_to(uint32_t char_bytes);
  /* Appends a value that is not NULL, the marker in front of it included. */
  uint8_t *encode_there(fe_slice value, uint8_t *to, uint8_t *scratch) const;
  /* Bytes of the part when its value is as long as it may be and made of letters: what may be
     expected to fit. Weights of other characters may take more, up to max_encoded. Allocates. */
  size_t ordinary_bytes() const;
  /* The place after this part in an encoded key; NULL when it is cut short. */
  const uint8_t *skip(const uint8_t *from, const uint8_t *end) const;
  /* Restores the column in `record` (recoverable parts only) and gives the next place. */
  const uint8_t *decode(const uint8_t *from, const uint8_t *end, uchar *record) const;
  /* Whether an encoded part is NULL. */
  bool encoded_null(const uint8_t *from) const {
    return nullable && *from == (descending ? 0xff : 0x00);
  }

 private:
  uint8_t *encode_value(const uint8_t *data, size_t len, uint8_t *to, uint8_t *scratch) const;
  uint8_t *encode_text(const uint8_t *data, size_t len, uint8_t *to, uint8_t *scratch) const;
};

KeyPart describe_part(const KEY_PART_INFO &info, const Column &column);

/* One index of a table. */
struct Index {
  uint32_t no = 0;        /* in the core; 0 is the clustered one */
  uint32_t server_no = 0; /* in the server's key list */
  std::string name;
  bool unique = false;
  bool has_prefix = false; /* some declared part is a column prefix */
  bool has_virtual = false;
  /* Some part of the server's tuples is a column prefix, of the primary key behind it, too. */
  bool prefix_in_tuple = false;
  std::vector<KeyPart> parts;      /* declared parts */
  std::vector<uint16_t> payload;   /* field numbers kept in the entry payload, in order */
  std::vector<uint8_t> covered;    /* by field number: 1 when an entry gives the column */
  std::vector<uint8_t> touched_by; /* by field number: 1 when a change changes the entry */
  /* For each part of the server's extended key: the declared part or ~primary key part. */
  std::vector<int16_t> tuple_parts;
  std::vector<uint32_t> tuple_part_bytes;
  size_t max_key = 0; /* bytes of the longest key, primary key included */

  /* KeyPart::ordinary_bytes() of all declared parts. */
  size_t ordinary_bytes() const;
  /* True when a part of this record's key is NULL (no unique check then). */
  bool any_null(const uchar *record) const;
};

/* Encodes the declared parts of a record's key. */
uint8_t *encode_key(const Index &index, const uchar *record, uint8_t *to, uint8_t *scratch);

/* Encodes `key_len` bytes of a server key tuple for a seek. *parts gets the number of
   declared parts given, *has_null says whether one of them is NULL. */
uint8_t *encode_tuple(const Index &index, const Index *primary, const uchar *tuple, size_t key_len,
                      uint8_t *to, uint8_t *scratch, uint *parts, bool *has_null);

/* Turns the bound "at" into the bound "after all that start with it"; false: no upper end. */
bool successor(uint8_t *key, size_t *len);

}  // namespace ferrite

#endif
