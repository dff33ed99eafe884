/*
 * A storage engine that does next to nothing: fixed-length rows in an array, found by an INT
 * primary key.
 *
 * No transactions, no locks, no versions, no recovery, no secondary indexes (they are accepted and
 * never used); rows are gone when the server stops. It exists to measure what the SQL layer, the
 * client and the device leave for any engine, and is never installed.
 */
#ifndef HA_CEILING_H
#define HA_CEILING_H

#include <my_global.h>
#include <sql_class.h>
#include <handler.h>

#include <atomic>

/* The rows of one table, in chunks that never move. A slot is one byte of presence and the record.
 */
class CeilingRows : public Handler_share {
 public:
  explicit CeilingRows(size_t row_length) : m_slot(row_length + 1) {}
  ~CeilingRows() override;

  uchar *slot(uint32 id, bool create);
  uint32 next_present(uint32 id);
  size_t slot_size() const { return m_slot; }

  std::atomic<uint32> top{0};
  std::atomic<uint32> next_id{1};
  std::atomic<ulonglong> count{0};

 private:
  static constexpr uint32 chunk_rows = 65536;
  static constexpr uint32 chunk_count = 2048;
  const size_t m_slot;
  std::atomic<uchar *> m_chunks[chunk_count] = {};
};

class ha_ceiling final : public handler {
 public:
  ha_ceiling(handlerton *hton, TABLE_SHARE *share) : handler(hton, share) { ref_length = 4; }

  ulonglong table_flags() const override {
    return HA_BINLOG_ROW_CAPABLE | HA_BINLOG_STMT_CAPABLE | HA_NO_BLOBS | HA_REQUIRE_PRIMARY_KEY;
  }
  ulong index_flags(uint index, uint, bool) const override {
    return index == 0 ? HA_READ_NEXT | HA_READ_ORDER | HA_READ_RANGE | HA_CLUSTERED_INDEX : 0;
  }
  uint max_supported_keys() const override { return 16; }
  uint max_supported_key_parts() const override { return 4; }
  uint max_supported_key_length() const override { return 1024; }
  uint max_supported_key_part_length() const override { return 1024; }
  uint max_supported_record_length() const override { return HA_MAX_REC_LENGTH; }

  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int open(const char *name, int mode, uint test) override;
  int close() override { return 0; }
  int delete_table(const char *) override { return 0; }
  int info(uint what) override;
  int external_lock(THD *thd, int type) override;
  uint lock_count() const override { return 0; }
  THR_LOCK_DATA **store_lock(THD *, THR_LOCK_DATA **to, enum thr_lock_type) override { return to; }

  int write_row(const uchar *row) override;
  int update_row(const uchar *before, const uchar *after) override;
  int delete_row(const uchar *row) override;
  void get_auto_increment(ulonglong, ulonglong, ulonglong wanted, ulonglong *first,
                          ulonglong *got) override;

  int rnd_init(bool) override;
  int rnd_next(uchar *row) override { return read_from(row, m_at + 1); }
  int rnd_pos(uchar *row, uchar *pos) override;
  void position(const uchar *row) override { int4store(ref, id_of(row)); }
  int index_read_map(uchar *row, const uchar *key, key_part_map map,
                     enum ha_rkey_function find) override;
  int index_next(uchar *row) override { return read_from(row, m_at + 1); }
  int index_first(uchar *row) override { return read_from(row, 1); }
  ha_rows records_in_range(uint, const key_range *from, const key_range *to, page_range *) override;

 private:
  uint32 id_of(const uchar *row) const { return uint4korr(row + m_key_offset); }
  int read_from(uchar *row, uint32 id);
  int log_change(const uchar *row);

  CeilingRows *m_rows = nullptr;
  uint m_key_offset = 0;
  uint32 m_at = 0;
};

#endif
