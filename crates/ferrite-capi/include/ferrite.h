/*
 * The C interface of Ferrite's core: the C++ plugin uses the core only through it.
 *
 * Rules of this interface
 * - Plain C: opaque handles, integer codes, byte slices. No server type crosses.
 * - Every function that can fail returns an fe_code; FE_OK is 0. On another code,
 *   fe_last_error() gives a one-line text for the calling thread.
 * - The core never unwinds across this boundary: a panic in it is logged with its
 *   place and the process aborts.
 * - A slice handed IN is read before the call returns and never kept.
 *   A slice handed OUT by a cursor lives until the next call on that cursor.
 * - A session is used by one thread at a time, except fe_session_interrupt(), which
 *   any thread may call.
 * - Keys are memory-comparable: the plugin encodes them, the core compares them with
 *   memcmp. No encoded key part is a prefix of another one at the same place, so a
 *   leading run of key parts is a byte prefix of the whole.
 * - Row and entry payloads are opaque to the core, except for the overflow references
 *   that open a row payload (see fe_payload below).
 */
#ifndef FERRITE_H
#define FERRITE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FE_ABI_VERSION 15
#define FE_NO_KEY 4294967295 /* no such key */

typedef struct fe_engine fe_engine;
typedef struct fe_session fe_session; /* one SQL connection and its transaction */
typedef struct fe_table fe_table;     /* one open table, shared by its handlers */
typedef struct fe_cursor fe_cursor;   /* a position in one index, for one session */

typedef struct {
  const uint8_t *ptr;
  size_t len;
} fe_slice;

/* Result codes. The numbers are part of the interface. */
typedef enum {
  FE_OK = 0,
  FE_END = 1,               /* no (further) row */
  FE_NOT_FOUND = 2,         /* no such key, table, savepoint ... */
  FE_DUPLICATE = 3,         /* unique key violated; see fe_dup_info */
  FE_LOCK_TIMEOUT = 4,      /* statement is to be rolled back */
  FE_DEADLOCK = 5,          /* the core has rolled the transaction back */
  FE_INTERRUPTED = 6,       /* KILL, or the server asked the wait to end */
  FE_DISK_FULL = 7,
  FE_CORRUPT = 8,           /* a data page failed its checks; the text names it */
  FE_IO = 9,
  FE_ROW_TOO_BIG = 10,
  FE_KEY_TOO_LONG = 11,
  FE_EXISTS = 12,
  FE_ROLLED_BACK = 13,      /* rolled back earlier (deadlock), or only a rollback is left */
  FE_RECORD_CHANGED = 14,   /* snapshot isolation conflict */
  FE_SKIPPED = 15,          /* row locked by another and SKIP LOCKED asked for */
  FE_SNAPSHOT_TOO_OLD = 16,
  FE_UNSUPPORTED = 17,
  FE_BAD_CONFIG = 18,
  FE_FORMAT = 19,           /* data files of another format or not Ferrite's */
  FE_IN_USE = 20,           /* another process holds the files */
  FE_SAME = 21,             /* update changed nothing */
  FE_TABLE_CHANGED = 22,    /* read view older than the table's definition */
  FE_OUT_OF_MEMORY = 23,
  FE_LOCK_TABLE_FULL = 24,
  FE_BUG = 25,              /* the caller broke a rule of this interface */
  FE_FOREIGN_KEY = 26,      /* a foreign key does not fit its tables; see fe_last_misfit() */
  FE_REFERENCED = 27        /* foreign keys of other tables refer to the table */
} fe_code;

typedef enum { FE_LOG_NOTE = 0, FE_LOG_WARNING = 1, FE_LOG_ERROR = 2 } fe_log_level;

typedef enum {
  FE_READ_UNCOMMITTED = 0,
  FE_READ_COMMITTED = 1,
  FE_REPEATABLE_READ = 2,
  FE_SERIALIZABLE = 3
} fe_isolation;

/* How a cursor reads. */
typedef enum {
  FE_READ_SNAPSHOT = 0, /* consistent read, no locks */
  FE_READ_SHARED = 1,   /* S locks on what is read */
  FE_READ_EXCLUSIVE = 2 /* X locks on what is read */
} fe_lock_mode;

/* What a locking cursor does when it meets a lock. */
typedef enum { FE_WAIT = 0, FE_NOWAIT = 1, FE_SKIP_LOCKED = 2 } fe_wait_policy;

/* Where fe_cursor_seek() lands; `key` is a whole key or a leading run of its parts. */
typedef enum {
  FE_SEEK_EXACT = 0,  /* first entry that starts with key, else FE_NOT_FOUND */
  FE_SEEK_GE = 1,     /* first entry >= key */
  FE_SEEK_GT = 2,     /* first entry after all that start with key */
  FE_SEEK_LE = 3,     /* last entry that starts with key, else the last one before it */
  FE_SEEK_LT = 4,     /* last entry before all that start with key */
  FE_SEEK_LAST_EXACT = 5 /* last entry that starts with key, else FE_NOT_FOUND */
} fe_seek_mode;

/* ---- engine ------------------------------------------------------------------- */

/* Called by the core; any thread unless said otherwise; must not call back in. */
typedef struct {
  void (*log)(fe_log_level level, const char *text);
  /* 1 when the connection was killed. Called by the connection's own thread. */
  int (*is_killed)(void *thd);
  /* Own thread, now and then in a long statement: so much of so much is done, of its stage. */
  void (*progress)(void *thd, uint64_t done, uint64_t total);
  /* Own thread, around a wait for a row lock. */
  void (*lock_wait_begin)(void *thd);
  void (*lock_wait_end)(void *thd, uint64_t waited_us);
  /* Own thread, once for each wait: is report_wait_for() to be called? May be NULL: no. */
  int (*wants_wait_reports)(void *waiter_thd);
  /* Own thread: waiter_thd is about to wait for holder_thd (parallel replication). May
     call fe_session_interrupt() on the holder's session. May be NULL. */
  void (*report_wait_for)(void *waiter_thd, void *holder_thd);
  /* Own thread: the commit returns now and its OK is delayed until async_done.
     Returns NULL when this connection cannot do that. */
  void *(*async_begin)(void *thd);
  /* Any thread (the flusher): releases the OK; once per async_begin. */
  void (*async_done)(void *token);
  /* Any thread: all that committed before fe_checkpoint_request(cookie) is durable. */
  void (*checkpoint_notify)(void *cookie);
  /* The process cannot go on (lost durability): logs and aborts; does not return. */
  void (*fatal)(const char *text);
  /* Any thread, at the end of a long wait: the connection that the calling thread works for.
     Copies at most `room` bytes of what it runs and returns how many; -1: it works for none.
     Must not wait. May be NULL. */
  int64_t (*current_connection)(uint64_t *thread_id, char *query, size_t room);
  /* At a deadlock, by the thread of one of its members: what a member runs. It waits, and goes
     on waiting until this returns. Copies at most `room` bytes and returns how many. Must not
     wait. May be NULL. */
  size_t (*query_of_waiter)(void *thd, char *query, size_t room);
  /* Likewise: which of two members should be the victim: negative the first, positive the
     second, 0 no preference. Must not wait. May be NULL. */
  int (*prefer_victim)(void *a_thd, void *b_thd);
  /* Any thread, before async_done of a token whose OK was delayed for long: whose it is, else as
     current_connection. Must not wait. May be NULL. */
  int64_t (*connection_of_token)(void *token, uint64_t *thread_id, char *query, size_t room);
  /* In fe_engine_open(), fe_encryption_rotate() and fe_backup_begin(): the newest version of a key of the
     server's key management; FE_NO_KEY: there is no such key. May be NULL: there is none. */
  uint32_t (*newest_key_version)(uint32_t id);
  /* Likewise: copies a key of at most `room` bytes and returns its length; 0: there is none. */
  size_t (*encryption_key)(uint32_t id, uint32_t version, uint8_t *key, size_t room);
  /* Any thread, now and then: 1 from the moment on at which the server begins to shut down. Must not
     wait. May be NULL. */
  int (*is_shutting_down)(void);
} fe_callbacks;

