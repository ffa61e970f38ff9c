#include "kernels/routing/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

template <typename... Parts>
absl::Status Bad(const char* tensor, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(tensor, ": expected ", parts...));
}

std::string ShapeText(const TensorView& v) {
  std::string text = "[";
  for (int i = 0; i < v.rank; ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", v.shape[static_cast<size_t>(i)]);
  }
  return text + "]";
}

enum class Content { kFloating, kInteger };

// Checks one optional tensor against a shape (columns < 0: a vector) and takes its strides.
class Taker {
 public:
  Taker(int64_t rows, int device) : rows_(rows), device_(device) {}

  absl::Status Take(const char* name, const TensorView& v, int64_t columns, Content content,
                    StridedView* out) const {
    return TakeShape(name, v, rows_, columns, content, out);
  }

  absl::Status TakeShape(const char* name, const TensorView& v, int64_t rows, int64_t columns,
                         Content content, StridedView* out) const {
    *out = StridedView{};
    if (!v.present()) return absl::OkStatus();
    const int rank = columns < 0 ? 1 : 2;
    if (v.rank != rank || v.shape[0] != rows || (rank == 2 && v.shape[1] != columns)) {
      const std::string shape =
          rank == 1 ? absl::StrCat("[", rows, "]") : absl::StrCat("[", rows, ", ", columns, "]");
      return Bad(name, "shape ", shape, ", found ", ShapeText(v));
    }
    if (content == Content::kFloating && !IsFloating(v.dtype)) {
      return Bad(name, "a floating dtype, found ", DTypeName(v.dtype));
    }
    if (content == Content::kInteger && !IsInteger(v.dtype)) {
      return Bad(name, "an integer or bool dtype, found ", DTypeName(v.dtype));
    }
    if (v.data == nullptr) return Bad(name, "data, found a null pointer");
    if (v.device != device_) {
      return Bad(name, "a tensor on the device of the scores (", device_, "), found device ",
                 v.device);
    }
    *out = {v.data, v.stride[0], rank == 2 ? v.stride[1] : 0, v.dtype};
    return absl::OkStatus();
  }

 private:
  int64_t rows_;
  int device_;
};

bool IsScoreDType(DType t) {
  return t == DType::kF64 || t == DType::kF32 || t == DType::kF16 || t == DType::kBF16;
}

absl::Status CheckScores(const RoutingInput& in, RoutingPlan* plan) {
  const char* name = in.scores_are_logits ? "router_logits" : "router_scores";
  const TensorView& v = in.scores;
  if (!v.present()) return Bad(name, "a tensor [T, E], found none");
  if (v.rank != 2 || v.shape[0] < 0 || v.shape[1] < 1 || v.shape[1] > kMaxExperts) {
    return Bad(name, "shape [T, E] with E <= ", kMaxExperts, ", found ", ShapeText(v));
  }
  if (v.shape[0] == 0) return Bad(name, "at least one row, found ", ShapeText(v));
  if (v.shape[0] > kMaxTokens) {
    return Bad(name, "at most ", kMaxTokens, " rows, found ", ShapeText(v));
  }
  if (!IsScoreDType(v.dtype)) {
    return Bad(name, "dtype f64, f32, f16 or bf16, found ", DTypeName(v.dtype));
  }
  if (v.data == nullptr) return Bad(name, "data, found a null pointer");
  plan->tokens = v.shape[0];
  plan->scores = {v.data, v.stride[0], v.stride[1], v.dtype};
  return absl::OkStatus();
}

absl::Status CheckRule(const RoutingInput& in, RouterRule* rule) {
  rule->experts = static_cast<int>(in.scores.shape[1]);
  rule->dtype = in.scores.dtype;
  if (in.score_function > ScoreFunction::kSigmoid) {
    return Bad("score_function", "identity, softmax or sigmoid, found ",
               static_cast<int>(in.score_function));
  }
  if (in.group_score > GroupScore::kSum2) {
    return Bad("group_score", "max or sum2, found ", static_cast<int>(in.group_score));
  }
  rule->function = in.scores_are_logits ? in.score_function : ScoreFunction::kIdentity;
  rule->has_bias = in.expert_bias.present();
  rule->groups = in.groups;
  rule->top_groups = in.top_groups;
  rule->group_score = in.group_score;
  if (in.groups < 0 || (in.groups > 0 && rule->experts % in.groups != 0)) {
    return Bad("groups", "a divisor of E = ", rule->experts, ", found ", in.groups);
  }
  if (in.groups > 1 && (in.top_groups < 1 || in.top_groups > in.groups)) {
    return Bad("top_groups", "a value in [1, ", in.groups, "], found ", in.top_groups);
  }
  rule->top_k = in.top_k;
  const int most = std::min(kMaxTopK, rule->admitted());
  if (in.top_k < 1 || in.top_k > most) {
    return Bad("top_k", "a value in [1, ", most, "], found ", in.top_k);
  }
  return absl::OkStatus();
}

