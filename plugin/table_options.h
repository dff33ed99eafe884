/*
 * Table options of CREATE and ALTER TABLE that are Ferrite's own.
 *
 * Rules of this module
 * - COMPRESSION = none | lz4 | zstd, with COMPRESSION_LEVEL for zstd. PAGE_COMPRESSED = 1 and
 *   PAGE_COMPRESSION_LEVEL, as InnoDB spells it, mean zstd unless COMPRESSION says otherwise.
 * - A table without COMPRESSION gets ferrite_default_compression, and the server writes that
 *   into its definition: SHOW CREATE TABLE and dumps say what the table has.
 * - ENCRYPTED and ENCRYPTION_KEY_ID, as InnoDB spells them, are checked against the database, which
 *   is encrypted as a whole (ferrite_encryption.h).
 * - CACHE_PRIORITY = low | normal | high: which tables' pages leave memory first.
 * - Unknown values are refused by the server, which names the option.
 */
#ifndef FERRITE_TABLE_OPTIONS_H
#define FERRITE_TABLE_OPTIONS_H

#include "server_compat.h"

/* The name is the server's: each engine has a structure of its own behind it. */
struct ha_table_option_struct {
  uint compression; /* 0 none, 1 lz4, 2 zstd */
  ulonglong compression_level;
  bool page_compressed;
  ulonglong page_compression_level;
  uint encrypted; /* 0 nobody said, 1 yes, 2 no */
  ulonglong encryption_key_id;
  uint cache_priority; /* 0 normal, 1 low, 2 high */
};

/* In ferrite_vars.cc, beside the variable that one of them follows. */
extern ha_create_table_option ferrite_table_options[];

namespace ferrite {

constexpr uint kEncrypted = 1, kNotEncrypted = 2;

/* As fe_table_def has it. */
uint32_t compression_of(const TABLE_SHARE *share);

/* Of definitions (make_definition): the priority, or that it is as it was, whatever that is. */
constexpr uint8_t kCachePriorityKept = 255;
uint8_t cache_priority_of(const TABLE_SHARE *share);

/* Warns of options that do not go together; the name of one of them, or null. */
const char *find_bad_compression(THD *thd, const TABLE_SHARE *share, const HA_CREATE_INFO *info);

}  // namespace ferrite

#endif
