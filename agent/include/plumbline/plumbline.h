/* Plumbline's C ABI. A trainer calls it so that its routers, tensors, sums, updates, series and
 * stages are checked.
 *
 * Every call returns a plumbline_status_t. No call throws or aborts. Only plumbline_flush and
 * plumbline_close block, for at most the given timeout. The trainer need not handle a missing
 * server, a missing agent library or a forked child: then calls return at once.
 *
 * Thread-safety: any call may be made from any thread. For one run, step_begin and step_end must
 * come from one thread at a time. Strings are NUL-terminated UTF-8 and are borrowed for the call.
 * Handles (runs, sites) stay readable until the process ends. After plumbline_close, calls on them
 * return PLUMBLINE_DISABLED.
 *
 * ABI: structs begin with their size. New fields are only added at the end; zero there means "not
 * given". Initialise a struct with its ..._INIT macro. */
#ifndef PLUMBLINE_PLUMBLINE_H_
#define PLUMBLINE_PLUMBLINE_H_

#include <stddef.h>
#include <stdint.h>

/* Tensors are passed as DLPack's DLTensor. If you use another copy of dlpack.h, include it before
 * this file. If there is none, this file defines the same layout. */
#if !defined(DLPACK_DLPACK_H_) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#if !defined(DLPACK_DLPACK_H_)
typedef struct {
  int32_t device_type; /* PLUMBLINE_DL_CPU, ... */
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code; /* PLUMBLINE_DL_INT, ... */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;       /* [ndim] */
  int64_t* strides;     /* [ndim] in elements, may be negative; NULL: C order */
  uint64_t byte_offset; /* added to data */
} DLTensor;
#endif

/* DLPack's codes under our own names, because older headers lack the newer ones. */
#define PLUMBLINE_DL_INT 0
#define PLUMBLINE_DL_UINT 1
#define PLUMBLINE_DL_FLOAT 2
#define PLUMBLINE_DL_BFLOAT 4
#define PLUMBLINE_DL_BOOL 6           /* 8 bits, 0 or 1 */
#define PLUMBLINE_DL_FLOAT8_E4M3FN 10 /* 8 bits, no infinities */
#define PLUMBLINE_DL_FLOAT8_E5M2 12
#define PLUMBLINE_DL_CPU 1
#define PLUMBLINE_DL_CUDA 2
#define PLUMBLINE_DL_CUDA_HOST 3
#define PLUMBLINE_DL_CUDA_MANAGED 13

#if defined(__GNUC__)
#define PLUMBLINE_API __attribute__((visibility("default")))
#else
#define PLUMBLINE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ------------------------------------------------------------------------------------
 */

/* If >= 0, the caller need not act. If < 0, the call failed; plumbline_last_error returns the
 * reason. */
typedef int32_t plumbline_status_t;
enum {
  PLUMBLINE_OK = 0,
  PLUMBLINE_NOT_DUE = 1,              /* this site is not measured at this step */
  PLUMBLINE_DISABLED = 2,             /* PLUMBLINE_DISABLE=1, a forked child, or a closed run */
  PLUMBLINE_DROPPED = 3,              /* the evidence could not be kept; it is counted and reported
                                       * as data loss */
  PLUMBLINE_INVALID_ARGUMENT = -1,    /* nothing was recorded */
  PLUMBLINE_FAILED_PRECONDITION = -2, /* e.g. an observation outside step_begin ... step_end */
  PLUMBLINE_UNAVAILABLE = -3,         /* the agent library is missing or disabled, or a tensor is on
                                       * a device that cannot be used */
  PLUMBLINE_DEADLINE_EXCEEDED = -4,  /* flush or close did not finish in time; losses are counted */
  PLUMBLINE_RESOURCE_EXHAUSTED = -5, /* out of memory, or too many sites */
  PLUMBLINE_INTERNAL = -6
};

/* Returns the name of a status: "ok", "not-due", ..., or "unknown-status" for any other number.
 * Static storage. */
PLUMBLINE_API const char* plumbline_status_name(plumbline_status_t status);

/* Returns the text of the last call of this thread that returned a negative status: what failed,
 * where, and what was expected. Returns "" if no call failed. Valid until the thread's next call.
 */
PLUMBLINE_API const char* plumbline_last_error(void);