typedef struct {
  uint32_t abi_version; /* FE_ABI_VERSION */
  const char *data_dir; /* the server's data directory; files live in #ferrite below it */
  uint64_t buffer_pool_size_bytes;
  uint64_t buffer_pool_size_max_bytes; /* largest that fe_engine_set takes for it */
  uint64_t log_budget_bytes;      /* target size of the redo log */
  uint64_t history_ring_bytes;    /* size of the history ring */
  uint64_t max_history_bytes;     /* 0: off */
  uint32_t flush_log_at_commit;   /* 0, 1, 2: InnoDB's meaning */
  uint32_t flush_interval_ms;     /* background log flush for modes 0 and 2 */
  uint32_t lock_wait_timeout_ms;  /* default of new sessions */
  uint32_t purge_threads;         /* 0: by number of processors */
  uint32_t write_threads;         /* 0: by number of processors */
  uint32_t deadlock_detect;       /* bool */
  uint32_t use_direct_io;         /* bool */
  uint32_t read_only;             /* bool */
  uint32_t compression;           /* 0 none, 1 lz4, 2 zstd: of pages that belong to no table */
  uint32_t simulate_crash_point;  /* 0 in production */
  uint64_t next_log_start;        /* reserved, 0 */
  const char *snapshot_of; /* another server's data directory: a snapshot of it is opened; or NULL */
  const char *snapshot;    /* its name */
  const char *second_tier; /* "FILE,BYTES": copies of pages on a faster device; or NULL */
  uint32_t encrypt;           /* bool: a new database is encrypted. One that exists must be, too */
  uint32_t encryption_key_id; /* the server's key that the data key is kept with; 0: it stays which it is */
} fe_config;

/* Somebody who watches the core: the server's Performance Schema. Called by any thread; must not
   wait, nor call back in. What has begun is ended by the same thread. `room`: FE_ROOM_BYTES for the
   observer's own use until then, at a multiple of 16. None may be NULL. */
#define FE_ROOM_BYTES 128
typedef enum { FE_FILE_READ = 0, FE_FILE_WRITE = 1, FE_FILE_SYNC = 2 } fe_file_call;
typedef struct {
  /* A thread of the core begins and ends. */
  void (*thread_begins)(const char *name);
  void (*thread_ends)(void);
  /* A wait, for a reason as fe_wait_reason() numbers them; NULL: it is not followed. */
  void *(*wait_begins)(uint32_t reason, void *room);
  void (*wait_ends)(void *wait);
  /* The class of a file that was opened; NULL: nobody follows its calls. */
  void *(*file_opened)(const char *path);
  void *(*file_begins)(void *file_class, fe_file_call call, size_t bytes, void *room);
  void (*file_ends)(void *followed, size_t bytes);
  /* Every few seconds, for each part as fe_each_memory() names it: what it has now. */
  void (*memory)(const char *part, uint64_t bytes);
} fe_observer;

/* Before fe_engine_open(), at most once in a process. */
void fe_observe(const fe_observer *observer);
/* Why one waits; NULL behind the last. Valid for ever. */
const char *fe_wait_reason(uint32_t number);

/* Opens or creates the database and recovers it. On failure *out is NULL, nothing was
   overwritten, no thread runs. */
fe_code fe_engine_open(const fe_config *config, const fe_callbacks *callbacks,
                       fe_engine **out);
/* Clean shutdown: flushes every commit, writes a checkpoint, frees all. */
fe_code fe_engine_close(fe_engine *engine);

/* Dynamic settings; `name` as the system variable without the prefix "ferrite_".
   FE_BAD_CONFIG with a text when the value is refused. */
fe_code fe_engine_set(fe_engine *engine, const char *name, uint64_t value);

/* Text of the calling thread's last failure; never NULL; valid till its next call. */
const char *fe_last_error(void);
/* The caller has found damage in what it was given; `what` is the text. Returns FE_CORRUPT. */
fe_code fe_damaged(const char *what);
const char *fe_version(void);

/* Makes the whole redo log durable (FLUSH LOGS). */
fe_code fe_engine_flush_log(fe_engine *engine);
/* Takes a checkpoint; on failure the previous one stays valid. */
fe_code fe_engine_checkpoint(fe_engine *engine);
/* Calls checkpoint_notify(cookie) once everything committed so far is durable. */
void fe_checkpoint_request(fe_engine *engine, void *cookie);

/* ---- encryption at rest ---------------------------------------------------------- */

/* Keeps the data key with the newest version of that key of the server's (0: of the one it is kept with). On
   failure it is kept as before. FE_BAD_CONFIG: no such key, or the database is not encrypted. */
fe_code fe_encryption_rotate(fe_engine *engine, uint32_t key_id);
/* 1 if the database is encrypted, else 0. The server's key that the data key is kept with; zeros of a snapshot of
   another server. */
int fe_encryption_key(fe_engine *engine, uint32_t *id, uint32_t *version);

/* ---- hot backup ------------------------------------------------------------------ */

typedef struct {
  const char *dir;      /* an empty directory, or one that is to be created */
  const char *base;     /* directory of the backup to be incremented; NULL: a full backup */
  uint64_t owner;       /* the connection it belongs to */
  uint64_t kept_bytes;  /* log and pages kept for it, beyond which it ends; 0: no limit */
  uint64_t bytes_per_s; /* pace of copying; 0: no limit */
} fe_backup_plan;

/* Begins a backup: takes a checkpoint and pins it. One at a time: FE_IN_USE. It waits for
   fe_backup_fix() and then copies in a thread of its own. */
