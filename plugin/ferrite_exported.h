/*
 * Files of exported tables in the directory of a database (ha_ferrite_export.cc).
 */
#ifndef FERRITE_EXPORTED_H
#define FERRITE_EXPORTED_H

#include <string>

/* Removes what exports that a crash cut off, and files that were to be imported, have left in the
   directory of a database that is dropped: the server removes only a directory that is empty. */
void ferrite_remove_exported(const char *dir);
/* Removes the file of a table, "db/t", if there is one: it must not be taken for that of the next
   table with its name. */
void ferrite_remove_exported_table(const std::string &core_name);

#endif
