/* Plumbline's C ABI: what a trainer calls to have its routers, tensors, sums, updates,
 * series and stages watched.
 *
 * Every call returns a plumbline_status_t, never throws, never aborts, never blocks except
 * plumbline_flush and plumbline_close, which take a timeout. A missing server, a missing agent
 * library or a forked child is not an error the trainer must handle: calls return at once.
 *
 * Threads: every call may be made from any thread; step_begin and step_end of one run from one
 * thread at a time. Strings are NUL-terminated UTF-8, borrowed for the call. Handles (runs, sites)
 * stay readable until the process ends; after plumbline_close their calls return
 * PLUMBLINE_DISABLED.
 *
 * ABI: structs begin with their size. Fields are only added at the end; a zero there means "not
 * said". Set a struct up with its ..._INIT macro. */
#ifndef PLUMBLINE_PLUMBLINE_H_
#define PLUMBLINE_PLUMBLINE_H_

#include <stddef.h>
#include <stdint.h>

/* Tensors travel as DLPack's DLTensor. If another copy of dlpack.h is used, include it before this
 * file; without any, a definition of the same layout stands in. */
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

/* DLPack's codes under our names, since older headers lack the newer ones. */
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

/* >= 0: nothing for the caller to do. < 0: a mistake or a failure; plumbline_last_error says which.
 */
typedef int32_t plumbline_status_t;
enum {
  PLUMBLINE_OK = 0,
  PLUMBLINE_NOT_DUE = 1,              /* this site is not measured at this step */
  PLUMBLINE_DISABLED = 2,             /* PLUMBLINE_DISABLE=1, a forked child, or a closed run */
  PLUMBLINE_DROPPED = 3,              /* could not be kept; counted and reported as data loss */
  PLUMBLINE_INVALID_ARGUMENT = -1,    /* nothing was recorded */
  PLUMBLINE_FAILED_PRECONDITION = -2, /* e.g. an observation outside step_begin ... step_end */
  PLUMBLINE_UNAVAILABLE = -3,         /* the agent library is missing or kept out, or a tensor lies
                                         on a device that cannot be used */
  PLUMBLINE_DEADLINE_EXCEEDED =
      -4, /* flush or close did not finish in time; what is lost is counted */
  PLUMBLINE_RESOURCE_EXHAUSTED = -5, /* out of memory, or too many sites */
  PLUMBLINE_INTERNAL = -6
};

/* "ok", "not-due", ...; "unknown-status" for any other number. Static storage. */
PLUMBLINE_API const char* plumbline_status_name(plumbline_status_t status);

/* What went wrong in this thread's last call that returned a negative status: what, where, and what
 * was expected. Empty before. Valid until the thread's next call. */
PLUMBLINE_API const char* plumbline_last_error(void);

/* "0.2.0~git20261128.143005.abc1234": number, date and UTC time of the commit, commit. A later
 * commit's is greater for `dpkg --compare-versions`. Static storage. */
PLUMBLINE_API const char* plumbline_version(void);

/* ---- runs --------------------------------------------------------------------------------------
 */

/* The head of a run; the rest is the library's. */
typedef struct plumbline_run_head {
  uint64_t step; /* the step that is open, or PLUMBLINE_NO_STEP. Read-only. */
} plumbline_run_t;

#define PLUMBLINE_NEVER UINT64_MAX           /* a site's next_due: not before the end of the run */
#define PLUMBLINE_NO_STEP (UINT64_MAX - 1)   /* a run's step outside step_begin ... step_end */
#define PLUMBLINE_CAPTURING (UINT64_MAX - 2) /* a run's step between capture_begin and _end */

enum { PLUMBLINE_ROLE_TRAINER = 1, PLUMBLINE_ROLE_ROLLOUT = 2 };

