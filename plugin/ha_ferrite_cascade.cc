/*
 * Rows and foreign keys: is the parent there, are there children, and what becomes of them.
 *
 * A row is written first; then the other table is looked at, whatever the statement's snapshot
 * (docs/internals/foreign_keys.md has the reasons). Children are changed through the TABLE that the
 * server has opened for it, row by row, each with the checks of its own foreign keys before the
 * next.
 *
 * Rules of this module
 * - A table without foreign keys pays for one load after its row is written.
 * - Nothing here grows with the number of rows that a cascade changes.
 * - Whoever fails leaves it to the statement's own row to undo all: nothing of it remains.
 * - The server's row events and triggers do not see what a cascade does. Its vector indexes do, by
 *   what this module tells the server.
 */
#include "ha_ferrite.h"

#include <algorithm>

#include "ferrite_error.h"
#include "ferrite_foreign.h"
#include "ferrite_hton.h"

using ferrite::Cascade;
using ferrite::Index;
using ferrite::LinkKey;
using ferrite::LinkSet;
using ferrite::ParentChange;
using ferrite::Reach;

/* As many steps below the statement's own table as InnoDB goes, which counts that one. */
static constexpr uint kMaxDepth = 14;

/* ---- the set of a handler ---------------------------------------------------------- */

/* The links as they are now; empty: there are none. */
int ha_ferrite::current_links(std::shared_ptr<const LinkSet> *out) {
  const uint64_t version = fe_table_links_version(m_share->table);
  if (!version) {
    out->reset();
    return 0;
  }
  if (!m_link_set || m_link_set->version() != version) {
    m_link_set.reset();
    fe_links *links;
    fe_code rc = fe_links_open(m_share->table, &links);
    if (rc != FE_OK) return error(rc);
    auto made = std::make_shared<const LinkSet>(links, table, layout());
    /* Only a set that the buffer is large enough for. */
    if (!m_link_scratch.reserve(made->max_scratch + 16)) return HA_ERR_OUT_OF_MEM;
    m_link_set = std::move(made);
  }
  *out = m_link_set;
  return 0;
}

/* The key to look for goes behind what the buffer has. FE_NOT_FOUND: no row can have it. */
fe_code ha_ferrite::push_key(const LinkKey &key, const uchar *row, size_t *len) {
  const size_t at = m_link_keys.size();
  if (!m_link_keys.reserve(at + key.max_bytes())) return FE_OUT_OF_MEMORY;
  uint8_t *start = m_link_keys.data() + at;
  const uint8_t *end = key.encode(row, start, m_link_scratch.data());
  if (!end) return FE_NOT_FOUND;
  *len = static_cast<size_t>(end - start);
  m_link_keys.set_size(at + *len);
  return FE_OK;
}

/* History of WITH SYSTEM VERSIONING refers to nothing, and nothing refers to it. */
bool ha_ferrite::is_history(const uchar *row) const {
  if (!table->versioned()) return false;
  Field *end = table->vers_end_field();
  return !end->is_max(end->ptr_in_record(row));
}

/* Another table was dropped or emptied in the middle of a look at it. */
int ha_ferrite::wait_for_ddl() {
  my_sleep(1000);
  return ferrite::is_killed(ha_thd()) ? HA_ERR_ABORTED_BY_USER : 0;
}

/* ---- parents ----------------------------------------------------------------------- */

/* Whether a change puts a new entry into the index that children are found by: a parent that goes
   at the same time may have looked for it at the old place. `changed` NULL: a new row. */
bool ha_ferrite::moves_entry(const fe_link &link, const LinkKey &key, const MY_BITMAP *changed,
                             bool pk_changed) const {
  if (!changed || key.any_changed(changed)) return true;
  /* Without an index no child is missed, and the parent that the row has cannot go. */
  if (link.index_no == FE_NO_INDEX) return pk_changed && !link.part_count;
  if (pk_changed) return true;
  if (!link.index_no) return false;
  const Index &index = layout().indexes[link.index_no];
  for (uint i = 0; i < index.touched_by.size(); i++)
    if (index.touched_by[i] && bitmap_is_set(changed, i)) return true;
  return false;
}

/* IGNORE: the statement goes on without a row that violates a foreign key. So the reason stays
   until the transaction ends, or a replica that runs the statement again might not meet it. */
bool ha_ferrite::passes_over() const { return ha_thd()->lex->ignore; }

