/* The boundary between libplumbline.so (the façade) and libplumbline_agent.so (the agent).
 *
 * On the first due call the façade opens the agent with dlopen(RTLD_NOW | RTLD_LOCAL |
 * RTLD_DEEPBIND | RTLD_NODELETE), looks up PLUMBLINE_AGENT_TABLE_SYMBOL and calls through the
 * table. Only plain C data cross. The side that allocates also frees: a pointer argument is not
 * kept after the call and not freed by the callee, except where stated (next_due words, the agent's
 * handles).
 *
 * Guarantees of the façade
 *  - it never calls from a forked child, before open, or after close of that run has begun;
 *  - required arguments are not NULL, and structs are complete: a caller's shorter, older struct is
 *    extended by zeros, and size is the size in this build;
 *  - observe_*, sample_indices: the site is due and a step is open. The agent checks counts,
 * tensors and enumerations;
 *  - open, close and declare_site of one run never run at the same time. observe_*, scalar and
 *    span_* may run in many threads at once, also during step_begin, step_end, declare_site and
 *    flush.
 * Guarantees of the agent
 *  - no exception leaves a function; a negative status comes with a text in *error;
 *  - its threads block all signals; observe_*, scalar, span_*, step_* do not wait for them;
 *  - it opens libplumbline_cuda.so, next to the agent, with the first CUDA tensor, not before.
 *
 * Memory. Deep binding alone would give libc's malloc to every library that is loaded with the
 * agent, while libraries that are already in the process (libstdc++, libprotobuf) use the process's
 * allocator: memory of one heap would be freed in the other. Therefore libplumbline_agent.so
 * compiles agent/facade/alloc_forward.cc into itself and exports malloc, free, calloc, realloc,
 * memalign, posix_memalign, aligned_alloc, valloc, pvalloc and malloc_usable_size (export list:
 * agent/facade/agent.map, the version script), which deep binding finds first. They forward to
 * plumbline_process_allocator, a variable that the façade exports and fills before its dlopen,
 * because static initialisers of the agent's libraries allocate before the table could be passed.
 * Hence libplumbline_agent.so links libplumbline.so (target plumbline); the loader finds the loaded
 * one by its SONAME.
 * Under a sanitizer the forwards are left out, because the runtime's own malloc must be found. Then
 * the façade opens nothing, and a program that needs the agent links it and calls
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
  1u /* increased if a meaning changes; additions only increase size */

/* The process's allocator: the functions that the main program's scope finds under these names. */
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

/* Text of a failure, truncated to fit, always NUL-terminated: what failed, where, what was
 * expected. */
typedef struct plumbline_error {
  char text[512];
} plumbline_error_t;

/* Resolved options: the agent reads no environment variable for them. Strings are never NULL,
 * except spool. */
typedef struct plumbline_agent_open {
  uint32_t size;
  int32_t role;       /* PLUMBLINE_ROLE_* */
  const char* run;    /* not empty */
  const char* server; /* "": none */
  const char* record; /* "": none; not both empty */
  uint32_t attempt;
  uint32_t rank;
  uint32_t world_size;  /* > rank */
  uint32_t every;       /* at most every n-th step is due, from the first; 0: the cadence decides */
  double budget;        /* share of step time; 0: the agent's default */
  const char* spool;    /* "": none; NULL: RECORD/spool if there are a record and a server */
  uint64_t spool_bytes; /* 0: the agent's default */
  const char* caller;   /* NULL: not given */
  int32_t redact;       /* 1: ids are sent as keyed hashes */
  int32_t stop_on;      /* PLUMBLINE_STOP_ON_*; an older facade sets 0 */
} plumbline_agent_open_t;

typedef struct plumbline_agent_site {
  uint32_t size;
  int32_t kind; /* PLUMBLINE_KIND_* */
  const char* layer;
  const char* op; /* not empty */
  int64_t step;   /* the open step, or the one last begun, or 0 */
  /* The site's due word, valid until the process ends. Once it is open, only the agent writes it
   * (relaxed atomic stores), and only within step_end, step_begin, look and declare_site. The
   * façade sets it to PLUMBLINE_NEVER before close and in a forked child. */
  uint64_t* next_due;
  const char* file; /* the trainer's line that declares it; NULL: not known, or an older facade */
  uint32_t line;
} plumbline_agent_site_t;

