#include "kernels/evidence/routing.h"

#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/evidence/tensor.h"

namespace plumbline {
namespace {

// The tensors of a call: their names, views and message fields, in one table.
struct TensorField {
  const char* name;
  TensorView RoutingInput::*view;
  const v1::Tensor& (v1::RoutingSample::*get)() const;
  bool (v1::RoutingSample::*has)() const;
  v1::Tensor* (v1::RoutingSample::*mutate)();
};

#define PLUMB_FIELD(name, view, field)                                                     \
  TensorField {                                                                            \
    name, &RoutingInput::view, &v1::RoutingSample::field, &v1::RoutingSample::has_##field, \
        &v1::RoutingSample::mutable_##field                                                \
  }

const std::array<TensorField, 11>& Fields() {
  static const std::array<TensorField, 11> fields = {
      PLUMB_FIELD("scores", scores, scores),
      PLUMB_FIELD("expert_bias", expert_bias, expert_bias),
      PLUMB_FIELD("topk_indices", topk_indices, topk_indices),
      PLUMB_FIELD("keep_mask", keep_mask, keep_mask),
      PLUMB_FIELD("routing_map", routing_map, routing_map),
      PLUMB_FIELD("probs", probs, probs),
      PLUMB_FIELD("sequence_id", sequence_id, sequence_id),
      PLUMB_FIELD("position", position, position),
      PLUMB_FIELD("padding_mask", padding_mask, padding_mask),
      PLUMB_FIELD("pool_id", pool_id, pool_id),
      PLUMB_FIELD("region", region, region),
  };
  return fields;
}

#undef PLUMB_FIELD

uint64_t SampleBytes(const RoutingInput& in) {
  uint64_t total = 0;
  for (const TensorField& f : Fields()) {
    if (__builtin_add_overflow(total, PackedBytes(in.*f.view), &total)) {
      return std::numeric_limits<uint64_t>::max();
    }
  }
  return total;
}

absl::Status Named(const char* name, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

void FillPools(const RoutingPoolStats& pools, v1::RoutingPools* out) {
  out->set_pools(pools.pools);
  out->set_refusing_cells(pools.refusing_cells);
  out->set_separable_cells(pools.separable_cells);
  out->set_most_held(pools.most_held);
  out->set_least_held_refusing(pools.least_held_refusing);
  out->set_most_held_refusing(pools.most_held_refusing);
  out->set_order_measured(pools.order_measured);
  out->set_inverted_cells(pools.inverted_cells);
  if (pools.inverted_cells == 0) return;
  out->set_refused_row(static_cast<uint64_t>(pools.refused_row));
  out->set_admitted_row(static_cast<uint64_t>(pools.admitted_row));
  out->set_expert(static_cast<uint32_t>(pools.expert));
}

}  // namespace

void FillRoutingConfig(const RoutingInput& in, v1::RoutingConfig* out) {
  out->set_top_k(static_cast<uint32_t>(in.top_k));
  out->set_experts(static_cast<uint32_t>(in.scores.rank == 2 ? in.scores.shape[1] : 0));
  out->set_score_function(static_cast<v1::ScoreFunction>(in.score_function));
  out->set_groups(static_cast<uint32_t>(in.groups));
  out->set_top_groups(static_cast<uint32_t>(in.top_groups));
  out->set_group_score(static_cast<v1::RoutingConfig::GroupScore>(in.group_score));
  out->set_scores_dtype(static_cast<v1::DType>(in.scores.dtype));
}

void FillRoutingSummary(const RoutingStats& stats, v1::RoutingSummary* out) {
  out->Clear();
  out->set_tokens(stats.tokens);
  out->set_padding(stats.padding);
  out->set_tied(stats.tied);
  out->set_non_finite(stats.non_finite);
  out->set_unexplained(stats.unexplained);
  out->set_choices(stats.choices);
  out->set_dropped(stats.dropped);
  out->mutable_load()->Add(stats.load.begin(), stats.load.end());
  if (stats.dropped > 0) {
    out->mutable_refused()->Add(stats.refused.begin(), stats.refused.end());
    out->mutable_drop_histogram()->Add(stats.drop_histogram.begin(), stats.drop_histogram.end());
    out->mutable_offered_histogram()->Add(stats.offered_histogram.begin(),
                                          stats.offered_histogram.end());
  }
  out->set_entropy_mean(stats.entropy_mean);
  out->set_margin_mean(stats.margin_mean);
  out->set_z_mean(stats.z_mean);
  out->set_logit_abs_max(stats.logit_abs_max);
  if (stats.pools.measured) FillPools(stats.pools, out->mutable_pools());
}

absl::Status FillRoutingSample(const RoutingInput& in, uint64_t max_bytes, v1::Routing* out) {
  out->clear_sample();
  out->clear_no_sample_reason();
  const uint64_t bytes = SampleBytes(in);
  if (bytes > max_bytes) {
    out->set_no_sample_reason(
        absl::StrCat("a sample of ", bytes, " bytes exceeds the limit of ", max_bytes, " bytes"));
    return absl::OkStatus();
  }
  v1::RoutingSample* sample = out->mutable_sample();
  sample->set_scores_are_logits(in.scores_are_logits);
  for (const TensorField& f : Fields()) {
    if (!(in.*f.view).present()) continue;
    absl::Status status = PackTensor(in.*f.view, (sample->*f.mutate)());
    if (!status.ok()) {
      out->clear_sample();
      return Named(f.name, status);
    }
  }
  return absl::OkStatus();
}

absl::Status FillRouting(const RoutingInput& in, const RoutingStats& stats, bool with_sample,
                         uint64_t max_bytes, v1::Routing* out) {
  FillRoutingConfig(in, out->mutable_config());
  FillRoutingSummary(stats, out->mutable_summary());
  return with_sample ? FillRoutingSample(in, max_bytes, out) : absl::OkStatus();
}

v1::Exercised RoutingExercised(const v1::Routing& routing) {
  if (routing.summary().dropped() > 0) return v1::EXERCISED_YES;
  if (routing.config().capacity_kind() == v1::RoutingConfig::CAPACITY_NONE) return v1::EXERCISED_NO;
  return v1::EXERCISED_UNKNOWN;
}

absl::StatusOr<RoutingInput> ViewRouting(const v1::Routing& routing) {
  if (!routing.has_sample()) return absl::NotFoundError("the evidence holds no sample");
  const v1::RoutingConfig& config = routing.config();
  constexpr auto kMost = static_cast<uint32_t>(std::numeric_limits<int>::max());
  if (config.top_k() > kMost || config.groups() > kMost || config.top_groups() > kMost) {
    return absl::InvalidArgumentError("config: expected top_k and groups below 2^31, found more");
  }
  RoutingInput in;
  in.scores_are_logits = routing.sample().scores_are_logits();
  in.top_k = static_cast<int>(config.top_k());
  in.groups = static_cast<int>(config.groups());
  in.top_groups = static_cast<int>(config.top_groups());
  if (!v1::ScoreFunction_IsValid(config.score_function()) ||
      !v1::RoutingConfig::GroupScore_IsValid(config.group_score())) {
    return absl::InvalidArgumentError("config: expected a known score function and group score");
  }
  in.score_function = static_cast<ScoreFunction>(config.score_function());
  in.group_score = static_cast<GroupScore>(config.group_score());
  const v1::RoutingSample& sample = routing.sample();
  for (const TensorField& f : Fields()) {
    if (!(sample.*f.has)()) continue;
    absl::StatusOr<TensorView> view = ViewTensor((sample.*f.get)(), f.name);
    if (!view.ok()) return view.status();
    in.*f.view = *view;
  }
  return in;
}

}  // namespace plumbline
