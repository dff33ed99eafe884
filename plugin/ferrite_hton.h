/*
 * The plugin's shared state: one engine, one handlerton, one ferrite_conn per connection.
 *
 * Rules of this module
 * - ferrite_engine is set before the first handler exists and cleared after the last one is
 *   destroyed. Only ferrite_hton.cc opens and closes it. Who is no handler and no connection of the
 *   engine, as the tables of information_schema, holds a FerriteUse while it calls the core.
 * - A ferrite_conn is stored in the server's per-connection slot (thd_get_ha_data) and used
 *   only by the connection's own thread, except by kill_query(), which only interrupts.
 * - A handler takes part in a statement by calling ferrite_register_trx() from
 *   external_lock() (not for F_UNLCK) and from start_stmt(), before its first read or
 *   write. That call also starts the statement in the core, once per statement however many
 *   tables it has: handlers never call fe_stmt_begin, fe_stmt_end or fe_stmt_rollback.
 *   The server's commit and rollback of the statement end it here.
 */
#ifndef FERRITE_HTON_H
#define FERRITE_HTON_H

#include "server_compat.h"

#include "ferrite.h"
#include "online_copy.h"

#include <vector>

/* What the plugin remembers of one connection. */
struct ferrite_conn {
  fe_session *session = nullptr;
  fe_session *sequences = nullptr; /* writes to SEQUENCEs; NULL before the first one */
  THD *thd = nullptr;
  uint32_t lock_wait_timeout_ms = 0; /* last value handed to the core */
  bool snapshot_isolation = false;   /* as handed to the core */
  bool prepared = false;             /* fe_txn_prepare succeeded */
  bool commit_ordered = false;       /* fe_txn_commit_ordered was called */
  bool waits_for_xid = false;        /* prepared by XA PREPARE: it has left the session */
  bool has_only_read = false;        /* the same, without changes: its session has it */
  fe_xid xid;                        /* the name it waits under */
  std::vector<fe_xid> refused;       /* to be rolled back as soon as no mutex is held */
  bool rolled_back_by_core = false;  /* deadlock victim: server's rollback is to come */
  bool owns_backup = false;          /* it began a hot backup, which may have ended since */
  ferrite_copy_begun copy;           /* of a table beside writers */
  query_id_t failed_copy_by = 0;     /* statement that has an incomplete partition; 0: none */
  ferrite_logged_changes logged;     /* for the copies of others */
  ferrite_unwritten unwritten;       /* as are those changes: under a mutex of online_copy.cc */
  const char *proc_info_before_wait = nullptr; /* for SHOW PROCESSLIST, after a lock wait */
};

extern fe_engine *ferrite_engine;
extern handlerton *ferrite_hton;

/* While one exists the engine is not closed, if it is open. The server's references do not do that
   for other plugins than FERRITE itself: UNINSTALL PLUGIN waits for nobody but those. Only around
   calls that end soon; not twice in one thread. */
class FerriteUse {
 public:
  FerriteUse();
  ~FerriteUse();
  FerriteUse(const FerriteUse &) = delete;
  FerriteUse &operator=(const FerriteUse &) = delete;
  explicit operator bool() const { return ferrite_engine; }
};

/* The connection's record, made at first use. Never NULL. Own thread only. */
ferrite_conn *ferrite_conn_of(THD *thd);

/* Its session in the core, made at first use. Never NULL. Own thread only. */
fe_session *ferrite_session_of(THD *thd);

/* A second session, for SEQUENCEs alone: what is written there stays, whatever becomes of the
   transaction, and is seen by all at once. Its transactions last as long as one write: end
   it after each write, and after reads. */
fe_session *ferrite_sequence_session_of(THD *thd);
fe_code ferrite_end_sequence_write(fe_session *session, bool keep);

/* Makes Ferrite a participant of the current statement (and of the transaction when there
   is one), begins the statement in the core, passes isolation level and lock wait
   timeout. Cheap to call again in the same statement. */
void ferrite_register_trx(THD *thd);

/* 1 when this statement's changes belong to a transaction that continues after it. */
bool ferrite_in_transaction(THD *thd);
/* How long this statement waits for a lock, in ms; 0: not at all. */
uint32_t ferrite_lock_wait_ms(THD *thd);

/* How long a change of a table waits for prepared transactions. */
uint32_t ferrite_ddl_wait_ms(THD *thd);

/* Defined with the handler, in ha_ferrite.cc. */
handler *ferrite_create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *mem_root);

#endif
