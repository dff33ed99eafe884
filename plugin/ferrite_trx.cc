/*
 * The server's transaction calls: registration, commit, rollback, two-phase commit, XA by
 * xid, savepoints, snapshots, and the end of a connection.
 *
 * Rules of this module
 * - A call with all=false ends a statement; it ends the transaction as well when none was
 *   opened by the user. ends_transaction() is the one place that decides it.
 * - Everything here runs in the connection's own thread, with two exceptions:
 *   ferrite_hton_commit_ordered() runs in the group leader's thread under
 *   LOCK_commit_ordered (no waiting, no errors, no THD of the caller's), and
 *   ferrite_hton_kill_query() in the killer's, under LOCK_thd_data and LOCK_thd_kill of the
 *   victim (no waiting).
 * - fe_session_free() may roll back for long: never under a lock.
 */
#include "server_compat.h"

#include <mutex>
#include <vector>

#include "ferrite_error.h"
#include "ferrite_hot_backup.h"
#include "ferrite_hton.h"
#include "ferrite_trx.h"
#include "ferrite_vars.h"

/* X/Open's answers to commit and rollback by xid; no header of the server has them all. */
#ifndef XA_OK
#define XA_OK 0
#endif
#ifndef XAER_NOTA
#define XAER_NOTA (-4)
#endif
#ifndef XAER_RMERR
#define XAER_RMERR (-3)
#endif