absl::Status TakeTensors(const RoutingInput& in, RoutingPlan* plan) {
  const int64_t experts = plan->rule.experts;
  const int64_t k = plan->rule.top_k;
  const Taker taker(plan->tokens, in.scores.device);
  absl::Status s =
      taker.TakeShape("expert_bias", in.expert_bias, experts, -1, Content::kFloating, &plan->bias);
  if (s.ok()) s = taker.Take("topk_indices", in.topk_indices, k, Content::kInteger, &plan->topk);
  if (s.ok()) s = taker.Take("keep_mask", in.keep_mask, k, Content::kInteger, &plan->keep);
  if (s.ok()) s = taker.Take("routing_map", in.routing_map, experts, Content::kInteger, &plan->map);
  if (s.ok()) s = taker.Take("sequence_id", in.sequence_id, -1, Content::kInteger, &plan->sequence);
  if (s.ok()) s = taker.Take("position", in.position, -1, Content::kInteger, &plan->position);
  if (s.ok())
    s = taker.Take("padding_mask", in.padding_mask, -1, Content::kInteger, &plan->padding);
  if (s.ok()) s = taker.Take("pool_id", in.pool_id, -1, Content::kInteger, &plan->pool);
  if (!s.ok() || !in.probs.present()) return s;
  const bool by_choice = in.probs.rank == 2 && in.probs.shape[1] == k;
  const bool by_expert = in.probs.rank == 2 && in.probs.shape[1] == experts;
  if (by_choice == by_expert && !by_expert) {
    return Bad("probs", "shape [", plan->tokens, ", ", experts, "] or [", plan->tokens, ", ", k,
               "], found ", ShapeText(in.probs));
  }
  plan->probs_by_expert = by_expert;
  return taker.Take("probs", in.probs, in.probs.shape[1], Content::kFloating, &plan->probs);
}

double Mean(double sum, uint64_t count) {
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

int32_t ValueOf(uint64_t key) { return static_cast<int32_t>(static_cast<uint32_t>(key)); }

absl::Status BadValues(const RoutingPlan& plan, const RoutingRaw& raw) {
  if (raw.bad_index != kNothingBad) {
    return Bad("topk_indices", "values in [-1, ", plan.rule.experts - 1, "], found ",
               ValueOf(raw.bad_index), " at row ", raw.bad_index >> 38, ", choice ",
               (raw.bad_index >> 32) & 63);
  }
  if (raw.bad_position != kNothingBad) {
    return Bad("position", "values in [0, 2^58], found ", ValueOf(raw.bad_position), " at row ",
               raw.bad_position >> 32);
  }
  return absl::OkStatus();
}

RoutingPoolStats FinishPools(const RoutingPlan& plan, const RoutingPools& p) {
  RoutingPoolStats out;
  out.measured = plan.fates_known && p.pools <= kMaxPools;
  if (!out.measured) return out;
  out.pools = p.pools;
  out.refusing_cells = p.refusing_cells;
  out.separable_cells = p.separable_cells;
  out.most_held = p.most_held;
  if (p.refusing_cells > 0) {
    out.least_held_refusing = ~p.least_held_refusing;
    out.most_held_refusing = p.most_held_refusing;
  }
  out.order_measured = plan.units_known && p.units <= kMaxUnits;
  if (!out.order_measured) return out;
  out.inverted_cells = p.inverted_cells;
  if (p.inverted_cells > 0) {
    out.refused_row = p.refused_row;
    out.admitted_row = p.admitted_row;
    out.expert = p.expert;
  }
  return out;
}

}  // namespace

absl::Status PlanRouting(const RoutingInput& in, RoutingPlan* plan) {
  *plan = RoutingPlan{};
  absl::Status status = CheckScores(in, plan);
  if (status.ok()) status = CheckRule(in, &plan->rule);
  if (status.ok()) status = TakeTensors(in, plan);
  if (!status.ok()) return status;
  if (plan->keep.present() && !plan->topk.present()) {
    return Bad("keep_mask", "topk_indices next to it, found none");
  }
  plan->recorded = plan->topk.present()  ? RecordedChoice::kIndices
                   : plan->map.present() ? RecordedChoice::kMap
                                         : RecordedChoice::kNone;
  plan->fates_known = plan->keep.present() || plan->map.present();
  plan->units_known = plan->fates_known && plan->sequence.present() && plan->position.present();
  plan->logits_known = in.scores_are_logits || in.score_function == ScoreFunction::kIdentity;
  plan->log_experts = PortableLog(plan->rule.experts);
  return absl::OkStatus();
}

absl::Status FinishRouting(const RoutingPlan& plan, const RoutingRaw& raw, RoutingStats* out) {
  if (absl::Status bad = BadValues(plan, raw); !bad.ok()) return bad;
  const RoutingCounts& c = raw.counts;
  const auto experts = static_cast<size_t>(plan.rule.experts);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  out->tokens = static_cast<uint64_t>(plan.tokens);
  out->padding = c.padding;
  out->tied = c.tied;
  out->non_finite = c.non_finite;
  out->unexplained = c.unexplained;
  out->choices = c.choices;
  out->dropped = c.dropped;
  out->load.assign(c.load, c.load + experts);
  out->refused.assign(c.refused, c.refused + experts);
  out->entropy_mean = experts > 1 ? Mean(raw.entropy_sum, c.entropy_rows) : nan;
  out->margin_mean = Mean(raw.margin_sum, c.margin_rows);
  out->z_mean = plan.logits_known ? Mean(raw.z_sum, c.finite) : nan;
  out->logit_abs_max = c.finite > 0 ? __builtin_bit_cast(double, c.abs_max_bits) : nan;
  out->pools = FinishPools(plan, raw.pools);
  out->drop_histogram.clear();
  out->offered_histogram.clear();
  if (plan.position.present()) {
    out->drop_histogram.assign(c.drop_histogram, c.drop_histogram + kDropBins);
    out->offered_histogram.assign(c.offered_histogram, c.offered_histogram + kDropBins);
  }
  return absl::OkStatus();
}

}  // namespace plumbline
