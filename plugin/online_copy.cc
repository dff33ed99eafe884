/* See online_copy.h. */

#include "online_copy.h"

#include "ferrite_error.h"
#include "ferrite_hton.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

namespace {

/* Transactions that others see and that are not in the logs yet, in the order of their commits. */
class Unwritten {
 public:
  void add(ferrite_unwritten *one) {
    std::lock_guard<std::mutex> guard(mutex_);
    DBUG_ASSERT(!one->ticket && !one->before && !one->after);
    one->ticket = next_++;
    one->before = last_;
    (last_ ? last_->after : first_) = one;
    last_ = one;
    count_++;
  }

  void remove(ferrite_unwritten *one) {
    {
      std::lock_guard<std::mutex> guard(mutex_);
      DBUG_ASSERT(count_ && one->ticket && one->ticket < next_);
      (one->before ? one->before->after : first_) = one->after;
      (one->after ? one->after->before : last_) = one->before;
      *one = ferrite_unwritten();
      count_--;
    }
    one_less_.notify_all();
  }

  /* Until those that are there now are written. False: KILL. */
  bool wait(THD *thd) {
    if (likely(!count_)) return true;
    std::unique_lock<std::mutex> guard(mutex_);
    const uint64_t end = next_;
    if (is_written_before(end)) return true;
    const char *info = thd_proc_info(thd, "Waiting for the log of ALTER TABLE");
    while (!is_written_before(end) && !ferrite::is_killed(thd))
      one_less_.wait_for(guard, std::chrono::milliseconds(kLookMs));
    thd_proc_info(thd, info);
    return is_written_before(end);
  }

 private:
  static constexpr int kLookMs = 50; /* between two looks for a KILL */

  bool is_written_before(uint64_t end) const { return !first_ || first_->ticket >= end; }

  std::mutex mutex_;
  std::condition_variable one_less_;
  ferrite_unwritten *first_ = nullptr;
  ferrite_unwritten *last_ = nullptr;
  uint64_t next_ = 1;
  std::atomic<size_t> count_{0}; /* changed under the mutex */
} unwritten;

/* The participants end in the reverse of the order in which they came: of an older one than Ferrite
   the rows are written when others have long seen the commit. */
bool is_written_late(THD *thd) {
  if (!ferrite_in_transaction(thd)) return false;
  const Ha_trx_info *ours = &thd->ha_data[ferrite_hton->slot].ha_info[1];
  for (const Ha_trx_info *i = ours->is_started() ? ours->next() : nullptr; i; i = i->next())
    if (ferrite::is_online_log(*i)) return true;
  return false;
}

void count_wrong(const std::vector<ferrite_wrong_logs> &of) {
  for (const ferrite_wrong_logs &table : of) (*table)++;
}

/* What transactions have changed that wait under their xids. */
class Prepared {
 public:
  void add(const fe_xid &xid, std::vector<ferrite_wrong_logs> &&of, bool is_wrong) {
    std::lock_guard<std::mutex> guard(mutex_);
    by_xid_[key(xid)] = {std::move(of), is_wrong};
  }

  void count(const fe_xid &xid, bool may_be_lost) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = by_xid_.find(key(xid));
    if (found == by_xid_.end()) return;
    DBUG_ASSERT(!found->second.of.empty());
    if (found->second.is_wrong || may_be_lost) count_wrong(found->second.of);
  }

  void remove(const fe_xid &xid) {
    std::lock_guard<std::mutex> guard(mutex_);
    by_xid_.erase(key(xid));
  }

 private:
  struct Changes {
    std::vector<ferrite_wrong_logs> of;
    bool is_wrong;
  };

  static std::string key(const fe_xid &xid) {
    DBUG_ASSERT(xid.gtrid_len + xid.bqual_len <= sizeof xid.data);
    const std::string data(reinterpret_cast<const char *>(xid.data), xid.gtrid_len + xid.bqual_len);
    return std::to_string(xid.format_id) + ' ' + std::to_string(xid.gtrid_len) + ' ' + data;
  }

