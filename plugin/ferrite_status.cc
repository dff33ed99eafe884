/*
 * Status variables Ferrite_... and SHOW ENGINE FERRITE STATUS.
 *
 * Rules of this module
 * - The core names its counters; nothing here lists them. A counter added there is a status
 *   variable and a row of FERRITE_METRICS without a change here.
 * - The array made for one SHOW lives on the statement's memory root: several connections
 *   may ask at the same time, and the server walks the array after the function returned.
 * - The core's callbacks only collect: nothing is sent or stored while it may hold a lock.
 */
#include <string>
#include <utility>
#include <vector>

#include "server_compat.h"

#include "ferrite_hton.h"
#include "ferrite_vars.h"

namespace {

using Counters = std::vector<std::pair<std::string, uint64_t>>;
using Sections = std::vector<std::pair<std::string, std::string>>;

void collect_counter(void *arg, const char *name, uint64_t value, const char *, const char *, int) {
  static_cast<Counters *>(arg)->emplace_back(name, value);
}

void collect_section(void *arg, const char *section, const char *text) {
  static_cast<Sections *>(arg)->emplace_back(section, text);
}

int show_counters(THD *thd, struct st_mysql_show_var *var, void *, struct system_status_var *,
                  enum enum_var_type) {
  static struct st_mysql_show_var none[] = {{nullptr, nullptr, SHOW_UNDEF}};
  var->type = SHOW_ARRAY;
  var->value = none;
  if (!ferrite_engine || !thd) return 0;

  Counters counters;
  fe_status_each(ferrite_engine, collect_counter, &counters);
  const size_t n = counters.size();
  auto *array =
      static_cast<st_mysql_show_var *>(thd_alloc(thd, (n + 1) * sizeof(st_mysql_show_var)));
  auto *values = static_cast<ulonglong *>(thd_alloc(thd, (n + 1) * sizeof(ulonglong)));
  if (!array || !values) return 0;
  size_t filled = 0;
  for (const auto &counter : counters) {
    const char *name = thd_strmake(thd, counter.first.data(), counter.first.size());
    if (!name) break;
    values[filled] = counter.second;
    array[filled] = {name, &values[filled], SHOW_ULONGLONG};
    filled++;
  }
  array[filled] = {nullptr, nullptr, SHOW_UNDEF};
  var->value = array;
  return 0;
}

}  // namespace

struct st_mysql_show_var ferrite_status_variables[] = {
    {"Ferrite", reinterpret_cast<void *>(show_counters), SHOW_FUNC},
    {nullptr, nullptr, SHOW_UNDEF}};

/* One row per section. MUTEX and LOGS have none: waits are in FERRITE_WAITS and in the metrics. */
bool ferrite_show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type) {
  if (type != HA_ENGINE_STATUS || !ferrite_engine) return false;
  Sections sections;
  fe_status_sections(ferrite_engine, collect_section, &sections);
  static const char engine[] = "FERRITE";
  for (const auto &section : sections) {
    if (print(thd, engine, sizeof engine - 1, section.first.data(), section.first.size(),
              section.second.data(), section.second.size()))
      return true;
  }
  return false;
}
