/* Plumbline's C ABI: calls that check a function of the caller (a router or a sum) or measure its
 * memory. They need no run. Included by plumbline.h, whose rules apply. */
#ifndef PLUMBLINE_IN_HAND_H_
#define PLUMBLINE_IN_HAND_H_

#include "plumbline/basics.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a router in hand --------------------------------------------------------------------------
 */

/* Runs the router under test on one batch. `logits`: [T,E] in host memory, C order, with the dtype
 * of plumbline_router_check_t.logits; the callee may write to it. `seed` is the same in every call:
 * the router must seed all its random numbers with it. The callee fills `fates` [T*E], row by row:
 * 0 the token did not choose the expert, 1 chosen and kept, 2 chosen and refused. It returns 0; any
 * other value ends the check. Must not throw. */
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
  const DLTensor* rank;         /* rank of each row; NULL: one rank */
  uint32_t max_sequences;       /* sequences whose suffixes are replaced; 0: 4, spread over the
                                 * batch */
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

/* Shares are of the interventions that were tried; NaN: none was tried. Texts are NUL-terminated.
 */
typedef struct plumbline_router_verdict {
  uint32_t size;        /* sizeof(plumbline_router_verdict_t), set by the caller */
  int32_t verdict;      /* PLUMBLINE_VERDICT_* */
  int32_t level;        /* PLUMBLINE_LEVEL_*; 0 without a finding */
  int32_t strength;     /* PLUMBLINE_STRENGTH_*; 0 without a finding */
  double future_share;  /* later tokens of a sequence changed an assignment of an earlier one */
  double earlier_share; /* a sequence changed an assignment of one that begins later in the rows */
  double later_share;   /* ... of one that begins earlier */
  double other_rank_share; /* ... of one on another rank */
  int64_t calls;           /* of route */
  int64_t witness_row;     /* -1: none */
  int64_t witness_sequence;
  int64_t witness_position;
  int64_t changed_sequence; /* the sequence whose tokens were replaced, */
  int64_t changed_from;     /* from this position on */
  int32_t lost_expert;      /* expert that no longer takes the witness; -1: none */
  int32_t gained_expert;
  char row[32];           /* "clean", "batch-dependent", "future-leak", "nondeterministic", ... */
  char witness[512];      /* "token 17 (sequence 3, position 17) lost expert 5 with ..." */
  char explanation[1024]; /* the intervention and its result */
  char assumptions[512];  /* separated by "; " */
} plumbline_router_verdict_t;

/* Checks whether this router's assignment of a token depends on later tokens, or on other
 * sequences. Runs the router on the batch twice, then with suffixes and whole sequences replaced
 * (shapes, seed and padding unchanged), and compares assignments exactly. A flip that repeats is a
 * finding: error and proved for a later token of the same sequence, warning and proved for another
 * sequence or rank. Inconclusive if the router is not deterministic, or if the batch's sequences
 * have one token.
 *
 * Needs no run. Takes as long as the calls of route. Returns INVALID_ARGUMENT for wrong inputs, and
 * FAILED_PRECONDITION if route failed; plumbline_last_error() names the call. *verdict is set if OK
 * is returned. */
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

/* The function under test. a, b: [n], in host memory, borrowed, values exact in the input dtype; b
 * is all ones if nothing is multiplied. Converts them to its dtype, adds, and writes the watched
 * result. `batch`: number of rows among which it is computed (1 unless plumbline_sum_t.batches is
 * set). Returns 0; any other value ends the fingerprint. Must not throw. */
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
  int32_t batches;      /* 1: `sum` can vary its batch; test whether that changes y */
} plumbline_sum_t;

#define PLUMBLINE_SUM_INIT                                                      \
  {                                                                             \
    sizeof(plumbline_sum_t), PLUMBLINE_SUM_SUM, 0, {PLUMBLINE_DL_FLOAT, 32, 1}, \
        {PLUMBLINE_DL_FLOAT, 32, 1}, NULL, NULL, NULL, NULL, 1, 0, 0            \
  }

enum {
  PLUMBLINE_FINGERPRINT_VERIFIED = 0,   /* replayed on every sample, to the bit */
  PLUMBLINE_FINGERPRINT_ORDER_ONLY = 1, /* the order is known, the arithmetic is not */
  PLUMBLINE_FINGERPRINT_NO_ORDER = 2,   /* the probes fit no tree */
  PLUMBLINE_FINGERPRINT_NONDETERMINISTIC = 3
};

/* Texts are NUL-terminated, cut to fit. */
typedef struct plumbline_fingerprint_result {
  uint32_t size;      /* sizeof(plumbline_fingerprint_result_t), set by the caller */
  int32_t verdict;    /* PLUMBLINE_FINGERPRINT_* */
  int64_t calls;      /* of the function */
  int64_t tree_calls; /* of them, for the order */
  int32_t matches;    /* samples that the replay gives to the bit, */
  int32_t samples;    /* of this number */
  char tree[32];      /* hash of the order */
  char evidence[512]; /* why it is not verified */
  char order[1024];
  char arithmetic[1024]; /* empty unless verified */
  char text[8192];       /* the output of plumb fingerprint */
  char contract[16384];  /* TOML, as plumb fingerprint --output writes it; empty if longer */
} plumbline_fingerprint_result_t;

/* Finds the order and the arithmetic of a sum from its outputs alone, and proves both by replay.
 * Needs no run. Takes some tens of thousands of calls of the function at n = 4,096. Returns
 * INVALID_ARGUMENT for wrong sizes, dtypes or pointers, and FAILED_PRECONDITION if the function
 * failed. *result is set if OK is returned, for every verdict. */
PLUMBLINE_API plumbline_status_t plumbline_fingerprint(const plumbline_sum_t* sum,
                                                       plumbline_fingerprint_result_t* result);

/* ---- memory in hand ----------------------------------------------------------------------------
 */

/* Computes one number for each of `n` blocks of host memory, to compare copies: equal bytes give
 * equal numbers on every host of one byte order, and one changed word of 8 bytes always changes the
 * number. Not suitable for secrets. Runs at the speed of memory. Thread-safe. */
PLUMBLINE_API plumbline_status_t plumbline_checksums(const void* const* data, const uint64_t* bytes,
                                                     uint32_t n, uint64_t* sums);

/* Computes the sum of the squares of each of `n` tensors of fp32 in host memory, in fp64. The
 * result is NaN or infinity if the tensor contains them; there is no overflow. Used to screen
 * gradients. Thread-safe. */
PLUMBLINE_API plumbline_status_t plumbline_square_sums(const float* const* data,
                                                       const uint64_t* counts, uint32_t n,
                                                       double* sums);

/* Measures how far `n` tensors of fp32 in host memory moved, by counts[i] elements of each,
 * strides[i] apart. data[i] must have at least (counts[i] - 1) * strides[i] + 1 elements. If
 * `squares` is NULL, stores the elements, one tensor after another, in `kept`, which must have
 * space for the sum of counts. Otherwise sets squares[2 * i] to the sum of the squares of the
 * elements' changes since then, and squares[2 * i + 1] to the sum of the squares of their stored
 * values, in fp64. Thread-safe. */
PLUMBLINE_API plumbline_status_t plumbline_moved(const float* const* data, const uint64_t* strides,
                                                 const uint64_t* counts, uint32_t n, float* kept,
                                                 double* squares);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_IN_HAND_H_ */