/* Returns the version, "0.2.0~git20261128.143005.abc1234": number, date and UTC time of the commit,
 * commit hash. The version of a later commit is greater for `dpkg --compare-versions`. Static
 * storage. */
PLUMBLINE_API const char* plumbline_version(void);

/* ---- runs --------------------------------------------------------------------------------------
 */

/* The head of a run. The rest is private to the library. */
typedef struct plumbline_run_head {
  uint64_t step; /* the step that is open, or PLUMBLINE_NO_STEP. Read-only. */
} plumbline_run_t;

#define PLUMBLINE_NEVER UINT64_MAX           /* a site's next_due: never due in this run */
#define PLUMBLINE_NO_STEP (UINT64_MAX - 1)   /* a run's step outside step_begin ... step_end */
#define PLUMBLINE_CAPTURING (UINT64_MAX - 2) /* a run's step between capture_begin and _end */

enum { PLUMBLINE_ROLE_TRAINER = 1, PLUMBLINE_ROLE_ROLLOUT = 2 };

/* Levels of findings at which a training ends. */
enum { PLUMBLINE_STOP_ON_WARNING = 2, PLUMBLINE_STOP_ON_ERROR = 3 };

typedef struct plumbline_open_options {
  uint32_t size;      /* sizeof(plumbline_open_options_t) */
  int32_t role;       /* PLUMBLINE_ROLE_*; 0: trainer */
  const char* run;    /* name; NULL: $PLUMBLINE_RUN, else "run" */
  const char* server; /* "host:port" of plumbd; NULL: $PLUMBLINE_SERVER; "": none */
  const char* record; /* directory of run records; NULL: $PLUMBLINE_RECORD; "": none */
  int32_t attempt; /* number of earlier restarts; -1: $PLUMBLINE_ATTEMPT, else torchrun's, else 0 */
  int32_t rank;    /* -1: RANK, else SLURM_PROCID, else OMPI_COMM_WORLD_RANK, else 0 */
  int32_t world_size; /* -1: the matching WORLD_SIZE, SLURM_NTASKS, OMPI_COMM_WORLD_SIZE, else 1 */
  uint32_t every; /* measure at most every n-th step; 0: $PLUMBLINE_EVERY, else every step; a site
                   * is measured less often if its evidence exceeds the traffic budget */
  double budget;  /* share of the step time that may be used; 0: $PLUMBLINE_BUDGET, else default */
  const char* spool; /* directory for batches that the server has not acknowledged; survives this
                      * process; NULL: $PLUMBLINE_SPOOL, else RECORD/spool if both server and record
                      * are given, else none; "off": none */
  uint64_t
      spool_bytes; /* limit of the spool of this process; 0: $PLUMBLINE_SPOOL_BYTES, else 1 GiB */
  const char* caller; /* "train.py:12", where the run is opened, for messages; NULL: none */
  int32_t redact;     /* 1: token and sequence ids leave the process as keyed hashes, under
                         $PLUMBLINE_REDACT_KEY, else a key from the access token, else a random one;
                         0: $PLUMBLINE_REDACT (0 or 1), else no */
  int32_t stop_on;    /* PLUMBLINE_STOP_ON_*: the level of findings for which the server orders the
                         training to end, see plumbline_stop_order; 0: none */
} plumbline_open_options_t;

#define PLUMBLINE_OPEN_OPTIONS_INIT \
  { sizeof(plumbline_open_options_t), 0, NULL, NULL, NULL, -1, -1, -1, 0, 0.0, NULL, 0, NULL, 0, 0 }

/* Opens a run. It does not load the agent; the first due call does. NULL options mean all defaults.
 * A server, a record or both must be given, by options or environment.
 *
 * *run is set unless INVALID_ARGUMENT or RESOURCE_EXHAUSTED is returned. If DISABLED is returned,
 * *run is a run whose calls do nothing. In a child that was forked after a run was opened, returns
 * DISABLED and prints one line to standard error: open the first run after the fork, or start new
 * processes. */
PLUMBLINE_API plumbline_status_t plumbline_open(const plumbline_open_options_t* options,
                                                plumbline_run_t** run);

/* Sets the rank of the process if it is known only after plumbline_open, for example from a process
 * group that the trainer sets up later. Replaces the rank of plumbline_open. Returns
 * FAILED_PRECONDITION if something was already recorded under the old rank, and INVALID_ARGUMENT
 * unless 0 <= rank < world_size. */
