/*
 * Statistics for the optimizer: table sizes, rows per key value, rows in a range, costs.
 *
 * Rows per key value come from sampled leaves: within a leaf neighbours are compared, and
 * from leaf to leaf the values are compared too, which catches columns with few values.
 * They are kept with the table in the core and counted anew by ANALYZE TABLE, when there are none,
 * and when more than a tenth of the rows has changed since. The number of rows is counted as they
 * change; each of these holds it against a sample, and so does the first use of the table after a
 * crash. The costs follow InnoDB's formulas.
 */
#include <algorithm>

#include "ha_ferrite.h"

#include "ferrite_error.h"
#include "ferrite_hton.h"
#include "ferrite_vars.h"

using ferrite::Index;
using ferrite::KeyPart;
using ferrite::Layout;

namespace {

constexpr uint8_t kStatsVersion = 2;
/* What the core keeps of them (MAX_SPEC_BYTES in catalog/spec.rs). */
constexpr size_t kMaxStatsBytes = 8000;
/* As many as InnoDB's automatic recount: fewer let plans depend on luck. */
constexpr uint32_t kQuickPages = 20;

/* Collects how often each leading run of parts changes, over sampled leaves. */
struct Sampler {
  const std::vector<const KeyPart *> *parts;
  std::vector<uint8_t> last;
  std::vector<size_t> last_ends;
  std::vector<size_t> ends;
  std::vector<uint64_t> changes;      /* between neighbours in a leaf */
  std::vector<uint64_t> leaf_changes; /* from one sampled leaf to the next */
  uint64_t pairs = 0;
  uint64_t entries = 0;
  uint64_t leaves = 0;

  void add(fe_slice key, bool first) {
    const size_t n = parts->size();
    ends.assign(n, 0);
    const uint8_t *p = key.ptr, *end = key.ptr + key.len;
    for (size_t i = 0; i < n; i++) {
      const uint8_t *next = (*parts)[i]->skip(p, end);
      p = next ? next : end;
      ends[i] = static_cast<size_t>(p - key.ptr);
    }
    if (entries) {
      if (!first) pairs++;
      size_t same = 0;
      const size_t common = std::min(last.size(), key.len);
      while (same < common && last[same] == key.ptr[same]) same++;
      for (size_t i = 0; i < n; i++)
        if (same < ends[i] || ends[i] != last_ends[i]) (first ? leaf_changes : changes)[i]++;
    }
    if (first) leaves++;
    entries++;
    last.assign(key.ptr, end);
    last_ends = ends;
  }
  static void callback(void *self, fe_slice key, int first) {
    static_cast<Sampler *>(self)->add(key, first != 0);
  }
};

/* Rows per value of each leading run of `parts`. */
std::vector<double> sample_index(fe_table *table, const Index &index,
                                 const std::vector<const KeyPart *> &parts, uint32_t pages,
                                 uint64_t rows) {
  Sampler s;
  s.parts = &parts;
  s.changes.assign(parts.size(), 0);
  s.leaf_changes.assign(parts.size(), 0);
  fe_index_sample(table, index.no, pages, Sampler::callback, &s);
  std::vector<double> result(parts.size(), 1.0);
  if (!s.entries || !rows) return result;
  const bool all_seen = s.entries >= rows;
  for (size_t i = 0; i < parts.size(); i++) {
    const double seen = static_cast<double>(s.changes[i] + s.leaf_changes[i]) + 1;
    double values = seen;
    if (!all_seen && s.pairs) {
      double rate = static_cast<double>(s.changes[i]) / static_cast<double>(s.pairs);
      values = std::max(seen, rate * static_cast<double>(rows));
    }
    result[i] = std::max(1.0, static_cast<double>(all_seen ? s.entries : rows) / values);
  }
  return result;
}

/* Declared parts, then the primary key's, as they lie in an entry. */
std::vector<const KeyPart *> physical_parts(const Layout &layout, const Index &index) {
  std::vector<const KeyPart *> parts;
  for (const KeyPart &part : index.parts) parts.push_back(&part);
  if (index.no && layout.primary())
    for (const KeyPart &part : layout.primary()->parts) parts.push_back(&part);
  return parts;
}

/* With at most so many figures of each index. `rows`: of the table then. */
std::string pack_figures(const std::vector<std::vector<double>> &stats, uint64_t rows,
                         size_t most) {
  std::string blob(1, static_cast<char>(kStatsVersion));
  blob.append(reinterpret_cast<const char *>(&rows), sizeof rows);
  blob.push_back(static_cast<char>(stats.size()));
  for (const std::vector<double> &index : stats) {
    const size_t count = std::min(index.size(), most);
    blob.push_back(static_cast<char>(count));
    for (size_t i = 0; i < count; i++)
      blob.append(reinterpret_cast<const char *>(&index[i]), sizeof index[i]);
  }
  return blob;
}

/* Of many indexes before a long primary key the last columns of the primary key are left out: by
   then a key has a row, or few. */
std::string pack_stats(const std::vector<std::vector<double>> &stats, uint64_t rows) {
  size_t most = 2 * MAX_REF_PARTS;
  std::string blob = pack_figures(stats, rows, most);
  while (blob.size() > kMaxStatsBytes && most) blob = pack_figures(stats, rows, --most);
  return blob;
}

bool unpack_stats(fe_slice blob, std::vector<std::vector<double>> *stats, uint64_t *rows) {
  const uint8_t *p = blob.ptr, *end = p + blob.len;
  if (blob.len < 2 + sizeof *rows || *p++ != kStatsVersion) return false;
  memcpy(rows, p, sizeof *rows);
  p += sizeof *rows;
  stats->assign(*p++, {});
  for (std::vector<double> &index : *stats) {
    if (p >= end) return false;
    index.assign(*p++, 1.0);
    if (static_cast<size_t>(end - p) < index.size() * sizeof(double)) return false;
    for (double &v : index) {
      memcpy(&v, p, sizeof v);
      p += sizeof v;
    }
  }
  return true;
}

}  // namespace