namespace {

bool ends_transaction(THD *thd, bool all) { return all || !ferrite_in_transaction(thd); }

ferrite_conn *existing_conn(THD *thd) {
  return static_cast<ferrite_conn *>(thd_get_ha_data(thd, ferrite_hton));
}

fe_isolation isolation_of(THD *thd) {
  switch (thd_tx_isolation(thd)) {
    case ISO_READ_UNCOMMITTED:
      return FE_READ_UNCOMMITTED;
    case ISO_READ_COMMITTED:
      return FE_READ_COMMITTED;
    case ISO_SERIALIZABLE:
      return FE_SERIALIZABLE;
    default:
      return FE_REPEATABLE_READ;
  }
}

void hand_over_lock_wait_timeout(ferrite_conn *conn) {
  const uint32_t ms = ferrite_lock_wait_ms(conn->thd);
  if (ms == conn->lock_wait_timeout_ms) return;
  conn->lock_wait_timeout_ms = ms;
  fe_session_set_lock_wait_timeout(conn->session, conn->lock_wait_timeout_ms);
}

void hand_over_snapshot_isolation(ferrite_conn *conn) {
  const bool wanted = ferrite_snapshot_isolation(conn->thd);
  if (wanted == conn->snapshot_isolation) return;
  conn->snapshot_isolation = wanted;
  fe_session_set_snapshot_isolation(conn->session, wanted);
}

void forget_transaction(ferrite_conn *conn) {
  conn->prepared = false;
  conn->commit_ordered = false;
  conn->waits_for_xid = false;
  conn->has_only_read = false;
  conn->rolled_back_by_core = false;
  ferrite_logged_is_written(conn); /* or will never be */
  conn->logged = ferrite_logged_changes();
}

/* For all the server knows, is a transaction of this connection prepared by XA PREPARE? */
bool is_xa_prepared(THD *thd) {
  return thd->transaction->xid_state.get_state_code() == XA_PREPARED;
}

/* What waits under its name is rolled back for good: nobody can ask for it again. What cannot be
   done now, the core does later. */
fe_code roll_back_waiting(ferrite_conn *conn) {
  DBUG_ASSERT(conn->waits_for_xid);
  const fe_code code = fe_roll_back_forgotten(ferrite_engine, &conn->xid);
  ferrite_logged_by_xid_is_over(conn->xid);
  return code;
}

bool is_marked(THD *thd) { return thd->ha_data[ferrite_hton->slot].ha_info[1].is_started(); }

/* Its XA COMMIT was refused before it came to us; see leave_prepared(). */
bool is_given_up(THD *thd, const ferrite_conn *conn) {
  return conn->waits_for_xid && is_marked(thd) && !is_xa_prepared(thd);
}

/* The same where a mutex of the server's is held: that may take long. */
void put_off_waiting(ferrite_conn *conn) {
  DBUG_ASSERT(conn->waits_for_xid);
  conn->refused.push_back(conn->xid);
  ferrite_logged_by_xid_is_over(conn->xid);
  forget_transaction(conn);
}

/* No statement runs beside a prepared transaction. Either the server has given it to others and has
   taken its mark off this connection, which was reset; or it has failed to commit it before it came
   to us, as when the binary log cannot be written. Then it has forgotten the xid, and has answered
   XAER_RMERR: the work is rolled back. The mark is still there. */
void leave_prepared(THD *thd, ferrite_conn *conn) {
  DBUG_ASSERT(!is_marked(thd) || !is_xa_prepared(thd));
  if (is_given_up(thd, conn)) roll_back_waiting(conn);
  if (conn->has_only_read) fe_txn_rollback(conn->session);
  forget_transaction(conn);
}

/* A commit inside DDL or a replication step is waited for: what follows it in the same
   statement (a rename of the .frm, a log entry of the server's) relies on it. A commit that
   ends with an OK to the client may become durable while the OK is delayed. */
int may_commit_async(THD *thd) {
  return !(sql_command_flags[thd_sql_command(thd)] & CF_AUTO_COMMIT_TRANS);
}

/* The binary log holds the id of a prepared transaction, and recovery commits what is there. No
   other coordinator of this server does (10.11: after a crash everything prepared is rolled
   back, although both engines had answered), and this transaction may not be in the binary log:
   then only its commit record counts. */
bool binlog_keeps_commit(THD *thd) {
  return tc_log == &mysql_bin_log && thd_test_options(thd, OPTION_BIN_LOG);
}

/* What the server does for itself in the middle of a worker's transaction, such as reading
   mysql.proc, commits under the worker's THD: that does not let later transactions go ahead. Nor
   does a commit that failed, which is tried again: the server itself tells them in the end. */
void wake_later_workers(THD *thd, fe_code code) {
  if (code == FE_OK && !thd->internal_transaction()) thd_wakeup_subsequent_commits(thd, 0);
}

bool is_parallel_worker(THD *thd) {
  return thd->rgi_slave && thd->rgi_slave->is_parallel_exec && !thd->internal_transaction();
}

/* To be asked before the commit. */
bool has_something_to_commit(const ferrite_conn *conn) {
  return conn->prepared || conn->waits_for_xid || fe_txn_has_changes(conn->session);
}

/* In one phase. The next worker goes on as soon as its commit record comes after this one's in the
   log, and one flush does for both. */
fe_code commit_worker(THD *thd, ferrite_conn *conn) {
  if (fe_txn_commit_ordered(conn->session)) wake_later_workers(thd, FE_OK);
  fe_code code = fe_txn_commit_finish(conn->session, 1);
  wake_later_workers(thd, code);
  return code;
}

fe_code commit_transaction(THD *thd, ferrite_conn *conn) {
  /* Of one that has only read here the changes are in another engine, which may commit after this
     one: nobody is woken yet. */
  if (!has_something_to_commit(conn)) return fe_txn_commit(conn->session, may_commit_async(thd));
  if (conn->waits_for_xid) {
    fe_code code = fe_txn_commit_prepared(conn->session, &conn->xid);
    wake_later_workers(thd, code);
    return code;
  }
  if (!conn->prepared && is_parallel_worker(thd)) return commit_worker(thd, conn);
  if (!conn->prepared) {
    fe_code code = fe_txn_commit(conn->session, may_commit_async(thd));
    wake_later_workers(thd, code);
    return code;
  }
  /* With the binary log the commit record was logged in commit_ordered; the prepare is
     durable and checkpoints of the binary log go through
     commit_checkpoint_request, so nothing is left to wait for. */
  const int wait_durable = !conn->commit_ordered || !binlog_keeps_commit(thd);
  if (!conn->commit_ordered) {
    fe_txn_commit_ordered(conn->session);
    wake_later_workers(thd, FE_OK);
  }
  return fe_txn_commit_finish(conn->session, wait_durable);
}

void to_fe_xid(const XID *from, fe_xid *to) {
  to->format_id = from->formatID;
  to->gtrid_len = static_cast<uint32_t>(from->gtrid_length);
  to->bqual_len = static_cast<uint32_t>(from->bqual_length);
  memcpy(to->data, from->data, to->gtrid_len + to->bqual_len);
}

void to_server_xid(const fe_xid &from, XID *to) {
  const char *data = reinterpret_cast<const char *>(from.data);
  to->set(static_cast<long>(from.format_id), data, static_cast<long>(from.gtrid_len),
          data + from.gtrid_len, static_cast<long>(from.bqual_len));
}

void collect_xid(void *arg, const fe_xid *xid) {
  static_cast<std::vector<fe_xid> *>(arg)->push_back(*xid);
}

/* The server asks every engine for every xid, and keeps one for another try only if there is an
   error in the connection: the result alone it does not look at. */
int xa_result(fe_code code) {
  if (code == FE_OK) return XA_OK;
  if (code == FE_NOT_FOUND) return XAER_NOTA;
  THD *killed = current_thd;
  if (code == FE_INTERRUPTED && killed && ferrite::is_killed(killed)) {
    killed->send_kill_message();
    if (killed->is_error()) return XAER_RMERR; /* there are KILLs without a message */
  }
  sql_print_error("Ferrite: cannot finish a prepared transaction: %s", fe_last_error());
  if (THD *thd = current_thd) {
    ferrite_warn(thd, ER_XAER_RMERR, "%s", fe_last_error());
    my_error(ER_XAER_RMERR, MYF(0));
  }
  return XAER_RMERR;
}

}  // namespace

