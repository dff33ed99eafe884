/*
 * What is said of violated foreign keys: errors 1451 and 1452 name the constraint as InnoDB does,
 * and the latest of them are kept for FERRITE_FOREIGN_KEY_ERRORS and FERRITE_TRX.
 */
#include "ferrite_violation.h"

#include <atomic>
#include <mutex>

#include "ferrite_error.h"
#include "ferrite_foreign.h"
#include "ferrite_hton.h"
#include "ferrite_query.h"

/* As long as InnoDB's. */
static constexpr size_t kTextBytes = 512;
static constexpr size_t kQueryBytes = 1024;
static constexpr size_t kKept = 100;

static thread_local char violation[kTextBytes];

static std::mutex journal_mutex;
static ferrite::Violation journal[kKept];
static uint64_t journal_count;

static ulonglong transaction_of(THD *thd) {
  ferrite_conn *conn = static_cast<ferrite_conn *>(thd_get_ha_data(thd, ferrite_hton));
  return conn && conn->session ? fe_txn_id(conn->session) : 0;
}

/* The strings of a place keep their memory: after a while nothing is allocated. */
static void keep(THD *thd, const fe_link &link, const std::string &child, const std::string &parent,
                 bool in_child) {
  char query[kQueryBytes];
  const size_t query_len = ferrite_own_query(thd, query, sizeof query);
  const uint64_t trx_id = transaction_of(thd);
  const my_hrtime_t now = my_hrtime();
  std::lock_guard<std::mutex> guard(journal_mutex);
  ferrite::Violation &to = journal[journal_count % kKept];
  to.number = ++journal_count;
  to.at_unix_us = now.val;
  to.thread_id = thd_get_thread_id(thd);
  to.trx_id = trx_id;
  to.in_child = in_child;
  to.child = child;
  to.parent = parent;
  to.name = link.name;
  to.query.assign(query, query_len);
  to.text = violation;
}

void ferrite_note_violation(THD *thd, const fe_link &link, const std::string &child,
                            const std::string &parent, bool in_child) {
  String text;
  ferrite_append_table(thd, &text, child);
  text.append(',');
  ferrite_append_constraint(thd, &text, link, child, parent);
  strmake(violation, text.c_ptr_safe(), kTextBytes - 1);
  keep(thd, link, child, parent, in_child);
}

/* InnoDB's words: scripts look for them, in the warnings and in the error log. */
void ferrite_warn_of_depth(THD *thd, uint max) {
  static std::atomic<time_t> last_logged{0};
  ferrite_warn(thd, HA_ERR_ROW_IS_REFERENCED,
               "Ferrite: Cannot delete/update rows with cascading foreign key constraints that "
               "exceed max depth of %u. Please drop extra constraints and try again",
               max);
  const time_t now = time(nullptr);
  if (last_logged.exchange(now) == now) return;
  sql_print_warning(
      "Ferrite: Cannot delete/update rows with cascading foreign key constraints that"
      " exceed max depth of %u. Please drop excessive foreign constraints and try"
      " again: %s",
      max, violation);
}

bool ferrite_violation_text(String *buf) {
  if (!violation[0]) return false;
  buf->copy(violation, strlen(violation), system_charset_info);
  return true;
}

void ferrite_forget_violation() { violation[0] = '\0'; }

namespace ferrite {

std::vector<Violation> violations() {
  std::lock_guard<std::mutex> guard(journal_mutex);
  std::vector<Violation> all;
  const uint64_t first = journal_count > kKept ? journal_count - kKept : 0;
  for (uint64_t n = first; n < journal_count; n++) all.push_back(journal[n % kKept]);
  return all;
}

}  // namespace ferrite