typedef struct plumbline_open_options {
  uint32_t size;      /* sizeof(plumbline_open_options_t) */
  int32_t role;       /* PLUMBLINE_ROLE_*; 0: trainer */
  const char* run;    /* name; NULL: $PLUMBLINE_RUN, else "run" */
  const char* server; /* "host:port" of plumbd; NULL: $PLUMBLINE_SERVER; "": none */
  const char* record; /* directory of run records; NULL: $PLUMBLINE_RECORD; "": none */
  int32_t attempt; /* number of restarts before; -1: $PLUMBLINE_ATTEMPT, else torchrun's, else 0 */
  int32_t rank;    /* -1: RANK, else SLURM_PROCID, else OMPI_COMM_WORLD_RANK, else 0 */
  int32_t world_size; /* -1: the matching WORLD_SIZE, SLURM_NTASKS, OMPI_COMM_WORLD_SIZE, else 1 */
  uint32_t every; /* measure at most each n-th step; 0: $PLUMBLINE_EVERY, else each; a site backs
                     off further where its evidence exceeds the traffic budget */
  double budget;  /* share of the step time that may be spent; 0: $PLUMBLINE_BUDGET, else default */
  const char* spool; /* directory that keeps what the server has not yet, and survives this process;
                        NULL: $PLUMBLINE_SPOOL, else RECORD/spool with both server and record, else
                        none; "off": none */
  uint64_t spool_bytes; /* of this process on disk; 0: $PLUMBLINE_SPOOL_BYTES, else 1 GiB */
  const char* caller;   /* "train.py:12", where the run is opened: complaints name it; NULL: none */
  int32_t redact;       /* 1: token and sequence ids leave the process as keyed hashes, under
                           $PLUMBLINE_REDACT_KEY, else a key from the access token, else a random one;
                           0: $PLUMBLINE_REDACT (0 or 1), else no */
  uint32_t reserved;    /* 0 */
} plumbline_open_options_t;

#define PLUMBLINE_OPEN_OPTIONS_INIT \
  { sizeof(plumbline_open_options_t), 0, NULL, NULL, NULL, -1, -1, -1, 0, 0.0, NULL, 0, NULL, 0, 0 }

/* Opens a run. Does not load the agent: the first due call does. NULL options: all defaults.
 * *run is set in any case but INVALID_ARGUMENT, RESOURCE_EXHAUSTED; when DISABLED, to a run whose
 * calls do nothing. In a child that was forked after a run was opened it is DISABLED, and one line
 * on standard error says so: open the first run after the fork, or start processes anew. Server or
 * record or both must be given, by options or environment. */
PLUMBLINE_API plumbline_status_t plumbline_open(const plumbline_open_options_t* options,
                                                plumbline_run_t** run);

/* Which rank the process is, where that is known only after plumbline_open (a process group that
 * the trainer sets up later): replaces what open took. FAILED_PRECONDITION once something was
 * recorded, under the rank that open took. INVALID_ARGUMENT unless 0 <= rank < world_size. */
PLUMBLINE_API plumbline_status_t plumbline_set_rank(plumbline_run_t* run, int32_t rank,
                                                    int32_t world_size);

/* A step, numbered from 0 and rising within an attempt. What is observed between begin and end
 * belongs to it; step_end declares it complete, and site words advance there. A step_begin while
 * another is open ends that one first. */
PLUMBLINE_API plumbline_status_t plumbline_step_begin(plumbline_run_t* run, int64_t step);
PLUMBLINE_API plumbline_status_t plumbline_step_end(plumbline_run_t* run);