/* NOWAIT and WAIT n only set the server's own lock_wait_timeout for the statement, so the
   shorter of the two counts. Without a connection nothing waits. */
uint32_t ferrite_lock_wait_ms(THD *thd) {
  if (!thd) return 0;
  uint64_t seconds = ferrite_lock_wait_timeout(thd);
  if (thd->variables.lock_wait_timeout < seconds) seconds = thd->variables.lock_wait_timeout;
  const uint64_t ms = seconds * 1000;
  return ms > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(ms);
}

/* While the server recovers DDL there are no connections: nobody can decide the prepared
   transaction that would be waited for. */
uint32_t ferrite_ddl_wait_ms(THD *thd) {
  return thd && thd->thread_id ? ferrite_lock_wait_ms(thd) : 0;
}

/* ---- registration --------------------------------------------------------------------- */

bool ferrite_in_transaction(THD *thd) {
  return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN) != 0;
}

ferrite_conn *ferrite_conn_of(THD *thd) {
  ferrite_conn *conn = existing_conn(thd);
  if (likely(conn != nullptr)) return conn;
  conn = new ferrite_conn;
  conn->thd = thd;
  conn->session = fe_session_new(ferrite_engine, thd, thd_get_thread_id(thd));
  /* The record and the core agree from the start: 0 is a value of its own (NOWAIT). */
  fe_session_set_lock_wait_timeout(conn->session, conn->lock_wait_timeout_ms);
  thd_set_ha_data(thd, ferrite_hton, conn);
  return conn;
}

fe_session *ferrite_session_of(THD *thd) { return ferrite_conn_of(thd)->session; }

/* Waits are short here (a sequence has a mutex of its own in the server), so kill_query() does
   not need to handle it. */
fe_session *ferrite_sequence_session_of(THD *thd) {
  ferrite_conn *conn = ferrite_conn_of(thd);
  if (!conn->sequences) {
    conn->sequences = fe_session_new(ferrite_engine, thd, thd_get_thread_id(thd));
    fe_stmt_begin(conn->sequences, FE_READ_COMMITTED);
  }
  fe_session_set_lock_wait_timeout(conn->sequences, ferrite_lock_wait_ms(thd));
  return conn->sequences;
}