PLUMBLINE_API plumbline_status_t plumbline_set_rank(plumbline_run_t* run, int32_t rank,
                                                    int32_t world_size);

/* Returns in *ordered whether the server has ordered the training to end, because a step of this
 * process has a finding of the level that stop_on names. If *ordered is 1, `text` holds the reason
 * ("error health/loss-non-finite: the loss is NaN (step 12)"), cut to fit and terminated by a zero.
 * `text` may be NULL if bytes is 0. Does not wait and does not load the agent, so that it is cheap
 * enough for every step. Only the trainer ends the training. */
PLUMBLINE_API plumbline_status_t plumbline_stop_order(plumbline_run_t* run, char* text,
                                                      uint32_t bytes, int32_t* ordered);

/* Begins and ends a step. Steps are numbered from 0 and increase within an attempt. Observations
 * between begin and end belong to the step. step_end declares the step complete and advances the
 * due words of sites. If a step is open, step_begin ends it first. */
PLUMBLINE_API plumbline_status_t plumbline_step_begin(plumbline_run_t* run, int64_t step);
PLUMBLINE_API plumbline_status_t plumbline_step_end(plumbline_run_t* run);

/* Begins and ends the capture of a CUDA graph. An observation between the two is not measured now.
 * It becomes part of the graph that its `cuda_stream` is being captured into. Each replay of the
 * graph in a step in which the site is due measures it; due words do not matter during the capture.
 * One graph serves all steps. In steps that are not due its probes are empty launches.
 *
 * Supported are router calls, products, tensors and updates on a device. Returns NOT_DUE for host
 * tensors and other kinds, and INVALID_ARGUMENT for a stream that is not being captured by any
 * thread of the run. Returns DROPPED if graphs that exist already contain 1,024 calls of the
 * device; a call counts until its graph and all instances of it are destroyed. Sampled elements are
 * kept of a step's first replay only. Device memory for the calls (up to 72 KiB each; for router
 * calls one workspace per stream of a capture) is allocated here and reused by later captures.
 *
 * `replay_stream` is a cudaStream_t that exists as long as the run, the same for all graphs of a
 * device, and not cudaStreamPerThread (otherwise the calls return INVALID_ARGUMENT). Every step and
 * every replay must be ordered by it: graphs are launched on it, or on streams that wait for it
 * after step_begin and that it waits for before step_end. Two replays of one graph must not run at
 * the same time. If a replay spans the begin or end of a step, or overlaps another one, the library
 * detects this and measures nothing more on that device.
 *
 * Returns FAILED_PRECONDITION if a capture has already begun, or has not begun. A step must begin
 * and end outside of the capture, or contain the whole capture. */
PLUMBLINE_API plumbline_status_t plumbline_capture_begin(plumbline_run_t* run, void* replay_stream);
PLUMBLINE_API plumbline_status_t plumbline_capture_end(plumbline_run_t* run);

/* Waits until the server has acknowledged all observations and they are written to the record. In a
 * step whose graphs are measured, it does not wait for the device's measurements of that step. */
PLUMBLINE_API plumbline_status_t plumbline_flush(plumbline_run_t* run, uint32_t timeout_ms);

/* Sends a goodbye to the server, ends the record, and stops the run's threads, within timeout_ms.
 *
 * Returns OK if all measurements are in the record and acknowledged by the server. Returns
 * UNAVAILABLE if nothing was recorded (no agent, a directory that cannot be written, no memory);
 * the reason is on standard error. Returns INVALID_ARGUMENT if nothing was recorded because of the
 * options of plumbline_open. Returns INTERNAL if a measurement is missing in the record or the
 * server refused it. Returns DEADLINE_EXCEEDED if the server has not acknowledged everything;
 * plumbline_last_error states how much of it a spool keeps. Returns DISABLED for
 * PLUMBLINE_DISABLE=1, a forked child, or a closed run. */
PLUMBLINE_API plumbline_status_t plumbline_close(plumbline_run_t* run, uint32_t timeout_ms);

/* How a process ends if it does not end normally. */
enum {
  PLUMBLINE_ENDING_EXCEPTION = 1,   /* an uncaught exception */
  PLUMBLINE_ENDING_EXIT = 2,        /* with a status that is not 0 */
  PLUMBLINE_ENDING_SIGNAL = 3,      /* a signal ends it */
  PLUMBLINE_ENDING_INTERRUPTED = 4, /* by hand */
  PLUMBLINE_ENDING_UNWINDING = 5    /* an exception is propagating and may still be caught */
};

