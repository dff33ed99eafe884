/*
 * What a connection runs; see ferrite_query.h.
 *
 * Locking: LOCK_thd_data of the connection, if it is free: THD::awake() holds it while it calls
 * engines, so that whoever shows or journals a query must not wait for it.
 */
#include "ferrite_query.h"

size_t ferrite_own_query(THD *thd, char *to, size_t room) {
  if (!thd->query()) return 0;
  CHARSET_INFO *from = thd->query_charset();
  /* Bytes that nobody converts, and that most likely are UTF-8. */
  if (from == &my_charset_bin) from = &my_charset_utf8mb4_general_ci;
  uint wrong = 0; /* characters that utf8mb3 does not have are question marks */
  return my_convert(to, static_cast<uint32>(room), system_charset_info, thd->query(),
                    static_cast<uint32>(thd->query_length()), from, &wrong);
}

size_t ferrite_query_of(THD *other, char *to, size_t room) {
  if (mysql_mutex_trylock(&other->LOCK_thd_data)) return 0;
  const size_t length = ferrite_own_query(other, to, room);
  mysql_mutex_unlock(&other->LOCK_thd_data);
  return length;
}
