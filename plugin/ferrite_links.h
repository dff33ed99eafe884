/*
 * The foreign keys of an open table, ready for checks of rows (ha_ferrite_cascade.cc).
 *
 * Rules of this module
 * - A set never changes once it is made; a handler keeps one and makes another when the core says
 * so.
 * - No allocation per row.
 */
#ifndef FERRITE_LINKS_H
#define FERRITE_LINKS_H

#include "server_compat.h"

#include <memory>
#include <string>
#include <vector>

#include "ferrite.h"
#include "ferrite_share.h"
#include "ferrite_violation.h"

class ha_ferrite;

namespace ferrite {

/* An own column, encoded as the other table's index has it. */
struct LinkPart : KeyPart {
  explicit LinkPart(const KeyPart &own) : KeyPart(own) {}
  /* In a NO PAD collation, a CHAR on one side at least, and not the same CHAR on both: values are
     compared without the padding of a CHAR, as SQL compares them. */
  bool repadded = false;
};

/* What to look for in the other table of one constraint. */
struct LinkKey {
  std::vector<LinkPart> parts;
  std::vector<uint16_t> columns; /* numbers of the own columns */
  /* No own index begins with the columns: who changes a row may not have read them. */
  bool is_unread = false;
  /* Of a child that has lost its index: its values are no values of the other side's. */
  bool misfits = false;

  bool any_null(const Layout &layout, const uchar *record) const;
  bool any_changed(const MY_BITMAP *changed) const;
  /* Bytes that encode() may need. */
  size_t max_bytes() const;
  /* The end, or NULL: no row can have this value on the other side. */
  uint8_t *encode(const uchar *record, uint8_t *to, uint8_t *scratch) const;
};

class LinkSet {
 public:
  /* Takes over `links`. */
  LinkSet(fe_links *links, const TABLE *table, const Layout &layout);
  ~LinkSet() { fe_links_close(m_links); }
  LinkSet(const LinkSet &) = delete;
  LinkSet &operator=(const LinkSet &) = delete;

  uint64_t version() const { return fe_links_version(m_links); }
  const fe_links *links() const { return m_links; }

  const fe_link *outgoing = nullptr;
  const fe_link *incoming = nullptr;
  std::vector<LinkKey> outgoing_keys;
  std::vector<LinkKey> incoming_keys;
  /* Numbers of links in the order in which InnoDB looks at them: by own indexes, those of one by
     their names. It decides which error a row gets, and what restricts before what follows. */
  std::vector<uint32_t> outgoing_order;
  std::vector<uint32_t> incoming_order;
  /* The index that a link comes with; with the primary key if its own is lost. */
  static uint32_t place_of(const fe_link &link) {
    return link.index_no == FE_NO_INDEX && link.part_count ? 0 : link.index_no;
  }
  size_t max_scratch = 0;       /* of the longest part */
  bool follows_parents = false; /* what becomes of a parent may change rows of this table */

 private:
  void add(const fe_link &link, bool is_child, const TABLE *table, const Layout &layout,
           std::vector<LinkKey> *to);
  fe_links *m_links;
};

/* A row of a parent that changes. Below the statement's own row the records may be another row's
   once something has followed. */
struct ParentChange {
  const uchar *old_row;
  const uchar *new_row; /* NULL: it is gone */
  bool is_written;
  bool is_trial; /* it is undone in any case: what follows is made for the error alone */
};

/* How far the checks of a changed row go. */
struct Reach {
  uint32_t last_index = UINT32_MAX; /* foreign keys by own indexes up to this one */
  bool is_written = true;           /* false: a duplicate has kept the row as it was */
};

/* One step of a cascade, on the stack of who makes it. */
struct Cascade {
  const Cascade *up;        /* what it follows from; NULL: the statement itself */
  const TABLE_SHARE *share; /* the table that is changed */
  bool updates;             /* rows are changed, not deleted */
  uint depth;
  /* By which foreign key, and the key that its rows had in their index; the buffer of keys may
     move. Of the statement itself there is none. */
  const fe_link *link;
  const Buffer *keys;
  size_t key_at, key_len;
  bool is_written;             /* the row that it follows from is */
  bool is_trial;               /* see ParentChange */
  const ha_ferrite *statement; /* of the statement itself: its handler, and its row as it was */
  const uchar *row;

  bool updates_above(const TABLE_SHARE *table) const {
    for (const Cascade *c = this; c; c = c->up)
      if (c->share == table && c->updates) return true;
    return false;
  }
  bool is_by(const fe_link &other, const fe_slice &key) const;
};

}  // namespace ferrite

#endif
