/*
 * Backups without Ferrite's rows; see ferrite_backup.h.
 */
#include "ferrite_backup.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "ferrite_hot_backup.h"
#include "ferrite_hton.h"
#include "ferrite_vars.h"

namespace {

std::shared_mutex creating;
/* A backup has begun that knows nothing of #ferrite. Under `creating`. */
bool runs_without_us = false;

/* What is on disk becomes a copy that starts fast: the log as of now, and a checkpoint. */
bool make_files_current() {
  return fe_engine_flush_log(ferrite_engine) == FE_OK &&
         fe_engine_checkpoint(ferrite_engine) == FE_OK;
}

}  // namespace

void ferrite_prepare_for_backup() {
  THD *thd = current_thd;
  if (!ferrite_engine || !thd) return;
  /* The rows are in a backup of our own, which belongs to this one. */
  if (ferrite_hot_backup_waits_for(thd)) return;
  if (ferrite_allow_backup_stage(thd)) {
    if (!make_files_current())
      my_printf_error(ER_BACKUP_STAGE_FAILED,
                      "Ferrite: cannot flush the log and take a checkpoint: %s", MYF(0),
                      fe_last_error());
    return;
  }
  uint64_t tables;
  {
    std::lock_guard<std::shared_mutex> guard(creating);
    tables = fe_table_count(ferrite_engine);
    runs_without_us = true;
  }
  if (!tables) return;
  const std::string others = ferrite_hot_backup_of_others(thd);
  const std::string advice =
      others.empty()
          ? "Begin a backup with ferrite_backup_dir first (./ferrite backup does both), or use"
            " mariadb-dump or a volume snapshot (a tool that copies #ferrite sets"
            " ferrite_allow_backup_stage=1)"
          : others;
  my_printf_error(
      ER_BACKUP_STAGE_FAILED,
      "This backup would contain no rows of %llu FERRITE tables: mariadb-backup does not copy"
      " the directory #ferrite. %s",
      MYF(ME_ERROR_LOG), static_cast<ulonglong>(tables), advice.c_str());
}

void ferrite_end_backup() {
  ferrite_hot_backup_stage_ends(current_thd);
  std::lock_guard<std::shared_mutex> guard(creating);
  runs_without_us = false;
}

fe_code ferrite_create_table(const fe_table_def *def, THD *thd, bool *refused) {
  *refused = false;
  if (def->flags & FE_TABLE_TEMPORARY) return fe_table_create(ferrite_engine, def, thd);
  std::shared_lock<std::shared_mutex> guard(creating);
  if (!runs_without_us) return fe_table_create(ferrite_engine, def, thd);
  *refused = true;
  my_printf_error(ER_BACKUP_STAGE_FAILED,
                  "No FERRITE table can be created during this backup: it was started without"
                  " ferrite_allow_backup_stage and would not contain its rows",
                  MYF(0));
  return FE_UNSUPPORTED;
}

/* ---- a copy without #ferrite ----------------------------------------------------------- */

namespace {

/* Names shown of the tables that were found. */
constexpr size_t max_named = 5;
/* No .frm file of a table is larger. */
constexpr size_t max_frm_bytes = 1 << 20;

struct Lost {
  uint64_t count = 0;
  std::string named;
};

/* Byte 3 of a .frm file is the engine's number. Ferrite's is assigned at run time (the file then
   has the name, after its length), or it is that of partitioning. */
bool may_be_ours(const uchar *header) {
  return header[0] == 0xfe && header[1] == 1 &&
         (header[3] >= DB_TYPE_FIRST_DYNAMIC || header[3] == DB_TYPE_PARTITION_DB);
}

bool is_ours(const char *path) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  uchar header[64];
  std::string frm;
  if (::pread(fd, header, sizeof header, 0) == static_cast<ssize_t>(sizeof header) &&
      may_be_ours(header)) {
    frm.resize(max_frm_bytes);
    const ssize_t got = ::pread(fd, &frm[0], frm.size(), 0);
    frm.resize(got > 0 ? static_cast<size_t>(got) : 0);
  }
  ::close(fd);
  static const std::string table("\x07\0FERRITE", 9), partitions(
                                                          "\x07"
                                                          "FERRITE",
                                                          8);
  return frm.find(table) != std::string::npos || frm.find(partitions) != std::string::npos;
}

/* Calls `each` with the name of every entry that does not begin with a dot or '#'. */
template <class Each>
void each_entry(const std::string &directory, Each each) {
  DIR *dir = ::opendir(directory.c_str());
  if (!dir) return;
  while (const dirent *entry = ::readdir(dir))
    if (entry->d_name[0] != '.' && entry->d_name[0] != '#') each(std::string(entry->d_name));
  ::closedir(dir);
}

void find_in_database(const std::string &home, const std::string &db, Lost *lost) {
  each_entry(home + db, [&](const std::string &file) {
    static const std::string extension = ".frm";
    if (file.size() <= extension.size() ||
        file.compare(file.size() - extension.size(), extension.size(), extension))
      return;
    if (!is_ours((home + db + "/" + file).c_str())) return;
    if (lost->count++ < max_named)
      lost->named += (lost->count > 1 ? ", " : "") + db + "." + file.substr(0, file.size() - 4);
  });
}

}  // namespace

void ferrite_report_lost_tables() {
  if (fe_table_count(ferrite_engine)) return;
  std::string home = mysql_real_data_home;
  if (home.empty() || home.back() != FN_LIBCHAR) home += FN_LIBCHAR;
  Lost lost;
  each_entry(home, [&](const std::string &db) { find_in_database(home, db, &lost); });
  if (!lost.count) return;
  sql_print_error(
      "Ferrite: THE ROWS OF %llu TABLES ARE MISSING. The data directory %s has the .frm files of"
      " FERRITE tables (%s%s), but its directory #ferrite contains no tables. It is a copy or a"
      " restored backup that was made without #ferrite, for instance by mariadb-backup. The rows"
      " are still where the copy was made from. See docs/operating/backup.md.",
      static_cast<ulonglong>(lost.count), home.c_str(), lost.named.c_str(),
      lost.count > max_named ? ", ..." : "");
}

int ferrite_table_is_lost(const char *db, const char *table) {
  my_printf_error(
      ER_NO_SUCH_TABLE_IN_ENGINE,
      "Table '%s.%s' doesn't exist in engine: its .frm file exists, but its rows are not in"
      " the directory #ferrite (a backup or copy made without that directory has no rows)",
      MYF(0), db, table);
  return HA_ERR_NO_SUCH_TABLE;
}