typedef struct plumbline_ending {
  uint32_t size;      /* sizeof(plumbline_ending_t) */
  int32_t how;        /* PLUMBLINE_ENDING_*; 0: only `thread` ends, not the process */
  const char* type;   /* type of the exception, or name of the signal; NULL: not given */
  const char* text;   /* its message */
  const char* where;  /* "train.cc:57 in Forward" */
  int32_t code;       /* exit status, or number of the signal */
  const char* thread; /* an exception that ended a thread and not the process */
} plumbline_ending_t;

#define PLUMBLINE_ENDING_INIT \
  { sizeof(plumbline_ending_t), 0, NULL, NULL, NULL, 0, NULL }

/* Reports how the process is about to end. The report is sent with the goodbye (plumbline_close, or
 * the end of the process by exit), and the server reports it as health/run-died. The first report
 * counts, until a step begins or a call with NULL cancels it. Call it before plumbline_close, for
 * example from a handler of uncaught exceptions (std::set_terminate), but not from a signal
 * handler. If the process exits with a status other than 0, the library notes that itself. */
PLUMBLINE_API plumbline_status_t plumbline_note_ending(plumbline_run_t* run,
                                                       const plumbline_ending_t* ending);

/* Installs a handler of SIGTERM. It makes the process's runs send a goodbye, for at most three
 * seconds, and then applies the signal's default action, which ends the process. It works even if
 * no thread of the trainer could handle the signal. Returns FAILED_PRECONDITION if the signal does
 * not have its default action. A handler that the trainer installs later replaces this one. */
PLUMBLINE_API plumbline_status_t plumbline_watch_sigterm(void);

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

static inline int plumbline_due(const plumbline_site_t* site) {
#if defined(__GNUC__)
  return __atomic_load_n(site->step, __ATOMIC_RELAXED) >=
         __atomic_load_n(&site->next_due, __ATOMIC_RELAXED);
#else
  return *(const volatile uint64_t*)site->step >= *(const volatile uint64_t*)&site->next_due;
#endif
}

/* ---- routing -----------------------------------------------------------------------------------
 */

enum { PLUMBLINE_SCORE_IDENTITY = 0, PLUMBLINE_SCORE_SOFTMAX = 1, PLUMBLINE_SCORE_SIGMOID = 2 };
enum {
  PLUMBLINE_CAPACITY_ABSENT = 0,
  PLUMBLINE_CAPACITY_NONE = 1,
  PLUMBLINE_CAPACITY_DECLARED = 2
};
enum {
  PLUMBLINE_CAPACITY_SOURCE_ABSENT = 0, /* as DECLARED */
  PLUMBLINE_CAPACITY_SOURCE_DECLARED = 1,
  PLUMBLINE_CAPACITY_SOURCE_INFERRED = 2
};
enum {
  PLUMBLINE_GROUP_SCORE_ABSENT = 0,
  PLUMBLINE_GROUP_SCORE_MAX = 1,
  PLUMBLINE_GROUP_SCORE_SUM2 = 2
};
enum {
  PLUMBLINE_POOL_ABSENT = 0,
  PLUMBLINE_POOL_MICROBATCH = 1,
  PLUMBLINE_POOL_SEQUENCE = 2,
  PLUMBLINE_POOL_GROUP = 3,
  PLUMBLINE_POOL_RANK = 4,
  PLUMBLINE_POOL_WORLD = 5
};
enum {
  PLUMBLINE_FLATTEN_ABSENT = 0,
  PLUMBLINE_FLATTEN_SEQ_MAJOR = 1,
  PLUMBLINE_FLATTEN_BATCH_MAJOR = 2
};
enum { PLUMBLINE_BIAS_ABSENT = 0, PLUMBLINE_BIAS_BEFORE = 1, PLUMBLINE_BIAS_AFTER = 2 };

