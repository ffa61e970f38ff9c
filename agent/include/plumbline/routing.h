/* Plumbline's C ABI: router calls of mixtures of experts. Included by plumbline.h, whose rules
 * apply. */
#ifndef PLUMBLINE_ROUTING_H_
#define PLUMBLINE_ROUTING_H_

#include "plumbline/sites.h"

#ifdef __cplusplus
extern "C" {
#endif

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
  const DLTensor* region;  /* [T] mask: 0 generated, 1 prompt (never generated); NULL: all 0 */
} plumbline_routing_t;

/* clang-format off */
#define PLUMBLINE_ROUTING_INIT                                                                \
  {sizeof(plumbline_routing_t), 0, NULL, 0, 0,                                /* scores */    \
   NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,                      /* others */    \
   0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL,                               /* settings */  \
   NULL, 0, 0, NULL}
/* clang-format on */

/* Records one router call if the site is due. It is not inline; plumbline_observe_routing_if_due
 * costs one compare if the site is not due. */
PLUMBLINE_API plumbline_status_t plumbline_observe_routing(plumbline_site_t* site,
                                                           const plumbline_routing_t* routing);

static inline plumbline_status_t plumbline_observe_routing_if_due(
    plumbline_site_t* site, const plumbline_routing_t* routing) {
  return plumbline_due(site) ? plumbline_observe_routing(site, routing) : PLUMBLINE_NOT_DUE;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_ROUTING_H_ */
