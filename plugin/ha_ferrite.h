/*
 * The handler: one open table in one connection, as the server drives it.
 *
 * The class is grouped by the phases of a statement: open, lock, read, write, end; then DDL
 * and statistics. ha_ferrite.cc has open, locking and hints; ha_ferrite_read.cc,
 * ha_ferrite_write.cc, ha_ferrite_refresh.cc, ha_ferrite_generated.cc, ha_ferrite_ddl.cc,
 * ha_ferrite_alter.cc, ha_ferrite_index.cc, ha_ferrite_foreign.cc, ha_ferrite_cascade.cc,
 * ha_ferrite_follow.cc and stats.cc the rest.
 *
 * Rules of this interface
 * - Every override is marked `override`: the server's signatures differ from MySQL's.
 * - No allocation per row: buffers and cursors stay with the handler and only grow.
 * - A cursor per index, created at first use, reset once per statement, released in reset().
 * - The update and delete of a row apply to the last row read through this handler; its
 *   primary key and (for locking reads) its payload are kept.
 * - Only ferrite_error.cc maps the core's codes to errors of the server.
 */
#ifndef HA_FERRITE_H
#define HA_FERRITE_H

#include "server_compat.h"

#include <memory>
#include <vector>

#include "ferrite.h"
#include "ferrite_links.h"
#include "ferrite_progress.h"
#include "ferrite_share.h"

class ha_ferrite final : public ferrite::PagedHandler {
 public:
  ha_ferrite(handlerton *hton, TABLE_SHARE *share);
  ~ha_ferrite() override;

