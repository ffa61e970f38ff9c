/* Plumbline's C ABI, its second part: calls that try a function which the caller has in hand, a
 * router or a sum, or measure its memory, and need no run. Included by plumbline.h, whose rules
 * hold here too. */
#ifndef PLUMBLINE_IN_HAND_H_
#define PLUMBLINE_IN_HAND_H_

#include "plumbline/plumbline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a router in hand --------------------------------------------------------------------------
 */

/* Runs the router under test on one batch. `logits`: [T,E] in host memory, C order, of the dtype
 * that plumbline_router_check_t.logits has; the callee may write to it. `seed` is the same in every
 * call: whatever is random in the router is seeded with it. The callee fills `fates` [T*E], row by
 * row: 0 the token did not choose the expert, 1 chosen and kept, 2 chosen and refused. Returns 0;
 * anything else ends the check. Must not throw. */
typedef int32_t (*plumbline_route_fn)(void* context, const DLTensor* logits, uint64_t seed,
                                      uint8_t* fates);

typedef struct plumbline_router_check {
  uint32_t size;      /* sizeof(plumbline_router_check_t) */
  uint32_t max_calls; /* of `route`, at least 8; 0: 1000 */
  uint64_t seed;
  plumbline_route_fn route; /* required; called in this thread only */
  void* context;            /* passed through */
  /* Borrowed, in host memory, any strides. logits [T,E] f64, f32, f16 or bf16 without NaN or
   * +infinity (-infinity masks an expert); the others [T], integer or bool. */
  const DLTensor* logits;       /* required: an ordinary batch */
  const DLTensor* sequence_id;  /* NULL: all rows are one sequence */
  const DLTensor* position;     /* within the sequence; NULL: rows are in time order */
  const DLTensor* padding_mask; /* NULL: no padding */
  const DLTensor* rank;         /* whose rows these are; NULL: one rank */
  uint32_t max_sequences;       /* whose suffixes are replaced; 0: 4, spread over the batch */
  uint32_t reserved;            /* 0 */
} plumbline_router_check_t;

#define PLUMBLINE_ROUTER_CHECK_INIT \
  { sizeof(plumbline_router_check_t), 0, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0 }

enum {
  PLUMBLINE_VERDICT_PASS = 1,
  PLUMBLINE_VERDICT_FINDING = 2,
  PLUMBLINE_VERDICT_INCONCLUSIVE = 3
};
enum { PLUMBLINE_LEVEL_NOTE = 1, PLUMBLINE_LEVEL_WARNING = 2, PLUMBLINE_LEVEL_ERROR = 3 };
enum {
  PLUMBLINE_STRENGTH_HEURISTIC = 1,
  PLUMBLINE_STRENGTH_STATISTICAL = 2,
  PLUMBLINE_STRENGTH_BOUNDED = 3,
  PLUMBLINE_STRENGTH_PROVED = 4
};

/* Shares are of the interventions that were tried; NaN: none was. Texts are NUL-terminated. */
typedef struct plumbline_router_verdict {
  uint32_t size;           /* sizeof(plumbline_router_verdict_t), set by the caller */
  int32_t verdict;         /* PLUMBLINE_VERDICT_* */
  int32_t level;           /* PLUMBLINE_LEVEL_*; 0 without a finding */
  int32_t strength;        /* PLUMBLINE_STRENGTH_*; 0 without a finding */
  double future_share;     /* later tokens of a sequence moved an assignment of an earlier one */
  double earlier_share;    /* a sequence moved an assignment of one that begins later in the rows */
  double later_share;      /* ... of one that begins earlier */
  double other_rank_share; /* ... of one on another rank */
  int64_t calls;           /* of route */
  int64_t witness_row;     /* -1: none */
  int64_t witness_sequence;
  int64_t witness_position;
  int64_t changed_sequence; /* whose tokens were replaced, */
  int64_t changed_from;     /* from this position on */
  int32_t lost_expert;      /* that no longer takes the witness; -1: none */
  int32_t gained_expert;
  char row[32];           /* "clean", "batch-dependent", "future-leak", "nondeterministic", ... */
  char witness[512];      /* "token 17 (sequence 3, position 17) lost expert 5 with ..." */
  char explanation[1024]; /* what was done and what came of it */
  char assumptions[512];  /* separated by "; " */
} plumbline_router_verdict_t;

/* Does this router's assignment of a token depend on later tokens, or on other sequences? Runs it
 * on the batch twice, then with suffixes and whole sequences replaced, shapes, seed and padding
 * kept, and compares assignments exactly. A flip that repeats itself is a finding: error and proved
 * for a later token of the same sequence, warning and proved for another sequence or rank. A router
 * that does not repeat itself, or a batch whose sequences are one token long: inconclusive. Needs
 * no run; takes as long as route does. INVALID_ARGUMENT: the inputs; FAILED_PRECONDITION: route
 * failed, plumbline_last_error() says at which call. *verdict is set when OK is returned. */
PLUMBLINE_API plumbline_status_t plumbline_check_router(const plumbline_router_check_t* check,
                                                        plumbline_router_verdict_t* verdict);

/* ---- a sum in hand -----------------------------------------------------------------------------
 */