fe_code fe_backup_begin(fe_engine *engine, const fe_backup_plan *plan);
/* The point in time of the backup that waits is now: flushes the log. FE_NOT_FOUND: none waits. */
fe_code fe_backup_fix(fe_engine *engine);
/* 1 while a backup waits for its point in time. */
int fe_backup_waits(fe_engine *engine);
/* Ends the backup of that connection (0: whosever) with that reason; 1 if there was one. */
int fe_backup_end(fe_engine *engine, uint64_t owner, const char *why);

/* The backup that runs, or ran last. Texts live during the callback. */
typedef struct {
  const char *state; /* NONE, WAITING, COPYING, COMPLETE, FAILED */
  const char *dir;
  const char *base;
  const char *error;
  uint64_t id;
  uint64_t owner;
  uint64_t started_unix_s;
  uint64_t position; /* its point in time in the log; 0: not fixed yet */
  uint64_t page_bytes;
  uint64_t copied_bytes;
  uint64_t kept_log_bytes;
  uint64_t withheld_bytes;
} fe_backup_row;
void fe_backup_info(fe_engine *engine, void (*each)(void *arg, const fe_backup_row *row),
                    void *arg);

/* ---- kept snapshots --------------------------------------------------------------- */

typedef struct fe_kept_job fe_kept_job;

/* What the server knows of the point in time. */
typedef struct {
  const char *binlog_file; /* NULL: no binary log */
  uint64_t binlog_position;
  const char *gtid; /* NULL: none */
  int scheduled;    /* bool: taken by the schedule */
} fe_kept_point;

/* Begins to take a snapshot of that name: takes a checkpoint and copies it. FE_EXISTS. Then, in
   this order: _files while no DDL runs, _fix while no commit runs either, _finish. A KILL of the
   connection `thd` (NULL: none) ends the wait for others that are at it: FE_INTERRUPTED. */
fe_code fe_kept_begin(fe_engine *engine, const char *name, void *thd, fe_kept_job **out);
/* Reads the definitions of tables that the server keeps in that data directory. */
fe_code fe_kept_files(fe_kept_job *job, const char *data_dir);
/* The point in time is now: flushes the log. */
void fe_kept_fix(fe_kept_job *job);
/* Makes the snapshot durable. The job is gone, whatever the result. */
fe_code fe_kept_finish(fe_kept_job *job, const fe_kept_point *point);
/* Gives it up; nothing is left of it. */
void fe_kept_abandon(fe_kept_job *job);
/* `thd`: as for _begin. */
fe_code fe_kept_drop(fe_engine *engine, const char *name, void *thd);

/* A kept snapshot. Texts live during the callback. */
typedef struct {
  const char *name;
  const char *lost; /* why it cannot be used; empty: it can */
  const char *binlog_file;
  const char *gtid;
  uint64_t binlog_position;
  uint64_t taken_unix_s;
  uint64_t position; /* its point in time in the log */
  uint64_t file_bytes;
  uint64_t changed_bytes; /* of pages that the present does not have any more */
  int scheduled;
} fe_kept_row;
/* The oldest first. */
void fe_kept_each(fe_engine *engine, void (*each)(void *arg, const fe_kept_row *row), void *arg);

/* ---- sessions and transactions --------------------------------------------------- */

fe_session *fe_session_new(fe_engine *engine, void *thd, uint64_t thread_id);
/* Rolls an active transaction back; a prepared XA transaction stays, detached. */
void fe_session_free(fe_session *session);
/* Ends a lock wait of this session at once with FE_INTERRUPTED; any thread; no blocking. */
void fe_session_interrupt(fe_session *session);
void fe_session_set_lock_wait_timeout(fe_session *session, uint32_t timeout_ms);
/* For the statements that begin after it: at FE_REPEATABLE_READ and above a locking read or a write
   that meets a row changed since the read view was opened fails with FE_RECORD_CHANGED, and the
   transaction has been rolled back then, as with FE_DEADLOCK. */
void fe_session_set_snapshot_isolation(fe_session *session, int on);

/* Start of a statement: remembers the undo position for fe_stmt_rollback and opens or
   keeps a read view lazily: at FE_READ_COMMITTED and below a view lasts a statement. */
void fe_stmt_begin(fe_session *session, fe_isolation isolation);
/* End of a statement inside a transaction that goes on. Closes a statement's read view. */
void fe_stmt_end(fe_session *session);
/* Undoes what the statement changed; locks stay. */
fe_code fe_stmt_rollback(fe_session *session);

/* Opens the transaction's read view now (WITH CONSISTENT SNAPSHOT). */
fe_code fe_txn_open_snapshot(fe_session *session);
/* 1 when the transaction changed rows or holds locks (i.e. must be ended). */
int fe_txn_is_active(const fe_session *session);
int fe_txn_has_changes(const fe_session *session);
/* 0 when it has no id yet. */
uint64_t fe_txn_id(const fe_session *session);

/* One-phase commit: visible at once; durable on return, or, when `allow_async` and
   async_begin gave a token, durable when async_done is called. */
fe_code fe_txn_commit(fe_session *session, int allow_async);
fe_code fe_txn_rollback(fe_session *session);
/* Two-phase: durable PREPARED on return. xid: up to 128 bytes of gtrid+bqual. */
typedef struct {
  int64_t format_id;
  uint32_t gtrid_len;
  uint32_t bqual_len;
  uint8_t data[128];
} fe_xid;
fe_code fe_txn_prepare(fe_session *session, const fe_xid *xid);
/* After an XA PREPARE statement of the client: releases shared locks and gap locks, unless the
   transaction is SERIALIZABLE. Not for a commit with the binary log, whose order they keep. Of a
   replica's worker: all locks but those of what it has changed, at any level. Of a transaction that
   has changed nothing: its snapshot, and, unless it is SERIALIZABLE, all its locks. */
void fe_txn_release_reads(fe_session *session, int is_replica);
/* In memory: writes the commit record to the log buffer, makes it visible, releases
   locks. Never blocks, never fails. The log's order of these calls is the binlog's. 0: nothing
   was changed, or the transaction can only be rolled back; fe_txn_commit_finish() tells. */
int fe_txn_commit_ordered(fe_session *session);
/* After commit_ordered: frees the transaction. `wait_durable` when the server keeps no
   checkpoint promise for it. */
fe_code fe_txn_commit_finish(fe_session *session, int wait_durable);
/* Explicit XA: detaches the prepared transaction from its session. Of a replica's worker: who waits
   for it still names the connection, until the session is freed. */
fe_code fe_txn_detach_prepared(fe_session *session, int is_worker);
/* Commits what this connection has detached under that name; the server has kept its locks on the
   tables. FE_NOT_FOUND for an unknown xid. */
fe_code fe_txn_commit_prepared(fe_session *session, const fe_xid *xid);

/* Prepared transactions found at start or detached: calls `each` for every one. */
void fe_recovered_xids(fe_engine *engine, void (*each)(void *arg, const fe_xid *xid),
                       void *arg);
