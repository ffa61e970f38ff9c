/* The boundary between libplumbline.so (the façade) and libplumbline_agent.so (the agent).
 *
 * The façade opens the agent with dlopen(RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND | RTLD_NODELETE) on
 * the first due call, looks up PLUMBLINE_AGENT_TABLE_SYMBOL and calls through the table. Only plain
 * C data crosses. Who allocates frees: no pointer given across is kept after the call, nor freed by
 * the other side, except where it says so (next_due words, the agent's handles).
 *
 * What the façade promises
 *  - never a call from a forked child, nor before open, nor after close of that run has begun;
 *  - arguments are not NULL where a value is required, structs are complete: a caller's shorter,
 *    older struct arrives extended by zeros, size = the size in this build;
 *  - observe_*, sample_indices: the site is due and a step is open; counts, tensors and
 * enumerations are not checked yet, that is the agent's part;
 *  - open, close and declare_site of one run never run at the same time as another of these;
 *    observe_*, scalar, span_* may run in many threads at once, also beside step_begin/step_end,
 *    declare_site and flush.
 * What the agent promises
 *  - no exception leaves a function; a negative status comes with a text in *error;
 *  - its threads block all signals; observe_*, scalar, span_*, step_* do not wait for them;
 *  - libplumbline_cuda.so, beside the agent, is opened with the first CUDA tensor, not before.
 *
 * Memory. Deep binding alone would give libc's malloc to every library that is loaded along with
 * the agent, while those already in the process (libstdc++, libprotobuf) use the process's: memory
 * of one heap would be freed in the other. So libplumbline_agent.so compiles
 * agent/facade/alloc_forward.cc into itself and exports malloc, free, calloc, realloc, memalign,
 * posix_memalign, aligned_alloc, valloc, pvalloc and malloc_usable_size (export list:
 * agent/facade/agent.map, to be used as its version script), which deep binding finds first. They
 * forward to plumbline_process_allocator, a variable that the façade exports and fills before its
 * dlopen, because static initialisers of the agent's libraries allocate before the table could be
 * handed over. Hence libplumbline_agent.so links libplumbline.so (target plumbline); the loader
 * finds the one already there by its SONAME.
 * Under a sanitizer the forwards are left out (the runtime's own malloc must be found), the façade
 * does not open anything, and a program that wants the agent links it: it calls
 * plumbline_link_agent(&plumbline_agent_table) before plumbline_open. */
#ifndef PLUMBLINE_AGENT_TABLE_H_
#define PLUMBLINE_AGENT_TABLE_H_

#include "plumbline/marks.h"
#include "plumbline/plumbline.h"
#include "plumbline/steps.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLUMBLINE_AGENT_TABLE_SYMBOL "plumbline_agent_table"
#define PLUMBLINE_AGENT_TABLE_VERSION \
  1u /* raised when a meaning changes; additions only grow size */

/* The process's allocator: what the main program's scope finds under these names. */
typedef struct plumbline_allocator {
  void* (*malloc_fn)(size_t);
  void (*free_fn)(void*);
  void* (*calloc_fn)(size_t, size_t);
  void* (*realloc_fn)(void*, size_t);
  void* (*memalign_fn)(size_t, size_t);
  int (*posix_memalign_fn)(void**, size_t, size_t);
  void* (*aligned_alloc_fn)(size_t, size_t);
  void* (*valloc_fn)(size_t);
  void* (*pvalloc_fn)(size_t);
  size_t (*malloc_usable_size_fn)(void*);
} plumbline_allocator_t;

/* Defined by the façade; all NULL until it opens the agent. */
extern PLUMBLINE_API plumbline_allocator_t plumbline_process_allocator;

/* Text of a failure, cut to fit, always NUL-terminated: what, where, what was expected. */
typedef struct plumbline_error {
  char text[512];
} plumbline_error_t;

/* Everything resolved: no environment variable needs to be read again. Strings are never NULL, but
 * spool may be. */
