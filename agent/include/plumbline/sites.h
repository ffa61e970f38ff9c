/* Plumbline's C ABI: sites, which are places in the model where observations are made, and the
 * elements that a site keeps of a step. Included by plumbline.h, whose rules apply. */
#ifndef PLUMBLINE_SITES_H_
#define PLUMBLINE_SITES_H_

#include "plumbline/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sites -------------------------------------------------------------------------------------
 */

enum {
  PLUMBLINE_KIND_ROUTING = 1,
  PLUMBLINE_KIND_TENSOR = 2,
  PLUMBLINE_KIND_REDUCTION = 3,
  PLUMBLINE_KIND_UPDATE = 4,
  PLUMBLINE_KIND_MATMUL = 5,
  PLUMBLINE_KIND_LOGITS = 6,
  PLUMBLINE_KIND_LOGPROBS = 7
};

/* The head of a site. The rest is private to the library. A site is due if *step >= next_due, both
 * read as relaxed atomics. next_due is 0 until the agent is loaded, so the first observation loads
 * it. It changes only in step_end and plumbline_look, so all calls of a due site within one step
 * are due. */
typedef struct plumbline_site_head {
  uint64_t next_due;
  const uint64_t* step; /* the run's */
} plumbline_site_t;

/* Registers a place in the model where observations are made. `kind` is PLUMBLINE_KIND_*. `layer`
 * is the trainer's name ("layers.3"). If `op` is NULL or "", the kind's default is used ("routing",
 * "tensor", "sum", "update", "matmul", "logits", "logprobs"). The same (kind, layer, op) returns
 * the same site. *site is set if status >= 0.
 *
 * A site of KIND_ROUTING with op "loads" only reports the loads of experts. It is due at every step
 * and outside of the budgets: the caller decides how often to call it and may pass a part of the
 * tokens. No rows are kept, and no rule proves anything from it. Its steps are separate from those
 * of the layer's site "routing". */
PLUMBLINE_API plumbline_status_t plumbline_site(plumbline_run_t* run, int32_t kind,
                                                const char* layer, const char* op,
                                                plumbline_site_t** site);

/* Does the same, and states the line of the trainer that observes there, which reports of findings
 * name. The line of the first call counts. `file` may be NULL. The end of a long file name is kept
 * (PLUMBLINE_MAX_FILE bytes). */
#define PLUMBLINE_MAX_FILE 256
PLUMBLINE_API plumbline_status_t plumbline_site_at(plumbline_run_t* run, int32_t kind,
                                                   const char* layer, const char* op,
                                                   const char* file, uint32_t line,
                                                   plumbline_site_t** site);

static inline int plumbline_due(const plumbline_site_t* site) {
#if defined(__GNUC__)
  return __atomic_load_n(site->step, __ATOMIC_RELAXED) >=
         __atomic_load_n(&site->next_due, __ATOMIC_RELAXED);
#else
  return *(const volatile uint64_t*)site->step >= *(const volatile uint64_t*)&site->next_due;
#endif
}

/* ---- the sampled elements of a step ------------------------------------------------------------
 */

/* The largest number of elements that a site keeps of one tensor. */
#define PLUMBLINE_MAX_SAMPLES 4096

/* Returns the indices of the elements that this site keeps at the open step, for a tensor of
 * `count` elements. The indices are distinct, in C order, in the order of the draw, and the same on
 * every rank and in every call of one (run, step, layer, op); ranks do not communicate. A smaller
 * `capacity` gives the first of them. If an operation overwrites its input, gather these elements
 * before and after it, and pass both with these indices as `offsets`.
 *
 * Writes *n <= min(capacity, count, the kind's number) indices to `out` and returns OK. If OK is
 * returned with *n = 0, the site is due but keeps no elements at this step: observe without
 * elements, or not at all. Returns NOT_DUE with *n = 0. The kind's number is 1,024 for a reduction,
 * 256 for a tensor or an update. */
PLUMBLINE_API plumbline_status_t plumbline_sample_indices(plumbline_site_t* site, uint64_t count,
                                                          uint64_t* out, uint32_t capacity,
                                                          uint32_t* n);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_SITES_H_ */
