/*
 * ferrite_replace_engines: enforce_storage_engine=FERRITE replaces an engine's name also where
 * sql_mode has NO_ENGINE_SUBSTITUTION.
 *
 * The server refuses such a statement (error 1290) before it asks any engine, and the default
 * sql_mode has the mode; applications set it for themselves, too. So the mode is taken out of the
 * session when a statement begins, before it is parsed, and when one ends, as the next may be in
 * the same packet. What tells of both is the server's audit interface, whose events of the class
 * GENERAL come whether or not there is a general log.
 *
 * Rules of this module
 * - With the variable OFF, the server sends no events: the mask of classes is empty, and a
 *   statement costs nothing.
 * - Only the running connection's own variables are changed, by its own thread, and only if
 *   FERRITE is the engine that is enforced there.
 */
#include "server_compat.h"

#include "ferrite_hton.h"
#include "ferrite_replace_engines.h"
#include "ferrite_vars.h"

static void on_event(MYSQL_THD thd, unsigned int event_class, const void *event) {
  DBUG_ASSERT(event_class == MYSQL_AUDIT_GENERAL_CLASS);
  const unsigned int what = static_cast<const mysql_event_general *>(event)->event_subclass;
  if (what != MYSQL_AUDIT_GENERAL_LOG && what != MYSQL_AUDIT_GENERAL_STATUS) return;
  /* An applier has the primary's mode for each statement, and is told too late. */
  if (!thd || thd->slave_thread || !(thd->variables.sql_mode & MODE_NO_ENGINE_SUBSTITUTION)) return;
  plugin_ref enforced = thd->variables.enforced_table_plugin;
  if (enforced && ferrite_hton && plugin_hton(enforced) == ferrite_hton)
    thd->variables.sql_mode &= ~MODE_NO_ENGINE_SUBSTITUTION;
}

struct st_mysql_audit ferrite_replace_engines_descriptor = {
    MYSQL_AUDIT_INTERFACE_VERSION, nullptr, on_event, {MYSQL_AUDIT_GENERAL_CLASSMASK}};

int ferrite_replace_engines_init(void *) {
  /* The server has seen that the mask is not empty, and reads it again after this. */
  if (!ferrite_replaces_engines()) ferrite_replace_engines_descriptor.class_mask[0] = 0;
  return 0;
}

int ferrite_replace_engines_deinit(void *) {
  ferrite_replace_engines_descriptor.class_mask[0] = MYSQL_AUDIT_GENERAL_CLASSMASK;
  return 0;
}