enum {
  PLUMBLINE_SUM_SUM = 0,       /* y = sum a[i] */
  PLUMBLINE_SUM_DOT = 1,       /* y = sum a[i] b[i] */
  PLUMBLINE_SUM_GEMM = 2,      /* the same, as one element of a matrix product */
  PLUMBLINE_SUM_ALL_REDUCE = 3 /* a[i] is rank i's value */
};

/* The function under test. a, b: [n], in host memory, borrowed, values of the input dtype exactly;
 * b is all ones where nothing is multiplied. Converts them to its dtype, adds, and writes the one
 * watched result. `batch`: rows to compute it among (1 unless plumbline_sum_t.batches is set).
 * Returns 0; anything else ends the fingerprint. Must not throw. */
typedef int32_t (*plumbline_sum_fn)(void* context, const double* a, const double* b, uint64_t n,
                                    uint32_t batch, double* y);

typedef struct plumbline_sum {
  uint32_t size; /* sizeof(plumbline_sum_t) */
  int32_t kind;  /* PLUMBLINE_SUM_* */
  uint64_t n;    /* addends, 2 to 2^20 */
  DLDataType input;
  DLDataType output;
  plumbline_sum_fn sum; /* required; called in this thread only */
  void* context;        /* passed through */
  const char* name;     /* of the function, for texts; NULL: "sum" */
  const char* library;  /* NULL: none */
  uint64_t seed;        /* of pivots and random data */
  uint32_t samples;     /* random inputs that are replayed, at least 6; 0: 250 */
  int32_t batches;      /* 1: `sum` knows how to vary its batch, try whether that changes y */
} plumbline_sum_t;

#define PLUMBLINE_SUM_INIT                                                      \
  {                                                                             \
    sizeof(plumbline_sum_t), PLUMBLINE_SUM_SUM, 0, {PLUMBLINE_DL_FLOAT, 32, 1}, \
        {PLUMBLINE_DL_FLOAT, 32, 1}, NULL, NULL, NULL, NULL, 1, 0, 0            \
  }

enum {
  PLUMBLINE_FINGERPRINT_VERIFIED = 0,   /* replayed on every sample, to the bit */
  PLUMBLINE_FINGERPRINT_ORDER_ONLY = 1, /* an order, whose arithmetic is unexplained */
  PLUMBLINE_FINGERPRINT_NO_ORDER = 2,   /* the probes fit no tree */
  PLUMBLINE_FINGERPRINT_NONDETERMINISTIC = 3
};

/* Texts are NUL-terminated, cut to fit. */
typedef struct plumbline_fingerprint_result {
  uint32_t size;      /* sizeof(plumbline_fingerprint_result_t), set by the caller */
  int32_t verdict;    /* PLUMBLINE_FINGERPRINT_* */
  int64_t calls;      /* of the function */
  int64_t tree_calls; /* of them, for the order */
  int32_t matches;    /* samples replayed to the bit, */
  int32_t samples;    /* of so many */
  char tree[32];      /* hash of the order */
  char evidence[512]; /* why it is not verified */
  char order[1024];
  char arithmetic[1024]; /* empty unless verified */
  char text[8192];       /* what plumb fingerprint prints */
  char
      contract[16384]; /* TOML, as plumb fingerprint --output writes it; empty where it is longer */
} plumbline_fingerprint_result_t;

/* Names the order and the arithmetic of a sum from its outputs alone, and proves both by replay.
 * Needs no run; takes some tens of thousands of calls of the function at n = 4,096.
 * INVALID_ARGUMENT: the sizes, dtypes or pointers; FAILED_PRECONDITION: the function failed.
 * *result is set when OK is returned, whatever the verdict. */
PLUMBLINE_API plumbline_status_t plumbline_fingerprint(const plumbline_sum_t* sum,
                                                       plumbline_fingerprint_result_t* result);

/* ---- memory in hand ----------------------------------------------------------------------------
 */

/* One number each of `n` blocks of host memory, by which copies are compared: equal bytes give
 * equal numbers, on every host of one byte order, and one changed word of 8 bytes always another
 * one. Not for keeping secrets. At the speed of memory. Any thread. */
PLUMBLINE_API plumbline_status_t plumbline_checksums(const void* const* data, const uint64_t* bytes,
                                                     uint32_t n, uint64_t* sums);

/* The sum of the squares of each of `n` tensors of fp32 in host memory, in fp64: NaN and infinity
 * where there are any, and no overflow. A caller screens gradients by it. Any thread. */
PLUMBLINE_API plumbline_status_t plumbline_square_sums(const float* const* data,
                                                       const uint64_t* counts, uint32_t n,
                                                       double* sums);

/* How far `n` tensors of fp32 in host memory moved, by counts[i] elements of each, strides[i]
 * apart: data[i] has (counts[i] - 1) * strides[i] + 1 elements at least.
 * `squares` NULL: the elements are kept, one tensor's behind the other's, in `kept`, which has
 * room for the sum of counts. Else squares[2 * i] is the sum of the squares of what the elements
 * changed by since then, and squares[2 * i + 1] that of what they were, in fp64. Any thread. */
PLUMBLINE_API plumbline_status_t plumbline_moved(const float* const* data, const uint64_t* strides,
                                                 const uint64_t* counts, uint32_t n, float* kept,
                                                 double* squares);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_IN_HAND_H_ */
