#include "analysis/routing/causes.h"

namespace plumbline::analysis {
namespace {

constexpr RoutingCause kCauses[] = {
    {"drop-by-score", "full experts keep the best scores",
     "Drop by position instead of by score, or route without capacity (Megatron-LM: no "
     "--moe-expert-capacity-factor; DeepSpeed: drop_tokens=False). Megatron-LM's drop policy "
     "\"position\" takes the top of ties: it helps only if causality/moe-tie-order passes."},
    {"lowest-score-first", "full experts keep the lowest scores",
     "Drop by position instead of by score, or route without capacity."},
    {"batch-prioritised", "tokens queue by their best score",
     "Queue tokens in time order (Tutel: batch_prioritized_routing=False), or route without "
     "capacity."},
    {"rank-major-queue", "all first choices queue first",
     "Queue each token's choices together, in time order, or route without capacity (DeepSpeed: "
     "drop_tokens=False, or top-1)."},
    {"queue-out-of-order", "the queue is not in time order",
     "Undo the context-parallel layout before routing, queue by position, or route without "
     "capacity."},
    {"sequence-top-k", "the sequence's best tokens are chosen",
     "In a decoder, decide each token by its own score (a predictor with a stored threshold)."},
    {"random-token-selection", "full experts keep random tokens",
     "Queue tokens in time order (DeepSpeed: use_rts=False), or route without capacity."},
    {"tie-order", "ties are broken out of time order",
     "Break ties by position, with a stable sort, or route without capacity."},
    {"expert-choice", "experts choose their best tokens",
     "In a decoder, use token choice: dropless top-k with a stored balancing bias."},
    {"balanced-assignment", "prices are fitted on the whole batch",
     "Use the batch assignment only for balance statistics. Choose by own scores plus a bias that "
     "was stored before the batch."},
    {"normalised-over-tokens", "scores are normalised over the tokens",
     "Normalise each token's scores over the experts (softmax over the last axis), or by "
     "statistics "
     "that were stored before the batch."},
    {"capacity-follows-tokens", "capacity follows the tokens",
     "Compute the capacity from the number of rows and a fixed factor, or route without capacity."},
};
constexpr RoutingCause kUnknownCause = {
    "unknown", "a full expert admitted a later token",
    "Queue tokens in time order (and second choices with their own token), or route without "
    "capacity."};

}  // namespace

const RoutingCause& CauseOf(std::string_view id) {
  for (const RoutingCause& cause : kCauses) {
    if (id == cause.id) return cause;
  }
  return kUnknownCause;
}

}  // namespace plumbline::analysis
