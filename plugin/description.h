/*
 * What a table's rows and keys mean, written down for tools that read a database without a
 * server (ferrite-check --salvage), and for the core, which finds the indexes that serve a
 * foreign key: column names, types and places.
 *
 * It follows the fixed part of the definition blob (ferrite_share.cc) and is never read by
 * the server. Numbers are little-endian, a text is its length (u16) and its bytes:
 *   "FRc1", u16 columns, each:
 *     u8 kind (ColumnKind), u8 flags (kDescribe...), u8 the server's type, u8 decimals,
 *     u16 primary key part it comes back from (ffff: none), u32 bytes in the record,
 *     u32 precision (DECIMAL), text name, text SQL type, text character set, text collation
 *   u16 indexes, the clustered one first, each:
 *     u8 1 if it is a hidden row id, u16 parts, each:
 *       u16 column, u8 kind (PartKind), u8 flags (1 nullable, 2 descending, 4 whole column,
 *       8 recoverable, 16 always, since kDescribeRowEnd), u32 width, u32 prefix in characters
 * (bytes of binary columns), u8 levels of weights, each: u8 group, u8 padded The reader is
 * crates/ferrite-engine/src/catalog/describe.rs. A change here is a change of the file format.
 */
#ifndef FERRITE_DESCRIPTION_H
#define FERRITE_DESCRIPTION_H

#include <string>

#include "ferrite_share.h"

namespace ferrite {

constexpr uint8_t kDescribeStored = 1;   /* has a place in the row payload */
constexpr uint8_t kDescribeNullable = 2; /* and a NULL bit there */
constexpr uint8_t kDescribeUnsigned = 4;
constexpr uint8_t kDescribeVirtual = 8;    /* computed when read */
constexpr uint8_t kDescribeGenerated = 16; /* computed when written */
constexpr uint8_t kDescribeAutoInc = 32;
constexpr uint8_t kDescribeCompressed = 64; /* COLUMN COMPRESSED */
constexpr uint8_t kDescribeRowEnd = 128;    /* ends the life of a row, of tables with history */
/* Of a key part: written since there is kDescribeRowEnd. */
constexpr uint8_t kDescribePartOfNow = 16;

void append_description(const Layout &layout, const TABLE *table, std::string *out);

}  // namespace ferrite

#endif
