/* Plumbline's C ABI, an addition: stages of the training loop told by one store each, for a loop
 * that a call for each of them costs too much. Include it beside plumbline.h, whose rules hold here
 * too. */
#ifndef PLUMBLINE_MARKS_H_
#define PLUMBLINE_MARKS_H_

#include <time.h>

#include "plumbline/plumbline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the loop is in from a mark on, until the next one. */
#define PLUMBLINE_STAGE_NONE 0
#define PLUMBLINE_STAGE_FORWARD 1
#define PLUMBLINE_STAGE_BACKWARD 2
#define PLUMBLINE_STAGE_OPTIMIZER 3
#define PLUMBLINE_STAGE_DATA 4

#define PLUMBLINE_MARKS 4096
#define PLUMBLINE_MARK_GAP 8 /* marks in front of this one were lost */

/* One thread writes, the agent reads. A mark is (ns of CLOCK_MONOTONIC) << 4 | the stage, never 0.
 */
typedef struct plumbline_stage_marks {
  uint64_t now;  /* the newest mark */
  uint64_t lost; /* those for which there was no room, because nobody has read for long */
  uint64_t at;   /* where the next one is written */
  uint64_t gap;  /* PLUMBLINE_MARK_GAP behind one that was lost, else 0 */
  uint64_t mark[PLUMBLINE_MARKS]; /* 0: free; the agent sets it back */
} plumbline_marks_t;

/* Where the calling thread, which is the loop's, writes its marks. The memory lives until the
 * process ends; marks that are written after the run was closed are read by nobody. Each stage is
 * told as plumbline_span_begin and plumbline_span_end tell one of that kind: it belongs to the step
 * in which it ends, and the last one that was begun is in the heartbeat. */
PLUMBLINE_API plumbline_status_t plumbline_marks(plumbline_run_t* run, plumbline_marks_t** marks);

/* The loop is in `stage` from now on. */
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