typedef struct plumbline_agent_open {
  uint32_t size;
  int32_t role;       /* PLUMBLINE_ROLE_* */
  const char* run;    /* not empty */
  const char* server; /* "": none */
  const char* record; /* "": none; not both empty */
  uint32_t attempt;
  uint32_t rank;
  uint32_t world_size;  /* > rank */
  uint32_t every;       /* at most each n-th step is due, from the first; 0: as the cadence says */
  double budget;        /* share of step time; 0: the agent's default */
  const char* spool;    /* "": none; NULL: RECORD/spool when there are a record and a server */
  uint64_t spool_bytes; /* 0: the agent's default */
  const char* caller;   /* NULL: not said */
  int32_t redact;       /* 1: ids leave as keyed hashes */
  uint32_t reserved;
} plumbline_agent_open_t;

typedef struct plumbline_agent_site {
  uint32_t size;
  int32_t kind; /* PLUMBLINE_KIND_* */
  const char* layer;
  const char* op; /* not empty */
  int64_t step;   /* the open step, or the one last begun, or 0 */
  /* The site's due word, valid until the process ends. Written by the agent alone once it is open
   * (relaxed atomic stores), only within step_end, step_begin, look and declare_site. The façade
   * sets it to PLUMBLINE_NEVER before close and in a forked child. */
  uint64_t* next_due;
} plumbline_agent_site_t;

