/* Plumbline's C ABI: series of values, requests of observations, and stages of the training loop.
 * Included by plumbline.h, whose rules apply. */
#ifndef PLUMBLINE_SERIES_H_
#define PLUMBLINE_SERIES_H_

#include "plumbline/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Records one value of a series at the open step ("loss"). NaN and infinity are data. Always due.
 */
PLUMBLINE_API plumbline_status_t plumbline_scalar(plumbline_run_t* run, const char* name,
                                                  double value);

/* Does the same, and states the line of the trainer that records the series: plumbline_site_at. */
PLUMBLINE_API plumbline_status_t plumbline_scalar_at(plumbline_run_t* run, const char* name,
                                                     double value, const char* file, uint32_t line);

/* Adds CPU time, in nanoseconds, that the caller spent on due observations outside of the calls
 * since its last report, for example a binding that converts arguments. It counts against the
 * budget like the calls. Thread-safe. */
PLUMBLINE_API plumbline_status_t plumbline_charge(plumbline_run_t* run, uint64_t ns);

/* Requests observations because the caller noticed a problem in the open step (a loss that is NaN,
 * a gradient that became zero). From now on, and in the next steps, `steps` in all, sites of
 * tensors, updates, products, router calls and sums over micro-batches (op "accumulation") are due
 * and keep elements, outside of the cadence. So the evidence is of the step in which the problem
 * began. Due words of later steps are set back; earlier calls of this step are not measured. The
 * requests have their own budget: one step in 32 after the first 16, and half of the bytes that the
 * run may send. Returns NOT_DUE if the budget is used up, and FAILED_PRECONDITION between two
 * steps. Thread-safe. */
PLUMBLINE_API plumbline_status_t plumbline_look(plumbline_run_t* run, uint32_t steps);

/* States the step in which the caller will observe next, for a caller that itself decides which due
 * sites it observes. If the run ends before this step, no observation is missing. Thread-safe. */
PLUMBLINE_API plumbline_status_t plumbline_next_look(plumbline_run_t* run, int64_t step);

/* Begins and ends a stage of the training loop. Always due. `kind` is one of "data", "forward",
 * "backward", "optimizer", "collective", "checkpoint", "evaluation", "compile", "pause" (no step is
 * expected: the trainer waits for a resource or a person) or "other". If `name` is NULL, the kind
 * is used. A stage may be outside of a step: it then belongs to the step last begun, or 0. *span is
 * the number with which to end it, or 0 if nothing was begun. Stages may nest and may end in any
 * order and on any thread. */
PLUMBLINE_API plumbline_status_t plumbline_span_begin(plumbline_run_t* run, const char* kind,
                                                      const char* name, uint64_t* span);
PLUMBLINE_API plumbline_status_t plumbline_span_end(plumbline_run_t* run, uint64_t span);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_SERIES_H_ */