  std::mutex mutex_;
  std::map<std::string, Changes> by_xid_;
} prepared;

bool waits_under_xid(const ferrite_conn *conn) {
  return conn->waits_for_xid || conn->has_only_read;
}

/* Of a VARCHAR, with the bytes of its length. */
ulonglong varchar_bytes(const Field *field, const uchar *at) {
  const uint length_bytes = static_cast<const Field_varstring *>(field)->length_bytes;
  return length_bytes + (length_bytes == 1 ? *at : uint2korr(at));
}

/* Of an event without its rows. */
ulonglong event_bytes(const TABLE *table) { return 32 + 2 * ((table->s->fields + 7) / 8); }

/* A row event has at most so many of the row. */
ulonglong most_bytes(const TABLE *table, const uchar *row) {
  /* A bit for each column, and the length of what is packed. */
  ulonglong bytes = (table->s->fields + 7) / 8 + 2 * table->s->fields;
  for (Field **field = table->field; *field; field++) {
    const my_ptrdiff_t moved = row - table->record[0];
    if ((*field)->is_null_in_record(row)) continue;
    bytes += (*field)->real_type() == MYSQL_TYPE_VARCHAR
                 ? varchar_bytes(*field, (*field)->ptr + moved)
                 : (*field)->pack_length();
    if ((*field)->flags & BLOB_FLAG) bytes += static_cast<Field_blob *>(*field)->get_length(moved);
  }
  return bytes;
}

}  // namespace

fe_code ferrite_begin_online_copy(THD *thd, const std::string &name) {
  return fe_table_wait_for_prepared(ferrite_engine, name.c_str(), thd, ferrite_ddl_wait_ms(thd));
}

void ferrite_end_online_copy(THD *thd, const std::string &name, const ferrite_wrong_logs &of,
                             uint64_t wrong_before) {
  DBUG_ASSERT(of && wrong_before <= *of);
  ferrite_conn *conn = ferrite_conn_of(thd);
  conn->copy.by = thd->query_id;
  conn->copy.name = name;
  conn->copy.decided = fe_table_decided_commits(ferrite_engine, name.c_str());
  conn->copy.wrong_logs = of;
  conn->copy.wrong_before = wrong_before;
}

/* Nobody can use the table meanwhile; but the copy may have taken hours. */
static constexpr uint64_t check_wait_ms = 5000;

int ferrite_check_online_copy(THD *thd, const ferrite_conn *conn) {
  if (conn->copy.by != thd->query_id) return 0;
  const fe_code rc =
      fe_table_wait_for_prepared(ferrite_engine, conn->copy.name.c_str(), thd, check_wait_ms);
  if (rc != FE_OK) {
    if (rc == FE_LOCK_TIMEOUT) my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
    return ferrite_table_error(rc, thd);
  }
  if (conn->copy.wrong_before != conn->copy.wrong_logs->load()) {
    my_printf_error(ER_TABLE_DEF_CHANGED,
                    "The table was not altered: a transaction that has written to it meanwhile had"
                    " rolled back a part of its changes (a statement of many rows, twice to one"
                    " savepoint, in a trigger), which the server's log of changes beside ALTER"
                    " TABLE cannot repeat, or there was no space in tmpdir for that log. Try again,"
                    " or with LOCK=SHARED",
                    MYF(0));
    return HA_ERR_TABLE_DEF_CHANGED;
  }
  if (conn->copy.decided == fe_table_decided_commits(ferrite_engine, conn->copy.name.c_str()))
    return 0;
  my_error(ER_TABLE_DEF_CHANGED, MYF(0));
  return HA_ERR_TABLE_DEF_CHANGED;
}