typedef struct plumbline_agent_table {
  uint32_t size; /* sizeof(plumbline_agent_table_t) in the agent's build */
  uint32_t version;
  const char* tool_version; /* as plumbline_version */

  /* Starts threads and connections, does not wait for a server. A record directory that cannot be
   * written to is an error here. *agent_run is the agent's until close. */
  plumbline_status_t (*open)(const plumbline_agent_open_t* options, void** agent_run,
                             plumbline_error_t* error);
  /* *agent_site is the agent's, valid until close of the run. Sites made before the agent was
   * loaded are declared right after open, in their order. */
  plumbline_status_t (*declare_site)(void* agent_run, const plumbline_agent_site_t* site,
                                     void** agent_site, plumbline_error_t* error);
  /* In order, never nested, steps >= 0. When the agent is loaded within a step, step_begin of that
   * step follows open and the declarations. Steps that went by before are not reported. */
  plumbline_status_t (*step_begin)(void* agent_run, int64_t step, plumbline_error_t* error);
  plumbline_status_t (*step_end)(void* agent_run, int64_t step, plumbline_error_t* error);

  plumbline_status_t (*observe_routing)(void* agent_run, void* agent_site, int64_t step,
                                        const plumbline_routing_t* routing,
                                        plumbline_error_t* error);
  plumbline_status_t (*scalar)(void* agent_run, int64_t step, const char* name, double value,
                               plumbline_error_t* error);
  /* kind and name are not empty; an unknown kind is INVALID_ARGUMENT. *span > 0 on success. */
  plumbline_status_t (*span_begin)(void* agent_run, int64_t step, const char* kind,
                                   const char* name, uint64_t* span, plumbline_error_t* error);
  plumbline_status_t (*span_end)(void* agent_run, uint64_t span, plumbline_error_t* error);

  plumbline_status_t (*flush)(void* agent_run, uint32_t timeout_ms, plumbline_error_t* error);
  /* Frees agent_run and its sites, also when it returns DEADLINE_EXCEEDED. */
  plumbline_status_t (*close)(void* agent_run, uint32_t timeout_ms, plumbline_error_t* error);

  /* Needs no run; check->route is set and is called in the caller's thread, before the call
   * returns. *verdict is filled when OK is returned. */
  plumbline_status_t (*check_router)(const plumbline_router_check_t* check,
                                     plumbline_router_verdict_t* verdict, plumbline_error_t* error);

  /* From here on an older agent's table ends: PLUMBLINE_AGENT_HAS asks. The site is of the matching
   * kind, due, and a step is open; values are not checked yet. */
  plumbline_status_t (*observe_tensor)(void* agent_run, void* agent_site, int64_t step,
                                       const plumbline_tensor_t* tensor, plumbline_error_t* error);
  plumbline_status_t (*observe_reduction)(void* agent_run, void* agent_site, int64_t step,
                                          const plumbline_reduction_t* reduction,
                                          plumbline_error_t* error);
  plumbline_status_t (*observe_update)(void* agent_run, void* agent_site, int64_t step,
                                       const plumbline_update_t* update, plumbline_error_t* error);
  /* out and n are not NULL unless capacity is 0; *n is 0 unless OK is returned. */
  plumbline_status_t (*sample_indices)(void* agent_run, void* agent_site, int64_t step,
                                       uint64_t count, uint64_t* out, uint32_t capacity,
                                       uint32_t* n, plumbline_error_t* error);

  /* Needs no run; sum->sum is set and is called in the caller's thread, before the call returns.
   * *result is filled when OK is returned. */
  plumbline_status_t (*fingerprint)(const plumbline_sum_t* sum,
                                    plumbline_fingerprint_result_t* result,
                                    plumbline_error_t* error);

  plumbline_status_t (*observe_matmul)(void* agent_run, void* agent_site, int64_t step,
                                       const plumbline_matmul_t* matmul, plumbline_error_t* error);
  plumbline_status_t (*observe_logprobs)(void* agent_run, void* agent_site, int64_t step,
                                         const plumbline_logprobs_t* logprobs,
                                         plumbline_error_t* error);
  plumbline_status_t (*observe_logits)(void* agent_run, void* agent_site, int64_t step,
                                       const plumbline_logits_t* logits, plumbline_error_t* error);
  void (*charge)(void* agent_run, uint64_t ns);
  /* From here on observe_* may come with step = PLUMBLINE_CAPTURING: calls that a graph will
   * replay, in the order of `replays_on`. */
  plumbline_status_t (*capture_begin)(void* agent_run, void* replays_on, plumbline_error_t* error);
  /* How the process ends, for the goodbye. The first word that is not of a thread alone counts,
   * until a step begins or NULL takes it back. */
  plumbline_status_t (*note_ending)(void* agent_run, const plumbline_ending_t* ending,
                                    plumbline_error_t* error);
  /* A step is open, steps > 0. Sets words back to it. */
  plumbline_status_t (*look)(void* agent_run, int64_t step, uint32_t steps,
                             plumbline_error_t* error);
  /* plumbline/together.h. */
  plumbline_status_t (*together_begin)(void* agent_run, plumbline_error_t* error);
  plumbline_status_t (*together_end)(void* agent_run, plumbline_error_t* error);
  /* plumbline/marks.h. The caller is the thread that writes them; `marks` lives until the process
   * ends. */
  plumbline_status_t (*marks)(void* agent_run, plumbline_marks_t* marks, plumbline_error_t* error);
  /* plumbline/steps.h; once a run, count <= PLUMBLINE_STEP_SERIES. `steps` lives until the process
   * ends. */
  plumbline_status_t (*steps)(void* agent_run, const char* const* series, uint32_t count,
                              plumbline_steps_t* steps, plumbline_error_t* error);
} plumbline_agent_table_t;

/* Has this table the field? Tables only grow. */
#define PLUMBLINE_AGENT_HAS(table, field)                                                \
  ((table)->size >= offsetof(plumbline_agent_table_t, field) + sizeof((table)->field) && \
   (table)->field != NULL)
/* What the oldest agent of this version has. */
#define PLUMBLINE_AGENT_TABLE_LEAST offsetof(plumbline_agent_table_t, observe_tensor)

/* Exported by libplumbline_agent.so. */
extern PLUMBLINE_API const plumbline_agent_table_t plumbline_agent_table;

/* Façade: use this table instead of opening the library. Before the first due call;
 * FAILED_PRECONDITION afterwards, INVALID_ARGUMENT for another version. */
PLUMBLINE_API plumbline_status_t plumbline_link_agent(const plumbline_agent_table_t* table);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_AGENT_TABLE_H_ */