typedef struct plumbline_agent_table {
  uint32_t size; /* sizeof(plumbline_agent_table_t) in the agent's build */
  uint32_t version;
  const char* tool_version; /* as plumbline_version */

  /* Starts threads and connections; does not wait for a server. Returns an error if the record
   * directory cannot be written. The agent owns *agent_run until close. */
  plumbline_status_t (*open)(const plumbline_agent_open_t* options, void** agent_run,
                             plumbline_error_t* error);
  /* Declares a site. The agent owns *agent_site, which is valid until close of the run. Sites that
   * were made before the agent was loaded are declared right after open, in their order. */
  plumbline_status_t (*declare_site)(void* agent_run, const plumbline_agent_site_t* site,
                                     void** agent_site, plumbline_error_t* error);
  /* Begin and end a step, in order, never nested, steps >= 0. If the agent is loaded within a step,
   * step_begin of that step follows open and the declarations. Earlier steps are not reported. */
  plumbline_status_t (*step_begin)(void* agent_run, int64_t step, plumbline_error_t* error);
  plumbline_status_t (*step_end)(void* agent_run, int64_t step, plumbline_error_t* error);

  plumbline_status_t (*observe_routing)(void* agent_run, void* agent_site, int64_t step,
                                        const plumbline_routing_t* routing,
                                        plumbline_error_t* error);
  plumbline_status_t (*scalar)(void* agent_run, int64_t step, const char* name, double value,
                               plumbline_error_t* error);
  /* Begins a stage. kind and name are not empty. Returns INVALID_ARGUMENT for an unknown kind.
   * *span > 0 on success. */
  plumbline_status_t (*span_begin)(void* agent_run, int64_t step, const char* kind,
                                   const char* name, uint64_t* span, plumbline_error_t* error);
  plumbline_status_t (*span_end)(void* agent_run, uint64_t span, plumbline_error_t* error);

  plumbline_status_t (*flush)(void* agent_run, uint32_t timeout_ms, plumbline_error_t* error);
  /* Frees agent_run and its sites, even if it returns DEADLINE_EXCEEDED. */
  plumbline_status_t (*close)(void* agent_run, uint32_t timeout_ms, plumbline_error_t* error);

  /* Needs no run. check->route is set and is called in the caller's thread before the call returns.
   * *verdict is filled if OK is returned. */
  plumbline_status_t (*check_router)(const plumbline_router_check_t* check,
                                     plumbline_router_verdict_t* verdict, plumbline_error_t* error);

  /* The table of an older agent ends here; PLUMBLINE_AGENT_HAS tests for a field. The site has the
   * matching kind and is due, and a step is open; values are not checked yet. */
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

  /* Needs no run. sum->sum is set and is called in the caller's thread before the call returns.
   * *result is filled if OK is returned. */
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
  /* After it, observe_* may be called with step = PLUMBLINE_CAPTURING: calls that a graph will
   * replay, in the order of `replays_on`. */
  plumbline_status_t (*capture_begin)(void* agent_run, void* replays_on, plumbline_error_t* error);
  /* Reports how the process ends, for the goodbye. The first report that is not of a thread alone
   * counts, until a step begins or NULL cancels it. */
  plumbline_status_t (*note_ending)(void* agent_run, const plumbline_ending_t* ending,
                                    plumbline_error_t* error);
  /* Makes sites due from the open step on; steps > 0. Sets due words back to the step. */
  plumbline_status_t (*look)(void* agent_run, int64_t step, uint32_t steps,
                             plumbline_error_t* error);
  /* plumbline/together.h. */
  plumbline_status_t (*together_begin)(void* agent_run, plumbline_error_t* error);
  plumbline_status_t (*together_end)(void* agent_run, plumbline_error_t* error);
  /* See plumbline/marks.h. The caller is the thread that writes the marks; `marks` lives until the
   * process ends. */
  plumbline_status_t (*marks)(void* agent_run, plumbline_marks_t* marks, plumbline_error_t* error);
  /* `text` is not NULL unless bytes is 0; `ordered` is not NULL. Thread-safe. */
  plumbline_status_t (*stop_order)(void* agent_run, char* text, uint32_t bytes, int32_t* ordered,
                                   plumbline_error_t* error);
  /* See plumbline/steps.h. Once per run; count <= PLUMBLINE_STEP_SERIES. `steps` lives until the
   * process ends. */
  plumbline_status_t (*steps)(void* agent_run, const char* const* series, uint32_t count,
                              plumbline_steps_t* steps, plumbline_error_t* error);
  /* `scalar`, with the trainer's line that reports it. `file` may be NULL. */
  plumbline_status_t (*scalar_at)(void* agent_run, int64_t step, const char* name, double value,
                                  const char* file, uint32_t line, plumbline_error_t* error);
  plumbline_status_t (*next_look)(void* agent_run, int64_t step, plumbline_error_t* error);
} plumbline_agent_table_t;

/* True if the table has the field. Tables only grow. */
#define PLUMBLINE_AGENT_HAS(table, field)                                                \
  ((table)->size >= offsetof(plumbline_agent_table_t, field) + sizeof((table)->field) && \
   (table)->field != NULL)
/* The size of the table of the oldest agent of this version. */
#define PLUMBLINE_AGENT_TABLE_LEAST offsetof(plumbline_agent_table_t, observe_tensor)

/* Exported by libplumbline_agent.so. */
extern PLUMBLINE_API const plumbline_agent_table_t plumbline_agent_table;

/* Makes the façade use this table instead of opening the library. Call it before the first due
 * call: returns FAILED_PRECONDITION afterwards, and INVALID_ARGUMENT for another version. */
PLUMBLINE_API plumbline_status_t plumbline_link_agent(const plumbline_agent_table_t* table);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_AGENT_TABLE_H_ */
