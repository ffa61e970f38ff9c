/* Plumbline's C ABI: tensors, reductions over ranks, and updates of parameters. Included by
 * plumbline.h, whose rules apply. */
#ifndef PLUMBLINE_OBSERVATIONS_H_
#define PLUMBLINE_OBSERVATIONS_H_

#include "plumbline/sites.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* All structs here, in products.h and in rollouts.h: tensors are borrowed and may have any strides;
 * NULL: absent. Host tensors are read before the call returns. CUDA tensors are read like those of
 * a router call, in the order of `cuda_stream`. A device tensor that must be copied whole and is
 * above 8 MiB is not read: returns DROPPED, counted as `device-tensor-not-read`. Strings are
 * copied. A large host tensor is measured within the call, a small one is copied and measured later
 * by the library's thread. In both cases the caller may write to it as soon as the call returns. If
 * INVALID_ARGUMENT is returned, nothing was recorded, and plumbline_last_error() names the field.
 */

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
                               * there); "applied-gradient" (of one parameter, inputs: this rank's
                               * own gradient, output: what its optimizer read); NULL: not known */
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

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_OBSERVATIONS_H_ */