/* CUDA graphs. What is observed between the two is not measured now: it becomes part of the graph
 * that its `cuda_stream` is being captured into, and is measured by each of its replays in a step
 * in which its site is due (no site word matters meanwhile). One graph serves all steps; outside of
 * due steps its probes are empty launches. Router calls, products, tensors and updates on a device;
 * NOT_DUE for host tensors and other kinds; INVALID_ARGUMENT for a stream that is not being
 * captured, in any thread of the run. DROPPED: 1,024 calls of the device lie in graphs that exist;
 * one counts until it and what was instantiated of it are destroyed. Elements are kept of a sampled
 * step's first replay. Device memory for the calls (up to 72 KiB each; for router calls one
 * workspace a stream of a capture) is taken here, and goes to later captures.
 *
 * `replay_stream`: a cudaStream_t that lives as long as the run, the same for all graphs of a
 * device, and not cudaStreamPerThread (else the calls are INVALID_ARGUMENT). Every step, and every
 * replay, must be in its order (graphs are launched on it, or on streams that wait for it after
 * step_begin and that it waits for before step_end), and no two replays of one graph at the same
 * time. A replay that spans a step's begin or end, or overlaps another, is found out: nothing on
 * that device is measured from then on. FAILED_PRECONDITION: begun already, or not begun; steps
 * begin and end outside, or all around. */
PLUMBLINE_API plumbline_status_t plumbline_capture_begin(plumbline_run_t* run, void* replay_stream);
PLUMBLINE_API plumbline_status_t plumbline_capture_end(plumbline_run_t* run);

/* Waits until all that was observed is acknowledged by the server and written to the record; within
 * a step whose graphs are measured, without what a device measures in that step. */
PLUMBLINE_API plumbline_status_t plumbline_flush(plumbline_run_t* run, uint32_t timeout_ms);

/* Says goodbye to the server, ends the record, stops the run's threads, within timeout_ms.
 * OK: all that was measured is in the record, and acknowledged by the server. UNAVAILABLE: nothing
 * was recorded (no agent, a directory that cannot be written, no memory); standard error has the
 * reason. INVALID_ARGUMENT: the same, for a mistake in the options of plumbline_open. INTERNAL:
 * something measured is not in the record, or the server refused it. DEADLINE_EXCEEDED: the server
 * has not acknowledged all; plumbline_last_error says how much of it a spool keeps. DISABLED:
 * PLUMBLINE_DISABLE=1, a forked child, or closed before. */
PLUMBLINE_API plumbline_status_t plumbline_close(plumbline_run_t* run, uint32_t timeout_ms);

/* How the process ends, where that is not well. */
enum {
  PLUMBLINE_ENDING_EXCEPTION = 1,   /* nobody caught it */
  PLUMBLINE_ENDING_EXIT = 2,        /* with a status that is not 0 */
  PLUMBLINE_ENDING_SIGNAL = 3,      /* a signal ends it */
  PLUMBLINE_ENDING_INTERRUPTED = 4, /* by hand */
  PLUMBLINE_ENDING_UNWINDING = 5    /* an exception is on its way; somebody may catch it */
};

typedef struct plumbline_ending {
  uint32_t size;      /* sizeof(plumbline_ending_t) */
  int32_t how;        /* PLUMBLINE_ENDING_*; 0: of the process nothing, of `thread` alone */
  const char* type;   /* of the exception, or the signal's name; NULL: not said */
  const char* text;   /* its message */
  const char* where;  /* "train.cc:57 in Forward" */
  int32_t code;       /* exit status, or number of the signal */
  const char* thread; /* an exception that ended a thread and not the process */
} plumbline_ending_t;

#define PLUMBLINE_ENDING_INIT \
  { sizeof(plumbline_ending_t), 0, NULL, NULL, NULL, 0, NULL }

/* Says how the process is about to end; it goes with the goodbye (plumbline_close, or the end of
 * the process by exit), and the server tells it as health/run-died. The first word counts, until a
 * step begins or NULL takes it back. To be called before plumbline_close, from a handler of
 * uncaught exceptions (std::set_terminate) for example; not from a handler of signals. A status
 * other than 0 that the process exits with is noted by itself. */
PLUMBLINE_API plumbline_status_t plumbline_note_ending(plumbline_run_t* run,
                                                       const plumbline_ending_t* ending);

