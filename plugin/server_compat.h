/*
 * Everything that differs between server versions, and the server headers themselves.
 *
 * Rules of this room
 * - Every file of the plugin includes this one first; none includes a server header that is
 *   not of the public plugin API by itself.
 * - A difference between versions is a macro, an inline function or a declaration here.
 */
#ifndef FERRITE_SERVER_COMPAT_H
#define FERRITE_SERVER_COMPAT_H

#ifndef MYSQL_SERVER
#define MYSQL_SERVER 1
#endif

#include <my_global.h>
#include <sql_class.h>
#include <sql_show.h>
#include <handler.h>
#include <log.h>
#include <mysql/plugin.h>
#include <mysqld_error.h>

#endif
