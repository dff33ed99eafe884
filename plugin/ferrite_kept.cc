/*
 * Kept snapshots; see ferrite_kept.h.
 */
#include "ferrite_kept.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "ferrite_hton.h"
#include "ferrite_vars.h"

namespace {

/* Longest wait for each of the locks, in seconds: everybody else waits behind it. */
constexpr double most_wait_s = 10;
/* A schedule that failed tries again after so many seconds. */
constexpr unsigned int retry_s = 10;

void refuse(const char *variable, const char *value, const char *text) {
  my_printf_error(ER_WRONG_VALUE_FOR_VAR, "Variable '%s' can't be set to '%s': %s", MYF(0),
                  variable, value, text);
}

/* The lock of BACKUP STAGE, in two strengths. */
class Stage {
 public:
  explicit Stage(THD *thd) : thd_(thd) {
    wait_s_ = std::min(static_cast<double>(thd->variables.lock_wait_timeout), most_wait_s);
    MDL_REQUEST_INIT(&request_, MDL_key::BACKUP, "", "", MDL_BACKUP_START, MDL_EXPLICIT);
  }
  ~Stage() {
    if (request_.ticket) thd_->mdl_context.release_lock(request_.ticket);
  }
  Stage(const Stage &) = delete;
  Stage &operator=(const Stage &) = delete;

  /* True: an error stands in the connection. A deadlock with a RENAME of several tables is tried
     again, as BACKUP STAGE does. */
  bool block_ddl() {
    if (thd_->mdl_context.acquire_lock(&request_, wait_s_)) return true;
    for (int left = 5;; left--) {
      if (!strengthen(MDL_BACKUP_WAIT_DDL)) return false;
      if (!left || thd_->killed || !thd_->is_error() ||
          thd_->get_stmt_da()->sql_errno() != ER_LOCK_DEADLOCK)
        return true;
      thd_->clear_error();
      my_sleep(100000);
    }
  }

  bool block_commits() { return strengthen(MDL_BACKUP_WAIT_COMMIT); }

 private:
  bool strengthen(enum_mdl_type type) {
    return thd_->mdl_context.upgrade_shared_lock(request_.ticket, type, wait_s_);
  }

  THD *thd_;
  MDL_request request_;
  double wait_s_;
};

/* What the binary log says while no commit runs. */
struct BinlogPoint {
  std::string file, gtid;
  uint64_t position = 0;

  void read() {
    if (!mysql_bin_log.is_open()) return;
    LOG_INFO log;
    if (mysql_bin_log.get_current_log(&log)) return;
    const char *base = strrchr(log.log_file_name, FN_LIBCHAR);
    file = base ? base + 1 : log.log_file_name;
    position = log.pos;
    String state;
    if (!mysql_bin_log.append_state_pos(&state)) gtid.assign(state.ptr(), state.length());
  }
};

enum class Taken { YES, NO, ERROR_IS_SET };

/* KILL has its own words, and a statement that has run for too long; else the engine stops. */
void say_interrupted(THD *thd) {
  if (thd && ferrite::is_killed(thd)) thd->send_kill_message();
  if (!thd || !thd->is_error()) my_error(ER_QUERY_INTERRUPTED, MYF(0));
}

/* Takes a snapshot; `why` it was not. */
Taken take(THD *thd, const char *name, bool scheduled, std::string *why) {
  fe_kept_job *job = nullptr;
  fe_code code = fe_kept_begin(ferrite_engine, name, thd, &job);
  if (code == FE_INTERRUPTED) {
    say_interrupted(thd);
    *why = "it was interrupted";
    return Taken::ERROR_IS_SET;
  }
  if (code != FE_OK) {
    *why = code == FE_EXISTS ? "there is such a snapshot" : fe_last_error();
    return Taken::NO;
  }
  BinlogPoint binlog;
  {
    Stage stage(thd);
    if (stage.block_ddl()) {
      fe_kept_abandon(job);
      *why = "DDL cannot be blocked";
      return Taken::ERROR_IS_SET;
    }
    if (fe_kept_files(job, mysql_real_data_home) != FE_OK) {
      *why = fe_last_error();
      fe_kept_abandon(job);
      return Taken::NO;
    }
    if (stage.block_commits()) {
      fe_kept_abandon(job);
      *why = "commits cannot be blocked";
      return Taken::ERROR_IS_SET;
    }
    binlog.read();
    fe_kept_fix(job);
  }
  const fe_kept_point point = {binlog.file.c_str(), binlog.position, binlog.gtid.c_str(),
                               scheduled};
  if (fe_kept_finish(job, &point) == FE_OK) return Taken::YES;
  *why = fe_last_error();
  return Taken::NO;
}

/* ---- the schedule ---------------------------------------------------------------------- */

struct Scheduled {
  std::string name;
  time_t taken;
};

void collect(void *arg, const fe_kept_row *row) {
  if (row->scheduled)
    static_cast<std::vector<Scheduled> *>(arg)->push_back(
        {row->name, static_cast<time_t>(row->taken_unix_s)});
}

class Schedule {
 public:
  /* False: the system refuses a thread, and nothing has changed. */
  bool set(unsigned int interval_s, unsigned int most) {
    std::unique_lock<std::mutex> guard(mutex_);
    if (interval_s && !thread_.joinable()) {
      stop_ = false;
      try {
        thread_ = std::thread([this] { run(); });
      } catch (const std::system_error &) {
        return false;
      }
    }
    interval_s_ = interval_s;
    most_ = most;
    looked_at_ = not_before_ = 0;
    changed_.notify_all();
    return true;
  }

