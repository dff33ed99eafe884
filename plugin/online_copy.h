/* ALTER TABLE that copies a table while others write to it (11.2 on; LOCK=NONE by copy).

   The server logs what others change meanwhile, one log for each of their transactions, and repeats
   it in the copy when they commit. Four things that change the table are in none of these logs or
   are wrong there, so that the copy would have other rows than the table. The ALTER then ends with
   an error, and the table stays as it is:

   - Transactions that were prepared, and whose connections have gone.
   - Rollbacks of a part of a transaction. A statement's rows go to the log in pieces of
   binlog_row_event_max_size, or by kind; if the statement fails, only its last piece is taken out.
   ROLLBACK TO a savepoint forgets the savepoint; if there is a second one, the whole transaction is
   taken out. If there is one amid a statement, in a trigger, too much is taken out or too little.
   And after a ROLLBACK TO the log of one table does not know what to take out when a statement
   that changes another table fails. All that is nothing if the whole transaction is rolled back.
   - Rollbacks of an XA transaction by the server, after a deadlock or a PREPARE that failed: what
   is logged of it stays with the connection, and its next transaction commits it.
   - Changes for whose log there is no space. At the end of a statement or a transaction the server
   takes them out of the log, raises an error, and has the engine commit what it has lost. The log
   commits before Ferrite, so the error is there when Ferrite is asked to.

   This is looked at when the ALTER commits the copy: behind its last look into the logs, and before
   the server's own log of DDL says that the copy is to take the table's place.

   Two that change one row must be repeated in that order. Where commits are put in order (with the
   binary log, or with two engines), others see a transaction and get its locks before the server
   writes its rows to the ALTER's log. Whoever changes a row of such a table waits, then, until all
   those whose commits he may have seen have been written: his own rows are written at his end. What
   is waited for is past its last wait for a lock, so nobody waits in a circle. Where the server's
   log takes part in a transaction for longer than Ferrite, it is written after the commit is over:
   that counts as wrong.

   Transactions whose logs are wrong are counted for each table: the ALTER of another goes on. One
   that is prepared is counted when it is committed, by whichever connection: until then its tables
   are kept under its xid.

   Locking: the records of a connection are its own thread's, except for its place among the commits
   that are seen and not written, which the leader of a group takes for it; these have a mutex, held
   for moments, beneath the server's LOCK_commit_ordered. The prepared have another, which is held
   alone. The counts of wrong logs are atomic.
 */

#ifndef FERRITE_ONLINE_COPY_H
#define FERRITE_ONLINE_COPY_H

#include "server_compat.h"

#include "ferrite.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct ferrite_conn;

/* Of a table: transactions that were not rolled back, and that the server's logs do not have right.
   Its share has it, and so have those that have changed the table, or copy it: what is at one place
   is of one table. */
using ferrite_wrong_logs = std::shared_ptr<std::atomic<uint64_t>>;

/* What an ALTER TABLE has found when it began to copy, and when the server unlocked the table. */
struct ferrite_copy_begun {
  query_id_t by = 0;    /* statement that has copied; 0: none */
  std::string name;     /* of the table, for the core */
  uint64_t decided = 0; /* of the table, before the server read the logs */
  ferrite_wrong_logs wrong_logs;
  uint64_t wrong_before = 0; /* of these, before the copy */
};

enum class LoggedKind { kNone, kInsert, kUpdate, kDelete };

/* What a statement has changed of tables that others copy. It ends with those that call it. */
struct ferrite_logged_statement {
  const void *of = nullptr; /* the wrong logs of its last row's table; NULL: none, as is the kind */
  LoggedKind kind = LoggedKind::kNone;
  ulonglong bytes = 0; /* the most that its last rows of that kind have in the log */
  bool in_pieces = false;
};

/* What a transaction has. */
struct ferrite_logged_changes {
  std::vector<ferrite_wrong_logs> of; /* such tables, in the order of their first changes */
  bool went_back = false;             /* to a savepoint */
  bool is_wrong = false;              /* what is logged of it */
  ferrite_logged_statement statement; /* the running one */
};

/* A transaction's place among those that others see and that are not in the logs yet. */
struct ferrite_unwritten {
  uint64_t ticket = 0; /* rises in the order of commits; 0: it is not among them */
  ferrite_unwritten *before = nullptr;
  ferrite_unwritten *after = nullptr;
};

/* At the place of each savepoint that the server keeps for us. */
struct ferrite_savepoint {
  uint64_t position;
  bool was_logged;  /* there were changes in such a log before it */
  bool rolled_back; /* it was rolled back to */
};

/* The copy begins: FE_OK, or prepared transactions have changed the table and stay so. */
fe_code ferrite_begin_online_copy(THD *thd, const std::string &name);

/* The server has copied the rows, and will read the logs. So many were wrong before the copy. */
void ferrite_end_online_copy(THD *thd, const std::string &name, const ferrite_wrong_logs &of,
                             uint64_t wrong_before);

/* The copy is to be taken: 0, or the error, which is raised. */
int ferrite_check_online_copy(THD *thd, const ferrite_conn *conn);

/* A row of a table that is being copied was changed. Without latches: it may wait. */
void ferrite_logged_row(THD *thd, const TABLE *table, const ferrite_wrong_logs &of, LoggedKind kind,
                        const uchar *row, const uchar *old_row);

/* A statement or a transaction is committed, and the server's log of it has been: it may have
 * failed.
 */
void ferrite_logged_may_be_lost(THD *thd, ferrite_conn *conn);

/* The transaction is committed, and will be by this connection. */
void ferrite_logged_is_kept(THD *thd, ferrite_conn *conn);

/* It is prepared, and waits under `conn->xid`. */
void ferrite_logged_is_prepared(ferrite_conn *conn);

/* It is about to be committed by its xid; it is committed or rolled back by it, or never will be.
 */
void ferrite_logged_by_xid_is_kept(THD *thd, const fe_xid &xid);
void ferrite_logged_by_xid_is_over(const fe_xid &xid);

/* In the order of commits: others are about to see it. Waits for nothing, allocates nothing. */
void ferrite_logged_is_seen(ferrite_conn *conn);

/* The server has written its rows, or never will. May be said again. */
void ferrite_logged_is_written(ferrite_conn *conn);

/* The transaction is rolled back. */
void ferrite_logged_is_undone(THD *thd, const ferrite_conn *conn);

/* A statement of a transaction that goes on ends, or is rolled back. */
void ferrite_logged_statement_ends(ferrite_conn *conn);
void ferrite_logged_statement_undone(ferrite_conn *conn);

/* A savepoint is set (there may be no connection's record yet), and rolled back to. */
void ferrite_logged_savepoint(const ferrite_conn *conn, ferrite_savepoint *savepoint);
void ferrite_logged_savepoint_undone(ferrite_conn *conn, ferrite_savepoint *savepoint);

#endif
