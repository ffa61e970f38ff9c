/* Plumbline's C ABI, an addition: steps in which nothing is measured, recorded by a few stores
 * each, for a loop whose steps are so short that calls cost too much. Include it next to
 * plumbline/plumbline.h, whose rules apply. */
#ifndef PLUMBLINE_STEPS_H_
#define PLUMBLINE_STEPS_H_

#include "plumbline/plumbline.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLUMBLINE_STEPS 1024     /* that fit until the agent has read them */
#define PLUMBLINE_STEP_SERIES 12 /* of each at most */

/* One step that has ended. */
typedef struct plumbline_step_facts {
  int64_t step;    /* greater than all before, in this ring and of plumbline_step_begin */
  uint64_t end_ns; /* CLOCK_MONOTONIC */
  uint64_t given;  /* bit k: value[k] is of this step */
  uint64_t reserved;
  double value[PLUMBLINE_STEP_SERIES]; /* of the series in the order in which they were named */
} plumbline_step_facts_t;

/* A ring of steps. One thread writes while no step is open; the agent reads. */
typedef struct plumbline_step_ring {
  uint64_t written; /* number of steps written; the caller stores it (release) after each step */
  uint64_t read;    /* number of steps that the agent has read; the agent stores it */
  uint64_t reserved[6];
  plumbline_step_facts_t facts[PLUMBLINE_STEPS]; /* step k is at k % PLUMBLINE_STEPS */
} plumbline_steps_t;

/* Returns the ring into which the caller's loop writes its steps; `series` names their values. A
 * run has one ring: later calls return the same ring and ignore `series`. The memory lives until
 * the process ends. */
PLUMBLINE_API plumbline_status_t plumbline_steps(plumbline_run_t* run, const char* const* series,
                                                 uint32_t count, plumbline_steps_t** steps);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_STEPS_H_ */