/* Nonzero: such a transaction has that name. */
int fe_is_prepared(const fe_engine *engine, const fe_xid *xid);
/* Durable on return; FE_NOT_FOUND for an unknown xid. A commit may wait for room: a KILL of the
   connection `thd` ends that (FE_INTERRUPTED), and it stays prepared. NULL: it is heard by nobody, as
   must be if the binary log has the commit already. */
fe_code fe_commit_by_xid(fe_engine *engine, const fe_xid *xid, void *thd);
fe_code fe_rollback_by_xid(fe_engine *engine, const fe_xid *xid);
/* The same of one whose name the server has forgotten: if it fails, the core tries again from time to
   time, and so does the next start. */
fe_code fe_roll_back_forgotten(fe_engine *engine, const fe_xid *xid);
/* Either decision while the server starts and nobody can connect: it is durable on return, and waits
   for nothing that grows with the transaction. A large one is rolled back by a thread. */
fe_code fe_commit_recovered(fe_engine *engine, const fe_xid *xid);
fe_code fe_roll_back_recovered(fe_engine *engine, const fe_xid *xid);

/* A savepoint is a position; the caller keeps it. FE_ROLLED_BACK: nothing but a rollback is left of
   the transaction. */
fe_code fe_savepoint_set(fe_session *session, uint64_t *savepoint);
fe_code fe_savepoint_rollback(fe_session *session, uint64_t savepoint);
/* The place before the row that was changed last, and before its values out of line. To be asked
   for before another row is changed. */
uint64_t fe_row_before(const fe_session *session);
/* How many rows the session's transaction has changed, undone or not. A row that was read with an X
   lock at the same number is as it was. */
uint64_t fe_rows_changed(const fe_session *session);
/* Within a statement that goes on: undoes what it has changed since fe_row_before(). Nothing if the
   transaction is gone. */
fe_code fe_row_undo(fe_session *session, uint64_t before);

/* ---- tables ------------------------------------------------------------------------ */

enum { FE_INDEX_UNIQUE = 1 };

typedef struct {
  const char *name;
  uint32_t flags;     /* FE_INDEX_UNIQUE */
  uint32_t key_parts; /* as the user declared them */
} fe_index_def;

enum {
  FE_TABLE_TEMPORARY = 1,   /* not logged durably; gone at restart */
  FE_TABLE_HIDDEN_ROWID = 2, /* no primary key: the core assigns 8-byte row ids */
  FE_TABLE_NO_ROLLBACK = 4  /* SEQUENCE: changes are their own transaction */
};

/* Foreign keys: the rules are in docs/internals/foreign_keys.md. */
enum { FE_FK_RESTRICT = 0, FE_FK_NO_ACTION = 1, FE_FK_CASCADE = 2, FE_FK_SET_NULL = 3 };

typedef struct {
  const char *own;
  const char *other;
} fe_fk_column;

typedef struct {
  const char *name;   /* without the database */
  const char *parent; /* "db/table", as names of tables are */
  const fe_fk_column *columns; /* own: the child's name; other: the parent's */
  uint32_t column_count;
  uint32_t on_delete; /* FE_FK_... */
  uint32_t on_update;
  uint32_t carried;   /* bool: the original has it too */
} fe_fk_def;

typedef struct {
  const fe_fk_def *defs;
  uint32_t count;
  uint32_t checks;      /* 1: foreign_key_checks: parents must exist, and whoever waits for the table
                           must fit it; 2: strict SQL mode; 4: those that refer to `original` follow
                           this one to another name */
  const char *original; /* the table that this one is to replace; NULL: none */
} fe_fk_defs;

typedef struct {
  const char *name;           /* "db/table" in the server's file name encoding */
  uint32_t flags;
  uint32_t compression;       /* 0 none, 1 lz4, 2 zstd; bits 3..8: level of zstd, 0: the usual one */
  const fe_index_def *indexes; /* [0] is the clustered one */
  uint32_t index_count;
  fe_slice definition;        /* opaque bytes of the plugin, returned by fe_table_definition */
  uint64_t auto_increment;    /* next value, 0: none */
  fe_fk_defs foreign;
} fe_table_def;

/* What keeps a table from being dropped or emptied: any foreign key of another table that refers to it, those
   of other databases (this one is dropped), none (foreign_key_checks=0), any unless there is a copy
   that is to take the table's place (fe_fk_defs.original; after a crash). */
typedef enum {
  FE_REFERENCES_ANY = 0,
  FE_REFERENCES_OTHER_DATABASES = 1,
  FE_REFERENCES_NONE = 2,
  FE_REFERENCES_UNLESS_REPLACED = 3
} fe_references;

/* Each of these is atomic and durable on return. Those with `wait_ms` wait so long at most while a
   prepared transaction has changed the table, then give FE_LOCK_TIMEOUT; temporary tables do not wait.
   A KILL of the connection `thd` (NULL: none) ends that, and a wait for space: FE_INTERRUPTED. */
fe_code fe_table_create(fe_engine *engine, const fe_table_def *def, void *thd);
/* FE_NOT_FOUND if there is none. Space is freed in the background. */
fe_code fe_table_drop(fe_engine *engine, const char *name, fe_references references, void *thd,
                      uint32_t wait_ms);
/* FE_NOT_FOUND / FE_EXISTS; renaming a table that already has only the new name is FE_OK.
   `shown_from`, `shown_to`: the names as users see them, with which names of foreign keys begin
   that nobody named. `foreign_checks`: those of a copy that becomes the table are to fit. */
fe_code fe_table_rename(fe_engine *engine, const char *from, const char *to,
                        const char *shown_from, const char *shown_to, int foreign_checks,
                        void *thd, uint32_t wait_ms);
/* Waits while a prepared transaction has changed the table. */
fe_code fe_table_wait_for_prepared(fe_engine *engine, const char *name, void *thd,
                                   uint32_t wait_ms);
/* Another number after each commit, by its xid, of a prepared transaction that has changed the table, and
   while one goes on; UINT64_MAX: there is no such table, or it cannot be opened. */
uint64_t fe_table_decided_commits(fe_engine *engine, const char *name);
/* Drops copies that an ALTER TABLE was filling at the moment to which the database was rewound, or of
   which a backup was restored, and what one had put aside when the server was killed if a table has
   replaced it under another name. Calls `dropped` for each. `is_defined`: the server knows that
   table ("db/table", also of its partitions), which stays. */
fe_code fe_copies_drop(fe_engine *engine, int (*is_defined)(void *arg, const char *name),
                       void (*dropped)(void *arg, const char *name), void *arg);
/* Gives the table another `definition`: for what a server does not need to read its rows. */
fe_code fe_table_redefine(fe_engine *engine, const char *name, fe_slice definition, void *thd);
/* Another number after each fe_table_redefine() and fe_table_alter(), also over restarts; 0:
   there is no such table. */
