/*
 * What a connection runs, to be shown or kept in a journal (ferrite_query.cc).
 *
 * Rules of this module
 * - Texts are in the character set of information_schema (utf8mb3), whatever the connection's: they
 *   are kept and shown beside those of other connections. Cut after a whole character.
 * - Another connection is never waited for: what it runs is not shown while it changes that.
 */
#ifndef FERRITE_QUERY_H
#define FERRITE_QUERY_H

#include "server_compat.h"

/* Bytes written to `to`; nothing ends them. 0: it runs nothing. */
size_t ferrite_own_query(THD *thd, char *to, size_t room);
/* The same of any connection that cannot end meanwhile. */
size_t ferrite_query_of(THD *other, char *to, size_t room);

#endif
