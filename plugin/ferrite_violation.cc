/*
 * What is said of violated foreign keys: errors 1451 and 1452 name the constraint as InnoDB does.
 */
#include "ferrite_links.h"

#include <mutex>

#include "ferrite_foreign.h"

/* As long as InnoDB's. */
static constexpr size_t kTextBytes = 512;

static thread_local char violation[kTextBytes];

void ferrite_note_violation(THD *thd, const fe_link &link, const std::string &child,
                            const std::string &parent) {
  String text;
  ferrite_append_table(thd, &text, child);
  text.append(',');
  ferrite_append_constraint(thd, &text, link, child, parent);
  strmake(violation, text.c_ptr_safe(), kTextBytes - 1);
}

bool ferrite_violation_text(String *buf) {
  if (!violation[0]) return false;
  buf->copy(violation, strlen(violation), system_charset_info);
  return true;
}

void ferrite_forget_violation() { violation[0] = '\0'; }