fe_code ferrite_end_sequence_write(fe_session *session, bool keep) {
  fe_code code = keep ? fe_txn_commit(session, 0) : fe_txn_rollback(session);
  fe_stmt_begin(session, FE_READ_COMMITTED);
  return code;
}

/* No mutex of the server's is held. */
static void roll_back_refused(ferrite_conn *conn) {
  for (const fe_xid &xid : conn->refused) fe_roll_back_forgotten(ferrite_engine, &xid);
  conn->refused.clear();
}

static void register_trx(THD *thd, ferrite_conn *conn) {
  /* The server's own mark distinguishes a new statement from a further table of this one: it is
     cleared when the statement has been committed or rolled back, and triggers and stored
     functions run under the mark of the statement that called them. */
  Ha_trx_info *marks = thd->ha_data[ferrite_hton->slot].ha_info;
  const bool in_transaction = ferrite_in_transaction(thd);
  /* Before the mark is set again. */
  if (unlikely(conn->waits_for_xid || conn->has_only_read)) leave_prepared(thd, conn);
  if (in_transaction && !marks[1].is_started()) trans_register_ha(thd, true, ferrite_hton, 0);
  if (marks[0].is_started()) return;
  trans_register_ha(thd, false, ferrite_hton, 0);

  hand_over_lock_wait_timeout(conn);
  hand_over_snapshot_isolation(conn);
  fe_stmt_begin(conn->session, isolation_of(thd));
}

void ferrite_register_trx(THD *thd) {
  ferrite_conn *conn = ferrite_conn_of(thd);
  if (unlikely(!conn->refused.empty())) roll_back_refused(conn);
  register_trx(thd, conn);
}

/* At READ COMMITTED every statement has a snapshot of its own: there is nothing to open. */
int ferrite_hton_start_snapshot(THD *thd) {
  ferrite_conn *conn = ferrite_conn_of(thd);
  fe_isolation isolation = isolation_of(thd);
  /* With the binary log the server holds what every group commit needs. */
  if (unlikely(is_given_up(thd, conn))) put_off_waiting(conn);
  register_trx(thd, conn);
  if (isolation >= FE_REPEATABLE_READ)
    return ferrite_to_ha_error(fe_txn_open_snapshot(conn->session), thd);
  /* The server calls every engine, and InnoDB gives the same warning: one is enough. */
  if (isolation == FE_READ_UNCOMMITTED && !ha_resolve_by_legacy_type(thd, DB_TYPE_INNODB))
    ferrite_warn(
        thd, ER_NOT_SUPPORTED_YET,
        "Ferrite: WITH CONSISTENT SNAPSHOT is ignored at READ UNCOMMITTED isolation level.");
  return 0;
}

/* ---- end of a statement or a transaction ---------------------------------------------- */

/* An ALTER TABLE commits what it has copied before it takes the copy: 0, or why it must not, which
   is raised. */
static int check_copies(THD *thd, const ferrite_conn *conn) {
  if (likely(conn->failed_copy_by != thd->query_id)) return ferrite_check_online_copy(thd, conn);
  DBUG_ASSERT(thd->is_error());
  return HA_ERR_GENERIC;
}

/* The server commits what is on this connection, and what waits under its xid is not asked for: its
   own commit has failed (leave_prepared), and the server still has our mark. */
static void leave_forgotten(THD *thd, ferrite_conn *conn) {
  if (unlikely(conn->waits_for_xid && !is_xa_prepared(thd))) leave_prepared(thd, conn);
  roll_back_refused(conn);
}