/* From now on SIGTERM makes the process's runs say goodbye, for three seconds at most, before the
 * signal does what it does by default: it ends the process, also where no thread of the trainer
 * would have got to handle it. Only where the signal has its default action: FAILED_PRECONDITION
 * otherwise. A handler that the trainer installs later takes this one's place. */
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

/* The head of a site; the rest is the library's. Due when *step >= next_due, read as relaxed
 * atomics. next_due is 0 until the agent is loaded, so that the first observation loads it, and
 * changes only at step_end, so that all calls of one step at a due site are due, and by
 * plumbline_look. */
typedef struct plumbline_site_head {
  uint64_t next_due;
  const uint64_t* step; /* the run's */
} plumbline_site_t;

/* Registers where in the model observations come from. `kind`: PLUMBLINE_KIND_*. `layer` as the
 * trainer names it ("layers.3"); `op` NULL or "": the kind's own ("routing", "tensor", "sum",
 * "update", "matmul", "logits", "logprobs"). The same (kind, layer, op) gives the same site. *site
 * is set whenever status >= 0. A site of KIND_ROUTING and op "loads" tells how experts are loaded
 * and no more: it is due at every step, outside of the budgets (the caller keeps the pace, and may
 * hand over some of the tokens), no rows are kept, and nothing is proved by it; its steps stand
 * beside those of the layer's site "routing". */
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

/* One router call over T tokens and E experts, k choices each. Tensors are borrowed: host tensors
 * are read before the call returns, CUDA tensors when `cuda_stream` gets there, as by a kernel that
 * the trainer launched (they must live and stay unchanged so long). All tensors of a call lie on
 * the host or on one device. Floating tensors f64, f32, f16 or bf16; integer tensors of any width;
 * masks bool or u8; any strides. NULL: absent.
 *
 * On a device nothing is synchronised and nothing allocated, but for its first call, the first of
 * more than 64, 128 and 256 experts, and the first tensor or update. DROPPED: no room in the
 * device's ring, the device failed before, or the stream is being captured into a graph (see
 * plumbline_capture_begin).
 * UNAVAILABLE: libplumbline_cuda.so, a driver or the device is missing; told on standard error
 * once. INVALID_ARGUMENT: `cuda_stream` belongs to another device. The thread's current device and
 * CUDA's last error stay as they are. */
typedef struct plumbline_routing {
  uint32_t size;                /* sizeof(plumbline_routing_t) */
  uint32_t top_k;               /* choices a token; required, >= 1 */
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
  const DLTensor* pool_id; /* [T] integer: the rows that compete for capacity; wins over `pool` */
  int32_t capacity_kind;   /* PLUMBLINE_CAPACITY_* */
  int32_t group_score;     /* PLUMBLINE_GROUP_SCORE_* */
  uint64_t capacity;       /* per expert and pool unit, when DECLARED */
  uint32_t groups;         /* 0 or 1: no group limit; must divide E */
  uint32_t top_groups;
  int32_t pool;            /* PLUMBLINE_POOL_* */
  int32_t flatten;         /* PLUMBLINE_FLATTEN_*: the order in which the router queued its rows */
  int32_t bias_captured;   /* PLUMBLINE_BIAS_*: before or after this batch's scores existed */
  uint32_t reserved;       /* 0 */
  const char* randomness;  /* what of the choice is random ("jitter"); NULL: nothing declared */
  const char* mode;        /* "train", "eval" or NULL */
  void* cuda_stream;       /* cudaStream_t of CUDA tensors; NULL: the default stream */
  const char* policy;      /* how full experts refuse, as the configuration says ("fifo-capacity",
                              "score-capacity", ...): a claim that is checked; NULL: not said */
  int32_t capacity_source; /* PLUMBLINE_CAPACITY_SOURCE_*: is `capacity` the configuration's number,
                              or what experts were seen to hold? */
  uint32_t reserved2;      /* 0 */
} plumbline_routing_t;