/* ---- statistics -------------------------------------------------------------------- */

/* Are the share's statistics, which are loaded here the first time, to be counted anew? What was
   changed before a restart shows in the number of rows only. The caller holds stats_mutex. */
bool ha_ferrite::stats_are_stale(const fe_table_stats &now) {
  if (!m_share->stats_loaded) {
    m_share->stats_loaded = true;
    std::vector<std::vector<double>> loaded;
    if (!unpack_stats(fe_table_stats_blob(m_share->table), &loaded, &m_share->stats_rows) ||
        loaded.size() != layout().indexes.size())
      loaded.clear();
    m_share->records_per_key = std::move(loaded);
  }
  if (m_share->records_per_key.empty()) return now.rows || now.changes_since_stats;
  const uint64_t then = m_share->stats_rows;
  const uint64_t off = now.rows > then ? now.rows - then : then - now.rows;
  return std::max(now.changes_since_stats, off) > now.rows / 10 + 200;
}

/* Loads or recounts the share's statistics. Without `force` only when they are stale. */
void ha_ferrite::refresh_stats(bool force) {
  const uint32_t pages = force ? std::max(ferrite_stats_sample_pages(), kQuickPages) : kQuickPages;
  fe_table_stats now;
  fe_table_get_stats(m_share->table, &now);
  auto check_rows = [&] {
    fe_table_check_rows(m_share->table, pages);
    fe_table_get_stats(m_share->table, &now);
  };
  const bool checked = force || now.rows_doubtful;
  if (checked) check_rows();
  {
    std::lock_guard<std::mutex> guard(m_share->stats_mutex);
    const bool stale = stats_are_stale(now);
    if (!force && !stale) return;
    if (m_share->stats_running) return;
    m_share->stats_running = true;
  }
  if (!checked) check_rows();
  std::vector<std::vector<double>> fresh;
  for (const Index &index : layout().indexes) {
    std::vector<const KeyPart *> parts = physical_parts(layout(), index);
    if (index.no == 0 && layout().hidden_row_id)
      fresh.emplace_back();
    else
      fresh.push_back(sample_index(m_share->table, index, parts, pages, now.rows));
  }
  std::string blob = pack_stats(fresh, now.rows);
  fe_table_set_stats(m_share->table, {reinterpret_cast<const uint8_t *>(blob.data()), blob.size()});
  std::lock_guard<std::mutex> guard(m_share->stats_mutex);
  m_share->stats_rows = now.rows;
  m_share->records_per_key = std::move(fresh);
  m_share->stats_running = false;
}

/* Passes rec_per_key to the server. */
void ha_ferrite::publish_stats() {
  std::lock_guard<std::mutex> guard(m_share->stats_mutex);
  for (const Index &index : layout().indexes) {
    if (index.server_no == MAX_KEY) continue;
    KEY *key = &table->key_info[index.server_no];
    if (!key->rec_per_key) continue;
    const bool known = index.no < m_share->records_per_key.size();
    const size_t declared = index.parts.size();
    for (uint i = 0; i < key->ext_key_parts && i < index.tuple_parts.size(); i++) {
      int id = index.tuple_parts[i];
      size_t at = id >= 0 ? static_cast<size_t>(id) : declared + static_cast<size_t>(~id);
      double v = 1;
      if (known && at < m_share->records_per_key[index.no].size())
        v = m_share->records_per_key[index.no][at];
      const bool unique = index.unique && i + 1 >= declared && !(key->flags & HA_NULL_PART_KEY);
      if (unique || (i >= declared && at + 1 == declared + layout().indexes[0].parts.size())) v = 1;
      ulong n = static_cast<ulong>(v / ferrite::cardinality_divisor(ha_thd()));
      key->rec_per_key[i] = n ? n : 1;
    }
  }
}