uint64_t fe_table_definition_version(fe_engine *engine, const char *name);
/* Empties the table, resets auto_increment to 1. Caller holds the server's exclusive lock.
   FE_REFERENCED: a child may have come since the server has looked for one. */
fe_code fe_table_truncate(fe_engine *engine, const char *name, uint64_t auto_increment,
                          fe_references references, void *thd, uint32_t wait_ms);
/* A file of an exported table. */
typedef struct fe_exported_file {
  const char *dir;
  const char *file;
  /* How rows and keys are laid out if the indexes, of which these are the numbers, are in that order. */
  uint64_t (*layout)(const void *of, const uint32_t *order);
  const void *of;
  fe_slice columns; /* what each column is, for people, each ended by a zero byte; must be equal */
  /* Why rows of a server of that version would mean something else here; NULL: they do not. */
  const char *(*unfit)(const void *of, const char *server);
} fe_exported_file;

/* Writes what a new snapshot sees of the table `name` to the file, for fe_table_import(). `server`:
   its version. `bytes`: of the file. Writers are kept away. FE_EXISTS: the file is there. On
   failure there is none. */
fe_code fe_table_export(fe_session *session, fe_table *table, const fe_exported_file *to,
                        const char *name, const char *server, uint64_t *bytes);
/* Fills the empty table from such a file; durable on return, and the table is to be opened anew.
   Caller holds the server's exclusive lock. FE_NOT_FOUND: no such file. FE_EXISTS: the table has
   rows. FE_FORMAT: it has other columns, keys or collations than the file's, or the file is of a later
   version. FE_CORRUPT: it is damaged. On failure the table is empty. */
fe_code fe_table_import(fe_session *session, const char *name, const fe_exported_file *from,
                        void *thd, uint32_t wait_ms);
/* Drops every table whose name starts with "db/"; those that it cannot, it leaves, and says why the
   first one is. It waits for one alone. */
fe_code fe_database_drop(fe_engine *engine, const char *db, void *thd, uint32_t wait_ms);
/* Drops what is left of partitions of "db/table", which is not there itself. FE_NOT_FOUND: nothing is. */
fe_code fe_parts_drop(fe_engine *engine, const char *name, void *thd, uint32_t wait_ms);
/* Tables that the server does not know, as fe_copies_drop() asks; with how many partitions (0: none). */
void fe_each_unknown_table(fe_engine *engine, int (*is_defined)(void *arg, const char *name),
                           void (*each)(void *arg, const char *name, uint64_t partitions),
                           void *arg);

/* What an ALTER TABLE has put aside ("db/#sql-backup-..."): while none is at work, what a crash has left. */
void fe_each_table_put_aside(fe_engine *engine, void (*each)(void *arg, const char *name), void *arg);

fe_code fe_table_open(fe_engine *engine, const char *name, fe_table **out);
void fe_table_close(fe_table *table);
fe_slice fe_table_definition(const fe_table *table);
/* The names of its indexes as they are now, that of the clustered one first. */
void fe_table_index_names(const fe_table *table, void (*each)(void *arg, fe_slice name), void *arg);
uint64_t fe_table_id(const fe_table *table);
int fe_table_exists(fe_engine *engine, const char *name);
/* Number of tables, without temporary ones. */
uint64_t fe_table_count(fe_engine *engine);

typedef struct {
  uint64_t rows;             /* estimate, exact when 0 and nothing is open */
  uint64_t data_bytes;       /* pages of the clustered index, overflow included */
  uint64_t index_bytes;      /* pages of the other indexes */
  uint64_t free_bytes;
  uint64_t created_unix_s;
  uint64_t updated_unix_s;   /* 0: not since start */
  uint64_t changes_since_stats; /* rows changed since fe_table_set_stats */
  uint64_t clustered_leaf_pages;
  uint64_t rows_doubtful;    /* 1: fe_table_check_rows before `rows` is used for a plan */
} fe_table_stats;
void fe_table_get_stats(fe_table *table, fe_table_stats *out);
/* The same for the optimizer, which asks at every statement: sizes may lag a little behind,
   free_bytes is 0. */
void fe_table_get_estimate(fe_table *table, fe_table_stats *out);
/* Holds the row counter against a sample of about `pages` leaves, and corrects it if it is far off;
   exactly if there are no more. */
fe_code fe_table_check_rows(fe_table *table, uint32_t pages);
uint64_t fe_index_leaf_pages(fe_table *table, uint32_t index_no);

/* Opaque statistics blob of the plugin (rec_per_key), kept with the dictionary. */
fe_code fe_table_set_stats(fe_table *table, fe_slice blob);
fe_slice fe_table_stats_blob(const fe_table *table);

/* Entries of about `pages` leaves spread over the index, in key order within a leaf:
   `each` gets key, and first=1 at the start of each leaf. Returns leaves visited. */
uint32_t fe_index_sample(fe_table *table, uint32_t index_no, uint32_t pages,
                         void (*each)(void *arg, fe_slice key, int first), void *arg);

/* Estimated entries in [low, high); a NULL ptr is an open end. Both as byte bounds. */
uint64_t fe_records_in_range(fe_table *table, uint32_t index_no, fe_slice low,
                             fe_slice high);

/* AUTO_INCREMENT: next value to assign. fe_autoinc_update raises it to at least `next`.
   Logged with the next change: before it, so that rows which are refused would fill the log with
   their values. fe_autoinc_admitted: the errors that a change of rows would get now; before values
   are taken for new rows. */
uint64_t fe_autoinc_read(fe_table *table);
fe_code fe_autoinc_admitted(fe_session *session);
void fe_autoinc_update(fe_table *table, uint64_t next);
/* The values are one statement's alone, as InnoDB's AUTO-INC lock: it waits as for a row lock
   (same errors, same search for deadlocks), and ends with the transaction if it is not given back
   before. Whoever does not ask for it is not kept from taking values: that is the caller's affair. */
fe_code fe_autoinc_lock(fe_session *session, fe_table *table);
void fe_autoinc_unlock(fe_session *session, fe_table *table);

/* Structural check of every tree; with `quick`=0 also every secondary entry's row and
   counts. `report` gets one line per fault; returns FE_OK, FE_CORRUPT or FE_INTERRUPTED. */
fe_code fe_table_check(fe_session *session, fe_table *table, int quick,
                       void (*report)(void *arg, const char *text), void *arg);

/* ---- foreign keys ------------------------------------------------------------------- */

