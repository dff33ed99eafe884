/*
 * Which changes are refused; see ferrite_writable.h.
 */
#include "ferrite_writable.h"

int ferrite_refuse_in_snapshot() {
  my_printf_error(ER_OPEN_AS_READONLY,
                  "FERRITE tables can only be read: they are a snapshot (ferrite_open_snapshot)",
                  MYF(0));
  return HA_ERR_TABLE_READONLY;
}

int ferrite_refuse_in_cluster() {
  my_printf_error(ER_GALERA_REPLICATION_NOT_SUPPORTED,
                  "FERRITE tables cannot be changed while wsrep_on=ON: Galera would not replicate"
                  " the change (SET SESSION wsrep_on=OFF to change only this node)",
                  MYF(0));
  return HA_ERR_LOGGING_IMPOSSIBLE;
}

int ferrite_check_writable_ddl(const THD *thd, const char *path) {
  if (!ferrite_opened_snapshot() && !ferrite_must_replicate(thd)) return 0;
  const char *name = strrchr(path, FN_LIBCHAR);
  name = name ? name + 1 : path;
  if (!strncmp(name, "#sql", 4)) return 0;
  return ferrite_opened_snapshot() ? ferrite_refuse_in_snapshot() : ferrite_refuse_in_cluster();
}
