/*
 * AUTO_INCREMENT: which values a statement gets, and who may take some meanwhile.
 *
 * Rules of this module
 * - A counter only rises (but for ALTER TABLE). It is read and raised under autoinc_mutex, which is
 *   held over no wait and no I/O.
 * - A statement that the binary log keeps as text gets consecutive values, since it holds only the
 *   first: those of as many rows as it has (INSERT ... VALUES), or all of them, with the lock
 *   AUTO_INC of the core until its end (in a function or trigger: that of the client's statement).
 *   Whoever has that lock, or waits for it, is counted in autoinc_lockers; while that is not 0
 *   every other statement that needs a value, or raises the counter with one of its own, asks for
 *   it, too.
 * - Values are logged before their rows. On a full disk they are refused first, or statements that
 *   are refused again and again would use up what the log keeps for others.
 * - Locking: AUTO_INC (waits as for a row) before autoinc_mutex, never the other way round.
 */
#include "ha_ferrite.h"

#include "ferrite_error.h"
#include "innodb_settings.h"

/* The first value after `current` of the series, `need` values further; ULONGLONG_MAX when
   there is none. InnoDB's arithmetic: the values users see must be the same. */
static ulonglong next_autoinc(ulonglong current, ulonglong need, ulonglong step, ulonglong offset,
                              ulonglong max_value) {
  unsigned __int128 block = static_cast<unsigned __int128>(need) * step;
  if (current > max_value) return ULONGLONG_MAX;
  if (offset > step) offset = 0;
  unsigned __int128 next = current > offset ? current - offset : offset - current;
  next -= next % step;
  next += offset;
  next += block;
  return next > ULONGLONG_MAX ? ULONGLONG_MAX : static_cast<ulonglong>(next);
}

/* ---- the lock ---------------------------------------------------------------------- */

/* innodb_autoinc_lock_mode, which says what a user wants of any engine. */
enum AutoincLocking { kTraditional = 0, kConsecutive = 1, kInterleaved = 2 };

static AutoincLocking autoinc_locking() {
  return static_cast<AutoincLocking>(ferrite::innodb_autoinc_lock_mode(kConsecutive));
}

/* Nobody waits for a statement's values to be complete, so that its first one does not say them
   all: the server then logs rows (MIXED) or warns (STATEMENT). It does not ask partitions. */
bool ha_ferrite::autoinc_lock_mode_stmt_unsafe() const { return autoinc_locking() == kInterleaved; }

/* How many rows will come is not known, so that values taken by others would be among theirs. */
static bool is_bulk(int sql_command) {
  switch (sql_command) {
    case SQLCOM_INSERT:
    case SQLCOM_REPLACE:
    case SQLCOM_END: /* a replica applies rows */
    case SQLCOM_ALTER_TABLE:
    case SQLCOM_CREATE_TABLE: /* nobody else sees the table yet */
      return false;
    default:
      return true;
  }
}

/* Must this statement ask for the lock, whatever others do? */
static bool needs_lock(THD *thd, AutoincLocking locking) {
  if (locking == kTraditional) return true;
  /* Functions and triggers are logged with the statement that calls them: the server takes the
     option back meanwhile. */
  const bool logged = thd_test_options(thd, OPTION_BIN_LOG) || thd->in_sub_stmt;
  return locking == kConsecutive && is_bulk(thd_sql_command(thd)) && mysql_bin_log.is_open() &&
         logged && thd->variables.sql_log_bin && !thd->is_current_stmt_binlog_format_row();
}

/* Until the end of the statement; 0, or why it was not granted. */
int ha_ferrite::lock_autoinc() {
  if (m_autoinc_locked) return 0;
  DBUG_ASSERT(m_session);
  m_autoinc_locked = true;
  m_share->autoinc_lockers.fetch_add(1);
  const fe_code rc = fe_autoinc_lock(m_session, m_share->table);
  if (rc == FE_OK) return 0;
  unlock_autoinc();
  return error(rc);
}

/* A function or trigger has come to its end, perhaps: what called it has not. */
void ha_ferrite::end_autoinc() {
  if (!ha_thd()->in_sub_stmt) unlock_autoinc();
}

void ha_ferrite::unlock_autoinc() {
  DBUG_ASSERT(m_autoinc_locked && m_share->autoinc_lockers.load() > 0);
  m_autoinc_locked = false;
  fe_autoinc_unlock(m_session, m_share->table);
  m_share->autoinc_lockers.fetch_sub(1);
}

