/*
 * Settings of InnoDB that hold for Ferrite's tables too.
 *
 * Clients, ORMs and dump files set variables of InnoDB (innodb_lock_wait_timeout above all) and
 * mean the tables they work on, whatever their engine. Those whose meaning is the same here are
 * followed; docs/operating/variables.md names them, and those that are not.
 *
 * Rules of this module
 * - Looked up once, at start. A read is then what InnoDB itself does: the variable's own
 *   `resolve` function with its offset in the session, or one load of a global.
 * - Only a variable of exactly the expected kind is followed. Without InnoDB in the server (left
 *   out, switched off) each function gives the value that stands for "not set".
 * - Nothing here ever writes a variable of InnoDB's.
 */
#ifndef FERRITE_INNODB_SETTINGS_H
#define FERRITE_INNODB_SETTINGS_H

#include "server_compat.h"

namespace ferrite {

/* At the start of the plugin. */
void find_innodb_settings();

/* innodb_lock_wait_timeout of the session (NULL: the global one) in seconds. */
unsigned long innodb_lock_wait_timeout(THD *thd, unsigned long otherwise);
/* innodb_strict_mode of the session. */
bool innodb_strict_mode(THD *thd, bool otherwise);
/* innodb_rollback_on_timeout, which is set at start. */
bool innodb_rollback_on_timeout(bool otherwise);
/* innodb_autoinc_lock_mode, which is set at start: 0, 1 or 2. */
long innodb_autoinc_lock_mode(long otherwise);

}  // namespace ferrite

#endif
