/*
 * Keys of the server's key management for the core; see ferrite_encryption.h for the rules.
 */
#include "ferrite_encryption.h"

#include <mysql/service_encryption.h>

#include "ferrite_error.h"
#include "ferrite_hton.h"
#include "table_options.h"

namespace ferrite {

uint32_t newest_key_version(uint32_t id) {
  const unsigned int version = encryption_key_get_latest_version(id);
  static_assert(ENCRYPTION_KEY_VERSION_INVALID == FE_NO_KEY, "the server's word for no key");
  return version;
}

size_t encryption_key(uint32_t id, uint32_t version, uint8_t *key, size_t room) {
  unsigned int length = static_cast<unsigned int>(room);
  return encryption_key_get(id, version, key, &length) == 0 ? length : 0;
}

bool is_encrypted() {
  uint32_t id, version;
  return ferrite_engine && fe_encryption_key(ferrite_engine, &id, &version);
}

bool rotate_encryption_key(uint32_t id) {
  if (fe_encryption_rotate(ferrite_engine, id) == FE_OK) {
    uint32_t now, version;
    fe_encryption_key(ferrite_engine, &now, &version);
    sql_print_information("Ferrite: the data key is encrypted with key %u (version %u)", now,
                          version);
    return true;
  }
  my_printf_error(ER_WRONG_VALUE_FOR_VAR,
                  "Variable 'ferrite_encryption_key_id' can't be set to %u: %s", MYF(0), id,
                  fe_last_error());
  return false;
}

/* The statement itself says it. */
static bool sets_encrypted(THD *thd) {
  for (const engine_option_value *option = thd->lex->create_info.option_list; option;
       option = option->next)
    if (same_name(option->name.str, "ENCRYPTED")) return true;
  return false;
}

/* A Ferrite table that the statement has open says it, and is not encrypted: of an older version of
   Ferrite, which did not know the option, or restored without encryption. It must be able to be
   altered. */
static bool had_it_before(THD *thd) {
  for (const TABLE_LIST *list = thd->lex->query_tables; list; list = list->next_global) {
    const TABLE *table = list->table;
    if (!table || !table->file || table->file->partition_ht() != ferrite_hton) continue;
    const ha_table_option_struct *options = table->s->option_struct;
    if (options && options->encrypted == kEncrypted) return true;
  }
  return false;
}

const char *find_unmet_encryption(THD *thd, const TABLE_SHARE *share) {
  const ha_table_option_struct *options = share->option_struct;
  if (!options) return nullptr;
  const bool encrypted = is_encrypted();
  if (options->encrypted == kEncrypted && !encrypted) {
    ferrite_warn(thd, ER_ILLEGAL_HA_CREATE_OPTION,
                 "Ferrite: ENCRYPTED=YES needs an encrypted database, and this one was created "
                 "without ferrite_encrypt");
    if (!had_it_before(thd) || sets_encrypted(thd)) return "ENCRYPTED";
  }
  if (options->encrypted == kNotEncrypted && encrypted)
    ferrite_warn(thd, ER_ILLEGAL_HA_CREATE_OPTION,
                 "Ferrite: ENCRYPTED=NO has no effect: the database is encrypted with all its "
                 "tables");
  uint32_t id = 0, version = 0;
  if (options->encryption_key_id && encrypted) {
    fe_encryption_key(ferrite_engine, &id, &version);
    if (id != options->encryption_key_id)
      ferrite_warn(thd, ER_ILLEGAL_HA_CREATE_OPTION,
                   "Ferrite: ENCRYPTION_KEY_ID has no effect: all tables are encrypted with one "
                   "data key, which is kept with key %u (ferrite_encryption_key_id)",
                   id);
  }
  return nullptr;
}

}  // namespace ferrite