void ferrite_logged_row(THD *thd, const TABLE *table, const ferrite_wrong_logs &of, LoggedKind kind,
                        const uchar *row, const uchar *old_row) {
  ferrite_logged_changes *logged = &ferrite_conn_of(thd)->logged;
  ferrite_logged_statement *now = &logged->statement;
  const bool is_other = now->of != of.get() || now->kind != kind;
  if (is_other) now->bytes = event_bytes(table);
  now->bytes += most_bytes(table, row) + (old_row ? most_bytes(table, old_row) : 0);
  if (now->of && (is_other || now->bytes > opt_binlog_rows_event_max_size)) now->in_pieces = true;
  now->of = of.get();
  now->kind = kind;
  if (logged->of.empty() && unlikely(is_written_late(thd))) logged->is_wrong = true;
  if (std::find(logged->of.begin(), logged->of.end(), of) == logged->of.end())
    logged->of.push_back(of);
  /* For each row: what was found or seen there may be of one that has just committed. Killed:
     should the transaction be committed all the same, it may come too early. */
  if (unlikely(!unwritten.wait(thd))) logged->is_wrong = true;
}

void ferrite_logged_statement_ends(ferrite_conn *conn) {
  conn->logged.statement = ferrite_logged_statement();
}

/* Another participant's error before ours counts as well: that is rare. */
void ferrite_logged_may_be_lost(THD *thd, ferrite_conn *conn) {
  if (unlikely(!conn->logged.of.empty() && thd->is_error())) conn->logged.is_wrong = true;
}

void ferrite_logged_is_kept(THD *thd, ferrite_conn *conn) {
  if (unlikely(waits_under_xid(conn))) {
    ferrite_logged_by_xid_is_kept(thd, conn->xid);
    ferrite_logged_by_xid_is_over(conn->xid);
  }
  if (unlikely(conn->logged.is_wrong)) count_wrong(conn->logged.of);
  conn->logged.is_wrong = false;
}

void ferrite_logged_is_prepared(ferrite_conn *conn) {
  if (likely(conn->logged.of.empty())) return;
  prepared.add(conn->xid, std::move(conn->logged.of), conn->logged.is_wrong);
  conn->logged = ferrite_logged_changes();
}

void ferrite_logged_by_xid_is_kept(THD *thd, const fe_xid &xid) {
  prepared.count(xid, thd && thd->is_error());
}

void ferrite_logged_by_xid_is_over(const fe_xid &xid) { prepared.remove(xid); }

/* The leader of a group may look at `logged`: the thread that it is of waits for the leader. */
void ferrite_logged_is_seen(ferrite_conn *conn) {
  if (unlikely(!conn->logged.of.empty())) unwritten.add(&conn->unwritten);
}

void ferrite_logged_is_written(ferrite_conn *conn) {
  if (unlikely(conn->unwritten.ticket)) unwritten.remove(&conn->unwritten);
}

void ferrite_logged_is_undone(THD *thd, const ferrite_conn *conn) {
  if (unlikely(waits_under_xid(conn))) ferrite_logged_by_xid_is_over(conn->xid);
  if (conn->logged.of.empty() || conn->prepared) return;
  if (thd->transaction->xid_state.get_state_code() == XA_ROLLBACK_ONLY)
    count_wrong(conn->logged.of);
}

void ferrite_logged_statement_undone(ferrite_conn *conn) {
  ferrite_logged_changes *logged = &conn->logged;
  const ferrite_logged_statement &undone = logged->statement;
  if (undone.of && (undone.in_pieces || (logged->went_back && logged->of.size() > 1)))
    logged->is_wrong = true;
  ferrite_logged_statement_ends(conn);
}

void ferrite_logged_savepoint(const ferrite_conn *conn, ferrite_savepoint *savepoint) {
  savepoint->was_logged = conn && !conn->logged.of.empty();
  savepoint->rolled_back = false;
}

void ferrite_logged_savepoint_undone(ferrite_conn *conn, ferrite_savepoint *savepoint) {
  ferrite_logged_changes *logged = &conn->logged;
  if (logged->of.empty()) return;
  const bool is_amid = logged->statement.of;
  if (is_amid || (savepoint->was_logged && savepoint->rolled_back)) logged->is_wrong = true;
  savepoint->rolled_back = true;
  logged->went_back = true;
}
