/*
 * Maps the core's result codes; see ferrite_error.h for the rules.
 *
 * Codes that the server has a message for become that HA_ERR_...; the rest get numbers of
 * our own above HA_ERR_LAST, for which handler::print_error() asks get_error_message() and
 * shows the core's own words.
 */
#include "ferrite_error.h"

#include <atomic>

#include "ferrite_hton.h"
#include "ferrite_violation.h"
#include "ferrite_vars.h"

namespace {

/* Numbers of our own, by code. Clients see them in "Got error %d '...' from FERRITE". */
constexpr int own_error(fe_code code) { return HA_ERR_LAST + 100 + code; }

/* The text has to outlive the next call into the core, which print_error() may make. */
thread_local char last_text[512];

void keep_text() {
  strncpy(last_text, fe_last_error(), sizeof last_text - 1);
  last_text[sizeof last_text - 1] = '\0';
}

/* A table with one bad page can fail thousands of statements a second: one line per
   second in the log is enough, with the number of omitted failures. */
void log_failure() {
  static std::atomic<time_t> last_logged{0};
  static std::atomic<uint64_t> left_out{0};
  time_t now = time(nullptr);
  time_t before = last_logged.load();
  if (now == before || !last_logged.compare_exchange_strong(before, now)) {
    left_out++;
    return;
  }
  uint64_t more = left_out.exchange(0);
  if (more)
    sql_print_error("Ferrite: %s (and %llu more failures like it)", last_text,
                    static_cast<ulonglong>(more));
  else
    sql_print_error("Ferrite: %s", last_text);
}

/* The server's message names only the table; an additional warning has the details. `er`: the
   number that the server gives to the error itself. */
void explain(THD *thd, uint er) {
  if (thd && thd == current_thd && last_text[0]) ferrite_warn(thd, er, "Ferrite: %s", last_text);
}

/* Errors that have a number in the server but would be reported without our text, as
   "Got error 139". The first error of a statement is the one that the client gets. */
void raise(THD *thd, uint er, ulong limit) {
  if (thd && thd == current_thd) my_error(er, MYF(0), limit);
}

/* The server's own words would give the first limit alone. */
void raise_long_key(THD *thd) {
  if (thd && thd == current_thd)
    my_printf_error(ER_TOO_LONG_KEY,
                    "Specified key was too long; an index entry, which ends with the primary key, "
                    "takes %u bytes in storage engine FERRITE, and %u with a copy of its strings",
                    MYF(0), static_cast<uint>(FE_MAX_KEY_BYTES),
                    static_cast<uint>(FE_MAX_RECORD_BYTES));
}

/* `whole`: the server rolls the transaction back at the end of this statement. */
void request_rollback(THD *thd, bool whole) {
  if (!thd) return;
  thd->mark_transaction_to_rollback(whole);
}

void note_rolled_back_by_core(THD *thd) {
  if (!thd || !ferrite_hton) return;
  ferrite_conn *conn = static_cast<ferrite_conn *>(thd_get_ha_data(thd, ferrite_hton));
  if (conn) conn->rolled_back_by_core = true;
}

/* What has a code in the server and no side effect here; 0 for everything else. */
int plain_error(fe_code code) {
  switch (code) {
    case FE_END:
      return HA_ERR_END_OF_FILE;
    case FE_NOT_FOUND:
    case FE_SKIPPED:
      return HA_ERR_KEY_NOT_FOUND;
    case FE_DUPLICATE:
      return HA_ERR_FOUND_DUPP_KEY;
    case FE_INTERRUPTED:
      return HA_ERR_ABORTED_BY_USER;
    case FE_EXISTS:
      return HA_ERR_TABLE_EXIST;
    case FE_ROLLED_BACK:
      return HA_ERR_ROLLBACK;
    case FE_SAME:
      return HA_ERR_RECORD_IS_THE_SAME;
    case FE_TABLE_CHANGED:
      return HA_ERR_TABLE_DEF_CHANGED;
    case FE_OUT_OF_MEMORY:
      return HA_ERR_OUT_OF_MEM;
    case FE_FOREIGN_KEY:
      return HA_ERR_CANNOT_ADD_FOREIGN;
    case FE_REFERENCED:
      ferrite_forget_violation();
      return HA_ERR_ROW_IS_REFERENCED;
    default:
      return 0;
  }
}

}  // namespace

