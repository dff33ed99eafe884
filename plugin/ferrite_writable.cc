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

static bool is_of_the_server(const char *path) {
  const char *name = strrchr(path, FN_LIBCHAR);
  return !strncmp(name ? name + 1 : path, "#sql", 4);
}

int ferrite_check_permanent(const char *path) {
  return ferrite_opened_snapshot() && !is_of_the_server(path) ? ferrite_refuse_in_snapshot() : 0;
}

int ferrite_check_writable_ddl(const THD *thd, const char *path) {
  if (int err = ferrite_check_permanent(path)) return err;
  return ferrite_must_replicate(thd) && !is_of_the_server(path) ? ferrite_refuse_in_cluster() : 0;
}
