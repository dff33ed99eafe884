/*
 * Proof at compile time that this plugin sees the server's classes as the server binary does.
 *
 * The handler interface has no stable ABI: a wrong define or a header of another version
 * compiles well and then corrupts memory. The figures were measured against Debian's
 * binaries (THD's is the size that create_thd() in mariadbd allocates). A server version
 * without figures here compiles: its headers and binaries come from one source package, and
 * the checks of the defines below still hold.
 */
#include "server_compat.h"

#include <sql_lex.h>

/* For ./ferrite up, which looks for it in the file; the Makefile keeps the linker from dropping it.
 */
extern "C" {
extern const char ferrite_built_for[];
const char ferrite_built_for[] = "Ferrite built for MariaDB " MYSQL_SERVER_VERSION;
}

#if MYSQL_VERSION_ID / 100 != 1011 && MYSQL_VERSION_ID / 100 != 1108
#error "Ferrite knows the handler interfaces of MariaDB 10.11 and 11.8 only"
#endif

#ifndef DBUG_OFF
#error "compile with -DDBUG_OFF, as the server binary was"
#endif
#if defined(SAFE_MUTEX) || defined(ENABLED_DEBUG_SYNC)
#error "SAFE_MUTEX and ENABLED_DEBUG_SYNC change the layout of THD"
#endif

#if MYSQL_VERSION_ID == 101118 && defined(__x86_64__)
static_assert(sizeof(THD) == 27312, "THD");
static_assert(sizeof(TABLE) == 992, "TABLE");
static_assert(sizeof(TABLE_SHARE) == 1168, "TABLE_SHARE");
static_assert(sizeof(handler) == 1328, "handler");
static_assert(sizeof(handlerton) == 456, "handlerton");
static_assert(sizeof(HA_CREATE_INFO) == 576, "HA_CREATE_INFO");
static_assert(sizeof(Alter_inplace_info) == 168, "Alter_inplace_info");
static_assert(sizeof(KEY) == 192, "KEY");
static_assert(sizeof(Field) == 200, "Field");
static_assert(sizeof(LEX) == 7472, "LEX");
static_assert(sizeof(mysql_mutex_t) == 48, "mysql_mutex_t");
#endif

#if MYSQL_VERSION_ID == 110806 && defined(__x86_64__)
static_assert(sizeof(THD) == 27552, "THD");
static_assert(sizeof(TABLE) == 1008, "TABLE");
static_assert(sizeof(TABLE_SHARE) == 1304, "TABLE_SHARE");
static_assert(sizeof(handler) == 1416, "handler");
static_assert(sizeof(handlerton) == 440, "handlerton");
static_assert(sizeof(HA_CREATE_INFO) == 576, "HA_CREATE_INFO");
static_assert(sizeof(Alter_inplace_info) == 192, "Alter_inplace_info");
static_assert(sizeof(KEY) == 200, "KEY");
static_assert(sizeof(Field) == 200, "Field");
static_assert(sizeof(LEX) == 7568, "LEX");
static_assert(sizeof(mysql_mutex_t) == 48, "mysql_mutex_t");
#endif
