#include "kernels/evidence/update.h"

#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/strided.h"
#include "kernels/evidence/sample.h"
#include "kernels/evidence/tensor.h"
#include "kernels/sample/gather.h"

namespace plumbline {
namespace {

struct Field {
  const char* name;
  TensorView UpdateInput::*view;
  v1::Tensor* (v1::UpdateSample::*mutate)();
  bool optional = false;
};

constexpr Field kFields[] = {
    {"before", &UpdateInput::before, &v1::UpdateSample::mutable_before},
    {"after", &UpdateInput::after, &v1::UpdateSample::mutable_after},
    {"intended", &UpdateInput::intended, &v1::UpdateSample::mutable_intended},
    {"gradient", &UpdateInput::gradient, &v1::UpdateSample::mutable_gradient, true},
    {"moment_before", &UpdateInput::moment_before, &v1::UpdateSample::mutable_moment_before, true},
    {"moment_after", &UpdateInput::moment_after, &v1::UpdateSample::mutable_moment_after, true},
};

// Packs offsets; leaves them absent if every element is taken.
void PackOffsets(const std::vector<uint64_t>& indices, uint64_t count, v1::UpdateSample* out) {
  if (indices.size() < count) PackIndices(indices, out->mutable_offsets());
}

}  // namespace

void FillUpdateSummary(const UpdateStats& stats, v1::UpdateSummary* out) {
  out->set_count(stats.count);
  out->set_non_finite(stats.non_finite);
  out->set_intended(stats.intended);
  out->set_lost(stats.lost);
  out->set_moved_against(stats.moved_against);
  out->set_intended_l1(stats.intended_l1);
  out->set_applied_l1(stats.applied_l1);
  out->set_lost_l1(stats.lost_l1);
  out->set_applied_along(stats.applied_along);
  out->set_error_sum(stats.error_sum);
  out->set_misrounded(stats.misrounded);
}

UpdateStats StatsOf(const v1::UpdateSummary& summary) {
  UpdateStats stats;
  stats.count = summary.count();
  stats.non_finite = summary.non_finite();
  stats.intended = summary.intended();
  stats.lost = summary.lost();
  stats.moved_against = summary.moved_against();
  stats.intended_l1 = summary.intended_l1();
  stats.applied_l1 = summary.applied_l1();
  stats.lost_l1 = summary.lost_l1();
  stats.applied_along = summary.applied_along();
  stats.error_sum = summary.error_sum();
  stats.misrounded = summary.misrounded();
  return stats;
}

absl::Status FillUpdateSample(const UpdateInput& in, const UpdateOptions& options,
                              v1::Update* out) {
  out->clear_sample();
  out->clear_no_sample_reason();
  v1::UpdateSample sample;
  std::vector<uint64_t> indices;
  int64_t expected = -1;
  for (const Field& field : kFields) {
    const TensorView& view = in.*field.view;
    if (!view.present() && field.optional) continue;
    int64_t count = 0;
    if (absl::Status status = CheckHostTensor(view, field.name, &count); !status.ok()) {
      return status;
    }
    if (expected < 0) {
      expected = count;
      const auto all = static_cast<uint64_t>(count);
      indices = SampleIndices(options.key, all, options.max_samples);
      PackOffsets(indices, all, &sample);
    }
    if (count != expected) {
      return absl::InvalidArgumentError(absl::StrCat(field.name, ": expected ", expected,
                                                     " elements as in before, found ", count));
    }
    if (absl::Status status = PackSamples(view, indices, (sample.*field.mutate)()); !status.ok()) {
      return status;
    }
  }
  *out->mutable_sample() = std::move(sample);
  return absl::OkStatus();
}

absl::Status FillUpdateSample(const UpdateInput& elements, const TensorSample& sample,
                              v1::Update* out) {
  v1::UpdateSample* to = out->mutable_sample();
  to->Clear();
  out->clear_no_sample_reason();
  std::vector<uint64_t> indices(sample.drawn);
  sample.Indices(indices.data());
  PackOffsets(indices, sample.count, to);
  for (const Field& field : kFields) {
    const TensorView& view = elements.*field.view;
    if (!view.present()) continue;
    if (absl::Status s = PackTensor(view, (to->*field.mutate)()); !s.ok()) return s;
  }
  return absl::OkStatus();
}

void FillUpdateFigures(const UpdateInput& in, const UpdateStats& stats, v1::Update* out) {
  FillUpdateSummary(stats, out->mutable_summary());
  out->mutable_config()->set_dtype(static_cast<v1::DType>(in.before.dtype));
  if (in.moment_before.present()) {
    out->mutable_config()->set_moment_dtype(static_cast<v1::DType>(in.moment_before.dtype));
  }
}

absl::Status FillUpdate(const UpdateInput& in, const UpdateOptions& options, v1::Update* out) {
  UpdateStats stats;
  absl::Status status = CheckUpdate(in.before, in.after, in.intended, &stats, options.threads);
  if (!status.ok()) return status;
  FillUpdateFigures(in, stats, out);
  return options.with_sample ? FillUpdateSample(in, options, out) : absl::OkStatus();
}

}  // namespace plumbline