fe_code ha_ferrite::find_parent(const LinkSet &set, uint32_t no, const uchar *row, bool stay) {
  const LinkKey &key = set.outgoing_keys[no];
  if (!set.outgoing[no].part_count || key.misfits) return FE_NOT_FOUND;
  const size_t at = m_link_keys.size();
  size_t len;
  fe_code rc = push_key(key, row, &len);
  if (rc == FE_OK)
    rc = fe_links_probe(set.links(), 0, no, m_session, {m_link_keys.data() + at, len}, stay);
  m_link_keys.set_size(at);
  return rc;
}

/* Whether it is the one that a cascade makes this change for, of a row that has no new value yet:
   as in InnoDB, which looks for no parent there. */
bool ha_ferrite::is_followed_unwritten(const fe_link &link) const {
  return m_cascade && !m_cascade->is_written && !strcmp(m_cascade->link->name, link.name);
}

/* Whether a row that is not written would be its own parent, which is there when InnoDB looks. */
bool ha_ferrite::is_own_parent(const fe_link &link, const uchar *row) const {
  if (m_share->name != link.other || link.other_index_no >= link.index_no) return false;
  for (uint32_t i = 0; i < link.part_count; i++) {
    const fe_slice own = layout().rows.column(link.parts[i].own.column).value(row);
    const fe_slice other = layout().rows.column(link.parts[i].other.column).value(row);
    if (own.len != other.len || memcmp(own.ptr, other.ptr, own.len)) return false;
  }
  return link.part_count;
}

/* An UPDATE reads the columns of indexes, but not those of a foreign key whose index is lost. */
bool ha_ferrite::has_values(const fe_link &link, const LinkKey &key) const {
  if (link.index_no != FE_NO_INDEX || !link.part_count) return true;
  return std::all_of(key.columns.begin(), key.columns.end(), [&](uint16_t column) {
    return is_read(column) || bitmap_is_set(table->write_set, column);
  });
}

/* `reach` ends with the index of the one that is violated. */
int ha_ferrite::check_parents(const uchar *row, const MY_BITMAP *changed, bool pk_changed,
                              Reach *reach) {
  if (is_history(row)) return 0;
  for (;;) {
    std::shared_ptr<const LinkSet> set;
    if (int err = current_links(&set)) return err;
    if (!set) return 0;
    fe_code rc = FE_OK;
    for (uint32_t i : set->outgoing_order) {
      const fe_link &link = set->outgoing[i];
      const LinkKey &key = set->outgoing_keys[i];
      if (LinkSet::place_of(link) > reach->last_index) break;
      if (link.carried || !moves_entry(link, key, changed, pk_changed)) continue;
      const bool is_known = !changed || has_values(link, key);
      if (is_known && (key.any_null(layout(), row) || is_followed_unwritten(link))) continue;
      if (unlikely(!reach->is_written) && is_own_parent(link, row)) continue;
      rc = is_known ? find_parent(*set, i, row, false) : FE_NOT_FOUND;
      if (is_known && rc == FE_NOT_FOUND && passes_over() && reach->is_written)
        rc = find_parent(*set, i, row, true);
      if (rc == FE_NOT_FOUND) {
        const std::string child = ferrite_known_as(ha_thd(), m_share->name);
        ferrite_note_violation(ha_thd(), link, child, link.other, true);
        reach->last_index = LinkSet::place_of(link);
        return HA_ERR_NO_REFERENCED_ROW;
      }
      if (rc != FE_OK) break;
    }
    if (rc != FE_TABLE_CHANGED) return rc == FE_OK ? 0 : error(rc);
    m_link_set.reset();
    if (int err = wait_for_ddl()) return err;
  }
}

/* ---- children ---------------------------------------------------------------------- */

/* What is kept of one constraint while the others are acted upon. */
struct KeptKey {
  uint32_t link;
  uint32_t len;
};

/* The keys of all constraints to look at, one behind the other: the record may be another one once
   a cascade has come back to this table. */
