/*
 * Violated foreign keys (ferrite_violation.cc).
 *
 * Rules of this module
 * - A text belongs to the thread that met the violation, until it meets the next one.
 * - The journal is as long as it ever gets from the start; it is locked for a copy of one row.
 */
#ifndef FERRITE_VIOLATION_H
#define FERRITE_VIOLATION_H

#include "server_compat.h"

#include <string>
#include <vector>

#include "ferrite.h"

namespace ferrite {

/* A row that was refused. Names of tables as the core has them. */
struct Violation {
  uint64_t number = 0, at_unix_us = 0, thread_id = 0, trx_id = 0;
  bool in_child = false; /* a child without a parent; else a parent with children */
  std::string child, parent, name, query, text;
};

/* The latest, in their order. */
std::vector<Violation> violations();

}  // namespace ferrite

/* A row has violated a foreign key: the text for the error of this thread's statement. The names as
   the core has them. `in_child`: the row that was changed is the child's. */
void ferrite_note_violation(THD *thd, const fe_link &link, const std::string &child,
                            const std::string &parent, bool in_child = false);
/* A cascade would go through more than `max` tables, the statement's own included: warns of it, and
   has a line in the error log, one a second at most. */
void ferrite_warn_of_depth(THD *thd, uint max);
/* False: this thread has met none. */
bool ferrite_violation_text(String *buf);
/* The error to come names no constraint (DROP TABLE). */
void ferrite_forget_violation();

#endif