/* One router call over T tokens and E experts, with k choices per token. Tensors are borrowed. Host
 * tensors are read before the call returns. CUDA tensors are read in the order of `cuda_stream`, as
 * by a kernel that the trainer launched; they must exist and stay unchanged until then. All tensors
 * of a call are on the host or on one device. Floating tensors have f64, f32, f16 or bf16, integer
 * tensors any width, masks bool or u8; any strides. NULL: absent.
 *
 * On a device the call does not synchronise and does not allocate. Exceptions that allocate are the
 * first call, the first call with more than 64, 128 and 256 experts, and the first tensor or
 * update. Returns DROPPED if the device's ring is full, if the device failed before, or if the
 * stream is being captured into a graph (see plumbline_capture_begin). Returns UNAVAILABLE if
 * libplumbline_cuda.so, a driver or the device is missing; standard error reports it once. Returns
 * INVALID_ARGUMENT if `cuda_stream` belongs to another device. The thread's current device and
 * CUDA's last error do not change. */
typedef struct plumbline_routing {
  uint32_t size;                /* sizeof(plumbline_routing_t) */
  uint32_t top_k;               /* choices per token; required, >= 1 */
  const DLTensor* scores;       /* [T,E] logits, or scores after score_function; required */
  int32_t scores_are_logits;    /* 1: before score_function */
  int32_t score_function;       /* PLUMBLINE_SCORE_* */
  const DLTensor* expert_bias;  /* [E] floating, added after the score function */
  const DLTensor* topk_indices; /* [T,k]; -1: no choice */
  const DLTensor* keep_mask;    /* [T,k] */
  const DLTensor* routing_map;  /* [T,E] mask */
  const DLTensor* probs;        /* [T,E] or [T,k] floating */
  const DLTensor* sequence_id;  /* [T] integer */
  const DLTensor* position;     /* [T] integer */
  const DLTensor* padding_mask; /* [T] mask, true: padding */
  const DLTensor*
      pool_id;           /* [T] integer: rows with one id compete for capacity; overrides `pool` */
  int32_t capacity_kind; /* PLUMBLINE_CAPACITY_* */
  int32_t group_score;   /* PLUMBLINE_GROUP_SCORE_* */
  uint64_t capacity;     /* per expert and pool unit, when DECLARED */
  uint32_t groups;       /* 0 or 1: no group limit; must divide E */
  uint32_t top_groups;
  int32_t pool;            /* PLUMBLINE_POOL_* */
  int32_t flatten;         /* PLUMBLINE_FLATTEN_*: the order in which the router queued its rows */
  int32_t bias_captured;   /* PLUMBLINE_BIAS_*: before or after this batch's scores existed */
  uint32_t reserved;       /* 0 */
  const char* randomness;  /* the random part of the choice ("jitter"); NULL: nothing declared */
  const char* mode;        /* "train", "eval" or NULL */
  void* cuda_stream;       /* cudaStream_t of CUDA tensors; NULL: the default stream */
  const char* policy;      /* how full experts refuse, from the configuration ("fifo-capacity",
                            * "score-capacity", ...): a claim that is checked; NULL: not given */
  int32_t capacity_source; /* PLUMBLINE_CAPACITY_SOURCE_*: whether `capacity` comes from the
                            * configuration or from observed loads */
  uint32_t reserved2;      /* 0 */
} plumbline_routing_t;

/* clang-format off */
#define PLUMBLINE_ROUTING_INIT                                                                \
  {sizeof(plumbline_routing_t), 0, NULL, 0, 0,                                /* scores */    \
   NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,                      /* others */    \
   0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL,                               /* settings */  \
   NULL, 0, 0}
/* clang-format on */

/* Records one router call if the site is due. It is not inline; plumbline_observe_routing_if_due
 * costs one compare if the site is not due. */
PLUMBLINE_API plumbline_status_t plumbline_observe_routing(plumbline_site_t* site,
                                                           const plumbline_routing_t* routing);

