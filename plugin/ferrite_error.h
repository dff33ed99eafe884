/*
 * Maps the core's result codes to errors of the server.
 *
 * Rules of this module
 * - Every fe_code is mapped here, exactly once; handlers never map codes themselves.
 * - Mapping has the side effects that the code requires: a deadlock marks the transaction for
 *   rollback, a corrupt page is logged (rate limited) and pushed as a warning beside the
 *   error, with the error's own number.
 * - All warnings of the plugin go through ferrite_warn().
 * - Call it in the thread that got the code, before any other call into the core: the text
 *   comes from fe_last_error().
 */
#ifndef FERRITE_ERROR_H
#define FERRITE_ERROR_H

#include "server_compat.h"

#include "ferrite.h"

/* HA_ERR_... for `code`; 0 for FE_OK. `thd` may be NULL (background, recovery).
   FE_END gives HA_ERR_END_OF_FILE, FE_NOT_FOUND gives HA_ERR_KEY_NOT_FOUND: where a table
   is meant, use ferrite_table_error(). */
int ferrite_to_ha_error(fe_code code, THD *thd);

/* The same for operations on whole tables: FE_NOT_FOUND gives HA_ERR_NO_SUCH_TABLE,
   FE_EXISTS gives HA_ERR_TABLE_EXIST, and FE_ROW_TOO_BIG is a definition that is too long. */
int ferrite_table_error(fe_code code, THD *thd);

/* handler::get_error_message(): fills `buf` with the core's text for errors of the engine's
   own; returns whether the error is temporary (a retry of the transaction may succeed). */
bool ferrite_get_error_message(int error, String *buf);

/* A warning in whatever SQL mode: it never becomes the statement's error. `er` is a number of
   the server's error messages (ER_...), which clients and handlers in SQL know; never an
   HA_ERR_... Own thread of `thd` only. The format is the server's (my_vsnprintf). */
void ferrite_warn(THD *thd, uint er, const char *format, ...) ATTRIBUTE_FORMAT(printf, 3, 4);

/* The text kept for this thread's last mapped error ("" when there is none). */
const char *ferrite_error_text();

#endif
