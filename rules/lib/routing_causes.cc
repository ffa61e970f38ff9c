#include "rules/lib/routing_causes.h"

namespace plumbline::rules {
namespace {

constexpr RoutingCause kCauses[] = {
    {"drop-by-score", "a full expert drops its lowest scores, whoever comes later",
     "Drop by position instead of by score (Megatron-LM: --moe-token-drop-policy position), or "
     "route without capacity (Megatron-LM: no --moe-expert-capacity-factor; DeepSpeed: "
     "drop_tokens=False)."},
    {"batch-prioritised", "tokens queue by their best score, whoever comes later",
     "Queue tokens in time order (Tutel: batch_prioritized_routing=False), or route without "
     "capacity."},
    {"rank-major-queue", "all second choices queue behind all first choices of the pool",
     "Queue each token's choices together, in time order, or route without capacity (DeepSpeed: "
     "drop_tokens=False, or top-1)."},
    {"queue-out-of-order", "the queue of a full expert is not in time order",
     "Undo the context-parallel layout before routing, or queue by position, or route without "
     "capacity."},
    {"sequence-top-k", "the best tokens of the whole sequence are taken",
     "Decide each token by its own score (a predictor with a stored threshold) in a decoder."},
    {"random-token-selection", "a full expert draws whom it keeps, from later tokens too",
     "Queue tokens in time order (DeepSpeed: use_rts=False), or route without capacity."},
    {"tie-order", "a full expert keeps an arbitrary set of tied tokens, later ones among them",
     "Break ties by position, with a stable sort, or route without capacity."},
    {"expert-choice", "experts choose their best tokens of the whole pool",
     "Use token choice in a decoder: dropless top-k with a stored balancing bias."},
    {"balanced-assignment", "one price an expert, fitted on the whole batch, decides each choice",
     "Use the batch's assignment for nothing but balance statistics: choose by own scores plus a "
     "bias that was stored before the batch."},
};
constexpr RoutingCause kUnknownCause = {
    "unknown", "a full expert refused a token and admitted a later one",
    "Queue tokens in time order (and second choices with their own token), or route without "
    "capacity."};

}  // namespace

const RoutingCause& CauseOf(std::string_view id) {
  for (const RoutingCause& cause : kCauses) {
    if (id == cause.id) return cause;
  }
  return kUnknownCause;
}

}  // namespace plumbline::rules