int ferrite_hton_commit(THD *thd, bool all) {
  ferrite_conn *conn = existing_conn(thd);
  if (!conn) return 0;
  leave_forgotten(thd, conn);
  ferrite_logged_may_be_lost(thd, conn);
  if (!ends_transaction(thd, all)) {
    ferrite_logged_statement_ends(conn);
    fe_stmt_end(conn->session);
    return check_copies(thd, conn);
  }
  /* An error of a commit that only reads: the copy is dropped. */
  const int copy_error = check_copies(thd, conn);
  conn->copy.by = conn->failed_copy_by = 0;
  ferrite_logged_is_kept(thd, conn);
  /* The server's log has committed before: nobody has to wait for a flush. */
  ferrite_logged_is_written(conn);
  fe_code code = commit_transaction(thd, conn);
  const bool was_logged = conn->commit_ordered;
  forget_transaction(conn);
  if (code == FE_OK) return copy_error;
  /* The transaction may already be in the binlog: an error for the client would be wrong,
     and continuing with an engine that lost it would be worse. */
  if (was_logged) ferrite_fatal(fe_last_error());
  const int error = ferrite_to_ha_error(code, thd);
  /* A statement could be undone only in part. The server takes the transaction for ended. */
  if (fe_txn_has_changes(conn->session)) ferrite_to_ha_error(fe_txn_rollback(conn->session), thd);
  return error;
}

void ferrite_hton_commit_ordered(THD *thd, bool) {
  ferrite_conn *conn = existing_conn(thd);
  /* Nothing was changed, or it waits under its name: commit() ends it. */
  if (!conn || !conn->prepared || conn->waits_for_xid) return;
  ferrite_logged_is_seen(conn);
  fe_txn_commit_ordered(conn->session);
  conn->commit_ordered = true;
}

int ferrite_hton_rollback(THD *thd, bool all) {
  ferrite_conn *conn = existing_conn(thd);
  if (!conn) return 0;
  if (!ends_transaction(thd, all)) {
    if (conn->rolled_back_by_core) return 0; /* the whole transaction is gone already */
    ferrite_logged_statement_undone(conn);
    fe_code code = fe_stmt_rollback(conn->session);
    if (code == FE_OK) fe_stmt_end(conn->session);
    return ferrite_to_ha_error(code, thd);
  }
  roll_back_refused(conn);
  ferrite_logged_is_undone(thd, conn);
  fe_code code = conn->waits_for_xid ? roll_back_waiting(conn) : fe_txn_rollback(conn->session);
  forget_transaction(conn);
  return ferrite_to_ha_error(code, thd);
}

/* The server keeps parallel workers of a replica in order by the binary log, or, where one engine
   takes part, by waiting at the commit. A transaction of two engines (mysql.gtid_slave_pos is in
   another one) of which nothing goes to the binary log comes past both: it waits here, still able
   to be rolled back if one before it needs its locks. A transaction of the server's own within it
   is in no order: the one around it waits. */
static int wait_for_earlier_workers(THD *thd) {
  if (!is_parallel_worker(thd) || !opt_bin_log) return 0;
  const bool goes_to_binlog =
      !thd->is_current_stmt_binlog_disabled() && trans_has_updated_trans_table(thd);
  return goes_to_binlog ? 0 : thd->wait_for_prior_commit();
}

/* After XA PREPARE any connection may decide: when this one is reset, the server gives the xid to
   the others and tells no engine. So the transaction leaves the session at once. */
static fe_code wait_for_xid(ferrite_conn *conn, bool is_replica) {
  fe_txn_release_reads(conn->session, is_replica);
  fe_code code = fe_txn_detach_prepared(conn->session, is_replica);
  conn->waits_for_xid = code == FE_OK;
  return code;
}

/* A commit of the server's own is asked for after a crash by the id that the server has given it,
   which is what stands in the binary log: in XA COMMIT ... ONE PHASE, too, where get_xid() is the
   user's. In a Galera cluster get_xid() is the cluster's in every case. */
static const XID *xid_to_prepare(THD *thd) {
  const XID_STATE &xa = thd->transaction->xid_state;
  const bool is_users = xa.is_explicit_XA() && thd->get_xid() == xa.get_xid();
  if (!is_users || thd_sql_command(thd) == SQLCOM_XA_PREPARE) return thd->get_xid();
  DBUG_ASSERT(thd->lex->xa_opt == XA_ONE_PHASE);
  DBUG_ASSERT(!thd->transaction->implicit_xid.is_null());
  return &thd->transaction->implicit_xid;
}

