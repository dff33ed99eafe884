/*
 * information_schema.FERRITE_...: one init function and one plugin declaration per table.
 */
#ifndef FERRITE_I_S_H
#define FERRITE_I_S_H

#include "ferrite_version.h"
#include "server_compat.h"

int ferrite_i_s_metrics_init(void *schema_table);
int ferrite_i_s_trx_init(void *schema_table);
int ferrite_i_s_locks_init(void *schema_table);
int ferrite_i_s_lock_waits_init(void *schema_table);
int ferrite_i_s_deadlocks_init(void *schema_table);
int ferrite_i_s_snapshots_init(void *schema_table);
int ferrite_i_s_backup_init(void *schema_table);
int ferrite_i_s_kept_snapshots_init(void *schema_table);
int ferrite_i_s_waits_init(void *schema_table);
int ferrite_i_s_memory_init(void *schema_table);
int ferrite_i_s_long_waits_init(void *schema_table);
int ferrite_i_s_stalls_init(void *schema_table);
int ferrite_i_s_foreign_init(void *schema_table);
int ferrite_i_s_foreign_cols_init(void *schema_table);
int ferrite_i_s_foreign_errors_init(void *schema_table);
int ferrite_i_s_deinit(void *);

extern struct st_mysql_information_schema ferrite_i_s_descriptor;

/* An entry of maria_declare_plugin. */
#define FERRITE_I_S_PLUGIN(name, text, init)                                                  \
  {                                                                                           \
    MYSQL_INFORMATION_SCHEMA_PLUGIN, &ferrite_i_s_descriptor, name, "The Ferrite developers", \
        text, PLUGIN_LICENSE_GPL, init, ferrite_i_s_deinit, FERRITE_VERSION_NUMBER, nullptr,  \
        nullptr, FERRITE_VERSION_TEXT, MariaDB_PLUGIN_MATURITY_EXPERIMENTAL                   \
  }

#endif
