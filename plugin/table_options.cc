/*
 * How a table's options say that its pages are to be compressed, and how long they are to stay in
 * memory.
 */
#include "table_options.h"

#include "ferrite_error.h"

namespace ferrite {

static constexpr uint kZstd = 2;
static constexpr uint kLevelShift = 3;

/* COMPRESSION = none stands in the definition, not only as what nobody said. */
static bool says_none(const TABLE_SHARE *share) {
  for (const engine_option_value *option = share->option_list; option; option = option->next)
    if (!strcasecmp(option->name.str, "COMPRESSION") && option->value.str &&
        !strcasecmp(option->value.str, "none"))
      return true;
  return false;
}

uint32_t compression_of(const TABLE_SHARE *share) {
  const ha_table_option_struct *options = share->option_struct;
  if (!options) return 0;
  uint codec = options->compression;
  ulonglong level = codec == kZstd ? options->compression_level : 0;
  if (!codec && options->page_compressed && !says_none(share)) {
    codec = kZstd;
    level = options->page_compression_level;
  }
  return codec | static_cast<uint32_t>(level) << kLevelShift;
}

uint8_t cache_priority_of(const TABLE_SHARE *share) {
  const ha_table_option_struct *options = share->option_struct;
  return options ? static_cast<uint8_t>(options->cache_priority) : 0;
}

const char *find_bad_compression(THD *thd, const TABLE_SHARE *share, const HA_CREATE_INFO *info) {
  const ha_table_option_struct *options = share->option_struct;
  if (!options) return nullptr;
  const char *bad = nullptr, *why = nullptr;
  if (options->compression_level && options->compression != kZstd) {
    bad = "COMPRESSION_LEVEL";
    why = "needs COMPRESSION = zstd";
  }
  if (options->page_compression_level && !options->page_compressed) {
    bad = "PAGE_COMPRESSION_LEVEL";
    why = "requires PAGE_COMPRESSED";
  }
  if (options->page_compressed) {
    if (says_none(share)) {
      /* One is the table's, perhaps, and the other a partition's: what CREATE took must be able to
         be copied, whichever ALTER has added the other. */
      ferrite_warn(thd, ER_ILLEGAL_HA_CREATE_OPTION,
                   "Ferrite: PAGE_COMPRESSED has no effect beside COMPRESSION = none");
    } else if (info->row_type == ROW_TYPE_COMPRESSED || info->key_block_size) {
      bad = "PAGE_COMPRESSED";
      why = "table cannot have ROW_FORMAT = COMPRESSED or KEY_BLOCK_SIZE";
    }
  }
  if (bad) ferrite_warn(thd, ER_ILLEGAL_HA_CREATE_OPTION, "Ferrite: %s %s", bad, why);
  return bad;
}

}  // namespace ferrite