/* Under strict SQL mode the server makes an error of every warning that a statement raises, and
   the first error is the statement's: the explanation would take the place of what it explains. */
void ferrite_warn(THD *thd, uint er, const char *format, ...) {
  Abort_on_warning_instant_set stays_a_warning(thd, false);
  char text[MYSQL_ERRMSG_SIZE];
  va_list args;
  va_start(args, format);
  my_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, er, text);
}

int ferrite_to_ha_error(fe_code code, THD *thd) {
  if (code == FE_OK) return 0;
  if (int error = plain_error(code)) return error;

  keep_text();
  switch (code) {
    case FE_DEADLOCK:
      /* The transaction is gone; the server must empty its binlog cache as well. */
      note_rolled_back_by_core(thd);
      request_rollback(thd, true);
      return HA_ERR_LOCK_DEADLOCK;
    case FE_LOCK_TIMEOUT:
      request_rollback(thd, ferrite_rollback_on_timeout());
      return HA_ERR_LOCK_WAIT_TIMEOUT;
    case FE_RECORD_CHANGED:
      note_rolled_back_by_core(thd);
      request_rollback(thd, true);
      return HA_ERR_RECORD_CHANGED;
    case FE_LOCK_TABLE_FULL:
      request_rollback(thd, true);
      return HA_ERR_LOCK_TABLE_FULL;
    case FE_SNAPSHOT_TOO_OLD:
      request_rollback(thd, true);
      return own_error(code);
    case FE_DISK_FULL:
      explain(thd, ER_RECORD_FILE_FULL);
      return HA_ERR_RECORD_FILE_FULL;
    case FE_CORRUPT:
      log_failure();
      explain(thd, ER_NOT_KEYFILE);
      return HA_ERR_CRASHED;
    case FE_ROW_TOO_BIG:
      raise(thd, ER_TOO_BIG_ROWSIZE, FE_MAX_INLINE_PAYLOAD);
      return HA_ERR_TO_BIG_ROW;
    case FE_KEY_TOO_LONG:
      raise_long_key(thd);
      return HA_ERR_TO_BIG_ROW;
    case FE_IO:
    case FE_FORMAT:
    case FE_BUG:
      log_failure();
      return own_error(code);
    default:
      return own_error(code);
  }
}

int ferrite_table_error(fe_code code, THD *thd) {
  if (code == FE_NOT_FOUND) return HA_ERR_NO_SUCH_TABLE;
  if (code == FE_UNSUPPORTED) {
    /* Of CREATE TABLE the server would give a number alone. */
    keep_text();
    if (thd && thd == current_thd)
      my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "Storage engine FERRITE: %s", MYF(0), last_text);
    return HA_ERR_UNSUPPORTED;
  }
  if (code != FE_ROW_TOO_BIG) return ferrite_to_ha_error(code, thd);
  /* The row is the table's in the dictionary. */
  if (!thd || thd != current_thd) return HA_ERR_UNSUPPORTED;
  my_printf_error(
      ER_ILLEGAL_HA_CREATE_OPTION,
      "Storage engine FERRITE does not support definitions as long as this table's: make"
      " the names of its indexes shorter, which can have about 5,000 bytes together",
      MYF(0));
  return HA_ERR_UNSUPPORTED;
}

/* The server's own messages say it all for its own codes; it would append ours to some. */
bool ferrite_get_error_message(int error, String *buf) {
  if (error == HA_ERR_ROW_IS_REFERENCED || error == HA_ERR_NO_REFERENCED_ROW ||
      error == HA_ERR_FK_DEPTH_EXCEEDED)
    ferrite_violation_text(buf);
  if (error <= HA_ERR_LAST) return false;
  buf->copy(last_text, strlen(last_text), system_charset_info);
  return error == own_error(FE_SNAPSHOT_TOO_OLD);
}

const char *ferrite_error_text() { return last_text; }
