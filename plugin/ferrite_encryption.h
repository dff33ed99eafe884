/*
 * Encryption at rest: the keys of the server's key management, for the core.
 *
 * Rules of this module
 * - A database is encrypted as a whole or not at all, from its creation on (ferrite_encrypt).
 * - Keys are asked for when the database is opened, when a backup begins and when
 *   ferrite_encryption_key_id is set: a key that is lost later disturbs nobody.
 */
#ifndef FERRITE_ENCRYPTION_H
#define FERRITE_ENCRYPTION_H

#include "ferrite.h"
#include "server_compat.h"

namespace ferrite {

/* For fe_callbacks. */
uint32_t newest_key_version(uint32_t id);
size_t encryption_key(uint32_t id, uint32_t version, uint8_t *key, size_t room);

/* Is the database that is open encrypted? */
bool is_encrypted();

/* Keeps the data key with the newest version of that key; false: the statement has an error. */
bool rotate_encryption_key(uint32_t id);

/* ENCRYPTED and ENCRYPTION_KEY_ID of a table: the option that the database does not meet, after a
   warning that says why, or null. What is harmless is a warning. */
const char *find_unmet_encryption(THD *thd, const TABLE_SHARE *share);

}  // namespace ferrite

#endif