int ha_ferrite::push_child_keys(const LinkSet &set, const uchar *old_row, const uchar *new_row,
                                uint32_t last_index) {
  for (uint32_t i : set.incoming_order) {
    const LinkKey &key = set.incoming_keys[i];
    if (set.incoming[i].index_no > last_index) break;
    if (key.is_unread) continue;
    if (new_row && !key.any_changed(&m_changed)) continue;
    if (key.any_null(layout(), old_row)) continue;
    const size_t at = m_link_keys.size();
    if (!m_link_keys.reserve(at + sizeof(KeptKey))) return HA_ERR_OUT_OF_MEM;
    m_link_keys.set_size(at + sizeof(KeptKey));
    size_t len = 0;
    fe_code rc = push_key(key, old_row, &len);
    if (rc == FE_NOT_FOUND) {
      m_link_keys.set_size(at);
      continue;
    }
    if (rc != FE_OK) return error(rc);
    const KeptKey kept = {i, static_cast<uint32_t>(len)};
    memcpy(m_link_keys.data() + at, &kept, sizeof kept);
  }
  return 0;
}

/* `at`: place of the key in m_link_keys. */
int ha_ferrite::check_child(const LinkSet &set, uint32_t no, size_t at, size_t len,
                            const ParentChange &change) {
  const fe_link &link = set.incoming[no];
  const uint32_t action = change.new_row ? link.on_update : link.on_delete;
  const bool acts = action == FE_FK_CASCADE || action == FE_FK_SET_NULL;
  if (link.part_count) {
    const fe_slice key = {m_link_keys.data() + at, len};
    fe_code rc = fe_links_probe(set.links(), 1, no, m_session, key, 0);
    if (rc == FE_OK && !acts && passes_over() && change.is_written)
      rc = fe_links_probe(set.links(), 1, no, m_session, key, 1);
    if (rc == FE_NOT_FOUND) return acts && ends_too_deep(link, at, len) ? refuse_depth(link) : 0;
    if (rc != FE_OK) return rc == FE_TABLE_CHANGED ? kLinksChanged : error(rc);
  }
  if (!acts || !link.part_count) {
    ferrite_note_violation(ha_thd(), link, link.other, m_share->name);
    return HA_ERR_ROW_IS_REFERENCED;
  }
  return cascade(link, at, len, change);
}

/* `new_row` NULL: the row is gone. */
int ha_ferrite::check_children(const uchar *old_row, const uchar *new_row, const Reach &reach,
                               bool is_trial) {
  if (is_history(old_row)) return 0;
  const ParentChange change = {old_row, new_row, reach.is_written, is_trial || !reach.is_written};
  for (;;) {
    std::shared_ptr<const LinkSet> set;
    if (int err = current_links(&set)) return err;
    if (!set || set->incoming_keys.empty()) return 0;
    const size_t base = m_link_keys.size();
    int err = push_child_keys(*set, old_row, new_row, reach.last_index);
    const size_t end = m_link_keys.size();
    for (size_t at = base; !err && at < end;) {
      KeptKey kept;
      memcpy(&kept, m_link_keys.data() + at, sizeof kept);
      at += sizeof kept;
      err = check_child(*set, kept.link, at, kept.len, change);
      at += kept.len;
    }
    m_link_keys.set_size(base);
    if (err != kLinksChanged) return err;
    /* Below the statement's own row the record may have been used for another row by now. */
    if (m_cascade) return HA_ERR_TABLE_DEF_CHANGED;
    m_link_set.reset();
    if (int waited = wait_for_ddl()) return waited;
  }
}

/* ---- cascades ---------------------------------------------------------------------- */

/* Whether what follows may change it: it is locked for writing, and nobody uses it. The server
   opens one for each child; but it gives that one to a statement of a trigger, too, and another one
   is free then. What the TABLE was opened for cannot be asked later: it points to the last
   statement that has used it, which may be freed. */
static bool is_free_to_follow(const TABLE *t) {
  return !t->query_id && t->reginfo.lock_type >= TL_FIRST_WRITE;
}

/* A TABLE for the changes of a child. */
ha_ferrite *ha_ferrite::find_child(const char *core_name) const {
  const THD *thd = ha_thd();
  /* A statement that follows foreign keys is always prelocked. */
  if (thd->locked_tables_mode == LTM_LOCK_TABLES) return nullptr;
  for (TABLE *t = thd->open_tables; t; t = t->next) {
    if (t->s->tmp_table != NO_TMP_TABLE || t->file->ht != ferrite_hton) continue;
    ha_ferrite *child = static_cast<ha_ferrite *>(t->file);
    if (!child->m_share || child->m_share->name != core_name) continue;
    if (is_free_to_follow(t)) return child;
  }
  return nullptr;
}