  void stop() {
    {
      std::lock_guard<std::mutex> guard(mutex_);
      stop_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    std::unique_lock<std::mutex> guard(mutex_);
    while (!stop_) {
      changed_.wait_for(guard, std::chrono::seconds(1));
      if (stop_ || !interval_s_ || !mysqld_server_started || waits(time(nullptr))) continue;
      const unsigned int interval_s = interval_s_, most = most_;
      guard.unlock();
      const unsigned int next_s = one_round(interval_s, most);
      guard.lock();
      looked_at_ = time(nullptr);
      not_before_ = looked_at_ + next_s;
    }
  }

  /* A clock that was set back says nothing of how long it was waited. */
  bool waits(time_t now) const { return looked_at_ <= now && now < not_before_; }

  /* When the next one is to be taken. One of the future is of a clock that was wrong: who waited
     for that would wait for years. */
  static time_t due_at(const std::vector<Scheduled> &there, time_t now, unsigned int interval_s) {
    if (there.empty()) return now;
    const Scheduled &last = there.back();
    if (last.taken <= now) return last.taken + static_cast<time_t>(interval_s);
    sql_print_information(
        "Ferrite: the schedule takes a snapshot now: the clock has gone back since it took %s",
        last.name.c_str());
    return now;
  }

  /* Seconds until the next one. */
  static unsigned int one_round(unsigned int interval_s, unsigned int most) {
    std::vector<Scheduled> there;
    fe_kept_each(ferrite_engine, collect, &there);
    const time_t now = time(nullptr);
    const time_t due = due_at(there, now, interval_s);
    if (due > now) return static_cast<unsigned int>(std::min<time_t>(due - now, interval_s));
    char name[64];
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(name, sizeof name, "auto-%Y%m%d-%H%M%S", &utc);
    std::string why;
    if (!take_alone(name, &why)) {
      sql_print_warning("Ferrite: the schedule could not take a snapshot: %s", why.c_str());
      return std::min(retry_s, interval_s);
    }
    const size_t count = there.size() + 1;
    for (size_t i = 0; most && i < count - std::min<size_t>(count, most); i++)
      if (fe_kept_drop(ferrite_engine, there[i].name.c_str(), nullptr) != FE_OK)
        sql_print_warning("Ferrite: the schedule cannot drop snapshot %s: %s",
                          there[i].name.c_str(), fe_last_error());
    return interval_s;
  }

  static bool take_alone(const char *name, std::string *why) {
    THD *thd = create_background_thd();
    void *before = thd_attach_thd(thd);
    const bool taken = take(thd, name, true, why) == Taken::YES;
    if (thd->is_error()) *why += std::string(": ") + thd->get_stmt_da()->message();
    thd->clear_error();
    thd_detach_thd(before);
    destroy_background_thd(thd);
    return taken;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  bool stop_ = false;
  unsigned int interval_s_ = 0, most_ = 0;
  time_t looked_at_ = 0, not_before_ = 0;
};

Schedule schedule;

}  // namespace

bool ferrite_may_not_keep(THD *thd) { return check_global_access(thd, RELOAD_ACL); }

bool ferrite_kept_create(THD *thd, const char *name) {
  if (!ferrite_engine || !*name) return true;
  static const char *const variable = "ferrite_snapshot_create";
  if (thd->current_backup_stage != BACKUP_FINISHED || thd->global_read_lock.is_acquired() ||
      thd->locked_tables_mode || thd->mdl_backup_lock) {
    refuse(variable, name,
           "this connection holds BACKUP STAGE, BACKUP LOCK, FLUSH TABLES WITH READ"
           " LOCK or LOCK TABLES");
    return false;
  }
  if (ferrite_opened_snapshot()) {
    refuse(variable, name, "this server has a snapshot of another one open");
    return false;
  }
  std::string why;
  switch (take(thd, name, false, &why)) {
    case Taken::YES:
      return true;
    case Taken::NO:
      refuse(variable, name, why.c_str());
      return false;
    default:
      return false;
  }
}

bool ferrite_kept_drop(THD *thd, const char *name) {
  if (!ferrite_engine || !*name) return true;
  const fe_code code = fe_kept_drop(ferrite_engine, name, thd);
  if (code == FE_OK) return true;
  if (code == FE_INTERRUPTED) {
    say_interrupted(thd);
    return false;
  }
  refuse("ferrite_snapshot_drop", name,
         code == FE_NOT_FOUND ? "there is no such snapshot" : fe_last_error());
  return false;
}

bool ferrite_kept_schedule(unsigned int interval_s, unsigned int most) {
  if (!ferrite_engine || ferrite_opened_snapshot()) return true;
  return schedule.set(interval_s, most);
}

void ferrite_kept_stop() { schedule.stop(); }