/* clang-format off */
#define PLUMBLINE_ROUTING_INIT                                                                \
  {sizeof(plumbline_routing_t), 0, NULL, 0, 0,                                /* scores */    \
   NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,                      /* others */    \
   0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL,                               /* settings */  \
   NULL, 0, 0}
/* clang-format on */

/* Out of line: checks the due word itself. plumbline_observe_routing_if_due costs one compare when
 * nothing is due. */
PLUMBLINE_API plumbline_status_t plumbline_observe_routing(plumbline_site_t* site,
                                                           const plumbline_routing_t* routing);

static inline plumbline_status_t plumbline_observe_routing_if_due(
    plumbline_site_t* site, const plumbline_routing_t* routing) {
  return plumbline_due(site) ? plumbline_observe_routing(site, routing) : PLUMBLINE_NOT_DUE;
}

/* ---- the sampled elements of a step ------------------------------------------------------------
 */

/* No site keeps more elements of one tensor. */
#define PLUMBLINE_MAX_SAMPLES 4096

/* The elements, of a tensor of `count`, that this site keeps at the open step: distinct indices in
 * C order, in the order in which they were drawn, the same on every rank and in every call of one
 * (run, step, layer, op), with nothing sent between ranks. A smaller `capacity` gives the first of
 * them. For an operation that overwrites its input: gather there before it runs, and again after
 * it, and hand both over with these indices as `offsets`.
 *
 * Writes *n <= min(capacity, count, the kind's number) indices to `out` and returns OK. *n = 0, and
 * OK: the site is due but keeps no elements at this step (observe without them, or not at all).
 * NOT_DUE: *n = 0. The kind's number: 1,024 of a reduction, 256 of a tensor or an update. */
PLUMBLINE_API plumbline_status_t plumbline_sample_indices(plumbline_site_t* site, uint64_t count,
                                                          uint64_t* out, uint32_t capacity,
                                                          uint32_t* n);

/* ---- tensors -----------------------------------------------------------------------------------
 */

/* Element types where no tensor says them. */
enum {
  PLUMBLINE_DTYPE_ABSENT = 0,
  PLUMBLINE_DTYPE_F64 = 1,
  PLUMBLINE_DTYPE_F32 = 2,
  PLUMBLINE_DTYPE_F16 = 3,
  PLUMBLINE_DTYPE_BF16 = 4,
  PLUMBLINE_DTYPE_E4M3 = 5,
  PLUMBLINE_DTYPE_E5M2 = 6
};

/* Of all structs below: tensors are borrowed, of any strides; host tensors are read before the call
 * returns. CUDA tensors are read as a router call's are, in the order of `cuda_stream`; what must
 * be copied whole and is above 8 MiB is not read: DROPPED, and counted as `device-tensor-not-read`.
 * NULL: absent. Texts are copied. A host tensor too large to
 * be copied cheaply is measured within the call, a smaller one later, by the library's own thread:
 * either way the caller may write to it as soon as the call returns.
 * INVALID_ARGUMENT: nothing was recorded, and plumbline_last_error() names the field. */

/* One tensor at one moment. */
typedef struct plumbline_tensor {
  uint32_t size;          /* sizeof(plumbline_tensor_t) */
  int32_t target_format;  /* PLUMBLINE_DTYPE_*: the format that the values will be stored in */
  const DLTensor* values; /* any shape; floating, integer or bool; required */
  const char* role; /* "weight", "gradient", "activation", "probabilities" (rows of the last axis
                       sum to one), "positions" (token positions), or NULL */
  const char*
      replicas; /* a name: ranks that give the same one hold copies of this tensor; NULL: none */
  void* cuda_stream; /* cudaStream_t of a CUDA tensor; NULL: the default stream */
} plumbline_tensor_t;

#define PLUMBLINE_TENSOR_INIT \
  { sizeof(plumbline_tensor_t), 0, NULL, NULL, NULL, NULL }

