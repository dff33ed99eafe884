/*
 * Finds InnoDB's variables in its plugin's own list; see innodb_settings.h for the rules.
 */
#include "innodb_settings.h"

namespace {

/* As the macros of the server's plugin.h lay the variables out. */
template <class Number>
struct SessionNumber {
  MYSQL_PLUGIN_VAR_HEADER;
  int offset;
  Number def_val, min_val, max_val, blk_sz;
  DECLARE_THDVAR_FUNC(Number);
};
struct SessionBool {
  MYSQL_PLUGIN_VAR_HEADER;
  int offset;
  const char def_val;
  DECLARE_THDVAR_FUNC(char);
};
template <class Number>
struct GlobalNumber {
  MYSQL_PLUGIN_VAR_HEADER;
  Number *value;
  const Number def_val, min_val, max_val, blk_sz;
};
struct GlobalBool {
  MYSQL_PLUGIN_VAR_HEADER;
  char *value;
  const char def_val;
};

/* A whole number of one width or the other, by the version of the server. */
const SessionNumber<unsigned int> *lock_wait_timeout = nullptr;
const SessionNumber<unsigned long> *long_lock_wait_timeout = nullptr;
const SessionBool *strict_mode = nullptr;
const GlobalBool *rollback_on_timeout = nullptr;
/* Of one kind or the other, by the version of the server. */
const GlobalNumber<long> *long_autoinc_lock_mode = nullptr;
const GlobalNumber<unsigned int> *autoinc_lock_mode = nullptr;

/* The lowest bits are the type. */
constexpr int kKind = 0x007f | PLUGIN_VAR_UNSIGNED | PLUGIN_VAR_THDLOCAL;

template <class Variable>
const Variable *find(const plugin_ref plugin, const char *name, int kind) {
  struct st_mysql_sys_var **variables = plugin_decl(plugin)->system_vars;
  for (; variables && *variables; variables++) {
    const Variable *variable = reinterpret_cast<const Variable *>(*variables);
    /* Newer servers have put the plugin's name in front. */
    static constexpr char kPrefix[] = "innodb_";
    const size_t skip =
        strncmp(variable->name, kPrefix, sizeof kPrefix - 1) ? 0 : sizeof kPrefix - 1;
    if (!strcmp(variable->name + skip, name))
      return (variable->flags & kKind) == kind ? variable : nullptr;
  }
  return nullptr;
}

}  // namespace

namespace ferrite {

/* Only an InnoDB that is part of the server is followed: it cannot be uninstalled, so that what
   is found here stays. It may be initialised after us: a session variable is there from the
   moment on when it has its `resolve`. */
void find_innodb_settings() {
  static const LEX_CSTRING name = {STRING_WITH_LEN("InnoDB")};
  plugin_ref plugin = plugin_lock_by_name(nullptr, &name, MYSQL_STORAGE_ENGINE_PLUGIN);
  if (!plugin) return;
  if (!plugin_dlib(plugin)) {
    constexpr int session_number = PLUGIN_VAR_UNSIGNED | PLUGIN_VAR_THDLOCAL;
    constexpr int session_bool = PLUGIN_VAR_BOOL | PLUGIN_VAR_THDLOCAL;
    const char *timeout = "lock_wait_timeout";
    lock_wait_timeout =
        find<SessionNumber<unsigned int>>(plugin, timeout, PLUGIN_VAR_INT | session_number);
    long_lock_wait_timeout =
        find<SessionNumber<unsigned long>>(plugin, timeout, PLUGIN_VAR_LONG | session_number);
    strict_mode = find<SessionBool>(plugin, "strict_mode", session_bool);
    rollback_on_timeout = find<GlobalBool>(plugin, "rollback_on_timeout", PLUGIN_VAR_BOOL);
    const char *locking = "autoinc_lock_mode";
    long_autoinc_lock_mode = find<GlobalNumber<long>>(plugin, locking, PLUGIN_VAR_LONG);
    autoinc_lock_mode =
        find<GlobalNumber<unsigned int>>(plugin, locking, PLUGIN_VAR_INT | PLUGIN_VAR_UNSIGNED);
  }
  plugin_unlock(nullptr, plugin);
}

unsigned long innodb_lock_wait_timeout(THD *thd, unsigned long otherwise) {
  if (lock_wait_timeout && lock_wait_timeout->resolve)
    return *lock_wait_timeout->resolve(thd, lock_wait_timeout->offset);
  if (long_lock_wait_timeout && long_lock_wait_timeout->resolve)
    return *long_lock_wait_timeout->resolve(thd, long_lock_wait_timeout->offset);
  return otherwise;
}

bool innodb_strict_mode(THD *thd, bool otherwise) {
  return strict_mode && strict_mode->resolve ? *strict_mode->resolve(thd, strict_mode->offset) != 0
                                             : otherwise;
}

bool innodb_rollback_on_timeout(bool otherwise) {
  return rollback_on_timeout ? *rollback_on_timeout->value != 0 : otherwise;
}

long innodb_autoinc_lock_mode(long otherwise) {
  if (long_autoinc_lock_mode) return *long_autoinc_lock_mode->value;
  return autoinc_lock_mode ? static_cast<long>(*autoinc_lock_mode->value) : otherwise;
}

}  // namespace ferrite
