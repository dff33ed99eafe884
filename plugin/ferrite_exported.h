/*
 * Files of exported tables in the directory of a database (ha_ferrite_export.cc).
 */
#ifndef FERRITE_EXPORTED_H
#define FERRITE_EXPORTED_H

/* Removes what exports that a crash cut off, and files that were to be imported, have left in the
   directory of a database that is dropped: the server removes only a directory that is empty. */
void ferrite_remove_exported(const char *dir);

#endif