/* Why a foreign key does not fit. */
typedef enum {
  FE_MISFIT_CHILD_COLUMN = 1,  /* the child has no such column */
  FE_MISFIT_CHILD_INDEX = 2,   /* no index of the child begins with the columns */
  FE_MISFIT_CHILD_PREFIX = 3,  /* only one on parts of their values */
  FE_MISFIT_PARENT = 4,        /* there is no such table */
  FE_MISFIT_PARENT_COLUMN = 5, /* the parent has no such column */
  FE_MISFIT_PARENT_INDEX = 6,
  FE_MISFIT_PARENT_PREFIX = 7,
  FE_MISFIT_TYPES = 8,         /* type or collation differ */
  FE_MISFIT_NOT_NULL = 9,      /* SET NULL, and the column is NOT NULL */
  FE_MISFIT_NAME = 10,         /* the database has another one of that name */
  FE_MISFIT_NAME_TWICE = 11,   /* so has the table, another new one */
  FE_MISFIT_PARENT_OLD = 12,   /* the parent is to be rebuilt: an earlier version made it */
  FE_MISFIT_NULL_FOLLOWS = 13, /* ON UPDATE CASCADE from a column that may be NULL to one that may not */
  FE_MISFIT_NAME_OF_OWN = 14   /* the table has one of that name already */
} fe_misfit;

typedef struct {
  uint32_t at;      /* its number in fe_fk_defs; UINT32_MAX: it is another table's, or was there */
  uint32_t reason;  /* fe_misfit */
  char key[256];    /* its name */
  char column[256]; /* the child's column */
  char other[256];  /* the parent's column */
} fe_fk_misfit;
/* After FE_FOREIGN_KEY: what this thread met last. */
void fe_last_misfit(fe_fk_misfit *out);

#define FE_COMPRESSION_KEEP UINT32_MAX

/* Indexes being added to a table that has rows; see fe_index_build_begin(). */
typedef struct fe_index_build fe_index_build;

/* Changes foreign keys, names of columns and indexes, indexes, compression, the AUTO_INCREMENT counter, and the
   definition, without the rows: all or nothing, durable on return. The parents' side of what is added is not
   looked at if it is missing. */
typedef struct {
  fe_slice definition;
  const char *const *drop; /* names of foreign keys */
  uint32_t drop_count;
  uint32_t renamed_count;
  const fe_fk_column *renamed; /* columns. own: old name; other: new name */
  const char *const *index_names; /* of all indexes, as they are then */
  /* NULL: the indexes stay. Else for each where it comes from: its number now, or -1 - its number in `build`.
     No session uses the table then. */
  const int32_t *index_sources;
  fe_index_build *build; /* NULL: none is new */
  uint32_t index_count;
  uint32_t compression; /* as in fe_table_def, or FE_COMPRESSION_KEEP; pages on disk stay as they are */
  fe_fk_defs add;
  uint64_t auto_increment; /* next value, which may be lower than before; 0: as it is */
} fe_table_change;
fe_code fe_table_alter(fe_engine *engine, const char *name, const fe_table_change *change, void *thd,
                       uint32_t wait_ms);

/* The greatest n in names of the table's foreign keys of the form SHOWN_ibfk_n; 0: none. */
uint64_t fe_foreign_last_number(fe_engine *engine, const char *name, const char *shown);

/* Foreign keys of a table, those that it has as a child. */
uint64_t fe_foreign_count(fe_engine *engine, const char *name);

/* What a change of a row has to look at. 0: the table has no foreign key and none refers to it. Else
   links with this version are the right ones. To be asked AFTER the row is written. */
uint64_t fe_table_links_version(const fe_table *table);

/* One key part of a foreign key's column in one table's index. */
typedef struct {
  uint16_t column; /* number of the column */
  uint8_t kind;    /* the plugin's PartKind, FLOAT and DOUBLE both 3 */
  uint8_t flags;   /* FE_LINK_... */
  /* Bytes of a part of fixed width; of a CHAR whose padding counts (a NO PAD collation); else 0. */
  uint32_t width;
} fe_link_side;
enum { FE_LINK_NULLABLE = 1, FE_LINK_DESCENDING = 2 };

typedef struct {
  fe_link_side own;
  fe_link_side other;
} fe_link_part;

#define FE_NO_INDEX UINT32_MAX

/* A foreign key as one of its tables sees it. */
typedef struct {
  const char *name;            /* without the child's database */
  const char *other;           /* the other table, "db/table" */
  const fe_fk_column *columns; /* as in fe_fk_def: own is the child's, whose link it may be */
  uint32_t column_count;
  uint32_t on_delete;          /* FE_FK_... */
  uint32_t on_update;
  uint32_t carried;            /* bool: ALTER TABLE copies rows that satisfy it: no check */
  uint32_t index_no;           /* own index; FE_NO_INDEX: there is none, or no other table */
  /* Index of the other table to look in; FE_NO_INDEX likewise, but for a child without an own index. */
  uint32_t other_index_no;
  const char *parent_index;    /* name of the parent's index; NULL: there is no other_index_no */
  const fe_link_part *parts;   /* so many parts open the keys of both indexes */
  uint32_t part_count;         /* 0 without other_index_no, else column_count */
} fe_link;

/* All of a table, as they were at one moment: they never change, and keep the core's tables, not
   their trees. FE_TABLE_CHANGED when the table is dropped or emptied. */
typedef struct fe_links fe_links;
fe_code fe_links_open(fe_table *table, fe_links **out);
void fe_links_close(fe_links *links);
uint64_t fe_links_version(const fe_links *links);
/* Those of the table itself: it is the child. Sorted by name. */
const fe_link *fe_links_outgoing(const fe_links *links, uint32_t *count);
/* Those that refer to it: it is the parent. */
const fe_link *fe_links_incoming(const fe_links *links, uint32_t *count);

/* Is there a row of the other table whose entry in other_index_no begins with `prefix` (part_count
   parts, encoded as that index has them)? `incoming`, `link_no`: which link. Reads the newest state,
   waits for transactions that it depends on, locks nothing. Only after the row is written that gives
   rise to the question. `stay`: the answer is to stay as it is until the transaction ends (from
   REPEATABLE READ on), which takes locks. FE_OK: yes. FE_NOT_FOUND: no, also when there is no other
   table. FE_TABLE_CHANGED: the other table is dropped or emptied, get other links. */
fe_code fe_links_probe(const fe_links *links, int incoming, uint32_t link_no, fe_session *session,
                       fe_slice prefix, int stay);

/* What CHECK TABLE finds wrong with a foreign key. */
typedef enum {
  FE_FAULT_ORPHAN = 1,     /* the row with this clustered key has no parent */
  FE_FAULT_NO_PARENT = 2,  /* there is no parent, or no index to look in */
  FE_FAULT_PARENT_CHANGED = 3, /* the parent is newer than the snapshot: not looked at to the end */
  FE_FAULT_PADDING = 4 /* a CHAR's padding counts in one of the indexes: not looked at */
} fe_link_fault;

/* Looks for the parents of all rows of the table, which the links are of, by one snapshot; not at READ
   UNCOMMITTED. `report` gets the number of an outgoing link, what is wrong, and the clustered key of
   an orphan (of several with the same key one); it does not use the session. 0: that is enough
   of this link. FE_IN_USE: rows are in the way of a transaction from before the restart that could not be
   rolled back or given its versions; that is no fault of the table. */