  /* ---- what the engine can do ---- */
  Table_flags table_flags() const override;
  bool is_in_partitions() const;
  ulong index_flags(uint idx, uint part, bool all_parts) const override;
  enum row_type get_row_type() const override { return ROW_TYPE_DYNAMIC; }
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_length() const override { return 3500; }
  uint max_supported_key_part_length() const override { return 3072; }
  uint lock_count() const override { return 0; }
  const key_map *keys_to_use_for_scanning() override { return &key_map_full; }
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }

  /* ---- open ---- */
  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  handler *clone(const char *name, MEM_ROOT *mem_root) override;

  /* ---- start and end of a statement ---- */
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type lock_type) override;
  int external_lock(THD *thd, int lock_type) override;
  int start_stmt(THD *thd, thr_lock_type lock_type) override;
  void init_table_handle_for_HANDLER() override;
  int extra(ha_extra_function operation) override;
  int reset() override;
  void column_bitmaps_signal() override;

  /* ---- reading ---- */
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *buf) override;
  int rnd_pos(uchar *buf, uchar *pos) override;
  void position(const uchar *record) override;
  int cmp_ref(const uchar *ref1, const uchar *ref2) override;
  int index_init(uint idx, bool sorted) override;
  int index_end() override;
  int index_read(uchar *buf, const uchar *key, uint key_len, ha_rkey_function find_flag) override;
  int index_read_last(uchar *buf, const uchar *key, uint key_len) override;
  int read_range_first(const key_range *start_key, const key_range *end_key, bool eq_range,
                       bool sorted) override;
  int index_next(uchar *buf) override;
  int index_next_same(uchar *buf, const uchar *key, uint keylen) override;
  int index_prev(uchar *buf) override;
  int index_first(uchar *buf) override;
  int index_last(uchar *buf) override;
  void unlock_row() override;
  void try_semi_consistent_read(bool yes) override;
  bool was_semi_consistent_read() override;
  Item *idx_cond_push(uint keyno, Item *idx_cond) override;
  bool rowid_filter_push(Rowid_filter *rowid_filter) override;
  int multi_range_read_init(RANGE_SEQ_IF *seq, void *seq_init_param, uint n_ranges, uint mode,
                            HANDLER_BUFFER *buf) override;
  int multi_range_read_next(range_id_t *range_info) override;
  ha_rows multi_range_read_info_const(uint keyno, RANGE_SEQ_IF *seq, void *seq_init_param,
                                      uint n_ranges, uint *bufsz, uint *flags,
                                      FERRITE_MRR_LIMIT_PARAMETER Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint keyno, uint n_ranges, uint keys, uint key_parts, uint *bufsz,
                                uint *flags, Cost_estimate *cost) override;
  int multi_range_read_explain_info(uint mrr_mode, char *str, size_t size) override;

  /* ---- writing ---- */
  int write_row(const uchar *buf) override;
  int update_row(const uchar *old_data, const uchar *new_data) override;
  int delete_row(const uchar *buf) override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong nb_desired_values,
                          ulonglong *first_value, ulonglong *nb_reserved_values) override;
  bool autoinc_lock_mode_stmt_unsafe() const override;
  bool get_error_message(int error, String *buf) override;
  bool is_fatal_error(int error, uint flags) override;
  bool get_foreign_dup_key(char *child_table, uint child_table_len, char *child_key,
                           uint child_key_len) override;

  /* ---- DDL and upkeep ---- */
  int create(const char *name, TABLE *form, HA_CREATE_INFO *create_info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  int discard_or_import_tablespace(my_bool discard) override;
  void update_create_info(HA_CREATE_INFO *create_info) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *info, uint table_changes) override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered_table,
                                                             Alter_inplace_info *info) override;
  bool prepare_inplace_alter_table(TABLE *altered_table, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered_table, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered_table, Alter_inplace_info *info,
                                  bool commit) override;
  bool can_convert_nocopy(const Field &field, const Column_definition &to) const override;
  Compare_keys compare_key_parts(const Field &old_field, const Column_definition &new_field,
                                 const KEY_PART_INFO &old_part,
                                 const KEY_PART_INFO &new_part) const override;
  int analyze(THD *thd, HA_CHECK_OPT *check_opt) override;
  int optimize(THD *thd, HA_CHECK_OPT *check_opt) override;
  int check(THD *thd, HA_CHECK_OPT *check_opt) override;

  /* ---- foreign keys ---- */
  char *get_foreign_key_create_info() override;
  void free_foreign_key_create_info(char *text) override;
  int get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) override;
  int get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) override;
  bool referenced_by_foreign_key() const noexcept override;
  ulonglong table_version() const override;
  bool can_switch_engines() override;
  bool is_fk_defined_on_table_or_index(uint index) override;

  /* ---- numbers for the optimizer ---- */
  int info(uint flag) override;
  ha_rows records_in_range(uint inx, const key_range *min_key, const key_range *max_key,
                           page_range *pages) override;
  ha_rows estimate_rows_upper_bound() override;
  double pages_to_scan() override;

 private:
  /* Changes of indexes that ALTER TABLE can do in place. */
  static constexpr alter_table_operations kIndexChanges =
      ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX |
      ALTER_ADD_UNIQUE_INDEX | ALTER_DROP_UNIQUE_INDEX;

  /* A cursor of the core and the statement for which it was last made ready. */
  struct Cursor {
    fe_cursor *cursor = nullptr;
    uint32_t statement = 0;
    fe_lock_mode mode = FE_READ_SNAPSHOT;
    bool semi = false; /* reads semi-consistently */
  };
  enum class Step { kSeek, kFirst, kLast, kNext, kPrev, kNextSame };

  const ferrite::Layout &layout() const { return m_share->layout; }
  int error(fe_code code);
  ferrite::Share *get_share();

  /* Statement state. */
  void begin_statement(THD *thd);
  void choose_lock_for(thr_lock_type lock_type, int sql_command, int isolation);
  int prepare_copy(THD *thd);
  void close_cursors();
  int cursor_for(uint32_t index_no, fe_cursor **out);

  /* Reading. */
  int start_index(uint32_t index_no);
  void ask_semi_consistent();
  void unlock_entry();
  void make_plan();
  void plan_column(const ferrite::Column &c);
  size_t read_set_bytes() const { return no_words_in_map(table->read_set) * sizeof(my_bitmap_map); }
  /* The server changes read_set without telling at times: compare it at every row. */
  void check_plan() {
    if (m_plan_index != m_index || m_plan_lock != m_lock || m_plan_keyread != keyread_enabled() ||
        m_plan_whole != m_whole_rows || m_plan_dirty != reads_dirty() ||
        memcmp(m_plan_bits.data(), table->read_set->bitmap, read_set_bytes()))
      make_plan();
  }
  int move(Step step, uchar *buf);
  fe_code step_cursor(Step step, fe_row *row);
  int deliver(fe_row *row, uchar *buf);
  int deliver_clustered(fe_row row, uchar *buf);
  fe_code deliver_state(const fe_row &row, uchar *buf);
  /* What is read may be uncommitted: it may not exist any more at the next read. */
  bool reads_dirty() const { return m_dirty && m_lock == FE_READ_SNAPSHOT; }
  void plan_comparison();
  int compare_entry(const fe_slice &key, const uchar *record);
  check_result_t check_pushed(const fe_row &row, uchar *buf);
  int seek(uchar *buf, const uchar *key, uint key_len, fe_seek_mode mode);
  int keep_row(const fe_row &row);
  /* Of a row that was read with an X lock: nobody but this session can change it from now on. */
  bool keep_payload(const fe_row &row) {
    m_have_payload = m_row_payload.assign(row.payload);
    m_read_at = fe_rows_changed(m_session);
    return m_have_payload;
  }
  void bound_scan(Step step);
  void remember_place(fe_code rc, const fe_row &row, bool backward, bool exact);
  fe_code go_on(bool backward, fe_row *row);
  fe_slice ref_to_key(const uchar *ref, uint8_t *to);

  /* Writing. */
  int prepare_write();
  int copy_step(ferrite::CopyStep step);
  int begin_copy();
  int end_copy();
  int prepare_write_buffers();
  int end_write(int err);
  uint8_t *encode_entry(const ferrite::Index &index, const uchar *record, uint8_t *to,
                        fe_entry *entry);
  int insert(const uchar *buf);
  int insert_row(const uchar *buf);
  int remove_row(const uchar *buf);
  int update(const uchar *old_data, const uchar *new_data);
  int duplicate(uint32_t index_no);
  int admitted();
  int after_autoinc_write(int err);
  int raise_autoinc(ulonglong value);
  void take_autoinc(ulonglong offset, ulonglong increment, ulonglong rows, ulonglong *first_value,
                    ulonglong *reserved, bool ahead);
  int lock_autoinc();
  void unlock_autoinc();
  void end_autoinc();
  bool column_changed(const ferrite::Column &column, const uchar *old_row, const uchar *new_row);
  bool find_changes(const uchar *old_row, const uchar *new_row);
  /* Has this session changed rows since it read the one that it is about to change? Of others than
     the tables that may_change_meanwhile() names the server lets nothing else change rows. */
  bool may_be_outdated() const {
    return m_have_payload && fe_rows_changed(m_session) != m_read_at &&
           (is_linked() || table->s->tmp_table != NO_TMP_TABLE);
  }
  int may_change_meanwhile(bool *out);
  int refresh(const uchar *old_data, const uchar *new_data);
  int is_gone(const uchar *new_data) const;
  int refresh_records(const fe_row &row, uchar *old_data, uchar *new_data);
  int change_entries(const uchar *old_row, const uchar *new_row, bool pk_changed, uint *removed,
                     uint *added);

  /* Virtual columns in an index. */
  class BlobsAside {
   public:
    BlobsAside(TABLE *table, uchar *place);
    ~BlobsAside();
    BlobsAside(const BlobsAside &) = delete;
    BlobsAside &operator=(const BlobsAside &) = delete;

   private:
    TABLE *m_table;
    String *m_place;
  };
  /* Copies of the records of one row, and where BlobsAside puts blobs. */
  struct GeneratedPlace {
    std::vector<uchar> old_image, new_image, blobs;
  };
  class GeneratedInUse {
   public:
    explicit GeneratedInUse(ha_ferrite *handler);
    ~GeneratedInUse();
    GeneratedInUse(const GeneratedInUse &) = delete;
    GeneratedInUse &operator=(const GeneratedInUse &) = delete;
    GeneratedPlace *operator->() const { return m_place; }

   private:
    ha_ferrite *m_handler;
    GeneratedPlace *m_place;
  };
  bool may_write() const;
  void mark_keys();
  void init_generated();
  void add_key_columns(const ferrite::Index &index, MY_BITMAP *to);
  void find_feeding();
  static bool is_virtual(const Field *field);
  static bool can_compute(const Field *field);
  const uchar *compute_generated(const uchar *record, std::vector<uchar> *image);
  const uchar *compute_generated(const uchar *record, const MY_BITMAP *which,
                                 std::vector<uchar> *image);
  void compute_virtual(uchar *record);
  bool has_fresh_values() const;
  int insert_generated(const uchar *buf);
  int update_generated(const uchar *old_data, const uchar *new_data);
  int remove_generated(const uchar *buf);
  static bool changes_kept_values(TABLE *altered_table, const Alter_inplace_info *info);
  static bool has_new_check(const Alter_inplace_info *info);

  /* CREATE and ALTER TABLE. */
  static const char *find_bad_option(THD *thd, const TABLE *form, const HA_CREATE_INFO *info);
  int largest_autoinc(fe_isolation isolation, ulonglong *value);
  bool has_rows_like(const TABLE *parts) const;
  int redescribe(const TABLE *altered_table, Alter_inplace_info *info, ulonglong next);
  bool plan_indexes(const TABLE *altered_table, const Alter_inplace_info *info,
                    ferrite::IndexChange *change) const;
  enum_alter_inplace_result can_change_indexes(TABLE *altered_table, Alter_inplace_info *info);
  int build_indexes(TABLE *altered_table, ferrite::IndexChange *change, fe_dup_info *dup);
  int add_all_rows(ferrite::IndexChange *change, ferrite::Progress *progress);
  int add_row(ferrite::IndexChange *change);
  void report_duplicate(TABLE *altered_table, const ferrite::IndexChange &change,
                        const fe_dup_info &dup);
  int find_autoinc(ulonglong wanted, ulonglong *next);

  /* Tables in files of their own. */
  static bool is_export(THD *thd, int lock_type);
  int export_table(THD *thd);
  int import_table(THD *thd);
  void end_export();

  /* Foreign keys. */
  fe_code find_links(const fe_links **out) const;
  int read_links(const fe_links **out);
  void forget_links() const;
  const char *referring_constraint(String *text) const;
  int refuse_truncate();
  int wait_before_partition_goes(THD *thd);
  int find_dropped(const Alter_inplace_info *info, std::vector<std::string> *names);
  uint32_t index_for_child(const fe_link &link) const;
  bool loses_needed_index(TABLE *altered_table, Alter_inplace_info *info);
  bool is_copy_of_parent() const;
  bool changes_linked_type(Alter_inplace_info *info);
  bool computes_parents_otherwise(TABLE *copy, Alter_info *info);
  static bool is_wrong_for_children(TABLE *form, const HA_CREATE_INFO *info);

  /* Rows and foreign keys (ha_ferrite_cascade.cc, ha_ferrite_follow.cc). */
  static constexpr int kLinksChanged = -1; /* the links are to be had anew */
  struct Follower {
    uint32_t index_no;
    fe_cursor *cursor;
    bool busy;
  };
  bool is_linked() const;
  bool checks_links() const;
  int keep_vectors(int (*keep)(TABLE *));
  int settle_row(int err, uint64_t before);
  int check_inserted(const uchar *row);
  int check_updated(const uchar *old_row, const uchar *new_row, bool pk_changed);
  int check_both_sides(const uchar *old_row, const uchar *new_row, bool pk_changed,
                       ferrite::Reach reach);
  int check_deleted(const uchar *row);
  int not_inserted(const uchar *row);
  int not_updated(const uchar *old_row, const uchar *new_row, bool pk_changed);
  int current_links(std::shared_ptr<const ferrite::LinkSet> *out);
  fe_code push_key(const ferrite::LinkKey &key, const uchar *row, size_t *len);
  bool is_history(const uchar *row) const;
  int wait_for_ddl();
  bool moves_entry(const fe_link &link, const ferrite::LinkKey &key, const MY_BITMAP *changed,
                   bool pk_changed) const;
  bool passes_over() const;
  fe_code find_parent(const ferrite::LinkSet &set, uint32_t no, const uchar *row, bool stay);
  bool is_followed_unwritten(const fe_link &link) const;
  bool is_own_parent(const fe_link &link, const uchar *row) const;
  bool has_values(const fe_link &link, const ferrite::LinkKey &key) const;
  int check_parents(const uchar *row, const MY_BITMAP *changed, bool pk_changed,
                    ferrite::Reach *reach);
  int push_child_keys(const ferrite::LinkSet &set, const uchar *old_row, const uchar *new_row,
                      uint32_t last_index);
  int check_child(const ferrite::LinkSet &set, uint32_t no, size_t at, size_t len,
                  const ferrite::ParentChange &change);
  int check_children(const uchar *old_row, const uchar *new_row, const ferrite::Reach &reach,
                     bool is_trial);
  ha_ferrite *find_child(const char *core_name) const;
  bool is_found_by(const fe_link &link, const uchar *row, const fe_slice &key) const;
  bool ends_too_deep(const fe_link &link, size_t at, size_t len) const;
  int refuse_depth(const fe_link &link);
  int cascade(const fe_link &link, size_t at, size_t len, const ferrite::ParentChange &change);
  int take_cursor(uint32_t index_no, size_t *out);
  void give_cursor(size_t which);
  int follow(const ferrite::Cascade &step, const fe_link &link, const ha_ferrite &parent, size_t at,
             size_t len, const uchar *new_row);
  int follow_delete();
  int follow_update(const fe_link &link, const ha_ferrite &parent, const uchar *new_row);
  bool follow_column(const fe_link_part &sides, bool to_null, const ha_ferrite &parent,
                     const uchar *new_row);
  bool take_value(Field *to, const ha_ferrite &parent, uint16_t column, const uchar *new_row);

  /* Checking and statistics. */
  int check_foreign_keys(THD *thd);
  void report_link_fault(THD *thd, const fe_link &link, fe_link_fault fault);
  void report_orphan(THD *thd, const fe_link &link, const ferrite::LinkKey &key,
                     const std::string &pk, fe_cursor *rows);
  /* Entries of an index, in whatever order: how many, and the sum of what they hash to. */
  struct EntrySum {
    ulonglong count = 0;
    uint64_t sum = 0;
    void add(const fe_slice &key, const fe_slice &payload);
  };
  struct CheckedIndex {
    fe_cursor *cursor = nullptr;
    EntrySum of_rows, of_entries;
  };
  int check_trees(THD *thd, bool with_rows);
  int check_indexes(THD *thd, ferrite::Progress *progress, bool by_key);
  int check_rows(std::vector<CheckedIndex> *checked, ferrite::Progress *progress, bool by_key,
                 uint *faults);
  int check_row_entries(const uchar *record, std::vector<CheckedIndex> *checked,
                        ferrite::Buffer *whole, bool by_key, uint *faults);
  fe_code sum_entries(const ferrite::Index &index, CheckedIndex *state,
                      ferrite::Progress *progress);
  bool has_other_entries(const ferrite::Index &index, const CheckedIndex &state, bool by_key,
                         uint faults) const;
  void refresh_stats(bool force);
  bool stats_are_stale(const fe_table_stats &now);
  void publish_stats();

  ferrite::Share *m_share = nullptr;
  mutable fe_links *m_links = nullptr; /* as of its version; see find_links() */
  bool m_attached = false;
  uint32_t m_generation = 0;
  fe_session *m_session = nullptr;
  bool m_sequence = false; /* written outside of transactions, in a session of its own */

  /* How this statement reads. m_stored_lock survives a plain SELECT under LOCK TABLES. */
  fe_lock_mode m_lock = FE_READ_SNAPSHOT;
  fe_lock_mode m_stored_lock = FE_READ_SNAPSHOT;
  fe_wait_policy m_wait = FE_WAIT;
  bool m_locked = false; /* external_lock() was called */
  bool m_low_isolation = false;
  /* A row event of binlog_row_image=MINIMAL or NOBLOB has some columns in read_set, but the row
     that is changed needs all of them: for its index entries, generated columns, triggers, and the
     partition that it moves to. */
  bool m_whole_rows = false;
  bool is_read(uint field_no) const {
    return m_whole_rows || bitmap_is_set(table->read_set, field_no);
  }
  bool m_dirty = false; /* READ UNCOMMITTED */
  bool m_semi = false;  /* the server asks for semi-consistent reads */
  uint32_t m_statement = 1;
  bool m_replace = false; /* duplicates will be replaced */
  bool m_insert_update = false;
  bool m_exported = false; /* its file is there until the table is unlocked */
  bool m_copying = false;  /* between begin_copy() and end_copy() */

  std::vector<Cursor> m_cursors;
  fe_cursor *m_cursor = nullptr; /* of the running scan */
  const ferrite::Index *m_index = nullptr;
  uint32_t m_cursor_statement = 0; /* statement in which m_cursor was positioned */
  bool m_scan_started = false;
  size_t m_match_bytes = 0; /* rows must start with so many bytes of m_seek_key */
  fe_seek_mode m_seek_mode = FE_SEEK_EXACT;
  bool m_unique_exact = false;
  ferrite::Buffer m_seek_key;
  size_t m_seek_len = 0;
  bool m_range_first = false; /* the step to come opens a range that ends at end_range */
  bool m_bounded = false;     /* the cursor has a bound for reading ahead */
  ferrite::Buffer m_bound;
  ferrite::Buffer m_at_key; /* HANDLER: where the last statement stood */
  bool m_at_before = false; /* HANDLER: it stood before the row of m_at_key */
  int m_at_edge = 0;        /* HANDLER: it stood before the first (-1) or after the last row (1) */
  bool m_handler_mode = false;

  /* What to read of a row; recomputed when the server's read_set changes. */
  std::vector<my_bitmap_map> m_plan_bits;
  const ferrite::Index *m_plan_index = nullptr;
  fe_lock_mode m_plan_lock = FE_READ_SNAPSHOT;
  bool m_plan_whole = false;
  bool m_plan_keyread = false;
  bool m_plan_covering = false;
  bool m_plan_dirty = false;
  /* A row that is read after its entry, without a snapshot, is compared with it: not at all, with
     the columns as they were read, or with virtual ones computed. */
  enum class Comparison { kNone, kAsRead, kComputed };
  Comparison m_comparison = Comparison::kNone;
  MY_BITMAP m_compared; /* columns that decide it */
  std::vector<my_bitmap_map> m_compared_bits;
  bool m_plan_pk = false;             /* some wanted column comes from the primary key */
  std::vector<uint16_t> m_plan_row;   /* field numbers from the row payload */
  std::vector<uint8_t> m_plan_wanted; /* by field number */
  std::vector<uint8_t> m_plan_entry;  /* the same, as far as an index entry has them */

  ferrite::Buffer m_row_pk;      /* primary key or row id of the last row */
  ferrite::Buffer m_row_payload; /* its payload, when it was read with an X lock */
  bool m_have_payload = false;
  uint64_t m_read_at = 0; /* rows that the session had changed when it was read */
  /* The row id that the last insert was given, for position() right after it: the server's check of
     keys after the write asks for it. */
  uint8_t m_inserted_id[ferrite::kRowIdBytes];
  bool m_after_insert = false;
  ferrite::Buffer m_blobs;
  ferrite::Buffer m_fresh_blobs; /* of a row that was read again (ha_ferrite_refresh.cc) */

  ferrite::Buffer m_scratch;
  ferrite::Buffer m_new_pk;
  ferrite::Buffer m_payload;
  ferrite::Buffer m_compare; /* an out-of-line value to compare with */
  ferrite::Buffer m_entries;
  std::vector<fe_entry> m_removed;
  std::vector<fe_entry> m_added;
  MY_BITMAP m_changed;
  std::vector<my_bitmap_map> m_changed_bits;
  fe_dup_info m_dup;
  /* Tables with virtual columns in an index. */
  MY_BITMAP m_feeding; /* columns of keys, and those that they are computed of */
  std::vector<my_bitmap_map> m_feeding_bits;
  bool m_feeding_known = false;
  /* A place for each row that is being changed, for a cascade may come back to this table before
     the change of the row above has ended. */
  std::vector<std::unique_ptr<GeneratedPlace>> m_generated;
  size_t m_generated_used = 0;
  size_t m_blob_place_bytes = 0;
  /* Read by info(HA_STATUS_ERRKEY), sometimes of another partition's handler. */
  static thread_local uint s_duplicate_key;
  static thread_local const TABLE_SHARE *s_foreign_duplicate; /* where a cascade met it */

  /* Foreign keys: what to look for, keys that are looked for now, and what this handler is changed
     for if it is not the statement's own. */
  std::shared_ptr<const ferrite::LinkSet> m_link_set;
  ferrite::Buffer m_link_keys;
  ferrite::Buffer m_link_scratch;
  std::vector<Follower> m_followers;
  const ferrite::Cascade *m_cascade = nullptr;

  uint64_t m_wrong_logs_before = 0; /* when this statement's online copy began */
  bool m_autoinc_locked = false;    /* this statement is among its table's autoinc_lockers */
  int m_autoinc_error = 0;          /* why there was no value */
  ulonglong m_autoinc_rows = 0;     /* values still to come of a multi-row INSERT */
  ulonglong m_autoinc_last = 0;
  ulonglong m_autoinc_offset = 0;
  ulonglong m_autoinc_increment = 1;

  DsMrr_impl m_ds_mrr;
  /* It reads entries first, and then rows in the order of their keys. */
  bool m_mrr_in_steps = false;
  int mrr_result(int err);
};

#endif