/* Whether the row is one that `link` finds in this table with that key. */
bool ha_ferrite::is_found_by(const fe_link &link, const uchar *row, const fe_slice &key) const {
  if (m_share->name != link.other) return false;
  const Index &index = layout().indexes[link.other_index_no];
  std::vector<uint8_t> entry(index.max_key + 16), scratch(layout().max_scratch + 16);
  const uint8_t *end = ferrite::encode_key(index, row, entry.data(), scratch.data());
  return static_cast<size_t>(end - entry.data()) >= key.len &&
         !memcmp(entry.data(), key.ptr, key.len);
}

/* Nothing is left to follow from the last row that a cascade may reach, but for InnoDB there may
   be: a row of the same cascade. It takes a row's entries away index by index, and follows from
   each before the next; so a row is still found by the indexes behind the one that it follows now.
 */
bool ha_ferrite::ends_too_deep(const fe_link &link, size_t at, size_t len) const {
  if (likely(!m_cascade || m_cascade->depth < kMaxDepth)) return false;
  const fe_slice key = {m_link_keys.data() + at, len};
  const fe_link *followed = &link;
  const Cascade *step = m_cascade;
  for (; step->up; step = step->up) {
    if (!step->updates && followed->index_no < link.other_index_no && step->is_by(link, key))
      return true;
    followed = step->link;
  }
  return !step->updates && followed->index_no < link.other_index_no &&
         step->statement->is_found_by(link, step->row, key);
}

int ha_ferrite::refuse_depth(const fe_link &link) {
  ferrite_note_violation(ha_thd(), link, link.other, m_share->name);
  ferrite_warn_of_depth(ha_thd(), kMaxDepth + 1);
  return HA_ERR_FK_DEPTH_EXCEEDED;
}

/* A row of this table has gone, or become another: so do the rows of `link` with the key. */
int ha_ferrite::cascade(const fe_link &link, size_t at, size_t len, const ParentChange &change) {
  const uchar *new_row = change.new_row;
  const Cascade top = {nullptr, table->s, new_row != nullptr, 0, nullptr, nullptr, 0, 0, true,
                       false,   this,     change.old_row};
  const Cascade *own = m_cascade ? m_cascade : &top;
  ha_ferrite *child = find_child(link.other);
  /* The child is newer than the statement. */
  if (!child || child->m_stored_lock != FE_READ_EXCLUSIVE) {
    ferrite_prepare_again(ha_thd());
    return HA_ERR_TABLE_DEF_CHANGED;
  }
  /* What the server has of a vector index in memory cannot always be taken back. */
  if (change.is_trial && ferrite::vector_indexes(child->table)) return 0;
  const bool removes = !new_row && link.on_delete == FE_FK_CASCADE;
  const Cascade step = {own,
                        child->table->s,
                        !removes,
                        own->depth + 1,
                        &link,
                        &m_link_keys,
                        at,
                        len,
                        change.is_written,
                        change.is_trial || own->is_trial,
                        nullptr,
                        nullptr};
  if (!removes && own->updates_above(step.share)) {
    ferrite_note_violation(ha_thd(), link, link.other, m_share->name);
    return HA_ERR_ROW_IS_REFERENCED;
  }
  if (step.depth > kMaxDepth) return refuse_depth(link);
  int err = child->follow(step, link, *this, at, len, new_row);
  if (err == HA_ERR_FOUND_DUPP_KEY) {
    s_foreign_duplicate = child->table->s;
    return HA_ERR_FOREIGN_DUPLICATE_KEY;
  }
  return err;
}

/* ---- vector indexes ---------------------------------------------------------------- */

/* Whether what follows from the row that is being written has changed one. */
static thread_local bool s_vectors_changed = false;

/* The server keeps them after each row that it writes itself. For a row that a cascade has written
   it is done here, before the row's own children are looked for: a cascade that comes back to this
   table uses the record for another row. */
int ha_ferrite::keep_vectors(int (*keep)(TABLE *)) {
  if (likely(!m_cascade) || !ferrite::vector_indexes(table)) return 0;
  s_vectors_changed = true;
  const int err = keep(table);
  /* A duplicate there is none of the row's keys. */
  return err == HA_ERR_FOUND_DUPP_KEY ? HA_ERR_CRASHED : err;
}

/* What was changed of them is undone, and what the server has of them in memory must be read again.
   It cannot while one is searched: the transaction ends then. */
static int forget_vectors(THD *thd, int err) {
  if (ferrite::forget_vectors(thd)) return err;
  thd->mark_transaction_to_rollback(true);
  return HA_ERR_ROLLBACK;
}

