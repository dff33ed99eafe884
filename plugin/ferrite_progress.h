/*
 * How far a long statement is: the column PROGRESS of the process list, and what clients are sent.
 *
 * Rules of this module
 * - One Progress for a statement, by the connection's own thread. One within another (a table's
 *   partitions, a statement whose steps the server counts itself) does not start anew.
 * - The core reports within a stage (fe_callbacks::progress); whoever has the Progress says when
 *   the next stage begins.
 */
#ifndef FERRITE_PROGRESS_H
#define FERRITE_PROGRESS_H

#include <algorithm>

#include "server_compat.h"

namespace ferrite {

class Progress {
 public:
  /* Stages that take as long as each other, as far as one can tell. */
  Progress(THD *thd, uint stages)
      : m_thd(thd), m_is_first(!thd->progress.arena), m_to_come(stages - 1) {
    if (m_is_first) thd_progress_init(thd, stages);
  }
  ~Progress() {
    if (m_is_first) thd_progress_end(m_thd);
  }
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /* More than were said go on within the last one. */
  void next_stage() {
    if (!m_is_first || !m_to_come) return;
    m_to_come--;
    thd_progress_next_stage(m_thd);
  }
  /* Of a number that is an estimate. */
  void report(ulonglong done, ulonglong about) {
    if (m_is_first) thd_progress_report(m_thd, done, std::max(done, about));
  }

 private:
  THD *const m_thd;
  const bool m_is_first;
  uint m_to_come;
};

}  // namespace ferrite

#endif
