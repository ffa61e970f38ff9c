/* Plumbline's C ABI: logits of trainer and rollout, and log-probabilities of rollouts. Part of
 * plumbline.h, which includes it. */
#ifndef PLUMBLINE_ROLLOUTS_H_
#define PLUMBLINE_ROLLOUTS_H_

#include "plumbline/observations.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The distribution of logged log-probabilities; whether sequences were dropped because of their
 * content; whether the pass that sampled a token also scored it. ABSENT: not given. */
enum {
  PLUMBLINE_LOGPROBS_ABSENT = 0,
  PLUMBLINE_LOGPROBS_RAW = 1,       /* the full softmax at temperature 1 */
  PLUMBLINE_LOGPROBS_PROCESSED = 2, /* the sampled distribution: after temperature, top-p, top-k */
  PLUMBLINE_SELECTION_ALL = 1,
  PLUMBLINE_SELECTION_FILTERED = 2,
  PLUMBLINE_ROLLOUT_SAMPLED = 1,
  PLUMBLINE_ROLLOUT_RESCORED = 2
};

/* Log-probabilities (natural logarithm) of sampled tokens: from the inference engine that sampled
 * them, from the trainer, or both. A process may send only its half: halves are joined by sequence
 * id and position. Columns are [T], with sequences one after another or mixed, or [B,S]. Of each
 * call whole sequences are kept, the same on both sides, within the traffic budget. The site is due
 * at every step. Host memory. */
typedef struct plumbline_logprobs {
  uint32_t size;               /* sizeof(plumbline_logprobs_t) */
  int32_t mode;                /* PLUMBLINE_LOGPROBS_*: of the rollout's values */
  const DLTensor* tokens;      /* integer ids; optional, like all but sequence_id and one side */
  const DLTensor* sequence_id; /* integer, unique within a step, < 0: padding; or [B] */
  const DLTensor* position;    /* integer, position of the token in its sequence; NULL: in order
                                * from 0 */
  const DLTensor* mask;    /* 0: not judged (prompt, tool output); NULL: all tokens are judged */
  const DLTensor* rollout; /* floating, unmasked and unclipped, as are all columns */
  const DLTensor* train;
  const DLTensor* rollout_entropy;    /* nats, entropy of the distribution of `rollout` */
  const DLTensor* rollout_varentropy; /* nats^2 */
  const DLTensor* train_entropy;
  const DLTensor* train_varentropy;
  const DLTensor* versions; /* integer: optimizer updates in the weights that sampled each token */
  const DLTensor* advantages;    /* or [B] */
  const DLTensor* turns;         /* integer, turn of a conversation */
  const DLTensor* cached_tokens; /* integer, prompt tokens from a prefix cache; or [B] */
  const DLTensor* t_start;       /* seconds, of the sequence's generation; or [B] */
  const DLTensor* t_end;
  int64_t train_version; /* updates in the weights of `train`; -1: not given */
  int64_t top_k;         /* -1: not given */
  double temperature;    /* of the sampler; NaN: not given, here and below */
  double top_p;
  double kept_share;  /* lower bound on the share of sequences that a filter kept */
  double rescore_k2;  /* mean d^2/2 of the engine against itself, if it rescored */
  int32_t selection;  /* PLUMBLINE_SELECTION_* */
  int32_t source;     /* PLUMBLINE_ROLLOUT_* */
  const char* worker; /* or NULL */
  void* cuda_stream;
  const DLTensor* behaviour; /* of the trainer, with the weights that sampled each token */
} plumbline_logprobs_t;

/* clang-format off */
#define PLUMBLINE_LOGPROBS_INIT                                                               \
  {sizeof(plumbline_logprobs_t), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,     \
   NULL, NULL, NULL, NULL, NULL, NULL, NULL, -1, -1, PLUMBLINE_NAN, PLUMBLINE_NAN, PLUMBLINE_NAN, PLUMBLINE_NAN, 0,   \
   0, NULL, NULL, NULL}
/* clang-format on */

PLUMBLINE_API plumbline_status_t plumbline_observe_logprobs(plumbline_site_t* site,
                                                            const plumbline_logprobs_t* logprobs);

/* Two distributions over one vocabulary: the trainer's logits and the rollout's at the same
 * positions. -inf masks a token out. NaN and +inf are faults and are counted. On captured steps up
 * to 64 rows, drawn at random (fewer for large vocabularies: at most 2^20 logits per side and
 * call), are compared completely, on the calling thread if they have more than a MiB. On other
 * steps only the call costs time. Host memory. */
typedef struct plumbline_logits {
  uint32_t size;           /* sizeof(plumbline_logits_t) */
  int32_t mode;            /* PLUMBLINE_LOGPROBS_*: of the rollout's logits */
  const DLTensor* train;   /* [..., V], f32, f16 or bf16; required */
  const DLTensor* rollout; /* the same shape, f32, f16 or bf16; required */
  const DLTensor* tokens;  /* train's leading axes, integer: the sampled ids, < 0: none; NULL */
  const DLTensor* allowed; /* train's shape, bool or u8: 0 masks on both sides; NULL: all are */
  double temperature;      /* of the sampler; NaN: not given */
  void* cuda_stream;
} plumbline_logits_t;

#define PLUMBLINE_LOGITS_INIT \
  { sizeof(plumbline_logits_t), 0, NULL, NULL, NULL, NULL, PLUMBLINE_NAN, NULL }

PLUMBLINE_API plumbline_status_t plumbline_observe_logits(plumbline_site_t* site,
                                                          const plumbline_logits_t* logits);

static inline plumbline_status_t plumbline_observe_logits_if_due(plumbline_site_t* site,
                                                                 const plumbline_logits_t* logits) {
  return plumbline_due(site) ? plumbline_observe_logits(site, logits) : PLUMBLINE_NOT_DUE;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_ROLLOUTS_H_ */
