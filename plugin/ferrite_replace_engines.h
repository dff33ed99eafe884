/*
 * Statements that name another engine, under enforce_storage_engine: see
 * ferrite_replace_engines.cc.
 */
#ifndef FERRITE_REPLACE_ENGINES_H
#define FERRITE_REPLACE_ENGINES_H

#include "ferrite_version.h"
#include "server_compat.h"

#include <mysql/plugin_audit.h>

extern struct st_mysql_audit ferrite_replace_engines_descriptor;

int ferrite_replace_engines_init(void *);
int ferrite_replace_engines_deinit(void *);

/* An entry of maria_declare_plugin, after the engine's, whose variables it reads. */
#define FERRITE_REPLACE_ENGINES_PLUGIN                                                          \
  {                                                                                             \
    MYSQL_AUDIT_PLUGIN, &ferrite_replace_engines_descriptor, "FERRITE_ENGINE_NAMES",            \
        "The Ferrite developers", "Lets enforce_storage_engine=FERRITE replace engines' names", \
        PLUGIN_LICENSE_GPL, ferrite_replace_engines_init, ferrite_replace_engines_deinit,       \
        FERRITE_VERSION_NUMBER, nullptr, nullptr, FERRITE_VERSION_TEXT,                         \
        MariaDB_PLUGIN_MATURITY_EXPERIMENTAL                                                    \
  }

#endif
