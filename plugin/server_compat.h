/*
 * Everything that differs between server versions, and the server headers themselves.
 *
 * Rules of this module
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
#include <sql_acl.h>
#include <sql_i_s.h>
#include <sql_parse.h>
#include <sql_plugin.h>
#include <sql_table.h>
#include <tztime.h>

/* Exported by the server, declared in none of its headers. */
extern "C" MYSQL_THD thd_increment_pending_ops(MYSQL_THD thd);
extern "C" void thd_decrement_pending_ops(void *token);
extern "C" int thd_deadlock_victim_preference(const MYSQL_THD thd1, const MYSQL_THD thd2);
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other_thd);
void ignore_db_dirs_append(const char *dirname_arg);

#endif