fe_code fe_links_check(const fe_links *links, fe_session *session, fe_table *table,
                       int (*report)(void *arg, uint32_t link_no, fe_link_fault fault, fe_slice pk),
                       void *arg);

typedef struct {
  const char *child; /* "db/table" */
  fe_fk_def def;
} fe_fk_row;
void fe_each_foreign_key(fe_engine *engine, void (*each)(void *arg, const fe_fk_row *row),
                         void *arg);

/* ---- rows ---------------------------------------------------------------------------

   fe_payload: a row payload (clustered index only) opens with the count of overflow
   references: one byte, or from 255 on the bytes 255, count (two, little-endian), 255, 255.
   That many fe_overflow of 16 bytes each follow, and then the plugin's own bytes. The core frees an overflow
   value when the last row version that refers to it is gone. Secondary entries have a payload without this prefix. */

#define FE_OVERFLOW_BYTES 16
/* This many references and more are counted in two bytes. */
#define FE_MANY_OVERFLOW_REFS 255
/* A row payload above this is not written: move columns out of line. Key and payload together
   have the same bound as a record of a leaf. */
#define FE_MAX_INLINE_PAYLOAD 8000
#define FE_MAX_RECORD_BYTES 8200
/* A longer key is refused (FE_KEY_TOO_LONG): a leaf must hold two fences and an entry. */
#define FE_MAX_KEY_BYTES 4000

/* Filling a table that no other session can see and that is dropped if anything fails
   (ALTER TABLE by copy, CREATE TABLE ... SELECT): rows are inserted without undo and locks,
   entries of non-unique indexes sorted. Durable when end returns FE_OK. */
void fe_table_begin_load(fe_session *session, fe_table *table);
fe_code fe_table_end_load(fe_session *session, fe_table *table);
/* The read view has served its purpose: the next consistent read opens another. For ALTER TABLE
   beside writers, which then repeats their changes in the filled table, as it is at present. */
void fe_txn_close_snapshot(fe_session *session);

/* Stores a large value; `ref` gets 16 bytes for the payload. It belongs to the row that this
   session inserts or updates next, with nothing in between but further values of that row:
   if the change fails, or storing a further value does, all of them are freed. */
fe_code fe_overflow_write(fe_session *session, fe_table *table, fe_slice value,
                          uint8_t *ref);
/* Length from the reference alone, then the whole value into `out` (of that length).
   FE_NOT_FOUND at READ COMMITTED and below: the row has changed since it was read, and the value
   is gone; the row has to be read again. */
uint64_t fe_overflow_len(const uint8_t *ref);
fe_code fe_overflow_read(fe_session *session, fe_table *table, const uint8_t *ref,
                         uint8_t *out);

/* One secondary index entry as the plugin sees it: `key` holds the encoded declared key
   parts; the core appends the primary key (or row id). */
typedef struct {
  uint32_t index_no;
  uint32_t check_unique; /* 1: another live entry with the same `key` is FE_DUPLICATE */
  fe_slice key;
  fe_slice payload;
} fe_entry;

typedef struct {
  uint32_t index_no;     /* index number that was violated */
  uint32_t pk_len;
  uint8_t pk[3512];      /* clustered key of the existing row */
} fe_dup_info;

enum {
  FE_INSERT_REPLACE_HINT = 1 /* on a duplicate the caller will replace: lock it X */
};

/* Inserts a row with all its entries. For FE_TABLE_HIDDEN_ROWID, pk.ptr is NULL and
   `row_id_out` gets the 8 bytes. After any failure nothing of the row remains. */
fe_code fe_row_insert(fe_session *session, fe_table *table, fe_slice pk, fe_slice payload,
                      const fe_entry *entries, uint32_t entry_count, uint32_t flags,
                      uint8_t *row_id_out, fe_dup_info *dup);

/* Replaces the row at old_pk. removed/added: entries whose key or payload changed; an
   entry with the same key on both sides is a payload change. If the primary key changes,
   the caller gives all entries on both sides. After any failure nothing has changed. */
fe_code fe_row_update(fe_session *session, fe_table *table, fe_slice old_pk,
                      fe_slice new_pk, fe_slice payload, const fe_entry *removed,
                      uint32_t removed_count, const fe_entry *added,
                      uint32_t added_count, fe_dup_info *dup);

/* Deletes the row and its entries. */
fe_code fe_row_delete(fe_session *session, fe_table *table, fe_slice pk,
                      const fe_entry *entries, uint32_t entry_count);

/* Indexes being added to a table that has rows. Nobody changes rows meanwhile (the server's shared lock), and
   every row is read by a snapshot that is opened after the beginning. */
/* Waits for prepared transactions that have changed the table, as DDL does. Closes the session's snapshot. */
fe_code fe_index_build_begin(fe_session *session, fe_table *table, const fe_index_def *defs,
                             uint32_t count, void *thd, uint32_t wait_ms, fe_index_build **out);
/* The entries of a row; their index_no counts the build's indexes from 0. */
fe_code fe_index_build_add(fe_index_build *build, fe_slice pk, const fe_entry *entries,
                           uint32_t count);
/* Every row has been added. FE_DUPLICATE with dup filled: its index_no counts the build's indexes. */
fe_code fe_index_build_fill(fe_session *session, fe_index_build *build, fe_dup_info *dup);
/* Frees it; indexes that no table has taken go. */
void fe_index_build_close(fe_index_build *build);

/* ---- reading ---------------------------------------------------------------------- */

fe_code fe_cursor_open(fe_session *session, fe_table *table, uint32_t index_no,
                       fe_lock_mode mode, fe_wait_policy wait, fe_cursor **out);
void fe_cursor_close(fe_cursor *cursor);
/* Makes an open cursor ready for a new statement or another mode; its position is lost. */
fe_code fe_cursor_reset(fe_cursor *cursor, fe_session *session, fe_lock_mode mode,
                        fe_wait_policy wait);

typedef struct {
  fe_slice key;     /* whole index key; secondary: declared parts, then the primary key */
  fe_slice payload; /* clustered: row payload; secondary: entry payload */
  fe_slice pk;      /* clustered key (for a secondary: the tail of `key`) */
} fe_row;

/* `unique_exact`=1: key is a whole unique key without NULLs: at most one row, and no gap
   lock is needed. */
fe_code fe_cursor_seek(fe_cursor *cursor, fe_slice key, fe_seek_mode mode,
                       int unique_exact, fe_row *out);
fe_code fe_cursor_first(fe_cursor *cursor, fe_row *out);
fe_code fe_cursor_last(fe_cursor *cursor, fe_row *out);
fe_code fe_cursor_next(fe_cursor *cursor, fe_row *out);
fe_code fe_cursor_prev(fe_cursor *cursor, fe_row *out);
/* As fe_cursor_next(), if the next entry starts with `key`, as the present one does; else FE_END. A
   locking cursor then locks the gap before that entry, not the entry. */