static int prepare(THD *thd, ferrite_conn *conn) {
  to_fe_xid(xid_to_prepare(thd), &conn->xid);
  /* The server forgets an xid whose XA COMMIT the binary log has refused, and gives it to others;
     that work waits for its connection. Two under one name would be decided in each other's place.
   */
  if (thd_sql_command(thd) == SQLCOM_XA_PREPARE && fe_is_prepared(ferrite_engine, &conn->xid)) {
    my_error(ER_XAER_DUPID, MYF(0));
    return HA_ERR_GENERIC;
  }
  fe_code code = fe_txn_prepare(conn->session, &conn->xid);
  conn->prepared = code == FE_OK;
  /* In a commit of the server's own others might change what was read and come into the binary log
     first: a replica that runs the statements would then read what they have written. */
  if (conn->prepared && thd_sql_command(thd) == SQLCOM_XA_PREPARE) {
    code = wait_for_xid(conn, thd->rgi_slave != nullptr);
    if (conn->waits_for_xid) ferrite_logged_is_prepared(conn);
  }
  return ferrite_to_ha_error(code, thd);
}

int ferrite_hton_prepare(THD *thd, bool all) {
  ferrite_conn *conn = existing_conn(thd);
  /* With the binlog the server also calls this after every statement of a transaction: the
     commit of the statement follows and does everything. */
  if (!conn || !ends_transaction(thd, all)) return 0;
  leave_forgotten(thd, conn);
  /* Waiting comes second: workers flush the log together. */
  if (fe_txn_has_changes(conn->session)) {
    if (int error = prepare(thd, conn)) return error;
  } else if (thd_sql_command(thd) == SQLCOM_XA_PREPARE) {
    /* At SERIALIZABLE its locks stay, and this connection has them. */
    fe_txn_release_reads(conn->session, thd->rgi_slave != nullptr);
    to_fe_xid(xid_to_prepare(thd), &conn->xid);
    conn->has_only_read = true;
    ferrite_logged_is_prepared(conn);
  }
  return wait_for_earlier_workers(thd);
}

/* ---- XA and recovery by xid ----------------------------------------------------------- */

/* The server calls again as long as it got `len` of them, so the list is kept meanwhile. */
int ferrite_hton_recover(XID *list, uint len) {
  static std::mutex mutex;
  static std::vector<fe_xid> found;
  static size_t next = 0;
  if (!len || !list) return 0;
  std::lock_guard<std::mutex> guard(mutex);
  if (found.empty()) {
    next = 0;
    fe_recovered_xids(ferrite_engine, collect_xid, &found);
  }
  uint n = 0;
  for (; n < len && next < found.size(); n++, next++) to_server_xid(found[next], &list[n]);
  if (n < len) std::vector<fe_xid>().swap(found);
  return static_cast<int>(n);
}

/* The server asks for them only while it starts. */
bool ferrite_take_over_prepared() {
  std::vector<fe_xid> found;
  fe_recovered_xids(ferrite_engine, collect_xid, &found);
  std::vector<XID> of_users;
  for (const fe_xid &x : found) {
    XID xid;
    to_server_xid(x, &xid);
    if (!xid.get_my_xid()) of_users.push_back(xid);
  }
  if (of_users.size() < found.size()) {
    sql_print_error(
        "Ferrite: %zu transactions are prepared whose commit the server had begun when it ended,"
        " and it decides about them only while it starts. Start it with"
        " plugin-load-add=ha_ferrite.so: the plugin cannot be installed before",
        found.size() - of_users.size());
    return false;
  }
  for (XID &xid : of_users)
    if (xid_cache_insert(&xid)) sql_print_warning("Ferrite: XA RECOVER lacks a transaction");
  return true;
}

/* The server decides what a crash has left prepared before it looks at its DDL log, and nobody's
   statement runs until it has. 11.8 would tell a rollback of these by a call of its own
   (recover_rollback_by_xid), but not in a Galera cluster, and not a commit. */
static bool recovery_is_over = false;

void ferrite_recovery_is_over() { recovery_is_over = true; }

static bool is_recovering() { return !mysqld_server_started && !recovery_is_over; }

/* The server may ask again for one that could not be ended. */
static void decided_by_xid(const fe_xid &xid, fe_code code) {
  if (code == FE_OK || code == FE_NOT_FOUND) ferrite_logged_by_xid_is_over(xid);
}

