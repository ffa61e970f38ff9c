/* Plumbline's C ABI, optional: marks stages of the training loop by one store each, for loops in
 * which a call per stage costs too much. Include it in addition to plumbline.h, whose rules apply.
 */
#ifndef PLUMBLINE_MARKS_H_
#define PLUMBLINE_MARKS_H_

#include <time.h>

#include "plumbline/plumbline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The stage of the loop from a mark until the next one. */
#define PLUMBLINE_STAGE_NONE 0
#define PLUMBLINE_STAGE_FORWARD 1
#define PLUMBLINE_STAGE_BACKWARD 2
#define PLUMBLINE_STAGE_OPTIMIZER 3
#define PLUMBLINE_STAGE_DATA 4
#define PLUMBLINE_STAGE_COLLECTIVE 5 /* waits for other ranks */

#define PLUMBLINE_MARKS 4096
#define PLUMBLINE_MARK_GAP 8 /* marks before this one were lost */

/* One thread writes, and the agent reads. A mark is (ns of CLOCK_MONOTONIC) << 4 | the stage, never
 * 0. */
typedef struct plumbline_stage_marks {
  uint64_t now;                   /* the newest mark */
  uint64_t lost;                  /* marks that were lost because all entries were unread */
  uint64_t at;                    /* index of the next mark */
  uint64_t gap;                   /* PLUMBLINE_MARK_GAP after a lost mark, else 0 */
  uint64_t mark[PLUMBLINE_MARKS]; /* 0: free; the agent resets it */
} plumbline_marks_t;

/* Returns the memory to which the calling thread, the thread of the loop, writes its marks. The
 * memory lives until the process ends; marks that are written after the run was closed are not
 * read. Each stage is recorded like one of plumbline_span_begin and plumbline_span_end of its kind:
 * it belongs to the step in which it ends, and the heartbeat contains the last one that was begun.
 */
PLUMBLINE_API plumbline_status_t plumbline_marks(plumbline_run_t* run, plumbline_marks_t** marks);

/* Marks that the loop is in `stage` from now on. */
static inline void plumbline_mark(plumbline_marks_t* marks, uint64_t stage) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  const uint64_t ns = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
  const uint64_t word = ns << 4 | stage;
  uint64_t* mark = &marks->mark[marks->at];
  __atomic_store_n(&marks->now, word, __ATOMIC_RELAXED);
  if (__atomic_load_n(mark, __ATOMIC_ACQUIRE) != 0) {
    __atomic_store_n(&marks->lost, marks->lost + 1, __ATOMIC_RELAXED);
    marks->gap = PLUMBLINE_MARK_GAP;
    return;
  }
  __atomic_store_n(mark, word | marks->gap, __ATOMIC_RELEASE);
  marks->gap = 0;
  marks->at = (marks->at + 1) % PLUMBLINE_MARKS;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_MARKS_H_ */