fe_code fe_cursor_next_same(fe_cursor *cursor, fe_slice key, fe_row *out);
/* On a cursor of a secondary index: the clustered row of the current entry, by the same
   snapshot or with the same kind of lock. Valid till the next call on the cursor; the
   current position stays. */
fe_code fe_cursor_fetch_row(fe_cursor *cursor, fe_row *out);
/* A hint: stop prefetching beyond this byte bound (exclusive, in scan direction). NULL
   ptr: none. */
void fe_cursor_set_bound(fe_cursor *cursor, fe_slice bound);
/* The row just returned does not match: its locks may go (READ COMMITTED and below). */
void fe_cursor_unlock_row(fe_cursor *cursor);
/* Semi-consistent reads, until fe_cursor_reset(): at READ COMMITTED and below a scan of the
   clustered index with exclusive locks returns the newest committed state of a row that another
   transaction has locked, and does not wait. fe_cursor_was_semi_consistent() says whether the row just
   returned is such a state: it must not be changed, its out-of-line values may be gone
   (FE_NOT_FOUND), and the next step returns it again, locked, unless fe_cursor_unlock_row() is
   called before. */
void fe_cursor_try_semi_consistent(fe_cursor *cursor, int yes);
/* Until fe_cursor_reset(): no gap is locked, at any isolation level. For a cascade: whoever adds a
   child waits for its parent. Before the first search of a cursor that locks. */
void fe_cursor_lock_rows_only(fe_cursor *cursor);
int fe_cursor_was_semi_consistent(const fe_cursor *cursor);

/* Point read by clustered key without a cursor of its own (rnd_pos). */
fe_code fe_row_get(fe_cursor *clustered_cursor, fe_slice pk, fe_row *out);

/* LOCK TABLES / ALTER COPY: an exclusive or shared lock on the whole table. */
fe_code fe_table_lock(fe_session *session, fe_table *table, int exclusive);

/* ---- introspection ----------------------------------------------------------------- */

/* Numeric status: calls `each` with every counter (name without prefix). */
void fe_status_each(fe_engine *engine,
                    void (*each)(void *arg, const char *name, uint64_t value,
                                 const char *subsystem, const char *comment,
                                 int is_counter),
                    void *arg);
/* SHOW ENGINE STATUS: a section at a time. */
void fe_status_sections(fe_engine *engine,
                        void (*each)(void *arg, const char *section, const char *text),
                        void *arg);

typedef struct {
  uint64_t txn_id;
  uint64_t thread_id;
  uint64_t started_unix_s;
  uint64_t rows_changed;
  uint64_t locks_held;
  uint64_t undo_bytes;
  uint64_t waiting_since_unix_s; /* 0: not waiting */
  const char *state;             /* "RUNNING", "LOCK WAIT", "ROLLING BACK", "PREPARED" */
  const char *isolation;
} fe_trx_row;
void fe_each_trx(fe_engine *engine, void (*each)(void *arg, const fe_trx_row *row),
                 void *arg);

typedef struct {
  uint64_t lock_id;
  uint64_t txn_id;
  uint64_t thread_id;
  const char *mode;   /* "S", "X", "S,GAP", "X,GAP", "X,REC_NOT_GAP", "INSERT_INTENTION" ... */
  const char *table;  /* "db/table" */
  const char *index;
  fe_slice key;
  fe_slice until; /* empty: the one key; else a range of keys, both ends included */
  uint64_t records; /* a set of so many record locks, without their keys; 0: no set */
  int granted;
  int of_table; /* a lock on a table; its name may be unknown (empty), and so may be an index's */
} fe_lock_row;
/* Until `each` returns anything but 0. It is called without locks of the core. */
void fe_each_lock(fe_engine *engine, int (*each)(void *arg, const fe_lock_row *row), void *arg);

typedef struct {
  uint64_t requesting_txn_id;
  uint64_t requesting_thread_id;
  uint64_t requested_lock_id;
  uint64_t blocking_txn_id;
  uint64_t blocking_lock_id;
} fe_lock_wait_row;
void fe_each_lock_wait(fe_engine *engine,
                       void (*each)(void *arg, const fe_lock_wait_row *row), void *arg);

typedef struct {
  uint64_t thread_id;
  uint64_t age_ms;
  uint64_t csn;
  uint64_t held_bytes;
  uint64_t held_rows;
} fe_snapshot_row;
void fe_each_snapshot(fe_engine *engine,
                      void (*each)(void *arg, const fe_snapshot_row *row), void *arg);

/* Waits since the start of the process, one row for each reason. Percentiles are upper
   bounds to a power of two. */
typedef struct {
  const char *reason;
  const char *meaning;
  uint64_t count;
  uint64_t sum_us;
  uint64_t max_us;
  uint64_t p50_us;
  uint64_t p99_us;
} fe_wait_row;
void fe_each_wait(fe_engine *engine, void (*each)(void *arg, const fe_wait_row *row), void *arg);

/* The core's memory by parts, which add up to all of it. */
typedef struct {
  const char *part;
  const char *meaning;
  uint64_t bytes;
  uint64_t limit_bytes; /* 0: no limit of its own */
} fe_memory_row;
void fe_each_memory(fe_engine *engine, void (*each)(void *arg, const fe_memory_row *row), void *arg);

/* The last hundred deadlocks, oldest first; a row for each of their transactions, at most 17 of
   one. Each waits for the next, the last for the first. */
typedef struct {
  uint64_t number; /* of the deadlock, from 1 */
  uint64_t at_unix_us;
  uint64_t position; /* in the cycle, from 1 */
  int victim;
  uint64_t thread_id;
  uint64_t txn_id;
  uint64_t rows_changed;
  const char *table; /* empty: gone */
  const char *index; /* empty: gone, or the lock is a table's */
  fe_slice key;
  const char *waits_for; /* mode of the lock it waited for */
  const char *holds;     /* its mode on what the one before it waited for; empty: it was
                            only ahead of it in the queue */
  fe_slice query;
} fe_deadlock_row;
void fe_each_deadlock(fe_engine *engine, void (*each)(void *arg, const fe_deadlock_row *row),
                      void *arg);

/* Long waits (stall_threshold_ms), oldest first, the last thousand or so. */
typedef struct {
  uint64_t ended_unix_us;
  uint64_t waited_us;
  const char *reason;
  uint64_t thread_id;        /* 0: a thread of the core, whose name is `thread` */
  const char *thread;
  const char *table;         /* empty: the wait was for no table, or it is gone; so `index` */
  const char *index;
  uint64_t page;             /* 0: for no page */
  uint64_t holder_thread_id; /* connection that had the lock; 0: not known */
  fe_slice query;
  uint64_t txn_id; /* 0: not known, or it had changed nothing */
} fe_long_wait_row;
void fe_each_long_wait(fe_engine *engine,
                       void (*each)(void *arg, const fe_long_wait_row *row), void *arg);

#ifdef __cplusplus
}
#endif
#endif