int ha_ferrite::analyze(THD *, HA_CHECK_OPT *) {
  refresh_stats(true);
  info(HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_TIME);
  return HA_ADMIN_OK;
}

int ha_ferrite::info(uint flag) {
  if (!m_share) return 0;
  if (flag & HA_STATUS_CONST) {
    /* First: it may correct the number of rows. */
    refresh_stats(false);
    publish_stats();
  }
  if (flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_TIME)) {
    fe_table_stats now;
    const uint exact = HA_STATUS_CONST | HA_STATUS_TIME | HA_STATUS_VARIABLE_EXTRA;
    if (flag & exact)
      fe_table_get_stats(m_share->table, &now);
    else
      fe_table_get_estimate(m_share->table, &now);
    if (flag & HA_STATUS_VARIABLE) {
      stats.records = now.rows;
      /* Zero would mean "certainly empty" to the optimizer. */
      if (!stats.records && !(flag & (HA_STATUS_TIME | HA_STATUS_OPEN))) stats.records = 1;
      if (thd_sql_command(ha_thd()) == SQLCOM_TRUNCATE) stats.records = 1;
      stats.deleted = 0;
      stats.data_file_length = now.data_bytes;
      stats.index_file_length = now.index_bytes;
      stats.delete_length = now.free_bytes;
      stats.mean_rec_length =
          stats.records ? static_cast<ulong>(now.data_bytes / stats.records) : 0;
      stats.check_time = 0;
      stats.mrr_length_per_rec = ref_length + 8;
    }
    if (flag & HA_STATUS_TIME) stats.update_time = static_cast<time_t>(now.updated_unix_s);
    if (flag & HA_STATUS_CONST) stats.create_time = static_cast<time_t>(now.created_unix_s);
  }
  if ((flag & HA_STATUS_AUTO) && table->found_next_number_field)
    stats.auto_increment_value = fe_autoinc_read(m_share->table);
  if (flag & HA_STATUS_ERRKEY) errkey = s_duplicate_key;
  return 0;
}

/* ---- ranges and costs -------------------------------------------------------------- */

ha_rows ha_ferrite::records_in_range(uint inx, const key_range *min_key, const key_range *max_key,
                                     page_range *) {
  const Index &index = layout().indexes[layout().by_server[inx]];
  ferrite::Buffer high_buffer;
  if (!high_buffer.reserve(layout().max_key + 16)) return HA_POS_ERROR;
  fe_slice low = {nullptr, 0}, high = {nullptr, 0};
  uint parts;
  bool has_null;
  if (min_key) {
    uint8_t *key = m_seek_key.data();
    uint8_t *end = ferrite::encode_tuple(index, layout().primary(), min_key->key, min_key->length,
                                         key, m_scratch.data(), &parts, &has_null);
    low = {key, static_cast<size_t>(end - key)};
    if (min_key->flag == HA_READ_AFTER_KEY && !ferrite::successor(key, &low.len)) return 1;
  }
  if (max_key) {
    uint8_t *key = high_buffer.data();
    uint8_t *end = ferrite::encode_tuple(index, layout().primary(), max_key->key, max_key->length,
                                         key, m_scratch.data(), &parts, &has_null);
    high = {key, static_cast<size_t>(end - key)};
    if (max_key->flag != HA_READ_BEFORE_KEY && !ferrite::successor(key, &high.len))
      high = {nullptr, 0};
  }
  uint64_t rows = fe_records_in_range(m_share->table, index.no, low, high);
  return rows ? rows : 1; /* zero would be taken for a fact */
}

/* Bytes of the smallest row as InnoDB would store it: its costs are built on that, and a
   user's plans should not change with the engine. */
static uint64_t smallest_row(const Layout &layout) {
  uint64_t bytes = 18;
  for (const ferrite::Column &c : layout.rows.columns()) {
    if (!c.stored && c.pk_part < 0) continue;
    if (c.kind == ferrite::ColumnKind::kFixed)
      bytes += c.length;
    else if (c.kind == ferrite::ColumnKind::kChar)
      bytes += c.length / c.cs->mbmaxlen;
    else
      bytes += 1;
  }
  return bytes;
}

ha_rows ha_ferrite::estimate_rows_upper_bound() {
  fe_table_stats now;
  fe_table_get_stats(m_share->table, &now);
  const uint64_t leaves = std::max<uint64_t>(now.clustered_leaf_pages, 1);
  const uint64_t by_size = 2 * leaves * stats.block_size / smallest_row(layout());
  return std::max(by_size, 2 * now.rows);
}

double ha_ferrite::pages_to_scan() {
  if (!m_share || !m_share->table) return 0;
  fe_table_stats now;
  fe_table_get_estimate(m_share->table, &now);
  return static_cast<double>(
      std::max<uint64_t>({now.clustered_leaf_pages, now.data_bytes / stats.block_size, 1}));
}