/* Out of line: checks the due word itself; _if_due costs one compare when nothing is due. The same
 * holds for the others below. */
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

/* One collective of one process group: what this rank handed in, and what came back. Either whole
 * buffers of `count` elements (the library keeps the step's sampled ones; of an operation that
 * works in place there is no input left to hand over), or, with `offsets`, the elements at
 * plumbline_sample_indices' indices. Neither input nor output: the call alone is recorded, and
 * still serves to compare ranks' counts, types and operations. */
typedef struct plumbline_reduction {
  uint32_t size; /* sizeof(plumbline_reduction_t) */
  int32_t op;    /* PLUMBLINE_REDUCE_* */
  /* As handed to the collective, thus already with `prescale`: any shape of `count` elements, or
   * [m] with offsets; [N,m] when one call speaks for all N ranks. With algorithm "accumulation",
   * one rank's own running sum: [K,m], the addends in their order. Floating or integer. */
  const DLTensor* input;
  /* As it came back, not yet with `postscale`: like input, or [m]; NULL with an input and offsets
   * on ranks that get no result (of a reduction to one rank, or of a part that is scattered to
   * one). */
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
      sequence_known;  /* 1: `sequence` is said; 0: calls are joined by their order in the step */
  int32_t wire_dtype;  /* PLUMBLINE_DTYPE_*: in which values travel; ABSENT: the input's */
  uint64_t count;      /* elements a rank; 0: those of a whole input, else not known */
  uint32_t group_size; /* ranks; 0: not known */
  uint32_t group_rank; /* this rank within the group */
  double prescale;     /* factors applied before and after by the trainer; 0: 1 */
  double postscale;
  uint32_t channels;      /* 0: not known */
  uint32_t root;          /* of a reduction to one rank */
  uint64_t chunk;         /* elements a chunk of one channel; 0: not known */
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

/* One update in place: `after` should be round(before + intended), rounded once. Whole tensors of
 * one shape, or, with `offsets`, the elements at plumbline_sample_indices' indices (then nothing is
 * said of the rest). A micro-batch's addition to a gradient is an update too: optimizer
 * "accumulation", `intended` the addend, one call each. */
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
  double lr;               /* NaN: not said, here and below */
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

/* One value of a series at the open step ("loss"). NaN and infinity are data. Always due. */
PLUMBLINE_API plumbline_status_t plumbline_scalar(plumbline_run_t* run, const char* name,
                                                  double value);

/* CPU time that a caller spent on due observations besides the calls themselves, in nanoseconds,
 * since it last said so: a binding to another language that converts arguments. It counts against
 * the budget as the calls do. Any thread. */
PLUMBLINE_API plumbline_status_t plumbline_charge(plumbline_run_t* run, uint64_t ns);

/* The caller noticed something in the open step (a loss that is no number, a gradient that fell to
 * zero): from now on, and in the next steps, `steps` in all, sites of tensors, updates, products,
 * router calls and sums over micro-batches (op "accumulation") are due and keep elements, out of
 * cadence, so that what began here is told of this step. Words that said "later" are set back:
 * calls of this step that went by are not looked at. It has its own budget (one step in 32 beyond
 * the first 16, and half of what the run may send); NOT_DUE: that is used up. Between two steps:
 * FAILED_PRECONDITION. Any thread. */
PLUMBLINE_API plumbline_status_t plumbline_look(plumbline_run_t* run, uint32_t steps);

/* A stage of the training loop. Always due. `kind` is one of "data", "forward", "backward",
 * "optimizer", "collective", "checkpoint", "evaluation", "compile", "pause" (no step is expected:
 * the trainer waits for a resource or a person) or "other"; `name` NULL: the kind's. May lie
 * outside a step (it then belongs to the step last begun, or 0). *span is the number to end it
 * with, 0 if nothing was begun; spans may nest and end in any order or thread. */
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
