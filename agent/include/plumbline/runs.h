/* Plumbline's C ABI: opens, steps, flushes and closes runs, and reports how a process ends.
 * Included by plumbline.h, whose rules apply. */
#ifndef PLUMBLINE_RUNS_H_
#define PLUMBLINE_RUNS_H_

#include "plumbline/basics.h"

#ifdef __cplusplus
extern "C" {
#endif

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
  int32_t stop_on;    /* PLUMBLINE_STOP_ON_*: the level of findings that order the training to end,
                         see plumbline_stop_order: the server judges, without one this process what
                         it records; 0: none */
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

/* Returns in *ordered whether the training must end, because a step of this process has a finding
 * of the level that stop_on names: the server has found it, or without one this process. If
 * *ordered is 1, `text` holds the reason ("error health/loss-non-finite: the loss is NaN (step
 * 12)"), cut to fit and terminated by a zero.
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

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_RUNS_H_ */