/* ---- a row of the statement -------------------------------------------------------- */

bool ha_ferrite::is_linked() const { return fe_table_links_version(m_share->table) != 0; }

/* The row is written, and so is all that followed. A step of a cascade leaves it to the first
   one to undo. */
int ha_ferrite::settle_row(int err, uint64_t before) {
  if (m_cascade) return err;
  const bool vectors = s_vectors_changed;
  s_vectors_changed = false;
  if (!err || err == HA_ERR_LOCK_DEADLOCK || err == HA_ERR_ROLLBACK) return err;
  fe_code rc = fe_row_undo(m_session, before);
  if (rc != FE_OK) return error(rc);
  return unlikely(vectors) ? forget_vectors(ha_thd(), err) : err;
}

bool ha_ferrite::checks_links() const { return is_linked() && ferrite_foreign_checks(ha_thd()); }

int ha_ferrite::check_inserted(const uchar *row) {
  if (int err = keep_vectors(ferrite::vectors_on_insert)) return err;
  if (!checks_links()) return 0;
  const uint64_t before = fe_row_before(m_session);
  Reach reach;
  return settle_row(check_parents(row, nullptr, false, &reach), before);
}

/* Parents are looked for first, which changes nothing. If one is not there, children matter all the
   same that InnoDB looks for before it: those by the same index, and by indexes before that. */
int ha_ferrite::check_both_sides(const uchar *old_row, const uchar *new_row, bool pk_changed,
                                 Reach reach) {
  const int orphan = check_parents(new_row, &m_changed, pk_changed, &reach);
  if (orphan && orphan != HA_ERR_NO_REFERENCED_ROW) return orphan;
  const uchar *now = is_history(new_row) ? nullptr : new_row;
  const int err = check_children(old_row, now, reach, orphan != 0);
  return err ? err : orphan;
}

int ha_ferrite::check_updated(const uchar *old_row, const uchar *new_row, bool pk_changed) {
  if (int err = keep_vectors(ferrite::vectors_on_update)) return err;
  if (!checks_links()) return 0;
  const uint64_t before = fe_row_before(m_session);
  return settle_row(check_both_sides(old_row, new_row, pk_changed, Reach()), before);
}

int ha_ferrite::check_deleted(const uchar *row) {
  if (int err = keep_vectors(ferrite::vectors_on_delete)) return err;
  if (!checks_links()) return 0;
  const uint64_t before = fe_row_before(m_session);
  return settle_row(check_children(row, nullptr, Reach(), false), before);
}

/* ---- duplicates -------------------------------------------------------------------- */

/* The row is not written, for a duplicate in m_dup's index. InnoDB goes from index to index, and
   looks at the foreign keys by one before it looks at its values: what it would have met on the way
   is the error, here too. Nothing rests on these looks but that error. */
int ha_ferrite::not_inserted(const uchar *row) {
  Reach reach{m_dup.index_no, false};
  const int err = checks_links() ? check_parents(row, nullptr, false, &reach) : 0;
  return err ? err : duplicate(m_dup.index_no);
}

/* The same. What follows is made, to find out if it can be, and undone with all else. */
int ha_ferrite::not_updated(const uchar *old_row, const uchar *new_row, bool pk_changed) {
  const uint32_t index_no = m_dup.index_no;
  if (!checks_links() || is_history(new_row)) return duplicate(index_no);
  const uint64_t before = fe_row_before(m_session);
  int err = check_both_sides(old_row, new_row, pk_changed, Reach{index_no, false});
  err = settle_row(err ? err : HA_ERR_FOUND_DUPP_KEY, before);
  return err == HA_ERR_FOUND_DUPP_KEY ? duplicate(index_no) : err;
}

/* ---- what is said of it ------------------------------------------------------------ */

thread_local const TABLE_SHARE *ha_ferrite::s_foreign_duplicate = nullptr;

bool ha_ferrite::get_foreign_dup_key(char *child_table, uint child_table_len, char *child_key,
                                     uint child_key_len) {
  const TABLE_SHARE *s = s_foreign_duplicate;
  s_foreign_duplicate = nullptr;
  if (!s || s_duplicate_key >= s->keys) return false;
  strmake(child_table, s->table_name.str, child_table_len - 1);
  strmake(child_key, s->key_info[s_duplicate_key].name.str, child_key_len - 1);
  return true;
}