/* Whose KILL ends an XA COMMIT that waits. The server keeps the xid then, as after any error, and
   it can be asked for again. But where the binary log has taken the commit, which comes before
   this, it is one whatever is answered; and a replica's worker would stop the replica. A log that
   is closed by now, as after a rotation that failed, may have it. */
static THD *killable_decider() {
  THD *thd = current_thd;
  if (!thd || thd->slave_thread || thd->rgi_slave) return nullptr;
  const bool may_be_logged = opt_bin_log && thd_test_options(thd, OPTION_BIN_LOG);
  return may_be_logged ? nullptr : thd;
}

int ferrite_hton_commit_by_xid(XID *xid) {
  fe_xid x;
  to_fe_xid(xid, &x);
  /* Before an ALTER can find that it is committed. */
  ferrite_logged_by_xid_is_kept(current_thd, x);
  const fe_code code = is_recovering() ? fe_commit_recovered(ferrite_engine, &x)
                                       : fe_commit_by_xid(ferrite_engine, &x, killable_decider());
  decided_by_xid(x, code);
  return xa_result(code);
}

int ferrite_hton_rollback_by_xid(XID *xid) {
  fe_xid x;
  to_fe_xid(xid, &x);
  const fe_code code = is_recovering() ? fe_roll_back_recovered(ferrite_engine, &x)
                                       : fe_rollback_by_xid(ferrite_engine, &x);
  decided_by_xid(x, code);
  return xa_result(code);
}

void ferrite_hton_checkpoint_request(void *cookie) {
  fe_checkpoint_request(ferrite_engine, cookie);
}

/* ---- savepoints ----------------------------------------------------------------------- */

int ferrite_hton_savepoint_set(THD *thd, void *area) {
  ferrite_conn *conn = existing_conn(thd);
  ferrite_savepoint savepoint;
  savepoint.position = 0;
  ferrite_logged_savepoint(conn, &savepoint);
  fe_code code = conn ? fe_savepoint_set(conn->session, &savepoint.position) : FE_OK;
  /* The server aligns nothing there. */
  memcpy(area, &savepoint, sizeof savepoint);
  return ferrite_to_ha_error(code, thd);
}

int ferrite_hton_savepoint_rollback(THD *thd, void *area) {
  ferrite_conn *conn = existing_conn(thd);
  if (!conn) return 0;
  ferrite_savepoint savepoint;
  memcpy(&savepoint, area, sizeof savepoint);
  ferrite_logged_savepoint_undone(conn, &savepoint);
  memcpy(area, &savepoint, sizeof savepoint);
  fe_code code = fe_savepoint_rollback(conn->session, savepoint.position);
  if (code == FE_NOT_FOUND) return HA_ERR_NO_SAVEPOINT;
  return ferrite_to_ha_error(code, thd);
}

int ferrite_hton_savepoint_release(THD *, void *) { return 0; }

/* Metadata locks taken after the savepoint may go only if no row lock outlives them. */
bool ferrite_hton_savepoint_can_release_mdl(THD *thd) {
  ferrite_conn *conn = existing_conn(thd);
  return !conn || !fe_txn_is_active(conn->session);
}

/* ---- end of a connection -------------------------------------------------------------- */

int ferrite_hton_close_connection(THD *thd) {
  ferrite_conn *conn = existing_conn(thd);
  if (!conn) return 0;
  ferrite_hot_backup_owner_ends(conn);
  ferrite_logged_is_written(conn);
  /* First out of sight of kill_query(), which holds the mutex that this call takes. */
  thd_set_ha_data(thd, ferrite_hton, nullptr);
  roll_back_refused(conn);
  if (conn->sequences) fe_session_free(conn->sequences);
  fe_session_free(conn->session);
  delete conn;
  return 0;
}

void ferrite_hton_kill_query(handlerton *, THD *thd, enum thd_kill_levels) {
  ferrite_conn *conn = existing_conn(thd);
  if (conn) fe_session_interrupt(conn->session);
}