/* Would a row be refused? 0, or why. */
int ha_ferrite::admitted() {
  const fe_code rc = fe_autoinc_admitted(m_session);
  return rc == FE_OK ? 0 : error(rc);
}

/* ---- the values -------------------------------------------------------------------- */

/* Whoever gets the mutex while nobody is counted has its values before the next who is. */
void ha_ferrite::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong rows,
                                    ulonglong *first_value, ulonglong *reserved) {
  const AutoincLocking locking = autoinc_locking();
  const bool alone = table->s->tmp_table != NO_TMP_TABLE || locking == kInterleaved;
  m_autoinc_error = 0;
  if (!alone && needs_lock(ha_thd(), locking)) m_autoinc_error = lock_autoinc();
  if (!m_autoinc_error) m_autoinc_error = admitted();
  std::unique_lock<std::mutex> guard(m_share->autoinc_mutex);
  if (!alone && !m_autoinc_locked && !m_autoinc_error && m_share->autoinc_lockers.load()) {
    guard.unlock();
    m_autoinc_error = lock_autoinc();
    guard.lock();
  }
  if (unlikely(m_autoinc_error)) {
    *first_value = ULONGLONG_MAX;
    *reserved = 0;
    return;
  }
  take_autoinc(offset, increment, rows, first_value, reserved, locking != kTraditional);
}

/* `ahead`: the counter goes past the values at once, not only when a row with one is there. */
void ha_ferrite::take_autoinc(ulonglong offset, ulonglong increment, ulonglong rows,
                              ulonglong *first_value, ulonglong *reserved, bool ahead) {
  ulonglong next = fe_autoinc_read(m_share->table);
  if (!next) next = 1;
  const ulonglong max_value = table->next_number_field->get_max_int_value();
  if (increment > 1 && increment <= ~next && next < max_value &&
      thd_sql_command(ha_thd()) != SQLCOM_ALTER_TABLE) {
    ulonglong before = next;
    next = (next - 1 + increment - offset) / increment;
    next = next * increment + offset;
    if (next >= max_value) next = before;
  }
  if (m_autoinc_rows == 0) {
    m_autoinc_rows = rows ? rows : 1;
    if (*first_value < next) *first_value = next;
  } else if (m_autoinc_last == 0) {
    if (*first_value < next) *first_value = next;
  }
  if (*first_value > max_value) {
    /* The server reports the value as out of range. */
    m_autoinc_last = 0;
    *reserved = 0;
    return;
  }
  *reserved = m_autoinc_rows;
  m_autoinc_offset = offset;
  m_autoinc_increment = increment;
  if (!ahead) {
    m_autoinc_last = 0;
    return;
  }
  m_autoinc_last = next_autoinc(*first_value, *reserved, increment, offset, max_value);
  if (m_autoinc_last < *first_value)
    *first_value = ULONGLONG_MAX;
  else
    fe_autoinc_update(m_share->table, m_autoinc_last);
}

/* A row has a value of the user's. Who has the values alone must not find the counter behind it. */
int ha_ferrite::raise_autoinc(ulonglong value) {
  const ulonglong max_value = table->found_next_number_field->get_max_int_value();
  if (value > max_value) return 0; /* a negative value given by the user */
  ulonglong next = next_autoinc(value, 1, m_autoinc_increment, m_autoinc_offset, max_value);
  std::unique_lock<std::mutex> guard(m_share->autoinc_mutex);
  if (next <= fe_autoinc_read(m_share->table)) return 0;
  if (!m_autoinc_locked && m_share->autoinc_lockers.load()) {
    guard.unlock();
    if (int err = lock_autoinc()) return err;
    guard.lock();
  }
  fe_autoinc_update(m_share->table, next);
  return 0;
}

/* A value given by the user moves the counter, some failed ones as well. */
int ha_ferrite::after_autoinc_write(int err) {
  if (m_autoinc_rows > 0) m_autoinc_rows--;
  const ulonglong value = table->next_number_field->val_uint();
  if (err == 0) {
    if (value >= m_autoinc_last) return raise_autoinc(value);
  } else if (err == HA_ERR_FOUND_DUPP_KEY) {
    switch (thd_sql_command(ha_thd())) {
      case SQLCOM_LOAD:
        if (!m_replace && !m_insert_update) break;
        [[fallthrough]];
      case SQLCOM_REPLACE:
      case SQLCOM_INSERT_SELECT:
      case SQLCOM_REPLACE_SELECT:
        if (int lock_err = raise_autoinc(value)) return lock_err;
        break;
      default:
        break;
    }
  }
  return err;
}