static inline plumbline_status_t plumbline_observe_routing_if_due(
    plumbline_site_t* site, const plumbline_routing_t* routing) {
  return plumbline_due(site) ? plumbline_observe_routing(site, routing) : PLUMBLINE_NOT_DUE;
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

/* ---- tensors -----------------------------------------------------------------------------------
 */

/* Element types for fields without a tensor. */
enum {
  PLUMBLINE_DTYPE_ABSENT = 0,
  PLUMBLINE_DTYPE_F64 = 1,
  PLUMBLINE_DTYPE_F32 = 2,
  PLUMBLINE_DTYPE_F16 = 3,
  PLUMBLINE_DTYPE_BF16 = 4,
  PLUMBLINE_DTYPE_E4M3 = 5,
  PLUMBLINE_DTYPE_E5M2 = 6
};

/* All structs below: tensors are borrowed and may have any strides; NULL: absent. Host tensors are
 * read before the call returns. CUDA tensors are read like those of a router call, in the order of
 * `cuda_stream`. A device tensor that must be copied whole and is above 8 MiB is not read: returns
 * DROPPED, counted as `device-tensor-not-read`. Strings are copied. A large host tensor is measured
 * within the call, a small one is copied and measured later by the library's thread. In both cases
 * the caller may write to it as soon as the call returns. If INVALID_ARGUMENT is returned, nothing
 * was recorded, and plumbline_last_error() names the field. */

/* One tensor at one moment. */
typedef struct plumbline_tensor {
  uint32_t size;          /* sizeof(plumbline_tensor_t) */
  int32_t target_format;  /* PLUMBLINE_DTYPE_*: the format in which the values will be stored */
  const DLTensor* values; /* any shape; floating, integer or bool; required */
  const char* role; /* "weight", "gradient", "activation", "probabilities" (rows of the last axis
                       sum to one), "positions" (token positions), or NULL */
  const char*
      replicas;      /* a name: ranks with the same name hold copies of this tensor; NULL: none */
  void* cuda_stream; /* cudaStream_t of a CUDA tensor; NULL: the default stream */
} plumbline_tensor_t;

#define PLUMBLINE_TENSOR_INIT \
  { sizeof(plumbline_tensor_t), 0, NULL, NULL, NULL, NULL }

/* Records one tensor if the site is due. It is not inline; the function with _if_due costs one
 * compare if the site is not due. The same holds for the functions below. */
PLUMBLINE_API plumbline_status_t plumbline_observe_tensor(plumbline_site_t* site,
                                                          const plumbline_tensor_t* tensor);

static inline plumbline_status_t plumbline_observe_tensor_if_due(plumbline_site_t* site,
                                                                 const plumbline_tensor_t* tensor) {
  return plumbline_due(site) ? plumbline_observe_tensor(site, tensor) : PLUMBLINE_NOT_DUE;
}

/* ---- reductions --------------------------------------------------------------------------------
 */

enum {
  PLUMBLINE_REDUCE_UNSPECIFIED = 0,
  PLUMBLINE_REDUCE_SUM = 1,
  PLUMBLINE_REDUCE_AVG = 2, /* divides inside the collective */
  PLUMBLINE_REDUCE_MAX = 3,
  PLUMBLINE_REDUCE_MIN = 4,
  PLUMBLINE_REDUCE_PRODUCT = 5,
  PLUMBLINE_REDUCE_OTHER = 6
};

/* One collective of one process group: the input and the output of this rank. Pass either whole
 * buffers of `count` elements (the library keeps the sampled elements of the step; an operation in
 * place has no input left to pass), or, with `offsets`, the elements at the indices of
 * plumbline_sample_indices. With neither input nor output only the call is recorded; ranks' counts,
 * types and operations can still be compared. */
typedef struct plumbline_reduction {
  uint32_t size; /* sizeof(plumbline_reduction_t) */
  int32_t op;    /* PLUMBLINE_REDUCE_* */
  /* As passed to the collective, so already with `prescale`: any shape of `count` elements, or [m]
   * with offsets; [N,m] if one call reports all N ranks. With algorithm "accumulation", one rank's
   * own running sum: [K,m], the addends in their order. Floating or integer. */
  const DLTensor* input;
  /* The result of the collective, without `postscale`: like input, or [m]. NULL with an input and
   * offsets on ranks that get no result (of a reduction to one rank, or of a part that is scattered
   * to one rank). */
  const DLTensor* output;
  const DLTensor*
      offsets;       /* [m] integers >= 0: indices in C order; NULL: input and output are whole */
  const char* group; /* the process group's name, the same on its ranks; NULL: the world */
  const char* algorithm;      /* "ring", "tree", ...; "accumulation"; "left-gradient"
                               * (inputs: what a step left in .grad, output: what the next found
                               * there); NULL: not known */
  const char* transport;      /* "gloo", "nccl", "mpi"; NULL: not known */
  const uint32_t* ring_order; /* [ring_size] group ranks in ring order; NULL: not known */
  uint64_t sequence;          /* number of the call within its group, the same on every rank */
  int32_t
      sequence_known;  /* 1: `sequence` is given; 0: calls are joined by their order in the step */
  int32_t wire_dtype;  /* PLUMBLINE_DTYPE_*: dtype in which values are sent; ABSENT: the input's */
  uint64_t count;      /* elements per rank; 0: those of a whole input, else not known */
  uint32_t group_size; /* ranks; 0: not known */
  uint32_t group_rank; /* this rank within the group */
  double prescale;     /* factors applied before and after by the trainer; 0: 1 */
  double postscale;
  uint32_t channels;      /* 0: not known */
  uint32_t root;          /* of a reduction to one rank */
  uint64_t chunk;         /* elements per chunk of one channel; 0: not known */
  uint32_t ring_size;     /* extent of ring_order, at most 65,536 */
  int32_t variable_count; /* 1: ranks may differ in count by design */
  void* cuda_stream;
} plumbline_reduction_t;

/* clang-format off */
#define PLUMBLINE_REDUCTION_INIT                                                              \
  {sizeof(plumbline_reduction_t), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, /* tensors */  \
   0, 0, 0, 0, 0, 0, 0.0, 0.0, 0, 0, 0, 0, 0, NULL}
/* clang-format on */

PLUMBLINE_API plumbline_status_t
plumbline_observe_reduction(plumbline_site_t* site, const plumbline_reduction_t* reduction);

static inline plumbline_status_t plumbline_observe_reduction_if_due(
    plumbline_site_t* site, const plumbline_reduction_t* reduction) {
  return plumbline_due(site) ? plumbline_observe_reduction(site, reduction) : PLUMBLINE_NOT_DUE;
}

/* ---- updates -----------------------------------------------------------------------------------
 */

#if defined(__GNUC__)
#define PLUMBLINE_NAN __builtin_nan("")
#else
#include <math.h>
#define PLUMBLINE_NAN ((double)NAN)
#endif

/* One update in place: `after` should be round(before + intended), rounded once. Pass whole tensors
 * of one shape, or, with `offsets`, the elements at the indices of plumbline_sample_indices (then
 * nothing is recorded about the others). The addition of a micro-batch to a gradient is an update
 * too: optimizer "accumulation", `intended` the addend, one call per addition. */
typedef struct plumbline_update {
  uint32_t size;            /* sizeof(plumbline_update_t) */
  int32_t eps_dtype;        /* PLUMBLINE_DTYPE_*: in which eps is added; ABSENT: the moments' */
  const DLTensor* before;   /* floating; required, as are after and intended */
  const DLTensor* after;    /* of before's type */
  const DLTensor* intended; /* floating, best wider than before: the change in full precision */
  const DLTensor* gradient; /* floating, optional, as are the moments */
  const DLTensor* moment_before; /* second moment */
  const DLTensor* moment_after;
  const DLTensor* offsets; /* [m] integers >= 0; NULL: whole tensors */
  uint64_t count;          /* elements of the whole tensor; 0: those of before, without offsets */
  const char* optimizer;   /* "sgd", "adam", "adamw", "ema", "accumulation", ... or NULL */
  double lr;               /* NaN: not given, here and below */
  double beta2;
  double eps;
  double decay; /* of an average: e <- decay * e + (1 - decay) * p */
  void* cuda_stream;
} plumbline_update_t;

/* clang-format off */
#define PLUMBLINE_UPDATE_INIT                                                                 \
  {sizeof(plumbline_update_t), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL,          \
   PLUMBLINE_NAN, PLUMBLINE_NAN, PLUMBLINE_NAN, PLUMBLINE_NAN, NULL}
/* clang-format on */

PLUMBLINE_API plumbline_status_t plumbline_observe_update(plumbline_site_t* site,
                                                          const plumbline_update_t* update);

static inline plumbline_status_t plumbline_observe_update_if_due(plumbline_site_t* site,
                                                                 const plumbline_update_t* update) {
  return plumbline_due(site) ? plumbline_observe_update(site, update) : PLUMBLINE_NOT_DUE;
}

/* ---- series and stages -------------------------------------------------------------------------
 */

/* Records one value of a series at the open step ("loss"). NaN and infinity are data. Always due.
 */
PLUMBLINE_API plumbline_status_t plumbline_scalar(plumbline_run_t* run, const char* name,
                                                  double value);

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

#include "plumbline/in_hand.h"
#include "plumbline/products.h"
#include "plumbline/rollouts.h"

#endif /* PLUMBLINE_PLUMBLINE_H_ */
